//! Workers: each repeats one kind of operation until the run stops, and tells
//! the ledger what it was told.
//!
//! A document has one writer, but for `swap` and `contest-*`, which are fought
//! over. Writers of a document count up, so that a reader knows what it must
//! see.

mod readers;
mod writers;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use perihelion_driver::operation::{Target, Verb, Witness};
use perihelion_driver::{Container, Driver, Error, Operation, OperationOptions, Response};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::ledger::{AFTERMATH, CHAOS, End, Ledger, Record, STOP, Told};
use super::stage::{PARTITIONS, Stage};
use super::tap::OPERATION;
use crate::world::customer;

/// Between two operations of a worker, at most.
const PAUSE_MS_MAX: u64 = 400;
/// The same in a rough run, whose outages take longer.
const ROUGH_PAUSE_MS_MAX: u64 = 1000;
/// The same while what faults left behind fades: enough to notice that.
const AFTERMATH_PAUSE_MS_MAX: u64 = 4000;

/// The usual end-to-end timeout, which rationed faults never exhaust.
const TIMEOUT_USUAL: Duration = Duration::from_secs(65);

/// What a worker works with.
pub(super) struct Worker {
    driver: Driver,
    orders: Arc<Container>,
    scratch: Arc<Container>,
    ledger: Arc<Ledger>,
    rng: fastrand::Rng,
    partition: &'static str,
    /// Whether operations have timeouts that faults outlast.
    is_hurried: bool,
    /// Those who fight over a document can both win, each in a region.
    is_multi_write: bool,
}

/// Starts all workers.
pub(super) fn start(
    stage: &Stage,
    ledger: &Arc<Ledger>,
    rng: &mut fastrand::Rng,
    is_hurried: bool,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let mut worker = |place: usize| Worker {
        driver: stage.driver.clone(),
        orders: Arc::clone(&stage.orders),
        scratch: Arc::clone(&stage.scratch),
        ledger: Arc::clone(ledger),
        rng: rng.fork(),
        partition: PARTITIONS[place % PARTITIONS.len()],
        is_hurried,
        is_multi_write: stage.is_multi_write,
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
    tasks.spawn(worker(0).visit_scratch());
    tasks
}

/// An operation and what the ledger is to know about it.
struct Ask {
    what: &'static str,
    document: String,
    value: u64,
    operation: Operation,
}

impl Worker {
    fn is_stopped(&self) -> bool {
        self.ledger.phase() == STOP
    }

    async fn pause(&mut self) {
        let most = match self.ledger.phase() {
            AFTERMATH => AFTERMATH_PAUSE_MS_MAX,
            CHAOS if self.is_hurried => ROUGH_PAUSE_MS_MAX,
            _ => PAUSE_MS_MAX,
        };
        tokio::time::sleep(Duration::from_millis(self.rng.u64(1..=most))).await;
    }

    fn timeout(&mut self) -> Duration {
        let is_short = self.is_hurried && self.rng.bool();
        if is_short { Duration::from_millis(self.rng.u64(200..=8000)) } else { TIMEOUT_USUAL }
    }

    /// Runs an operation and writes it down.
    async fn run(&mut self, ask: Ask) -> Result<Response, Error> {
        let (id, timeout) = (self.ledger.next_id(), self.timeout());
        let Ask { what, document, value, operation } = ask;
        self.ledger.begin(Record {
            id,
            what,
            is_write: !operation.verb.is_read(),
            document,
            value,
            began: Instant::now(),
            timeout,
            phase: self.ledger.phase(),
            end: None,
        });
        let operation = operation.with_header(OPERATION, HeaderValue::from(id));
        let options = OperationOptions::default().with_timeout(timeout);
        let result = self.driver.execute(&operation, &options).await;
        let diagnostics = match &result {
            Ok(response) => response.diagnostics.clone(),
            Err(error) => error.diagnostics().clone(),
        };
        self.ledger.end(id, End { at: Instant::now(), told: Told::of(&result), diagnostics });
        result
    }

    /// The name under which the ledger keeps a document's floor.
    fn name(&self, id: &str) -> String {
        format!("{}/{id}", self.partition)
    }

    fn item(&self, verb: Verb, id: &str, body: String) -> Operation {
        let target = match verb {
            Verb::Create | Verb::Upsert | Verb::Batch => Target::items(&self.orders),
            _ => Target::item(&self.orders, id),
        };
        Operation::new(verb, target, customer(self.partition), Bytes::from(body))
    }

    fn ask(&self, what: &'static str, id: &str, value: u64, operation: Operation) -> Ask {
        Ask { what, document: self.name(id), value, operation }
    }

    async fn fetch(&mut self, id: &str) -> Result<Response, Error> {
        let read = self.item(Verb::Read, id, String::new());
        self.run(self.ask("fetch", id, 0, read)).await
    }
}

fn witness(id: &str, pointer: String, value: Value) -> Witness {
    Witness { id: id.to_owned(), pointer, value }
}

fn json(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap_or_default()
}
