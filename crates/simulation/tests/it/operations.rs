//! Operations of the provider that the runtime never calls, or only after an error. Each
//! request of each operation fails, in many ways, one fault per run.
//!
//! The program of an operator calls the operation. Some cases have a runtime beside the
//! operator; the requests of that runtime never fail. The call must succeed, unless the
//! operator is killed. A killed operator is restarted and repeats the operation. Then the
//! result must be the same as of one call, except that a message or an activity may be
//! enqueued twice.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use duroxide::providers::{
    ExecutionMetadata, InstanceFilter, Provider, ProviderAdmin, ProviderError, PruneOptions,
    SessionFetchConfig, TagFilter, WorkItem,
};
use duroxide::{Event, EventKind};
use duroxide_cdb::{CommitTier, CosmosDBProvider, CrossInstance};

use perihelion_simulation::activity_log::ActivityLog;
use perihelion_simulation::audit::wait_until_settled;
use perihelion_simulation::fault::Fault;
use perihelion_simulation::fault_plan::FaultPlan;
use perihelion_simulation::process::{self, Handoff, Settings, User, worker_program};
use perihelion_simulation::process_run::Role;
use perihelion_simulation::scenarios::{by_name, wait_until_ended};
use perihelion_simulation::stored::CHUNK_EXECUTION;
use perihelion_simulation::world::{self, Program};

/// The limit of a run's virtual time. An abandoned deletion is undone after a minute, and
/// the reconciler runs after that.
const TIME_LIMIT: Duration = Duration::from_secs(400);

/// The time from the kill of an operator to its restart.
const RESTART_AFTER: Duration = Duration::from_millis(300);

/// The wait after a failed attempt of an operator that was killed before. Only such an
/// operator tries again.
const RETRY_PAUSE: Duration = Duration::from_secs(3);

/// The most attempts of an operator that was killed before: an abandoned deletion
/// blocks its instances for over a minute.
const ATTEMPTS_MAX: usize = 60;

/// The most failing runs whose requests are printed.
const SHOWN_RUNS_MAX: usize = 3;

/// How long a lock lasts.
const LOCK_TIMEOUT: Duration = Duration::from_secs(4);

/// The name of an instance that no runtime runs.
const UNREGISTERED: &str = "lone";

type CallFuture<'p> = Pin<Box<dyn Future<Output = Result<(), ProviderError>> + Send + 'p>>;
type CheckFuture<'u> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'u>>;

/// One operation.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    /// The name of the scenario that runs before the operation. Without a scenario there is no
    /// runtime either.
    scenario: Option<&'static str>,
    call: for<'p> fn(&'p CosmosDBProvider) -> CallFuture<'p>,
    /// Checks the result of the operation, given the number of kills.
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

/// The message that starts the instance [`UNREGISTERED`].
fn start_message() -> WorkItem {
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
    provider.enqueue_for_orchestrator(start_message(), None).await
}

/// Enqueues a message unless the queue has one: a restarted operator does not know whether
/// it enqueued before the kill.
async fn enqueue_if_missing(provider: &CosmosDBProvider) -> Result<(), ProviderError> {
    if admin(provider)?.get_queue_depths().await?.orchestrator_queue == 0 {
        provider.enqueue_for_orchestrator(start_message(), None).await?;
    }
    Ok(())
}

/// The queue has one message, or two if a restarted operator may have enqueued again.
async fn one_message(user: &User, kills: u32) -> Result<(), String> {
    let provider = user.faultless_provider().await;
    let depths = admin(&provider).map_err(error_text)?.get_queue_depths().await.map_err(error_text)?;
    expect(depths.orchestrator_queue, |depth| *depth == 1 || (*depth == 2 && kills > 0))
}

async fn abandon_turn(provider: &CosmosDBProvider) -> Result<(), ProviderError> {
    enqueue_if_missing(provider).await?;
    let (_, token, _) = fetch_turn(provider).await?;
    provider.abandon_orchestration_item(&token, None, false).await
}

