//! Deletions: an instance that was deleted stays deleted, and no instance is half deleted. Once a
//! deletion was answered, no process writes a state of the instance or of its children again,
//! and their partitions have nothing but tombstones. No deletion is left under way, and no
//! child is left whose parent was deleted. If the user has started an instance of the same name
//! since, its state has another incarnation.

use std::collections::HashSet;

use serde_json::Value;

use super::{Deleted, Evidence};
use crate::stored::{DELETION, GARBAGE_STAGING, GARBAGE_TYPE, INCARNATION, STAGED_UNDER, STATE_ID};
use crate::write_log::LoggedWrite;

/// Checks all instances that were deleted.
pub fn check(evidence: &Evidence) -> Vec<String> {
    let mut problems = Vec::new();
    let live: HashSet<&str> = evidence
        .documents
        .iter()
        .filter(|document| document["id"] == STATE_ID && document["type"] == "history")
        .filter_map(|document| document["instanceId"].as_str())
        .collect();
    let staged: HashSet<(&Value, &Value)> = evidence
        .documents
        .iter()
        .filter(|document| document["type"] == GARBAGE_TYPE && document[GARBAGE_STAGING].is_string())
        .map(|document| (&document["instanceId"], &document[GARBAGE_STAGING]))
        .collect();
    for document in &evidence.documents {
        let name = document["instanceId"].as_str().unwrap_or_default();
        let document_type = document["type"].as_str().unwrap_or_default();
        if document_type == "deletion" || !document[DELETION].is_null() {
            problems.push(format!("a deletion is left under way: {document_type} of {name}"));
        }
        // Tombstones stay for a week, and the guard of a staging (type `fence`) for an hour. A garbage
        // record and the documents of its staging stay for a day.
        let is_staged = staged.contains(&(&document["instanceId"], &document[STAGED_UNDER]));
        let is_kept = matches!(document_type, "deleted" | "fence" | GARBAGE_TYPE) || is_staged;
        let is_gone = |deleted: &Deleted| {
            is_in_tree(name, &deleted.instance) && !deleted.started_again.iter().any(|again| again == name)
        };
        if !is_kept && evidence.deleted.iter().any(is_gone) {
            problems.push(format!("{document_type} {} of {name} exists after the deletion", document["id"]));
        }
        if let Some(parent) = document["parentInstanceId"].as_str()
            && live.contains(name)
            && !live.contains(parent)
        {
            problems.push(format!("{name} exists, but its parent {parent} does not"));
        }
    }
    problems.extend(written_after_deletion(&evidence.writes, &evidence.deleted));
    problems
}

/// States that were written after the deletion of their instance was answered. A state of an instance
/// that the user started again is not among them, if it has a new incarnation.
fn written_after_deletion(writes: &[LoggedWrite], all_deleted: &[Deleted]) -> Vec<String> {
    let mut problems = Vec::new();
    let is_state = |write: &&LoggedWrite| {
        write.id == STATE_ID && write.has_document() && write.body["type"] == "history"
    };
    // The incarnations that were written so far, by instance.
    let mut known = HashSet::<(String, String)>::new();
    let mut sorted: Vec<&Deleted> = all_deleted.iter().collect();
    sorted.sort_by_key(|deleted| deleted.at);
    for deleted in sorted {
        let is_before = |write: &LoggedWrite| u128::from(write.at_ms) <= deleted.at.as_millis();
        let in_tree = writes.iter().filter(is_state).filter_map(|write| Some((write.instance()?, write)));
        let in_tree = in_tree.filter(|(name, _)| is_in_tree(name, &deleted.instance));
        for (name, write) in in_tree {
            let incarnation = write.body[INCARNATION].as_str().unwrap_or_default().to_owned();
            if is_before(write) {
                known.insert((name, incarnation));
                continue;
            }
            let is_started_again = deleted.started_again.contains(&name);
            if !is_started_again || known.contains(&(name.clone(), incarnation)) {
                problems.push(format!(
                    "{} wrote the state of {name} at {} ms, after its deletion was answered",
                    write.sender, write.at_ms
                ));
            }
        }
    }
    problems
}

/// Whether an instance is the root or one of its descendants. The name of a descendant begins with
/// the name of the root and a hyphen.
fn is_in_tree(name: &str, root: &str) -> bool {
    name.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}
