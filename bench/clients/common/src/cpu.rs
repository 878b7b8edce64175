//! CPU time of processes, read from `/proc`.

use std::fs;
use std::time::Duration;

use crate::Problem;

/// Kernel ticks per second in `/proc/<pid>/stat`: 100 on every Linux that runs Rust.
const TICKS_PER_SECOND: f64 = 100.0;

/// The fields of `/proc/<pid>/stat` with the user and system time of the process. Fields are
/// counted from zero, after the program's name.
const OWN_FIELDS: [usize; 2] = [11, 12];

/// The fields with the user and system time of the children that have ended and been waited
/// for.
const CHILDREN_FIELDS: [usize; 2] = [13, 14];

/// CPU time used so far by all threads of a process (`self` or a process id),
/// user and system.
pub fn cpu_of(process: &str) -> Result<Duration, Problem> {
    sum_of_fields(process, OWN_FIELDS)
}

/// CPU time of all descendants of this process that have ended and been waited for.
pub fn children_cpu() -> Result<Duration, Problem> {
    sum_of_fields("self", CHILDREN_FIELDS)
}

/// The sum of two fields of `/proc/<pid>/stat`, converted from ticks to a duration.
fn sum_of_fields(process: &str, fields: [usize; 2]) -> Result<Duration, Problem> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The second field is the program's name in parentheses. It may contain spaces.
    let after_name = stat.rsplit_once(')').ok_or("no name in /proc/<pid>/stat")?.1;
    let mut sum = 0;
    for field in fields {
        let text = after_name.split_whitespace().nth(field).ok_or("no CPU time in /proc/<pid>/stat")?;
        sum += text.parse::<u64>()?;
    }
    Ok(Duration::from_secs_f64(sum as f64 / TICKS_PER_SECOND))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_of_a_child_shows_once_it_has_been_waited_for() {
        let before = children_cpu().expect("CPU time");
        let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let status = std::process::Command::new("sh").args(["-c", busy]).status().expect("a shell");
        assert!(status.success());
        assert!(children_cpu().expect("CPU time") > before);
    }
}
