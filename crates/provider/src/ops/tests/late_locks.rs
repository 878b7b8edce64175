//! Locks of activities and claims of sessions whose answers come late, or whose callers are gone by
//! then. An activity must not stay locked when no worker runs it, and a worker needs the whole lease. The
//! tests run on the real engine in this process, most of them in virtual time.

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{Provider, ScheduledActivityIdentifier, SessionFetchConfig, TagFilter, WorkItem};
use perihelion_client::Query;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::recorded_process::RecordedProcess;
use super::sick_partitions::{activity_of_session, fetch};
use super::{
    LOCK, NEVER, NO_WAIT, World, ack, activity_item, event, fetch_first_turn, fetch_instance, raised_event,
    start,
};
use crate::CosmosDBProvider;
use crate::documents::lock_token::{LockKind, LockToken};
use crate::documents::{Activity, Versioned};
use crate::ops::activity::sessions::{self, SessionClaim};
use crate::ops::activity::unfetched;
use crate::process::hints::ReadyActivity;
use crate::process::lock_table::LockedActivity;

/// The query for the ids of all activities.
const ACTIVITY_IDS: &str = "SELECT VALUE c.id FROM c WHERE c.type = 'worker_queue'";

/// The text in the body of a request that locks an activity: the path of a patch.
const LOCK_REQUEST: &str = "/attemptCount";

fn session_config(owner: &str) -> SessionFetchConfig {
    SessionFetchConfig { owner_id: owner.into(), lock_timeout: LOCK }
}

/// The lock of a token, as the process knows it.
fn held_lock(provider: &CosmosDBProvider, token: &str) -> Arc<Mutex<LockedActivity>> {
    let nonce = LockToken::decode(token, LockKind::Activity).unwrap().nonce;
    provider.core.activity_locks.get(&nonce).unwrap()
}

async fn stored_activity(provider: &CosmosDBProvider, id: &str) -> Versioned<Activity> {
    provider.core.store.find::<Activity>("a", id).await.unwrap().unwrap()
}

/// Not in virtual time, because the engine and the provider compare their clocks.
#[tokio::test]
async fn a_lock_whose_answer_comes_late_lasts_for_the_whole_lease() {
    const LEASE: Duration = Duration::from_secs(3);
    let world = World::open().await;
    let process = RecordedProcess::new(&world);
    let provider = process.provider(&world).await;
    provider.enqueue_for_worker(activity_item("a", 1, String::new())).await.unwrap();
    process.before_answer_to(LOCK_REQUEST, tokio::time::sleep(LEASE / 4));
    let fetched = provider.fetch_work_item(LEASE, LEASE, None, &TagFilter::default()).await.unwrap();
    let (_, token, attempt) = fetched.unwrap();
    assert_eq!(attempt, 1);
    let held = held_lock(&provider, &token);
    let held = held.lock().await;
    let left = held.until.saturating_duration_since(Instant::now());
    assert!(left > LEASE - LEASE / 8, "{left:?}");
    let stored = stored_activity(&provider, &held.activity.value.id).await;
    assert_eq!(stored.value.visible_at, held.activity.value.visible_at);
}

/// Not in virtual time. A lock whose answer comes late is written again with a later end. Here the
/// answer to that second write does not come in time.
#[tokio::test]
async fn a_lock_whose_extension_gets_no_answer_has_the_stored_end() {
    const LEASE: Duration = Duration::from_secs(3);
    let world = World::open().await;
    let process = RecordedProcess::new(&world);
    let provider = process.provider(&world).await;
    provider.enqueue_for_worker(activity_item("a", 1, String::new())).await.unwrap();
    let again = process.clone();
    process.before_answer_to(LOCK_REQUEST, async move {
        tokio::time::sleep(LEASE / 6).await;
        again.before_answer_to(LOCK_REQUEST, tokio::time::sleep(LEASE));
    });
    let fetched = provider.fetch_work_item(LEASE, LEASE, None, &TagFilter::default()).await.unwrap();
    let (_, token, _) = fetched.unwrap();
    let held = held_lock(&provider, &token);
    let held = held.lock().await;
    let stored = stored_activity(&provider, &held.activity.value.id).await;
    assert_eq!(
        (stored.value.visible_at, &stored.etag),
        (held.activity.value.visible_at, &held.activity.etag)
    );
}

