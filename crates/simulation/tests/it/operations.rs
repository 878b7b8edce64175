//! Operations that the runtime never calls, or only after an error: each request of
//! each operation fails, in many ways. An operator's program calls them; a runtime
//! beside it has no faults. An operation may not fail unless the operator is
//! killed. A killed operator is restarted and repeats the operation; then the
//! result must be the same as of one call, except that the operator may have enqueued a
//! message or an activity twice.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use duroxide::providers::{
    ExecutionMetadata, InstanceFilter, Provider, ProviderAdmin, ProviderError, PruneOptions, TagFilter,
    WorkItem,
};
use duroxide::{Event, EventKind};
use duroxide_cdb::{CommitTier, CosmosDBProvider};

use crate::activity_log::ActivityLog;
use crate::audit::wait_until_settled;
use crate::fault::Fault;
use crate::fault_plan::FaultPlan;
use crate::network::Role;
use crate::process::{self, Settings, Slot, User, worker};
use crate::scenarios::{by_name, wait_until_ended};
use crate::stored::CHUNK_EXECUTION;
use crate::world::{self, Program};

/// The time limit of a run. An abandoned deletion is undone after a minute, and the
/// reconciler runs after that.
const TIME: Duration = Duration::from_secs(400);

/// A killed operator is restarted after this time.
const RESTART_AFTER: Duration = Duration::from_millis(300);

/// The wait after a failed attempt. Only an operator that was killed before tries again.
const RETRY_PAUSE: Duration = Duration::from_secs(3);

/// The most attempts of an operator that was killed before: an abandoned deletion
/// blocks its instances for over a minute.
const ATTEMPTS_MAX: usize = 60;

/// The most failing runs that are shown in full.
const SHOWN_MAX: usize = 3;

/// How long a lock lasts.
const LOCK: Duration = Duration::from_secs(4);

/// An instance that no runtime runs: its orchestration is not registered.
const UNREGISTERED: &str = "lone";

type CallFuture<'p> = Pin<Box<dyn Future<Output = Result<(), ProviderError>> + Send + 'p>>;
type CheckFuture<'u> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'u>>;

/// One operation.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    /// The scenario that runs to its end before the operation. Without one, there
    /// is no runtime either.
    scenario: Option<&'static str>,
    call: for<'p> fn(&'p CosmosDBProvider) -> CallFuture<'p>,
    /// Checks the result, given the number of kills.
    check: for<'u> fn(&'u User, u32) -> CheckFuture<'u>,
}

macro_rules! case {
    ($name:literal, $scenario:expr, $call:path, $check:path) => {
        Case {
            name: $name,
            scenario: $scenario,
            call: |provider| Box::pin($call(provider)),
            check: |user, kills| Box::pin($check(user, kills)),
        }
    };
}

fn start() -> WorkItem {
    WorkItem::StartOrchestration {
        instance: UNREGISTERED.to_owned(),
        orchestration: "Nobody".to_owned(),
        input: String::new(),
        version: Some("1.0.0".to_owned()),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        execution_id: 1,
    }
}

fn event(id: u64) -> Event {
    Event::with_event_id(id, UNREGISTERED, 1, None, EventKind::TimerCreated { fire_at_ms: id })
}

async fn enqueue(provider: &CosmosDBProvider) -> Result<(), ProviderError> {
    provider.enqueue_for_orchestrator(start(), None).await
}

/// Enqueues unless a message is there: a restarted operator does not know
/// whether it has enqueued.
async fn enqueue_if_missing(provider: &CosmosDBProvider) -> Result<(), ProviderError> {
    if admin(provider)?.get_queue_depths().await?.orchestrator_queue == 0 {
        provider.enqueue_for_orchestrator(start(), None).await?;
    }
    Ok(())
}

/// There is one message. There may be two if a restarted operator has enqueued again.
async fn one_message(user: &User, kills: u32) -> Result<(), String> {
    let depths = admin(&*user.auditor().await).map_err(text)?.get_queue_depths().await.map_err(text)?;
    expect(depths.orchestrator_queue, |depth| *depth == 1 || (*depth == 2 && kills > 0))
}

