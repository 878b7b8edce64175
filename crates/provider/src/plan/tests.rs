//! The batch that a turn becomes: its limits, bundles, cancellations, past executions and dedup.

use duroxide::providers::{ExecutionMetadata, ScheduledActivityIdentifier, WorkItem};
use duroxide::{Event, EventKind};
use perihelion_client::Etag;

use super::*;
use crate::documents::Lock;

const INSTANCE: &str = "order-1";
/// The most operations of a batch: the service's limit.
const OPERATIONS_MAX: usize = 100;

mod random;

fn state() -> State {
    State {
        lock: Some(Lock { nonce: "n".into(), ..Lock::default() }),
        ..State::blank(INSTANCE, "inc".into())
    }
}

fn ack(execution: u64) -> TurnAck {
    TurnAck {
        execution,
        history_delta: Vec::new(),
        worker_items: Vec::new(),
        orchestrator_items: Vec::new(),
        metadata: ExecutionMetadata::default(),
        cancelled: Vec::new(),
        clock_offset_ms: 0,
        retention: Default::default(),
    }
}

fn event(id: u64) -> Event {
    event_with_name(id, "approval")
}

fn event_with_name(id: u64, name: &str) -> Event {
    Event::with_event_id(id, INSTANCE, 1, None, EventKind::ExternalSubscribed { name: name.into() })
}

fn activity_item(id: u64) -> WorkItem {
    WorkItem::ActivityExecute {
        instance: INSTANCE.into(),
        execution_id: 1,
        id,
        name: "charge".into(),
        input: "{}".into(),
        session_id: None,
        tag: None,
    }
}

fn cancel(id: u64) -> ScheduledActivityIdentifier {
    ScheduledActivityIdentifier { instance: INSTANCE.into(), execution_id: 1, activity_id: id }
}

fn plan_with(state: &State, bundles: &[Versioned<Bundle>], ack: &TurnAck) -> Result<TurnPlan, Failure> {
    let now = Stamp::at_ms(1_800_000_000_000);
    turn(
        &Basis {
            state,
            past: None,
            bundles,
            dedup_entries: &[],
            now,
            nonce: "commit",
            charge: Charge::default(),
        },
        ack,
    )
}

fn plan(state: &State, ack: &TurnAck) -> TurnPlan {
    plan_with(state, &[], ack).expect("the turn can be planned")
}

/// Activities, cancellations and messages to the instance itself are packed into bundles if they are more
/// than 30 together. More than 8 KiB of events are moved to chunks. The batch deletes the 64 messages that
/// were taken with the lock.
#[test]
fn the_largest_turn_fits_one_batch() {
    let mut state = state();
    let lock = state.lock.as_mut().expect("the state is locked");
    lock.attempts = (0..64).map(|n| (format!("m:{n}"), 1)).collect();
    state.execution.number = 1;
    state.event_data = "x".repeat(9000);
    let cancel_child =
        |n: u64| WorkItem::CancelInstance { instance: format!("child-{n}"), reason: String::new() };
    for count in [0, 10, 29, 30, 31, 1000] {
        let mut ack = ack(2);
        ack.history_delta = (1..=count).map(event).collect();
        ack.worker_items = (0..count).map(activity_item).collect();
        ack.orchestrator_items = (0..200).map(cancel_child).collect();
        ack.cancelled = (5000..5000 + count).map(cancel).collect();
        let plan = plan(&state, &ack);
        assert!(plan.operation_count() <= OPERATIONS_MAX, "{count}: {}", plan.operation_count());
        let bundled: usize = plan.bundles.iter().map(|bundle| bundle.activities.len()).sum();
        assert_eq!(plan.activities.len() + bundled, count as usize);
        assert_eq!(plan.outboxes.iter().map(|outbox| outbox.messages.len()).sum::<usize>(), 200);
    }
}

