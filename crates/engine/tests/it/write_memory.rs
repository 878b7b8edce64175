//! Tests of the memory that writes hold while they wait for the writer: the parsed documents that they
//! change. It is counted, and given back even if the write is refused.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use perihelion_engine::{
    Batch, BatchOperation, BatchScope, Container, Engine, EngineOptions, ItemOperation, NewBody, NewPatch,
    PageMemory, Precondition, Refusal, WriteMemory,
};
use perihelion_model::json::Value;
use perihelion_model::partition_key::PartitionKey;
use perihelion_wire::patch::Patch;

use crate::support::{ObservedStore, container, object, with_database};

/// A budget of this many bytes.
struct Budget {
    total: usize,
    taken: AtomicUsize,
    most: AtomicUsize,
}

impl Budget {
    fn new(total: usize) -> Arc<Budget> {
        Arc::new(Budget { total, taken: AtomicUsize::new(0), most: AtomicUsize::new(0) })
    }

    fn taken(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }

    /// The most bytes that were taken at one time since the last call.
    fn most(&self) -> usize {
        self.most.swap(0, Ordering::SeqCst)
    }
}

impl PageMemory for Budget {
    fn take(&self, bytes: usize) -> Result<(), Refusal> {
        let wanted = self.taken() + bytes;
        if wanted > self.total {
            return Err(Refusal::throttled(1));
        }
        self.taken.store(wanted, Ordering::SeqCst);
        self.most.fetch_max(wanted, Ordering::SeqCst);
        Ok(())
    }

    fn give_back(&self, bytes: usize) {
        self.taken.fetch_sub(bytes, Ordering::SeqCst);
    }
}

/// Called before each commit.
type Hook = Box<dyn FnMut() + Send>;

/// An engine whose writes share a budget, its container, and a place for a hook before each commit.
async fn engine_with(budget: &Arc<Budget>) -> (Arc<Engine>, Arc<Container>, Arc<Mutex<Option<Hook>>>) {
    let hook: Arc<Mutex<Option<Hook>>> = Arc::default();
    let store = ObservedStore::new({
        let hook = Arc::clone(&hook);
        move |_: &[&[u8]]| {
            let taken = hook.lock().unwrap().take();
            if let Some(mut taken) = taken {
                taken();
            }
        }
    });
    let memory: Arc<dyn PageMemory + Send + Sync> = budget.clone();
    let options = EngineOptions::default().with_write_memory(WriteMemory::new(memory));
    let engine = Arc::new(with_database(Engine::open(store, options).unwrap()).await);
    let created = container(&engine, "c").await;
    (engine, created, hook)
}

fn key() -> PartitionKey {
    PartitionKey::from_header(r#"["p"]"#).unwrap()
}

async fn create(engine: &Engine, container: &Arc<Container>, id: &str, bytes: usize) {
    let body = object(&format!(r#"{{"id":"{id}","pk":"p","n":0,"pad":"{}"}}"#, "x".repeat(bytes)));
    let operation = ItemOperation::Create { body: NewBody::new(body, container).unwrap() };
    engine.write_item(container, key(), operation, Precondition::default()).await.unwrap();
}

fn increment(id: &str) -> ItemOperation {
    let body = object(r#"{"operations":[{"op":"incr","path":"/n","value":1}]}"#);
    let patch = NewPatch::new(Patch::parse(&Value::Object(body)).unwrap(), 0);
    ItemOperation::Patch { id: id.to_owned(), patch }
}

/// The status of a patch.
async fn patch(engine: &Engine, container: &Arc<Container>, id: &str) -> u16 {
    let written = engine.write_item(container, key(), increment(id), Precondition::default()).await;
    written.map_or_else(|refusal| refusal.status, |outcome| outcome.status)
}

/// Story of a bug: the documents that writes change were parsed before the writes reached the writer,
/// and nothing bounded the memory of all of them together.
#[tokio::test]
async fn writes_that_wait_share_a_budget_and_one_too_many_is_refused() {
    let budget = Budget::new(5_000_000);
    let (engine, created, hook) = engine_with(&budget).await;
    for id in ["1", "2"] {
        create(&engine, &created, id, 500_000).await;
    }
    create(&engine, &created, "small", 100).await;
    // During the commit of the first patch the second finds too little memory, and a small one enough.
    let during: Arc<Mutex<Option<u16>>> = Arc::default();
    *hook.lock().unwrap() = Some(Box::new({
        let (engine, created, during) = (Arc::clone(&engine), Arc::clone(&created), Arc::clone(&during));
        move || {
            let mut large: Pin<Box<_>> = Box::pin(patch(&engine, &created, "2"));
            let polled = large.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            *during.lock().unwrap() = match polled {
                Poll::Ready(status) => Some(status),
                Poll::Pending => None,
            };
        }
    }));
    assert_eq!(patch(&engine, &created, "1").await, 200);
    assert_eq!(*during.lock().unwrap(), Some(429));
    assert!(budget.most() > 1_000_000, "a patched document is counted before and after the patch");
    assert_eq!(budget.taken(), 0, "all memory is given back");
    assert_eq!(patch(&engine, &created, "2").await, 200, "the refused write succeeds later");
}

#[tokio::test]
async fn a_write_that_needs_too_much_memory_is_refused_and_a_small_one_takes_none() {
    let budget = Budget::new(5_000_000);
    let (engine, created, _) = engine_with(&budget).await;
    for id in ["1", "2"] {
        create(&engine, &created, id, 500_000).await;
    }
    create(&engine, &created, "small", 100).await;
    let operations = ["1", "2"].map(|id| BatchOperation {
        operation: Ok(increment(id)),
        precondition: Precondition::default(),
        partition_key: None,
    });
    let batch = Batch {
        scope: BatchScope::Partition(key()),
        operations: operations.into(),
        is_atomic: true,
        continues_on_error: false,
        returns_written: true,
    };
    let refusal = engine.batch(&created, batch).await.unwrap_err();
    assert_eq!(refusal.status, 429);
    assert!(budget.most() > 0);
    assert_eq!(budget.taken(), 0);
    assert_eq!(patch(&engine, &created, "small").await, 200);
    assert_eq!(budget.most(), 0);
}
