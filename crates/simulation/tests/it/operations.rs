//! Operations that the runtime never calls, or only when something is wrong:
//! each request of each of them fails in each way. An operator's program makes
//! them beside a runtime to which nothing happens. Unless it is killed, no
//! operation may report a failure; an operator who was killed does it again, as
//! a person would, and then everything must be as if it had been done once.

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

use crate::audit::settled;
use crate::fault::Fault;
use crate::ledger::Ledger;
use crate::network::Role;
use crate::process::{self, Settings, Slot, User, worker};
use crate::scenarios::{by_name, ended};
use crate::weather::Plan;
use crate::world::{self, Program};

/// An operation that takes longer hangs. A deletion that was given up is undone
/// after a minute, and the reconciler comes round after that.
const TIME: Duration = Duration::from_secs(400);

/// A killed operator is back after this.
const AWAY: Duration = Duration::from_millis(300);

/// Between attempts of an operator who was killed before.
const AGAIN: Duration = Duration::from_secs(3);

/// Attempts of that one: a deletion that was given up holds its instances for
/// over a minute.
const AGAIN_MAX: usize = 60;

/// Failing runs shown in full.
const SHOWN_MAX: usize = 3;

/// Locks that are taken here, and how long it takes until they have run out.
const LOCK: Duration = Duration::from_secs(4);

/// An instance that no runtime runs: nobody has registered its orchestration,
/// and no runtime is there.
const LONE: &str = "lone";

type Acted<'p> = Pin<Box<dyn Future<Output = Result<(), ProviderError>> + Send + 'p>>;
type Seen<'u> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'u>>;

/// One operation.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    /// The scenario that is played to its end before; without one there is no
    /// runtime either.
    before: Option<&'static str>,
    act: for<'p> fn(&'p CosmosDBProvider) -> Acted<'p>,
    /// What must hold afterwards, when so many processes were killed.
    see: for<'u> fn(&'u User, u32) -> Seen<'u>,
}

macro_rules! case {
    ($name:literal, $before:expr, $act:path, $see:path) => {
        Case {
            name: $name,
            before: $before,
            act: |provider| Box::pin($act(provider)),
            see: |user, kills| Box::pin($see(user, kills)),
        }
    };
}

