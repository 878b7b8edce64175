//! Tests of the conversion of single instances of the published crate, and of the names of
//! containers. Tests of whole containers are in `tests/it`.

use std::time::Duration;

use duroxide::{Event, EventKind};
use serde_json::{Value, json};

use super::ContainerName;
use super::convert::{ConvertedInstance, convert};
use super::published::Partition;
use crate::documents::stamp::Stamp;

/// Milliseconds since 1970.
const NOW_MS: u64 = 1_700_000_100_000;

fn event_document(execution: u64, event: u64, kind: EventKind) -> Value {
    let event = Event::with_event_id(event, "a", execution, None, kind);
    let data = serde_json::to_string(&event).expect("JSON");
    json!({ "id": format!("a:history:{execution}:{}", event.event_id), "instanceId": "a", "type": "history",
        "executionId": execution, "eventId": event.event_id, "eventData": data })
}

fn completed_event(execution: u64, event: u64) -> Value {
    event_document(execution, event, EventKind::OrchestrationCompleted { output: "out".into() })
}

fn waiting_event(execution: u64, event: u64) -> Value {
    event_document(execution, event, EventKind::ExternalSubscribed { name: "approval".into() })
}

fn instance_document(status: &str) -> Value {
    json!({ "id": "a:instance", "instanceId": "a", "type": "instance", "orchestrationName": "Order",
        "orchestrationVersion": "1.0.0", "status": status, "output": "from before",
        "pinnedDuroxideVersionPacked": 2_003_029, "lockToken": "t", "lockedUntil": NOW_MS + 9 })
}

fn queue_document(id: &str, document_type: &str, item: &Value, enqueued_at: u64, visible_at: u64) -> Value {
    json!({ "id": id, "instanceId": "a", "type": document_type, "workItem": item.to_string(),
        "dispatchSlot": 7, "enqueuedAt": enqueued_at, "visibleAt": visible_at, "attemptCount": 3,
        "lockToken": null })
}

fn external_event() -> Value {
    json!({ "ExternalRaised": { "instance": "a", "name": "approval", "data": "yes" } })
}

fn activity_item(event: u64) -> Value {
    json!({ "ActivityExecute": { "instance": "a", "execution_id": 1, "id": event, "name": "Step",
        "input": "" } })
}

fn converted(documents: Vec<Value>) -> ConvertedInstance {
    convert(Partition::decode("a", documents).expect("readable"), NOW_MS).expect("convertible")
}

#[test]
fn the_execution_after_continue_as_new_is_running() {
    let continued = event_document(1, 1, EventKind::OrchestrationContinuedAsNew { input: "2".into() });
    let converted = converted(vec![instance_document("ContinuedAsNew"), waiting_event(2, 1), continued]);
    let acks: Vec<_> =
        converted.turns.iter().map(|turn| (turn.ack.execution, turn.ack.metadata.clone())).collect();
    assert_eq!((acks[0].0, acks[0].1.status.as_deref()), (1, Some("ContinuedAsNew")));
    assert_eq!((acks[1].0, &acks[1].1.status, &acks[1].1.output), (2, &None, &None));
    assert_eq!(converted.turns[1].completed_at, None);
}

#[test]
fn the_end_of_an_execution_is_read_from_its_history_or_else_from_the_instance_document() {
    let by_history = converted(vec![instance_document("Running"), completed_event(1, 1)]);
    let metadata = &by_history.turns[0].ack.metadata;
    assert_eq!((metadata.status.as_deref(), metadata.output.as_deref()), (Some("Completed"), Some("out")));
    let by_document = converted(vec![instance_document("Failed"), waiting_event(1, 1)]);
    let metadata = &by_document.turns[0].ack.metadata;
    assert_eq!(
        (metadata.status.as_deref(), metadata.output.as_deref()),
        (Some("Failed"), Some("from before"))
    );
    let pin = metadata.pinned_duroxide_version.as_ref().expect("pinned");
    assert_eq!((pin.major, pin.minor, pin.patch), (2, 3, 29));
}

