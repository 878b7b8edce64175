//! Partitions that hang (their requests take a minute), fail or are slow. They must not stop the
//! dispatchers and workers of a process, and an activity must not stay locked when no worker runs it. The
//! tests run on the real engine in this process, in virtual time.

use std::time::Duration;

use duroxide::providers::{Provider, SessionFetchConfig, TagFilter, WorkItem};
use futures_util::future::join_all;
use perihelion_client::{Client, PartitionKey, Patch, Query};
use perihelion_server::{Embedded, EmbeddedOptions};
use serde_json::Value;
use tokio::time::Instant;

use super::recorded_process::RecordedProcess;
use super::{
    LOCK, NEVER, NO_WAIT, World, ack, activity_item, enqueue_activities, event, fetch_first_turn,
    raised_event,
};
use crate::plan::session_document_key;
use crate::process::hints::activity_name;
use crate::{CosmosDBProvider, OutboxFaultInjector};

/// A poll timeout with which a fetch waits for work, as the runtime does.
const WAIT: Duration = Duration::from_secs(60);

impl World {
    pub(super) async fn with_partitions(partitions: u32) -> World {
        let mut options = EmbeddedOptions::default();
        options.account.partitions = partitions;
        World { engine: Embedded::open(options).await.unwrap() }
    }

    /// Lets requests of this kind to one partition take a minute.
    async fn hang(&self, operation: &str, range: usize) {
        self.delay(operation, range, 60_000).await;
    }

