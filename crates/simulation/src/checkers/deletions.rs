//! Deletions: an instance that was deleted stays deleted, and none is half deleted. Once a
//! deletion was answered, no process writes a state of the instance or of its children again,
//! and their partitions have nothing but tombstones. No deletion is left under way, and no
//! child is left whose parent was deleted.

use std::collections::HashSet;

use super::Evidence;
use crate::stored::{DELETION, GARBAGE_TYPE, STAGED_UNDER, STATE_ID};

/// Checks all instances that were deleted.
pub fn check(evidence: &Evidence) -> Vec<String> {
    let mut problems = Vec::new();
    let live: HashSet<&str> = evidence
        .documents
        .iter()
        .filter(|document| document["id"] == STATE_ID && document["type"] == "history")
        .filter_map(|document| document["instanceId"].as_str())
        .collect();
    for document in &evidence.documents {
        let name = document["instanceId"].as_str().unwrap_or_default();
        let document_type = document["type"].as_str().unwrap_or_default();
        if document_type == "deletion" || !document[DELETION].is_null() {
            problems.push(format!("a deletion is left under way: {document_type} of {name}"));
        }
        // Tombstones stay for a week. A garbage record and the documents that it lists stay for a day.
        let is_kept = matches!(document_type, "deleted" | GARBAGE_TYPE) || !document[STAGED_UNDER].is_null();
        if !is_kept && evidence.deleted.iter().any(|(root, _)| is_in_tree(name, root)) {
            problems.push(format!("{document_type} {} of {name} exists after the deletion", document["id"]));
        }
        if let Some(parent) = document["parentInstanceId"].as_str()
            && live.contains(name)
            && !live.contains(parent)
        {
            problems.push(format!("{name} exists, but its parent {parent} does not"));
        }
    }
    for write in evidence.writes.iter().filter(|write| write.id == STATE_ID && write.has_document()) {
        let Some(name) = write.instance() else { continue };
        let is_after = |(root, at): &&(String, std::time::Duration)| {
            is_in_tree(&name, root) && u128::from(write.at_ms) > at.as_millis()
        };
        if write.body["type"] == "history" && evidence.deleted.iter().any(|deleted| is_after(&deleted)) {
            problems.push(format!(
                "{} wrote the state of {name} at {} ms, after its deletion was answered",
                write.sender, write.at_ms
            ));
        }
    }
    problems
}

/// Whether an instance is the root or one of its descendants. The name of a descendant begins with
/// the name of the root and a hyphen.
fn is_in_tree(name: &str, root: &str) -> bool {
    name.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}
