//! The audit after a run checks five things: every workflow has ended as expected, no other
//! instance exists, every history is whole, no activity ran too often or too seldom, and no
//! document in the container is still to be processed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use duroxide::providers::{Provider, ProviderAdmin};
use duroxide::runtime::OrchestrationStatus;
use duroxide::{Client, ErrorDetails, Event, EventKind};
use perihelion_client::Query;
use serde_json::Value;

use crate::activity_log::ActivityLog;
use crate::process::User;
use crate::scenarios::{Ending, Endings};
use crate::stored::{
    CHUNK_RUNS, DELETION, GARBAGE_STAGING, GARBAGE_TYPE, PARTS_REFERENCE, PURGE, STAGED_UNDER, STATE_ID,
};

/// How long cleanup may take: locks expire, sessions become idle, and an idle reconciler queries a
/// partition every 30 s. After a kill, the killed process counts as alive for a while.
const SETTLE_LIMIT: Duration = Duration::from_secs(240);

/// The time between two reads of the container while cleanup goes on.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The most bytes of each member of a leftover document that an error text shows.
const SHOWN_BYTES_MAX: usize = 100;

/// Waits for cleanup, then checks everything and returns the problems. An activity may
/// have run `extra_runs_max` times more than it was scheduled.
pub async fn audit(
    user: &User,
    activity_log: &ActivityLog,
    endings: &Endings,
    extra_runs_max: u32,
) -> Vec<String> {
    let leftover = wait_until_settled(user).await;
    let mut problems: Vec<String> =
        leftover.into_iter().map(|document| format!("left behind: {document}")).collect();
    let provider = user.faultless_provider().await;
    let client = Client::new(provider.clone() as std::sync::Arc<dyn Provider>);
    for (instance, ending) in endings {
        problems.extend(check_ending(&client, instance, ending).await);
    }
    let Some(admin) = provider.as_management_capability() else {
        problems.push("the provider has no management interface".to_owned());
        return problems;
    };
    let mut instances = admin.list_instances().await.unwrap_or_default();
    let mut expected: Vec<String> = endings.iter().map(|(instance, _)| instance.clone()).collect();
    instances.sort();
    expected.sort();
    if instances != expected {
        problems.push(format!("instances {instances:?} instead of {expected:?}"));
    }
    let mut schedules = BTreeMap::new();
    for instance in &instances {
        problems.extend(check_histories(admin, instance, &mut schedules).await);
    }
    problems.extend(check_runs(activity_log, &schedules, extra_runs_max));
    problems
}