/// Not in virtual time. A turn cancels the activity while the answer to its lock is on its way.
#[tokio::test]
async fn an_activity_that_was_cancelled_before_a_late_answer_is_not_run() {
    const LEASE: Duration = Duration::from_secs(3);
    let world = World::open().await;
    let process = RecordedProcess::new(&world);
    let (provider, other) = (process.provider(&world).await, world.provider_with_reconciler(NEVER).await);
    provider.enqueue_for_worker(activity_item("a", 1, String::new())).await.unwrap();
    let id = provider.core.store.rows::<String>(Query::new(ACTIVITY_IDS)).await.unwrap().remove(0);
    process.before_answer_to(LOCK_REQUEST, async move {
        tokio::time::sleep(LEASE / 4).await;
        other.core.store.container.delete("a", &id).await.unwrap();
    });
    let fetched = provider.fetch_work_item(LEASE, NO_WAIT, None, &TagFilter::default()).await.unwrap();
    assert!(fetched.is_none(), "{fetched:?}");
    assert!(!process.bodies().is_empty());
}

/// The claim of a session takes longer than its worker waits.
#[tokio::test(start_paused = true)]
async fn a_session_that_is_claimed_late_is_free_for_other_workers() {
    let world = World::open().await;
    let process = RecordedProcess::new(&world);
    let provider = process.provider(&world).await;
    let item = activity_of_session("a", "cart");
    provider.enqueue_for_worker(item.clone()).await.unwrap();
    process.before_answer_to("lockedUntil", tokio::time::sleep(Duration::from_secs(4)));
    let config = session_config("slot 1");
    let late = fetch(&provider, Some(&config));
    assert!(tokio::time::timeout(Duration::from_millis(3_100), late).await.is_err(), "the claim is late");
    let begun = Instant::now();
    let (fetched, ..) = fetch(&provider, Some(&session_config("slot 2"))).await;
    assert_eq!(fetched, item);
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

/// The runtime renews a lock of 30 seconds when five of them are left.
#[tokio::test(start_paused = true)]
async fn a_lock_is_renewed_although_each_request_takes_seconds() {
    let world = World::open().await;
    let provider = world.provider_with_reconciler(NEVER).await;
    provider.enqueue_for_worker(activity_item("a", 1, String::new())).await.unwrap();
    let (_, token, _) = fetch(&provider, None).await;
    world.delay("patch_item", 0, 2_000).await;
    tokio::time::sleep(LOCK - Duration::from_secs(5)).await;
    provider.renew_work_item_lock(&token, LOCK).await.unwrap();
    let held = held_lock(&provider, &token);
    let left = held.lock().await.until.saturating_duration_since(Instant::now());
    assert!(left > LOCK - Duration::from_secs(3), "{left:?}");
}

/// An activity that is locked later than another may have to be given back sooner.
#[tokio::test(start_paused = true)]
async fn an_activity_with_a_short_lock_is_given_back_before_those_with_long_ones() {
    let world = World::open().await;
    let provider = world.provider_with_reconciler(NEVER).await;
    let hints = &provider.core.hints.activities;
    for id in [1, 2] {
        provider.enqueue_for_worker(activity_item("a", id, String::new())).await.unwrap();
    }
    let mut ids = provider.core.store.rows::<String>(Query::new(ACTIVITY_IDS)).await.unwrap().into_iter();
    let mut add_ready = async |lease: Duration| {
        let Versioned { value: mut activity, etag } = stored_activity(&provider, &ids.next().unwrap()).await;
        activity.visible_at = provider.core.clock.now().plus(lease);
        let nonce = String::from("nonce");
        let ready = ReadyActivity { activity, etag, nonce, lease, item: None, session: None };
        unfetched::hand_over(&provider.core, ready);
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    add_ready(Duration::from_secs(300)).await;
    add_ready(Duration::from_secs(5)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let left: Vec<Duration> =
        hints.with(|hints| hints.take_all_ready()).iter().map(|ready| ready.lease).collect();
    assert_eq!(left, [Duration::from_secs(300)]);
}

/// The runtime drops its fetches when it stops. Then the provider is closed.
#[tokio::test(start_paused = true)]
async fn a_dropped_fetch_leaves_no_activity_of_a_session_locked() {
    let world = World::open().await;
    let process = RecordedProcess::new(&world);
    let (provider, other) = (process.provider(&world).await, world.provider_with_reconciler(NEVER).await);
    let config = session_config("worker");
    let item = activity_of_session("a", "cart");
    provider.enqueue_for_worker(item.clone()).await.unwrap();
    process.before_answer_to(LOCK_REQUEST, tokio::time::sleep(Duration::from_secs(1)));
    let dropped = fetch(&provider, Some(&config));
    assert!(tokio::time::timeout(Duration::from_millis(500), dropped).await.is_err(), "the lock is late");
    let begun = Instant::now();
    provider.close().await;
    let (fetched, _, attempt) = fetch(&other, Some(&session_config("another worker"))).await;
    assert_eq!((fetched, attempt), (item, 1), "the lock that was given back does not count as an attempt");
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

/// Lets an activity be locked after its worker has gone.
async fn lock_late(process: &RecordedProcess, provider: &CosmosDBProvider, config: &SessionFetchConfig) {
    process.before_answer_to(LOCK_REQUEST, tokio::time::sleep(Duration::from_secs(1)));
    let dropped = fetch(provider, Some(config));
    assert!(tokio::time::timeout(Duration::from_millis(500), dropped).await.is_err(), "the lock is late");
    tokio::time::sleep(Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_late_lock_is_handed_over_with_its_session_or_its_large_input() {
    for item in [activity_of_session("a", "cart"), activity_item("a", 1, "x".repeat(400_000))] {
        let world = World::open().await;
        let process = RecordedProcess::new(&world);
        let provider = process.provider(&world).await;
        let config = session_config("worker");
        provider.enqueue_for_worker(item.clone()).await.unwrap();
        lock_late(&process, &provider, &config).await;
        let (fetched, _, attempt) = fetch(&provider, Some(&config)).await;
        assert!((&fetched, attempt) == (&item, 1), "attempt {attempt}");
        let locks = process.bodies().iter().filter(|body| body.contains(LOCK_REQUEST)).count();
        assert_eq!(locks, 1, "the activity was locked once");
    }
}

/// The worker that owns the session is busy when the lock is written.
#[tokio::test(start_paused = true)]
async fn a_late_lock_whose_session_is_not_asked_for_is_given_back_with_its_session() {
    let world = World::open().await;
    let process = RecordedProcess::new(&world);
    let provider = process.provider(&world).await;
    let item = activity_of_session("a", "cart");
    provider.enqueue_for_worker(item.clone()).await.unwrap();
    lock_late(&process, &provider, &session_config("slot 1")).await;
    let begun = Instant::now();
    let (fetched, _, attempt) = fetch(&provider, Some(&session_config("slot 2"))).await;
    assert_eq!((fetched, attempt), (item, 1));
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

/// A turn cancels the activity while it waits for its worker.
#[tokio::test(start_paused = true)]
async fn a_cancelled_activity_that_is_locked_for_a_worker_releases_its_session() {
    let world = World::open().await;
    let process = RecordedProcess::new(&world);
    let provider = process.provider(&world).await;
    let token = fetch_first_turn(&provider, "a").await;
    let item = activity_of_session("a", "cart");
    let WorkItem::ActivityExecute { execution_id, id: activity_id, .. } = item else { panic!("{item:?}") };
    ack(&provider, &token, vec![event("a", 1, String::new())], vec![item], vec![]).await.unwrap();
    lock_late(&process, &provider, &session_config("slot 1")).await;
    provider.enqueue_for_orchestrator(raised_event("a", "stop"), None).await.unwrap();
    let (token, _) = fetch_instance(&provider).await;
    let cancelled = ScheduledActivityIdentifier { instance: "a".into(), execution_id, activity_id };
    let (history, no_items) = (vec![event("a", 2, String::new())], Vec::new());
    let metadata = super::order_metadata();
    provider
        .ack_orchestration_item(&token, 1, history, no_items.clone(), no_items, metadata, vec![cancelled])
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(matches!(claim(&provider, "slot 2").await, SessionClaim::Owned(_)));
}

/// The lock is written, its answer is lost, and then the partition does not answer for a while.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_in_doubt_for_a_while_is_given_back() {
    let world = World::open().await;
    let process = RecordedProcess::new(&world);
    let provider = process.provider(&world).await;
    provider.enqueue_for_worker(activity_item("a", 1, String::new())).await.unwrap();
    process.lose_answer_to(LOCK_REQUEST);
    world.inject_fault(r#"{"operation":"read_item","status":503}"#).await;
    let lock = Duration::from_secs(3600);
    let tags = TagFilter::default();
    let outage = async {
        tokio::time::sleep(Duration::from_secs(12)).await;
        world.remove_faults().await;
    };
    let fetch_once = provider.fetch_work_item(lock, NO_WAIT, None, &tags);
    let (fetched, ()) = tokio::join!(fetch_once, outage);
    assert!(!matches!(fetched, Ok(Some(_))), "{fetched:?}");
    let (_, _, attempt) = fetch(&provider, None).await;
    assert_eq!(attempt, 1, "the lock that was given back does not count as an attempt");
}

/// Claims the session `cart`.
async fn claim(provider: &CosmosDBProvider, owner: &str) -> SessionClaim {
    sessions::claim(&provider.core, "cart", &session_config(owner)).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_undone_although_the_session_was_renewed_or_its_deletion_fails_at_first() {
    for is_renewed in [true, false] {
        let world = World::open().await;
        let provider = world.provider_with_reconciler(NEVER).await;
        let SessionClaim::Owned(first) = claim(&provider, "worker").await else { panic!("it is free") };
        if is_renewed {
            assert_eq!(provider.renew_session_lock(&["worker"], LOCK, LOCK).await.unwrap(), 1);
        } else {
            world.inject_fault(r#"{"operation":"delete_item","count":12,"status":503}"#).await;
        }
        sessions::release(&provider.core, first).await;
        tokio::time::sleep(Duration::from_secs(15)).await;
        let next = claim(&provider, "another worker").await;
        assert!(matches!(next, SessionClaim::Owned(_)), "renewed: {is_renewed}");
    }
}

/// The same owner claims the session again while the answer to the deletion of its document is on its
/// way.
#[tokio::test(start_paused = true)]
async fn a_session_that_is_claimed_while_an_older_claim_is_undone_is_still_renewed() {
    let world = World::open().await;
    let process = RecordedProcess::new(&world);
    let provider = process.provider(&world).await;
    // After the first renewal the process knows all its sessions, and does not look for others.
    assert_eq!(provider.renew_session_lock(&["worker"], LOCK, LOCK).await.unwrap(), 0);
    let SessionClaim::Owned(first) = claim(&provider, "worker").await else { panic!("it is free") };
    let core = Arc::clone(&provider.core);
    process.forget_requests();
    // The deletion has no body. The empty text matches every request.
    process.before_answer_to("", async move {
        sessions::claim(&core, "cart", &session_config("worker")).await.unwrap();
    });
    sessions::release(&provider.core, first).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(provider.renew_session_lock(&["worker"], LOCK, LOCK).await.unwrap(), 1);
}

/// The same owner uses the session for another activity before the older claim is undone. A renewal
/// while the claim is being undone must not leave the session out.
#[tokio::test(start_paused = true)]
async fn a_session_is_renewed_while_an_older_claim_is_undone() {
    let world = World::open().await;
    let process = RecordedProcess::new(&world);
    let provider = process.provider(&world).await;
    assert_eq!(provider.renew_session_lock(&["worker"], LOCK, LOCK).await.unwrap(), 0);
    let SessionClaim::Owned(first) = claim(&provider, "worker").await else { panic!("it is free") };
    let SessionClaim::Owned(_) = claim(&provider, "worker").await else { panic!("the worker owns it") };
    let core = Arc::clone(&provider.core);
    let (send, renewed) = tokio::sync::oneshot::channel();
    process.forget_requests();
    // The deletion has no body. The empty text matches every request.
    process.before_answer_to("", async move {
        let (store, clock, sessions) = (&core.store, &core.clock, &core.sessions);
        let renewed = sessions::renew(store, clock, sessions, &["worker"], LOCK, LOCK).await;
        send.send(renewed.unwrap()).unwrap();
    });
    sessions::release(&provider.core, first).await;
    assert_eq!(renewed.await.unwrap(), 1);
}

/// Not in virtual time. The second write, which gives the lock a later end, takes as long as the first.
#[tokio::test]
async fn a_lock_lasts_for_the_whole_lease_although_each_request_is_slow() {
    const LEASE: Duration = Duration::from_secs(3);
    let world = World::open().await;
    let provider = world.provider_with_reconciler(NEVER).await;
    provider.enqueue_for_worker(activity_item("a", 1, String::new())).await.unwrap();
    let delay = (LEASE / 5).as_millis();
    world.inject_fault(&format!(r#"{{"operation":"patch_item","delayMs":{delay}}}"#)).await;
    let fetched = provider.fetch_work_item(LEASE, LEASE, None, &TagFilter::default()).await.unwrap();
    let held = held_lock(&provider, &fetched.unwrap().1);
    let left = held.lock().await.until.saturating_duration_since(Instant::now());
    assert!(left > LEASE - LEASE / 8, "{left:?}");
}

/// All background tasks are taken, and the provider is closed while the activity is given back.
#[tokio::test(start_paused = true)]
async fn closing_does_not_interrupt_what_is_being_given_back() {
    let world = World::open().await;
    let (provider, other) =
        (world.provider_with_reconciler(NEVER).await, world.provider_with_reconciler(NEVER).await);
    let hints = &provider.core.hints.activities;
    let worker = hints.with(|hints| hints.add_waiting_worker(&TagFilter::default(), LOCK));
    provider.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
    let (token, _) = fetch_instance(&provider).await;
    let activities = vec![activity_item("a", 7, String::new())];
    ack(&provider, &token, vec![event("a", 1, String::new())], activities, vec![]).await.unwrap();
    assert!(hints.with(|hints| hints.has_ready()), "the activity is locked for the worker");
    hints.with(|hints| hints.remove_waiting_worker(worker));
    while provider.core.background.run_or_drop(tokio::time::sleep(LOCK)) {}
    world.inject_fault(r#"{"operation":"patch_item","count":1,"delayMs":2000}"#).await;
    tokio::time::sleep(LOCK / 10 + Duration::from_secs(1)).await;
    provider.close().await;
    let (_, _, attempt) = fetch(&other, None).await;
    assert_eq!(attempt, 1, "the lock that was given back does not count as an attempt");
}

/// After an ack that came too late the runtime acks once more, with the failure of the workflow, and may
/// renew the lock. Both calls are refused. The document has a later end of the lock, as after a renewal
/// whose answer was lost, and that must not help them.
///
/// Story of a bug, which the simulation found: the lock stayed in memory, with the state and its
/// history, until 4,096 later locks had come.
#[tokio::test]
async fn an_ack_that_comes_after_the_lock_has_ended_leaves_no_lock_in_memory() {
    let world = World::open().await;
    let provider = world.provider().await;
    provider.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
    let (token, _) = fetch_instance(&provider).await;
    let locks = |provider: &CosmosDBProvider| {
        let sizes = provider.memory_sizes();
        sizes.iter().find(|size| size.structure == "locks of instances").unwrap().entries
    };
    assert_eq!(locks(&provider), 1);
    let nonce = LockToken::decode(&token, LockKind::Orchestration).unwrap().nonce;
    provider.core.instance_locks.get(&nonce).unwrap().lock().await.until = Instant::now();
    for _ in 0..2 {
        ack(&provider, &token, vec![event("a", 1, String::new())], vec![], vec![]).await.unwrap_err();
        provider.renew_orchestration_item_lock(&token, LOCK).await.unwrap_err();
        assert_eq!(locks(&provider), 0);
    }
}