async fn abandon_turn(provider: &CosmosDBProvider) -> Result<(), ProviderError> {
    enqueue_if_missing(provider).await?;
    let (_, token, _) = fetch(provider).await?;
    provider.abandon_orchestration_item(&token, None, false).await
}

/// The turn can be fetched again, with its message, and the attempt counts. A restarted
/// operator may have enqueued a second message and attempted the turn again.
async fn one_turn_is_queued(user: &User, kills: u32) -> Result<(), String> {
    tokio::time::sleep(LOCK).await;
    let (messages, _, attempts) = fetch(&*user.auditor().await).await.map_err(text)?;
    expect(messages, |messages| *messages == 1 || (*messages == 2 && kills > 0))?;
    expect(attempts, |attempts| *attempts == 2 || (*attempts <= 2 + kills && kills > 0))
}

async fn renew_turn(provider: &CosmosDBProvider) -> Result<(), ProviderError> {
    enqueue_if_missing(provider).await?;
    let (_, token, _) = fetch(provider).await?;
    provider.renew_orchestration_item_lock(&token, LOCK).await?;
    let begun = EventKind::OrchestrationStarted {
        name: "Nobody".to_owned(),
        version: "1.0.0".to_owned(),
        input: String::new(),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        carry_forward_events: None,
        initial_custom_status: None,
    };
    let history = vec![Event::with_event_id(1, UNREGISTERED, 1, None, begun)];
    let metadata = ExecutionMetadata {
        orchestration_name: Some("Nobody".to_owned()),
        orchestration_version: Some("1.0.0".to_owned()),
        ..ExecutionMetadata::default()
    };
    provider.ack_orchestration_item(&token, 1, history, Vec::new(), Vec::new(), metadata, Vec::new()).await
}

async fn one_turn_is_committed(user: &User, kills: u32) -> Result<(), String> {
    let provider = user.auditor().await;
    let history = provider.read(UNREGISTERED).await.map_err(text)?;
    expect(history.len(), |events| *events == 1)?;
    let depths = admin(&provider).map_err(text)?.get_queue_depths().await.map_err(text)?;
    expect(depths.orchestrator_queue, |depth| *depth == 0 || (*depth == 1 && kills > 0))
}

async fn work(provider: &CosmosDBProvider) -> Result<(), ProviderError> {
    let item = WorkItem::ActivityExecute {
        instance: UNREGISTERED.to_owned(),
        execution_id: 1,
        id: 2,
        name: "Nothing".to_owned(),
        input: String::new(),
        session_id: Some("a session".to_owned()),
        tag: None,
    };
    provider.enqueue_for_worker(item).await?;
    let token = fetch_work(provider).await?;
    provider.abandon_work_item(&token, None, true).await?;
    let token = fetch_work(provider).await?;
    provider.renew_work_item_lock(&token, LOCK).await?;
    provider.renew_session_lock(&["operator"], LOCK, LOCK).await?;
    let completion = WorkItem::ActivityCompleted {
        instance: UNREGISTERED.to_owned(),
        execution_id: 1,
        id: 2,
        result: "done".to_owned(),
    };
    provider.ack_work_item(&token, Some(completion)).await
}

/// There is one completion and no activity. A restarted operator may have enqueued a second
/// activity.
async fn one_completion(user: &User, kills: u32) -> Result<(), String> {
    let depths = admin(&*user.auditor().await).map_err(text)?.get_queue_depths().await.map_err(text)?;
    expect(depths.orchestrator_queue, |depth| *depth == 1 || (*depth == 2 && kills > 0))?;
    expect(depths.worker_queue, |depth| *depth == 0 || (*depth == 1 && kills > 0))
}

