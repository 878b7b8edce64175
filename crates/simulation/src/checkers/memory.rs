//! Memory: no structure in the memory of a process grows without a limit. At the end of the idle time,
//! when nothing is left to do, structures whose entries belong to work are empty, and no other structure
//! has more entries than its limit.

use super::Evidence;

/// Checks the memory of each process at the end of the run.
pub fn check(evidence: &Evidence) -> Vec<String> {
    let mut problems = Vec::new();
    // In a run that hangs there is still work.
    for process in evidence.idle.iter().filter(|_| evidence.is_finished) {
        for size in &process.memory {
            let entries_max = if size.is_empty_when_idle { 0 } else { size.entries_max };
            if size.entries > entries_max {
                problems.push(format!(
                    "{} has {} entries in its memory under \"{}\" while it is idle, {entries_max} are allowed",
                    process.name, size.entries, size.structure
                ));
            }
        }
    }
    problems
}