fn start() -> WorkItem {
    WorkItem::StartOrchestration {
        instance: LONE.to_owned(),
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
    Event::with_event_id(id, LONE, 1, None, EventKind::TimerCreated { fire_at_ms: id })
}

async fn enqueue(provider: &CosmosDBProvider) -> Result<(), ProviderError> {
    provider.enqueue_for_orchestrator(start(), None).await
}

/// What an operator does who was killed and does not know how far it came.
async fn enqueue_if_missing(provider: &CosmosDBProvider) -> Result<(), ProviderError> {
    if manage(provider)?.get_queue_depths().await?.orchestrator_queue == 0 {
        provider.enqueue_for_orchestrator(start(), None).await?;
    }
    Ok(())
}

/// Whoever was killed has enqueued and does it again: another message.
async fn one_message(user: &User, kills: u32) -> Result<(), String> {
    let depths = admin(&*user.auditor().await)?.get_queue_depths().await.map_err(text)?;
    expect(depths.orchestrator_queue, |depth| *depth == 1 || (*depth == 2 && kills > 0))
}

async fn abandon_turn(provider: &CosmosDBProvider) -> Result<(), ProviderError> {
    enqueue_if_missing(provider).await?;
    let (_, token, _) = fetch(provider).await?;
    provider.abandon_orchestration_item(&token, None, false).await
}

/// It can be taken again, with its message, and the attempt counts.
async fn a_turn_is_there(user: &User, kills: u32) -> Result<(), String> {
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
    let history = vec![Event::with_event_id(1, LONE, 1, None, begun)];
    let metadata = ExecutionMetadata {
        orchestration_name: Some("Nobody".to_owned()),
        orchestration_version: Some("1.0.0".to_owned()),
        ..ExecutionMetadata::default()
    };
    provider.ack_orchestration_item(&token, 1, history, Vec::new(), Vec::new(), metadata, Vec::new()).await
}

async fn one_turn(user: &User, kills: u32) -> Result<(), String> {
    let provider = user.auditor().await;
    let history = provider.read(LONE).await.map_err(text)?;
    expect(history.len(), |events| *events == 1)?;
    let depths = admin(&provider)?.get_queue_depths().await.map_err(text)?;
    expect(depths.orchestrator_queue, |depth| *depth == 0 || (*depth == 1 && kills > 0))
}

async fn work(provider: &CosmosDBProvider) -> Result<(), ProviderError> {
    let item = WorkItem::ActivityExecute {
        instance: LONE.to_owned(),
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
        instance: LONE.to_owned(),
        execution_id: 1,
        id: 2,
        result: "done".to_owned(),
    };
    provider.ack_work_item(&token, Some(completion)).await
}

/// Whoever was killed has enqueued the activity and does it again: another one.
async fn one_completion(user: &User, kills: u32) -> Result<(), String> {
    let depths = admin(&*user.auditor().await)?.get_queue_depths().await.map_err(text)?;
    expect(depths.orchestrator_queue, |depth| *depth == 1 || (*depth == 2 && kills > 0))?;
    expect(depths.worker_queue, |depth| *depth == 0 || (*depth == 1 && kills > 0))
}

/// Appends what is not there yet.
async fn append(provider: &CosmosDBProvider) -> Result<(), ProviderError> {
    let events = provider.read_with_execution(LONE, 1).await?.len();
    if events < 2 {
        provider.append_with_execution(LONE, 1, vec![event(1), event(2)]).await?;
    }
    if events < 4 {
        provider.append_with_execution(LONE, 1, vec![event(3), event(4)]).await?;
    }
    Ok(())
}

async fn four_events(user: &User, _: u32) -> Result<(), String> {
    let history = user.auditor().await.read_with_execution(LONE, 1).await.map_err(text)?;
    let ids: Vec<u64> = history.iter().map(Event::event_id).collect();
    expect(ids, |ids| *ids == [1, 2, 3, 4])
}

async fn delete_tree(provider: &CosmosDBProvider) -> Result<(), ProviderError> {
    let admin = manage(provider)?;
    let tree = admin.get_instance_tree("parent").await?;
    admin.delete_instances_atomic(&tree.all_ids, false).await.map(drop)
}

async fn delete_running(provider: &CosmosDBProvider) -> Result<(), ProviderError> {
    let admin = manage(provider)?;
    let tree = admin.get_instance_tree("parked").await?;
    admin.delete_instances_atomic(&tree.all_ids, true).await.map(drop)
}

async fn delete_bulk(provider: &CosmosDBProvider) -> Result<(), ProviderError> {
    manage(provider)?.delete_instance_bulk(InstanceFilter::default()).await.map(drop)
}

/// No instance, and no document but tombstones.
async fn nothing_is_left(user: &User, _: u32) -> Result<(), String> {
    let left = settled(user).await;
    expect(left, Vec::is_empty)?;
    let instances = admin(&*user.auditor().await)?.list_instances().await.map_err(text)?;
    expect(instances, Vec::is_empty)?;
    let query = perihelion_client::Query::new("SELECT * FROM c WHERE c.type = 'history'");
    let rows = user.container().query::<serde_json::Value>(query).collect().await;
    expect(rows.map_err(|error| error.to_string())?, Vec::is_empty)
}

async fn prune(provider: &CosmosDBProvider) -> Result<(), ProviderError> {
    let options = PruneOptions { keep_last: Some(1), completed_before: None };
    manage(provider)?.prune_executions("eternal", options).await.map(drop)
}

async fn one_execution(user: &User, _: u32) -> Result<(), String> {
    let provider = user.auditor().await;
    let executions = admin(&provider)?.list_executions("eternal").await.map_err(text)?;
    expect(executions, |executions| *executions == [3])?;
    let history = provider.read("eternal").await.map_err(text)?;
    expect(history.len(), |events| *events > 4)?;
    expect(settled(user).await, Vec::is_empty)?;
    let query = perihelion_client::Query::new("SELECT c.id FROM c WHERE c.hx < 3 OR c.type = 'execution'");
    let rows = user.container().query::<serde_json::Value>(query).collect().await;
    expect(rows.map_err(|error| error.to_string())?, Vec::is_empty)
}

/// Takes the turn of the one instance; how many messages came with it.
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

fn manage(provider: &CosmosDBProvider) -> Result<&dyn ProviderAdmin, ProviderError> {
    provider.as_management_capability().ok_or_else(|| ProviderError::permanent("manage", "not offered"))
}

fn admin(provider: &CosmosDBProvider) -> Result<&dyn ProviderAdmin, String> {
    manage(provider).map_err(text)
}

fn text(error: ProviderError) -> String {
    error.to_string()
}

fn expect<T: std::fmt::Debug>(value: T, is_right: impl FnOnce(&T) -> bool) -> Result<(), String> {
    if is_right(&value) { Ok(()) } else { Err(format!("it should not be {value:?}")) }
}

struct Outcome {
    requests: u64,
    problem: Option<String>,
    story: String,
}

fn run(case: Case, strike: Option<(u64, Fault)>) -> Outcome {
    world::play(1, 1, |world| {
        let ledger = Ledger::default();
        if case.before.is_some() {
            world.add(Role::Watcher, 0, AWAY, worker(Settings::default(), ledger.clone(), &Slot::empty()));
        }
        let (counted, result) = (Slot::empty(), Slot::empty());
        world.add(Role::Worker, 0, AWAY, operator(case, strike, &counted, &result));
        world.run(TIME, |_| result.is_full());
        let problem = match result.take() {
            Some(Ok(())) => None,
            Some(Err(problem)) => Some(problem),
            None => Some("it hangs".to_owned()),
        };
        let story = match problem {
            Some(_) => world.network().story(strike.map(|(index, _)| index), 12),
            None => String::new(),
        };
        Outcome { requests: counted.take().unwrap_or_default(), problem, story }
    })
}

/// The operator's program, which may be started more than once.
fn operator(
    case: Case,
    strike: Option<(u64, Fault)>,
    counted: &Slot<u64>,
    result: &Slot<Result<(), String>>,
) -> Program {
    let (counted, result) = (counted.clone(), result.clone());
    let is_prepared = Arc::new(AtomicBool::new(false));
    Arc::new(move |site| {
        let (counted, result, is_prepared) = (counted.clone(), result.clone(), Arc::clone(&is_prepared));
        Box::pin(async move {
            let network = Arc::clone(&site.tap.network);
            let user = User::open(site).await;
            if !is_prepared.swap(true, Ordering::SeqCst) {
                if let Some(scenario) = case.before {
                    let calm = User::open(user.site.watching()).await;
                    match (by_name(scenario).play)(&calm, scenario.to_owned()).await {
                        Ok(endings) => ended(&calm, &endings).await,
                        Err(problem) => return result.put(Err(problem)),
                    }
                }
                network.plan(match strike {
                    Some((index, fault)) => Plan::Strike { index, fault },
                    None => Plan::Calm,
                });
            }
            let acted = act(case, &user, network.kills()).await;
            counted.put(network.numbered());
            network.plan(Plan::Calm);
            let seen = match acted {
                Ok(()) => (case.see)(&user, network.kills()).await,
                Err(problem) => Err(problem),
            };
            result.put(seen);
        })
    })
}

/// Once; or as often as it takes, for an operator who was killed before.
async fn act(case: Case, user: &User, kills: u32) -> Result<(), String> {
    let mut last = String::new();
    for _ in 0..if kills == 0 { 1 } else { AGAIN_MAX } {
        match (case.act)(&user.provider).await {
            Ok(()) => return Ok(()),
            // What the one before had finished cannot be done again.
            Err(error) if kills > 0 && is_done_before(&error) => return Ok(()),
            Err(error) => last = format!("{}: {error}", case.name),
        }
        tokio::time::sleep(AGAIN).await;
    }
    Err(last)
}

fn is_done_before(error: &ProviderError) -> bool {
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
        case!("abandon a turn", None, abandon_turn, a_turn_is_there),
    every_request_of_a_renewed_turn_may_fail: case!("renew a turn", None, renew_turn, one_turn),
    every_request_of_an_activity_by_hand_may_fail: case!("activity", None, work, one_completion),
    every_request_of_appending_may_fail: case!("append", None, append, four_events),
    every_request_of_deleting_a_tree_may_fail:
        case!("delete a tree", Some("parent"), delete_tree, nothing_is_left),
    every_request_of_deleting_what_runs_may_fail:
        case!("delete what runs", Some("parked"), delete_running, nothing_is_left),
    every_request_of_deleting_in_bulk_may_fail:
        case!("delete in bulk", Some("detach"), delete_bulk, nothing_is_left),
    every_request_of_pruning_may_fail: case!("prune", Some("eternal"), prune, one_execution),
}

fn check(case: Case) {
    let (began, mut failed) = (Instant::now(), Vec::new());
    let calm = run(case, None);
    assert_eq!(calm.problem, None, "{} without faults\n{}", case.name, calm.story);
    assert!(calm.requests > 0, "{} sends nothing", case.name);
    for index in 0..calm.requests {
        let faults = if case.before.is_some() { Fault::few_at(index) } else { Fault::many_at(index) };
        for fault in faults.into_iter().filter(|fault| fault.may_befall(Role::Worker)) {
            let Outcome { problem, story, .. } = run(case, Some((index, fault)));
            let Some(problem) = problem else { continue };
            if failed.len() < SHOWN_MAX {
                eprintln!("{} request {index} {fault:?}: {problem}\n{story}", case.name);
            }
            failed.push(format!("{index} {fault:?}: {problem}"));
        }
    }
    println!("{}: {} requests, {:?}", case.name, calm.requests, began.elapsed());
    assert!(failed.is_empty(), "{}: {} runs fail:\n{}", case.name, failed.len(), failed.join("\n"));
}

/// Opening, over a client that is connected: database and container are made.
#[test]
fn every_request_of_opening_may_fail() {
    let requests = open(None).expect("it opens without faults");
    assert!(requests > 2, "opening takes more than {requests} requests");
    for index in 0..requests {
        for fault in Fault::ALL.into_iter().filter(|fault| *fault != Fault::Kill) {
            if let Err(problem) = open(Some((index, fault))) {
                panic!("request {index} {fault:?}: {problem}");
            }
        }
    }
}

fn open(strike: Option<(u64, Fault)>) -> Result<u64, String> {
    world::play(1, 1, |world| {
        let result: Slot<Result<(), String>> = Slot::empty();
        let put = result.clone();
        let program: Program = Arc::new(move |site| {
            let result = put.clone();
            Box::pin(async move {
                let client = perihelion_client::Client::over(&site.endpoint, site.tap.clone()).await;
                site.tap.network.plan(match strike {
                    Some((index, fault)) => Plan::Strike { index, fault },
                    None => Plan::Calm,
                });
                let client = client.expect("nothing happens to it before the plan");
                result.put(process::provider_over(client, CommitTier::default()).await.map(drop));
            })
        });
        world.add(Role::User, 0, AWAY, program);
        world.run(TIME, |_| result.is_full());
        let opened = result.take().unwrap_or_else(|| Err("it hangs".to_owned()));
        opened.map(|()| world.network().numbered())
    })
}
