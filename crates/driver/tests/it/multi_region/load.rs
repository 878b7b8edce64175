//! Constant load. Each key has one writer, which counts up. Several readers know the *floor* of
//! each key: the least value that they must see.
//!
//! The load has epochs, because a container that is deleted and recreated is empty
//! again. In an even epoch the container exists, in an odd epoch it does not. An
//! operation that begins and ends in the same even epoch must see all acknowledged writes
//! of that epoch. Any other operation may find nothing.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use perihelion_driver::operation::{Scope, Target, Verb};
use perihelion_driver::{Container, Driver, Error, Operation, OperationOptions};
use perihelion_testkit::regions::REGIONS;
use tokio::task::JoinSet;

use super::MultiRegion;
use crate::world::{customer, document};

/// The number of keys. Each key is a customer with a partition of its own.
pub(super) const KEYS: usize = 24;
const WRITERS: usize = 6;
const READERS: usize = 6;
/// The most containers that a test has one after the other. Each container has an even
/// epoch and the odd epoch after it.
const CONTAINERS_MAX: usize = 4;

/// State that all tasks of the load share.
struct SharedState {
    epoch: AtomicU64,
    /// For each container and key, the highest value acknowledged or read: no later
    /// read may show less.
    floors: Vec<Vec<AtomicU64>>,
    is_stopped: AtomicBool,
    writes: AtomicU64,
    reads: AtomicU64,
    problems: Mutex<Vec<String>>,
}

/// The running load.
pub(super) struct Load {
    state: Arc<SharedState>,
    tasks: JoinSet<()>,
}

