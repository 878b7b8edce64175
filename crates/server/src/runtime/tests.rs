//! Tests of an account whose store is slow, full or broken.

use std::hint::black_box;
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use perihelion_engine::storage::{
    Direction, KeyRange, MemoryStore, Store, StoreError, StoreErrorKind, View, Visitor, Write,
};
use perihelion_engine::{
    ApiVersion, Clock, Engine, EngineOptions, ItemOperation, NewBody, ParsedDefinition, Precondition,
};
use perihelion_model::json::{self, Object, Value};
use perihelion_model::partition_key::PartitionKey;
use tokio::sync::watch;

use super::{AccessOptions, AccountRuntime};
use crate::addresses::{Addresses, EndpointId};
use crate::dispatch::{Caller, Dispatcher};
use crate::memory::MemoryBudget;
use crate::net::Scheme;
use crate::options::{EmbeddedOptions, ServerOptions};

/// A store in memory. Its commits fail while a fault is set, and scans of the change feed are slow and
/// wait at a gate. Clones are handles of the same store.
#[derive(Clone, Default)]
struct TestStore {
    store: Arc<MemoryStore>,
    fault: Arc<Mutex<Option<StoreErrorKind>>>,
    gate: Arc<Gate>,
}

/// Where scans of the change feed wait.
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
    /// How many scans have reached the gate.
    reached: watch::Sender<usize>,
}

impl Default for Gate {
    fn default() -> Self {
        Gate { is_open: Mutex::new(false), opened: Condvar::new(), reached: watch::Sender::new(0) }
    }
}

impl Gate {
    fn pass(&self) {
        self.reached.send_modify(|reached| *reached += 1);
        let is_open = self.is_open.lock().unwrap();
        drop(self.opened.wait_while(is_open, |is_open| !*is_open).unwrap());
    }

    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

/// The first byte of the keys of change feeds (`keys.rs` of the engine).
const FEED_ENTRY: u8 = 0x13;
/// The entry of a change feed before which a scan waits at the gate.
const GATED_ENTRY: usize = 100;
/// The work of each entry before the gate, in steps: at least 0.1 ms, so that the first slice of a
/// read is over long before the gate, however fast the machine is.
const STEPS_PER_ENTRY: u64 = 200_000;

impl TestStore {
    fn set_fault(&self, fault: Option<StoreErrorKind>) {
        *self.fault.lock().unwrap() = fault;
    }
}

impl Store for TestStore {
    fn view(&self) -> Result<Box<dyn View + '_>, StoreError> {
        Ok(Box::new(TestView { view: self.store.view()?, gate: &self.gate }))
    }

    fn commit(&self, writes: &mut dyn Iterator<Item = Write<'_>>) -> Result<(), StoreError> {
        match *self.fault.lock().unwrap() {
            Some(kind) => Err(StoreError { kind, message: "the disk is broken".to_owned() }),
            None => self.store.commit(writes),
        }
    }

    fn is_durable(&self) -> bool {
        false
    }
}

struct TestView<'s> {
    view: Box<dyn View + 's>,
    gate: &'s Gate,
}

impl View for TestView<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.view.get(key)
    }

    fn scan(
        &self,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut Visitor<'_>,
    ) -> Result<(), StoreError> {
        let is_feed = matches!(range.from, Bound::Excluded([FEED_ENTRY, ..]));
        let mut entries = 0;
        self.view.scan(range, direction, &mut |key, value| -> ControlFlow<()> {
            entries += 1;
            if is_feed && entries < GATED_ENTRY {
                for step in 0..STEPS_PER_ENTRY {
                    black_box(step);
                }
            }
            if is_feed && entries == GATED_ENTRY {
                self.gate.pass();
            }
            visit(key, value)
        })
    }
}

fn object(text: &str) -> Object {
    match json::parse_str(text) {
        Ok(Value::Object(object)) => object,
        other => panic!("{text}: {other:?}"),
    }
}

/// An account on this store.
async fn open(store: &TestStore) -> AccountRuntime {
    let options = EmbeddedOptions::default();
    let access = AccessOptions {
        keys: options.keys,
        auth: options.auth,
        has_management: true,
        public_endpoint: None,
        allows_unsigned_account_read: false,
        ca_pem: String::new(),
        addresses: Addresses::Hosts,
        memory: MemoryBudget::new(ServerOptions::default().limits.body_bytes_total),
    };
    // This clock stands still, so a page never reaches its time limit.
    let clock = Clock::from_fn(|| Duration::from_secs(1_800_000_000));
    let engine = Engine::open(store.clone(), EngineOptions::default().with_clock(clock)).unwrap();
    AccountRuntime::with_engines(options.account, access, vec![Arc::new(engine)]).await.unwrap()
}

/// The answer to a GET with these headers.
async fn send(dispatcher: &Dispatcher, path: &str, headers: &[(&str, &str)]) -> Response<Bytes> {
    let request = headers
        .iter()
        .fold(Request::builder().uri(path), |request, (name, value)| request.header(*name, *value));
    let request = request.body(Bytes::new()).unwrap();
    dispatcher.answer(request, Scheme::Http, Caller::SameProcess).await.unwrap()
}

