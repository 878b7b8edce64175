//! What the workers asked and what they were told: the history that the
//! checkers judge, and the floors below which no read of the session may fall.

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
    pub(super) what: &'static str,
    pub(super) is_write: bool,
    /// The document's name, and what it was to become, for people.
    pub(super) document: String,
    pub(super) value: u64,
    pub(super) began: Instant,
    pub(super) timeout: Duration,
    pub(super) phase: u32,
    /// `None` while it is under way.
    pub(super) end: Option<End>,
}

/// How an operation ended.
#[derive(Debug, Clone)]
pub(super) struct End {
    pub(super) at: Instant,
    pub(super) told: Told,
    pub(super) diagnostics: Diagnostics,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    Ok,
    /// A status of 207: the batch was refused.
    BatchRefused,
    Failed(ErrorKind, Option<Status>),
}

impl Told {
    pub(super) fn of(result: &Result<Response, Error>) -> Told {
        match result {
            Ok(response) if response.status.code == 207 => Told::BatchRefused,
            Ok(_) => Told::Ok,
            Err(error) => Told::Failed(error.kind(), error.status()),
        }
    }

    pub(super) fn is_ambiguous(self) -> bool {
        matches!(self, Told::Failed(ErrorKind::Ambiguous, _))
    }
}

/// The phases of a run. First, faults.
pub(super) const CHAOS: u32 = 0;
/// Faults have stopped; what they left behind fades.
pub(super) const AFTERMATH: u32 = 1;
/// Everything must work.
pub(super) const LIVE: u32 = 2;
pub(super) const STOP: u32 = 3;

#[derive(Default)]
pub(super) struct Ledger {
    pub(super) phase: AtomicU32,
    /// Even: the scratch container is there; odd: it is being replaced.
    pub(super) epoch: AtomicU64,
    records: Mutex<Vec<Record>>,
    /// The document that each is about, and what is wrong.
    problems: Mutex<Vec<(String, String)>>,
    floors: Mutex<HashMap<String, u64>>,
}

impl Ledger {
    pub(super) fn phase(&self) -> u32 {
        self.phase.load(Ordering::SeqCst)
    }

    pub(super) fn next_id(&self) -> u32 {
        self.records.lock().unwrap().len() as u32
    }

    /// Begins the operation whose id was just asked for.
    pub(super) fn begin(&self, record: Record) {
        let mut records = self.records.lock().unwrap();
        assert_eq!(record.id as usize, records.len(), "ids are given in order");
        records.push(record);
    }

    pub(super) fn end(&self, id: u32, end: End) {
        self.records.lock().unwrap()[id as usize].end = Some(end);
    }

    pub(super) fn records(&self) -> Vec<Record> {
        self.records.lock().unwrap().clone()
    }

    pub(super) fn floor(&self, document: &str) -> u64 {
        self.floors.lock().unwrap().get(document).copied().unwrap_or(0)
    }

    /// The value was acknowledged or read: no later read may show less.
    pub(super) fn raise(&self, document: &str, value: u64) {
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

    pub(super) fn report(&self, document: &str, problem: String) {
        self.problems.lock().unwrap().push((document.to_owned(), problem));
    }

    pub(super) fn take_problems(&self) -> Vec<(String, String)> {
        std::mem::take(&mut self.problems.lock().unwrap())
    }
}
