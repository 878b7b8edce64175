//! Large values, and many values: all values are read back, documents stay small, and unused
//! documents are removed. Garbage records have the stored type `litter`. The guards of stagings have the
//! stored type `fence`, and stay until their time to live is over.

use std::collections::BTreeSet;
use std::time::Duration;

use duroxide::providers::{ExecutionMetadata, Provider, ProviderAdmin, TagFilter, WorkItem};
use duroxide::{Event, EventKind};
use perihelion_client::{Batch, Query};
use serde_json::Value;

use super::interrupted_process::{InterruptedProcess, LastRequest};
use super::{
    LOCK, NEVER, NO_WAIT, World, ack, activity_item, event, fetch_first_turn, fetch_instance, order_metadata,
    raised_event, start, write_message,
};
use crate::CosmosDBProvider;
use crate::documents::text::{PartsRef, Text};
use crate::documents::{Garbage, Message, Versioned};
use crate::ops::orchestration::stage;
use crate::ops::payload::{self, PreparedMessage};
use crate::ops::repair::garbage;
use crate::plan;
use crate::store::decode_row;

const TEN_MEGABYTES: usize = 10 * 1024 * 1024;

/// A text that is longer as JSON than in memory, with characters of several bytes. `fill` tells
/// the values apart. The input (`i`), the result (`r`) and the output (`o`) have ten megabytes,
/// the other values have a quarter of that.
fn large_text(fill: char) -> String {
    let unit = format!("{fill}{}\"ä\n", "x".repeat(60));
    let bytes = if matches!(fill, 'i' | 'r' | 'o') { TEN_MEGABYTES } else { TEN_MEGABYTES / 4 };
    unit.repeat(bytes / unit.len())
}

/// The rows of a query in the partition of an instance.
async fn rows(provider: &CosmosDBProvider, instance: &str, text: &str) -> Vec<Value> {
    provider.core.store.rows(Query::new(text).in_partition(instance)).await.unwrap()
}

async fn state_bytes(provider: &CosmosDBProvider, instance: &str) -> usize {
    let state = rows(provider, instance, "SELECT * FROM c WHERE c.id = 'i'").await;
    serde_json::to_vec(&state[0]).unwrap().len()
}

fn completed_metadata(output: String) -> ExecutionMetadata {
    ExecutionMetadata { status: Some("Completed".into()), output: Some(output), ..order_metadata() }
}

