//! What waiting costs: an idle process, and a fetch before a long queue,
//! counted by the server; and what is not waited for. Time is tokio's own and
//! paused, so that nothing but what is counted happens meanwhile.

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{ExecutionMetadata, Provider, SessionFetchConfig, TagFilter, WorkItem};
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{Runtime, RuntimeOptions};
use duroxide::{OrchestrationContext, OrchestrationRegistry};
use duroxide_cdb::CosmosDBProvider;
use semver::Version;
use tokio::time::Instant;

use crate::place::{Account, CONTAINER, Counted, Place, Polls};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const LOCK: Duration = Duration::from_secs(30);
const NOW: Duration = Duration::ZERO;

/// A process that has just begun to fetch is busy with itself for so long.
const SETTLED: Duration = Duration::from_secs(3);

/// How many messages or instances are few, and how many are a backlog.
const FEW: usize = 64;
const MANY: usize = 1000;

/// A minute beside many instances that cannot be run here: as when idle, a look
/// at one of them every ten seconds, and polls that page over them.
const PARKED_REQUESTS_MAX: u64 = 120;

/// Charges grow a little, by hundredths of a unit, with the size of an index.
const SAME: f64 = 1.05;

/// Heartbeats, polls, reconciler, metrics, sessions: all of it, from the first
/// minute on. The sixth minute has the clean-up of sessions.
#[tokio::test(start_paused = true)]
async fn an_idle_process_with_default_options_sends_at_most_one_request_per_second() {
    let account = Account::open(Place::Embedded).await;
    let provider = account.provider("idle", Polls::AnswerAtOnce).await;
    account.count_anew().await;
    let runtime = idle_runtime(provider).await;
    for minute in 1..=6 {
        tokio::time::sleep(MINUTE).await;
        let counted = account.counted().await;
        println!("minute {minute}: {counted:?}");
        assert!(counted.requests <= MINUTE.as_secs(), "minute {minute}: {counted:?}");
        assert!(counted.requests > MINUTE.as_secs() / 4, "minute {minute}: it looks for work: {counted:?}");
        account.count_anew().await;
    }
    runtime.shutdown(None).await;
}

/// Each has a message, and none of them a dispatcher here that runs its version.
#[tokio::test(start_paused = true)]
async fn a_thousand_instances_of_another_version_cost_an_idle_process_little() {
    let account = Account::open(Place::Embedded).await;
    pin(&account, "idle", MANY).await;
    let runtime = idle_runtime(account.provider("idle", Polls::AnswerAtOnce).await).await;
    // Each is looked at once.
    tokio::time::sleep(MINUTE).await;
    for minute in 2..=5 {
        account.count_anew().await;
        tokio::time::sleep(MINUTE).await;
        let counted = account.counted().await;
        println!("minute {minute}: {counted:?}");
        assert!(counted.requests <= PARKED_REQUESTS_MAX, "minute {minute}: {counted:?}");
    }
    // What it can run it finds behind all of them.
    let client = account.provider("idle", Polls::AnswerAtOnce).await;
    client.enqueue_for_orchestrator(start("ours"), None).await.unwrap();
    tokio::time::sleep(SETTLED).await;
    assert!(!client.read("ours").await.unwrap().is_empty(), "it was taken");
    runtime.shutdown(None).await;
}

/// Each has an event that came before its start.
#[tokio::test(start_paused = true)]
async fn a_thousand_instances_without_a_start_cost_an_idle_process_little() {
    let account = Account::open(Place::Embedded).await;
    let old = old_provider(&account, "idle").await;
    for number in 0..MANY {
        old.enqueue_for_orchestrator(news(&format!("early-{number:04}")), None).await.unwrap();
    }
    let runtime = idle_runtime(account.provider("idle", Polls::AnswerAtOnce).await).await;
    tokio::time::sleep(MINUTE).await;
    account.count_anew().await;
    tokio::time::sleep(MINUTE).await;
    let counted = account.counted().await;
    println!("{counted:?}");
    assert!(counted.requests <= PARKED_REQUESTS_MAX, "{counted:?}");
    // The start of one of them is no less news for the others.
    let client = account.provider("idle", Polls::AnswerAtOnce).await;
    client.enqueue_for_orchestrator(start("early-0500"), None).await.unwrap();
    tokio::time::sleep(SETTLED).await;
    assert!(!client.read("early-0500").await.unwrap().is_empty(), "it was taken");
    runtime.shutdown(None).await;
}

