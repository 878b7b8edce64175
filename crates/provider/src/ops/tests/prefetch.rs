//! Prefetch: an activity is locked for a worker before the worker fetches again.

use super::*;

/// A poll timeout with which a fetch waits for work.
const WAIT: Duration = Duration::from_secs(5);

/// Fetches the next activity as the runtime does: it waits. Returns the id, the token and the
/// attempt of the activity.
async fn fetch_activity(provider: &CosmosDBProvider) -> (u64, String, u32) {
    let found = provider.fetch_work_item(LOCK, WAIT, None, &TagFilter::default()).await.unwrap();
    let (WorkItem::ActivityExecute { id, .. }, token, attempt) = found.expect("an activity") else {
        panic!("no activity")
    };
    (id, token, attempt)
}

/// Acks an activity with a completion.
async fn complete_activity(provider: &CosmosDBProvider, token: &str, id: u64) {
    let item =
        WorkItem::ActivityCompleted { instance: "a".into(), execution_id: 1, id, result: String::new() };
    provider.ack_work_item(token, Some(item)).await.unwrap();
}

fn requests_of(provider: &CosmosDBProvider, method: &str) -> u64 {
    provider.metrics().methods.get(method).map_or(0, |method| method.requests)
}

#[tokio::test]
async fn a_worker_that_completes_an_activity_finds_the_next_one_locked() {
    let world = World::open().await;
    let provider = world.provider().await;
    enqueue_activities(&provider, 1..=3).await;
    let (first, token, _) = fetch_activity(&provider).await;
    complete_activity(&provider, &token, first).await;
    let before = requests_of(&provider, "fetch_work_item");
    let (second, token, attempt) = fetch_activity(&provider).await;
    assert_eq!((first, second, attempt), (1, 2, 1));
    assert_eq!(
        requests_of(&provider, "fetch_work_item"),
        before,
        "the second activity was locked while the first was acked"
    );
    complete_activity(&provider, &token, second).await;
    let (third, token, attempt) = fetch_activity(&provider).await;
    assert_eq!((third, attempt), (3, 1));
    complete_activity(&provider, &token, third).await;
}

#[tokio::test]
async fn a_fetch_that_looks_once_prefetches_nothing() {
    let world = World::open().await;
    let (provider, other) = (world.provider().await, world.provider().await);
    enqueue_activities(&provider, 1..=2).await;
    let found = provider.fetch_work_item(LOCK, NO_WAIT, None, &TagFilter::default()).await.unwrap();
    let (_, token, _) = found.expect("the first");
    complete_activity(&provider, &token, 1).await;
    let found = other.fetch_work_item(LOCK, NO_WAIT, None, &TagFilter::default()).await.unwrap();
    let (item, _, attempt) = found.expect("another process may take the second activity");
    assert_eq!((item, attempt), (activity_item("a", 2, String::new()), 1));
}

#[tokio::test]
async fn an_activity_that_could_not_be_prefetched_is_still_queued() {
    let world = World::open().await;
    let provider = world.provider().await;
    enqueue_activities(&provider, 1..=2).await;
    let (first, token, _) = fetch_activity(&provider).await;
    world.inject_fault(r#"{"operation":"patch_item","count":1,"status":400}"#).await;
    complete_activity(&provider, &token, first).await;
    let (second, token, attempt) = fetch_activity(&provider).await;
    assert_eq!((second, attempt), (2, 1));
    complete_activity(&provider, &token, second).await;
}

#[tokio::test]
async fn an_activity_of_a_session_is_not_prefetched() {
    let world = World::open().await;
    let (provider, other) = (world.provider().await, world.provider().await);
    let WorkItem::ActivityExecute { instance, execution_id, id, name, input, tag, .. } =
        activity_item("a", 2, String::new())
    else {
        panic!("an activity")
    };
    let session_id = Some("s".to_owned());
    let in_session = WorkItem::ActivityExecute { instance, execution_id, id, name, input, session_id, tag };
    provider.enqueue_for_worker(activity_item("a", 1, String::new())).await.unwrap();
    provider.enqueue_for_worker(in_session).await.unwrap();
    let (first, token, _) = fetch_activity(&provider).await;
    complete_activity(&provider, &token, first).await;
    let session = duroxide::providers::SessionFetchConfig { owner_id: "other".into(), lock_timeout: LOCK };
    let found = other.fetch_work_item(LOCK, NO_WAIT, Some(&session), &TagFilter::default()).await.unwrap();
    assert!(found.is_some(), "another worker may claim the session");
}

#[tokio::test]
async fn closing_gives_back_prefetched_activities() {
    let world = World::open().await;
    let (provider, other) = (world.provider().await, world.provider().await);
    enqueue_activities(&provider, 1..=2).await;
    let (first, token, _) = fetch_activity(&provider).await;
    complete_activity(&provider, &token, first).await;
    assert_eq!(
        provider.core.hints.activities.with(|hints| hints.take_all_ready().len()),
        1,
        "one activity is locked in advance"
    );
    // Another provider prefetches an activity too, and has it in the hints when it is closed.
    let provider = world.provider().await;
    enqueue_activities(&provider, 3..=4).await;
    let (first, token, _) = fetch_activity(&provider).await;
    complete_activity(&provider, &token, first).await;
    provider.close().await;
    let found = other.fetch_work_item(LOCK, NO_WAIT, None, &TagFilter::default()).await.unwrap();
    let (item, _, attempt) = found.expect("the other process need not wait for the lock's end");
    // The other process gets the activity that was not completed: 3 or 4. The sum of both is 7.
    assert!(matches!(item, WorkItem::ActivityExecute { id, .. } if id == 7 - first), "{item:?}");
    assert_eq!(attempt, 1, "the lock that was given back does not count as an attempt");
}
