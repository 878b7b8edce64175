//! The program of the user of a fault run: starts workflows and deletions, and after the end of
//! the faults collects the evidence for the checkers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide_cdb::CrossInstance;
use perihelion_client::{Batch, Etag, Patch, Query, Throughput};
use serde_json::Value;
use tokio::time::Instant;

use crate::audit::leftover_documents;
use crate::checkers::Evidence;
use crate::fault_run::storm::Storm;
use crate::process::User;
use crate::scenarios::Scenario;
use crate::stored::{DUE_AT, GARBAGE_STAGING, GARBAGE_TYPE, INCARNATION, STATE_ID};
use crate::virtual_clock;
use crate::world::Program;

/// The time between two reads of a user that waits.
const POLL_INTERVAL: Duration = Duration::from_millis(400);

/// The time between two reads of the whole container, while a user waits for the cleanup. Longer
/// than [`POLL_INTERVAL`], because all documents are read.
const CLEANUP_POLL_INTERVAL: Duration = Duration::from_secs(3);

/// After this time the reads of every region show all writes. Longer than the longest replication delay
/// that is drawn.
const REPLICATED_WITHIN: Duration = Duration::from_secs(1);

/// How long the cleanup may take after everything has ended: locks expire, sessions become
/// idle, a deletion that its process left is given up after a minute, and the reconciler runs.
const SETTLED_WITHIN: Duration = Duration::from_secs(200);

/// How long the cleanup may take with retention, which tries to delete a tree again after ten minutes.
pub const SETTLED_WITH_RETENTION_WITHIN: Duration = Duration::from_secs(800);

/// The time between the cleanup and the idle time. After work, a process polls often at first, and then
/// less and less.
const POLLS_SLOW_DOWN_WITHIN: Duration = Duration::from_secs(10);

/// The throughput of a container that had few request units, after the faults have ended. With more
/// than 10,000 request units per second the service would split the container.
const SCALED_UP: Throughput = Throughput::Manual(10_000);

/// The time at the end in which processes have nothing to do.
pub const IDLE_TIME: Duration = Duration::from_secs(10);

/// Tells the user that the faults have ended, and the harness that the user is idle.
#[derive(Debug, Default)]
pub struct Calm {
    /// One more than the moment at which the faults ended, in milliseconds since the start of the
    /// run; 0 before the faults have ended.
    began_at: AtomicU64,
    /// Whether all scenarios and storms are done and all workflows have ended. Then no fault
    /// can affect them any more.
    pub is_idle: AtomicBool,
}

impl Calm {
    /// Records that the faults have ended.
    pub fn begin(&self, now: Duration) {
        self.began_at.store(u64::try_from(now.as_millis()).unwrap_or(u64::MAX - 1) + 1, Ordering::SeqCst);
    }

    /// When the faults ended.
    fn began(&self) -> Option<Duration> {
        self.began_at.load(Ordering::SeqCst).checked_sub(1).map(Duration::from_millis)
    }
}

/// The actions of the user: scenarios, and storms of deletions.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Each scenario with the time of its beginning.
    pub scenarios: Vec<(Scenario, Duration)>,
    pub storms: Vec<Storm>,
    pub has_retention: bool,
    /// How the user's provider deletes trees.
    pub cross_instance: CrossInstance,
    /// Whether the container has few request units, so that it has to be scaled up when the faults have
    /// ended.
    pub is_throttled: bool,
}

/// The user's program. `evidence` gets what the user knows at the end.
pub fn program(plan: Plan, calm: &Arc<Calm>, evidence: &crate::process::Handoff<Evidence>) -> Program {
    let (calm, evidence) = (Arc::clone(calm), evidence.clone());
    Arc::new(move |connection| {
        let Plan { scenarios, storms, has_retention, cross_instance, is_throttled } = plan.clone();
        let (calm, evidence) = (Arc::clone(&calm), evidence.clone());
        Box::pin(async move {
            let user = Arc::new(User::open_with(connection, cross_instance).await);
            if is_throttled {
                tokio::spawn(scale_up(Arc::clone(&user), Arc::clone(&calm)));
            }
            let mut found = act(&user, scenarios, storms).await;
            wait_until_ended(&user, &found).await;
            let ended_at = virtual_clock::elapsed();
            calm.is_idle.store(true, Ordering::SeqCst);
            let calm_from = loop {
                match calm.began() {
                    Some(began) => break began,
                    None => tokio::time::sleep(POLL_INTERVAL).await,
                }
            };
            found.ended_after = ended_at.saturating_sub(calm_from);
            collect(&user, has_retention, &mut found).await;
            evidence.put(found);
        })
    })
}