#[tokio::test(start_paused = true)]
async fn a_fetch_costs_the_same_before_sixty_four_messages_and_before_a_thousand() {
    let messages = |count: usize| {
        let event = |number: usize| WorkItem::ExternalRaised {
            instance: "busy".to_owned(),
            name: "news".to_owned(),
            data: format!("{number:05}"),
        };
        std::iter::once(start("busy")).chain((1..count).map(event)).collect()
    };
    compare(messages(FEW), messages(MANY)).await;
}

#[tokio::test(start_paused = true)]
async fn a_fetch_costs_the_same_before_sixty_four_instances_and_before_a_thousand() {
    let starts = |count: usize| (0..count).map(|number| start(&format!("order-{number:05}"))).collect();
    compare(starts(FEW), starts(MANY)).await;
}

/// One instance's thousand messages, held by another process, hide nothing.
#[tokio::test(start_paused = true)]
async fn an_instance_behind_the_long_queue_of_another_is_found() {
    let account = Account::open(Place::Embedded).await;
    let holder = account.provider("queue", Polls::AnswerAtOnce).await;
    for _ in 0..MANY {
        holder.enqueue_for_orchestrator(start("busy"), None).await.unwrap();
    }
    let (held, ..) = holder.fetch_orchestration_item(LOCK, NOW, None).await.unwrap().unwrap();
    assert_eq!(held.instance, "busy");
    holder.enqueue_for_orchestrator(start("other"), None).await.unwrap();
    let finder = account.provider("queue", Polls::AnswerAtOnce).await;
    let (found, ..) = finder.fetch_orchestration_item(LOCK, NOW, None).await.unwrap().unwrap();
    assert_eq!(found.instance, "other");
}

/// duroxide asks without sessions, and for 30 seconds, when its workers have as
/// many sessions as they may. A worker that gave an activity back still has its
/// session: it must not sleep through the end of another's.
#[tokio::test(start_paused = true)]
async fn a_worker_at_its_limit_of_sessions_waits_a_second_and_no_longer() {
    let account = Account::open(Place::Embedded).await;
    let provider = account.provider("sessions", Polls::AnswerAtOnce).await;
    let waited = async || {
        let begun = Instant::now();
        let found = provider.fetch_work_item(LOCK, LOCK, None, &TagFilter::default()).await.unwrap();
        assert!(found.is_none(), "{found:?}");
        begun.elapsed()
    };
    assert!(waited().await >= LOCK, "nobody has a session");
    provider.enqueue_for_worker(activity("order", Some("basket"))).await.unwrap();
    let session = SessionFetchConfig { owner_id: "one".to_owned(), lock_timeout: LOCK };
    let taken = provider.fetch_work_item(LOCK, NOW, Some(&session), &TagFilter::default()).await.unwrap();
    assert!(taken.is_some());
    let waited = waited().await;
    assert!((SECOND..2 * SECOND).contains(&waited), "{waited:?}");
}

/// Times without end are taken for very long ones.
#[tokio::test(start_paused = true)]
async fn a_fetch_with_an_endless_timeout_gets_the_next_work() {
    let account = Account::open(Place::Embedded).await;
    let provider = account.provider("for-ever", Polls::AnswerAtOnce).await;
    let (turns, works) = (Arc::clone(&provider), Arc::clone(&provider));
    let turn = tokio::spawn(async move {
        turns.fetch_orchestration_item(Duration::MAX, Duration::MAX, None).await.unwrap()
    });
    let work = tokio::spawn(async move {
        works.fetch_work_item(Duration::MAX, Duration::MAX, None, &TagFilter::default()).await.unwrap()
    });
    tokio::time::sleep(SETTLED).await;
    provider.enqueue_for_orchestrator(start("at-last"), None).await.unwrap();
    provider.enqueue_for_orchestrator(start("never"), Some(Duration::MAX)).await.unwrap();
    let (item, token, _) = turn.await.unwrap().unwrap();
    assert_eq!(item.instance, "at-last");
    provider.renew_orchestration_item_lock(&token, Duration::MAX).await.unwrap();
    provider.enqueue_for_worker(activity("at-last", None)).await.unwrap();
    let (_, token, _) = work.await.unwrap().unwrap();
    provider.renew_work_item_lock(&token, Duration::MAX).await.unwrap();
    provider.abandon_work_item(&token, Some(Duration::MAX), false).await.unwrap();
}

