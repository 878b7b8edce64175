//! Spans: one per operation with the caller's span as its parent, one per attempt below it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use perihelion_driver::OperationOptions;
use perihelion_driver::operation::Verb;
use perihelion_driver::transaction::{
    Transaction, TransactionEnd, TransactionKind, TransactionOperation, TransactionVerb,
};
use perihelion_model::partition_key::PartitionKey;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Instrument, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use crate::world::World;

/// A span or an event as the collector saw it. Fields are text.
#[derive(Debug, Clone, Default)]
struct Seen {
    name: &'static str,
    /// The number of the parent span.
    parent: Option<u64>,
    fields: BTreeMap<&'static str, String>,
    is_closed: bool,
}

impl Seen {
    fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }
}

impl Visit for Seen {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }
}

/// A layer that collects the spans and events of the driver, and the spans of the test.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Collected>>);

#[derive(Default)]
struct Collected {
    /// All spans, in the order of their creation. Tests name a span by its number in the list,
    /// counted from 1, because the registry gives the ids of closed spans to new spans.
    spans: Vec<Seen>,
    /// The numbers of the open spans, by their ids in the registry.
    open: BTreeMap<u64, u64>,
    events: Vec<Seen>,
}

impl Collector {
    fn spans(&self) -> Vec<Seen> {
        self.0.lock().unwrap().spans.clone()
    }

    /// The numbers of the spans with this name.
    fn named(&self, name: &str) -> Vec<u64> {
        let collected = self.0.lock().unwrap();
        (1..).zip(&collected.spans).filter(|(_, span)| span.name == name).map(|(number, _)| number).collect()
    }

    fn span(&self, number: u64) -> Seen {
        self.0.lock().unwrap().spans[number as usize - 1].clone()
    }

    fn clear(&self) {
        *self.0.lock().unwrap() = Collected::default();
    }

    fn events(&self) -> Vec<Seen> {
        self.0.lock().unwrap().events.clone()
    }
}

