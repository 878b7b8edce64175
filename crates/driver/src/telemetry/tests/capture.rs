//! A metrics recorder and a `tracing` subscriber that store what they receive.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use tracing::field::{Field, Visit};
use tracing::{Level, span};

/// A metrics recorder that stores every value of every series, in order.
#[derive(Default)]
pub(super) struct MemoryRecorder {
    values: Arc<Mutex<BTreeMap<String, Vec<f64>>>>,
    described: Mutex<HashSet<String>>,
    registrations: Mutex<usize>,
}

impl MemoryRecorder {
    /// The values of a series, written `name{label=value,...}`.
    pub(super) fn values(&self, series: &str) -> Vec<f64> {
        self.values.lock().unwrap().get(series).cloned().unwrap_or_default()
    }

    /// The values of all series of a metric.
    pub(super) fn values_of(&self, name: &str) -> Vec<f64> {
        let values = self.values.lock().unwrap();
        let matching = values.iter().filter(|(series, _)| series.split('{').next() == Some(name));
        matching.flat_map(|(_, values)| values.clone()).collect()
    }

    pub(super) fn all(&self) -> String {
        format!("{:?}", self.values.lock().unwrap())
    }

    pub(super) fn is_described(&self, name: &str) -> bool {
        self.described.lock().unwrap().contains(name)
    }

    pub(super) fn registrations(&self) -> usize {
        *self.registrations.lock().unwrap()
    }

    /// The series of a handle. Counts one registration.
    fn register(&self, key: &Key) -> Arc<Series> {
        *self.registrations.lock().unwrap() += 1;
        let labels: Vec<String> =
            key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let name = format!("{}{{{}}}", key.name(), labels.join(","));
        Arc::new(Series { name, values: Arc::clone(&self.values) })
    }
}

struct Series {
    name: String,
    values: Arc<Mutex<BTreeMap<String, Vec<f64>>>>,
}

impl Series {
    fn push(&self, value: f64) {
        self.values.lock().unwrap().entry(self.name.clone()).or_default().push(value);
    }
}

impl CounterFn for Series {
    fn increment(&self, value: u64) {
        self.push(value as f64);
    }

    fn absolute(&self, _: u64) {
        panic!("the driver only increments counters");
    }
}

impl GaugeFn for Series {
    fn increment(&self, value: f64) {
        self.push(value);
    }

    fn decrement(&self, value: f64) {
        self.push(-value);
    }

    fn set(&self, _: f64) {
        panic!("the driver never sets the gauge: several drivers share it");
    }
}

impl HistogramFn for Series {
    fn record(&self, value: f64) {
        self.push(value);
    }
}

impl Recorder for MemoryRecorder {
    fn describe_counter(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        self.described.lock().unwrap().insert(key.as_str().to_owned());
    }

    fn describe_gauge(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        self.described.lock().unwrap().insert(key.as_str().to_owned());
    }

    fn describe_histogram(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        self.described.lock().unwrap().insert(key.as_str().to_owned());
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.register(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.register(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.register(key))
    }
}

/// A `tracing` event with its fields as text.
#[derive(Debug, Clone)]
pub(super) struct Event {
    pub(super) target: &'static str,
    pub(super) level: Level,
    pub(super) fields: Vec<(&'static str, String)>,
}

impl Event {
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(other, _)| *other == name).map(|(_, value)| value.as_str())
    }
}

impl Visit for Event {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.push((field.name(), value.to_owned()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.fields.push((field.name(), format!("{value:?}")));
    }
}

/// A `tracing` subscriber that stores events.
#[derive(Clone, Default)]
pub(super) struct Events(Arc<Mutex<Vec<Event>>>);

impl Events {
    /// The events that `work` emits.
    pub(super) fn capture(work: impl FnOnce()) -> Vec<Event> {
        let events = Events::default();
        tracing::subscriber::with_default(events.clone(), work);
        events.0.lock().unwrap().clone()
    }
}

impl tracing::Subscriber for Events {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let metadata = event.metadata();
        let mut kept = Event { target: metadata.target(), level: *metadata.level(), fields: Vec::new() };
        event.record(&mut kept);
        self.0.lock().unwrap().push(kept);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