/// Appends the events that are missing.
async fn append(provider: &CosmosDBProvider) -> Result<(), ProviderError> {
    let events = provider.read_with_execution(UNREGISTERED, 1).await?.len();
    if events < 2 {
        provider.append_with_execution(UNREGISTERED, 1, vec![event(1), event(2)]).await?;
    }
    if events < 4 {
        provider.append_with_execution(UNREGISTERED, 1, vec![event(3), event(4)]).await?;
    }
    Ok(())
}

async fn four_events(user: &User, _: u32) -> Result<(), String> {
    let history = user.auditor().await.read_with_execution(UNREGISTERED, 1).await.map_err(text)?;
    let ids: Vec<u64> = history.iter().map(Event::event_id).collect();
    expect(ids, |ids| *ids == [1, 2, 3, 4])
}

async fn delete_tree(provider: &CosmosDBProvider) -> Result<(), ProviderError> {
    let admin = admin(provider)?;
    let tree = admin.get_instance_tree("parent").await?;
    admin.delete_instances_atomic(&tree.all_ids, false).await.map(drop)
}

async fn delete_running(provider: &CosmosDBProvider) -> Result<(), ProviderError> {
    let admin = admin(provider)?;
    let tree = admin.get_instance_tree("parked").await?;
    admin.delete_instances_atomic(&tree.all_ids, true).await.map(drop)
}

async fn delete_bulk(provider: &CosmosDBProvider) -> Result<(), ProviderError> {
    admin(provider)?.delete_instance_bulk(InstanceFilter::default()).await.map(drop)
}

/// No document waits for work, and there is no instance and no history.
async fn only_tombstones_remain(user: &User, _: u32) -> Result<(), String> {
    expect(wait_until_settled(user).await, Vec::is_empty)?;
    let instances = admin(&*user.auditor().await).map_err(text)?.list_instances().await.map_err(text)?;
    expect(instances, Vec::is_empty)?;
    let query = perihelion_client::Query::new("SELECT * FROM c WHERE c.type = 'history'");
    let rows = user.container().query::<serde_json::Value>(query).collect().await;
    expect(rows.map_err(|error| error.to_string())?, Vec::is_empty)
}

async fn prune(provider: &CosmosDBProvider) -> Result<(), ProviderError> {
    let options = PruneOptions { keep_last: Some(1), completed_before: None };
    admin(provider)?.prune_executions("eternal", options).await.map(drop)
}

async fn one_execution(user: &User, _: u32) -> Result<(), String> {
    let provider = user.auditor().await;
    let executions = admin(&provider).map_err(text)?.list_executions("eternal").await.map_err(text)?;
    expect(executions, |executions| *executions == [3])?;
    let history = provider.read("eternal").await.map_err(text)?;
    expect(history.len(), |events| *events > 4)?;
    expect(wait_until_settled(user).await, Vec::is_empty)?;
    let query = perihelion_client::Query::new(format!(
        "SELECT c.id FROM c WHERE c.{CHUNK_EXECUTION} < 3 OR c.type = 'execution'"
    ));
    let rows = user.container().query::<serde_json::Value>(query).collect().await;
    expect(rows.map_err(|error| error.to_string())?, Vec::is_empty)
}

/// Fetches the only turn. Returns the number of its messages, its token, and the
/// number of attempts.
async fn fetch(provider: &CosmosDBProvider) -> Result<(usize, String, u32), ProviderError> {
    let fetched = provider.fetch_orchestration_item(LOCK, LOCK * 2, None).await?;
    let (item, token, attempts) =
        fetched.ok_or_else(|| ProviderError::permanent("fetch", "there is nothing to fetch"))?;
    Ok((item.messages.len(), token, attempts))
}

async fn fetch_work(provider: &CosmosDBProvider) -> Result<String, ProviderError> {
    let session =
        duroxide::providers::SessionFetchConfig { owner_id: "operator".to_owned(), lock_timeout: LOCK };
    let any = TagFilter::Any;
    let fetched = provider.fetch_work_item(LOCK, LOCK * 2, Some(&session), &any).await?;
    let (_, token, _) = fetched.ok_or_else(|| ProviderError::permanent("fetch", "there is no activity"))?;
    Ok(token)
}

