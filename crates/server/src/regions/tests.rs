//! Tests of regions whose disks have no room for a while.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use perihelion_engine::storage::{MemoryStore, Store, StoreError, StoreErrorKind, View, Write};
use perihelion_engine::{
    ApiVersion, Container, Engine, EngineOptions, ItemOperation, NewBody, ParsedDefinition, Precondition,
    Refusal, RegionId, Replica, Target,
};
use perihelion_model::json::{Object, Value, parse_str};
use perihelion_model::partition_key::PartitionKey;
use tokio::sync::watch;

use super::{RegionNames, Regions};

const WEST: usize = 0;
const EAST: usize = 1;
const NORTH: usize = 2;
const TIMEOUT: Duration = Duration::from_secs(10);
/// How many times a test yields, so that each of the other tasks runs a few times.
const YIELDS: usize = 100;

/// A store in memory. Its commits wait while it is held, and are refused while it is full. Clones
/// are handles of the same store.
#[derive(Clone)]
struct TestStore(Arc<TestStoreState>);

struct TestStoreState {
    store: MemoryStore,
    /// Whether the engine commits on a thread of its own.
    has_thread: bool,
    disk: Mutex<Disk>,
    disk_changed: Condvar,
    /// The number of commits so far, those that wait included.
    commits: watch::Sender<usize>,
}

#[derive(Default)]
struct Disk {
    is_held: bool,
    is_full: bool,
}

impl TestStore {
    fn new(has_thread: bool) -> TestStore {
        TestStore(Arc::new(TestStoreState {
            store: MemoryStore::new(),
            has_thread,
            disk: Mutex::default(),
            disk_changed: Condvar::new(),
            commits: watch::Sender::new(0),
        }))
    }

    fn set(&self, disk: Disk) {
        *self.0.disk.lock().unwrap() = disk;
        self.0.disk_changed.notify_all();
    }
}

impl Store for TestStore {
    fn view(&self) -> Result<Box<dyn View + '_>, StoreError> {
        self.0.store.view()
    }

    fn commit(&self, writes: &mut dyn Iterator<Item = Write<'_>>) -> Result<(), StoreError> {
        self.0.commits.send_modify(|commits| *commits += 1);
        let disk = self.0.disk.lock().unwrap();
        let disk = self.0.disk_changed.wait_while(disk, |disk| disk.is_held).unwrap();
        if disk.is_full {
            return Err(StoreError { kind: StoreErrorKind::Full, message: "no room".to_owned() });
        }
        self.0.store.commit(writes)
    }

    fn is_durable(&self) -> bool {
        self.0.has_thread
    }
}

fn object(text: &str) -> Object {
    match parse_str(text) {
        Ok(Value::Object(object)) => object,
        other => panic!("{text}: {other:?}"),
    }
}

