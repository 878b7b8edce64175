//! A small engine for tests: one database, containers with the partition key
//! `/pk`, and documents with the ids `0, 1, 2, ...` spread over some partition keys. Also
//! helpers that several tests use.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use perihelion_engine::storage::{Direction, KeyRange, MemoryStore, Store, StoreError, View, Write};
use perihelion_engine::{
    ApiVersion, Container, Engine, EngineOptions, ItemOperation, NewBody, Paging, ParsedDefinition,
    Precondition, QueryPage, QueryRequest, QueryScope, Target,
};
use perihelion_model::json::{Object, Value, parse_str};
use perihelion_model::partition_key::PartitionKey;
use perihelion_query::{Now, Parameters};

/// A JSON object from its text.
pub(crate) fn object(text: &str) -> Object {
    match parse_str(text) {
        Ok(Value::Object(object)) => object,
        other => panic!("{text}: {other:?}"),
    }
}

/// An engine in memory, with the database `d`.
pub(crate) async fn engine(options: EngineOptions) -> Arc<Engine> {
    let engine = Engine::open(MemoryStore::new(), options).unwrap();
    engine.create_database(object(r#"{"id":"d"}"#), None).await.unwrap();
    Arc::new(engine)
}

/// Creates a container in the database `d`.
pub(crate) async fn container(engine: &Engine, name: &str) -> Arc<Container> {
    let body =
        object(&format!(r#"{{"id":"{name}","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}}}"#));
    let definition = ParsedDefinition::parse(body, ApiVersion::Current).unwrap();
    engine.create_container("d", definition, None).await.unwrap()
}

/// The partition key of document `n`.
fn key(n: usize, keys: usize) -> PartitionKey {
    PartitionKey::from_header(&format!("[\"k{}\"]", n % keys)).unwrap()
}

/// Creates documents of about 500 bytes, with the ids `0, 1, 2, ...`, spread over `keys`
/// partition keys.
pub(crate) async fn fill(engine: &Engine, container: &Arc<Container>, documents: usize, keys: usize) {
    for n in 0..documents {
        let body = object(&format!(r#"{{"id":"{n}","pk":"k{}","pad":"{}"}}"#, n % keys, "x".repeat(300)));
        let operation = ItemOperation::Create { body: NewBody::new(body, container).unwrap() };
        engine.write_item(container, key(n, keys), operation, Precondition::default()).await.unwrap();
    }
}

/// A request for the first page of a query over all documents of a container.
pub(crate) fn query_request(text: &str, now: Now, rows_max: usize) -> QueryRequest {
    let query = perihelion_query::parse(text).unwrap();
    QueryRequest {
        program: perihelion_query::compile(&query, &Parameters::none(), now).unwrap(),
        scope: QueryScope::All,
        rows_max,
        continuation: None,
        resume: None,
        paging: Paging::Whole,
    }
}

/// The rows of a page.
pub(crate) fn rows(page: &QueryPage) -> Vec<Value> {
    match parse_str(&format!("[{}]", page.rows_text)) {
        Ok(Value::Array(rows)) => rows,
        other => panic!("{other:?}"),
    }
}

/// A number from an environment variable, or the default.
pub(crate) fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// The numbers of the documents that [`fill`] created and that cannot be read.
pub(crate) fn missing(
    engine: &Engine,
    container: &Arc<Container>,
    documents: usize,
    keys: usize,
) -> Vec<usize> {
    let is_missing = |n: &usize| {
        let target = Target::resolve(container, key(*n, keys)).unwrap();
        engine.read_item(&target, &n.to_string(), &Precondition::default(), &[]).is_err()
    };
    (0..documents).filter(is_missing).collect()
}

/// A function that is called with the keys of a commit.
type CommitHook = dyn Fn(&[&[u8]]) + Send + Sync;

/// An in-memory store that a test can look into while an engine uses it. Clones are handles of the
/// same store. Before each commit it calls a function with the keys of the commit.
#[derive(Clone)]
pub(crate) struct ObservedStore {
    store: Arc<MemoryStore>,
    before_commit: Arc<CommitHook>,
}

impl ObservedStore {
    pub(crate) fn new(before_commit: impl Fn(&[&[u8]]) + Send + Sync + 'static) -> Self {
        ObservedStore { store: Arc::new(MemoryStore::new()), before_commit: Arc::new(before_commit) }
    }

    /// All keys that begin with these bytes.
    pub(crate) fn keys(&self, prefix: &[u8]) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        let everything = KeyRange { from: Bound::Unbounded, to: Bound::Unbounded };
        let view = self.store.view().unwrap();
        view.scan(everything, Direction::Forward, &mut |key, _| {
            if key.starts_with(prefix) {
                found.push(key.to_vec());
            }
            ControlFlow::Continue(())
        })
        .unwrap();
        found
    }
}

impl Store for ObservedStore {
    fn view(&self) -> Result<Box<dyn View + '_>, StoreError> {
        self.store.view()
    }

    fn commit(&self, writes: &mut dyn Iterator<Item = Write<'_>>) -> Result<(), StoreError> {
        let writes: Vec<Write<'_>> = writes.collect();
        let keys: Vec<&[u8]> = writes.iter().map(|write| write.key).collect();
        (self.before_commit)(&keys);
        self.store.commit(&mut writes.iter().copied())
    }

    fn is_durable(&self) -> bool {
        false
    }
}

/// Creates the database `d` in an engine.
pub(crate) async fn with_database(engine: Engine) -> Engine {
    engine.create_database(object(r#"{"id":"d"}"#), None).await.unwrap();
    engine
}