impl Load {
    pub(super) fn start(regions: &MultiRegion) -> Load {
        let floors = || (0..KEYS).map(|_| AtomicU64::new(0)).collect();
        let state = Arc::new(SharedState {
            epoch: AtomicU64::new(0),
            floors: (0..CONTAINERS_MAX).map(|_| floors()).collect(),
            is_stopped: AtomicBool::new(false),
            writes: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            problems: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        for writer in 0..WRITERS {
            let task = Task::new(regions, &state);
            tasks.spawn(async move { task.write_all(writer).await });
        }
        for reader in 0..READERS {
            let task = Task::new(regions, &state);
            tasks.spawn(async move { task.read_all(reader).await });
        }
        Load { state, tasks }
    }

    /// Lets the load run until writers and readers have each made this many more
    /// operations, which shows that neither is stuck.
    pub(super) async fn continue_for(&self, operations: u64) {
        let target = |counter: &AtomicU64| counter.load(Ordering::SeqCst) + operations;
        let (writes, reads) = (target(&self.state.writes), target(&self.state.reads));
        let progress = async {
            while self.state.writes.load(Ordering::SeqCst) < writes
                || self.state.reads.load(Ordering::SeqCst) < reads
            {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let result = tokio::time::timeout(Duration::from_secs(30), progress).await;
        assert!(result.is_ok(), "the load is stuck: {:?}", self.state.problems.lock().unwrap());
    }

    /// Begins the next epoch: the container is about to be deleted, or has been created
    /// again.
    pub(super) fn next_epoch(&self) {
        self.state.epoch.fetch_add(1, Ordering::SeqCst);
    }

    /// Stops the load, lets replication finish, and checks every region.
    pub(super) async fn finish(mut self, regions: &MultiRegion) {
        self.state.is_stopped.store(true, Ordering::SeqCst);
        while let Some(task) = self.tasks.join_next().await {
            task.unwrap();
        }
        let problems = std::mem::take(&mut *self.state.problems.lock().unwrap());
        assert!(
            problems.is_empty(),
            "{} problems, first: {:#?}",
            problems.len(),
            &problems[..problems.len().min(5)]
        );
        regions.wait_for_replication().await;
        let epoch = self.state.epoch.load(Ordering::SeqCst);
        for region in REGIONS {
            for key in 0..KEYS {
                let floor = self.state.floors[epoch as usize / 2][key].load(Ordering::SeqCst);
                if floor > 0 {
                    let response = regions.run_in(region, &read(&regions.orders, key)).await;
                    let value = document(&response)["n"].as_u64().unwrap();
                    assert!(value >= floor, "{region} lost a write of key {key}: {value} < {floor}");
                }
            }
        }
    }
}

/// A writer or a reader of the load.
struct Task {
    driver: Driver,
    orders: Arc<Container>,
    state: Arc<SharedState>,
}

impl Task {
    fn new(regions: &MultiRegion, state: &Arc<SharedState>) -> Task {
        Task { driver: regions.driver.clone(), orders: Arc::clone(&regions.orders), state: Arc::clone(state) }
    }

    async fn write_all(self, writer: usize) {
        let mut value = 0;
        while !self.state.is_stopped.load(Ordering::SeqCst) {
            value += 1;
            for key in (writer..KEYS).step_by(WRITERS) {
                self.write(key, value).await;
            }
        }
    }

    async fn write(&self, key: usize, value: u64) {
        let epoch = self.state.epoch.load(Ordering::SeqCst);
        let body = format!(r#"{{"id":"{key}","customer":"c{key}","n":{value}}}"#);
        let upsert = Operation::new(Verb::Upsert, Target::items(&self.orders), scope(key), Bytes::from(body));
        let result = self.driver.execute(&upsert, &OperationOptions::default()).await;
        match result {
            Ok(_) if self.is_same_container(epoch) => {
                self.state.floors[epoch as usize / 2][key].fetch_max(value, Ordering::SeqCst);
            }
            Ok(_) => {}
            Err(error) => self.report_unless_expected(epoch, &format!("write {value} of key {key}"), &error),
        }
        self.state.writes.fetch_add(1, Ordering::SeqCst);
    }

    async fn read_all(self, reader: usize) {
        let mut key = reader;
        while !self.state.is_stopped.load(Ordering::SeqCst) {
            // 7 and the number of keys have no common divisor, so a reader visits every key.
            key = (key + 7) % KEYS;
            self.read(key).await;
        }
    }

    async fn read(&self, key: usize) {
        let epoch = self.state.epoch.load(Ordering::SeqCst);
        let floors = &self.state.floors[epoch as usize / 2];
        let floor = floors[key].load(Ordering::SeqCst);
        let result = self.driver.execute(&read(&self.orders, key), &OperationOptions::default()).await;
        match result {
            Ok(response) if self.is_same_container(epoch) => {
                let value = document(&response)["n"].as_u64().unwrap();
                if value < floor {
                    self.report(format!(
                        "key {key} went back from {floor} to {value}: {}",
                        response.diagnostics
                    ));
                }
                floors[key].fetch_max(value, Ordering::SeqCst);
            }
            Ok(_) => {}
            Err(error) if error.is_not_found() && floor == 0 => tokio::task::yield_now().await,
            Err(error) => self.report_unless_expected(epoch, &format!("read of key {key}"), &error),
        }
        self.state.reads.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether the same container has existed since `epoch` was read.
    fn is_same_container(&self, epoch: u64) -> bool {
        epoch.is_multiple_of(2) && self.state.epoch.load(Ordering::SeqCst) == epoch
    }

    /// Reports an error. The exception is "not found" when the container may not have
    /// existed for the whole operation.
    fn report_unless_expected(&self, epoch: u64, what: &str, error: &Error) {
        if self.is_same_container(epoch) || !error.is_not_found() {
            self.report(format!("{what}: {error:?}"));
        }
    }

    fn report(&self, problem: String) {
        self.state.problems.lock().unwrap().push(problem);
    }
}

fn scope(key: usize) -> Scope {
    customer(&format!("c{key}"))
}

/// The operation that reads the document of a key.
pub(super) fn read(orders: &Arc<Container>, key: usize) -> Operation {
    Operation::new(Verb::Read, Target::item(orders, &key.to_string()), scope(key), Bytes::new())
}