fn is_ours(target: &str) -> bool {
    target.starts_with("perihelion_driver") || target == "span_test"
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Collector {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if !is_ours(attributes.metadata().target()) {
            return;
        }
        let parent = context.span(id).and_then(|span| span.parent()).map(|parent| parent.id().into_u64());
        let mut collected = self.0.lock().unwrap();
        let parent = parent.and_then(|parent| collected.open.get(&parent).copied());
        let mut seen = Seen { name: attributes.metadata().name(), parent, ..Seen::default() };
        attributes.record(&mut seen);
        collected.spans.push(seen);
        let number = collected.spans.len() as u64;
        collected.open.insert(id.into_u64(), number);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut collected = self.0.lock().unwrap();
        if let Some(number) = collected.open.get(&id.into_u64()).copied() {
            values.record(&mut collected.spans[number as usize - 1]);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        if event.metadata().target() != "perihelion_driver" {
            return;
        }
        let parent = context.event_span(event).map(|span| span.id().into_u64());
        let mut collected = self.0.lock().unwrap();
        let parent = parent.and_then(|parent| collected.open.get(&parent).copied());
        let mut seen = Seen { name: "event", parent, ..Seen::default() };
        event.record(&mut seen);
        collected.events.push(seen);
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        let mut collected = self.0.lock().unwrap();
        if let Some(number) = collected.open.remove(&id.into_u64()) {
            collected.spans[number as usize - 1].is_closed = true;
        }
    }
}

/// A collector of all spans of this thread, as long as the guard lives.
fn collect() -> (Collector, DefaultGuard) {
    let collector = Collector::default();
    let subscriber = tracing_subscriber::registry().with(collector.clone());
    (collector, tracing::subscriber::set_default(subscriber))
}

#[tokio::test(start_paused = true)]
async fn an_operation_has_a_span_below_the_callers_and_one_for_each_attempt() {
    let (collector, _guard) = collect();
    let world = World::new().await;
    world.run(&world.write(Verb::Create, "1", "a")).await.unwrap();
    world.fault(r#"{"operation":"read_item","count":1,"status":503,"subStatus":0}"#).await;
    collector.clear();
    let caller = tracing::info_span!(target: "span_test", "caller");
    world.run(&world.read("1")).instrument(caller).await.unwrap();

    let operation = collector.named("operation");
    let [operation] = operation.as_slice() else { panic!("{:?}", collector.spans()) };
    let span = collector.span(*operation);
    assert_eq!(span.parent, collector.named("caller").first().copied());
    for (field, value) in [
        ("otel.name", "read_item orders"),
        ("otel.kind", "client"),
        ("db.system.name", "azure.cosmosdb"),
        ("db.operation.name", "read_item"),
        ("db.collection.name", "orders"),
        ("db.response.status_code", "200"),
        ("azure.cosmosdb.connection.mode", "gateway"),
    ] {
        assert_eq!(span.field(field), Some(value), "{field} of {span:?}");
    }
    assert_eq!(span.field("otel.status_code"), None, "it succeeded");
    assert!(span.is_closed);

    let attempts: Vec<Seen> =
        collector.named("attempt").iter().map(|number| collector.span(*number)).collect();
    let [refused, answered] = attempts.as_slice() else { panic!("{attempts:?}") };
    assert!(attempts.iter().all(|attempt| attempt.parent == Some(*operation)), "{attempts:?}");
    assert_eq!(refused.field("http.response.status_code"), Some("503"));
    assert_eq!(refused.field("otel.status_code"), Some("ERROR"));
    assert_eq!(refused.field("perihelion.context"), Some("initial"));
    assert_eq!(answered.field("http.response.status_code"), Some("200"));
    assert_eq!(answered.field("http.request.method"), Some("GET"));
    assert!(answered.field("azure.service.request.id").is_some());
    let events = collector.events();
    let [event] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(event.parent, Some(*operation), "the operation's event is in its span");
    world.server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_operation_marks_its_span_as_an_error_unless_the_refusal_is_expected() {
    let (collector, _guard) = collect();
    let world = World::new().await;
    world.run(&world.write(Verb::Create, "1", "a")).await.unwrap();
    collector.clear();
    world.run(&world.read("missing")).await.unwrap_err();
    let span = collector.span(collector.named("operation")[0]);
    assert_eq!(span.field("error.type"), Some("404"));
    assert_eq!(span.field("otel.status_code"), None, "programs expect this refusal");
    collector.clear();
    world.fault(r#"{"operation":"read_item","status":400,"subStatus":0}"#).await;
    world.run(&world.read("1")).await.unwrap_err();
    let span = collector.span(collector.named("operation")[0]);
    assert_eq!(span.field("error.type"), Some("400"));
    assert_eq!(span.field("otel.status_code"), Some("ERROR"));
    world.server.stop().await;
}

/// The metadata is read by a task that serves all operations, so its spans are not below the
/// operation that started the task.
#[tokio::test(start_paused = true)]
async fn reads_of_metadata_have_spans_of_their_own() {
    let (collector, _guard) = collect();
    let world = World::new().await;
    collector.clear();
    let caller = tracing::info_span!(target: "span_test", "caller");
    world.run(&world.write(Verb::Create, "1", "a")).instrument(caller).await.unwrap();
    let [task] = collector.named("shared_task")[..] else { panic!("{:?}", collector.spans()) };
    assert_eq!(collector.span(task).parent, None);
    let operations: Vec<Seen> =
        collector.named("operation").iter().map(|number| collector.span(*number)).collect();
    // The feed of ranges takes one or two requests.
    let names: Vec<Option<&str>> = operations.iter().map(|span| span.field("db.operation.name")).collect();
    assert_eq!(
        names,
        [
            Some("create_item"),
            Some("read_container"),
            Some("read_all_partition_key_ranges"),
            Some("read_all_partition_key_ranges")
        ][..names.len()]
    );
    assert!(names.len() >= 3, "{names:?}");
    assert!(operations[1..].iter().all(|span| span.parent == Some(task)), "{operations:?}");
    assert_eq!(operations[1].field("db.response.status_code"), Some("200"));
    world.server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_span_of_a_read_of_the_account_has_its_outcome() {
    let (collector, _guard) = collect();
    let world = World::new().await;
    world.run(&world.write(Verb::Create, "1", "a")).await.unwrap();
    let operations = collector.named("operation");
    let reads: Vec<Seen> = operations
        .iter()
        .map(|number| collector.span(*number))
        .filter(|span| span.field("db.operation.name") == Some("read_account"))
        .collect();
    assert!(!reads.is_empty());
    for read in reads {
        assert_eq!(read.field("db.response.status_code"), Some("200"), "{read:?}");
    }
    world.server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_transaction_has_a_span_with_its_token_and_one_for_each_attempt() {
    let (collector, _guard) = collect();
    let world = World::new().await;
    world.run(&world.write(Verb::Create, "1", "a")).await.unwrap();
    world.fault(r#"{"operation":"transaction","count":1,"status":408}"#).await;
    let mut transaction = Transaction::new(TransactionKind::Write);
    let key = PartitionKey::from("ada");
    transaction.push(TransactionOperation::new(TransactionVerb::Delete, &world.orders, key, "1")).unwrap();
    collector.clear();
    let end = world.driver.execute_transaction(&transaction, &OperationOptions::default()).await.unwrap();
    assert!(matches!(end, TransactionEnd::Completed(_)), "{end:?}");
    let operation = collector.named("operation");
    let [operation] = operation.as_slice() else { panic!("{:?}", collector.spans()) };
    let span = collector.span(*operation);
    let token = transaction.token().to_string();
    for (field, value) in [
        ("otel.name", "execute_distributed_write_transaction"),
        ("db.operation.name", "execute_distributed_write_transaction"),
        ("db.operation.batch.size", "1"),
        ("db.response.status_code", "200"),
        ("perihelion.idempotency_token", token.as_str()),
    ] {
        assert_eq!(span.field(field), Some(value), "{field} of {span:?}");
    }
    let attempts = collector.named("attempt");
    assert_eq!(attempts.len(), 2);
    assert!(attempts.iter().all(|attempt| collector.span(*attempt).parent == Some(*operation)));
}
