//! The checkers: each one checks one property of a run, from the evidence of the run.
//! The module `planted` puts bugs into a run on purpose, to prove that each checker finds such a bug.

pub mod completions;
pub mod deletions;
pub mod fences;
pub mod growth;
pub mod liveness;
pub mod memory;
pub mod reruns;
pub mod versions;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use duroxide::Event;
use serde_json::Value;

use crate::scenarios::Endings;
use crate::write_log::LoggedWrite;

/// The evidence of a run: results of calls, documents, histories, requests and writes.
#[derive(Debug, Default)]
pub struct Evidence {
    /// Wrong results of the user's calls.
    pub failed_calls: Vec<String>,
    /// The instances that the user started, and how each must end.
    pub endings: Endings,
    /// Instances that the user deleted.
    pub deleted: Vec<Deleted>,
    /// Whether everything ended, was cleaned up and was read. Otherwise the run hangs, and only
    /// `has_retention`, `runs`, `idle`, `old_processes` and `writes` are known.
    pub is_finished: bool,
    /// How long the workflows needed after the last fault.
    pub ended_after: Duration,
    /// Whether finished instances are deleted after some time.
    pub has_retention: bool,
    /// All documents at the end.
    pub documents: Vec<Value>,
    /// Documents that are still to be processed at the end, as text.
    pub leftover: Vec<String>,
    /// The history of each execution at the end, or why it could not be read.
    pub histories: Vec<(String, u64, Result<Vec<Event>, String>)>,
    /// When runs of each activity began, by its input.
    pub runs: BTreeMap<String, Vec<Duration>>,
    /// What each worker sent and has in its memory in the last part of the run, when nothing was left
    /// to do.
    pub idle: Vec<growth::IdleProcess>,
    /// The names of the processes of an earlier layout version.
    pub old_processes: BTreeSet<String>,
    /// All writes that were applied, in order.
    pub writes: Vec<LoggedWrite>,
}

/// An instance that the user deleted, with its tree.
#[derive(Debug, Clone)]
pub struct Deleted {
    pub instance: String,
    /// When the deletion was answered.
    pub at: Duration,
    /// The deleted instances whose id the user used again for a new instance.
    pub started_again: Vec<String>,
    /// The deleted incarnations of the instances in `started_again`.
    pub incarnations: Vec<String>,
}

/// One violation of a property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The name of the checker.
    pub checker: &'static str,
    pub text: String,
}

/// A checker: its name, and the function that returns the violations.
pub type Checker = (&'static str, fn(&Evidence) -> Vec<String>);

/// All checkers.
pub const ALL: [Checker; 8] = [
    ("liveness", liveness::check),
    ("completions", completions::check),
    ("reruns", reruns::check),
    ("fences", fences::check),
    ("growth", growth::check),
    ("deletions", deletions::check),
    ("memory", memory::check),
    ("versions", versions::check),
];

/// Runs all checkers.
pub fn check_all(evidence: &Evidence) -> Vec<Violation> {
    let violations = ALL
        .iter()
        .flat_map(|(checker, check)| check(evidence).into_iter().map(|text| Violation { checker, text }));
    violations.collect()
}