/// The turn can be fetched again with its one message, and this is the second attempt. A
/// restarted operator may have enqueued a second message and made another attempt.
async fn one_turn_is_queued(user: &User, kills: u32) -> Result<(), String> {
    tokio::time::sleep(LOCK_TIMEOUT).await;
    let (messages, _, attempts) = fetch_turn(&*user.faultless_provider().await).await.map_err(error_text)?;
    expect(messages, |messages| *messages == 1 || (*messages == 2 && kills > 0))?;
    expect(attempts, |attempts| *attempts == 2 || (*attempts <= 2 + kills && kills > 0))
}

/// Enqueues a message, fetches the turn, renews its lock, and commits it.
async fn renew_turn(provider: &CosmosDBProvider) -> Result<(), ProviderError> {
    enqueue_if_missing(provider).await?;
    let (_, token, _) = fetch_turn(provider).await?;
    provider.renew_orchestration_item_lock(&token, LOCK_TIMEOUT).await?;
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
    let provider = user.faultless_provider().await;
    let history = provider.read(UNREGISTERED).await.map_err(error_text)?;
    expect(history.len(), |events| *events == 1)?;
    let depths = admin(&provider).map_err(error_text)?.get_queue_depths().await.map_err(error_text)?;
    expect(depths.orchestrator_queue, |depth| *depth == 0 || (*depth == 1 && kills > 0))
}

/// Enqueues an activity with a session, fetches and abandons it, fetches it again, renews its
/// locks, and completes it.
async fn run_activity(provider: &CosmosDBProvider) -> Result<(), ProviderError> {
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
    let token = fetch_activity(provider).await?;
    provider.abandon_work_item(&token, None, true).await?;
    let token = fetch_activity(provider).await?;
    provider.renew_work_item_lock(&token, LOCK_TIMEOUT).await?;
    provider.renew_session_lock(&["operator"], LOCK_TIMEOUT, LOCK_TIMEOUT).await?;
    let completion = WorkItem::ActivityCompleted {
        instance: UNREGISTERED.to_owned(),
        execution_id: 1,
        id: 2,
        result: "done".to_owned(),
    };
    provider.ack_work_item(&token, Some(completion)).await
}

/// There is one completion and no activity. If a restarted operator has enqueued a second
/// activity, that activity or its completion may be there, too.
async fn one_completion(user: &User, kills: u32) -> Result<(), String> {
    let provider = user.faultless_provider().await;
    let depths = admin(&provider).map_err(error_text)?.get_queue_depths().await.map_err(error_text)?;
    expect(depths.orchestrator_queue, |depth| *depth == 1 || (*depth == 2 && kills > 0))?;
    expect(depths.worker_queue, |depth| *depth == 0 || (*depth == 1 && kills > 0))
}

/// Appends four events in two calls. Leaves out a call whose events are there already.
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
    let provider = user.faultless_provider().await;
    let history = provider.read_with_execution(UNREGISTERED, 1).await.map_err(error_text)?;
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
    let provider = user.faultless_provider().await;
    let instances = admin(&provider).map_err(error_text)?.list_instances().await.map_err(error_text)?;
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
    let provider = user.faultless_provider().await;
    let admin = admin(&provider).map_err(error_text)?;
    let executions = admin.list_executions("eternal").await.map_err(error_text)?;
    expect(executions, |executions| *executions == [3])?;
    let history = provider.read("eternal").await.map_err(error_text)?;
    expect(history.len(), |events| *events > 4)?;
    expect(wait_until_settled(user).await, Vec::is_empty)?;
    let query = perihelion_client::Query::new(format!(
        "SELECT c.id FROM c WHERE c.{CHUNK_EXECUTION} < 3 OR c.type = 'execution'"
    ));
    let rows = user.container().query::<serde_json::Value>(query).collect().await;
    expect(rows.map_err(|error| error.to_string())?, Vec::is_empty)
}

