//! A renewal of an activity's lock that fails although the lock has not expired. The runtime
//! then cancels the activity and acks it without a completion.

use duroxide::providers::{Provider, TagFilter, WorkItem};

use super::{LOCK, NO_WAIT, World, ack, activity_item, event, fetch_instance, start};

/// Fetches an activity, makes the renewal of its lock fail by the fault `rule`, and then acks the
/// activity without a completion. The ack must be refused, and the activity must still be there.
///
/// Story of the bug: in a run with faults, requests were answered with 401 for two seconds, at the end
/// of a lock. The retries of the renewal ended before the lock did, so the ack came while the lock was
/// still valid, and deleted the activity. Its instance never ended.
async fn check(rule: &str, is_renewed_elsewhere: bool) {
    let world = World::open().await;
    let provider = world.provider().await;
    provider.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
    let (token, _) = fetch_instance(&provider).await;
    let activities = vec![activity_item("a", 9, String::new())];
    ack(&provider, &token, vec![event("a", 1, String::new())], activities, vec![]).await.unwrap();
    let fetched = provider.fetch_work_item(LOCK, NO_WAIT, None, &TagFilter::default()).await.unwrap();
    let (_, token, _) = fetched.expect("an activity");
    if is_renewed_elsewhere {
        // From now on the etag that the first provider knows is outdated.
        world.provider().await.renew_work_item_lock(&token, LOCK * 2).await.unwrap();
    }
    world.inject_fault(rule).await;
    assert!(provider.renew_work_item_lock(&token, LOCK).await.is_err(), "{rule}: the renewal fails");
    world.remove_faults().await;
    let acked = provider.ack_work_item(&token, None).await;
    assert!(acked.is_err(), "{rule}: the ack is refused");
    let activity = provider.core.store.find::<serde_json::Value>("a", "a:1:9").await.unwrap();
    assert!(activity.is_some(), "{rule}: another worker has to run the activity");
    let result =
        WorkItem::ActivityCompleted { instance: "a".into(), execution_id: 1, id: 9, result: "x".into() };
    assert!(provider.ack_work_item(&token, Some(result)).await.is_err(), "{rule}: a result is refused, too");
}

#[tokio::test(start_paused = true)]
async fn an_activity_whose_renewal_failed_is_not_deleted() {
    check(r#"{"status":503}"#, false).await;
    check(r#"{"status":401}"#, false).await;
}

#[tokio::test(start_paused = true)]
async fn an_activity_whose_lock_could_not_be_read_again_is_not_deleted() {
    check(r#"{"operation":"read_item","status":503}"#, true).await;
}