fn admin(provider: &CosmosDBProvider) -> Result<&dyn ProviderAdmin, ProviderError> {
    provider.as_management_capability().ok_or_else(|| ProviderError::permanent("manage", "not offered"))
}

fn text(error: ProviderError) -> String {
    error.to_string()
}

fn expect<T: std::fmt::Debug>(value: T, is_right: impl FnOnce(&T) -> bool) -> Result<(), String> {
    if is_right(&value) { Ok(()) } else { Err(format!("unexpected: {value:?}")) }
}

struct Outcome {
    /// The number of requests of the operation.
    requests: u64,
    problem: Option<String>,
    log: String,
}

fn run(case: Case, fault_at: Option<(u64, Fault)>) -> Outcome {
    world::simulate(1, 1, |world| {
        let activity_log = ActivityLog::default();
        if case.scenario.is_some() {
            world.add_host(
                Role::Observer,
                0,
                RESTART_AFTER,
                worker(Settings::default(), activity_log.clone(), &Slot::empty()),
            );
        }
        let (request_count, result) = (Slot::empty(), Slot::empty());
        world.add_host(Role::Worker, 0, RESTART_AFTER, operator(case, fault_at, &request_count, &result));
        world.run(TIME, |_| result.is_full());
        let problem = match result.take() {
            Some(Ok(())) => None,
            Some(Err(problem)) => Some(problem),
            None => Some("the operation hangs".to_owned()),
        };
        let log = match problem {
            Some(_) => world.network().log_around(fault_at.map(|(index, _)| index), 12),
            None => String::new(),
        };
        Outcome { requests: request_count.take().unwrap_or_default(), problem, log }
    })
}

/// The operator's program; it may be started more than once.
fn operator(
    case: Case,
    fault_at: Option<(u64, Fault)>,
    request_count: &Slot<u64>,
    result: &Slot<Result<(), String>>,
) -> Program {
    let (request_count, result) = (request_count.clone(), result.clone());
    let is_prepared = Arc::new(AtomicBool::new(false));
    Arc::new(move |connection| {
        let (request_count, result, is_prepared) =
            (request_count.clone(), result.clone(), Arc::clone(&is_prepared));
        Box::pin(async move {
            let network = Arc::clone(&connection.transport.network);
            let user = User::open(connection).await;
            if !is_prepared.swap(true, Ordering::SeqCst) {
                if let Some(scenario) = case.scenario {
                    let observer = User::open(user.connection.as_observer()).await;
                    match (by_name(scenario).run)(&observer, scenario.to_owned()).await {
                        Ok(endings) => wait_until_ended(&observer, &endings).await,
                        Err(problem) => return result.put(Err(problem)),
                    }
                }
                network.plan(match fault_at {
                    Some((index, fault)) => FaultPlan::One { index, fault },
                    None => FaultPlan::None,
                });
            }
            let called = call(case, &user, network.kills()).await;
            request_count.put(network.numbered_requests());
            network.plan(FaultPlan::None);
            let checked = match called {
                Ok(()) => (case.check)(&user, network.kills()).await,
                Err(problem) => Err(problem),
            };
            result.put(checked);
        })
    })
}

