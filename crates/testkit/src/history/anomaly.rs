//! `Anomaly`: something that is wrong with a history, and a text that describes it.

use std::fmt;

use super::graph::Dependency;

/// The kinds of anomalies, with Adya's names where they exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AnomalyKind {
    /// A read shows an element that no transaction appended.
    Garbage,
    /// A read shows an element twice: a transaction was applied twice.
    Duplicate,
    /// Two reads of a list do not agree about the order of its elements.
    IncompatibleOrder,
    /// G1a, a dirty read: a read shows an element of an aborted transaction.
    AbortedRead,
    /// G1b: a read shows a part of the appends that one transaction made to a list.
    IntermediateRead,
    /// Two committed transactions read the same state of a list, and both appended to it.
    LostUpdate,
    /// G0: transactions overwrite each other in a circle.
    WriteCycle,
    /// G1c: transactions see each other's writes in a circle.
    CircularInformationFlow,
    /// G-single, such as read skew: a cycle with exactly one read that missed a write.
    SingleAntiDependency,
    /// G2, such as write skew: a cycle with several reads that missed a write.
    AntiDependency,
    /// A cycle that has a dependency by real time, and would not be a cycle without it: the history
    /// is serializable, but not strictly.
    RealTime,
}

/// Something that cannot happen in a strictly serializable history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anomaly {
    /// The kind of the anomaly.
    pub kind: AnomalyKind,
    /// The transactions that show it, as indexes of the history. Each transaction of a cycle
    /// comes before the next one, and the last before the first.
    pub transactions: Vec<usize>,
    /// A description of what each transaction did.
    pub text: String,
}

impl Anomaly {
    pub(super) fn new(kind: AnomalyKind, transactions: Vec<usize>, text: String) -> Self {
        Anomaly { kind, transactions, text }
    }

    /// A cycle: each transaction with its dependency to the next one.
    pub(super) fn cycle(kind: AnomalyKind, steps: &[(usize, Dependency)]) -> Self {
        let next = |index: usize| steps[(index + 1) % steps.len()].0;
        let lines: Vec<String> = steps
            .iter()
            .enumerate()
            .map(|(index, (from, dependency))| dependency.describe(*from, next(index)))
            .collect();
        Anomaly::new(kind, steps.iter().map(|(transaction, _)| *transaction).collect(), lines.join("; "))
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.text)
    }
}
