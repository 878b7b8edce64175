//! Fences: no process overwrites a version of a document that it has not read. This checker looks
//! at the documents that several processes write. Each write to them must be one of these:
//!
//! - conditional: with an etag or a predicate, or a create
//! - in an atomic batch that also has a conditional write, or that reads a garbage record: the batch
//!   is refused if the record was deleted
//! - in the short list `UNCONDITIONAL`, with its reason
//!
//! And the commits of an instance follow one another: the number of a commit is one higher than that
//! of the commit before.

use std::collections::HashMap;

use serde_json::Value;

use super::Evidence;
use crate::stored::STATE_ID;
use crate::write_log::{LoggedWrite, WriteKind};

/// The writes without a condition that are right: the kind, the beginning of the id, and the
/// reason.
const UNCONDITIONAL: &[(WriteKind, &str, &str)] = &[
    (WriteKind::Delete, "o:", "every message of the outbox was delivered; each has a fixed id"),
    (WriteKind::Delete, "b:", "a part never changes, and its id contains an id of the turn that wrote it"),
    (WriteKind::Delete, "p:", "a part never changes, and its id contains the id of its staging"),
    (WriteKind::Delete, "g:", "a garbage record that lists nothing any more; its id is never used again"),
    (WriteKind::Delete, "d:", "a deletion that is finished; its stage cannot change any more"),
    (WriteKind::Upsert, "n:", "a heartbeat, which only its own process writes"),
    (WriteKind::Delete, "n:", "a heartbeat, which only its own process writes"),
    (WriteKind::Upsert, "roster", "the list of processes, which decides nothing"),
];

/// Checks the condition of every write, and the order of the commits.
pub fn check(evidence: &Evidence) -> Vec<String> {
    let mut problems = Vec::new();
    for write in &evidence.writes {
        // The state needs a condition of its own, also in a batch.
        let has_own_condition = write.is_conditional || write.kind == WriteKind::Create;
        let is_fenced = has_own_condition || write.is_fenced;
        if (write.id == STATE_ID && !has_own_condition) || (!is_fenced && !is_listed(write)) {
            problems.push(format!(
                "{} at {} ms: {:?} of {} in {} without a condition",
                write.sender, write.at_ms, write.kind, write.id, write.partition
            ));
        }
    }
    problems.extend(commits_out_of_order(&evidence.writes));
    problems
}

fn is_listed(write: &LoggedWrite) -> bool {
    // The ids of heartbeats and of some messages begin alike. Heartbeats and the other documents of the
    // system have a number as their partition key.
    let is_system = write.instance().is_none();
    UNCONDITIONAL.iter().any(|(kind, prefix, _)| {
        let is_for_system = matches!(*prefix, "n:" | "roster" | "d:");
        *kind == write.kind && write.id.starts_with(prefix) && is_for_system == is_system
    })
}

/// The members of a state that tell its commits apart: the incarnation of the instance, the
/// number of the commit within the incarnation, and the id of the ack that committed.
#[derive(Debug, Clone, PartialEq)]
struct Commit {
    incarnation: String,
    seq: u64,
    ack: String,
}

/// Commits that are out of order. A state is written in three ways: as the next commit, without a
/// commit (as when a lock is taken or the mark of a deletion is set), or as the first of another
/// incarnation.
fn commits_out_of_order(writes: &[LoggedWrite]) -> Vec<String> {
    let (mut last, mut problems) = (HashMap::<&str, Commit>::new(), Vec::new());
    for write in writes.iter().filter(|write| write.id == STATE_ID && write.has_document()) {
        let next = commit_of(&write.body);
        let Some(before) = last.insert(&write.partition, next.clone()) else { continue };
        // The mark of a deletion, its removal and a tombstone change the ack, but count no commit.
        let is_same_commit = next.seq == before.seq;
        let is_next = next.seq == before.seq + 1 && next.ack != before.ack;
        if next.incarnation == before.incarnation && !is_same_commit && !is_next {
            problems.push(format!(
                "{} at {} ms: {next:?} was written over {before:?}",
                write.sender, write.at_ms
            ));
        }
    }
    problems
}

fn commit_of(state: &Value) -> Commit {
    let text = |name: &str| state[name].as_str().unwrap_or_default().to_owned();
    Commit {
        incarnation: text("incarnation"),
        seq: state["seq"].as_u64().unwrap_or_default(),
        ack: text("ack"),
    }
}