#[test]
fn an_activity_scheduled_and_cancelled_in_one_turn_is_not_written() {
    let mut ack = ack(1);
    ack.worker_items = vec![activity_item(2), activity_item(3)];
    ack.cancelled = vec![cancel(2), cancel(9)];
    let plan = plan(&state(), &ack);
    assert_eq!(plan.activities.iter().map(|activity| activity.id.as_str()).collect::<Vec<_>>(), ["a:1:3"]);
    let tombstones: Vec<&str> = plan.cancelled.iter().map(|tombstone| tombstone.id.as_str()).collect();
    assert_eq!(tombstones, ["a:1:9"]);
}

#[test]
fn a_cancellation_applies_to_a_bundle_that_is_not_unpacked() {
    let mut first = ack(1);
    first.worker_items = (1..=40).map(activity_item).collect();
    let planned = plan(&state(), &first);
    let [bundle] = planned.bundles.as_slice() else { panic!("forty activities are packed into one bundle") };
    let stored = Versioned { value: bundle.clone(), etag: Etag::parse("\"1\"").expect("an etag") };
    let mut second = ack(1);
    second.cancelled = vec![cancel(7), cancel(99)];
    let plan = plan_with(&planned.state, &[stored], &second).expect("the turn can be planned");
    let [edited] = plan.edited_bundles.as_slice() else { panic!("one bundle is edited") };
    assert_eq!(edited.value.skip, ["a:1:7"]);
    assert_eq!(plan.cancelled.len(), 1, "only the activity that is not in the bundle gets a tombstone");
    assert_eq!(plan.state.bundles, ["w:1:0"]);
}

#[test]
fn event_ids_that_do_not_increase_are_refused() {
    let mut first = ack(1);
    first.history_delta = vec![event(1), event(2)];
    let state = plan(&state(), &first).state;
    for ids in [vec![2], vec![3, 3], vec![1], vec![4, 3]] {
        let mut second = ack(1);
        second.history_delta = ids.iter().copied().map(event).collect();
        assert!(plan_with(&state, &[], &second).is_err(), "{ids:?}");
    }
}

#[test]
fn a_newer_execution_moves_the_older_one_to_a_document_and_its_whole_history_to_chunks() {
    let mut first = ack(1);
    first.history_delta = vec![event(1), event(2)];
    first.metadata.status = Some("ContinuedAsNew".into());
    let before = plan(&state(), &first).state;
    let mut second = ack(2);
    second.history_delta = vec![event(1)];
    let plan = plan(&before, &second);
    let past = plan.past.expect("the first execution is past").document;
    assert_eq!((past.execution.event_count, past.execution.status.as_str()), (2, "ContinuedAsNew"));
    assert_eq!(past.execution.chunks.ids(1).collect::<Vec<_>>(), ["h:1:0"]);
    assert_eq!(plan.chunks[0].event_data, before.event_data);
    assert_eq!((plan.state.execution.event_count, plan.state.execution.status.as_str()), (1, "Running"));
}

#[test]
fn the_chunks_of_a_long_history_give_all_its_events_when_joined() {
    let mut long = ack(1);
    let data = "ä".repeat(700_000);
    let kind = |n| EventKind::ExternalEvent { name: format!("{n}"), data: data.clone() };
    long.history_delta = (1..=3).map(|id| Event::with_event_id(id, INSTANCE, 1, None, kind(id))).collect();
    let plan = plan(&state(), &long);
    assert!(plan.chunks.len() > 2 && plan.state.event_data.is_empty());
    let text: String = plan.chunks.iter().map(|chunk| chunk.event_data.as_str()).collect();
    let events: Vec<Event> = text.lines().map(|line| serde_json::from_str(line).expect("an event")).collect();
    assert_eq!(events, long.history_delta);
}

#[test]
fn a_turn_that_reports_no_name_does_not_make_the_instance_visible() {
    let plan_of = |metadata| plan(&state(), &TurnAck { metadata, ..ack(1) }).state;
    assert!(!plan_of(ExecutionMetadata::default()).is_created);
    let named = ExecutionMetadata {
        orchestration_name: Some("Order".into()),
        orchestration_version: Some("1.0.0".into()),
        ..ExecutionMetadata::default()
    };
    assert!(plan_of(named).is_created);
}