/// Waits until no document is left over in the container, at most for `SETTLE_LIMIT`.
/// Returns the documents that are still left over then.
pub async fn wait_until_settled(user: &User) -> Vec<String> {
    let (container, begun) = (user.container(), tokio::time::Instant::now());
    loop {
        let rows = container.query::<Value>(Query::new("SELECT * FROM c")).collect().await;
        let leftover = match rows {
            Ok(rows) => leftover_documents(&rows),
            Err(error) => vec![format!("the container cannot be read: {error}")],
        };
        if leftover.is_empty() || begun.elapsed() > SETTLE_LIMIT {
            return leftover;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Documents that are still to be processed, or that no other document refers to.
pub fn leftover_documents(rows: &[Value]) -> Vec<String> {
    let mut leftover = Vec::new();
    let referenced: HashSet<(String, String)> = rows.iter().flat_map(referenced_documents).collect();
    // A staging writes documents before their commit. If the commit never follows, the
    // garbage record of the staging deletes the documents later.
    let staged: HashSet<(&Value, &Value)> = rows
        .iter()
        .filter(|row| row["type"] == GARBAGE_TYPE && row[GARBAGE_STAGING].is_string())
        .map(|row| (&row["instanceId"], &row[GARBAGE_STAGING]))
        .collect();
    for row in rows {
        let document_type = row["type"].as_str().unwrap_or_default();
        let is_referenced = referenced.contains(&(text(&row["instanceId"]), text(&row["id"])));
        let is_staged = staged.contains(&(&row["instanceId"], &row[STAGED_UNDER]));
        let is_leftover = match document_type {
            // The service deletes these after their time to live.
            "cancelled" => row["ttl"].is_null(),
            "deleted" => row["ttl"].is_null() || !row[PURGE].is_null(),
            "history" if row["id"] == STATE_ID => !row["lock"].is_null() || !row[DELETION].is_null(),
            // One of two things must hold, and not both: another document refers to it, or it is
            // staged and not yet committed.
            "history" | "part" => is_referenced == is_staged,
            "staged" => !is_staged,
            // A garbage record without a staging lists documents that a commit no longer
            // needs. It is due at once.
            GARBAGE_TYPE => !row[GARBAGE_STAGING].is_string(),
            // There is one of each: the version of the container, and the list of processes.
            "layout" | "roster" => false,
            // An earlier execution of an instance. It stays as long as the instance.
            "execution" => false,
            // Heartbeats have a time to live. The other types (messages, activities,
            // bundles, outboxes, sessions, deletions) have none, and the provider deletes
            // such a document when its work is done.
            _ => row["ttl"].is_null(),
        };
        if is_leftover {
            leftover.push(shown(row).to_string());
        }
    }
    leftover
}

/// A document with its long members cut.
fn shown(document: &Value) -> Value {
    let mut document = document.clone();
    for (name, value) in document.as_object_mut().into_iter().flatten() {
        match value {
            Value::String(text) => text.truncate(text.floor_char_boundary(SHOWN_BYTES_MAX)),
            Value::Object(_) | Value::Array(_) if value.to_string().len() > SHOWN_BYTES_MAX => {
                *value = Value::String(format!("({name}: {} bytes)", value.to_string().len()));
            }
            _ => {}
        }
    }
    document
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The chunks of history and the parts of large texts that a document refers to, each as
/// the pair of instance and document id.
fn referenced_documents(row: &Value) -> Vec<(String, String)> {
    let mut ids = Vec::new();
    let execution = &row["execution"];
    for run in row[CHUNK_RUNS].as_array().into_iter().flatten() {
        let suffix = run[1].as_str().map(|staging| format!(":{staging}")).unwrap_or_default();
        for _ in 0..run[0].as_u64().unwrap_or(0) {
            ids.push(format!("h:{execution}:{}{suffix}", ids.len()));
        }
    }
    // A garbage record lists parts to delete. This list is not a reference that keeps the parts.
    let is_garbage = row["type"] == GARBAGE_TYPE;
    find_part_references(row, &mut |prefix, count| {
        ids.extend((0..count).filter(|_| !is_garbage).map(|n| format!("{prefix}:{n}")));
    });
    ids.into_iter().map(|id| (text(&row["instanceId"]), id)).collect()
}

/// Finds the references to parts of large texts, anywhere in a document. Calls
/// `on_reference` for each, with the prefix of the parts' ids and the number of parts.
fn find_part_references(value: &Value, on_reference: &mut impl FnMut(&str, u64)) {
    let [prefix, count, bytes] = PARTS_REFERENCE.map(|member| &value[member]);
    if let (Some(prefix), Some(count), true) = (prefix.as_str(), count.as_u64(), bytes.is_number()) {
        on_reference(prefix, count);
    }
    match value {
        Value::Array(items) => items.iter().for_each(|item| find_part_references(item, on_reference)),
        Value::Object(members) => {
            members.values().for_each(|member| find_part_references(member, on_reference));
        }
        _ => {}
    }
}

async fn check_ending(client: &Client, instance: &str, ending: &Ending) -> Option<String> {
    let status = client.get_orchestration_status(instance).await;
    match (&status, ending) {
        (Ok(OrchestrationStatus::Completed { output, .. }), Ending::Output(expected))
            if output == expected =>
        {
            None
        }
        (Ok(OrchestrationStatus::Failed { details, .. }), Ending::Cancelled)
            if details.display_message().contains("cancel") =>
        {
            None
        }
        (Ok(OrchestrationStatus::Failed { details: ErrorDetails::Poison { .. }, .. }), Ending::Poison) => {
            None
        }
        _ => Some(format!("{instance} should end with {ending:?}: {status:?}")),
    }
}

/// Checks that the history of each execution is whole: event ids are dense, exactly one
/// event is terminal, only requests to cancel follow the terminal event, and each completion
/// belongs to one schedule. Adds to `schedules` how often each activity was scheduled.
async fn check_histories(
    admin: &dyn ProviderAdmin,
    instance: &str,
    schedules: &mut BTreeMap<String, u32>,
) -> Vec<String> {
    let mut problems = Vec::new();
    let executions = match admin.list_executions(instance).await {
        Ok(executions) => executions,
        Err(error) => return vec![format!("executions of {instance}: {error}")],
    };
    for execution in executions {
        match admin.read_history_with_execution_id(instance, execution).await {
            Ok(history) => {
                if let Err(wrong) = check_history(&history, schedules) {
                    problems.push(format!("history {instance} {execution}: {wrong}"));
                }
            }
            Err(error) => problems.push(format!("history {instance} {execution}: {error}")),
        }
    }
    problems
}

fn check_history(history: &[Event], schedules: &mut BTreeMap<String, u32>) -> Result<(), String> {
    let ids: Vec<u64> = history.iter().map(Event::event_id).collect();
    let dense: Vec<u64> = (1..=history.len() as u64).collect();
    if ids != dense {
        return Err(format!("event ids are {ids:?}"));
    }
    // The runtime writes cancellations of pending work after the terminal event.
    let is_cancelling = |event: &&Event| {
        matches!(
            event.kind,
            EventKind::ActivityCancelRequested { .. } | EventKind::SubOrchestrationCancelRequested { .. }
        )
    };
    let last = history.iter().rev().skip_while(is_cancelling).map(Event::event_id).next();
    let is_end = |event: &&Event| event.is_terminal();
    let ends: Vec<u64> = history.iter().filter(is_end).map(Event::event_id).collect();
    if ends.len() != 1 || ends.first().copied() != last {
        return Err(format!("terminal events are {ends:?}: {history:?}"));
    }
    // The activities, timers and sub-orchestrations that are scheduled and not completed: the
    // kind of each, by the id of the event that scheduled it.
    let mut open = HashMap::new();
    for event in history {
        match &event.kind {
            EventKind::ActivityScheduled { input, .. } => {
                *schedules.entry(logged_name(input)).or_default() += 1;
                open.insert(event.event_id(), "activity");
            }
            EventKind::TimerCreated { .. } => drop(open.insert(event.event_id(), "timer")),
            EventKind::SubOrchestrationScheduled { .. } => drop(open.insert(event.event_id(), "child")),
            EventKind::ActivityCompleted { .. } | EventKind::ActivityFailed { .. } => {
                complete(&mut open, event, "activity")?;
            }
            EventKind::TimerFired { .. } => complete(&mut open, event, "timer")?,
            EventKind::SubOrchestrationCompleted { .. } | EventKind::SubOrchestrationFailed { .. } => {
                complete(&mut open, event, "child")?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// The key of the activity log for an activity with this input: the part before `|`, without
/// quotes.
fn logged_name(input: &str) -> String {
    input.split('|').next().unwrap_or_default().trim_matches('"').to_owned()
}

/// Removes from `open` the entry that the event completes. An entry of another kind, or no
/// entry, is an error.
fn complete(open: &mut HashMap<u64, &str>, event: &Event, kind: &str) -> Result<(), String> {
    let source = event.source_event_id();
    match source.and_then(|source| open.remove(&source)) {
        Some(scheduled) if scheduled == kind => Ok(()),
        _ => Err(format!("event {} completes {source:?}, which is not an open {kind}", event.event_id())),
    }
}

/// Checks that each activity ran at least as often as it was scheduled, and at most
/// `extra_runs_max` times more. An activity that is always cancelled (its input ends with
/// `/endless`) need not have run.
fn check_runs(
    activity_log: &ActivityLog,
    schedules: &BTreeMap<String, u32>,
    extra_runs_max: u32,
) -> Vec<String> {
    let runs = activity_log.runs();
    let mut problems = Vec::new();
    for (activity, runs) in &runs {
        let scheduled = schedules.get(activity).copied().unwrap_or(0);
        if *runs > scheduled.saturating_add(extra_runs_max) {
            problems.push(format!(
                "{activity} ran {runs} times, scheduled {scheduled}, {extra_runs_max} more allowed"
            ));
        }
    }
    for (activity, scheduled) in schedules {
        let runs = runs.get(activity).copied().unwrap_or(0);
        if runs < *scheduled && !activity.ends_with("/endless") {
            problems.push(format!("{activity} ran {runs} times of {scheduled}"));
        }
    }
    problems
}