/// Calls the operation once. A restarted operator calls it until it succeeds, up to
/// [`ATTEMPTS_MAX`] times.
async fn call(case: Case, user: &User, kills: u32) -> Result<(), String> {
    let mut last = String::new();
    for _ in 0..if kills == 0 { 1 } else { ATTEMPTS_MAX } {
        match (case.call)(&user.provider).await {
            Ok(()) => return Ok(()),
            // An operation that was finished before the kill cannot be repeated.
            Err(error) if kills > 0 && means_already_done(&error) => return Ok(()),
            Err(error) => last = format!("{}: {error}", case.name),
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
    Err(last)
}

fn means_already_done(error: &ProviderError) -> bool {
    let text = error.to_string();
    text.contains("not found") || text.contains("Duplicate event id")
}

/// A test for each operation.
macro_rules! every_request {
    ($($test:ident: $case:expr,)*) => {
        $(#[test]
        fn $test() {
            check($case);
        })*
    };
}

every_request! {
    every_request_of_enqueueing_may_fail: case!("enqueue", None, enqueue, one_message),
    every_request_of_abandoning_a_turn_may_fail:
        case!("abandon a turn", None, abandon_turn, one_turn_is_queued),
    every_request_of_a_renewed_turn_may_fail: case!("renew a turn", None, renew_turn, one_turn_is_committed),
    every_request_of_an_activity_by_hand_may_fail: case!("activity", None, work, one_completion),
    every_request_of_appending_may_fail: case!("append", None, append, four_events),
    every_request_of_deleting_a_tree_may_fail:
        case!("delete a tree", Some("parent"), delete_tree, only_tombstones_remain),
    every_request_of_deleting_a_running_tree_may_fail:
        case!("delete a running tree", Some("parked"), delete_running, only_tombstones_remain),
    every_request_of_deleting_in_bulk_may_fail:
        case!("delete in bulk", Some("detach"), delete_bulk, only_tombstones_remain),
    every_request_of_pruning_may_fail: case!("prune", Some("eternal"), prune, one_execution),
}

fn check(case: Case) {
    let (begun, mut failed) = (Instant::now(), Vec::new());
    let without_faults = run(case, None);
    assert_eq!(without_faults.problem, None, "{} without faults\n{}", case.name, without_faults.log);
    assert!(without_faults.requests > 0, "{} sends nothing", case.name);
    for index in 0..without_faults.requests {
        let faults = if case.scenario.is_some() { Fault::few_at(index) } else { Fault::many_at(index) };
        for fault in faults.into_iter().filter(|fault| fault.applies_to(Role::Worker)) {
            let Outcome { problem, log, .. } = run(case, Some((index, fault)));
            let Some(problem) = problem else { continue };
            if failed.len() < SHOWN_MAX {
                eprintln!("{} request {index} {fault:?}: {problem}\n{log}", case.name);
            }
            failed.push(format!("{index} {fault:?}: {problem}"));
        }
    }
    println!("{}: {} requests, {:?}", case.name, without_faults.requests, begun.elapsed());
    assert!(failed.is_empty(), "{}: {} runs fail:\n{}", case.name, failed.len(), failed.join("\n"));
}

/// Opening a provider over a client that is connected creates the database and
/// the container.
#[test]
fn every_request_of_opening_may_fail() {
    let requests = open(None).expect("opening without faults");
    assert!(requests > 2, "opening takes more than {requests} requests");
    for index in 0..requests {
        for fault in Fault::ALL.into_iter().filter(|fault| *fault != Fault::Kill) {
            if let Err(problem) = open(Some((index, fault))) {
                panic!("request {index} {fault:?}: {problem}");
            }
        }
    }
}

fn open(fault_at: Option<(u64, Fault)>) -> Result<u64, String> {
    world::simulate(1, 1, |world| {
        let result: Slot<Result<(), String>> = Slot::empty();
        let opened = result.clone();
        let program: Program = Arc::new(move |connection| {
            let result = opened.clone();
            Box::pin(async move {
                let client =
                    perihelion_client::Client::over(&connection.endpoint, connection.transport.clone()).await;
                connection.transport.network.plan(match fault_at {
                    Some((index, fault)) => FaultPlan::One { index, fault },
                    None => FaultPlan::None,
                });
                let client = client.expect("no fault before the plan is set");
                result.put(process::provider_over(client, CommitTier::default()).await.map(drop));
            })
        });
        world.add_host(Role::User, 0, RESTART_AFTER, program);
        world.run(TIME, |_| result.is_full());
        let opened = result.take().unwrap_or_else(|| Err("the operation hangs".to_owned()));
        opened.map(|()| world.network().numbered_requests())
    })
}