/// Scales the container up when the faults have ended.
async fn scale_up(user: Arc<User>, calm: Arc<Calm>) {
    while calm.began().is_none() || user.container().replace_throughput(SCALED_UP).await.is_err() {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Runs all scenarios and storms, each at its time.
async fn act(user: &Arc<User>, scenarios: Vec<(Scenario, Duration)>, storms: Vec<Storm>) -> Evidence {
    let mut starts = tokio::task::JoinSet::new();
    for (number, (scenario, after)) in scenarios.into_iter().enumerate() {
        let user = Arc::clone(user);
        starts.spawn(async move {
            tokio::time::sleep(after).await;
            (scenario.run)(&user, format!("{}{number}", scenario.name)).await
        });
    }
    let mut deletions = tokio::task::JoinSet::new();
    for (number, storm) in storms.into_iter().enumerate() {
        let user = Arc::clone(user);
        deletions.spawn(async move { storm.run(&user, &format!("storm{number}")).await });
    }
    let mut found = Evidence::default();
    while let Some(finished) = starts.join_next().await {
        match finished.map_err(|error| error.to_string()).flatten() {
            Ok(endings) => found.endings.extend(endings),
            Err(problem) => found.failed_calls.push(problem),
        }
    }
    while let Some(finished) = deletions.join_next().await {
        match finished.map_err(|error| error.to_string()).flatten() {
            Ok((deleted, endings)) => {
                found.deleted.extend(deleted);
                found.endings.extend(endings);
            }
            Err(problem) => found.failed_calls.push(problem),
        }
    }
    found
}

/// Waits until every instance has ended. An instance that retention has deleted counts as ended. If the
/// user has used the name of a deleted instance again, the old tombstone may still be there. It does not
/// count.
async fn wait_until_ended(user: &User, found: &Evidence) {
    let old: Vec<&String> = found.deleted.iter().flat_map(|deleted| &deleted.incarnations).collect();
    for (instance, _) in &found.endings {
        loop {
            let state = user.state(instance).await;
            let is_ended = matches!(state["status"].as_str(), Some("Completed" | "Failed"));
            let is_old = old.iter().any(|incarnation| state[INCARNATION] == ***incarnation);
            if !is_old && (is_ended || state["type"] == "deleted") {
                break;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Waits for the cleanup, reads all histories that are left, and waits for the idle time.
async fn collect(user: &User, has_retention: bool, found: &mut Evidence) {
    let limit = if has_retention { SETTLED_WITH_RETENTION_WITHIN } else { SETTLED_WITHIN };
    tokio::time::sleep(REPLICATED_WITHIN).await;
    let begun = Instant::now();
    (found.documents, found.leftover) = loop {
        let (documents, leftover) = match read_all(user).await {
            Ok(documents) => {
                let mut leftover = leftover_documents(&documents);
                leftover.extend(make_stagings_due(user, &documents).await);
                (documents, leftover)
            }
            Err(problem) => (Vec::new(), vec![problem]),
        };
        let is_state = |document: &Value| document["id"] == STATE_ID && document["type"] == "history";
        let is_settled = leftover.is_empty() && !(has_retention && documents.iter().any(is_state));
        if is_settled || begun.elapsed() > limit {
            break (documents, leftover);
        }
        tokio::time::sleep(CLEANUP_POLL_INTERVAL).await;
    };
    found.histories = read_histories(user).await;
    tokio::time::sleep(POLLS_SLOW_DOWN_WITHIN + IDLE_TIME).await;
    found.is_finished = true;
}

/// Makes every garbage record of a staging due at once, and returns the records. A record is due a
/// day after its staging began, which is longer than a run. The reconcilers then have to delete
/// the documents of a staging that was given up, and to leave the documents of a commit alone.
async fn make_stagings_due(user: &User, documents: &[Value]) -> Vec<String> {
    let mut records = Vec::new();
    for record in documents.iter().filter(|document| is_record_of_staging(document)) {
        let mut text = format!("the garbage record {} of {}", record["id"], record["instanceId"]);
        // If a reconciler has changed or deleted the record since it was read, the next round reads
        // it again.
        if record[DUE_AT].as_u64() != Some(0)
            && let Err(error) = make_due(user, record).await
        {
            text.push_str(&format!(", which could not be made due: {error}"));
        }
        records.push(text);
    }
    records
}

async fn make_due(user: &User, record: &Value) -> Result<(), perihelion_client::Error> {
    let member = |name: &str| record[name].as_str().unwrap_or_default();
    let due = Patch::new().set(&format!("/{DUE_AT}"), 0)?;
    let mut batch = Batch::new(member("instanceId"));
    batch.patch_if_match(member("id"), &due, &Etag::parse(member("_etag"))?)?;
    user.container().batch(batch).await.map(drop)
}

fn is_record_of_staging(document: &Value) -> bool {
    document["type"] == GARBAGE_TYPE && document[GARBAGE_STAGING].is_string()
}

async fn read_all(user: &User) -> Result<Vec<Value>, String> {
    let rows = user.container().query::<Value>(Query::new("SELECT * FROM c")).collect().await;
    rows.map_err(|error| format!("the container cannot be read: {error}"))
}

async fn read_histories(user: &User) -> Vec<(String, u64, Result<Vec<duroxide::Event>, String>)> {
    let provider = user.faultless_provider().await;
    let Some(admin) = provider.as_management_capability() else { return Vec::new() };
    let mut histories = Vec::new();
    let instances = match admin.list_instances().await {
        Ok(instances) => instances,
        Err(error) => return vec![("all".to_owned(), 0, Err(error.to_string()))],
    };
    for instance in instances {
        let executions = match admin.list_executions(&instance).await {
            Ok(executions) => executions,
            Err(error) => {
                histories.push((instance, 0, Err(error.to_string())));
                continue;
            }
        };
        for execution in executions {
            let history = admin.read_history_with_execution_id(&instance, execution).await;
            histories.push((instance.clone(), execution, history.map_err(|error| error.to_string())));
        }
    }
    histories
}
