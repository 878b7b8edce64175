//! Liveness: no workflow is lost or stuck. After the faults have stopped, every workflow that a
//! user started ends within a bound, with the right result. A workflow may have been deleted by
//! then only if finished instances are deleted after some time. In this case its last commit has
//! the result.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::Value;

use super::Evidence;
use crate::scenarios::Ending;
use crate::stored::STATE_ID;

/// How long workflows may need after the last fault. Locks expire one after the other. A deletion
/// whose process was killed is given up after a minute. A clock that was set back by minutes may
/// delay a timer by as many minutes.
pub const ENDED_WITHIN: Duration = Duration::from_secs(300);

/// Checks that every workflow has ended, and how.
pub fn check(evidence: &Evidence) -> Vec<String> {
    let mut problems: Vec<String> = evidence.failed_calls.clone();
    if !evidence.is_finished {
        problems.push(format!("the run hangs: {}", unfinished(evidence).join(", ")));
        return problems;
    }
    if evidence.ended_after > ENDED_WITHIN {
        problems.push(format!("the workflows ended {:?} after the last fault", evidence.ended_after));
    }
    let last = last_states(evidence);
    for (instance, ending) in &evidence.endings {
        let state = last.get(instance).copied().unwrap_or(&Value::Null);
        if !is_ended_as(state, ending) {
            problems.push(format!(
                "{instance} should end with {ending:?}, but its status is {} with {}",
                state["status"], state["output"]
            ));
        }
        let exists = evidence.documents.iter().any(|document| {
            document["id"] == STATE_ID
                && document["type"] == "history"
                && document["instanceId"] == **instance
        });
        if !exists && !evidence.has_retention {
            problems.push(format!("{instance} does not exist any more, although nothing should delete it"));
        }
    }
    problems
}

/// The last state of each instance that a commit wrote; not its tombstone.
fn last_states(evidence: &Evidence) -> HashMap<String, &Value> {
    let states = evidence
        .writes
        .iter()
        .filter(|write| write.id == STATE_ID && write.has_document() && write.body["type"] == "history");
    states.filter_map(|write| Some((write.instance()?, &write.body))).collect()
}

fn is_ended_as(state: &Value, ending: &Ending) -> bool {
    let output = state["output"].as_str().unwrap_or_default();
    match ending {
        Ending::Output(expected) => state["status"] == "Completed" && output == expected,
        Ending::Cancelled => state["status"] == "Failed" && output.to_lowercase().contains("cancel"),
        Ending::Poison => state["status"] == "Failed" && output.to_lowercase().contains("poison"),
    }
}

/// For a run that hangs: the instances whose last state says that they have not ended.
fn unfinished(evidence: &Evidence) -> Vec<String> {
    let is_running = |state: &&Value| !matches!(state["status"].as_str(), Some("Completed" | "Failed"));
    let mut names: Vec<String> = last_states(evidence)
        .into_iter()
        .filter(|(_, state)| is_running(state))
        .map(|(instance, state)| format!("{instance} at commit {}", state["seq"]))
        .collect();
    names.sort();
    names
}
