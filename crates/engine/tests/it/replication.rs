//! Tests of several engines as the regions of one account. When every outbox is applied
//! everywhere, all regions have the same documents, in whatever order the entries were
//! applied.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use perihelion_engine::storage::MemoryStore;
use perihelion_engine::{
    ApiVersion, Batch, BatchOperation, BatchScope, Clock, Container, Engine, EngineOptions, FeedMode,
    FeedRequest, FeedStart, ItemOperation, NewBody, ParsedDefinition, Precondition, RangeKey, RegionId,
    Replica, Role, Target,
};
use perihelion_model::json::Value;
use perihelion_model::partition_key::{KeyValue, PartitionKey};
use perihelion_model::session_token;
use perihelion_testkit::Random;

use crate::support::{ObservedStore, container, fill, object};

const DEFINITION: &str = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"defaultTtl":-1,
    "indexingPolicy":{"compositeIndexes":[[{"path":"/pk","order":"ascending"},{"path":"/n","order":"ascending"}]]}}"#;

fn key(name: &str) -> PartitionKey {
    PartitionKey::from_header(&format!("[\"{name}\"]")).unwrap()
}

/// Writes one more document.
async fn fill_again(engine: &Engine, container: &Arc<Container>) {
    let body = NewBody::new(object(r#"{"id":"more","pk":"k0"}"#), container).unwrap();
    let operation = ItemOperation::Create { body };
    engine.write_item(container, key("k0"), operation, Precondition::default()).await.unwrap();
}

/// The regions of an account.
struct Regions {
    engines: Vec<Arc<Engine>>,
    /// The time of the clocks of all engines, in seconds since 1970.
    seconds: Arc<AtomicU64>,
}

impl Regions {
    async fn new(count: u8, definition: &str) -> Regions {
        Regions::with(count, definition, EngineOptions::default()).await
    }

    async fn with(count: u8, definition: &str, options: EngineOptions) -> Regions {
        let seconds = Arc::new(AtomicU64::new(1_000_000));
        let engines = (0..count).map(|region| {
            let clock_seconds = Arc::clone(&seconds);
            let options = options
                .clone()
                .with_clock(Clock::from_fn(move || Duration::from_secs(clock_seconds.load(Ordering::SeqCst))))
                .with_replica(Some(Replica { region: RegionId(region), regions: count }));
            Arc::new(Engine::open(MemoryStore::new(), options).unwrap())
        });
        let regions = Regions { engines: engines.collect(), seconds };
        let first = &regions.engines[0];
        first.create_database(object(r#"{"id":"d"}"#), None).await.unwrap();
        let definition = ParsedDefinition::parse(object(definition), ApiVersion::Current).unwrap();
        first.create_container("d", definition, None).await.unwrap();
        regions.copy_catalog().await;
        regions
    }

    /// Copies the catalog of region 0 to the other regions.
    async fn copy_catalog(&self) {
        for engine in &self.engines[1..] {
            engine.copy_catalog_from(&self.engines[0]).await.unwrap();
            assert!(engine.has_same_catalog_as(&self.engines[0].catalog()));
        }
    }

    fn container(&self, region: usize) -> Arc<Container> {
        self.engines[region].catalog().container("d", "c").unwrap().clone()
    }

    async fn write(&self, region: usize, pk: &str, operation: ItemOperation) -> Result<String, u16> {
        let container = self.container(region);
        let answer = self.engines[region].write_item(&container, key(pk), operation, Precondition::default());
        answer.await.map(|answer| answer.etag.unwrap_or_default()).map_err(|refusal| refusal.status)
    }

    fn body(&self, pk: &str, id: &str, n: u64) -> NewBody {
        NewBody::new(object(&format!(r#"{{"id":"{id}","pk":"{pk}","n":{n}}}"#)), &self.container(0)).unwrap()
    }

    async fn upsert(&self, region: usize, pk: &str, id: &str, n: u64) -> Result<String, u16> {
        self.write(region, pk, ItemOperation::Upsert { body: self.body(pk, id, n) }).await
    }

    async fn delete(&self, region: usize, pk: &str, id: &str) -> Result<String, u16> {
        self.write(region, pk, ItemOperation::Delete { id: id.to_owned() }).await
    }

    /// Applies at most `entries_max` entries of one region's outbox to another region. Returns
    /// whether any entry was applied.
    async fn replicate(&self, from: usize, to: usize, entries_max: u64) -> bool {
        let source = RegionId(from as u8);
        let position = self.engines[to].applied_up_to(source).unwrap();
        let last = *self.engines[from].watch_outbox_end().unwrap().borrow();
        let end = last.min(position.saturating_add(entries_max));
        let page = self.engines[from].outbox(position, end).unwrap();
        !page.is_empty() && self.engines[to].apply(source, page).await.unwrap().up_to > position
    }

    /// Region 1 refuses the writes of region 0 until it has the catalog of region 0, and then
    /// applies them.
    async fn check_that_writes_wait_for_the_catalog(&self) {
        let page = self.engines[0].outbox(0, u64::MAX).unwrap();
        let refused = self.engines[1].apply(RegionId(0), page).await.unwrap_err();
        assert_eq!(refused.status, 503, "{}", refused.message);
        assert_eq!(self.engines[1].applied_up_to(RegionId(0)).unwrap(), 0);
        self.copy_catalog().await;
        assert!(self.replicate(0, 1, u64::MAX).await);
    }

    /// Replicates until every outbox is applied everywhere.
    async fn replicate_all(&self) {
        loop {
            let mut any_applied = false;
            for (from, to) in self.pairs() {
                any_applied |= self.replicate(from, to, u64::MAX).await;
            }
            if !any_applied {
                return;
            }
        }
    }

    /// All pairs of different regions.
    fn pairs(&self) -> Vec<(usize, usize)> {
        let count = self.engines.len();
        (0..count)
            .flat_map(|from| (0..count).map(move |to| (from, to)))
            .filter(|(from, to)| from != to)
            .collect()
    }

    fn read(&self, region: usize, pk: &str, id: &str) -> Option<String> {
        let target = Target::resolve(&self.container(region), key(pk)).unwrap();
        let answer = self.engines[region].read_item(&target, id, &Precondition::default(), &[]).ok()?;
        Some(String::from_utf8(answer.body.to_vec()).unwrap())
    }

    /// The texts of all documents of a region, without `_lsn`, by `_rid`, read through the change feed.
    fn documents(&self, region: usize) -> BTreeMap<String, String> {
        let container = self.container(region);
        let mut found = BTreeMap::new();
        for range in &container.ranges {
            let request = FeedRequest {
                partition_key: None,
                range: range.id,
                keys: range.keys.clone(),
                start: FeedStart::Beginning,
                mode: FeedMode::LatestVersion,
                items_max: usize::MAX,
            };
            for item in self.engines[region].change_feed(&container, &request, &[]).unwrap().items {
                let text = String::from_utf8(item.to_vec()).unwrap();
                let (text, _lsn) = text.rsplit_once(",\"_lsn\"").unwrap();
                let value = object(&format!("{text}}}"));
                let rid = value.get("_rid").and_then(Value::as_str).unwrap().to_owned();
                assert_eq!(found.insert(rid, text.to_owned()), None, "a document is in the feed once");
            }
        }
        found
    }

    fn assert_same_documents(&self, context: &str) {
        for region in 1..self.engines.len() {
            assert_eq!(self.documents(0), self.documents(region), "{context}: regions 0 and {region} differ");
            let state = |region: usize| self.engines[region].state(&self.container(region)).unwrap();
            assert_eq!(state(0).documents(), state(region).documents(), "{context}");
            assert_eq!(state(0).bytes(), state(region).bytes(), "{context}");
        }
    }
}

/// Story of a bug: a change named its partition by the hash of the key. So in the other
/// regions, a delete for one key removed the document of another key with the same hash.
#[tokio::test]
async fn keys_with_the_same_hash_are_replicated_as_different_partitions() {
    let regions = Regions::new(2, DEFINITION).await;
    let victim = "tenant-7f0d2c1e-contoso-production-0123456789!";
    let attacker = perihelion_testkit::colliding_keys::colliding_key(victim);
    let key_of = |text: &str| PartitionKey { values: vec![KeyValue::String(text.to_owned())] };
    let write = async |key: &str, operation| {
        let container = regions.container(0);
        regions.engines[0]
            .write_item(&container, key_of(key), operation, Precondition::default())
            .await
            .unwrap()
    };
    for key in [victim, attacker.as_str()] {
        let body = perihelion_model::json::object([("id", "1".into()), ("pk", key.into())]);
        let Value::Object(body) = body else { unreachable!() };
        write(key, ItemOperation::Create { body: NewBody::new(body, &regions.container(0)).unwrap() }).await;
    }
    write(&attacker, ItemOperation::Delete { id: "1".to_owned() }).await;
    regions.replicate_all().await;
    regions.assert_same_documents("after the delete");
    for engine in &regions.engines {
        let target = Target::resolve(&regions.container(0), key_of(victim)).unwrap();
        assert!(engine.read_item(&target, "1", &Precondition::default(), &[]).is_ok());
    }
}

#[tokio::test]
async fn a_replicated_document_has_the_same_text_in_both_regions() {
    let regions = Regions::new(2, DEFINITION).await;
    regions.upsert(0, "a", "1", 1).await.unwrap();
    regions.upsert(0, "a", "1", 2).await.unwrap();
    assert_eq!(regions.read(1, "a", "1"), None);
    regions.replicate_all().await;
    assert_eq!(regions.read(1, "a", "1"), regions.read(0, "a", "1"));
    regions.delete(0, "a", "1").await.unwrap();
    regions.replicate_all().await;
    assert_eq!(regions.read(1, "a", "1"), None);
    regions.assert_same_documents("one document");
}

#[tokio::test]
async fn lsns_are_the_same_everywhere_while_one_region_writes() {
    let regions = Regions::new(3, DEFINITION).await;
    for n in 0..20 {
        regions.upsert(0, ["a", "b"][n % 2], &format!("{}", n % 7), n as u64).await.unwrap();
    }
    regions.replicate_all().await;
    let lsn = |region: usize| regions.engines[region].state(&regions.container(region)).unwrap().lsn(0);
    // With these clocks a new container has LSN 1. Each of the 20 writes has the next LSN.
    assert_eq!((lsn(0), lsn(1), lsn(2)), (21, 21, 21));
    // The write region moves, and the LSNs continue.
    regions.upsert(1, "a", "x", 1).await.unwrap();
    regions.replicate_all().await;
    assert_eq!((lsn(0), lsn(1), lsn(2)), (22, 22, 22));
}

#[tokio::test]
async fn a_batch_is_replicated_as_one_entry() {
    let regions = Regions::new(2, DEFINITION).await;
    let operations = (0..5).map(|n| BatchOperation {
        operation: Ok(ItemOperation::Create { body: regions.body("a", &n.to_string(), n) }),
        precondition: Precondition::default(),
        partition_key: None,
    });
    let batch = Batch {
        scope: BatchScope::Partition(key("a")),
        operations: operations.collect(),
        is_atomic: true,
        continues_on_error: false,
        returns_written: true,
    };
    assert!(!regions.engines[0].batch(&regions.container(0), batch).await.unwrap().has_failed());
    assert!(regions.replicate(0, 1, 1).await, "one entry");
    assert_eq!(regions.documents(1).len(), 5);
    regions.assert_same_documents("a batch");
}

#[tokio::test]
async fn the_later_write_or_delete_wins_in_every_region() {
    let regions = Regions::new(2, DEFINITION).await;
    regions.upsert(0, "a", "1", 1).await.unwrap();
    regions.seconds.fetch_add(10, Ordering::SeqCst);
    regions.upsert(1, "a", "1", 2).await.unwrap();
    regions.upsert(0, "b", "2", 1).await.unwrap();
    regions.replicate_all().await;
    for region in 0..2 {
        assert!(regions.read(region, "a", "1").unwrap().contains("\"n\":2"), "{region}");
    }
    // Region 0 changes a document. Region 1 deletes it later, before it has applied that
    // change.
    regions.upsert(0, "b", "2", 5).await.unwrap();
    regions.seconds.fetch_add(10, Ordering::SeqCst);
    regions.delete(1, "b", "2").await.unwrap();
    assert!(regions.replicate(0, 1, u64::MAX).await);
    assert_eq!(regions.read(1, "b", "2"), None, "the older write does not bring it back");
    regions.replicate_all().await;
    assert_eq!(regions.read(0, "b", "2"), None);
    // A document with the same id can be created again.
    regions.upsert(0, "b", "2", 6).await.unwrap();
    regions.replicate_all().await;
    assert!(regions.read(1, "b", "2").unwrap().contains("\"n\":6"));
    regions.assert_same_documents("later wins");
}

#[tokio::test]
async fn an_outbox_entry_waits_for_the_writes_that_its_region_had_applied() {
    let regions = Regions::new(3, DEFINITION).await;
    regions.upsert(0, "a", "1", 1).await.unwrap();
    assert!(regions.replicate(0, 1, u64::MAX).await);
    regions.delete(1, "a", "1").await.unwrap();
    assert!(
        !regions.replicate(1, 2, u64::MAX).await,
        "region 2 has not applied the write of the deleted document"
    );
    assert!(regions.replicate(0, 2, u64::MAX).await);
    assert!(regions.replicate(1, 2, u64::MAX).await);
    regions.replicate_all().await;
    regions.assert_same_documents("in order");
}

#[tokio::test]
async fn a_region_that_refuses_writes_still_applies_other_regions_writes() {
    let regions = Regions::new(2, DEFINITION).await;
    regions.engines[1].set_role(Role::READ_ONLY).await.unwrap();
    assert_eq!(regions.upsert(1, "a", "1", 1).await, Err(403));
    regions.upsert(0, "a", "1", 1).await.unwrap();
    regions.replicate_all().await;
    assert!(regions.read(1, "a", "1").is_some());
    regions.engines[1]
        .set_role(Role { accepts_writes: true, removes_expired: true, exceptions: Vec::new() })
        .await
        .unwrap();
    assert!(regions.upsert(1, "a", "1", 2).await.is_ok());
}

/// Region 1 accepts the writes of one range, and region 0 those of all other ranges. When the range
/// is split, region 1 accepts the writes of its children. Region 1 also removes the expired
/// documents of the range.
#[tokio::test]
async fn the_writes_of_one_range_can_be_accepted_in_another_region() {
    let regions = Regions::new(2, DEFINITION).await;
    let split = async |range| {
        let children = regions.engines[0].split(&regions.container(0), range).await.unwrap();
        regions.copy_catalog().await;
        children
    };
    let [_, moved] = split(0).await;
    let range_of = |name: &str| Target::resolve(&regions.container(0), key(name)).unwrap().range.id;
    let names: Vec<String> = (0..20).map(|number| format!("k{number}")).collect();
    let name_in = |is_moved| names.iter().find(|name| (range_of(name) == moved) == is_moved).unwrap();
    let (here, there) = (name_in(false), name_in(true));
    let exceptions = vec![RangeKey { container: regions.container(0).number(), range: moved }];
    let first = Role { accepts_writes: true, removes_expired: true, exceptions: exceptions.clone() };
    regions.engines[0].set_role(first).await.unwrap();
    regions.engines[1].set_role(Role { exceptions, ..Role::READ_ONLY }).await.unwrap();
    let check = async || {
        assert!(regions.upsert(0, here, "1", 1).await.is_ok());
        assert_eq!(regions.upsert(1, here, "1", 1).await, Err(403));
        assert_eq!(regions.upsert(0, there, "1", 1).await, Err(403));
        assert!(regions.upsert(1, there, "1", 1).await.is_ok());
    };
    check().await;
    split(moved).await;
    check().await;
    regions.replicate_all().await;
    regions.assert_same_documents("a moved range");
    for (region, name) in [(0, here), (1, there)] {
        let body = object(&format!(r#"{{"id":"2","pk":"{name}","ttl":5}}"#));
        let body = NewBody::new(body, &regions.container(0)).unwrap();
        regions.write(region, name, ItemOperation::Upsert { body }).await.unwrap();
    }
    regions.replicate_all().await;
    regions.seconds.fetch_add(10, Ordering::SeqCst);
    let document_count = |region: usize| {
        let state = regions.engines[region].state(&regions.container(region)).unwrap();
        state.ranges.iter().map(|range| range.documents).sum::<i64>()
    };
    assert_eq!([document_count(0), document_count(1)], [4, 4]);
    regions.engines[0].maintain().await.unwrap();
    assert_eq!([document_count(0), document_count(1)], [3, 4], "region 0 leaves the moved range alone");
    regions.engines[1].maintain().await.unwrap();
    assert_eq!([document_count(0), document_count(1)], [3, 3]);
    regions.replicate_all().await;
    assert_eq!([document_count(0), document_count(1)], [2, 2]);
}

#[tokio::test]
async fn a_read_is_refused_until_the_writes_of_its_session_are_applied() {
    let regions = Regions::new(2, DEFINITION).await;
    regions.upsert(1, "a", "1", 1).await.unwrap();
    let position = regions.engines[1].state(&regions.container(1)).unwrap().position(0);
    assert_eq!(position.applied_lsns.as_deref(), Some([1, 2].as_slice()));
    let token = session_token::parse("0:1#2#0=1#1=2").unwrap();
    let read = || {
        let target = Target::resolve(&regions.container(0), key("a")).unwrap();
        regions.engines[0].read_item(&target, "1", &Precondition::default(), &token)
    };
    let refusal = read().unwrap_err();
    assert_eq!((refusal.status, refusal.sub_status), (404, Some(1002)));
    // Writes of region 0 do not replace the missing write of region 1.
    regions.upsert(0, "a", "2", 1).await.unwrap();
    regions.upsert(0, "a", "3", 1).await.unwrap();
    assert_eq!(read().unwrap_err().sub_status, Some(1002));
    regions.replicate_all().await;
    assert_eq!(read().unwrap().status, 200);
}

#[tokio::test]
async fn writes_are_replicated_after_an_outbox_was_trimmed() {
    let regions = Regions::new(2, DEFINITION).await;
    for n in 0..2500 {
        regions.upsert(0, "a", &n.to_string(), n).await.unwrap();
    }
    regions.replicate_all().await;
    let applied = regions.engines[1].applied_up_to(RegionId(0)).unwrap();
    assert_eq!(applied, 2500);
    // One call removes at most 1,000 records of the outbox.
    let mut calls = 1;
    while regions.engines[0].trim_outbox(applied).await.unwrap() < applied {
        calls += 1;
    }
    assert!((3..6).contains(&calls), "{calls} calls");
    assert!(regions.engines[0].outbox(0, u64::MAX).unwrap().is_empty());
    regions.upsert(0, "a", "more", 1).await.unwrap();
    regions.replicate_all().await;
    regions.assert_same_documents("trimmed");
}

#[tokio::test]
async fn a_full_outbox_stops_the_writes_until_the_other_region_has_caught_up() {
    let regions = Regions::with(2, DEFINITION, EngineOptions::default().with_outbox_max(3)).await;
    for n in 0..3 {
        regions.upsert(0, "a", &n.to_string(), n).await.unwrap();
    }
    assert_eq!(regions.upsert(0, "a", "4", 1).await, Err(503));
    assert!(regions.read(0, "a", "2").is_some(), "reads go on");
    regions.replicate_all().await;
    assert_eq!(regions.engines[0].trim_outbox(3).await.unwrap(), 3);
    assert!(regions.upsert(0, "a", "4", 1).await.is_ok());
}

/// Story of a bug: maintenance stopped at its first failure. While the outbox was full, every run
/// failed at the removal of expired documents, and the rest of the work was never done.
#[tokio::test]
async fn a_full_outbox_does_not_stop_the_other_work_of_maintenance() {
    let seconds = Arc::new(AtomicU64::new(1_000_000));
    let clock_seconds = Arc::clone(&seconds);
    let options = EngineOptions::default()
        .with_outbox_max(3)
        .with_clock(Clock::from_fn(move || Duration::from_secs(clock_seconds.load(Ordering::SeqCst))))
        .with_replica(Some(Replica { region: RegionId(0), regions: 2 }));
    let store = ObservedStore::new(|_| {});
    let engine = Arc::new(Engine::open(store.clone(), options).unwrap());
    engine.create_database(object(r#"{"id":"d"}"#), None).await.unwrap();
    let deleted = container(&engine, "deleted").await;
    fill(&engine, &deleted, 1, 1).await;
    engine.delete_container(&deleted, None).await.unwrap();
    let definition = ParsedDefinition::parse(object(DEFINITION), ApiVersion::Current).unwrap();
    let kept = engine.create_container("d", definition, None).await.unwrap();
    for id in 0..2 {
        let body = NewBody::new(object(&format!(r#"{{"id":"{id}","pk":"a","ttl":5}}"#)), &kept).unwrap();
        let operation = ItemOperation::Create { body };
        engine.write_item(&kept, key("a"), operation, Precondition::default()).await.unwrap();
    }
    seconds.fetch_add(10, Ordering::SeqCst);
    // The first byte of the keys of documents is 0x10 (`keys.rs`).
    assert_eq!(store.keys(&[0x10]).len(), 3);
    assert_eq!(engine.maintain().await.unwrap_err().status, 503, "the outbox is full");
    assert_eq!(store.keys(&[0x10]).len(), 2, "the document of the deleted container is purged");
}

/// Story of a bug: a region whose copy of the catalog had failed skipped the writes of a new
/// container and counted them as applied, so the documents never arrived.
#[tokio::test]
async fn writes_of_a_container_that_is_not_copied_yet_wait_for_the_copy() {
    let regions = Regions::new(2, DEFINITION).await;
    let new = container(&regions.engines[0], "new").await;
    fill(&regions.engines[0], &new, 2, 1).await;
    regions.check_that_writes_wait_for_the_catalog().await;
    assert_eq!(regions.engines[1].state(&new).unwrap().documents(), 2);

    // The writes of a container that was deleted need not wait.
    fill_again(&regions.engines[0], &new).await;
    regions.engines[0].delete_container(&new, None).await.unwrap();
    regions.copy_catalog().await;
    assert!(regions.replicate(0, 1, u64::MAX).await);
}

/// Story of a bug: the copy compared the lists of containers only, found them equal, and left the number
/// of the next container as it was. All replicated writes then waited for ever.
#[tokio::test]
async fn writes_of_a_container_deleted_before_its_copy_do_not_block_other_writes() {
    let regions = Regions::new(2, DEFINITION).await;
    let short_lived = container(&regions.engines[0], "short-lived").await;
    fill(&regions.engines[0], &short_lived, 2, 1).await;
    regions.engines[0].delete_container(&short_lived, None).await.unwrap();
    regions.upsert(0, "a", "1", 1).await.unwrap();
    regions.copy_catalog().await;
    assert!(regions.replicate(0, 1, u64::MAX).await);
    regions.assert_same_documents("after the copy");
}

#[tokio::test]
async fn writes_of_a_range_that_is_not_copied_yet_wait_for_the_copy() {
    let regions = Regions::new(2, DEFINITION).await;
    regions.engines[0].split(&regions.container(0), 0).await.unwrap();
    regions.upsert(0, "a", "1", 1).await.unwrap();
    regions.check_that_writes_wait_for_the_catalog().await;
    regions.assert_same_documents("after the copy");
}

#[tokio::test]
async fn a_tombstone_is_stored_for_a_day() {
    const DAY: u64 = 24 * 60 * 60;
    for (wait, comes_back) in [(DAY - 60, false), (DAY + 60, true)] {
        let regions = Regions::new(2, DEFINITION).await;
        regions.upsert(0, "a", "1", 1).await.unwrap();
        regions.replicate_all().await;
        // Region 1 has a change that is not replicated yet.
        regions.upsert(1, "a", "1", 2).await.unwrap();
        regions.seconds.fetch_add(10, Ordering::SeqCst);
        regions.delete(0, "a", "1").await.unwrap();
        regions.seconds.fetch_add(wait, Ordering::SeqCst);
        regions.engines[0].maintain().await.unwrap();
        assert!(regions.replicate(1, 0, 1).await);
        assert_eq!(regions.read(0, "a", "1").is_some(), comes_back, "after {wait} s");
    }
}

#[tokio::test]
async fn a_copied_catalog_has_the_same_ranges_and_rids() {
    let regions = Regions::new(2, DEFINITION).await;
    let first = &regions.engines[0];
    first.split(&regions.container(0), 0).await.unwrap();
    first.split(&regions.container(0), 1).await.unwrap();
    first.create_database(object(r#"{"id":"e"}"#), None).await.unwrap();
    regions.copy_catalog().await;
    let ranges = |region: usize| regions.container(region).ranges.clone();
    assert_eq!((ranges(0).len(), ranges(0)), (3, ranges(1)));
    assert_eq!(regions.container(0).rid_text, regions.container(1).rid_text);
    regions.upsert(0, "a", "1", 1).await.unwrap();
    regions.replicate_all().await;
    let container = regions.container(0);
    first.delete_container(&container, None).await.unwrap();
    first.delete_database("e").await.unwrap();
    regions.copy_catalog().await;
    assert!(regions.engines[1].catalog().container("d", "c").is_none());
    assert!(regions.engines[1].catalog().database("e").is_none());
}

#[tokio::test]
async fn writes_of_a_range_that_was_split_count_as_applied_in_both_children() {
    let regions = Regions::new(2, DEFINITION).await;
    for n in 0..10 {
        regions.upsert(0, &format!("k{n}"), "1", n).await.unwrap();
    }
    assert!(regions.replicate(0, 1, 3).await);
    regions.engines[0].split(&regions.container(0), 0).await.unwrap();
    regions.copy_catalog().await;
    regions.upsert(0, "k1", "2", 1).await.unwrap();
    regions.replicate_all().await;
    regions.assert_same_documents("split");
    let [here, there] =
        [0, 1].map(|region| regions.engines[region].state(&regions.container(region)).unwrap());
    for range in &here.ranges {
        assert_eq!(
            range.applied_lsns[0],
            there.range(range.id).unwrap().applied_lsns[0],
            "range {}",
            range.id
        );
    }
}

#[tokio::test]
async fn one_region_removes_expired_documents_for_all_regions() {
    let regions = Regions::new(2, DEFINITION).await;
    regions.engines[1].set_role(Role::READ_ONLY).await.unwrap();
    let body = NewBody::new(object(r#"{"id":"1","pk":"a","ttl":5}"#), &regions.container(0)).unwrap();
    regions.write(0, "a", ItemOperation::Create { body }).await.unwrap();
    regions.replicate_all().await;
    regions.seconds.fetch_add(6, Ordering::SeqCst);
    for engine in &regions.engines {
        engine.maintain().await.unwrap();
    }
    let count =
        |region: usize| regions.engines[region].state(&regions.container(region)).unwrap().documents();
    assert_eq!((count(0), count(1)), (0, 1), "the other region waits for the change");
    assert_eq!(regions.read(1, "a", "1"), None, "but the expired document is not visible");
    regions.replicate_all().await;
    assert_eq!(count(1), 0);
    regions.assert_same_documents("expired");
}

#[tokio::test]
async fn two_regions_that_write_the_same_unique_key_keep_both_documents() {
    let unique = DEFINITION
        .replace("\"defaultTtl\":-1", "\"uniqueKeyPolicy\":{\"uniqueKeys\":[{\"paths\":[\"/n\"]}]}");
    let regions = Regions::new(2, &unique).await;
    regions.upsert(0, "a", "1", 7).await.unwrap();
    regions.upsert(1, "a", "2", 7).await.unwrap();
    regions.replicate_all().await;
    regions.assert_same_documents("both stay");
    assert_eq!(regions.documents(0).len(), 2);
    assert_eq!(regions.upsert(0, "a", "3", 7).await, Err(409));
    regions.delete(0, "a", "1").await.unwrap();
    regions.delete(0, "a", "2").await.unwrap();
    assert!(regions.upsert(0, "a", "3", 7).await.is_ok(), "the key is free again");
}

/// Writes at random in all regions, with random replication, splits and times. In the end
/// all regions must have the same documents.
async fn random_history(seed: u64) {
    let mut random = Random::new(seed);
    let regions = Regions::new(3, DEFINITION).await;
    for _ in 0..300 {
        let region = random.below(3) as usize;
        let (pk, id) = (format!("k{}", random.below(3)), random.below(6).to_string());
        match random.below(12) {
            0..=5 => drop(regions.upsert(region, &pk, &id, random.below(1000)).await.unwrap()),
            6 | 7 => drop(regions.delete(region, &pk, &id).await),
            8 => drop(regions.seconds.fetch_add(random.below(2), Ordering::SeqCst)),
            9 if random.one_in(8) => {
                let ranges = regions.container(0).ranges.clone();
                let range = &ranges[random.below(ranges.len() as u64) as usize];
                regions.engines[0].split(&regions.container(0), range.id).await.unwrap();
                regions.copy_catalog().await;
            }
            _ => {
                let pairs = regions.pairs();
                let (from, to) = pairs[random.below(pairs.len() as u64) as usize];
                regions.replicate(from, to, 1 + random.below(5)).await;
            }
        }
    }
    regions.replicate_all().await;
    regions.assert_same_documents(&format!("seed {seed}"));
}

#[tokio::test]
async fn regions_that_all_write_converge() {
    for seed in 0..60 {
        random_history(seed).await;
    }
}

#[tokio::test]
async fn a_renamed_document_is_renamed_in_every_region() {
    let regions = Regions::new(2, DEFINITION).await;
    // The new id has a tombstone, which must not stop the rename.
    regions.upsert(0, "a", "new", 0).await.unwrap();
    regions.delete(0, "a", "new").await.unwrap();
    regions.upsert(0, "a", "old", 1).await.unwrap();
    regions.replicate_all().await;
    let body = regions.body("a", "new", 2);
    regions.write(0, "a", ItemOperation::Replace { id: "old".to_owned(), body }).await.unwrap();
    regions.replicate_all().await;
    for region in 0..2 {
        assert_eq!(regions.read(region, "a", "old"), None);
        assert!(regions.read(region, "a", "new").unwrap().contains("\"n\":2"));
    }
    assert_eq!(regions.documents(0), regions.documents(1));
    regions.upsert(1, "a", "old", 3).await.unwrap();
    regions.replicate_all().await;
    assert_eq!(regions.documents(0), regions.documents(1));
    assert_eq!(regions.documents(0).len(), 2);
}

/// Story of a bug: a renamed document kept its `_rid`. So both new documents had the same `_rid`, and
/// each region stored one of them over the other.
#[tokio::test]
async fn regions_that_rename_one_document_differently_agree_on_both() {
    let regions = Regions::new(2, DEFINITION).await;
    regions.upsert(0, "a", "old", 1).await.unwrap();
    regions.replicate_all().await;
    for (region, name) in [(0, "x"), (1, "y")] {
        let body = regions.body("a", name, 2);
        regions.write(region, "a", ItemOperation::Replace { id: "old".to_owned(), body }).await.unwrap();
    }
    regions.replicate_all().await;
    assert_eq!(regions.documents(0), regions.documents(1));
    assert_eq!(regions.documents(0).len(), 2);
    for region in 0..2 {
        for name in ["x", "y"] {
            let text = regions.read(region, "a", name).unwrap();
            assert!(text.contains(&format!("\"id\":\"{name}\"")), "{text}");
        }
        assert_eq!(regions.read(region, "a", "old"), None);
    }
}
