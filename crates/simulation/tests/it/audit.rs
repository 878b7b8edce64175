//! What must hold when everything has ended: outputs, histories, the ledger,
//! and a container in which nothing is left to do.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use duroxide::providers::{Provider, ProviderAdmin};
use duroxide::runtime::OrchestrationStatus;
use duroxide::{Client, ErrorDetails, Event, EventKind};
use perihelion_client::Query;
use serde_json::Value;

use crate::ledger::Ledger;
use crate::process::User;
use crate::scenarios::{Ending, Endings};

/// How long what was left half done may take: locks run out, sessions become
/// idle, and the reconciler comes round every ten seconds.
const SETTLED_WITHIN: Duration = Duration::from_secs(90);

/// How often it is looked at.
const GLANCE: Duration = Duration::from_secs(1);

/// What is asked of the ledger.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Strictness {
    /// An activity runs once, and once more at most for each kill.
    Runs,
    /// It runs at least once: locks ran out while nothing could be reached.
    Completions,
}

impl Strictness {
    /// How many runs too many that makes.
    pub(crate) fn allowing(self, kills: u32) -> u32 {
        match self {
            Strictness::Runs => kills,
            Strictness::Completions => u32::MAX,
        }
    }
}

/// Looks at everything and says what is wrong. An activity may have run as often
/// again as it says.
pub(crate) async fn audit(user: &User, ledger: &Ledger, endings: &Endings, again: u32) -> Vec<String> {
    let left = settled(user).await;
    let mut problems: Vec<String> = left.into_iter().map(|left| format!("left behind: {left}")).collect();
    let provider = user.auditor().await;
    let client = Client::new(provider.clone() as std::sync::Arc<dyn Provider>);
    for (instance, ending) in endings {
        problems.extend(ends_with(&client, instance, ending).await);
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
    problems.extend(check_runs(ledger, &schedules, again));
    problems
}

/// Waits until nothing is left to do in the container; what is, after a while.
pub(crate) async fn settled(user: &User) -> Vec<String> {
    let (container, begun) = (user.container(), tokio::time::Instant::now());
    loop {
        let rows = container.query::<Value>(Query::new("SELECT * FROM c")).collect().await;
        let left = match rows {
            Ok(rows) => leftovers(&rows),
            Err(error) => vec![format!("the container cannot be read: {error}")],
        };
        if left.is_empty() || begun.elapsed() > SETTLED_WITHIN {
            return left;
        }
        tokio::time::sleep(GLANCE).await;
    }
}

/// Documents that nobody would ever look at again, or that wait to be.
fn leftovers(rows: &[Value]) -> Vec<String> {
    let mut left = Vec::new();
    let named: HashSet<(String, String)> = rows.iter().flat_map(names).collect();
    // What was staged and never committed goes with the record of it.
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
            // What is cancelled or deleted goes by itself.
            "cancelled" => row["ttl"].is_null(),
            "deleted" => row["ttl"].is_null() || !row["purge"].is_null(),
            "history" if row["id"] == "i" => !row["lock"].is_null() || !row["del"].is_null(),
            "history" | "part" => is_named == is_staged,
            "staged" => !is_staged,
            // Of what a commit dropped it is due at once.
            "litter" => !row["staging"].is_string(),
            "execution" => false,
            // Sessions are swept when they are idle; heartbeats go by themselves.
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

/// The chunks of history and parts of texts that a document refers to, each
/// with its instance.
fn names(row: &Value) -> Vec<(String, String)> {
    let mut ids = Vec::new();
    let execution = &row["execution"];
    // Runs of chunks: how many, and what their ids end with if they were staged.
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

/// References to parts, wherever they are in a document.
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

async fn ends_with(client: &Client, instance: &str, ending: &Ending) -> Option<String> {
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

/// Every execution's history is whole: dense ids, one terminal event and it is
/// the last, and each completion has its schedule, which has no other.
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
    // What was under way is cancelled after the end: the runtime writes it so.
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
    // What was scheduled and is not completed, by its event.
    let mut open = HashMap::new();
    for event in history {
        match &event.kind {
            EventKind::ActivityScheduled { input, .. } => {
                *schedules.entry(ledger_name(input)).or_default() += 1;
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

/// What an activity with that input is called in the ledger.
fn ledger_name(input: &str) -> String {
    input.split('|').next().unwrap_or_default().trim_matches('"').to_owned()
}

fn close(open: &mut HashMap<u64, &str>, event: &Event, what: &str) -> Result<(), String> {
    let source = event.source_event_id();
    match source.and_then(|source| open.remove(&source)) {
        Some(scheduled) if scheduled == what => Ok(()),
        _ => Err(format!("event {} completes {source:?}, which is no open {what}", event.event_id())),
    }
}

/// An activity runs once for each time it was scheduled, and at most once more
/// for each process that was killed. Cancelled ones may not have run at all.
fn check_runs(ledger: &Ledger, schedules: &BTreeMap<String, u32>, again: u32) -> Vec<String> {
    let runs = ledger.runs();
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
