//! The metric `steals`: turns and activities that a process took over from another one, in virtual time.

use std::time::Duration;

use duroxide::providers::{Provider, TagFilter};

use super::{LOCK, NEVER, NO_WAIT, World, ack, activity_item, event, start};
use crate::CosmosDBProvider;

/// A lock that expires during the test.
const SHORT_LOCK: Duration = Duration::from_secs(1);

/// Takes a turn and an activity, and tries to end both after their locks have expired.
async fn let_locks_expire(provider: &CosmosDBProvider) {
    let tags = TagFilter::default();
    let fetched = provider.fetch_orchestration_item(SHORT_LOCK, NO_WAIT, None).await.unwrap();
    let (_, turn, _) = fetched.expect("the turn");
    let fetched = provider.fetch_work_item(SHORT_LOCK, NO_WAIT, None, &tags).await.unwrap();
    let (_, activity, _) = fetched.expect("the activity");
    tokio::time::sleep(2 * SHORT_LOCK).await;
    ack(provider, &turn, vec![event("a", 1, String::new())], vec![], vec![]).await.unwrap_err();
    provider.ack_work_item(&activity, None).await.unwrap_err();
}

/// Takes both again.
async fn take_again(provider: &CosmosDBProvider) {
    let turn = provider.fetch_orchestration_item(LOCK, Duration::from_secs(20), None).await.unwrap();
    turn.expect("the turn again");
    let tags = TagFilter::default();
    let activity = provider.fetch_work_item(LOCK, Duration::from_secs(20), None, &tags).await.unwrap();
    activity.expect("the activity again");
}

/// Story of a bug: a lock that had ended was forgotten, and so its process counted its own lock as that of
/// another process.
#[tokio::test(start_paused = true)]
async fn a_process_that_takes_its_own_expired_work_again_has_stolen_nothing() {
    let world = World::open().await;
    let provider = world.provider_with_reconciler(NEVER).await;
    provider.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
    provider.enqueue_for_worker(activity_item("b", 1, String::new())).await.unwrap();
    let_locks_expire(&provider).await;
    let sizes = provider.memory_sizes();
    let remembered = sizes.iter().find(|size| size.structure == "nonces of ended locks of instances");
    assert_eq!(remembered.map(|size| size.entries), Some(1), "{sizes:?}");
    take_again(&provider).await;
    assert_eq!(provider.metrics().steals, 0);
}

#[tokio::test(start_paused = true)]
async fn work_whose_lock_another_process_let_expire_is_counted_as_stolen() {
    let world = World::open().await;
    let provider = world.provider_with_reconciler(NEVER).await;
    provider.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
    provider.enqueue_for_worker(activity_item("b", 1, String::new())).await.unwrap();
    let_locks_expire(&provider).await;
    let other = world.provider_with_reconciler(NEVER).await;
    take_again(&other).await;
    assert_eq!(other.metrics().steals, 2);
}
