//! The audit after a run: every workflow has its expected output, every history
//! is whole, activities ran as often as they may, and nothing in the container
//! waits for work.

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
use crate::stored::{CHUNK_RUNS, DELETION, GARBAGE, PARTS, PURGE, STAGED_UNDER, STAGING, STATE_ID};

/// How long cleanup may take: locks expire, sessions become idle, and the
/// reconciler runs every ten seconds.
const SETTLE_LIMIT: Duration = Duration::from_secs(90);

/// How often the container is read while cleanup goes on.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The most bytes of a leftover document that are shown.
const SHOWN_BYTES: usize = 400;

/// How often an activity may run for each time it was scheduled.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Strictness {
    /// Once, and once more at most for each kill.
    Runs,
    /// At least once: locks expired while the service could not be reached.
    Completions,
}

impl Strictness {
    /// How many times more than it was scheduled an activity may run.
    pub(crate) fn extra_runs_max(self, kills: u32) -> u32 {
        match self {
            Strictness::Runs => kills,
            Strictness::Completions => u32::MAX,
        }
    }
}

/// Checks everything and returns the problems. An activity may have run
/// `extra_runs_max` times more than it was scheduled.
pub(crate) async fn audit(
    user: &User,
    activity_log: &ActivityLog,
    endings: &Endings,
    extra_runs_max: u32,
) -> Vec<String> {
    let leftover = wait_until_settled(user).await;
    let mut problems: Vec<String> =
        leftover.into_iter().map(|document| format!("left behind: {document}")).collect();
    let provider = user.auditor().await;
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

/// Waits until no document in the container waits for work. Returns the documents
/// that still wait when the time is over.
pub(crate) async fn wait_until_settled(user: &User) -> Vec<String> {
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

/// Documents that still wait for work, or that nothing refers to.
fn leftover_documents(rows: &[Value]) -> Vec<String> {
    let mut leftover = Vec::new();
    let referenced: HashSet<(String, String)> = rows.iter().flat_map(referenced_documents).collect();
    // Documents that were staged and never committed are deleted with the garbage
    // record of their staging.
    let staged: HashSet<(&Value, &Value)> = rows
        .iter()
        .filter(|row| row["type"] == GARBAGE && row[STAGING].is_string())
        .map(|row| (&row["instanceId"], &row[STAGING]))
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
            "history" | "part" => is_referenced == is_staged,
            "staged" => !is_staged,
            // A garbage record of documents that a commit no longer needs is due at once.
            GARBAGE => !row[STAGING].is_string(),
            "execution" => false,
            // Heartbeats have a time to live. Messages, activities, bundles, outboxes,
            // sessions and deletions have none and are deleted when they are done.
            _ => row["ttl"].is_null(),
        };
        if is_leftover {
            let text = row.to_string();
            leftover.push(text[..text.len().min(SHOWN_BYTES)].to_owned());
        }
    }
    leftover
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The chunks of history and parts of texts that a document refers to, as
/// instance and id.
fn referenced_documents(row: &Value) -> Vec<(String, String)> {
    let mut ids = Vec::new();
    let execution = &row["execution"];
    for run in row[CHUNK_RUNS].as_array().into_iter().flatten() {
        let suffix = run[1].as_str().map(|staging| format!(":{staging}")).unwrap_or_default();
        for _ in 0..run[0].as_u64().unwrap_or(0) {
            ids.push(format!("h:{execution}:{}{suffix}", ids.len()));
        }
    }
    // A garbage record lists parts to delete; that is not a reference.
    let is_garbage = row["type"] == GARBAGE;
    find_part_references(row, &mut |prefix, count| {
        ids.extend((0..count).filter(|_| !is_garbage).map(|n| format!("{prefix}:{n}")));
    });
    ids.into_iter().map(|id| (text(&row["instanceId"]), id)).collect()
}

/// Finds the references to parts, anywhere in a document. `found` takes the prefix of
/// the parts' ids and the number of parts.
fn find_part_references(value: &Value, found: &mut impl FnMut(&str, u64)) {
    let [prefix, count, bytes] = PARTS.map(|member| &value[member]);
    if let (Some(prefix), Some(count), true) = (prefix.as_str(), count.as_u64(), bytes.is_number()) {
        found(prefix, count);
    }
    match value {
        Value::Array(items) => items.iter().for_each(|item| find_part_references(item, found)),
        Value::Object(members) => members.values().for_each(|member| find_part_references(member, found)),
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

/// Checks that every execution's history is whole: event ids are dense, one
/// terminal event is the last (requests to cancel may follow it), and each completion belongs
/// to one schedule. Counts in `schedules` how often each activity was scheduled.
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
    // Scheduled and not yet completed, by event id.
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

/// The name under which the activity log has an activity with this input.
fn logged_name(input: &str) -> String {
    input.split('|').next().unwrap_or_default().trim_matches('"').to_owned()
}

/// Removes what the event completes from the open schedules.
fn complete(open: &mut HashMap<u64, &str>, event: &Event, what: &str) -> Result<(), String> {
    let source = event.source_event_id();
    match source.and_then(|source| open.remove(&source)) {
        Some(scheduled) if scheduled == what => Ok(()),
        _ => Err(format!("event {} completes {source:?}, which is not an open {what}", event.event_id())),
    }
}

/// Checks that an activity ran at least once for each time it was scheduled, and at most
/// `extra_runs_max` times more. An activity that is always cancelled (`/endless`) need not
/// have run.
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
