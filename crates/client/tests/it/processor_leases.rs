//! Difficult cases of the leases of change feed processors: limits on their number, handlers that
//! block their thread, regions that lag, and a split while the first leases are created.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use perihelion_client::{
    ChangeFeedProcessor, ChangeHandler, Changes, Client, ContainerProperties, HandlerError, ProcessorEvent,
    ProcessorOptions,
};
use perihelion_server::{EmbeddedOptions, InProcess};
use perihelion_testkit::TestServer;
use perihelion_wire::transport::{Failure, Request, Response, Transport};
use serde_json::{Value, json};

use crate::processors::{Shop, wait_until};

/// The longest time that a test waits for a condition.
const LIMIT: Duration = Duration::from_secs(900);

/// Counts changes, and blocks its thread for `blocks_for` at each page.
#[derive(Clone, Default)]
struct Counter {
    pages: Arc<AtomicU32>,
    /// How often each document was processed, by its id.
    ids: Arc<Mutex<BTreeMap<String, u32>>>,
    /// The number of events `Released`.
    released: Arc<AtomicU32>,
    /// The number of events `HandlerBlocked`.
    blocked: Arc<AtomicU32>,
    blocks_for: Duration,
}

impl ChangeHandler for Counter {
    type Item = Value;

    async fn handle(&self, changes: Changes<Value>) -> Result<(), HandlerError> {
        if !self.blocks_for.is_zero() {
            std::thread::sleep(self.blocks_for);
        }
        self.pages.fetch_add(1, Ordering::SeqCst);
        let mut ids = self.ids.lock().unwrap();
        for item in changes.items {
            *ids.entry(item["id"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
        Ok(())
    }

    fn on_event(&self, event: ProcessorEvent) {
        match event {
            ProcessorEvent::Released { .. } => self.released.fetch_add(1, Ordering::SeqCst),
            ProcessorEvent::HandlerBlocked { .. } => self.blocked.fetch_add(1, Ordering::SeqCst),
            _ => 0,
        };
    }
}

impl Counter {
    fn count(&self) -> usize {
        self.ids.lock().unwrap().len()
    }
}

#[tokio::test(start_paused = true)]
async fn a_limited_instance_leaves_no_range_without_an_owner() {
    let shop = Shop::new(4).await;
    let (limited, unlimited) = (Counter::default(), Counter::default());
    let options = |name: &str| ProcessorOptions::new().from_beginning().with_instance(name);
    let _limited = shop.start_with(&limited, options("limited").with_leases_max(1)).await;
    wait_until("the limited instance has its lease", LIMIT, async || {
        shop.shares().await.get("limited") == Some(&1)
    })
    .await;
    let _unlimited = shop.start_with(&unlimited, options("unlimited")).await;
    let expected = BTreeMap::from([("limited".to_owned(), 1), ("unlimited".to_owned(), 3)]);
    wait_until("every lease has an owner", LIMIT, async || shop.shares().await == expected).await;
}

/// An instance finds more leases in its name than it may have: it was started again with a lower
/// limit, or other instances have handed leases over to it late.
#[tokio::test(start_paused = true)]
async fn an_instance_gives_back_the_leases_beyond_its_limit() {
    let shop = Shop::new(4).await;
    let counter = Counter::default();
    let options = |name: &str| ProcessorOptions::new().from_beginning().with_instance(name);
    let first = shop.start_with(&counter, options("one")).await;
    let all = BTreeMap::from([("one".to_owned(), 4)]);
    wait_until("the first instance has all leases", LIMIT, async || shop.shares().await == all).await;
    // The first instance is killed, and so its leases keep its name.
    drop(first);
    assert_eq!(shop.shares().await, all);
    let _again = shop.start_with(&counter, options("one").with_leases_max(3)).await;
    let expected = BTreeMap::from([("one".to_owned(), 3), (String::new(), 1)]);
    wait_until("one lease is given back", LIMIT, async || shop.shares().await == expected).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_handler_that_blocks_its_thread_keeps_its_lease() {
    let shop = Shop::new(1).await;
    shop.write(0..3).await;
    let blocking = Counter { blocks_for: Duration::from_millis(1500), ..Counter::default() };
    let options = |name: &str| {
        ProcessorOptions::new().from_beginning().with_instance(name).with_lease_times(
            Duration::from_millis(600),
            Duration::from_millis(150),
            Duration::from_millis(150),
        )
    };
    let first = shop.start_with(&blocking, options("first")).await;
    let other = Counter::default();
    wait_until("the first instance has the lease", LIMIT, async || shop.shares().await.contains_key("first"))
        .await;
    let second = shop.start_with(&other, options("second")).await;
    wait_until("the page is processed", LIMIT, async || blocking.count() == 3).await;
    assert_eq!((blocking.pages.load(Ordering::SeqCst), other.pages.load(Ordering::SeqCst)), (1, 0));
    assert_eq!(blocking.released.load(Ordering::SeqCst), 0, "the lease was lost");
    first.stop().await;
    second.stop().await;
}

/// With one thread, a lease cannot be renewed while the handler blocks. The page is stored as
/// processed all the same, because no other instance has taken the lease.
#[tokio::test]
async fn a_page_whose_handler_blocked_the_only_thread_is_processed_once() {
    let shop = Shop::new(1).await;
    shop.write(0..3).await;
    let blocking = Counter { blocks_for: Duration::from_millis(900), ..Counter::default() };
    let options = ProcessorOptions::new().from_beginning().with_lease_times(
        Duration::from_millis(400),
        Duration::from_millis(100),
        Duration::from_millis(100),
    );
    let processor = shop.start_with(&blocking, options).await;
    wait_until("the position is stored", LIMIT, async || {
        blocking.count() == 3 && shop.lags().await[0].changes == 0
    })
    .await;
    assert_eq!(blocking.pages.load(Ordering::SeqCst), 1, "the page was processed again");
    assert_eq!(blocking.blocked.load(Ordering::SeqCst), 1, "there was not one HandlerBlocked event");
    processor.stop().await;
}

/// The first instance has stored the start position, which is "now", and has created its lease. It
/// has ended before it stored the marker, the document which says that all leases exist. Then the
/// range is split.
#[tokio::test(start_paused = true)]
async fn a_split_while_the_first_leases_are_created_skips_no_change() {
    let shop = Shop::new(1).await;
    shop.write(0..5).await;
    let counter = Counter::default();
    shop.start_with(&counter, ProcessorOptions::new()).await.stop().await;
    let markers: Vec<Value> =
        shop.leases.query("SELECT * FROM c WHERE ENDSWITH(c.id, '.info')").collect().await.unwrap();
    let marker = markers[0]["id"].as_str().unwrap();
    shop.leases.delete(marker, marker).await.unwrap();
    shop.write(5..25).await;
    shop.world.split("orders", "0").await;
    let second = shop.start_with(&counter, ProcessorOptions::new()).await;
    wait_until("all later changes are processed", LIMIT, async || counter.count() == 20).await;
    second.stop().await;
}

/// A region that lags: some point reads of leases get an old version.
struct LaggingRegion {
    server: InProcess,
    old_reads: Arc<OldReads>,
}

/// The reads that get an old version of the lease. The test sets both fields.
#[derive(Default)]
struct OldReads {
    /// The answer with the old version.
    answer: Mutex<Option<Response>>,
    /// How many more reads get this answer.
    left: AtomicU32,
}

impl Transport for LaggingRegion {
    async fn send(&self, request: Request) -> Result<Response, Failure> {
        let is_lease_read = request.method == Method::GET && request.target.path().contains("lease.");
        if is_lease_read {
            let take = |left: u32| left.checked_sub(1);
            let is_old = self.old_reads.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok();
            if is_old && let Some(old) = self.old_reads.answer.lock().unwrap().clone() {
                return Ok(old);
            }
        }
        self.server.send(request).await
    }
}

/// Another client has written the lease, like an instance that asks for the lease. The owner's
/// region does not show this write yet.
#[tokio::test(start_paused = true)]
async fn a_region_that_lags_does_not_take_the_lease_away() {
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    let old_reads = Arc::new(OldReads::default());
    let transport =
        LaggingRegion { server: server.embedded().transport(), old_reads: Arc::clone(&old_reads) };
    let client = Client::over(&server.endpoint(), transport).await.unwrap();
    let shop = client.create_database_if_missing("shop").await.unwrap();
    let orders = shop.create_container_if_missing(&ContainerProperties::new("orders", "/pk")).await.unwrap();
    let leases = shop.create_container_if_missing(&ContainerProperties::new("leases", "/id")).await.unwrap();
    let counter = Counter::default();
    let options = ProcessorOptions::new().from_beginning().with_instance("owner");
    let processor =
        ChangeFeedProcessor::start(&orders, &leases, "test", counter.clone(), options).await.unwrap();
    let find_lease = async || -> Value {
        let found = leases.query::<Value>("SELECT * FROM c WHERE c.owner = 'owner'").collect().await.unwrap();
        found.into_iter().next().unwrap_or_default()
    };
    wait_until("the lease has an owner", LIMIT, async || find_lease().await["owner"] == "owner").await;
    let lease = find_lease().await;
    let id = lease["id"].as_str().unwrap();
    // The next 15 reads get the lease as it is now, also after the write below.
    let direct = server.client().await.database("shop").container("leases");
    let old = http::Response::builder()
        .header("etag", lease["_etag"].as_str().unwrap())
        .body(bytes::Bytes::from(lease.to_string()))
        .unwrap();
    *old_reads.answer.lock().unwrap() = Some(old);
    old_reads.left.store(15, Ordering::SeqCst);
    let mut touched = lease.clone();
    touched["touched"] = json!(true);
    direct.replace(id, id, &touched).await.unwrap();
    orders.create("a", &json!({"id": "1", "pk": "a"})).await.unwrap();
    wait_until("the change is processed", LIMIT, async || counter.count() == 1).await;
    wait_until("the reads are used up", LIMIT, async || old_reads.left.load(Ordering::SeqCst) == 0).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(counter.released.load(Ordering::SeqCst), 0, "the lease was lost");
    assert_eq!(counter.pages.load(Ordering::SeqCst), 1, "the page was processed again");
    processor.stop().await;
}
