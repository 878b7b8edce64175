//! Rows that are out of date when they arrive. While a poll or a commit waits for its answer, workers
//! of the same process lock and complete activities that the poll reads or the commit creates. A hint
//! from such a row costs a lock that is refused. In a fan-out of 1,000 activities, four such locks in a
//! row once made the process forget the hints of all other activities, and polls found only 64 of them
//! every quarter of a second.

use std::time::Duration;

use duroxide::providers::{Provider, TagFilter, WorkItem};
use duroxide::{Event, EventKind};
use serde_json::Value;

use super::recorded_process::RecordedProcess;
use super::{
    LOCK, NO_WAIT, World, ack, activity_item, enqueue_activities, event, fetch_first_turn, fetch_instance,
};
use crate::CosmosDBProvider;
use crate::documents::heartbeat::Tags;
use crate::process::interest::Interest;

/// A poll timeout with which a fetch waits for work, as the runtime does.
const WAIT: Duration = Duration::from_secs(5);

impl World {
    /// How many locks of activities were refused because the activity has changed or is gone.
    async fn count_refused_locks(&self) -> u64 {
        let answer = self.engine.manage(http::Method::GET, "counters", "").await.unwrap();
        let report: Value = serde_json::from_slice(answer.body()).unwrap();
        let statuses = &report["operations"]["patch_item"]["statuses"];
        ["404", "412"].iter().filter_map(|status| statuses[*status].as_u64()).sum()
    }
}

/// Fetches activities and completes them. Returns their numbers.
async fn complete(provider: &CosmosDBProvider, count: usize, wait: Duration) -> Vec<u64> {
    let mut completed = Vec::new();
    for _ in 0..count {
        let found = provider.fetch_work_item(LOCK, wait, None, &TagFilter::default()).await.unwrap();
        let (WorkItem::ActivityExecute { instance, execution_id, id, .. }, token, attempt) =
            found.expect("an activity")
        else {
            panic!("not an activity")
        };
        assert_eq!(attempt, 1);
        let done = WorkItem::ActivityCompleted { instance, execution_id, id, result: String::new() };
        provider.ack_work_item(&token, Some(done)).await.unwrap();
        completed.push(id);
    }
    completed
}

/// Fetches once, so that the process keeps hints of activities without a tag.
async fn begin_to_serve(provider: &CosmosDBProvider) {
    let found = provider.fetch_work_item(LOCK, NO_WAIT, None, &TagFilter::default()).await.unwrap();
    assert!(found.is_none());
}

/// The number of activities in the hints that a worker can take now.
fn count_hints(provider: &CosmosDBProvider) -> usize {
    let now = provider.core.clock.now();
    provider.core.hints.activities.with(|hints| hints.count_due(now, usize::MAX))
}