/// Fetches the only turn. Returns the number of its messages, its lock token, and the
/// number of attempts.
async fn fetch_turn(provider: &CosmosDBProvider) -> Result<(usize, String, u32), ProviderError> {
    let fetched = provider.fetch_orchestration_item(LOCK_TIMEOUT, LOCK_TIMEOUT * 2, None).await?;
    let (item, token, attempts) =
        fetched.ok_or_else(|| ProviderError::permanent("fetch", "there is nothing to fetch"))?;
    Ok((item.messages.len(), token, attempts))
}

/// Fetches the only activity and returns its lock token.
async fn fetch_activity(provider: &CosmosDBProvider) -> Result<String, ProviderError> {
    let session = SessionFetchConfig { owner_id: "operator".to_owned(), lock_timeout: LOCK_TIMEOUT };
    let any = TagFilter::Any;
    let fetched = provider.fetch_work_item(LOCK_TIMEOUT, LOCK_TIMEOUT * 2, Some(&session), &any).await?;
    let (_, token, _) = fetched.ok_or_else(|| ProviderError::permanent("fetch", "there is no activity"))?;
    Ok(token)
}

fn admin(provider: &CosmosDBProvider) -> Result<&dyn ProviderAdmin, ProviderError> {
    provider.as_management_capability().ok_or_else(|| ProviderError::permanent("manage", "not offered"))
}

fn error_text(error: ProviderError) -> String {
    error.to_string()
}

fn expect<T: std::fmt::Debug>(value: T, is_right: impl FnOnce(&T) -> bool) -> Result<(), String> {
    if is_right(&value) { Ok(()) } else { Err(format!("unexpected: {value:?}")) }
}

struct Outcome {
    /// The number of requests of the operation.
    request_count: u64,
    problem: Option<String>,
    /// The requests around the fault; empty if there is no problem.
    log: String,
}

fn run(case: Case, fault_at: Option<(u64, Fault)>) -> Outcome {
    world::simulate(1, 1, |world| {
        let activity_log = ActivityLog::default();
        if case.scenario.is_some() {
            world.add_host(
                Role::Faultless,
                0,
                RESTART_AFTER,
                worker_program(Settings::default(), activity_log.clone(), &Handoff::empty()),
            );
        }
        let (request_count, result) = (Handoff::empty(), Handoff::empty());
        world.add_host(
            Role::Worker,
            0,
            RESTART_AFTER,
            operator_program(case, fault_at, &request_count, &result),
        );
        world.run(TIME_LIMIT, |_| result.has_value());
        let problem = match result.take() {
            Some(Ok(())) => None,
            Some(Err(problem)) => Some(problem),
            None => Some("the operation hangs".to_owned()),
        };
        let log = match problem {
            Some(_) => world.network().log_around(fault_at.map(|(index, _)| index), 12),
            None => String::new(),
        };
        Outcome { request_count: request_count.take().unwrap_or_default(), problem, log }
    })
}

/// The operator's program. A restart runs it again, but the scenario and the fault plan belong
/// to the first start only. `request_count` gets the number of requests of the operation,
/// `result` the outcome of the call and its check.
fn operator_program(
    case: Case,
    fault_at: Option<(u64, Fault)>,
    request_count: &Handoff<u64>,
    result: &Handoff<Result<(), String>>,
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
                    let faultless_user = User::open(user.connection.without_faults()).await;
                    match (by_name(scenario).run)(&faultless_user, scenario.to_owned()).await {
                        Ok(endings) => wait_until_ended(&faultless_user, &endings).await,
                        Err(problem) => return result.put(Err(problem)),
                    }
                }
                network.set_plan(match fault_at {
                    Some((index, fault)) => FaultPlan::One { index, fault },
                    None => FaultPlan::None,
                });
            }
            let called = call(case, &user, network.kills()).await;
            request_count.put(network.numbered_requests());
            network.set_plan(FaultPlan::None);
            let checked = match called {
                Ok(()) => (case.check)(&user, network.kills()).await,
                Err(problem) => Err(problem),
            };
            result.put(checked);
        })
    })
}

