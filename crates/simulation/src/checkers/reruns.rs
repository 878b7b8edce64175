//! Reruns: an activity is run again only if its lock was really lost. A lock is lost when its
//! lease has ended by the service's clock, or when its holder gave it back. Three things must
//! hold:
//!
//! - No process writes its lock over a lock whose lease has not ended. Two locks of the same process
//!   are exceptions: one under which nothing was run, and one of an activity of an instance that was
//!   started again under the same name.
//! - An activity is not run more often than it was locked.
//! - Only the holder of the lock completes an activity.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use serde_json::Value;

use super::Evidence;
use crate::stored::{
    ACTIVITY_PREFIX, ACTIVITY_TYPE, COMPLETED_BY, COMPLETION_PREFIX, INCARNATION_OF_ACTIVITY,
};
use crate::virtual_clock::VIRTUAL_EPOCH_MS;
use crate::write_log::{LoggedWrite, WriteKind};

/// A process may treat a lease as ended this many milliseconds too early: the `Date` of an answer
/// has whole seconds, so processes know the service's time only to about two seconds.
const CLOCK_ERROR_MAX_MS: u64 = 2500;

/// The bits of a stored time below the milliseconds.
const COUNTER_BITS: u32 = 12;

/// The lock of an activity.
struct Lock {
    nonce: String,
    /// The end of the lease, in milliseconds since 1970.
    until_ms: u64,
    holder: String,
    /// When the lock was first written, in milliseconds since the start of the run.
    from_ms: u64,
}

/// Checks every lock of an activity, and how often each activity was run.
pub fn check(evidence: &Evidence) -> Vec<String> {
    let (mut locks, mut problems) = (HashMap::<(&str, &str), Lock>::new(), Vec::new());
    let mut locked = BTreeMap::<String, usize>::new();
    let mut incarnations = HashMap::<(&str, &str), HashSet<&str>>::new();
    for (index, write) in evidence.writes.iter().enumerate() {
        if !write.id.starts_with(ACTIVITY_PREFIX) {
            continue;
        }
        let key = (write.partition.as_str(), write.id.as_str());
        if let Some(incarnation) = write.body[INCARNATION_OF_ACTIVITY].as_str() {
            incarnations.entry(key).or_default().insert(incarnation);
        }
        // The activities of an instance that was started again have the names of the deleted instance's
        // activities. So a run in the log may belong to the deleted instance: its activity was deleted
        // after a worker had fetched it and before the run began.
        let is_name_used_again = incarnations.get(&key).is_some_and(|found| found.len() > 1);
        let Some(lock) = lock_of(write) else {
            let before = locks.remove(&key).map(|lock| lock.nonce);
            if let Some(by) = completed_by(&evidence.writes[index..])
                && before.as_deref() != Some(by)
            {
                problems.push(format!("{} was completed by {by}, but its lock was {before:?}", write.id));
            }
            continue;
        };
        let now_ms = VIRTUAL_EPOCH_MS + write.at_ms;
        let before = locks.get(&key);
        let is_new = before.is_none_or(|before| before.nonce != lock.nonce);
        if let Some(before) = before
            && is_new
            && before.until_ms > now_ms + CLOCK_ERROR_MAX_MS
            && !is_unused(evidence, write, before)
            && !(is_name_used_again && before.holder == write.sender)
        {
            problems.push(format!(
                "{} took {} of {} at {} ms, but {} held its lock for another {} ms",
                write.sender,
                write.id,
                write.partition,
                write.at_ms,
                before.holder,
                before.until_ms - now_ms
            ));
        }
        if is_new && let Some(name) = name_of(&write.body) {
            *locked.entry(name).or_default() += 1;
        }
        let from_ms = before.filter(|_| !is_new).map_or(lock.from_ms, |before| before.from_ms);
        locks.insert(key, Lock { from_ms, ..lock });
    }
    for (name, runs) in &evidence.runs {
        // The locks of an activity whose input is stored in parts are not counted: they do not show
        // the name of the activity.
        if let Some(locked) = locked.get(name)
            && runs.len() > *locked
        {
            problems.push(format!("{name} was run {} times, but locked {locked} times", runs.len()));
        }
    }
    problems
}

/// Whether `write` replaces a lock of the same process under which no run began. This happens when
/// the answer to the write of that lock was lost, so that no worker got the activity.
fn is_unused(evidence: &Evidence, write: &LoggedWrite, before: &Lock) -> bool {
    let lease = Duration::from_millis(before.from_ms)..Duration::from_millis(write.at_ms);
    let runs = name_of(&write.body).and_then(|name| evidence.runs.get(&name));
    let has_run = runs.is_some_and(|times| times.iter().any(|time| lease.contains(time)));
    before.holder == write.sender && !has_run
}

/// The nonce of the lock under which an activity was completed, if the first of these writes
/// deletes the activity and a later write of the same request creates its completion.
fn completed_by(writes: &[LoggedWrite]) -> Option<&str> {
    let (deleted, rest) = writes.split_first().filter(|(first, _)| first.kind == WriteKind::Delete)?;
    let completion = deleted.id.replacen(ACTIVITY_PREFIX, COMPLETION_PREFIX, 1);
    let batch = rest.iter().take_while(|write| write.request == deleted.request);
    batch.filter(|write| write.id == completion).find_map(|write| write.body[COMPLETED_BY].as_str())
}

/// The lock that an activity has after the write; `None` if it has none.
fn lock_of(write: &LoggedWrite) -> Option<Lock> {
    if write.kind == WriteKind::Delete || write.body["type"] != ACTIVITY_TYPE {
        return None;
    }
    Some(Lock {
        nonce: write.body["lock"].as_str()?.to_owned(),
        until_ms: write.body["visibleAt"].as_u64()? >> COUNTER_BITS,
        holder: write.sender.clone(),
        from_ms: write.at_ms,
    })
}

/// The name of an activity in the activity log: its input up to `|`, without quotes. `None` if
/// the work item is stored in parts.
fn name_of(activity: &Value) -> Option<String> {
    let item: Value = serde_json::from_str(activity["item"].as_str()?).ok()?;
    let input = item["ActivityExecute"]["input"].as_str()?;
    Some(input.split('|').next().unwrap_or_default().trim_matches('"').to_owned())
}
