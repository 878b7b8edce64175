//! Locks of activities whose answers come late, or whose callers are gone by then. No activity may stay
//! locked for nobody, and a worker needs the whole lease. The tests run on the real engine in this
//! process, in virtual time.

use std::time::Duration;

use duroxide::providers::{Provider, SessionFetchConfig, TagFilter};
use tokio::time::Instant;

use super::recorded_process::RecordedProcess;
use super::sick_partitions::{NEVER, activity_of_session, fetch};
use super::{LOCK, World, activity_item};
use crate::documents::Activity;
use crate::documents::lock_token::{LockKind, LockToken};

/// The text in the body of a request that locks an activity: the path of a patch.
const LOCK_REQUEST: &str = "/attemptCount";

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
    let held = provider
        .core
        .activity_locks
        .get(&LockToken::decode(&token, LockKind::Activity).unwrap().nonce)
        .unwrap();
    let held = held.lock().await;
    let left = held.until.saturating_duration_since(Instant::now());
    assert!(left > LEASE - LEASE / 8, "{left:?}");
    let stored = provider.core.store.find::<Activity>("a", &held.activity.value.id).await.unwrap().unwrap();
    assert_eq!(stored.value.visible_at, held.activity.value.visible_at);
}

/// The runtime drops its fetches when it stops. Then the provider is closed.
#[tokio::test(start_paused = true)]
async fn a_dropped_fetch_leaves_no_activity_of_a_session_locked() {
    let world = World::open().await;
    let process = RecordedProcess::new(&world);
    let (provider, other) = (process.provider(&world).await, world.provider_with_reconciler(NEVER).await);
    let config = SessionFetchConfig { owner_id: "worker".into(), lock_timeout: LOCK };
    let item = activity_of_session("a", "cart");
    provider.enqueue_for_worker(item.clone()).await.unwrap();
    process.before_answer_to(LOCK_REQUEST, tokio::time::sleep(Duration::from_secs(1)));
    let dropped = fetch(&provider, Some(&config));
    assert!(tokio::time::timeout(Duration::from_millis(500), dropped).await.is_err(), "the lock is late");
    let begun = Instant::now();
    provider.close().await;
    let (fetched, _, attempt) = fetch(&other, Some(&config)).await;
    assert_eq!((fetched, attempt), (item, 1), "the lock that was given back is no attempt");
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}