/// The values are the input, an event, the input and result of an activity, the input of a
/// child, the output and the custom status.
#[tokio::test]
async fn values_of_ten_megabytes_are_read_back_and_leave_no_documents() {
    let world = World::open().await;
    let provider = world.provider_with_reconciler(NEVER).await;
    provider.enqueue_for_orchestrator(start("a", large_text('i')), None).await.unwrap();
    let (token, messages) = fetch_instance(&provider).await;
    assert!(messages == [start("a", large_text('i'))], "the input");
    let history = vec![event("a", 1, large_text('e'))];
    let activities =
        vec![activity_item("a", 2, large_text('w')), activity_item("a", 3, "c".repeat(2_000_000))];
    ack(&provider, &token, history.clone(), activities, vec![start("b", large_text('s'))]).await.unwrap();
    assert!(provider.read("a").await.unwrap() == history, "the event");

    let fetched = provider.fetch_work_item(LOCK, NO_WAIT, None, &TagFilter::default()).await.unwrap();
    let (item, activity_token, _) = fetched.expect("an activity");
    assert!(item == activity_item("a", 2, large_text('w')), "the activity's input");
    let done =
        WorkItem::ActivityCompleted { instance: "a".into(), execution_id: 1, id: 2, result: large_text('r') };
    provider.ack_work_item(&activity_token, Some(done.clone())).await.unwrap();

    let fetched = provider.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap();
    let (item, child_token, _) = fetched.expect("the child");
    assert!(item.instance == "b" && item.messages == [start("b", large_text('s'))], "the child's input");
    ack(&provider, &child_token, vec![event("b", 1, String::new())], vec![], vec![]).await.unwrap();

    let (token, messages) = fetch_instance(&provider).await;
    assert!(messages == [done], "the result");
    let cancelled = vec![duroxide::providers::ScheduledActivityIdentifier {
        instance: "a".into(),
        execution_id: 1,
        activity_id: 3,
    }];
    let status = EventKind::CustomStatusUpdated { status: Some(large_text('u')) };
    let last = vec![Event::with_event_id(2, "a", 1, None, status)];
    let metadata = completed_metadata(large_text('o'));
    provider.ack_orchestration_item(&token, 1, last, vec![], vec![], metadata, cancelled).await.unwrap();
    assert!(provider.get_instance_info("a").await.unwrap().output == Some(large_text('o')), "the output");
    let (status, _) = provider.get_custom_status("a", 0).await.unwrap().expect("a status");
    assert!(status == Some(large_text('u')), "the custom status");
    assert!(state_bytes(&provider, "a").await < 20_000);

    let parts = rows(&provider, "a", "SELECT VALUE SUBSTRING(c.id, 0, 2) FROM c WHERE c.type = 'part'").await;
    assert!(parts.iter().all(|id| *id == "k:"), "only the state's own values are left: {parts:?}");
    assert_eq!(rows(&provider, "a", "SELECT c.id FROM c WHERE c.type = 'litter'").await, Vec::<Value>::new());
    for instance in ["a", "b"] {
        provider.delete_instance(instance, true).await.unwrap();
        let all = "SELECT c.id, c.type FROM c WHERE c.type != 'fence'";
        assert_eq!(rows(&provider, instance, all).await, [serde_json::json!({"id": "i", "type": "deleted"})]);
        let lasting = "SELECT VALUE c.id FROM c WHERE c.type = 'fence' AND NOT IS_DEFINED(c.ttl)";
        assert_eq!(rows(&provider, instance, lasting).await, Vec::<Value>::new());
    }
}

#[tokio::test]
async fn a_thousand_values_of_ten_kilobytes_are_kept_beside_a_small_state() {
    let world = World::open().await;
    let provider = world.provider().await;
    let set_event = |id: u64, fill: &str| {
        let kind = EventKind::KeyValueSet {
            key: format!("key {id} / # ☃"),
            value: fill.repeat(10_240 / fill.len()),
            last_updated_at_ms: id,
        };
        Event::with_event_id(id, "a", 1, None, kind)
    };
    let token = fetch_first_turn(&provider, "a").await;
    ack(&provider, &token, (1..=1000).map(|id| set_event(id, "x")).collect(), vec![], vec![]).await.unwrap();
    assert!(state_bytes(&provider, "a").await < 200_000, "{}", state_bytes(&provider, "a").await);
    let all = provider.get_kv_all_values("a").await.unwrap();
    assert!(all.len() == 1000 && all.values().all(|value| value.len() == 10_240));
    assert_eq!(provider.get_instance_stats("a").await.unwrap().unwrap().kv_total_value_bytes, 10_240_000);

    // The last turn of the execution overwrites one value, which then stays inline, and clears
    // another. The next execution begins with the remaining values.
    provider.enqueue_for_orchestrator(raised_event("a", "1"), None).await.unwrap();
    let (token, _) = fetch_instance(&provider).await;
    let clear = EventKind::KeyValueCleared { key: "key 2 / # ☃".into() };
    let overwrite = EventKind::KeyValueSet {
        key: "key 1 / # ☃".into(),
        value: "y".repeat(20_000),
        last_updated_at_ms: 7,
    };
    let history = vec![
        Event::with_event_id(1001, "a", 1, None, overwrite),
        Event::with_event_id(1002, "a", 1, None, clear),
    ];
    provider
        .ack_orchestration_item(&token, 1, history, vec![], vec![], completed_metadata(String::new()), vec![])
        .await
        .unwrap();
    provider.core.background.wait_until_idle().await;
    let parts = rows(&provider, "a", "SELECT c.id FROM c WHERE c.type = 'part'").await;
    assert_eq!(parts.len(), 998, "parts of the replaced and the cleared value are deleted");
    provider.enqueue_for_orchestrator(raised_event("a", "2"), None).await.unwrap();
    let (item, _, _) = provider.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap().unwrap();
    assert_eq!(item.kv_snapshot.len(), 999);
    assert_eq!(item.kv_snapshot["key 1 / # ☃"].value, "y".repeat(20_000));
    assert_eq!(item.kv_snapshot["key 3 / # ☃"].value.len(), 10_240);
}

