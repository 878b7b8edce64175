//! The polls of a process that waits for work: how many requests they take, counted by the
//! server, and how long fetches wait. The tests run in tokio's paused time.
//!
//! An instance is *parked* when the process has read it and cannot run it now. The process reads
//! a parked instance again after growing pauses.

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{ExecutionMetadata, Provider, SessionFetchConfig, TagFilter, WorkItem};
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{Runtime, RuntimeOptions};
use duroxide::{OrchestrationContext, OrchestrationRegistry};
use duroxide_cdb::CosmosDBProvider;
use perihelion_testkit::management::RequestCounts;
use perihelion_testkit::provider::{Account, AccountKind, CONTAINER, ShortPolls};
use semver::Version;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const LOCK: Duration = Duration::from_secs(30);
/// The timeout of a fetch that polls once.
const POLL_ONCE: Duration = Duration::ZERO;

/// The time after which a process that has begun to fetch sends only regular requests.
const SETTLING_TIME: Duration = Duration::from_secs(3);

/// Numbers of messages, instances or activities: a short queue and a long one.
const FEW: usize = 64;
const MANY: usize = 1000;

/// The most requests in a minute of a process that cannot run many of the instances: the requests of
/// an idle process, one read of a parked instance every ten seconds, and polls that page over
/// the parked instances.
const PARKED_REQUESTS_MAX: u64 = 120;

/// The longest time until an idle process takes new work.
const PICK_UP_MAX: Duration = Duration::from_millis(2500);

/// The factor by which two equal charges may differ: a charge grows by hundredths of a
/// request unit with the size of the index.
const CHARGE_TOLERANCE: f64 = 1.05;

/// Counts all requests, from the first minute on: heartbeats, polls, reconciler, metrics,
/// sessions. The clean-up of sessions runs in the sixth minute.
#[tokio::test(start_paused = true)]
async fn an_idle_process_with_default_options_sends_at_most_one_request_per_second() {
    let account = Account::open(AccountKind::Embedded).await;
    let provider = account.provider("idle", ShortPolls::ReturnAtOnce).await;
    account.reset_counters().await;
    let runtime = idle_runtime(provider).await;
    for minute in 1..=6 {
        tokio::time::sleep(MINUTE).await;
        let counts = account.request_counts().await;
        println!("minute {minute}: {counts:?}");
        assert!(counts.requests <= MINUTE.as_secs(), "minute {minute}: {counts:?}");
        assert!(counts.requests > MINUTE.as_secs() / 4, "minute {minute}: too few polls: {counts:?}");
        account.reset_counters().await;
    }
    runtime.shutdown(None).await;
}

/// Each instance has a message, and no dispatcher of the process runs its version.
#[tokio::test(start_paused = true)]
async fn a_thousand_instances_of_another_version_cost_an_idle_process_little() {
    let account = Account::open(AccountKind::Embedded).await;
    create_pinned_instances(&account, "idle", MANY).await;
    let runtime = idle_runtime(account.provider("idle", ShortPolls::ReturnAtOnce).await).await;
    // In the first minute the process reads each instance once.
    tokio::time::sleep(MINUTE).await;
    for minute in 2..=5 {
        account.reset_counters().await;
        tokio::time::sleep(MINUTE).await;
        let counts = account.request_counts().await;
        println!("minute {minute}: {counts:?}");
        assert!(counts.requests <= PARKED_REQUESTS_MAX, "minute {minute}: {counts:?}");
    }
    // An instance that the process can run is found behind the others.
    let client = account.provider("idle", ShortPolls::ReturnAtOnce).await;
    client.enqueue_for_orchestrator(start("ours"), None).await.unwrap();
    tokio::time::sleep(SETTLING_TIME).await;
    assert!(!client.read("ours").await.unwrap().is_empty(), "the instance has not run");
    runtime.shutdown(None).await;
}

