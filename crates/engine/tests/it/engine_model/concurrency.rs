//! Tests of concurrent operations in a chosen order, and of splits between the pages of a
//! query. The order is chosen by a store that holds each commit until the test lets the
//! commit pass.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use perihelion_engine::storage::{MemoryStore, Store, StoreError, View, Write};
use perihelion_engine::{Engine, EngineOptions, IndexScope, QueryScope};
use perihelion_model::json::{Value, parse_str};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::agreement::{container, query, query_page, target};
use super::model::partition_key;
use super::workload::Workload;
use super::{create, shape};
use crate::engine_model::model::{Model, Operation, Verb};

/// An in-memory store that claims to be durable, so that the engine starts a writer
/// thread for it. Its commits wait at a gate while the gate is closed.
struct GatedStore {
    store: MemoryStore,
    is_closed: Arc<AtomicBool>,
    /// Tells the test that a commit waits at the gate.
    waiting: UnboundedSender<()>,
    /// Each message lets one commit pass.
    permits: Mutex<Receiver<()>>,
}

/// The test's side of the gate.
struct Gate {
    is_closed: Arc<AtomicBool>,
    waiting: UnboundedReceiver<()>,
    permits: Sender<()>,
}

/// A store whose gate is open, and the test's side of the gate.
fn gated() -> (GatedStore, Gate) {
    let is_closed = Arc::new(AtomicBool::new(false));
    let (waiting_sender, waiting) = unbounded_channel();
    let (permit, permits) = channel();
    let store = MemoryStore::new();
    let permits = Mutex::new(permits);
    let gated = GatedStore { store, is_closed: Arc::clone(&is_closed), waiting: waiting_sender, permits };
    (gated, Gate { is_closed, waiting, permits: permit })
}

impl Store for GatedStore {
    fn view(&self) -> Result<Box<dyn View + '_>, StoreError> {
        self.store.view()
    }

    fn commit(&self, writes: &mut dyn Iterator<Item = Write<'_>>) -> Result<(), StoreError> {
        if self.is_closed.load(Ordering::SeqCst) {
            let _ = self.waiting.send(());
            // If the test has dropped its side of the gate, the commit passes.
            let _ = self.permits.lock().expect("one writer").recv();
        }
        self.store.commit(writes)
    }

    fn is_durable(&self) -> bool {
        true
    }
}

impl Gate {
    fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    /// Waits until a commit is at the gate. Then lets the tasks run that waited for the
    /// previous commit.
    async fn until_commit_waits(&mut self) {
        self.waiting.recv().await.expect("a store");
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
    }

    fn let_one_pass(&self) {
        self.permits.send(()).expect("a store");
    }

    fn open(self) {
        self.is_closed.store(false, Ordering::SeqCst);
    }
}

/// This test is for a bug: an index was filled range by range. If a range was split after
/// the filling had begun and before the documents of the range were visited, the filling left
/// these documents out. They belonged to the children of the range, which were not in the
/// list of ranges.
#[tokio::test]
async fn a_split_while_an_index_is_filled_leaves_no_document_out() {
    let (store, mut gate) = gated();
    let engine = Arc::new(Engine::open(store, EngineOptions::default()).expect("an empty store opens"));
    create(&engine, false).await.expect("a container");
    let test_container = container(&engine).expect("a container");
    // Seed 1, and documents without padding.
    let mut workload = Workload::new(1, 1);
    for id in 0..20 {
        let key = ("p0".to_owned(), format!("id {id}"));
        let verb = Verb::Create(workload.body(&key));
        let operation = Operation { verb, ..workload.change(&Model::default(), key) };
        let operation = operation.to_engine(&test_container).expect("an operation");
        let written =
            engine.write_item(&test_container, partition_key("p0"), operation, Default::default()).await;
        assert_eq!(written.map(|outcome| outcome.status), Ok(201));
    }

    gate.close();
    let builder = Arc::clone(&engine);
    let unsplit = Arc::clone(&test_container);
    let build =
        tokio::spawn(
            async move { builder.build_index(&unsplit, shape(IndexScope::Partition, &["b"])).await },
        );
    gate.until_commit_waits().await; // This commit registers the index.
    let splitter = Arc::clone(&engine);
    let split = tokio::spawn(async move { splitter.split(&test_container, 0).await });
    tokio::task::yield_now().await;
    gate.let_one_pass();
    gate.until_commit_waits().await; // This commit is the split. The filling waits behind it.
    gate.let_one_pass();
    gate.open();
    split.await.expect("no panic").expect("a split");
    build.await.expect("no panic").expect("an index");

    let container = container(&engine).expect("a container");
    assert_eq!(container.ranges.len(), 2);
    let scope = QueryScope::Partition(target(&container, "p0").expect("a partition"));
    let found = query(&engine, &container, "SELECT VALUE c.id FROM c ORDER BY c.b", &scope, 100);
    let found = found.expect("a result");
    assert!(found.used_index, "the index is ready");
    let mut ids: Vec<&str> = found.rows.iter().filter_map(Value::as_str).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 20, "{ids:?}");
    Arc::into_inner(engine).expect("the engine has no other owner").close();
}

/// After each of the first pages of a query a range is split, so that the next page may continue
/// in ranges that did not exist when the page before it ended.
#[tokio::test]
async fn a_query_returns_every_row_once_although_ranges_are_split_between_its_pages() {
    const SPLITS: usize = 5;
    for text in [
        "SELECT VALUE c.mark FROM c",
        "SELECT VALUE c.mark FROM c ORDER BY c.kind",
        "SELECT VALUE c.mark FROM c ORDER BY c.kind DESC, c.b",
        "SELECT VALUE c.mark FROM c WHERE c.kind = 'red'",
    ] {
        let engine = Engine::open(MemoryStore::new(), EngineOptions::default()).expect("an empty store");
        let test_container = create(&engine, false).await.expect("a container");
        for names in [&["kind"][..], &["kind", "-b"]] {
            engine.build_index(&test_container, shape(IndexScope::Segment, names)).await.expect("an index");
        }
        // Seed 3, and documents without padding.
        let mut workload = Workload::new(3, 1);
        let mut expected = Vec::new();
        for id in 0..150 {
            let key = (workload.partition(), format!("id {id}"));
            let body = workload.body(&key);
            if !text.contains("red") || body.get("kind") == Some(&"red".into()) {
                expected.extend(body.get("mark").and_then(Value::as_i64));
            }
            let operation = Operation { verb: Verb::Create(body), key, precondition: Default::default() };
            let partition = partition_key(&operation.key.0);
            let operation = operation.to_engine(&test_container).expect("an operation");
            let written = engine.write_item(&test_container, partition, operation, Default::default()).await;
            assert_eq!(written.map(|outcome| outcome.status), Ok(201));
        }

        let (mut found, mut continuation) = (Vec::new(), None);
        loop {
            let current = container(&engine).expect("a container");
            let everything = QueryScope::All;
            let page = query_page(&engine, &current, text, &everything, 7, continuation).expect("a page");
            let rows = parse_str(&format!("[{}]", page.rows_text)).expect("rows");
            found.extend(rows.as_array().unwrap_or_default().iter().filter_map(Value::as_i64));
            continuation = page.continuation;
            if continuation.is_none() {
                break;
            }
            if current.ranges.len() <= SPLITS {
                let range = current.ranges[workload.random.below(current.ranges.len() as u64) as usize].id;
                engine.split(&current, range).await.expect("a split");
            }
        }
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "{text}");
    }
}
