//! A checker of transaction histories: are they strictly serializable?
//!
//! Clients append numbers to lists and read whole lists, and record what they sent and saw
//! ([`Transaction`]). A list shows the order in which its elements were appended, so the reads
//! tell which transaction must come before which other one: the *dependencies*. A history is
//! strictly serializable if and only if some order of its transactions agrees with all
//! dependencies and with real time, so a cycle proves that it is not. The method and the names
//! of the anomalies are those of Elle (Kingsbury and Alvaro, VLDB 2020) and Adya.
//!
//! [`check`] first looks at single reads and pairs of reads (`versions`), then builds the graph of
//! dependencies (`graph`) and looks for cycles in it (`cycles`).
//!
//! # Transactions whose outcome is unknown
//!
//! A transaction with an unknown outcome counts as committed when a committed read shows one of its
//! elements, and as not executed otherwise. It has no end in real time.

mod anomaly;
mod cycles;
mod graph;
mod versions;

#[cfg(test)]
mod tests;

pub use anomaly::{Anomaly, AnomalyKind};

use graph::Graph;
use versions::Versions;

/// The number of a list.
pub type Key = u32;

/// An element of a list. No two appends to the same list have the same element.
pub type Element = u64;

/// One transaction: it reads lists, and then appends to lists.
#[derive(Debug, Clone)]
pub struct Transaction {
    /// The lists that it read, whole.
    pub reads: Vec<(Key, Vec<Element>)>,
    /// Its appends, in order.
    pub appends: Vec<(Key, Element)>,
    /// When the client began it, by a counter that all clients share.
    pub invoked_at: u64,
    /// When the client received its outcome, by the same counter. It is ignored for a transaction
    /// with an unknown outcome, which has no end.
    pub completed_at: u64,
    /// How it ended.
    pub outcome: Outcome,
}

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The service said that all writes are applied.
    Committed,
    /// The service said that nothing is applied.
    Aborted,
    /// The client does not know.
    Unknown,
}

/// Checks that a history is strictly serializable. Returns all anomalies that one or two reads show.
/// For every group of transactions that depend on each other in a circle, it also returns the most
/// serious cycle. The numbers in an anomaly are indexes of the history.
///
/// Panics if two appends have the same list and element.
pub fn check(history: &[Transaction]) -> Vec<Anomaly> {
    let versions = Versions::new(history);
    let mut anomalies = versions.check_reads();
    anomalies.extend(cycles::find(&Graph::new(&versions)));
    anomalies
}
