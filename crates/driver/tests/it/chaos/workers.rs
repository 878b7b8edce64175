//! Workers. A worker repeats one kind of operation until the run stops, and records the
//! results in the record of the run. Each method that takes `self` by value is the loop of one
//! worker.
//!
//! A document has one writer, except `swap` and `contest-*`, for which two writers
//! compete. The writers of a document count up, so a reader knows the least value that
//! it must see.

mod feed_reader;
mod readers;
mod writers;

pub(super) use feed_reader::NEXT_PAGE;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use perihelion_driver::operation::{Target, Verb, Witness};
use perihelion_driver::{Container, Driver, Error, Operation, OperationOptions, Response};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::fault_transport::OPERATION_HEADER;
use super::run_record::{AFTERMATH, CHAOS, End, Record, Reported, RunRecord, STOP};
use super::setup::{PARTITIONS, Setup};
use crate::world::customer;

/// The longest pause between two operations of a worker.
const PAUSE_MS_MAX: u64 = 400;
/// The longest pause in the first phase of a rough run, which has longer outages.
const ROUGH_PAUSE_MS_MAX: u64 = 1000;
/// The longest pause in the aftermath. It is short enough that requests probe the open
/// breakers.
const AFTERMATH_PAUSE_MS_MAX: u64 = 4000;

/// The usual timeout of an operation. The faults of a gentle run never exhaust it.
const TIMEOUT_USUAL: Duration = Duration::from_secs(65);

/// One worker.
pub(super) struct Worker {
    driver: Driver,
    orders: Arc<Container>,
    scratch: Arc<Container>,
    run_record: Arc<RunRecord>,
    rng: fastrand::Rng,
    partition: &'static str,
    /// Whether half of the operations have short timeouts, as in rough runs.
    has_short_timeouts: bool,
    /// Whether all regions take writes. Then two writers of one document can both succeed,
    /// each in another region.
    is_multi_write: bool,
}

/// Starts all workers.
pub(super) fn start(
    setup: &Setup,
    run_record: &Arc<RunRecord>,
    rng: &mut fastrand::Rng,
    has_short_timeouts: bool,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let mut worker = |partition: usize| Worker {
        driver: setup.driver.clone(),
        orders: Arc::clone(&setup.orders),
        scratch: Arc::clone(&setup.scratch),
        run_record: Arc::clone(run_record),
        rng: rng.fork(),
        partition: PARTITIONS[partition],
        has_short_timeouts,
        is_multi_write: setup.is_multi_write,
    };
    tasks.spawn(worker(0).upsert());
    tasks.spawn(worker(1).set());
    tasks.spawn(worker(2).replace());
    tasks.spawn(worker(3).count());
    tasks.spawn(worker(4).swap());
    tasks.spawn(worker(4).swap());
    tasks.spawn(worker(5).contest());
    tasks.spawn(worker(5).contest());
    tasks.spawn(worker(6).cycle());
    tasks.spawn(worker(7).batch());
    tasks.spawn(worker(7).guarded_batch());
    tasks.spawn(worker(0).read());
    tasks.spawn(worker(0).read());
    tasks.spawn(worker(0).query());
    tasks.spawn(worker(0).change_feed());
    tasks.spawn(worker(0).use_scratch_container());
    tasks
}

/// An operation, and what is recorded about it.
struct PlannedOperation {
    kind: &'static str,
    document: String,
    value: u64,
    operation: Operation,
}

impl Worker {
    fn is_stopped(&self) -> bool {
        self.run_record.phase() == STOP
    }

    async fn pause(&mut self) {
        let most = match self.run_record.phase() {
            AFTERMATH => AFTERMATH_PAUSE_MS_MAX,
            CHAOS if self.has_short_timeouts => ROUGH_PAUSE_MS_MAX,
            _ => PAUSE_MS_MAX,
        };
        tokio::time::sleep(Duration::from_millis(self.rng.u64(1..=most))).await;
    }

    fn timeout(&mut self) -> Duration {
        let is_short = self.has_short_timeouts && self.rng.bool();
        if is_short { Duration::from_millis(self.rng.u64(200..=8000)) } else { TIMEOUT_USUAL }
    }

    /// Runs an operation and records it.
    async fn run(&mut self, planned: PlannedOperation) -> Result<Response, Error> {
        let (id, timeout) = (self.run_record.next_id(), self.timeout());
        let PlannedOperation { kind, document, value, operation } = planned;
        self.run_record.begin(Record {
            id,
            kind,
            is_write: !operation.verb.is_read(),
            document,
            value,
            began: Instant::now(),
            timeout,
            phase: self.run_record.phase(),
            end: None,
        });
        let operation = operation.with_header(OPERATION_HEADER, HeaderValue::from(id));
        let options = OperationOptions::default().with_timeout(timeout).with_hedged_writes(self.rng.bool());
        let result = self.driver.execute(&operation, &options).await;
        let diagnostics = match &result {
            Ok(response) => response.diagnostics.clone(),
            Err(error) => error.diagnostics().clone(),
        };
        self.run_record.end(id, End { at: Instant::now(), reported: Reported::of(&result), diagnostics });
        result
    }

    /// The document's name in the record of the run.
    fn name(&self, id: &str) -> String {
        format!("{}/{id}", self.partition)
    }

    /// An operation on a document of the worker's partition.
    fn item(&self, verb: Verb, id: &str, body: String) -> Operation {
        let target = match verb {
            Verb::Create | Verb::Upsert | Verb::Batch => Target::items(&self.orders),
            _ => Target::item(&self.orders, id),
        };
        Operation::new(verb, target, customer(self.partition), Bytes::from(body))
    }

    /// An operation on the document `id`, with what is recorded about it.
    fn plan(&self, kind: &'static str, id: &str, value: u64, operation: Operation) -> PlannedOperation {
        PlannedOperation { kind, document: self.name(id), value, operation }
    }

    /// Reads a document for a writer.
    async fn fetch(&mut self, id: &str) -> Result<Response, Error> {
        let read = self.item(Verb::Read, id, String::new());
        self.run(self.plan("fetch", id, 0, read)).await
    }
}

fn witness(id: &str, pointer: String, value: Value) -> Witness {
    Witness { id: id.to_owned(), pointer, value }
}

fn json(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap_or_default()
}