/// Found by seed 13972 of `cargo xtask sim faults`. The first attempt to stage the parts of an
/// activity's input took ten seconds to arrive. Meanwhile a second attempt was applied, the turn was
/// committed, the activity ran, and its input was deleted. Then the first attempt arrived and created
/// the parts again, and nothing deleted them.
#[tokio::test]
async fn a_staging_request_that_arrives_after_the_commit_creates_nothing() {
    let world = World::open().await;
    let provider = world.provider().await;
    let store = &provider.core.store;
    let until = tokio::time::Instant::now() + Duration::from_secs(10);
    let parts = plan::part_documents("a", "p:s", &"x".repeat(1000), Some(&"s".to_owned()), None);
    let staged =
        stage::stage_parts(store, "a", "s", &parts, provider.core.clock.stamp(), until).await.unwrap();
    let mut late = stage::new_batch("a", &staged).unwrap();
    late.create(&parts[0]).unwrap();
    assert!(stage::send_batch(store, late.clone()).await.unwrap(), "a repeated request is not a failure");
    let all = "SELECT VALUE c.id FROM c WHERE c.type != 'fence'";
    assert_eq!(rows(&provider, "a", all).await, [Value::from(staged.id.as_str()), Value::from("p:s:0")]);

    let mut commit = Batch::new("a");
    commit.delete_if_match(&staged.id, &staged.etag).unwrap().delete("p:s:0").unwrap();
    store.container.batch(commit).await.unwrap();
    assert!(!stage::send_batch(store, late).await.unwrap());
    assert_eq!(rows(&provider, "a", all).await, Vec::<Value>::new());
}

