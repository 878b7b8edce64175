//! Change feed processors: several instances that share a container, crashes, splits, poison
//! documents. Most tests run in virtual time, so that leases expire at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use perihelion_client::{
    ChangeFeedOptions, ChangeFeedProcessor, ChangeHandler, Changes, Container, ContainerProperties,
    HandlerError, PoisonDocument, ProcessorEvent, ProcessorOptions, RangeLag,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::world::World;

const PARTITION_KEY: &str = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;
/// The longest time that a test waits for a condition.
const LIMIT: Duration = Duration::from_secs(600);
/// The default of [`ProcessorOptions::lease_duration`].
const LEASE_DURATION: Duration = Duration::from_secs(60);

#[derive(Debug, Deserialize)]
struct Document {
    n: u32,
}

/// Checks a condition every second until it holds.
pub(super) async fn wait_until(what: &str, limit: Duration, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + limit;
    while !condition().await {
        assert!(tokio::time::Instant::now() < deadline, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// The changes and events that a handler has received. All clones of a `Recorder` share one record.
#[derive(Default)]
struct Record {
    /// How often each document was processed.
    processed: BTreeMap<u32, u32>,
    /// The id of each poison document, and how often the handler has failed for it alone.
    poison: Vec<(String, u32)>,
    acquired: u32,
    failures: Vec<String>,
}

/// Records the changes and events that it receives. Fails for the documents in `fails_for`.
#[derive(Clone, Default)]
struct Recorder {
    record: Arc<Mutex<Record>>,
    fails_for: BTreeSet<u32>,
    /// Whether it panics instead of returning an error.
    panics: bool,
    /// Whether a call never ends.
    hangs: bool,
    /// Whether it panics after each event.
    panics_at_events: bool,
}

impl ChangeHandler for Recorder {
    type Item = Document;

    async fn handle(&self, changes: Changes<Document>) -> Result<(), HandlerError> {
        if self.hangs {
            std::future::pending::<()>().await;
        }
        if let Some(bad) = changes.items.iter().find(|document| self.fails_for.contains(&document.n)) {
            assert!(!self.panics, "{} cannot be processed", bad.n);
            return Err(format!("{} cannot be processed", bad.n).into());
        }
        let mut record = self.record.lock().unwrap();
        for document in changes.items {
            *record.processed.entry(document.n).or_default() += 1;
        }
        Ok(())
    }

    async fn poison(&self, poison: PoisonDocument) -> Result<(), HandlerError> {
        let document: Value = serde_json::from_str(&poison.document)?;
        let id = document["id"].as_str().unwrap_or_default().to_owned();
        self.record.lock().unwrap().poison.push((id, poison.attempts));
        Ok(())
    }

    fn on_event(&self, event: ProcessorEvent) {
        let mut record = self.record.lock().unwrap();
        match event {
            ProcessorEvent::Acquired { .. } => record.acquired += 1,
            ProcessorEvent::HandlerFailed { error, .. } => record.failures.push(error.to_string()),
            ProcessorEvent::RequestFailed { error, .. } => record.failures.push(error.to_string()),
            _ => {}
        }
        drop(record);
        assert!(!self.panics_at_events, "this handler panics at each event");
    }
}

impl Recorder {
    fn processed(&self) -> BTreeMap<u32, u32> {
        self.record.lock().unwrap().processed.clone()
    }

    async fn wait_for(&self, count: usize) {
        wait_until("all changes are processed", LIMIT, async || self.processed().len() >= count).await;
    }
}

/// A container with changes, and a container of leases.
pub(super) struct Shop {
    pub(super) world: World,
    pub(super) orders: Container,
    pub(super) leases: Container,
}

impl Shop {
    pub(super) async fn new(partitions: u32) -> Shop {
        let world = World::new(partitions).await;
        let orders = world.container("orders", PARTITION_KEY).await;
        let leases = world.container("leases", r#"{"paths":["/id"],"kind":"Hash","version":2}"#).await;
        Shop { world, orders, leases }
    }

    pub(super) async fn write(&self, numbers: std::ops::Range<u32>) {
        write(&self.orders, numbers).await;
    }

    async fn start(&self, name: &str, handler: &Recorder) -> ChangeFeedProcessor {
        self.start_with(handler, options().with_instance(name)).await
    }

    pub(super) async fn start_with(
        &self,
        handler: &(impl ChangeHandler + Clone),
        options: ProcessorOptions,
    ) -> ChangeFeedProcessor {
        let started =
            ChangeFeedProcessor::start(&self.orders, &self.leases, "test", handler.clone(), options);
        started.await.unwrap_or_else(|error| panic!("{error}"))
    }

    pub(super) async fn lags(&self) -> Vec<RangeLag> {
        ChangeFeedProcessor::lag(&self.orders, &self.leases, "test", &options()).await.unwrap()
    }

    /// How many leases each instance owns; the empty name for leases without an owner.
    pub(super) async fn shares(&self) -> BTreeMap<String, usize> {
        let mut shares = BTreeMap::new();
        for lag in self.lags().await {
            *shares.entry(lag.owner.unwrap_or_default()).or_default() += 1;
        }
        shares
    }

    async fn wait_for_shares(&self, expected: &[(&str, usize)]) {
        let expected: BTreeMap<String, usize> =
            expected.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        wait_until(&format!("{expected:?}"), LIMIT, async || self.shares().await == expected).await;
    }
}

fn options() -> ProcessorOptions {
    ProcessorOptions::new().from_beginning().with_page_items_max(10)
}

async fn write(container: &Container, numbers: std::ops::Range<u32>) {
    for n in numbers {
        let key = format!("key-{}", n % 32);
        container.create(key.as_str(), &json!({"id": n.to_string(), "pk": key, "n": n})).await.unwrap();
    }
}

fn check_each_once(recorder: &Recorder, count: u32) {
    let expected: BTreeMap<u32, u32> = (0..count).map(|n| (n, 1)).collect();
    assert_eq!(recorder.processed(), expected);
}

#[tokio::test(start_paused = true)]
async fn two_instances_share_the_ranges_and_process_each_change_once() {
    let shop = Shop::new(4).await;
    let recorder = Recorder::default();
    shop.write(0..100).await;
    let first = shop.start("first", &recorder).await;
    shop.wait_for_shares(&[("first", 4)]).await;
    recorder.wait_for(100).await;
    let second = shop.start("second", &recorder).await;
    shop.wait_for_shares(&[("first", 2), ("second", 2)]).await;
    shop.write(100..200).await;
    recorder.wait_for(200).await;
    check_each_once(&recorder, 200);
    first.stop().await;
    second.stop().await;
    shop.wait_for_shares(&[("", 4)]).await;
}

#[tokio::test(start_paused = true)]
async fn the_leases_of_a_killed_instance_are_taken_when_they_have_expired() {
    let shop = Shop::new(3).await;
    let (hanging, recorder) = (Recorder { hangs: true, ..Recorder::default() }, Recorder::default());
    shop.write(0..60).await;
    let killed = shop.start("killed", &hanging).await;
    shop.wait_for_shares(&[("killed", 3)]).await;
    // The handler of the first instance has the pages and does not end. The leases of this instance
    // are renewed meanwhile, so none of them expires. The other instance may get one lease as its
    // share.
    let other = shop.start("other", &recorder).await;
    tokio::time::sleep(LEASE_DURATION * 3).await;
    assert!(shop.shares().await["killed"] >= 2, "leases of a living instance were taken as expired");
    drop(killed);
    let killed_at = tokio::time::Instant::now();
    shop.wait_for_shares(&[("other", 3)]).await;
    let seconds = killed_at.elapsed().as_secs();
    assert!((40..=120).contains(&seconds), "the leases were taken after {seconds} s");
    recorder.wait_for(60).await;
    check_each_once(&recorder, 60);
    other.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stopped_instance_releases_its_leases_and_another_continues() {
    let shop = Shop::new(2).await;
    let recorder = Recorder::default();
    shop.write(0..40).await;
    let first = shop.start("first", &recorder).await;
    recorder.wait_for(40).await;
    first.stop().await;
    assert_eq!(shop.shares().await, BTreeMap::from([(String::new(), 2)]));
    shop.write(40..60).await;
    assert_eq!(recorder.processed().len(), 40, "a stopped instance has processed changes");
    let started_at = tokio::time::Instant::now();
    let second = shop.start("second", &recorder).await;
    recorder.wait_for(60).await;
    assert!(started_at.elapsed() < LEASE_DURATION / 2, "{:?}", started_at.elapsed());
    check_each_once(&recorder, 60);
    second.stop().await;
}

/// By default a stop waits 30 s for a handler (`stop_grace`).
#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_forever_for_a_handler() {
    let shop = Shop::new(1).await;
    let hanging = Recorder { hangs: true, ..Recorder::default() };
    shop.write(0..5).await;
    let processor = shop.start("hanging", &hanging).await;
    shop.wait_for_shares(&[("hanging", 1)]).await;
    let stopped_at = tokio::time::Instant::now();
    processor.stop().await;
    let seconds = stopped_at.elapsed().as_secs();
    assert!((30..=31).contains(&seconds), "{seconds} s");
    assert_eq!(shop.shares().await, BTreeMap::from([(String::new(), 1)]));
    let lag: u64 = shop.lags().await.iter().map(|lag| lag.changes).sum();
    assert_eq!(lag, 5, "the position after a page that was not processed was stored");
}

#[tokio::test(start_paused = true)]
async fn splits_during_processing_make_new_leases_and_lose_no_change() {
    let shop = Shop::new(2).await;
    let recorder = Recorder::default();
    let first = shop.start("first", &recorder).await;
    let second = shop.start("second", &recorder).await;
    shop.wait_for_shares(&[("first", 1), ("second", 1)]).await;
    let writer = tokio::spawn({
        let orders = shop.orders.clone();
        async move {
            for start in (0..300).step_by(10) {
                write(&orders, start..start + 10).await;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    });
    for range in ["0", "1", "2"] {
        tokio::time::sleep(Duration::from_secs(7)).await;
        shop.world.split("orders", range).await;
    }
    writer.await.unwrap();
    recorder.wait_for(300).await;
    check_each_once(&recorder, 300);
    wait_until("each partition has a lease", LIMIT, async || shop.lags().await.len() == 5).await;
    let ranges: Vec<_> = shop.lags().await.into_iter().map(|lag| lag.range).collect();
    assert_eq!(ranges, shop.orders.feed_ranges().await.unwrap());
    wait_until("the shares are even", LIMIT, async || {
        let shares = shop.shares().await;
        shares.get("first").is_some_and(|count| (2..=3).contains(count)) && shares.len() == 2
    })
    .await;
    shop.write(300..340).await;
    recorder.wait_for(340).await;
    check_each_once(&recorder, 340);
    first.stop().await;
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_poison_document_is_handed_over_after_its_attempts_and_the_others_are_processed() {
    check_poison_document(false).await;
}

/// Story of a bug: a panic ended the task of the lease without an event, and the page came again
/// every few seconds for ever.
#[tokio::test(start_paused = true)]
async fn a_document_that_makes_the_handler_panic_is_a_poison_document() {
    check_poison_document(true).await;
}

async fn check_poison_document(panics: bool) {
    let shop = Shop::new(1).await;
    let recorder = Recorder { fails_for: BTreeSet::from([7]), panics, ..Recorder::default() };
    shop.write(0..20).await;
    shop.orders.create("k", &json!({"id": "no number", "pk": "k", "n": "x"})).await.unwrap();
    shop.write(20..30).await;
    let options = options().with_attempts(4, Duration::from_secs(1));
    let processor = shop.start_with(&recorder, options).await;
    recorder.wait_for(29).await;
    wait_until("two poison documents", LIMIT, async || recorder.record.lock().unwrap().poison.len() == 2)
        .await;
    let mut expected: BTreeMap<u32, u32> = (0..30).map(|n| (n, 1)).collect();
    expected.remove(&7);
    assert_eq!(recorder.processed(), expected);
    let mut poison = std::mem::take(&mut recorder.record.lock().unwrap().poison);
    poison.sort();
    assert_eq!(poison, [("7".to_owned(), 4), ("no number".to_owned(), 0)]);
    wait_until("the position is stored", LIMIT, async || shop.lags().await[0].changes == 0).await;
    processor.stop().await;
}

/// Story of a bug: a panic in `on_event` ended the supervisor and with it all workers. The application
/// was not told before it stopped the processor.
#[tokio::test(start_paused = true)]
async fn a_panic_in_on_event_stops_neither_the_supervisor_nor_a_worker() {
    let shop = Shop::new(2).await;
    let fails_for = BTreeSet::from([7]);
    let recorder = Recorder { fails_for, panics_at_events: true, ..Recorder::default() };
    shop.write(0..20).await;
    let processor = shop.start("first", &recorder).await;
    // The workers have reported that they acquired their leases and that the handler failed.
    recorder.wait_for(19).await;
    // The supervisor reports that it cannot list the leases.
    shop.world.fault(r#"{"operation":"query","container":"leases","count":1,"status":400}"#).await;
    wait_until("the supervisor has reported a failure", LIMIT, async || {
        recorder.record.lock().unwrap().failures.iter().any(|text| text.contains("400"))
    })
    .await;
    shop.write(20..40).await;
    recorder.wait_for(39).await;
    processor.stop().await;
    shop.wait_for_shares(&[("", 2)]).await;
}

/// A handler that refuses every page and has no callback for poison documents. Counts its calls.
struct RefusingHandler {
    calls: Arc<Mutex<u32>>,
}

impl ChangeHandler for RefusingHandler {
    type Item = Document;

    async fn handle(&self, _changes: Changes<Document>) -> Result<(), HandlerError> {
        *self.calls.lock().unwrap() += 1;
        Err("never".into())
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_poison_callback_no_document_is_skipped() {
    let shop = Shop::new(1).await;
    shop.write(0..1).await;
    let calls = Arc::new(Mutex::new(0));
    let handler = RefusingHandler { calls: Arc::clone(&calls) };
    let started = ChangeFeedProcessor::start(&shop.orders, &shop.leases, "test", handler, options()).await;
    wait_until("many attempts", LIMIT, async || *calls.lock().unwrap() > 20).await;
    assert_eq!(shop.lags().await[0].changes, 1);
    started.unwrap().stop().await;
}

/// A change with all versions has its log sequence number in `metadata`. A document may have a member
/// of this name too.
#[tokio::test(start_paused = true)]
async fn the_lag_counts_a_document_with_a_member_named_metadata() {
    let shop = Shop::new(1).await;
    shop.start("first", &Recorder::default()).await.stop().await;
    shop.orders.create("a", &json!({"id": "1", "pk": "a", "n": 1, "metadata": "x"})).await.unwrap();
    assert_eq!(shop.lags().await[0].changes, 1);
}

#[tokio::test(start_paused = true)]
async fn the_lag_is_the_number_of_changes_that_are_not_processed() {
    let shop = Shop::new(2).await;
    let recorder = Recorder::default();
    let first = shop.start("first", &recorder).await;
    first.stop().await;
    shop.write(0..50).await;
    let lags = shop.lags().await;
    assert_eq!((lags.len(), lags.iter().map(|lag| lag.changes).sum::<u64>()), (2, 50), "{lags:?}");
    let second = shop.start("second", &recorder).await;
    recorder.wait_for(50).await;
    wait_until("no lag", LIMIT, async || shop.lags().await.iter().all(|lag| lag.changes == 0)).await;
    second.stop().await;
}

/// Each lease has a token of its own, so the token of another feed cannot be the start. A lease that
/// lasts longer than a year is refused too.
#[tokio::test(start_paused = true)]
async fn a_processor_cannot_start_at_a_token_or_with_all_versions_at_the_beginning() {
    let shop = Shop::new(2).await;
    let mut feed = shop.orders.change_feed::<Value>(ChangeFeedOptions::from_beginning());
    feed.next_page().await.unwrap();
    let refused = async |options: ProcessorOptions| {
        let started =
            ChangeFeedProcessor::start(&shop.orders, &shop.leases, "orders", Recorder::default(), options);
        started.await.expect_err("a refusal").to_string()
    };
    let mut at_token = options();
    at_token.start = ChangeFeedOptions::resume(feed.token());
    assert!(refused(at_token).await.contains("a time before the token"));
    let mut all_versions = options();
    all_versions.has_all_versions = true;
    assert!(refused(all_versions).await.contains("all versions"));
    let mut endless = options();
    endless.lease_duration = Duration::MAX;
    assert!(refused(endless).await.contains("at most a year"));
}

/// The handler of one instance fails for ever. The other instance gets its share all the same.
#[tokio::test(start_paused = true)]
async fn an_instance_that_fails_hands_its_leases_over() {
    let shop = Shop::new(4).await;
    shop.write(0..200).await;
    let failing = RefusingHandler { calls: Arc::default() };
    let named = options().with_instance("first");
    let _first =
        ChangeFeedProcessor::start(&shop.orders, &shop.leases, "test", failing, named).await.unwrap();
    shop.wait_for_shares(&[("first", 4)]).await;
    let _second = shop.start("second", &Recorder::default()).await;
    shop.wait_for_shares(&[("first", 2), ("second", 2)]).await;
}

/// The id of the document begins like that of a lease, but the document is not a lease.
#[tokio::test(start_paused = true)]
async fn a_document_that_is_not_a_lease_blocks_no_lease() {
    let shop = Shop::new(2).await;
    let recorder = Recorder::default();
    shop.write(0..10).await;
    let first = shop.start("first", &recorder).await;
    recorder.wait_for(10).await;
    first.stop().await;
    let leases: Vec<Value> =
        shop.leases.query("SELECT * FROM c WHERE IS_DEFINED(c.token)").collect().await.unwrap();
    let id = format!("{}-foreign", leases[0]["id"].as_str().unwrap());
    shop.leases.create(id.as_str(), &json!({"id": id})).await.unwrap();
    let _second = shop.start("second", &recorder).await;
    shop.write(10..20).await;
    recorder.wait_for(20).await;
}

#[tokio::test(start_paused = true)]
async fn a_processor_that_starts_now_sees_later_changes_only() {
    let shop = Shop::new(2).await;
    shop.write(0..10).await;
    let recorder = Recorder::default();
    let first = shop.start_with(&recorder, ProcessorOptions::new()).await;
    first.stop().await;
    // The position was fixed when the processor was started for the first time.
    shop.write(10..20).await;
    let second = shop.start_with(&recorder, ProcessorOptions::new()).await;
    recorder.wait_for(10).await;
    assert_eq!(recorder.processed(), (10..20).map(|n| (n, 1)).collect());
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn lost_answers_to_lease_writes_do_not_lose_leases_or_changes() {
    let shop = Shop::new(2).await;
    let recorder = Recorder::default();
    shop.write(0..30).await;
    for operation in ["replace_item", "create_item", "query"] {
        let rule = format!(r#"{{"operation":"{operation}","container":"leases","count":4,"drop":"after"}}"#);
        shop.world.fault(&rule).await;
    }
    let processor = shop.start("first", &recorder).await;
    recorder.wait_for(30).await;
    check_each_once(&recorder, 30);
    assert_eq!(recorder.record.lock().unwrap().acquired, 2, "a lease was lost");
    processor.stop().await;
    shop.wait_for_shares(&[("", 2)]).await;
}

#[tokio::test(start_paused = true)]
async fn leases_may_be_partitioned_by_processor() {
    let shop = Shop::new(2).await;
    let database = shop.world.client.database("shop");
    let leases = ContainerProperties::new("by-processor", "/partitionKey");
    let leases = database.create_container(&leases).await.unwrap();
    let shop = Shop { leases, ..shop };
    let recorder = Recorder::default();
    shop.write(0..20).await;
    let processor = shop.start("first", &recorder).await;
    recorder.wait_for(20).await;
    shop.wait_for_shares(&[("first", 2)]).await;
    processor.stop().await;
}

#[tokio::test]
async fn options_and_containers_that_cannot_work_are_refused() {
    let shop = Shop::new(1).await;
    let start = |leases: &Container, name: &'static str, options: ProcessorOptions| {
        let (orders, leases) = (shop.orders.clone(), leases.clone());
        async move {
            let started =
                ChangeFeedProcessor::start(&orders, &leases, name, Recorder::default(), options).await;
            started.map(drop).unwrap_err().message().to_owned()
        }
    };
    let message = start(&shop.orders, "test", options()).await;
    assert!(message.contains("/id or /partitionKey"), "{message}");
    let message = start(&shop.leases, "a/b", options()).await;
    assert!(message.contains("without /"), "{message}");
    let second = Duration::from_secs(1);
    let message = start(&shop.leases, "test", options().with_lease_times(second, second, second)).await;
    assert!(message.contains("twice as long"), "{message}");
}

/// The lease documents of the processor.
async fn lease_documents(shop: &Shop) -> Vec<Value> {
    let query = "SELECT * FROM c WHERE CONTAINS(c.id, '.lease.')";
    shop.leases.query::<Value>(query).collect().await.unwrap()
}

/// How many leases each instance owns; the empty name for leases without an owner. Unlike
/// `Shop::shares`, this works also for a lease whose position cannot be read.
async fn owners(shop: &Shop) -> BTreeMap<String, usize> {
    let mut owners = BTreeMap::new();
    for lease in lease_documents(shop).await {
        *owners.entry(lease["owner"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
    }
    owners
}

/// Stores a changed lease document.
async fn store_lease(shop: &Shop, lease: &Value) {
    shop.leases.upsert(lease["id"].as_str().unwrap(), lease).await.unwrap();
}

/// An instance of a later version may have stored the position.
#[tokio::test(start_paused = true)]
async fn a_lease_whose_position_cannot_be_read_is_left_to_other_instances() {
    let shop = Shop::new(2).await;
    shop.write(0..20).await;
    let recorder = Recorder::default();
    let first = shop.start("one", &recorder).await;
    recorder.wait_for(20).await;
    // The instance is killed, so its leases keep its name.
    drop(first);
    let mut lease = lease_documents(&shop).await.remove(0);
    lease["token"] = json!(r#"{"version":2}"#);
    lease["later"] = json!(7);
    store_lease(&shop, &lease).await;
    let _again = shop.start("one", &recorder).await;
    let expected = BTreeMap::from([("one".to_owned(), 1), (String::new(), 1)]);
    wait_until("the lease is given back", LIMIT, async || owners(&shop).await == expected).await;
    let acquired = recorder.record.lock().unwrap().acquired;
    tokio::time::sleep(5 * LEASE_DURATION).await;
    assert_eq!((owners(&shop).await, recorder.record.lock().unwrap().acquired), (expected, acquired));
    let failures = recorder.record.lock().unwrap().failures.clone();
    assert!(failures.iter().any(|text| text.contains("version 2")), "{failures:?}");
    let stored = lease_documents(&shop).await.into_iter().find(|stored| stored["id"] == lease["id"]).unwrap();
    assert_eq!(stored["later"], 7, "a write of the lease has lost a member of a later version");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_not_valid_is_reported_and_does_not_block_the_others() {
    let shop = Shop::new(2).await;
    let recorder = Recorder::default();
    let first = shop.start("one", &recorder).await;
    wait_until("there are leases", LIMIT, async || lease_documents(&shop).await.len() == 2).await;
    first.stop().await;
    let mut lease = lease_documents(&shop).await.remove(0);
    lease["token"] = json!(5);
    store_lease(&shop, &lease).await;
    let _again = shop.start("one", &recorder).await;
    wait_until("the other lease is taken", LIMIT, async || owners(&shop).await.get("one") == Some(&1)).await;
    let failures = recorder.record.lock().unwrap().failures.clone();
    let id = lease["id"].as_str().unwrap();
    assert!(
        failures.iter().any(|text| text.contains(id) && text.contains("not a valid lease")),
        "{failures:?}"
    );
}
