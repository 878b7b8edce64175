//! The graph of dependencies: its nodes are the committed transactions of a history, and an
//! edge says that one of them must come before another.

use std::collections::BTreeSet;

use super::versions::Versions;
use super::{Element, Key, Outcome};

/// Why one transaction comes before another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dependency {
    /// ww: the second appended to the list after the first.
    WriteWrite(Key),
    /// wr: the second read the list as the first had left it.
    WriteRead(Key),
    /// rw: the first read the list without an element that the second appended.
    ReadWrite(Key),
    /// The first had ended before the second began.
    RealTime,
}

impl Dependency {
    /// What two transactions with this dependency did, for a person.
    pub(super) fn describe(self, from: usize, to: usize) -> String {
        match self {
            Dependency::WriteWrite(key) => format!("T{from} appended to list {key} before T{to}"),
            Dependency::WriteRead(key) => format!("T{to} read list {key} with what T{from} had appended"),
            Dependency::ReadWrite(key) => format!("T{from} read list {key} without what T{to} appended"),
            Dependency::RealTime => format!("T{from} had ended when T{to} began"),
        }
    }
}

/// The edges from each transaction of a history.
pub(super) struct Graph {
    pub(super) edges: Vec<Vec<(usize, Dependency)>>,
}

impl Graph {
    pub(super) fn new(versions: &Versions<'_>) -> Self {
        let mut graph = Graph { edges: vec![Vec::new(); versions.history.len()] };
        graph.add_writes(versions);
        graph.add_reads(versions);
        graph.add_unread_appends(versions);
        graph.add_real_time(versions);
        graph
    }

    fn add(&mut self, from: usize, to: usize, dependency: Dependency) {
        if from != to {
            self.edges[from].push((to, dependency));
        }
    }

    /// Each element of a list comes after the element before it.
    fn add_writes(&mut self, versions: &Versions<'_>) {
        for (key, list) in &versions.longest {
            for pair in list.windows(2) {
                if let (Some(first), Some(second)) =
                    (writer(versions, *key, pair[0]), writer(versions, *key, pair[1]))
                {
                    self.add(first, second, Dependency::WriteWrite(*key));
                }
            }
        }
    }

    /// A reader comes after the writer of the last element that it read, and before the writer
    /// of the next one.
    fn add_reads(&mut self, versions: &Versions<'_>) {
        for (reader, key, list) in versions.reads() {
            if let Some(from) = list.last().and_then(|last| writer(versions, key, *last)) {
                self.add(from, reader, Dependency::WriteRead(key));
            }
            if let Some(to) =
                versions.longest[&key].get(list.len()).and_then(|next| writer(versions, key, *next))
            {
                self.add(reader, to, Dependency::ReadWrite(key));
            }
        }
    }

    /// A list never loses an element. So an append that the longest list does not show comes
    /// after that list: after the writer of its last element, and after all of its readers.
    fn add_unread_appends(&mut self, versions: &Versions<'_>) {
        let mut unread: Vec<(Key, usize)> = Vec::new();
        for (index, transaction) in versions.transactions() {
            for (key, element) in &transaction.appends {
                if versions.longest.get(key).is_some_and(|longest| !longest.contains(element)) {
                    unread.push((*key, index));
                }
            }
        }
        for (key, index) in unread {
            let longest = versions.longest[&key];
            if let Some(last) = longest.last().and_then(|last| writer(versions, key, *last)) {
                self.add(last, index, Dependency::WriteWrite(key));
            }
            let readers =
                versions.reads().filter(|(_, read, list)| *read == key && list.len() == longest.len());
            for (reader, _, _) in readers.collect::<Vec<_>>() {
                self.add(reader, index, Dependency::ReadWrite(key));
            }
        }
    }

    /// A transaction that ended comes before every transaction that began later. Edges that follow
    /// from other edges are left out: if A ended before B began, and B ended before C began, there is
    /// no edge from A to C.
    fn add_real_time(&mut self, versions: &Versions<'_>) {
        // Each event is a time, a transaction, and whether it ends at that time. Otherwise it begins.
        let mut events: Vec<(u64, usize, bool)> = Vec::new();
        for (index, transaction) in versions.transactions() {
            events.push((transaction.invoked_at, index, false));
            if transaction.outcome == Outcome::Committed {
                events.push((transaction.completed_at, index, true));
            }
        }
        events.sort_unstable();
        // The ended transactions that have no edge to another ended transaction yet.
        let mut ended: BTreeSet<usize> = BTreeSet::new();
        // The content of `ended` when each transaction began.
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); versions.history.len()];
        for (_, index, is_end) in events {
            if is_end {
                for earlier in std::mem::take(&mut before[index]) {
                    ended.remove(&earlier);
                }
                ended.insert(index);
            } else {
                before[index] = ended.iter().copied().collect();
                for earlier in &ended {
                    self.edges[*earlier].push((index, Dependency::RealTime));
                }
            }
        }
    }
}

/// The committed transaction that appended an element. An element that no committed transaction
/// appended is reported elsewhere, as an anomaly of its own kind.
fn writer(versions: &Versions<'_>, key: Key, element: Element) -> Option<usize> {
    versions.writers.get(&(key, element)).copied().filter(|writer| versions.is_committed[*writer])
}