    /// Delays requests of this kind to one partition.
    pub(super) async fn delay(&self, operation: &str, range: usize, delay_ms: u64) {
        let rule = format!(r#"{{"operation":"{operation}","range":"{range}","delayMs":{delay_ms}}}"#);
        self.inject_fault(&rule).await;
    }
}

/// Tells the process its partitions, as the first poll does.
async fn learn_partitions(provider: &CosmosDBProvider) {
    let core = &provider.core;
    core.membership.update_space(&core.store.container.key_space().await.unwrap(), core.clock.now());
}

/// A world of this many partitions, and a provider that knows them.
async fn world_with_known_partitions(partitions: u32) -> (World, CosmosDBProvider) {
    let world = World::with_partitions(partitions).await;
    let provider = world.provider_with_reconciler(NEVER).await;
    learn_partitions(&provider).await;
    (world, provider)
}

/// The session of a worker.
fn session_config() -> SessionFetchConfig {
    SessionFetchConfig { owner_id: "worker".into(), lock_timeout: LOCK }
}

/// The number of the partition of a partition key.
pub(super) async fn partition_of(provider: &CosmosDBProvider, key: impl Into<PartitionKey>) -> usize {
    let space = provider.core.store.container.key_space().await.unwrap();
    let range = space.range_of(key);
    space.feed_ranges().iter().position(|partition| partition.overlaps(&range)).unwrap()
}

/// Names of instances: in the partition `range` if `is_there`, else in other partitions.
async fn instances(provider: &CosmosDBProvider, range: usize, is_there: bool, count: usize) -> Vec<String> {
    let mut found = Vec::new();
    for number in 0..10_000 {
        let name = format!("i{number}");
        if found.len() < count && (partition_of(provider, name.as_str()).await == range) == is_there {
            found.push(name);
        }
    }
    found
}

/// Fetches an activity as the runtime does. Returns its work item, its token and the attempt.
pub(super) async fn fetch(
    provider: &CosmosDBProvider,
    session: Option<&SessionFetchConfig>,
) -> (WorkItem, String, u32) {
    loop {
        let fetched = provider.fetch_work_item(LOCK, WAIT, session, &TagFilter::default()).await;
        if let Ok(Some(fetched)) = fetched {
            return fetched;
        }
        // The runtime waits before it fetches again after a failure.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Fetches an activity and completes it. Returns its instance.
async fn run_one(provider: &CosmosDBProvider) -> String {
    let (item, token, _) = fetch(provider, None).await;
    let WorkItem::ActivityExecute { instance, execution_id, id, .. } = item else { panic!("{item:?}") };
    let result = String::new();
    let done = WorkItem::ActivityCompleted { instance: instance.clone(), execution_id, id, result };
    provider.ack_work_item(&token, Some(done)).await.unwrap();
    instance
}

#[tokio::test(start_paused = true)]
async fn activities_of_a_partition_that_hangs_do_not_come_first_again_and_again() {
    const EACH: usize = 20;
    let world = World::with_partitions(4).await;
    let provider = world.provider_with_reconciler(NEVER).await;
    let sick = instances(&provider, 0, true, EACH).await;
    let healthy = instances(&provider, 0, false, EACH).await;
    for instance in sick.iter().chain(&healthy) {
        provider.enqueue_for_worker(activity_item(instance, 1, String::new())).await.unwrap();
    }
    learn_partitions(&provider).await;
    world.hang("patch_item", 0).await;
    let begun = Instant::now();
    let worker = async || {
        let mut ran = Vec::new();
        while ran.len() < EACH / 2 {
            ran.push(run_one(&provider).await);
        }
        ran
    };
    let (first, second) = tokio::join!(worker(), worker());
    assert!(first.iter().chain(&second).all(|instance| healthy.contains(instance)));
    assert!(begun.elapsed() < Duration::from_secs(45), "{:?}", begun.elapsed());
    world.remove_faults().await;
    let healed = Instant::now();
    let (first, second) = tokio::join!(worker(), worker());
    assert!(first.iter().chain(&second).all(|instance| sick.contains(instance)));
    assert!(healed.elapsed() < Duration::from_secs(45), "{:?}", healed.elapsed());
}

#[tokio::test(start_paused = true)]
async fn deliveries_to_a_partition_that_hangs_do_not_hold_the_dispatchers() {
    const COUNT: usize = 80;
    let world = World::with_partitions(4).await;
    let provider = world.provider_with_reconciler(NEVER).await;
    let sick = instances(&provider, 0, true, 1).await.remove(0);
    let senders = instances(&provider, 0, false, COUNT).await;
    let mut tokens = Vec::new();
    for sender in &senders {
        let token = fetch_first_turn(&provider, sender).await;
        tokens.push(token);
    }
    world.hang("create_item", 0).await;
    let begun = Instant::now();
    let acks = senders.iter().zip(&tokens).map(|(sender, token)| {
        let history = vec![event(sender, 1, String::new())];
        ack(&provider, token, history, vec![], vec![raised_event(&sick, sender)])
    });
    for acked in join_all(acks).await {
        acked.unwrap();
    }
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    // The process has left the deliveries for which it had no room to the reconciler.
    world.remove_faults().await;
    let reconciling = world.provider().await;
    let outboxes = "SELECT VALUE c.id FROM c WHERE c.type = 'outbox'";
    let begun = Instant::now();
    while !reconciling.core.store.rows::<String>(Query::new(outboxes)).await.unwrap().is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(120), "some messages are not delivered");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// The reconciler once stopped at the first partition that failed, and waited for one that hung.
#[tokio::test(start_paused = true)]
async fn a_partition_that_fails_or_hangs_does_not_keep_the_reconciler_from_the_others() {
    let trouble = [
        r#"{"operation":"query","range":"0","status":503}"#,
        r#"{"operation":"query","range":"0","status":400}"#,
        r#"{"operation":"query","range":"0","delayMs":60000}"#,
    ];
    for rule in trouble {
        let world = World::with_partitions(4).await;
        // This provider is opened before the fault. Its reconciler waits until outboxes are old enough.
        let client = Client::over(&world.engine.endpoint(), world.engine.transport()).await.unwrap();
        let builder = CosmosDBProvider::builder().with_client(client);
        let (interval, age) = (Duration::from_millis(50), Duration::from_secs(5));
        let reconciling = builder.with_reconciler(interval, age).open().await.unwrap();
        let mut ended = world.provider_with_reconciler(NEVER).await;
        let mut outboxes = Vec::new();
        for range in 0..4 {
            let instance = instances(&ended, range, true, 1).await.remove(0);
            let token = fetch_first_turn(&ended, &instance).await;
            ended.set_outbox_fault_injector(OutboxFaultInjector::fail_next(1));
            let messages = vec![raised_event("receiver", &instance)];
            ack(&ended, &token, vec![event(&instance, 1, String::new())], vec![], messages).await.unwrap();
            ended.core.background.wait_until_idle().await;
            let ids = Query::new("SELECT VALUE c.id FROM c WHERE c.type = 'outbox'").in_partition(&*instance);
            let id = ended.core.store.rows::<String>(ids).await.unwrap().remove(0);
            outboxes.push((instance, id));
        }
        // Counts without a query, because queries of one partition fail.
        let count_left = async |outboxes: &[(String, String)]| {
            let mut count = 0;
            for (instance, id) in outboxes {
                count += usize::from(ended.core.store.find::<Value>(instance, id).await.unwrap().is_some());
            }
            count
        };
        world.inject_fault(rule).await;
        let (sick, healthy) = outboxes.split_at(1);
        let begun = Instant::now();
        while count_left(healthy).await > 0 {
            assert!(begun.elapsed() < Duration::from_secs(20), "{rule}: {:?}", begun.elapsed());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(count_left(sick).await, 1, "{rule}");
        world.remove_faults().await;
        while count_left(sick).await > 0 {
            assert!(begun.elapsed() < Duration::from_secs(200), "{rule}: the outbox is not delivered");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        reconciling.close().await;
    }
}

/// A fetch waits in the background for a poll of the partition. Polls of a partition that hangs wait
/// longer and longer.
#[tokio::test(start_paused = true)]
async fn a_fetch_that_looks_once_does_not_wait_for_a_poll_of_a_partition_that_hangs() {
    let world = World::with_partitions(4).await;
    let (producer, provider) =
        (world.provider_with_reconciler(NEVER).await, world.provider_with_reconciler(NEVER).await);
    world.hang("query", 0).await;
    let waiting = provider.clone();
    let waiting = tokio::spawn(async move {
        waiting.fetch_work_item(LOCK, 10 * WAIT, None, &TagFilter::tags(["gpu"])).await
    });
    tokio::time::sleep(3 * WAIT).await;
    for instance in instances(&producer, 0, false, 5).await {
        producer.enqueue_for_worker(activity_item(&instance, 1, String::new())).await.unwrap();
        let begun = Instant::now();
        let fetched = provider.fetch_work_item(LOCK, NO_WAIT, None, &TagFilter::default()).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
        let (item, token, _) = fetched.expect("the activity");
        assert_eq!(item, activity_item(&instance, 1, String::new()));
        provider.ack_work_item(&token, None).await.unwrap();
        tokio::time::sleep(Duration::from_secs(13)).await;
    }
    waiting.abort();
}

#[tokio::test(start_paused = true)]
async fn unpacking_in_a_partition_that_hangs_does_not_hold_the_dispatcher() {
    const COUNT: u64 = 250;
    let world = World::open().await;
    let provider = world.provider_with_reconciler(NEVER).await;
    let token = fetch_first_turn(&provider, "a").await;
    // The first batch is the commit.
    world.inject_fault(r#"{"operation":"batch","count":1,"delayMs":1}"#).await;
    world.inject_fault(r#"{"operation":"batch","count":1,"delayMs":15000}"#).await;
    let begun = Instant::now();
    let activities = (1..=COUNT).map(|id| activity_item("a", id, String::new())).collect();
    ack(&provider, &token, vec![event("a", 1, String::new())], activities, vec![]).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    for _ in 0..COUNT {
        run_one(&provider).await;
    }
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
}

/// A worker waits, and a commit locks an activity for it. Meanwhile the worker has become busy.
#[tokio::test(start_paused = true)]
async fn an_activity_that_no_worker_fetches_is_given_back() {
    let world = World::open().await;
    let (provider, other) = (world.provider_with_reconciler(NEVER).await, world.provider().await);
    let hints = &provider.core.hints.activities;
    let worker = hints.with(|hints| hints.add_waiting_worker(&TagFilter::default(), LOCK));
    let token = fetch_first_turn(&provider, "a").await;
    let activities = vec![activity_item("a", 7, String::new())];
    ack(&provider, &token, vec![event("a", 1, String::new())], activities, vec![]).await.unwrap();
    assert!(hints.with(|hints| hints.has_ready()), "the activity is locked for the worker");
    hints.with(|hints| hints.remove_waiting_worker(worker));
    let begun = Instant::now();
    let (_, _, attempt) = fetch(&other, None).await;
    assert_eq!(attempt, 1, "the lock that was given back does not count as an attempt");
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    assert!(!hints.with(|hints| hints.has_ready()));
}

/// The lock of the next activity is written. The caller of the ack is dropped before the answer.
#[tokio::test(start_paused = true)]
async fn an_activity_is_not_left_locked_when_the_ack_that_prefetches_it_is_dropped() {
    let (_world, process, provider) = RecordedProcess::open().await;
    enqueue_activities(&provider, 1..=2).await;
    let (_, token, _) = fetch(&provider, None).await;
    process.before_answer_to("attemptCount", tokio::time::sleep(Duration::from_secs(1)));
    let ack = provider.ack_work_item(&token, None);
    assert!(tokio::time::timeout(Duration::from_millis(500), ack).await.is_err(), "the ack is dropped");
    let begun = Instant::now();
    let (item, _, attempt) = fetch(&provider, None).await;
    assert_eq!((item, attempt), (activity_item("a", 2, String::new()), 1));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

pub(super) fn activity_of_session(instance: &str, session: &str) -> WorkItem {
    let WorkItem::ActivityExecute { instance, execution_id, id, name, input, tag, .. } =
        activity_item(instance, 1, String::new())
    else {
        panic!("an activity")
    };
    let session_id = Some(session.to_owned());
    WorkItem::ActivityExecute { instance, execution_id, id, name, input, session_id, tag }
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_partition_hangs_delays_neither_renewals_nor_other_activities() {
    let world = World::with_partitions(4).await;
    let provider = world.provider_with_reconciler(NEVER).await;
    let sick = partition_of(&provider, session_document_key("cart").1).await;
    let healthy = instances(&provider, sick, false, 3).await;
    let config = session_config();
    provider.enqueue_for_worker(activity_of_session(&healthy[0], "cart")).await.unwrap();
    let (_, token, _) = fetch(&provider, Some(&config)).await;
    for operation in ["patch_item", "read_item", "replace_item"] {
        world.hang(operation, sick).await;
    }
    let begun = Instant::now();
    provider.renew_work_item_lock(&token, LOCK).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());

    provider.enqueue_for_worker(activity_of_session(&healthy[1], "cart")).await.unwrap();
    provider.enqueue_for_worker(activity_item(&healthy[2], 1, String::new())).await.unwrap();
    let begun = Instant::now();
    let (item, _, _) = fetch(&provider, Some(&config)).await;
    assert_eq!(item, activity_item(&healthy[2], 1, String::new()));
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    world.remove_faults().await;
    let (item, _, _) = fetch(&provider, Some(&config)).await;
    assert_eq!(item, activity_of_session(&healthy[1], "cart"));
}

/// The activities fill more than a page, and are older than what a poll reads again each time. The
/// cursor must not skip them for half a minute, because their pauses end sooner.
#[tokio::test(start_paused = true)]
async fn polls_do_not_skip_activities_whose_pause_ends() {
    const COUNT: u64 = 150;
    let world = World::open().await;
    let (producer, provider) = (world.provider_with_reconciler(NEVER).await, world.provider().await);
    enqueue_activities(&producer, 1..=COUNT).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    let core = &provider.core;
    for id in 1..=COUNT {
        let name = activity_name("a", &format!("a:1:{id}"));
        let pause = Duration::from_secs(if id <= 100 { 3 } else { 3600 });
        core.hints.paused_activities.pause_for(&name, pause, core.clock.now());
    }
    let fetched = provider.fetch_work_item(LOCK, NO_WAIT, None, &TagFilter::default()).await.unwrap();
    assert!(fetched.is_none(), "all activities are paused");
    let begun = Instant::now();
    fetch(&provider, None).await;
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

/// Enqueues an activity of each instance, one per second, while two workers run activities. Returns how
/// long each of these activities waited for a worker, in the order in which they ran.
async fn waits_of_activities(
    provider: &CosmosDBProvider,
    instances: &[String],
    config: Option<&SessionFetchConfig>,
) -> Vec<Duration> {
    let producer = async {
        for instance in instances {
            provider.enqueue_for_worker(activity_item(instance, 1, String::new())).await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let begun = Instant::now();
    let waits = std::sync::Mutex::new(Vec::new());
    let worker = async || {
        while waits.lock().unwrap().len() < instances.len() {
            let (item, token, _) = fetch(provider, config).await;
            let WorkItem::ActivityExecute { instance, .. } = &item else { panic!("{item:?}") };
            let number = instances.iter().position(|known| known == instance).unwrap();
            let enqueued = begun + Duration::from_secs(number as u64);
            waits.lock().unwrap().push(Instant::now().saturating_duration_since(enqueued));
            provider.ack_work_item(&token, None).await.unwrap();
        }
    };
    let workers = async {
        tokio::select! { () = worker() => {}, () = worker() => {} }
    };
    tokio::join!(producer, workers);
    waits.into_inner().unwrap()
}

/// Each worker that waits for a lock in a partition that hangs is missing elsewhere.
#[tokio::test(start_paused = true)]
async fn two_partitions_that_hang_leave_two_workers_time_for_the_others() {
    const SECONDS: usize = 120;
    let (world, provider) = world_with_known_partitions(4).await;
    for range in [0, 1] {
        for instance in instances(&provider, range, true, 20).await {
            provider.enqueue_for_worker(activity_item(&instance, 1, String::new())).await.unwrap();
        }
        world.hang("patch_item", range).await;
    }
    let healthy = instances(&provider, 2, true, SECONDS).await;
    // The first 40 may wait longer. Until the partitions are paused, workers wait longer for each lock.
    let waits = waits_of_activities(&provider, &healthy, None).await.split_off(40);
    let (sum, longest) = (waits.iter().sum::<Duration>(), waits.iter().max().unwrap());
    assert!(sum < Duration::from_secs(40) && *longest < Duration::from_secs(4), "{waits:?}");
}

/// The time limit of a prefetch is short. A partition whose answers take longer still works.
#[tokio::test(start_paused = true)]
async fn a_slow_partition_is_not_paused_by_prefetch() {
    const COUNT: u64 = 40;
    let (world, provider) = world_with_known_partitions(1).await;
    enqueue_activities(&provider, 1..=COUNT).await;
    world.delay("patch_item", 0, 2_500).await;
    let begun = Instant::now();
    let worker = async || {
        for _ in 0..COUNT / 4 {
            run_one(&provider).await;
        }
    };
    tokio::join!(worker(), worker(), worker(), worker());
    // Each worker locks ten activities, which takes 25 s.
    assert!(begun.elapsed() < Duration::from_secs(32), "{:?}", begun.elapsed());
}

/// A claim is a read and a write, and takes longer than the first time limit.
#[tokio::test(start_paused = true)]
async fn sessions_of_a_slow_partition_are_claimed_by_all_workers() {
    const WORKERS: usize = 8;
    let (world, provider) = world_with_known_partitions(4).await;
    let mut sessions = Vec::new();
    for number in 0.. {
        let session = format!("s{number}");
        if sessions.len() == 2 * WORKERS {
            break;
        }
        if partition_of(&provider, session_document_key(&session).1).await == 0 {
            sessions.push(session);
        }
    }
    let healthy = instances(&provider, 0, false, sessions.len()).await;
    for (instance, session) in healthy.iter().zip(&sessions) {
        provider.enqueue_for_worker(activity_of_session(instance, session)).await.unwrap();
    }
    for operation in ["read_item", "create_item", "replace_item", "delete_item"] {
        world.delay(operation, 0, 2_000).await;
    }
    let config = session_config();
    let begun = Instant::now();
    let worker = async || {
        fetch(&provider, Some(&config)).await;
        fetch(&provider, Some(&config)).await;
    };
    join_all((0..WORKERS).map(|_| worker())).await;
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

/// Several activities wait for the same session, whose partition hangs. One worker at a time tries it.
#[tokio::test(start_paused = true)]
async fn a_session_whose_partition_hangs_holds_one_worker_at_a_time() {
    const SECONDS: usize = 60;
    let (world, provider) = world_with_known_partitions(4).await;
    let range = partition_of(&provider, session_document_key("cart").1).await;
    for instance in instances(&provider, range, false, 6).await {
        provider.enqueue_for_worker(activity_of_session(&instance, "cart")).await.unwrap();
    }
    for operation in ["read_item", "create_item", "replace_item"] {
        world.hang(operation, range).await;
    }
    let healthy = instances(&provider, range, false, 6 + SECONDS).await.split_off(6);
    let config = session_config();
    // The first 20 may wait longer: until the partition is paused, both workers wait there.
    let waits = waits_of_activities(&provider, &healthy, Some(&config)).await.split_off(20);
    let longest = waits.iter().max().unwrap();
    assert!(*longest < Duration::from_secs(4), "{waits:?}");
}

/// A lock of an activity with a session cannot be handed to another worker. Still, workers wait for it
/// only as long as for other locks, unless the partition is known to answer late.
#[tokio::test(start_paused = true)]
async fn activities_of_sessions_in_partitions_that_hang_hold_no_worker_for_long() {
    let (world, provider) = world_with_known_partitions(4).await;
    let range = partition_of(&provider, session_document_key("cart").1).await;
    for sick in [(range + 1) % 4, (range + 2) % 4] {
        for instance in instances(&provider, sick, true, 6).await {
            provider.enqueue_for_worker(activity_of_session(&instance, "cart")).await.unwrap();
        }
        world.hang("patch_item", sick).await;
    }
    let healthy = instances(&provider, range, true, 120).await;
    let config = session_config();
    let waits = waits_of_activities(&provider, &healthy, Some(&config)).await.split_off(40);
    let longest = waits.iter().max().unwrap();
    assert!(*longest < Duration::from_secs(4), "{waits:?}");
}

/// The session is in another partition than its activity. Nothing is sent to the partition of the
/// activity while the claim of the session hangs.
#[tokio::test(start_paused = true)]
async fn a_claim_that_hangs_counts_no_failure_of_the_partition_of_the_activity() {
    let world = World::with_partitions(4).await;
    let provider = world.provider_with_reconciler(NEVER).await;
    let core = &provider.core;
    let range = partition_of(&provider, session_document_key("cart").1).await;
    let instance = instances(&provider, range, false, 1).await.remove(0);
    // The process learns its partitions.
    let config = SessionFetchConfig { owner_id: "worker".into(), lock_timeout: LOCK };
    let fetch_once = || provider.fetch_work_item(LOCK, NO_WAIT, Some(&config), &TagFilter::Any);
    while core.membership.view().partition_of(instance.as_str()).is_none() {
        assert!(fetch_once().await.unwrap().is_none());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let (view, pauses) = (core.membership.view(), &core.hints.paused_partitions);
    let partition = view.partition_of(instance.as_str()).unwrap();
    let begin = || pauses.begin(partition, "other work", LOCK, Instant::now()).unwrap();
    for attempt in [begin(), begin()] {
        pauses.record_failure(&attempt, Instant::now());
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    provider.enqueue_for_worker(activity_of_session(&instance, "cart")).await.unwrap();
    world.hang("read_item", range).await;
    let begun = Instant::now();
    assert!(fetch_once().await.unwrap().is_none(), "the claim hangs");
    assert!(begun.elapsed() > Duration::from_secs(1), "the claim was tried");
    assert_eq!(pauses.failures(partition, Instant::now()), 2, "no further failure");
    assert!(pauses.begin(partition, "other work", LOCK, Instant::now()).is_some(), "other work is tried");
}

/// The session is in another partition than its activity.
#[tokio::test(start_paused = true)]
async fn a_slow_claim_counts_no_failure_of_the_partition_of_the_activity() {
    let world = World::with_partitions(4).await;
    let provider = world.provider_with_reconciler(NEVER).await;
    let core = &provider.core;
    let range = partition_of(&provider, session_document_key("cart").1).await;
    let instance = instances(&provider, range, false, 1).await.remove(0);
    provider.enqueue_for_worker(activity_of_session(&instance, "cart")).await.unwrap();
    world.delay("read_item", range, 2_500).await;
    let config = SessionFetchConfig { owner_id: "worker".into(), lock_timeout: LOCK };
    fetch(&provider, Some(&config)).await;
    let view = core.membership.view();
    let partition = view.partition_of(instance.as_str()).unwrap();
    assert_eq!(core.hints.paused_partitions.failures(partition, Instant::now()), 0);
}

/// Something else has changed the activities, so their locks are refused. After 64 refused locks the
/// hints forget the rest. Polls have skipped all of them, because the hints had them.
#[tokio::test(start_paused = true)]
async fn activities_that_the_hints_forget_after_refused_locks_are_read_again_at_once() {
    const COUNT: u64 = 150;
    let world = World::open().await;
    let provider = world.provider_with_reconciler(NEVER).await;
    for id in 0..=COUNT {
        provider.enqueue_for_worker(activity_item("a", id, String::new())).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(300)).await;
    // The polls of these fetches find nothing new.
    for _ in 0..2 {
        fetch(&provider, None).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    let patch = Patch::new().set("/changed", true).unwrap();
    for id in 0..=COUNT {
        let _ = provider.core.store.container.patch("a", &format!("a:1:{id}"), &patch).await;
    }
    let begun = Instant::now();
    fetch(&provider, None).await;
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}
