//! Random turns of one instance, each planned from the state after the turn before. The test
//! checks that every commit fits a batch, and that nothing of a turn is lost, duplicated or
//! stored under an id that is in use.

use std::collections::{BTreeMap, BTreeSet};

use duroxide::providers::{ScheduledActivityIdentifier, WorkItem};
use duroxide::{Event, EventKind};
use fastrand::Rng;
use perihelion_client::{Batch, Etag};

use super::super::*;
use super::{INSTANCE, activity_item, cancel};
use crate::documents::Lock;
use crate::ops::orchestration::commit::{CommitPreconditions, as_batch};
use crate::ops::orchestration::stage::Staged;

/// The most bytes of a document: the service's limit.
const DOCUMENT_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The number of turns of one instance.
const TURNS: u64 = 5;

#[test]
fn any_turn_is_one_commit_that_loses_nothing() {
    for seed in 0..8 {
        let mut random = Rng::with_seed(seed);
        let mut instance = Instance::new();
        for turn in 1..=TURNS {
            instance.run_turn(&mut random, &format!("seed {seed}, turn {turn}"));
        }
    }
}

/// An instance between two turns.
struct Instance {
    state: State,
    /// The bundles of the last turn, none of them unpacked.
    bundles: Vec<Versioned<Bundle>>,
    /// The ids of all documents of all turns.
    ids: BTreeSet<String>,
    event_count: u64,
    /// The expected history: all events, one per line.
    expected_history: String,
    /// The text of all chunks.
    chunk_text: String,
    now: Stamp,
}

impl Instance {
    fn new() -> Self {
        Instance {
            state: State::blank(INSTANCE, "inc".into()),
            bundles: Vec::new(),
            ids: BTreeSet::new(),
            event_count: 0,
            expected_history: String::new(),
            chunk_text: String::new(),
            now: Stamp::at_ms(1_800_000_000_000),
        }
    }

    fn run_turn(&mut self, random: &mut Rng, what: &str) {
        let consumed: BTreeMap<String, u32> =
            (0..random.usize(0..=64)).map(|n| (format!("m:p:{n:x}"), 1)).collect();
        let dedup_entries: Vec<DedupEntry> = consumed
            .keys()
            .filter(|_| random.bool())
            .map(|id| DedupEntry { id: id.clone(), low_water_mark: 0 })
            .collect();
        self.state.lock = Some(Lock { nonce: "n".into(), attempts: consumed.clone(), ..Lock::default() });
        let ack = self.ack(random);
        self.now.0 += 1_000_000;
        let basis = Basis {
            state: &self.state,
            past: None,
            bundles: &self.bundles,
            dedup_entries: &dedup_entries,
            now: self.now,
            nonce: "commit",
            charge: Charge { centi_ru: 2950, requests: 3 },
        };
        let plan = turn(&basis, &ack).unwrap_or_else(|failure| panic!("{what}: {failure:?}"));
        check_fits(&plan, what);
        self.check_history(&plan, &ack, what);
        check_scheduled(&plan, &ack, &self.bundles, what);
        self.check_ids(&plan, what);
        assert_eq!(plan.consumed, consumed.into_keys().collect::<Vec<_>>(), "{what}");
        assert!(dedup_entries.iter().all(|entry| plan.state.dedup_record.contains(&entry.id)), "{what}");
        check_values(&plan, &ack, what);
        let etag = etag();
        self.bundles =
            plan.bundles.into_iter().map(|value| Versioned { value, etag: etag.clone() }).collect();
        self.state = plan.state;
    }

    fn ack(&mut self, random: &mut Rng) -> TurnAck {
        let mut ack = super::ack(1);
        let first = self.event_count + 1;
        let count = random_count(random, 300);
        ack.history_delta = (first..first + count).map(|id| random_event(random, id)).collect();
        let first_id = self.state.commit_number * 10_000 + 1;
        let ids = first_id..first_id + random_count(random, 400);
        ack.worker_items = ids.map(|id| random_activity(random, id)).collect();
        ack.orchestrator_items = (0..random_count(random, 300)).map(|n| random_message(random, n)).collect();
        // Cancelled are activities of this turn or an earlier one, and ids that no activity has.
        let any_ids = (0..random_count(random, 200)).map(|_| cancel(random.u64(1..first_id + 400)));
        let any_ids: Vec<ScheduledActivityIdentifier> = any_ids.collect();
        let bundled = self.bundles.iter().flat_map(|bundle| &bundle.value.activities);
        let bundled = bundled.filter(|_| random.u8(..4) == 0).filter_map(cancel_activity);
        ack.cancelled = any_ids.into_iter().chain(bundled).collect();
        if random.bool() {
            ack.metadata.output = Some(random_text(random));
        }
        ack
    }

