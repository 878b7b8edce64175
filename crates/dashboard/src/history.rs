//! The history of an execution as spans of time: each activity, timer, wait and sub-orchestration
//! from its start to its end. A pure function makes the spans from the events. Other functions give the
//! texts of one event.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

use duroxide::{Event, EventKind};

use crate::text::time;

/// The kind of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Activity,
    Timer,
    Wait,
    Child,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Activity => "activity",
            Kind::Timer => "timer",
            Kind::Wait => "wait",
            Kind::Child => "sub-orchestration",
        }
    }
}

/// How a span ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Open,
    Done,
    Failed,
    Cancelled,
}

/// One thing that an execution did or waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    /// The event that began it.
    pub(crate) event_id: u64,
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) begin_ms: u64,
    /// `None` while it is open.
    pub(crate) end_ms: Option<u64>,
    pub(crate) ending: Ending,
    /// 1, or more for an activity that was scheduled again with the same input after it failed.
    pub(crate) attempt: u32,
    /// The child instance of a sub-orchestration.
    pub(crate) child: Option<String>,
    /// The hash of the input, to recognise retries.
    input: u64,
}

/// The spans of an execution, in the order in which they began.
pub(crate) fn spans(events: &[Event]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut index = Index::default();
    let mut failures: HashMap<(String, u64), u32> = HashMap::new();
    let hasher = RandomState::new();
    for event in events {
        if let Some(mut span) = begun(event, &hasher) {
            if span.kind == Kind::Activity {
                let failed = failures.get(&(span.name.clone(), span.input));
                span.attempt = 1 + failed.copied().unwrap_or(0);
            }
            index.add(&span, spans.len());
            spans.push(span);
            continue;
        }
        if let Some((place, ending)) = ended(event, &spans, &mut index) {
            let span = &mut spans[place];
            (span.end_ms, span.ending) = (Some(event.timestamp_ms.max(span.begin_ms)), ending);
            if ending == Ending::Failed && span.kind == Kind::Activity {
                *failures.entry((span.name.clone(), span.input)).or_default() += 1;
            }
        }
    }
    close(&mut spans, events);
    spans
}

/// The places of spans in their list, so that a long history needs no search for each of its events.
#[derive(Debug, Default)]
struct Index {
    by_event: HashMap<u64, usize>,
    /// Waits by their names, the oldest first. Some may have ended.
    waits: HashMap<String, VecDeque<usize>>,
}

impl Index {
    fn add(&mut self, span: &Span, place: usize) {
        self.by_event.insert(span.event_id, place);
        if span.kind == Kind::Wait {
            self.waits.entry(span.name.clone()).or_default().push_back(place);
        }
    }

    /// The first open wait with this name, which ends now.
    fn take_wait(&mut self, name: &str, spans: &[Span]) -> Option<usize> {
        let waits = self.waits.get_mut(name)?;
        std::iter::from_fn(|| waits.pop_front()).find(|place| spans[*place].ending == Ending::Open)
    }
}

/// The span that an event begins.
fn begun(event: &Event, hasher: &RandomState) -> Option<Span> {
    let (kind, name, input, child) = match &event.kind {
        EventKind::ActivityScheduled { name, input, .. } => {
            (Kind::Activity, name.clone(), hasher.hash_one(input), None)
        }
        EventKind::TimerCreated { .. } => (Kind::Timer, "timer".to_owned(), 0, None),
        EventKind::ExternalSubscribed { name } | EventKind::QueueSubscribed { name } => {
            (Kind::Wait, name.clone(), 0, None)
        }
        EventKind::SubOrchestrationScheduled { name, instance, .. } => {
            (Kind::Child, name.clone(), 0, Some(instance.clone()))
        }
        _ => return None,
    };
    Some(Span {
        event_id: event.event_id,
        kind,
        name,
        begin_ms: event.timestamp_ms,
        end_ms: None,
        ending: Ending::Open,
        attempt: 1,
        child,
        input,
    })
}

/// The place of the span that an event ends, and how the span ends. An external event and an event of
/// a queue do not say which wait they end: such an event ends the first open wait with its name.
fn ended(event: &Event, spans: &[Span], index: &mut Index) -> Option<(usize, Ending)> {
    let source = event.source_event_id.and_then(|id| index.by_event.get(&id).copied());
    let (place, ending) = match &event.kind {
        EventKind::ActivityCompleted { .. }
        | EventKind::SubOrchestrationCompleted { .. }
        | EventKind::TimerFired { .. } => (source, Ending::Done),
        EventKind::ActivityFailed { .. } | EventKind::SubOrchestrationFailed { .. } => {
            (source, Ending::Failed)
        }
        EventKind::ActivityCancelRequested { .. }
        | EventKind::SubOrchestrationCancelRequested { .. }
        | EventKind::ExternalSubscribedCancelled { .. }
        | EventKind::QueueSubscriptionCancelled { .. } => (source, Ending::Cancelled),
        EventKind::ExternalEvent { name, .. } | EventKind::QueueEventDelivered { name, .. } => {
            (index.take_wait(name, spans), Ending::Done)
        }
        _ => (None, Ending::Open),
    };
    place.map(|place| (place, ending))
}

/// Ends the open spans of an execution that has ended: the execution does not wait for them any more.
fn close(spans: &mut [Span], events: &[Event]) {
    let is_last = |event: &&Event| {
        matches!(
            event.kind,
            EventKind::OrchestrationCompleted { .. }
                | EventKind::OrchestrationFailed { .. }
                | EventKind::OrchestrationContinuedAsNew { .. }
        )
    };
    let Some(last) = events.iter().rfind(is_last) else { return };
    for span in spans.iter_mut().filter(|span| span.ending == Ending::Open) {
        (span.end_ms, span.ending) = (Some(last.timestamp_ms.max(span.begin_ms)), Ending::Cancelled);
    }
}

/// The type of an event, as it is stored.
pub fn event_type(event: &Event) -> String {
    let json = serde_json::to_value(&event.kind).unwrap_or_default();
    json["type"].as_str().unwrap_or("unknown").to_owned()
}

/// The details of an event for a person: the names in it, and its values. A page of the dashboard and
/// `perihelion workflow history` show them.
pub fn event_texts(kind: &EventKind) -> [Vec<String>; 2] {
    let json = serde_json::to_value(kind).unwrap_or_default();
    let member = |name: &&str| match &json[*name] {
        serde_json::Value::Null => None,
        serde_json::Value::String(text) => Some(text.clone()),
        serde_json::Value::Number(ms) if *name == "fire_at_ms" => ms.as_u64().map(time),
        other => Some(other.to_string()),
    };
    let names = ["name", "key", "instance"];
    let values = ["input", "output", "result", "data", "value", "reason", "status", "details", "fire_at_ms"];
    [&names[..], &values].map(|members| members.iter().filter_map(member).collect())
}

#[cfg(test)]
mod tests;