/// The status of a path, and the member `status` of its body.
async fn get(account: &AccountRuntime, path: &str) -> (u16, String) {
    let response = send(&account.dispatcher(EndpointId::Global), path, &[]).await;
    let body = json::parse(response.body()).unwrap();
    let text = body.get("status").and_then(Value::as_str).unwrap_or_default();
    (response.status().as_u16(), text.to_owned())
}

/// Creates a database. Returns the status.
async fn create_database(account: &AccountRuntime, database: &str) -> u16 {
    let body = object(&format!(r#"{{"id":"{database}"}}"#));
    let created = account.services[0].engine.create_database(body, None).await;
    created.map_or_else(|refusal| refusal.status, |_| 201)
}

/// Story of a bug: after a commit for which the disk had no room every write was refused, and the
/// server said for ever that it was ready.
#[tokio::test(start_paused = true)]
async fn a_server_whose_disk_is_full_is_alive_and_not_ready_until_the_disk_has_room() {
    let store = TestStore::default();
    let account = open(&store).await;
    assert_eq!(create_database(&account, "a").await, 201);
    assert_eq!(get(&account, "/ready").await, (200, "ok".to_owned()));

    store.set_fault(Some(StoreErrorKind::Full));
    assert_eq!(create_database(&account, "b").await, 503);
    for path in ["/ready", "/status", "/_perihelion/ready"] {
        assert_eq!(get(&account, path).await, (503, "full".to_owned()), "{path}");
    }
    assert_eq!(get(&account, "/alive").await, (200, "full".to_owned()));
    // Maintenance tries a write each second of this virtual time.
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(get(&account, "/ready").await, (503, "full".to_owned()), "still full");

    store.set_fault(None);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(get(&account, "/ready").await, (200, "ok".to_owned()), "maintenance found room");
    assert_eq!(create_database(&account, "b").await, 201);
    account.close(std::future::ready(())).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_whose_store_has_failed_is_neither_alive_nor_ready() {
    let store = TestStore::default();
    let account = open(&store).await;
    store.set_fault(Some(StoreErrorKind::Io));
    assert_ne!(create_database(&account, "a").await, 201);
    store.set_fault(None);
    tokio::time::sleep(Duration::from_secs(30)).await;
    for path in ["/ready", "/alive"] {
        assert_eq!(get(&account, path).await, (503, "failed".to_owned()), "{path}");
    }
    account.close(std::future::ready(())).await;
}

/// Creates the container `/dbs/d/colls/c` with this many documents.
async fn fill(engine: &Engine, documents: usize) {
    engine.create_database(object(r#"{"id":"d"}"#), None).await.unwrap();
    let body = object(r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#);
    let definition = ParsedDefinition::parse(body, ApiVersion::Current).unwrap();
    let container = engine.create_container("d", definition, None).await.unwrap();
    for n in 0..documents {
        let body = NewBody::new(object(&format!(r#"{{"id":"{n}","pk":"p"}}"#)), &container).unwrap();
        let (key, operation) =
            (PartitionKey::from_header(r#"["p"]"#).unwrap(), ItemOperation::Create { body });
        engine.write_item(&container, key, operation, Precondition::default()).await.unwrap();
    }
}

/// Story of a bug: change feeds were read on the async workers, so a point read waited until a page of
/// a change feed was read. The runtime of this test has one async worker.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn point_reads_are_served_while_a_change_feed_is_read_for_long() {
    const DOCUMENTS: usize = 2 * GATED_ENTRY;
    let store = TestStore::default();
    let account = open(&store).await;
    fill(&account.services[0].engine, DOCUMENTS).await;
    let dispatcher = account.dispatcher(EndpointId::Global);
    let feed = tokio::spawn({
        let dispatcher = dispatcher.clone();
        async move { send(&dispatcher, "/dbs/d/colls/c/docs", &[("a-im", "Incremental Feed")]).await }
    });
    let mut reached = store.gate.reached.subscribe();
    reached.wait_for(|reached| *reached > 0).await.unwrap();
    // The task runs on the async worker.
    let (answers, answered) = mpsc::channel();
    tokio::spawn(async move {
        for n in 0..50 {
            let headers = [("x-ms-documentdb-partitionkey", r#"["p"]"#)];
            let read = send(&dispatcher, &format!("/dbs/d/colls/c/docs/{n}"), &headers).await;
            answers.send(read.status().as_u16()).unwrap();
        }
    });
    // The wait has its own timeout: if the feed blocked the only async worker, timers of tokio would not
    // fire, because that worker runs them.
    let answer = || answered.recv_timeout(Duration::from_secs(60)).inspect_err(|_| store.gate.open());
    let statuses: Result<Vec<u16>, _> = (0..50).map(|_| answer()).collect();
    assert_eq!(statuses, Ok(vec![200; 50]));
    assert!(!feed.is_finished(), "the feed waits at the gate");
    store.gate.open();
    let page = feed.await.unwrap();
    assert_eq!(page.status(), 200);
    let body = json::parse(page.body()).unwrap();
    assert_eq!(body.get("_count").and_then(Value::as_i64), Some(DOCUMENTS as i64));
    account.close(std::future::ready(())).await;
}