/// Each instance has an event, but no start.
#[tokio::test(start_paused = true)]
async fn a_thousand_instances_without_a_start_cost_an_idle_process_little() {
    let account = Account::open(AccountKind::Embedded).await;
    let sender = provider_with_late_clock(&account, "idle").await;
    for number in 0..MANY {
        sender.enqueue_for_orchestrator(external_event(&format!("early-{number:04}")), None).await.unwrap();
    }
    let runtime = idle_runtime(account.provider("idle", ShortPolls::ReturnAtOnce).await).await;
    tokio::time::sleep(MINUTE).await;
    account.reset_counters().await;
    tokio::time::sleep(MINUTE).await;
    let counts = account.request_counts().await;
    println!("{counts:?}");
    assert!(counts.requests <= PARKED_REQUESTS_MAX, "{counts:?}");
    runtime.shutdown(None).await;
}

/// A process reads the rows of parked instances again every half minute, which takes several polls.
/// New work comes every 31 seconds, so in each round it comes at another moment of the half minute.
#[tokio::test(start_paused = true)]
async fn new_work_does_not_wait_until_parked_instances_are_read_again() {
    let account = Account::open(AccountKind::Embedded).await;
    let sender = provider_with_late_clock(&account, "idle").await;
    for number in 0..MANY {
        sender.enqueue_for_orchestrator(external_event(&format!("early-{number:04}")), None).await.unwrap();
    }
    let runtime = idle_runtime(account.provider("idle", ShortPolls::ReturnAtOnce).await).await;
    let client = account.provider("idle", ShortPolls::ReturnAtOnce).await;
    for number in 0..30 {
        tokio::time::sleep(Duration::from_secs(31) - PICK_UP_MAX).await;
        let instance = format!("early-{:04}", number * 30);
        client.enqueue_for_orchestrator(start(&instance), None).await.unwrap();
        tokio::time::sleep(PICK_UP_MAX).await;
        assert!(!client.read(&instance).await.unwrap().is_empty(), "{instance} has not run");
    }
    runtime.shutdown(None).await;
}

#[tokio::test(start_paused = true)]
async fn a_fetch_costs_the_same_with_sixty_four_queued_messages_and_with_a_thousand() {
    let messages = |count: usize| {
        let event = |number: usize| WorkItem::ExternalRaised {
            instance: "busy".to_owned(),
            name: "news".to_owned(),
            data: format!("{number:05}"),
        };
        std::iter::once(start("busy")).chain((1..count).map(event)).collect()
    };
    compare_costs(messages(FEW), messages(MANY)).await;
}

#[tokio::test(start_paused = true)]
async fn a_fetch_costs_the_same_with_sixty_four_waiting_instances_and_with_a_thousand() {
    let starts = |count: usize| (0..count).map(|number| start(&format!("order-{number:05}"))).collect();
    compare_costs(starts(FEW), starts(MANY)).await;
}

/// Another process holds an instance with a thousand messages. These messages do not hide
/// the instance behind them.
#[tokio::test(start_paused = true)]
async fn an_instance_behind_the_long_queue_of_another_is_found() {
    let account = Account::open(AccountKind::Embedded).await;
    let holder = account.provider("queue", ShortPolls::ReturnAtOnce).await;
    for _ in 0..MANY {
        holder.enqueue_for_orchestrator(start("busy"), None).await.unwrap();
    }
    let (held, ..) = holder.fetch_orchestration_item(LOCK, POLL_ONCE, None).await.unwrap().unwrap();
    assert_eq!(held.instance, "busy");
    holder.enqueue_for_orchestrator(start("other"), None).await.unwrap();
    let finder = account.provider("queue", ShortPolls::ReturnAtOnce).await;
    let (found, ..) = finder.fetch_orchestration_item(LOCK, POLL_ONCE, None).await.unwrap().unwrap();
    assert_eq!(found.instance, "other");
}