#[test]
fn messages_that_must_not_be_delivered_twice_are_recorded() {
    let dedup_entries = [DedupEntry { id: "m:sender:7".into(), low_water_mark: 0 }];
    let now = Stamp::at_ms(1);
    let basis = Basis {
        state: &state(),
        past: None,
        bundles: &[],
        dedup_entries: &dedup_entries,
        now,
        nonce: "commit",
        charge: Charge::default(),
    };
    let plan = turn(&basis, &ack(1)).expect("the turn can be planned");
    assert!(
        plan.state.dedup_record.contains("m:sender:7") && !plan.state.dedup_record.contains("m:sender:6")
    );
}

#[test]
fn the_state_keeps_the_nonces_of_the_last_eight_commits() {
    let mut state = state();
    for n in 0..20 {
        let (now, nonce) = (Stamp::at_ms(1_000 + n), format!("{n}"));
        let basis = Basis {
            state: &state,
            past: None,
            bundles: &[],
            dedup_entries: &[],
            now,
            nonce: &nonce,
            charge: Charge::default(),
        };
        state = turn(&basis, &ack(1)).expect("the turn can be planned").state;
    }
    assert_eq!(
        (state.recent_nonces.len(), state.recent_nonces[0].as_str(), state.commit_nonce.as_str()),
        (RECENT_NONCES_MAX, "12", "19")
    );
}

#[test]
fn the_charge_of_a_turn_is_stored_by_the_next_commit_and_moves_with_its_events() {
    let mut state = state();
    let (mut turns_in_chunks, mut total) = (Vec::new(), 0);
    for n in 1..=40_u64 {
        let charge = Charge { centi_ru: 100 * n, requests: n };
        total += charge.centi_ru;
        let (now, nonce) = (Stamp::at_ms(1_000 + n), format!("{n}"));
        let basis =
            Basis { state: &state, past: None, bundles: &[], dedup_entries: &[], now, nonce: &nonce, charge };
        let events = vec![event_with_name(n, &"x".repeat(700))];
        let plan =
            turn(&basis, &TurnAck { history_delta: events, ..ack(1) }).expect("the turn can be planned");
        turns_in_chunks.extend(plan.chunks.into_iter().flat_map(|chunk| chunk.turns));
        state = plan.state;
    }
    assert_eq!(state.cost.total, Charge { centi_ru: total, requests: 40 * 41 / 2 });
    assert!(!turns_in_chunks.is_empty() && state.cost.turns.len() < 20, "{:?}", state.cost);
    let all: Vec<u64> =
        turns_in_chunks.iter().chain(&state.cost.turns).map(|turn| turn.commit_number).collect();
    assert_eq!(all, (0..40).collect::<Vec<u64>>(), "each turn is stored once, with its own number");
    let second = turns_in_chunks[1];
    assert_eq!((second.commit_number, second.committed_at_ms, second.charge.requests), (1, 1_001, 2));
}

/// A turn with more than 8 KiB of events leaves no events in the state. When the instance then
/// continues as new, no chunk is written that could take the charge of the turn. So the charge has
/// to stay in the state.
#[test]
fn the_charge_of_a_turn_survives_an_execution_without_events_in_the_state() {
    let charge = Charge { centi_ru: 500, requests: 2 };
    let mut state = state();
    let mut turns = Vec::new();
    for (execution, name_bytes) in [(1, 9_000), (2, 10), (2, 10)] {
        let now = Stamp::at_ms(1_000 + state.commit_number);
        let basis =
            Basis { state: &state, past: None, bundles: &[], dedup_entries: &[], now, nonce: "n", charge };
        let id = state.execution.last_event_id + 1;
        let id = if execution > state.execution.number { 1 } else { id };
        let events = vec![event_with_name(id, &"x".repeat(name_bytes))];
        let ack = TurnAck { history_delta: events, ..ack(execution) };
        let plan = turn(&basis, &ack).expect("the turn can be planned");
        turns.extend(plan.chunks.into_iter().flat_map(|chunk| chunk.turns));
        state = plan.state;
    }
    turns.extend(state.cost.turns);
    assert_eq!(turns.iter().map(|turn| turn.commit_number).collect::<Vec<u64>>(), [0, 1, 2]);
}