/// One with default options, and nothing to run at first.
async fn idle_runtime(provider: Arc<dyn Provider>) -> Arc<Runtime> {
    let activities = ActivityRegistry::builder().build();
    let orchestrations = OrchestrationRegistry::builder()
        .register("Order", |_: OrchestrationContext, input: String| async move { Ok(input) })
        .build();
    Runtime::start_with_options(provider, activities, orchestrations, RuntimeOptions::default()).await
}

/// A process whose clock is ten minutes behind: what it does was done then.
async fn old_provider(account: &Account, database: &str) -> CosmosDBProvider {
    let builder = CosmosDBProvider::builder().with_client(account.client().await).with_database(database);
    builder.with_container(CONTAINER).with_clock_error_ms(-10 * 60_000).open().await.unwrap()
}

fn news(instance: &str) -> WorkItem {
    let (name, data) = ("news".to_owned(), String::new());
    WorkItem::ExternalRaised { instance: instance.to_owned(), name, data }
}

/// So many instances that have begun under a version that nobody runs, each with
/// a message of ten minutes ago.
async fn pin(account: &Account, database: &str, count: usize) {
    let provider = old_provider(account, database).await;
    let metadata = || ExecutionMetadata {
        orchestration_name: Some("Order".to_owned()),
        orchestration_version: Some("1.0.0".to_owned()),
        pinned_duroxide_version: Some(Version::new(99, 0, 0)),
        ..ExecutionMetadata::default()
    };
    let names: Vec<String> = (0..count).map(|number| format!("newer-{number:04}")).collect();
    for name in &names {
        provider.enqueue_for_orchestrator(start(name), None).await.unwrap();
        let (item, token, _) = provider.fetch_orchestration_item(LOCK, NOW, None).await.unwrap().unwrap();
        assert_eq!(item.instance, *name);
        let ack = provider.ack_orchestration_item(&token, 1, vec![], vec![], vec![], metadata(), vec![]);
        ack.await.unwrap();
    }
    for instance in names {
        provider.enqueue_for_orchestrator(news(&instance), None).await.unwrap();
    }
    // Nobody else is there.
    provider.close().await;
}

fn activity(instance: &str, session: Option<&str>) -> WorkItem {
    WorkItem::ActivityExecute {
        instance: instance.to_owned(),
        execution_id: 1,
        id: 2,
        name: "charge".to_owned(),
        input: String::new(),
        session_id: session.map(str::to_owned),
        tag: None,
    }
}

fn start(instance: &str) -> WorkItem {
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

/// Two fetches before few, and before many.
async fn compare(few: Vec<WorkItem>, many: Vec<WorkItem>) {
    let (few, many) = (two_fetches(few).await, two_fetches(many).await);
    for (few, many) in few.into_iter().zip(many) {
        println!("few {few:?}, many {many:?}");
        assert!(few.requests > 0);
        assert!(many.requests <= few.requests, "{many:?} against {few:?}");
        assert!(many.request_units <= few.request_units * SAME, "{many:?} against {few:?}");
    }
}

/// The cost of two fetches by a process that knows of nothing: the first has
/// to look.
async fn two_fetches(queued: Vec<WorkItem>) -> [Counted; 2] {
    let account = Account::open(Place::Embedded).await;
    let producer = account.provider("queue", Polls::AnswerAtOnce).await;
    let consumer = account.provider("queue", Polls::AnswerAtOnce).await;
    assert!(consumer.fetch_orchestration_item(LOCK, NOW, None).await.unwrap().is_none());
    for item in queued {
        producer.enqueue_for_orchestrator(item, None).await.unwrap();
    }
    tokio::time::sleep(SETTLED).await;
    [fetch(&account, &consumer, true).await, fetch(&account, &consumer, false).await]
}

async fn fetch(account: &Account, consumer: &Arc<dyn Provider>, must_find: bool) -> Counted {
    account.count_anew().await;
    let found = consumer.fetch_orchestration_item(LOCK, NOW, None).await.unwrap();
    assert!(found.is_some() || !must_find);
    account.counted().await
}