/// Calls the operation once. A restarted operator repeats the call until it succeeds, at most
/// [`ATTEMPTS_MAX`] times.
async fn call(case: Case, user: &User, kills: u32) -> Result<(), String> {
    let mut last_error = String::new();
    for _ in 0..if kills == 0 { 1 } else { ATTEMPTS_MAX } {
        match (case.call)(&user.provider).await {
            Ok(()) => return Ok(()),
            // The operation was finished before the kill and cannot be repeated.
            Err(error) if kills > 0 && means_already_done(&error) => return Ok(()),
            Err(error) => last_error = format!("{}: {error}", case.name),
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
    Err(last_error)
}

fn means_already_done(error: &ProviderError) -> bool {
    let text = error.to_string();
    text.contains("not found") || text.contains("Duplicate event id")
}

/// Makes a test for each operation.
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
    every_request_of_renewing_a_turn_may_fail: case!("renew a turn", None, renew_turn, one_turn_is_committed),
    every_request_of_running_an_activity_may_fail: case!("activity", None, run_activity, one_completion),
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
    assert!(without_faults.request_count > 0, "{} sends nothing", case.name);
    for index in 0..without_faults.request_count {
        let faults = match case.scenario {
            Some(_) => Fault::few_for_request(index),
            None => Fault::many_for_request(index),
        };
        for fault in faults.into_iter().filter(|fault| fault.applies_to(Role::Worker)) {
            let Outcome { problem, log, .. } = run(case, Some((index, fault)));
            let Some(problem) = problem else { continue };
            if failed.len() < SHOWN_RUNS_MAX {
                eprintln!("{} request {index} {fault:?}: {problem}\n{log}", case.name);
            }
            failed.push(format!("{index} {fault:?}: {problem}"));
        }
    }
    println!("{}: {} requests, {:?}", case.name, without_faults.request_count, begun.elapsed());
    assert!(failed.is_empty(), "{}: {} runs fail:\n{}", case.name, failed.len(), failed.join("\n"));
}

/// Opening a provider over a connected client creates the database and the container. Each
/// request of the opening fails, in every way except a kill.
#[test]
fn every_request_of_opening_may_fail() {
    let requests = open(None).expect("opening without faults");
    assert!(requests > 2, "opening takes only {requests} requests");
    for index in 0..requests {
        for fault in Fault::RANDOM.into_iter().filter(|fault| *fault != Fault::Kill) {
            if let Err(problem) = open(Some((index, fault))) {
                panic!("request {index} {fault:?}: {problem}");
            }
        }
    }
}

/// Opens a provider with a fault at the request with that number. Returns the number of
/// requests.
fn open(fault_at: Option<(u64, Fault)>) -> Result<u64, String> {
    world::simulate(1, 1, |world| {
        let result: Handoff<Result<(), String>> = Handoff::empty();
        let opened = result.clone();
        let program: Program = Arc::new(move |connection| {
            let result = opened.clone();
            Box::pin(async move {
                let client =
                    perihelion_client::Client::over(&connection.endpoint, connection.transport.clone()).await;
                connection.transport.network.set_plan(match fault_at {
                    Some((index, fault)) => FaultPlan::One { index, fault },
                    None => FaultPlan::None,
                });
                let client = client.expect("no fault before the plan is set");
                let opened =
                    process::open_provider_over(client, CommitTier::default(), CrossInstance::Outbox);
                result.put(opened.await.map(drop));
            })
        });
        world.add_host(Role::User, 0, RESTART_AFTER, program);
        world.run(TIME_LIMIT, |_| result.has_value());
        let opened = result.take().unwrap_or_else(|| Err("the operation hangs".to_owned()));
        opened.map(|()| world.network().numbered_requests())
    })
}