    /// The history is the old one followed by the turn's events.
    fn check_history(&mut self, plan: &TurnPlan, ack: &TurnAck, what: &str) {
        self.event_count += ack.history_delta.len() as u64;
        self.chunk_text.extend(plan.chunks.iter().map(|chunk| chunk.event_data.as_str()));
        let history = format!("{}{}", self.chunk_text, plan.state.event_data);
        let line = |event: &Event| serde_json::to_string(event).expect("JSON") + "\n";
        self.expected_history.extend(ack.history_delta.iter().map(line));
        assert!(history == self.expected_history, "{what}: history");
        let execution = &plan.state.execution;
        let listed: Vec<String> = execution.chunks.ids(1).collect();
        let written: Vec<&String> = plan.chunks.iter().map(|chunk| &chunk.id).collect();
        assert!(listed.iter().rev().take(written.len()).rev().eq(written), "{what}");
        assert_eq!(execution.event_count, self.event_count, "{what}");
    }

    /// No two documents of this or earlier turns have the same id.
    fn check_ids(&mut self, plan: &TurnPlan, what: &str) {
        let activities =
            plan.bundles.iter().flat_map(|bundle| &bundle.activities).map(|activity| &activity.id);
        let messages = plan.bundles.iter().flat_map(|bundle| &bundle.messages).map(|message| &message.id);
        let sent = plan.outboxes.iter().flat_map(|outbox| &outbox.messages).map(|message| &message.id);
        let documents = (plan.activities.iter().map(|activity| &activity.id))
            .chain(plan.messages.iter().map(|message| &message.id))
            .chain(plan.chunks.iter().map(|chunk| &chunk.id))
            .chain(plan.parts.iter().map(|part| &part.id))
            .chain(plan.bundles.iter().map(|bundle| &bundle.id))
            .chain(plan.outboxes.iter().map(|outbox| &outbox.id))
            .chain(plan.garbage.iter().map(|garbage| &garbage.id));
        for id in documents.chain(activities).chain(messages).chain(sent) {
            assert!(self.ids.insert(id.clone()), "{what}: {id} occurs twice");
        }
    }
}

fn etag() -> Etag {
    Etag::parse("\"1\"").expect("an etag")
}

/// A count: usually small, sometimes large.
fn random_count(random: &mut Rng, max: u64) -> u64 {
    match random.u8(..4) {
        0 => 0,
        1 | 2 => random.u64(..6),
        _ => random.u64(..max),
    }
}

/// A text: usually short, sometimes longer than a document may be.
fn random_text(random: &mut Rng) -> String {
    let bytes = match random.u16(..2000) {
        0 => random.usize(..3_000_000),
        1..=20 => random.usize(..200_000),
        21..=200 => random.usize(..5_000),
        _ => random.usize(..50),
    };
    let pattern = *random.choice(&["x", "\"", "ä\\", "\u{1}"]).expect("the list is not empty");
    pattern.repeat(bytes / pattern.len())
}

fn random_event(random: &mut Rng, id: u64) -> Event {
    let key = format!("key-{}", random.u8(..));
    let kind = match random.u8(..8) {
        0 => EventKind::KeyValueSet { key, value: random_text(random), last_updated_at_ms: id },
        1 => EventKind::KeyValueCleared { key },
        2 => EventKind::CustomStatusUpdated { status: Some(random_text(random)) },
        _ => EventKind::ExternalEvent { name: "paid".into(), data: random_text(random) },
    };
    Event::with_event_id(id, INSTANCE, 1, None, kind)
}

fn random_activity(random: &mut Rng, id: u64) -> WorkItem {
    match activity_item(id) {
        WorkItem::ActivityExecute { instance, execution_id, id, name, session_id, tag, .. } => {
            let input = random_text(random);
            WorkItem::ActivityExecute { instance, execution_id, id, name, input, session_id, tag }
        }
        other => other,
    }
}

fn random_message(random: &mut Rng, n: u64) -> WorkItem {
    let instance = match random.bool() {
        true => INSTANCE.to_owned(),
        false => format!("child-{}", random.u8(..9)),
    };
    WorkItem::ExternalRaised { instance, name: format!("{n}"), data: random_text(random) }
}

fn cancel_activity(activity: &Activity) -> Option<ScheduledActivityIdentifier> {
    let id = activity.id.rsplit(':').next()?.parse().ok()?;
    Some(cancel(id))
}

