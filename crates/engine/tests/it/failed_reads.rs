//! Tests of writes on a store whose reads fail: such writes are refused and change nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;
use perihelion_engine::storage::{
    Direction, KeyRange, MemoryStore, Store, StoreError, StoreErrorKind, View, Visitor, Write,
};
use perihelion_engine::{Container, Engine, EngineOptions, ItemOperation, NewBody, Precondition, Target};

use crate::engine_model::create;
use crate::engine_model::model::partition_key;
use crate::support::object;

/// The first byte of the keys of documents (`keys.rs`).
const DOCUMENT: u8 = 0x10;
/// The first byte of the keys of unique keys (`keys.rs`).
const UNIQUE_KEY: u8 = 0x1A;
/// No key begins with this byte.
const NO_KEY: u8 = 0xFF;

/// An in-memory store in which look-ups of keys that begin with the byte `failing_prefix`
/// return an error.
struct FailingStore {
    store: MemoryStore,
    failing_prefix: Arc<AtomicU8>,
}

struct FailingView<'a> {
    view: Box<dyn View + 'a>,
    failing_prefix: u8,
}

impl Store for FailingStore {
    fn view(&self) -> Result<Box<dyn View + '_>, StoreError> {
        let failing_prefix = self.failing_prefix.load(Ordering::SeqCst);
        Ok(Box::new(FailingView { view: self.store.view()?, failing_prefix }))
    }

    fn commit(&self, writes: &mut dyn Iterator<Item = Write<'_>>) -> Result<(), StoreError> {
        self.store.commit(writes)
    }

    fn is_durable(&self) -> bool {
        false
    }
}

impl View for FailingView<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        if key.first() == Some(&self.failing_prefix) {
            return Err(StoreError { kind: StoreErrorKind::Io, message: "the disk failed".to_owned() });
        }
        self.view.get(key)
    }

    fn scan(
        &self,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut Visitor<'_>,
    ) -> Result<(), StoreError> {
        self.view.scan(range, direction, visit)
    }
}

/// Performs a write in the partition `p`. Returns the status of its outcome or refusal.
async fn write(engine: &Engine, container: &Arc<Container>, operation: ItemOperation) -> u16 {
    match engine.write_item(container, partition_key("p"), operation, Precondition::default()).await {
        Ok(outcome) => outcome.status,
        Err(refusal) => refusal.status,
    }
}

/// Creates a document. All documents have the same unique key.
async fn create_document(engine: &Engine, container: &Arc<Container>, id: &str) -> u16 {
    let body = object(&format!(r#"{{"id":"{id}","pk":"p","u":7}}"#));
    let body = NewBody::new(body, container).unwrap();
    write(engine, container, ItemOperation::Create { body }).await
}

async fn delete_document(engine: &Engine, container: &Arc<Container>, id: &str) -> u16 {
    write(engine, container, ItemOperation::Delete { id: id.to_owned() }).await
}

/// This test is for a bug: a failed look-up of a unique key, or of the document that has
/// the key, counted as "not found". So a create took the unique key of an existing document,
/// and a delete did not release the unique key of its document.
#[tokio::test]
async fn a_write_whose_unique_key_cannot_be_read_is_refused() {
    let failing_prefix = Arc::new(AtomicU8::new(NO_KEY));
    let store = FailingStore { store: MemoryStore::new(), failing_prefix: Arc::clone(&failing_prefix) };
    let engine = Engine::open(store, EngineOptions::default()).unwrap();
    let container = create(&engine, true).await.unwrap();
    assert_eq!(create_document(&engine, &container, "1").await, 201);

    failing_prefix.store(DOCUMENT, Ordering::SeqCst);
    assert_eq!(create_document(&engine, &container, "2").await, 500);
    failing_prefix.store(UNIQUE_KEY, Ordering::SeqCst);
    assert_eq!(delete_document(&engine, &container, "1").await, 500);

    failing_prefix.store(NO_KEY, Ordering::SeqCst);
    let target = Target::resolve(&container, partition_key("p")).unwrap();
    assert!(engine.read_item(&target, "1", &Precondition::default(), &[]).is_ok(), "document 1 exists");
    assert_eq!(create_document(&engine, &container, "2").await, 409, "document 1 has the unique key");
    assert_eq!(delete_document(&engine, &container, "1").await, 204);
    assert_eq!(create_document(&engine, &container, "2").await, 201, "the unique key is free");
}