/// A message exists already, so the parts that were staged for it again are deleted. A late attempt of
/// their staging that arrives during the deletion must not create one of them again.
#[tokio::test]
async fn a_staging_request_that_arrives_while_parts_are_discarded_leaves_nothing() {
    let world = World::open().await;
    let provider = world.provider_with_reconciler(NEVER).await;
    let (store, now) = (&provider.core.store, provider.core.clock.stamp());
    let until = tokio::time::Instant::now() + Duration::from_secs(10);
    let message = plan::message_document(&raised_event("a", "1"), "x:1".to_owned(), now, None).unwrap();
    store.container.create("a", &message).await.unwrap();
    let parts = plan::part_documents("a", "p:s", &"x".repeat(1000), Some(&"s".to_owned()), None);
    let staged = stage::stage_parts(store, "a", "s", &parts, now, until).await.unwrap();
    let mut late = stage::new_batch("a", &staged).unwrap();
    late.create(&parts[0]).unwrap();
    let item = Text::InParts(PartsRef { prefix: "p:s".to_owned(), count: 1, len: 1000 });
    let prepared = PreparedMessage { message: Message { item, ..message }, staged: Some(staged) };
    // If the parts and the record were deleted one by one, late attempts would arrive between the
    // deletes.
    world.inject_fault(r#"{"operation":"delete_item","count":1,"delayMs":1}"#).await;
    world.inject_fault(r#"{"operation":"delete_item","count":1,"delayMs":200}"#).await;
    let late_attempts = async {
        while stage::send_batch(store, late.clone()).await.unwrap() {
            tokio::task::yield_now().await;
        }
    };
    let (created, ()) = tokio::join!(payload::create_message(store, &prepared), late_attempts);
    created.unwrap();
    let all = "SELECT VALUE c.id FROM c WHERE c.type != 'fence'";
    assert_eq!(rows(&provider, "a", all).await, [Value::from("x:1")]);
}

#[tokio::test]
async fn a_history_of_a_hundred_thousand_events_is_read_whole() {
    const TURNS: u64 = 4;
    const EVENTS: u64 = 25_000;
    let world = World::open().await;
    let provider = world.provider().await;
    provider.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
    for turn in 0..TURNS {
        let (token, _) = fetch_instance(&provider).await;
        let events = (turn * EVENTS + 1..=(turn + 1) * EVENTS).map(|id| event("a", id, String::new()));
        let next = raised_event("a", "on");
        ack(&provider, &token, events.collect(), vec![], vec![next]).await.unwrap();
    }
    assert!(state_bytes(&provider, "a").await < 20_000);
    // A new provider has no part of the history in its cache.
    let other = world.provider().await;
    let ids: Vec<u64> = other.read("a").await.unwrap().iter().map(|event| event.event_id).collect();
    assert!(ids == (1..=TURNS * EVENTS).collect::<Vec<_>>());
}

/// The process ends at its first request, then at its second, and so on. In each case staged
/// documents without a commit are removed, and staged documents with a commit are kept.
#[tokio::test]
async fn a_large_turn_interrupted_at_any_request_leaves_no_unused_documents() {
    for last in [LastRequest::Unsent, LastRequest::Applied] {
        for count in 1.. {
            let world = World::open().await;
            let process = InterruptedProcess::new(&world, last);
            let interrupted = process.provider(&world).await;
            interrupted.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
            let short_lock = Duration::from_millis(700);
            let (_, token, _) =
                interrupted.fetch_orchestration_item(short_lock, NO_WAIT, None).await.unwrap().unwrap();
            let history: Vec<Event> = (1..=2).map(|id| event("a", id, "x".repeat(1_000_000))).collect();
            let activities = vec![activity_item("a", 3, "w".repeat(400_000))];
            let acked = process
                .run_until(count, ack(&interrupted, &token, history.clone(), activities.clone(), vec![]))
                .await;
            let is_done = acked.is_some_and(|acked| acked.is_ok());
            drop(interrupted);

            let other = world.provider().await;
            if other.read("a").await.unwrap().is_empty() {
                assert!(!is_done);
                let waited =
                    other.fetch_orchestration_item(LOCK, Duration::from_secs(20), None).await.unwrap();
                let (_, token, _) = waited.expect("the lock expires");
                ack(&other, &token, history.clone(), activities, vec![]).await.unwrap();
            }
            // Collects the garbage now instead of after a day.
            for row in rows(&other, "a", "SELECT * FROM c WHERE c.type = 'litter'").await {
                let record: Versioned<Garbage> = decode_row(row).unwrap();
                garbage::collect_due(&other.core.store, record).await.unwrap();
            }
            assert!(other.read("a").await.unwrap() == history, "{last:?} {count}");
            let wait = Duration::from_secs(5);
            let fetched = other.fetch_work_item(LOCK, wait, None, &TagFilter::default()).await.unwrap();
            let (item, activity_token, _) = fetched.expect("the activity");
            assert!(item == activity_item("a", 3, "w".repeat(400_000)), "{last:?} {count}");
            other.ack_work_item(&activity_token, None).await.unwrap();
            other.core.background.wait_until_idle().await;
            let remaining =
                rows(&other, "a", "SELECT VALUE c.id FROM c WHERE c.id != 'i' AND c.type != 'fence'").await;
            // The id of a staged chunk is `h:1:{n}:{staging id}`, here with one digit for `n`.
            let staging_ids: BTreeSet<&str> =
                remaining.iter().filter_map(|id| id.as_str()?.strip_prefix("h:1:")?.get(2..)).collect();
            let chunk_count =
                remaining.iter().filter(|id| id.as_str().is_some_and(|id| id.starts_with("h:1:"))).count();
            assert_eq!(chunk_count, remaining.len(), "{last:?} {count}: {remaining:?}");
            assert_eq!(staging_ids.len(), 1, "{last:?} {count}: {remaining:?}");
            if is_done {
                assert!(count > 4, "a staged turn takes more requests");
                break;
            }
        }
    }
}

/// Another process reads the garbage record before the commit deletes it, and uses the record
/// after the commit.
#[tokio::test]
async fn committed_documents_are_never_collected_as_garbage() {
    let world = World::open().await;
    let provider = world.provider().await;
    let token = fetch_first_turn(&provider, "a").await;
    // The first batch creates the record, the next one the staged documents.
    world.inject_fault(r#"{"operation":"batch","count":1,"delayMs":1}"#).await;
    world.inject_fault(r#"{"operation":"batch","count":1,"delayMs":1500}"#).await;
    let history: Vec<Event> = (1..=2).map(|id| event("a", id, "x".repeat(1_000_000))).collect();
    let committing = ack(&provider, &token, history.clone(), vec![], vec![]);
    let other = world.provider().await;
    let reading = async {
        loop {
            if let Some(row) = rows(&other, "a", "SELECT * FROM c WHERE c.type = 'litter'").await.pop() {
                return decode_row::<Garbage>(row).unwrap();
            }
            tokio::task::yield_now().await;
        }
    };
    let (committed, record) = tokio::join!(committing, reading);
    committed.unwrap();
    garbage::collect_due(&other.core.store, record).await.unwrap();
    assert!(other.read("a").await.unwrap() == history);
}

/// Found by seed 8735 of `cargo xtask sim faults`. The first attempt to create the garbage record of a
/// staging took six seconds to arrive. Meanwhile a second attempt was applied, and the commit deleted
/// the record. Then the first attempt created the record again. A day later the reconciler would have
/// deleted the history of the workflow.
#[tokio::test]
async fn a_garbage_record_that_arrives_after_its_commit_deletes_nothing() {
    let world = World::open().await;
    let provider = world.provider().await;
    let token = fetch_first_turn(&provider, "a").await;
    let history: Vec<Event> = (1..=2).map(|id| event("a", id, "x".repeat(1_000_000))).collect();
    let activities = vec![activity_item("a", 3, "w".repeat(400_000))];
    ack(&provider, &token, history.clone(), activities, vec![]).await.unwrap();
    provider.core.background.wait_until_idle().await;

    let staging_ids =
        rows(&provider, "a", "SELECT DISTINCT VALUE c.mark FROM c WHERE IS_DEFINED(c.mark)").await;
    let [Value::String(staging_id)] = staging_ids.as_slice() else {
        panic!("one staging, not {staging_ids:?}")
    };
    let late = Garbage::blank("a", staging_id, provider.core.clock.stamp());
    let late = Garbage { staging_id: Some(staging_id.clone()), ..late };
    let store = &provider.core.store;
    let etag = store.create("a", &late.id, &late).await.unwrap();
    garbage::collect_due(store, Versioned { value: late, etag }).await.unwrap();
    let other = world.provider().await;
    assert!(other.read("a").await.unwrap() == history);
    let fetched = other.fetch_work_item(LOCK, Duration::from_secs(5), None, &TagFilter::default()).await;
    let (item, ..) = fetched.unwrap().expect("the activity");
    assert!(item == activity_item("a", 3, "w".repeat(400_000)));
    assert_eq!(rows(&other, "a", "SELECT VALUE c.id FROM c WHERE c.type = 'litter'").await.len(), 0);
}

/// Story of a bug: the purge listed the parts of pending activities twice. The second delete of a part
/// found no document, so both were left out, and the parts stayed for ever.
#[tokio::test]
async fn a_deletion_removes_the_parts_of_pending_activities() {
    let world = World::open().await;
    let provider = world.provider().await;
    let token = fetch_first_turn(&provider, "a").await;
    let activities = (3..6).map(|id| activity_item("a", id, "w".repeat(700_000))).collect();
    ack(&provider, &token, vec![event("a", 1, String::new())], activities, vec![]).await.unwrap();
    provider.core.background.wait_until_idle().await;
    assert!(rows(&provider, "a", "SELECT VALUE c.id FROM c WHERE c.type = 'part'").await.len() >= 3);

    let admin = provider.as_management_capability().expect("a management interface");
    admin.delete_instance("a", true).await.unwrap();
    provider.core.background.wait_until_idle().await;
    let left = "SELECT VALUE c.id FROM c WHERE c.id != 'i' AND c.type != 'fence'";
    assert_eq!(rows(&provider, "a", left).await, Vec::<Value>::new());
}

/// The answer to an enqueue is lost, and hundreds of other messages are consumed before the
/// enqueue is repeated. The event is delivered once, even if the instance is deleted and
/// started again before the enqueue is repeated.
#[tokio::test]
async fn an_event_that_is_repeated_late_is_delivered_once() {
    let world = World::open().await;
    let provider = world.provider().await;
    provider.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
    let in_flight = provider.core.sequencer.begin("a");
    let id = crate::documents::dedup::enqueued_message_id(&in_flight.sender, in_flight.number);
    let stamp = provider.core.clock.stamp();
    let mut message = crate::plan::message_document(&raised_event("a", "repeated"), id, stamp, None).unwrap();
    message.low_water_mark = in_flight.low_water_mark;
    write_message(&provider, &message).await;
    let mut next_event_id = 1;
    let mut consume = async || {
        let mut delivered = Vec::new();
        while let Some((item, token, _)) =
            provider.fetch_orchestration_item(LOCK, NO_WAIT, None).await.unwrap()
        {
            delivered.extend(item.messages);
            let history = vec![event("a", next_event_id, String::new())];
            ack(&provider, &token, history, vec![], vec![]).await.unwrap();
            next_event_id += 1;
        }
        delivered
    };
    assert_eq!(consume().await, [start("a", String::new()), raised_event("a", "repeated")]);
    for burst in 0..3 {
        for n in 0..100 {
            provider
                .enqueue_for_orchestrator(raised_event("a", &format!("{burst} {n}")), None)
                .await
                .unwrap();
        }
        assert_eq!(consume().await.len(), 100);
        write_message(&provider, &message).await;
        assert_eq!(consume().await, []);
    }
    assert!(state_bytes(&provider, "a").await < 4_000, "the dedup record stays small");
    provider.delete_instance("a", true).await.unwrap();
    write_message(&provider, &message).await;
    provider.enqueue_for_orchestrator(start("a", String::new()), None).await.unwrap();
    let (_, messages) = fetch_instance(&provider).await;
    assert_eq!(messages, [start("a", String::new())], "the message to the deleted instance is not delivered");
    drop(in_flight);
}

#[tokio::test]
async fn appended_events_keep_their_ids_and_are_stored_once() {
    let world = World::open().await;
    let provider = world.provider().await;
    let events: Vec<Event> = [3, 7, 100].map(|id| event("a", id, "x".repeat(700_000))).into();
    provider.append_with_execution("a", 1, events.clone()).await.unwrap();
    assert!(provider.read("a").await.unwrap() == events, "events are stored as they were given");
    for ids in [vec![100], vec![7], vec![101, 101], vec![0], vec![103, 102]] {
        let refused_events = ids.iter().map(|id| event("a", *id, String::new())).collect();
        let refused = provider.append_with_execution("a", 1, refused_events).await.unwrap_err();
        assert!(!refused.retryable, "{ids:?}: {refused}");
    }
    assert!(provider.read("a").await.unwrap() == events, "nothing was overwritten");
    provider.append_with_execution("a", 2, vec![event("a", 1, String::new())]).await.unwrap();
    provider.append_with_execution("a", 1, vec![event("a", 101, String::new())]).await.unwrap();
    assert_eq!(provider.read_with_execution("a", 1).await.unwrap().len(), 4);
    assert_eq!(provider.read("a").await.unwrap().len(), 1);
}