#[test]
fn events_keep_their_order_and_activities_occur_once() {
    let documents = vec![
        waiting_event(1, 10),
        queue_document("w2", "worker_queue", &activity_item(4), 6, 6),
        waiting_event(1, 9),
        queue_document("w1", "worker_queue", &activity_item(4), 5, 5),
        queue_document("w3", "worker_queue", &activity_item(2), 4, 4),
    ];
    let converted = converted(documents);
    let ids: Vec<u64> = converted.turns[0].ack.history_delta.iter().map(|event| event.event_id).collect();
    assert_eq!(ids, [9, 10]);
    assert_eq!(converted.turns[0].ack.worker_items.len(), 2);
    assert_eq!(converted.counts().activities, 2);
}

#[test]
fn messages_keep_their_order_attempts_and_remaining_delay() {
    let documents = vec![
        queue_document("late", "orch_queue", &external_event(), NOW_MS - 10, NOW_MS + 5_000),
        queue_document("second", "orch_queue", &external_event(), NOW_MS - 20, NOW_MS - 20),
        queue_document("first", "orch_queue", &external_event(), NOW_MS - 30, NOW_MS - 1),
    ];
    let converted = converted(documents);
    let order: Vec<&str> = converted.messages.iter().map(|message| message.id.as_str()).collect();
    assert_eq!(order, ["m:first:0", "m:second:0", "m:late:0"]);
    assert!(converted.messages.windows(2).all(|pair| pair[0].enqueued_at < pair[1].enqueued_at));
    let now = Stamp::at_ms(NOW_MS);
    let is_visible: Vec<bool> = converted.messages.iter().map(|message| message.visible_at <= now).collect();
    assert_eq!(is_visible, [true, true, false]);
    assert_eq!(converted.messages[2].visible_at, now.plus(Duration::from_millis(5_000)));
    assert!(converted.messages.iter().all(|message| message.attempt_count == 3 && message.needs_dedup));
}

#[test]
fn an_instance_that_never_started_has_no_turn() {
    let unstarted = json!({ "id": "a:instance", "instanceId": "a", "type": "instance", "orchestrationName": "",
        "orchestrationVersion": "", "status": "Running", "customStatus": null, "output": null });
    let documents = vec![
        unstarted,
        queue_document("m", "orch_queue", &external_event(), 1, 1),
        queue_document("w", "worker_queue", &activity_item(4), 5, 5),
    ];
    let converted = converted(documents);
    assert!(converted.turns.is_empty() && converted.instance_document.is_none());
    assert_eq!((converted.messages.len(), converted.activities_without_turn.len()), (1, 1));
}

#[test]
fn the_error_names_the_unreadable_document() {
    let unreadable = |mut document: Value, member: &str, value: Value| {
        document[member] = value;
        Partition::decode("a", vec![document]).expect_err("unreadable")
    };
    let why = unreadable(waiting_event(1, 2), "eventData", "{ rubbish".into());
    assert!(why.contains("a:history:1:2"), "{why}");
    let why = unreadable(queue_document("q", "orch_queue", &external_event(), 1, 1), "workItem", "7".into());
    assert!(why.contains("\"q\""), "{why}");
    let why = unreadable(instance_document("Running"), "type", "bundle".into());
    assert!(why.contains("bundle"), "{why}");
}

#[test]
fn a_container_name_has_a_database_and_a_container() {
    let name: ContainerName = "duroxide/workflows".parse().expect("a name");
    assert_eq!((name.database.as_str(), name.container.as_str()), ("duroxide", "workflows"));
    assert_eq!(name.to_string(), "duroxide/workflows");
    for wrong in ["", "/", "a", "a/", "/b", "a/b/c"] {
        assert!(wrong.parse::<ContainerName>().is_err(), "{wrong}");
    }
}
