//! Versions: while a process of an earlier layout version lives, no document has a form that it cannot
//! read. Layout version 3 has one new form: the list of consumed completions in a state.
//!
//! - The list is written only after the container has layout version 3.
//! - The version is raised only when no process of an earlier version has a recent heartbeat. One
//!   exception: the heartbeats are read a moment before the version is raised, so a process whose first
//!   heartbeat is written in that moment may be overlooked.
//! - A process of an earlier version commits no turn of an instance whose state has the list.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use super::Evidence;
use crate::stored::{HEARTBEAT_PREFIX, LAYOUT_ID, STATE_ID, UNDELETED};
use crate::write_log::{LoggedWrite, WriteKind};

/// The layout version from which states may have the list.
const LIST_VERSION: u64 = 3;

/// A process counts as live for this time after its heartbeat, in milliseconds.
const ALIVE_FOR_MS: u64 = 36_000;

/// The times of heartbeats are known in whole seconds, and the heartbeats are read some time before the
/// version is raised. So a process may count as dead this much before [`ALIVE_FOR_MS`] has passed.
const HEARTBEAT_ERROR_MAX_MS: u64 = 2_000;

/// The heartbeats are read at most this long before the version is raised.
const READ_BEFORE_MAX_MS: u64 = 2_000;

/// Checks every write in order.
pub fn check(evidence: &Evidence) -> Vec<String> {
    let (mut problems, mut version) = (Vec::new(), 0);
    // The first and the last heartbeat of each process of an earlier version.
    let mut heartbeats = HashMap::<&str, (&LoggedWrite, &LoggedWrite)>::new();
    // The instances whose state has the list, by partition.
    let mut lists = BTreeSet::<&str>::new();
    for write in &evidence.writes {
        let is_old = evidence.old_processes.contains(&write.sender);
        if write.id == LAYOUT_ID && write.instance().is_none() {
            version = write.body["version"].as_u64().unwrap_or_default();
            let live = heartbeats.values().filter(|(first, last)| is_live(first, last, write.at_ms));
            problems.extend(live.filter(|_| version >= LIST_VERSION).map(|(_, heartbeat)| {
                format!(
                    "{} at {} ms: raised the layout version, but {} has a heartbeat of {} ms",
                    write.sender, write.at_ms, heartbeat.sender, heartbeat.at_ms
                )
            }));
        }
        if is_old && write.id.starts_with(HEARTBEAT_PREFIX) && write.instance().is_none() {
            match write.kind {
                WriteKind::Delete => drop(heartbeats.remove(write.sender.as_str())),
                _ => heartbeats.entry(&write.sender).or_insert((write, write)).1 = write,
            }
        }
        if write.id == STATE_ID && write.has_document() {
            let had_list = lists.remove(write.partition.as_str());
            if has_list(&write.body) {
                lists.insert(&write.partition);
            }
            let problem = match (is_old && had_list, has_list(&write.body) && version < LIST_VERSION) {
                (true, _) => "a process that does not know the list committed a state with it",
                (_, true) => "a state with the list was written before the layout version was raised",
                (false, false) => continue,
            };
            problems
                .push(format!("{} at {} ms in {}: {problem}", write.sender, write.at_ms, write.partition));
        }
    }
    problems
}

fn is_live(first: &LoggedWrite, last: &LoggedWrite, now_ms: u64) -> bool {
    now_ms.saturating_sub(first.at_ms) > READ_BEFORE_MAX_MS
        && now_ms.saturating_sub(last.at_ms) + HEARTBEAT_ERROR_MAX_MS < ALIVE_FOR_MS
}

/// Whether a state has the list of consumed completions.
fn has_list(state: &Value) -> bool {
    state[UNDELETED].as_array().is_some_and(|list| !list.is_empty())
}