#[tokio::test(start_paused = true)]
async fn a_poll_brings_back_no_activity_that_was_completed_before_its_answer() {
    let (world, process, provider) = RecordedProcess::open().await;
    begin_to_serve(&provider).await;
    enqueue_activities(&provider, 1..=10).await;
    let worker = provider.clone();
    // The query of the poll names the type of activities, `worker_queue`.
    process.before_answer_to("worker_queue", async move {
        assert_eq!(complete(&worker, 6, WAIT).await, (1..=6).collect::<Vec<_>>());
    });
    let tags = Tags::from(&TagFilter::default());
    let core = &provider.core;
    let ticket = core.poller.register(&core.membership, Interest::Activities { tags, owner: None }, true);
    core.poller.poll_all(core, &ticket).await.unwrap();
    drop(ticket);
    // The seventh activity is locked for the worker already.
    assert_eq!(count_hints(&provider), 3);
    assert_eq!(complete(&provider, 4, WAIT).await, (7..=10).collect::<Vec<_>>());
    assert_eq!(world.count_refused_locks().await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_commit_brings_back_no_activity_that_was_completed_before_its_answer() {
    let (world, process, provider) = RecordedProcess::open().await;
    let token = fetch_first_turn(&provider, "a").await;
    let worker = provider.clone();
    process.before_answer_to("a:1:7", async move {
        assert_eq!(complete(&worker, 1, NO_WAIT).await, [7]);
    });
    let activities = vec![activity_item("a", 7, String::new())];
    ack(&provider, &token, vec![event("a", 1, String::new())], activities, vec![]).await.unwrap();
    assert_eq!(count_hints(&provider), 0);
    assert_eq!(world.count_refused_locks().await, 0);
}

/// A fan-out that one batch does not hold is unpacked after the commit. An activity is completed before
/// the answer to the unpacking arrives.
#[tokio::test(start_paused = true)]
async fn unpacking_brings_back_no_activity_that_was_completed_before_its_answer() {
    const COUNT: u64 = 200;
    let (world, process, provider) = RecordedProcess::open().await;
    let token = fetch_first_turn(&provider, "a").await;
    let worker = provider.clone();
    let activities: Vec<_> = (1..=COUNT).map(|id| activity_item("a", id, String::new())).collect();
    // The first batch is the commit, the second one unpacks.
    let second = process.clone();
    process.before_answer_to("\"Create\"", async move {
        second.before_answer_to("\"Create\"", async move {
            complete(&worker, 1, NO_WAIT).await;
        });
    });
    ack(&provider, &token, vec![event("a", 1, String::new())], activities, vec![]).await.unwrap();
    complete(&provider, COUNT as usize - 1, WAIT).await;
    assert_eq!(count_hints(&provider), 0);
    assert_eq!(world.count_refused_locks().await, 0);
}

/// After four refused locks in a row, a process that is not alone forgets its hints about the other
/// activities of the instance: other processes are taking them. If a process is alone, a turn has
/// cancelled the activities whose locks were refused, and the hints about the others stay.
#[tokio::test(start_paused = true)]
async fn a_process_that_is_alone_keeps_its_hints_after_locks_that_failed() {
    let (world, _process, provider) = RecordedProcess::open().await;
    begin_to_serve(&provider).await;
    enqueue_activities(&provider, 1..=20).await;
    for id in 1..=6 {
        provider.core.store.container.delete("a", &format!("a:1:{id}")).await.unwrap();
    }
    // A poll would find the other activities again.
    world.inject_fault(r#"{"operation":"query","delayMs":60000}"#).await;
    let found = provider.fetch_work_item(LOCK, WAIT, None, &TagFilter::default()).await.unwrap();
    assert!(found.is_some_and(|(item, ..)| item == activity_item("a", 7, String::new())));
    assert_eq!(count_hints(&provider), 13);
}

/// A turn reads and consumes a completion before the worker's ack gets its answer. Then the ack adds
/// the completion to the hints. A turn with it could not be committed.
#[tokio::test(start_paused = true)]
async fn a_completion_that_was_consumed_before_the_answer_of_its_ack_gets_no_turn() {
    let (_world, process, provider) = RecordedProcess::open().await;
    let token = fetch_first_turn(&provider, "a").await;
    let activities = vec![activity_item("a", 7, String::new())];
    ack(&provider, &token, vec![event("a", 1, String::new())], activities, vec![]).await.unwrap();
    let dispatcher = provider.clone();
    process.before_answer_to("c:1:7", async move {
        let (token, messages) = fetch_instance(&dispatcher).await;
        assert_eq!(messages.len(), 1);
        let kind = EventKind::ActivityCompleted { result: String::new() };
        let history = vec![Event::with_event_id(2, "a", 1, Some(7), kind)];
        ack(&dispatcher, &token, history, vec![], vec![]).await.unwrap();
    });
    complete(&provider, 1, NO_WAIT).await;
    assert_eq!(provider.read("a").await.unwrap().len(), 2);
    let fetched = provider.fetch_orchestration_item(LOCK, WAIT, None).await.unwrap();
    assert!(fetched.is_none(), "the completion was consumed");
}