/// Every document is at least 100,000 bytes smaller than the limit, the state has less than half of the
/// limit, and the commit fits one batch.
fn check_fits(plan: &TurnPlan, what: &str) {
    let staged =
        plan.staging_id.as_ref().map(|staging_id| Staged { id: format!("g:{staging_id}"), etag: etag() });
    let etag = etag();
    let preconditions = CommitPreconditions { etag: Some(&etag), staged: staged.as_ref() };
    let (batch, _) =
        as_batch(plan, &plan.activities, preconditions).unwrap_or_else(|error| panic!("{what}: {error:?}"));
    assert_eq!(batch.len(), plan.operation_count(), "{what}");
    assert!(batch.len() <= Batch::OPERATIONS_MAX && batch.bytes() <= COMMIT_BYTES_MAX, "{what}");
    let size = |json: serde_json::Result<Vec<u8>>| json.expect("JSON").len();
    let documents = (plan.chunks.iter().map(serde_json::to_vec))
        .chain(plan.parts.iter().map(serde_json::to_vec))
        .chain(plan.bundles.iter().map(serde_json::to_vec))
        .chain(plan.outboxes.iter().map(serde_json::to_vec));
    for bytes in documents.map(size) {
        assert!(bytes < DOCUMENT_BYTES_MAX - 100_000, "{what}: a document has {bytes} bytes");
    }
    let state = size(serde_json::to_vec(&plan.state));
    assert!(state < DOCUMENT_BYTES_MAX / 2, "{what}: the state has {state} bytes");
}

/// The whole text, inline or from its parts.
fn whole_text(plan: &TurnPlan, text: &Text) -> String {
    match text {
        Text::Inline(text) => text.clone(),
        Text::InParts(parts) => {
            let part =
                |id: String| plan.parts.iter().find(|part| part.id == id).expect("the part is planned");
            let text: String = parts.ids().map(|id| part(id).data.clone()).collect();
            assert_eq!(text.len() as u64, parts.len);
            text
        }
    }
}

/// Each activity, message and cancellation of the turn is stored once and unchanged: in a
/// document of the commit, in a bundle or in an outbox.
fn check_scheduled(plan: &TurnPlan, ack: &TurnAck, earlier_bundles: &[Versioned<Bundle>], what: &str) {
    let mut expected: Vec<String> = Vec::new();
    let mut cancelled: BTreeSet<String> =
        ack.cancelled.iter().map(|target| activity_id(target.execution_id, target.activity_id)).collect();
    for item in &ack.worker_items {
        let activity = activity_document(item, Stamp(1)).expect("an activity");
        if !cancelled.remove(&activity.id) {
            expected.push(serde_json::to_string(item).expect("JSON"));
        }
    }
    let bundled = plan.bundles.iter().flat_map(|bundle| &bundle.activities);
    let found: Vec<String> =
        plan.activities.iter().chain(bundled).map(|activity| whole_text(plan, &activity.item)).collect();
    assert!(found == expected, "{what}: activities");

    let items_to = |is_own: bool| {
        let items =
            ack.orchestrator_items.iter().filter(move |item| (target_instance(item) == INSTANCE) == is_own);
        items.map(|item| serde_json::to_string(item).expect("JSON")).collect::<Vec<_>>()
    };
    let bundled = plan.bundles.iter().flat_map(|bundle| &bundle.messages);
    let own: Vec<String> =
        plan.messages.iter().chain(bundled).map(|message| whole_text(plan, &message.item)).collect();
    assert!(own == items_to(true), "{what}: messages to itself");
    let sent = plan.outboxes.iter().flat_map(|outbox| &outbox.messages);
    assert!(
        sent.map(|message| whole_text(plan, &message.item)).collect::<Vec<_>>() == items_to(false),
        "{what}: sent"
    );

    let skipped_before: BTreeSet<&String> =
        earlier_bundles.iter().flat_map(|bundle| &bundle.value.skip).collect();
    let skipped = plan.edited_bundles.iter().flat_map(|bundle| &bundle.value.skip);
    let found = (plan.cancelled.iter().map(|tombstone| &tombstone.id))
        .chain(plan.bundles.iter().flat_map(|bundle| &bundle.cancelled))
        .chain(skipped.filter(|id| !skipped_before.contains(id)));
    let found: Vec<String> = found.cloned().collect();
    assert_eq!(found.len(), cancelled.len(), "{what}: cancellations");
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), cancelled, "{what}: cancellations");
}

/// The state has the values that the turn set, inline or in parts.
fn check_values(plan: &TurnPlan, ack: &TurnAck, what: &str) {
    let mut last: BTreeMap<&String, &String> = BTreeMap::new();
    for event in &ack.history_delta {
        match &event.kind {
            EventKind::KeyValueSet { key, value, .. } => last.insert(key, value),
            EventKind::KeyValueCleared { key } => last.remove(key),
            _ => None,
        };
    }
    for (key, value) in last {
        let found = plan.state.kv_delta[key].as_ref().expect("the turn sets the value");
        assert!(whole_text(plan, &found.value) == *value, "{what}: {key}");
    }
    if let Some(output) = &ack.metadata.output {
        let found = plan.state.execution.output.as_ref().expect("the turn sets the value");
        assert!(whole_text(plan, found) == *output, "{what}: output");
    }
}
