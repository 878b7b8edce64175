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

/// Cleanup may take so long: locks expire, sessions become idle, and the
/// reconciler runs every ten seconds.
const SETTLE_LIMIT: Duration = Duration::from_secs(90);

/// How often the container is read while cleanup goes on.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How often an activity may run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Strictness {
    /// Once, and once more at most for each kill.
    Runs,
    /// At least once: locks expired while the service could not be reached.
    Completions,
}

impl Strictness {
    /// How often an activity may run beyond its schedules.
    pub(crate) fn allowing(self, kills: u32) -> u32 {
        match self {
            Strictness::Runs => kills,
            Strictness::Completions => u32::MAX,
        }
    }
}

/// Checks everything and returns the problems. An activity may have run `again`
/// times more than it was scheduled.
pub(crate) async fn audit(
    user: &User,
    activity_log: &ActivityLog,
    endings: &Endings,
    again: u32,
) -> Vec<String> {
    let left = wait_until_settled(user).await;
    let mut problems: Vec<String> = left.into_iter().map(|left| format!("left behind: {left}")).collect();
    let provider = user.auditor().await;
    let client = Client::new(provider.clone() as std::sync::Arc<dyn Provider>);
    for (instance, ending) in endings {
        problems.extend(check_ending(&client, instance, ending).await);
    }
    let Some(admin) = provider.as_management_capability() else {
        problems.push("the provider does not manage".to_owned());
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
        problems.extend(histories(admin, instance, &mut schedules).await);
    }
    problems.extend(check_runs(activity_log, &schedules, again));
    problems
}

/// Waits until nothing in the container waits for work. Returns the documents
/// that still do when the time is over.
pub(crate) async fn wait_until_settled(user: &User) -> Vec<String> {
    let (container, begun) = (user.container(), tokio::time::Instant::now());
    loop {
        let rows = container.query::<Value>(Query::new("SELECT * FROM c")).collect().await;
        let left = match rows {
            Ok(rows) => leftovers(&rows),
            Err(error) => vec![format!("the container cannot be read: {error}")],
        };
        if left.is_empty() || begun.elapsed() > SETTLE_LIMIT {
            return left;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Documents that still wait for work, or that nothing refers to.
fn leftovers(rows: &[Value]) -> Vec<String> {
    let mut left = Vec::new();
    let named: HashSet<(String, String)> = rows.iter().flat_map(names).collect();
    // Documents that were staged and never committed are deleted with the
    // record of the staging.
    let staged: HashSet<(&Value, &Value)> = rows
        .iter()
        .filter(|row| row["type"] == "litter" && row["staging"].is_string())
        .map(|row| (&row["instanceId"], &row["staging"]))
        .collect();
    for row in rows {
        let kind = row["type"].as_str().unwrap_or_default();
        let is_named = named.contains(&(text(&row["instanceId"]), text(&row["id"])));
        let is_staged = staged.contains(&(&row["instanceId"], &row["mark"]));
        let is_left = match kind {
            // The service deletes these after their time to live.
            "cancelled" => row["ttl"].is_null(),
            "deleted" => row["ttl"].is_null() || !row["purge"].is_null(),
            "history" if row["id"] == "i" => !row["lock"].is_null() || !row["del"].is_null(),
            "history" | "part" => is_named == is_staged,
            "staged" => !is_staged,
            // A record of what a commit dropped is due at once.
            "litter" => !row["staging"].is_string(),
            "execution" => false,
            // Idle sessions are swept; heartbeats have a time to live.
            _ => row["ttl"].is_null(),
        };
        if is_left {
            let text = row.to_string();
            left.push(text[..text.len().min(400)].to_owned());
        }
    }
    left
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The chunks of history and parts of texts that a document refers to, as
/// instance and id.
fn names(row: &Value) -> Vec<(String, String)> {
    let mut ids = Vec::new();
    let execution = &row["execution"];
    // Runs of chunks: how many, and the end of their ids if they were staged.
    for run in row["chunks"].as_array().into_iter().flatten() {
        let mark = run[1].as_str().map(|mark| format!(":{mark}")).unwrap_or_default();
        for _ in 0..run[0].as_u64().unwrap_or(0) {
            ids.push(format!("h:{execution}:{}{mark}", ids.len()));
        }
    }
    let is_record = row["type"] == "litter";
    parts(row, &mut |begin, count| {
        ids.extend((0..count).filter(|_| !is_record).map(|n| format!("{begin}:{n}")));
    });
    ids.into_iter().map(|id| (text(&row["instanceId"]), id)).collect()
}

/// Finds references to parts, wherever they are in a document.
fn parts(value: &Value, found: &mut impl FnMut(&str, u64)) {
    if let (Some(begin), Some(count), true) =
        (value["b"].as_str(), value["n"].as_u64(), value["len"].is_number())
    {
        found(begin, count);
    }
    match value {
        Value::Array(items) => items.iter().for_each(|item| parts(item, found)),
        Value::Object(members) => members.values().for_each(|member| parts(member, found)),
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
/// terminal event is the last, and each completion belongs to one schedule.
async fn histories(
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
                close(&mut open, event, "activity")?;
            }
            EventKind::TimerFired { .. } => close(&mut open, event, "timer")?,
            EventKind::SubOrchestrationCompleted { .. } | EventKind::SubOrchestrationFailed { .. } => {
                close(&mut open, event, "child")?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// The name under which an activity with that input is in the activity log.
fn logged_name(input: &str) -> String {
    input.split('|').next().unwrap_or_default().trim_matches('"').to_owned()
}

fn close(open: &mut HashMap<u64, &str>, event: &Event, what: &str) -> Result<(), String> {
    let source = event.source_event_id();
    match source.and_then(|source| open.remove(&source)) {
        Some(scheduled) if scheduled == what => Ok(()),
        _ => Err(format!("event {} completes {source:?}, which is no open {what}", event.event_id())),
    }
}

/// Checks that an activity ran once for each time it was scheduled, and at most
/// `again` times more. A cancelled activity may not have run at all.
fn check_runs(activity_log: &ActivityLog, schedules: &BTreeMap<String, u32>, again: u32) -> Vec<String> {
    let runs = activity_log.runs();
    let mut problems = Vec::new();
    for (activity, runs) in &runs {
        let scheduled = schedules.get(activity).copied().unwrap_or(0);
        if *runs > scheduled.saturating_add(again) {
            problems
                .push(format!("{activity} ran {runs} times, scheduled {scheduled}, {again} more allowed"));
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