/// A process remembers activities that another process has taken since. It notices this after a few
/// failed locks, and does not try to lock each activity.
#[tokio::test(start_paused = true)]
async fn activities_that_another_process_has_taken_are_not_tried_one_by_one() {
    let account = Account::open(AccountKind::Embedded).await;
    let first = account.provider("taken", ShortPolls::ReturnAtOnce).await;
    let other = account.provider("taken", ShortPolls::ReturnAtOnce).await;
    let any = TagFilter::default();
    for number in 0..FEW {
        other.enqueue_for_worker(activity("order", number as u64, None)).await.unwrap();
    }
    // The poll of the first process finds all activities.
    assert!(first.fetch_work_item(LOCK, POLL_ONCE, None, &any).await.unwrap().is_some());
    while other.fetch_work_item(LOCK, POLL_ONCE, None, &any).await.unwrap().is_some() {}
    account.reset_counters().await;
    assert!(first.fetch_work_item(LOCK, POLL_ONCE, None, &any).await.unwrap().is_none());
    let counts = account.request_counts().await;
    assert!(counts.requests <= 10, "{counts:?}");
}

/// When the workers of a process have as many sessions as allowed, duroxide fetches without sessions
/// and with a timeout of 30 seconds. The fetch must return early, so that duroxide notices when a
/// session ends.
#[tokio::test(start_paused = true)]
async fn a_worker_at_its_limit_of_sessions_waits_a_second_and_no_longer() {
    let account = Account::open(AccountKind::Embedded).await;
    let provider = account.provider("sessions", ShortPolls::ReturnAtOnce).await;
    let waited = async || {
        let begun = Instant::now();
        let found = provider.fetch_work_item(LOCK, LOCK, None, &TagFilter::default()).await.unwrap();
        assert!(found.is_none(), "{found:?}");
        begun.elapsed()
    };
    assert!(waited().await >= LOCK, "without a session the fetch waits until its timeout");
    provider.enqueue_for_worker(activity("order", 2, Some("basket"))).await.unwrap();
    let session = SessionFetchConfig { owner_id: "one".to_owned(), lock_timeout: LOCK };
    let taken =
        provider.fetch_work_item(LOCK, POLL_ONCE, Some(&session), &TagFilter::default()).await.unwrap();
    assert!(taken.is_some());
    let waited = waited().await;
    assert!((SECOND..2 * SECOND).contains(&waited), "{waited:?}");
}

/// `Duration::MAX` counts as a very long time and does not overflow.
#[tokio::test(start_paused = true)]
async fn a_fetch_with_an_endless_timeout_gets_the_next_work() {
    let account = Account::open(AccountKind::Embedded).await;
    let provider = account.provider("for-ever", ShortPolls::ReturnAtOnce).await;
    let (turn_provider, work_provider) = (Arc::clone(&provider), Arc::clone(&provider));
    let turn = tokio::spawn(async move {
        turn_provider.fetch_orchestration_item(Duration::MAX, Duration::MAX, None).await.unwrap()
    });
    let work = tokio::spawn(async move {
        work_provider
            .fetch_work_item(Duration::MAX, Duration::MAX, None, &TagFilter::default())
            .await
            .unwrap()
    });
    tokio::time::sleep(SETTLING_TIME).await;
    provider.enqueue_for_orchestrator(start("at-last"), None).await.unwrap();
    provider.enqueue_for_orchestrator(start("never"), Some(Duration::MAX)).await.unwrap();
    let (item, token, _) = turn.await.unwrap().unwrap();
    assert_eq!(item.instance, "at-last");
    provider.renew_orchestration_item_lock(&token, Duration::MAX).await.unwrap();
    provider.enqueue_for_worker(activity("at-last", 2, None)).await.unwrap();
    let (_, token, _) = work.await.unwrap().unwrap();
    provider.renew_work_item_lock(&token, Duration::MAX).await.unwrap();
    provider.abandon_work_item(&token, Some(Duration::MAX), false).await.unwrap();
}

/// Starts a runtime with default options.
async fn idle_runtime(provider: Arc<dyn Provider>) -> Arc<Runtime> {
    let activities = ActivityRegistry::builder().build();
    let orchestrations = OrchestrationRegistry::builder()
        .register("Order", |_: OrchestrationContext, input: String| async move { Ok(input) })
        .build();
    Runtime::start_with_options(provider, activities, orchestrations, RuntimeOptions::default()).await
}

