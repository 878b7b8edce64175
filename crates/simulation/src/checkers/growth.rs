//! Growth: no garbage is left that would grow with the number of instances. After all instances
//! have ended and cleanup is done, the container has only states of instances, their histories,
//! the documents with its version and with the list of processes, and tombstones and heartbeats
//! with a time to live. No document is still to be processed.
//! With retention, no finished instance is left. A process that has nothing to do sends few
//! requests, and knows of no undelivered messages.

use duroxide_cdb::MemorySize;

use super::Evidence;
use crate::stored::STATE_ID;

/// The requests of an idle process in the last part of a run, its oldest outbox, and its memory.
#[derive(Debug, Clone)]
pub struct IdleProcess {
    pub name: String,
    /// The requests that it sent in that part.
    pub requests: u64,
    /// The most requests that an idle process may send in that part.
    pub requests_max: u64,
    /// The age of the oldest outbox that it knows of; `None` if it knows of none.
    pub outbox_age_ms: Option<u64>,
    /// How much it has in its memory.
    pub memory: Vec<MemorySize>,
}

/// Checks the documents and processes at the end.
pub fn check(evidence: &Evidence) -> Vec<String> {
    let mut problems: Vec<String> =
        evidence.leftover.iter().map(|document| format!("left behind: {document}")).collect();
    for document in &evidence.documents {
        let is_state = document["id"] == STATE_ID && document["type"] == "history";
        if is_state && evidence.has_retention {
            problems.push(format!("{} is finished and was not deleted", document["instanceId"]));
        }
    }
    for process in &evidence.idle {
        if process.requests > process.requests_max {
            problems.push(format!(
                "{} sent {} requests while idle, {} are allowed",
                process.name, process.requests, process.requests_max
            ));
        }
        if let Some(age_ms) = process.outbox_age_ms {
            problems.push(format!("{} knows of an undelivered outbox, {age_ms} ms old", process.name));
        }
    }
    problems
}
