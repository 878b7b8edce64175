//! The record of a run: the operations of the workers with their results, and the floor
//! of each document. The checkers read it. The floor is the highest value that was
//! acknowledged or read. All workers share one driver, and so one session: no later read
//! may show less than the floor.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use perihelion_driver::diagnostics::Diagnostics;
use perihelion_driver::{Error, ErrorKind, Response, Status};
use tokio::time::Instant;

/// One operation, from its beginning to its end.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) id: u32,
    pub(super) kind: &'static str,
    pub(super) is_write: bool,
    /// The document's name: partition and id.
    pub(super) document: String,
    /// For reports: the value that is written, or the least value that a read must see.
    pub(super) value: u64,
    pub(super) began: Instant,
    pub(super) timeout: Duration,
    /// The phase in which the operation began.
    pub(super) phase: u32,
    /// `None` while the operation is in progress.
    pub(super) end: Option<End>,
}

/// The end of an operation.
#[derive(Debug, Clone)]
pub(super) struct End {
    pub(super) at: Instant,
    pub(super) reported: Reported,
    pub(super) diagnostics: Diagnostics,
}

/// What the driver reported to the caller of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reported {
    Ok,
    /// A status of 207: the batch was refused.
    BatchRefused,
    Failed(ErrorKind, Option<Status>),
}

impl Reported {
    pub(super) fn of(result: &Result<Response, Error>) -> Reported {
        match result {
            Ok(response) if response.status.code == 207 => Reported::BatchRefused,
            Ok(_) => Reported::Ok,
            Err(error) => Reported::Failed(error.kind(), error.status()),
        }
    }

    pub(super) fn is_ambiguous(self) -> bool {
        matches!(self, Reported::Failed(ErrorKind::Ambiguous, _))
    }
}

/// The first phase of a run: there are faults.
pub(super) const CHAOS: u32 = 0;
/// The second phase: faults have stopped, and the driver recovers from them.
pub(super) const AFTERMATH: u32 = 1;
/// The third phase: the driver has recovered, and an operation may fail only because of
/// the state of the data.
pub(super) const RECOVERED: u32 = 2;
/// The end: workers stop.
pub(super) const STOP: u32 = 3;

/// The record of one run.
#[derive(Default)]
pub(super) struct RunRecord {
    pub(super) phase: AtomicU32,
    /// Even: the scratch container exists; odd: it is being replaced.
    pub(super) epoch: AtomicU64,
    records: Mutex<Vec<Record>>,
    /// The problems that workers found, each with the name of its document.
    problems: Mutex<Vec<(String, String)>>,
    floors: Mutex<HashMap<String, u64>>,
}

impl RunRecord {
    pub(super) fn phase(&self) -> u32 {
        self.phase.load(Ordering::SeqCst)
    }

    /// The id of the operation that begins next.
    pub(super) fn next_id(&self) -> u32 {
        self.records.lock().unwrap().len() as u32
    }

    /// Records that an operation begins. Its id must come from `next_id`.
    pub(super) fn begin(&self, record: Record) {
        let mut records = self.records.lock().unwrap();
        assert_eq!(record.id as usize, records.len(), "ids are given in order");
        records.push(record);
    }

    /// Records the end of the operation with this id.
    pub(super) fn end(&self, id: u32, end: End) {
        self.records.lock().unwrap()[id as usize].end = Some(end);
    }

    pub(super) fn records(&self) -> Vec<Record> {
        self.records.lock().unwrap().clone()
    }

    pub(super) fn floor(&self, document: &str) -> u64 {
        self.floors.lock().unwrap().get(document).copied().unwrap_or(0)
    }

    /// Raises the floor of a document: the value was acknowledged or read.
    pub(super) fn raise_floor(&self, document: &str, value: u64) {
        let mut floors = self.floors.lock().unwrap();
        let floor = floors.entry(document.to_owned()).or_default();
        *floor = value.max(*floor);
    }

    pub(super) fn floors(&self) -> Vec<(String, u64)> {
        let mut floors: Vec<_> =
            self.floors.lock().unwrap().iter().map(|(name, floor)| (name.clone(), *floor)).collect();
        floors.sort();
        floors
    }

    /// Adds a problem that a worker found.
    pub(super) fn report(&self, document: &str, problem: String) {
        self.problems.lock().unwrap().push((document.to_owned(), problem));
    }

    pub(super) fn take_problems(&self) -> Vec<(String, String)> {
        std::mem::take(&mut self.problems.lock().unwrap())
    }
}