/// A provider whose clock is ten minutes late, so that its messages are ten minutes old.
async fn provider_with_late_clock(account: &Account, database: &str) -> CosmosDBProvider {
    let builder = CosmosDBProvider::builder().with_client(account.client().await).with_database(database);
    builder.with_container(CONTAINER).with_clock_error_ms(-10 * 60_000).open().await.unwrap()
}

fn external_event(instance: &str) -> WorkItem {
    let (name, data) = ("news".to_owned(), String::new());
    WorkItem::ExternalRaised { instance: instance.to_owned(), name, data }
}

/// Creates `count` instances that are pinned to a version that no process runs, each
/// with a message that is ten minutes old.
async fn create_pinned_instances(account: &Account, database: &str, count: usize) {
    let provider = provider_with_late_clock(account, database).await;
    let metadata = || ExecutionMetadata {
        orchestration_name: Some("Order".to_owned()),
        orchestration_version: Some("1.0.0".to_owned()),
        pinned_duroxide_version: Some(Version::new(99, 0, 0)),
        ..ExecutionMetadata::default()
    };
    let names: Vec<String> = (0..count).map(|number| format!("newer-{number:04}")).collect();
    for name in &names {
        provider.enqueue_for_orchestrator(start(name), None).await.unwrap();
        let (item, token, _) =
            provider.fetch_orchestration_item(LOCK, POLL_ONCE, None).await.unwrap().unwrap();
        assert_eq!(item.instance, *name);
        let ack = provider.ack_orchestration_item(&token, 1, vec![], vec![], vec![], metadata(), vec![]);
        ack.await.unwrap();
    }
    for instance in names {
        provider.enqueue_for_orchestrator(external_event(&instance), None).await.unwrap();
    }
    // Closed, so that the process under test is the only one.
    provider.close().await;
}

fn activity(instance: &str, id: u64, session: Option<&str>) -> WorkItem {
    WorkItem::ActivityExecute {
        instance: instance.to_owned(),
        execution_id: 1,
        id,
        name: "charge".to_owned(),
        input: String::new(),
        session_id: session.map(str::to_owned),
        tag: None,
    }
}

/// The start of an instance.
pub(super) fn start(instance: &str) -> WorkItem {
    WorkItem::StartOrchestration {
        instance: instance.to_owned(),
        orchestration: "Order".to_owned(),
        input: String::new(),
        version: Some("1.0.0".to_owned()),
        parent_instance: None,
        parent_id: None,
        parent_execution_id: None,
        execution_id: 1,
    }
}

/// Compares the cost of two fetches from a short queue and from a long one.
async fn compare_costs(few: Vec<WorkItem>, many: Vec<WorkItem>) {
    let (few, many) = (two_fetches(few).await, two_fetches(many).await);
    for (few, many) in few.into_iter().zip(many) {
        println!("few {few:?}, many {many:?}");
        assert!(few.requests > 0);
        assert!(many.requests <= few.requests, "{many:?} against {few:?}");
        assert!(many.request_units <= few.request_units * CHARGE_TOLERANCE, "{many:?} against {few:?}");
    }
}

/// The cost of two fetches by a process without hints, so that the first fetch has to
/// poll.
async fn two_fetches(queued: Vec<WorkItem>) -> [RequestCounts; 2] {
    let account = Account::open(AccountKind::Embedded).await;
    let producer = account.provider("queue", ShortPolls::ReturnAtOnce).await;
    let consumer = account.provider("queue", ShortPolls::ReturnAtOnce).await;
    assert!(consumer.fetch_orchestration_item(LOCK, POLL_ONCE, None).await.unwrap().is_none());
    for item in queued {
        producer.enqueue_for_orchestrator(item, None).await.unwrap();
    }
    tokio::time::sleep(SETTLING_TIME).await;
    [fetch(&account, &consumer, true).await, fetch(&account, &consumer, false).await]
}

/// The requests of one fetch.
async fn fetch(account: &Account, consumer: &Arc<dyn Provider>, must_find: bool) -> RequestCounts {
    account.reset_counters().await;
    let found = consumer.fetch_orchestration_item(LOCK, POLL_ONCE, None).await.unwrap();
    assert!(found.is_some() || !must_find);
    account.request_counts().await
}