fn key() -> PartitionKey {
    PartitionKey::from_header(r#"["p"]"#).unwrap()
}

/// Two regions on these stores, with the database `d`.
async fn two_regions(stores: [&TestStore; 2]) -> Arc<Regions> {
    open_regions(&["West US", "East US"], &stores).await
}

/// Regions on these stores, with the database `d`.
async fn open_regions(names: &[&str], stores: &[&TestStore]) -> Arc<Regions> {
    let engines = stores.iter().enumerate().map(|(region, store)| {
        let replica = Replica { region: RegionId(region as u8), regions: stores.len() as u8 };
        let options = EngineOptions::default().with_replica(Some(replica));
        Arc::new(Engine::open(TestStore::clone(store), options).unwrap())
    });
    let (names, engines) = (RegionNames::new(names).unwrap(), engines.collect());
    let regions = Regions::open(names, engines, false, Duration::ZERO).await.unwrap();
    let create =
        |engine: Arc<Engine>| async move { engine.create_database(object(r#"{"id":"d"}"#), None).await };
    regions.change_catalog(create).await.unwrap();
    regions
}

async fn create_container(regions: &Arc<Regions>) -> Result<Arc<Container>, Refusal> {
    let body = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
    let definition = ParsedDefinition::parse(object(body), ApiVersion::Current).unwrap();
    let create = |engine: Arc<Engine>| async move { engine.create_container("d", definition, None).await };
    regions.change_catalog(create).await
}

/// Creates a document in the first region.
async fn write(regions: &Regions, container: &Arc<Container>, id: &str) -> Result<(), Refusal> {
    let body = NewBody::new(object(&format!(r#"{{"id":"{id}","pk":"p"}}"#)), container).unwrap();
    let operation = ItemOperation::Create { body };
    let written = regions.engine(WEST).write_item(container, key(), operation, Precondition::default());
    written.await.map(drop)
}

/// Story of a bug: the disk of a region had no room for the copy of a new container. Later the
/// region skipped the writes of this container, and they never arrived.
#[tokio::test]
async fn writes_of_a_container_arrive_in_a_region_that_could_not_copy_the_catalog() {
    let (west, east) = (TestStore::new(false), TestStore::new(false));
    let regions = two_regions([&west, &east]).await;
    east.set(Disk { is_full: true, is_held: false });
    assert_eq!(create_container(&regions).await.unwrap_err().status, 503);
    let container = regions.engine(WEST).catalog().container("d", "c").cloned().expect("a container");
    write(&regions, &container, "1").await.unwrap();

    east.set(Disk::default());
    let tasks = regions.start_tasks();
    regions.wait_until_replicated(TIMEOUT).await.unwrap();
    let copied = regions.engine(EAST).catalog().container("d", "c").cloned().expect("a copied container");
    let target = Target::resolve(&copied, key()).unwrap();
    let read = regions.engine(EAST).read_item(&target, "1", &Precondition::default(), &[]);
    assert_eq!(read.unwrap().status, 200);
    tasks.iter().for_each(|task| task.abort());
}

#[tokio::test]
async fn maintenance_copies_a_catalog_that_could_not_be_copied() {
    let (west, east) = (TestStore::new(false), TestStore::new(false));
    let regions = two_regions([&west, &east]).await;
    east.set(Disk { is_full: true, is_held: false });
    assert_eq!(create_container(&regions).await.unwrap_err().status, 503);
    assert_eq!(regions.maintain().await.unwrap_err().status, 503, "there is still no room");
    east.set(Disk::default());
    regions.maintain().await.unwrap();
    assert!(regions.engine(EAST).catalog().container("d", "c").is_some());
}

/// Story of a bug: maintenance of all regions ended at the first region that failed.
#[tokio::test]
async fn maintenance_that_fails_in_one_region_goes_on_in_the_others() {
    let [west, east, north] = [0, 1, 2].map(|_| TestStore::new(false));
    let regions = open_regions(&["West US", "East US", "North Europe"], &[&west, &east, &north]).await;
    for store in [&east, &north] {
        store.set(Disk { is_full: true, is_held: false });
    }
    assert_eq!(create_container(&regions).await.unwrap_err().status, 503);
    north.set(Disk::default());
    assert_eq!(regions.maintain().await.unwrap_err().status, 503, "there is still no room in East");
    let has_container = |region: usize| regions.engine(region).catalog().container("d", "c").is_some();
    assert_eq!([EAST, NORTH].map(has_container), [false, true]);
}

/// What moves to another region.
#[derive(Debug, Clone, Copy)]
enum Moved {
    WriteRegion,
    Range,
}

/// Story of a bug: to stop its writes, a region waited for a commit, and the disk had no room for that
/// commit. The move of the write region failed at this point, and no region took writes any more.
#[tokio::test]
async fn after_a_move_that_was_refused_for_lack_of_room_the_old_region_takes_writes() {
    for moved in [Moved::WriteRegion, Moved::Range] {
        let (west, east) = (TestStore::new(true), TestStore::new(false));
        let regions = two_regions([&west, &east]).await;
        let container = create_container(&regions).await.unwrap();
        let _tasks: Vec<_> = regions
            .pairs()
            .map(|(from, to)| tokio::spawn(super::replicator::replicate(Arc::clone(&regions), from, to)))
            .collect();

        // The first commit is held. Behind it wait a write, which needs room, and the start of the move.
        let commits = *west.0.commits.borrow();
        west.set(Disk { is_full: false, is_held: true });
        let write_value = |regions: &Arc<Regions>| {
            let regions = Arc::clone(regions);
            tokio::spawn(async move { regions.engine(WEST).set_named_value("test", "x").await })
        };
        let first = write_value(&regions);
        west.0.commits.subscribe().wait_for(|now| *now > commits).await.unwrap();
        let second = write_value(&regions);
        let change = tokio::spawn({
            let (regions, container) = (Arc::clone(&regions), Arc::clone(&container));
            async move {
                match moved {
                    Moved::WriteRegion => regions.change_write_region(EAST, TIMEOUT).await,
                    Moved::Range => regions.move_range(&container, 0, EAST, TIMEOUT).await,
                }
            }
        });
        for _ in 0..YIELDS {
            tokio::task::yield_now().await;
        }
        west.set(Disk { is_full: true, is_held: false });
        for outcome in [first.await, second.await, change.await] {
            assert_eq!(outcome.unwrap().unwrap_err().status, 503, "{moved:?}");
        }

        west.set(Disk::default());
        let written = write(&regions, &container, "1").await;
        assert_eq!(written.map_err(|refusal| refusal.message), Ok(()), "{moved:?}");
    }
}

/// Story of a bug: a container was made while the disk of a region had no room for its copy. Then the
/// write region moved there, and the container did not exist any more.
#[tokio::test]
async fn a_region_that_could_not_copy_the_catalog_copies_it_before_it_takes_writes() {
    for moved in [Moved::WriteRegion, Moved::Range] {
        let (west, east) = (TestStore::new(false), TestStore::new(false));
        let regions = two_regions([&west, &east]).await;
        east.set(Disk { is_full: true, is_held: false });
        assert_eq!(create_container(&regions).await.unwrap_err().status, 503);
        let container = regions.engine(WEST).catalog().container("d", "c").cloned().expect("a container");
        let change = || async {
            match moved {
                Moved::WriteRegion => regions.change_write_region(EAST, TIMEOUT).await,
                Moved::Range => regions.move_range(&container, 0, EAST, TIMEOUT).await,
            }
        };
        assert_eq!(change().await.unwrap_err().status, 503, "{moved:?}: there is still no room");
        write(&regions, &container, "1").await.unwrap();
        east.set(Disk::default());
        let tasks = regions.start_tasks();
        change().await.unwrap();
        tasks.iter().for_each(|task| task.abort());
        let copied = regions.engine(EAST).catalog().container("d", "c").cloned();
        let copied =
            copied.unwrap_or_else(|| panic!("{moved:?}: the container is missing in the new region"));
        let body = NewBody::new(object(r#"{"id":"2","pk":"p"}"#), &copied).unwrap();
        let operation = ItemOperation::Create { body };
        let written = regions.engine(EAST).write_item(&copied, key(), operation, Precondition::default());
        assert_eq!(written.await.unwrap().status, 201, "{moved:?}");
    }
}

/// Story of a bug: the management interface looked the container up in the new region, which did not
/// have it yet, and answered 404.
#[tokio::test]
async fn a_range_can_be_moved_by_name_to_a_region_that_could_not_copy_the_catalog() {
    let (west, east) = (TestStore::new(false), TestStore::new(false));
    let regions = two_regions([&west, &east]).await;
    east.set(Disk { is_full: true, is_held: false });
    assert_eq!(create_container(&regions).await.unwrap_err().status, 503);
    east.set(Disk::default());
    let body = object(r#"{"region":"East US","database":"d","container":"c","range":"0"}"#);
    let moved =
        crate::management::regions::answer(&regions, &http::Method::POST, "regions/write", &body).await;
    assert_eq!(moved.expect("a path about regions").map(drop), Ok(()));
    let copied = regions.engine(EAST).catalog().container("d", "c").cloned().expect("a copied container");
    assert_eq!(regions.topology().writer_of(&copied, 0), EAST);
}

/// A copy that takes too long does not hold up the account.
#[tokio::test]
async fn a_move_waits_for_the_copy_of_the_catalog_for_a_bounded_time() {
    let (west, east) = (TestStore::new(false), TestStore::new(true));
    let regions = two_regions([&west, &east]).await;
    east.set(Disk { is_full: true, is_held: false });
    assert_eq!(create_container(&regions).await.unwrap_err().status, 503);
    let container = regions.engine(WEST).catalog().container("d", "c").cloned().expect("a container");
    east.set(Disk { is_full: false, is_held: true });
    let refused = regions.change_write_region(EAST, Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(refused.status, 409, "{}", refused.message);
    assert!(refused.message.contains("did not copy"), "{}", refused.message);
    write(&regions, &container, "1").await.unwrap();
    east.set(Disk::default());
    let tasks = regions.start_tasks();
    regions.change_write_region(EAST, TIMEOUT).await.unwrap();
    tasks.iter().for_each(|task| task.abort());
}
