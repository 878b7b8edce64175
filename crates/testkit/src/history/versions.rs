//! `Versions`: the order of the elements of each list, and whether each transaction counts as
//! committed. It also finds the anomalies that one or two reads show by themselves.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{Anomaly, AnomalyKind, Element, Key, Outcome, Transaction};

/// The facts about the lists that the reads of a history show.
pub(super) struct Versions<'h> {
    pub(super) history: &'h [Transaction],
    /// Whether each transaction counts as committed.
    pub(super) is_committed: Vec<bool>,
    /// The longest list that a committed transaction read, by key.
    pub(super) longest: BTreeMap<Key, &'h [Element]>,
    /// Which transaction appended an element.
    pub(super) writers: HashMap<(Key, Element), usize>,
}

impl<'h> Versions<'h> {
    pub(super) fn new(history: &'h [Transaction]) -> Self {
        let mut writers = HashMap::new();
        for (index, transaction) in history.iter().enumerate() {
            for append in &transaction.appends {
                let earlier = writers.insert(*append, index);
                assert_eq!(earlier, None, "the element {append:?} is appended twice");
            }
        }
        let is_committed = committed(history, &writers);
        let mut versions = Versions { history, is_committed, longest: BTreeMap::new(), writers };
        for (_, key, list) in versions.reads().collect::<Vec<_>>() {
            let longest = versions.longest.entry(key).or_default();
            if list.len() > longest.len() {
                *longest = list;
            }
        }
        versions
    }

    /// All reads of committed transactions: the transaction, the key and the list.
    pub(super) fn reads(&self) -> impl Iterator<Item = (usize, Key, &'h [Element])> + use<'_, 'h> {
        self.transactions().flat_map(|(index, transaction)| {
            transaction.reads.iter().map(move |(key, list)| (index, *key, list.as_slice()))
        })
    }

    /// All committed transactions with their indexes.
    pub(super) fn transactions(&self) -> impl Iterator<Item = (usize, &'h Transaction)> + use<'_, 'h> {
        self.history.iter().enumerate().filter(|(index, _)| self.is_committed[*index])
    }

    /// The anomalies that need no graph.
    pub(super) fn check_reads(&self) -> Vec<Anomaly> {
        let mut anomalies = Vec::new();
        for (reader, key, list) in self.reads() {
            anomalies.extend(self.check_elements(reader, key, list));
            anomalies.extend(self.check_last_element(reader, key, list));
            if !self.longest[&key].starts_with(list) {
                let longest = self.longest[&key];
                let text =
                    format!("T{reader} read {list:?} of list {key}, but another read shows {longest:?}");
                anomalies.push(Anomaly::new(AnomalyKind::IncompatibleOrder, vec![reader], text));
            }
        }
        anomalies.extend(self.lost_updates());
        anomalies
    }

    fn check_elements(&self, reader: usize, key: Key, list: &[Element]) -> Vec<Anomaly> {
        let mut anomalies = Vec::new();
        let mut seen = HashSet::new();
        for element in list {
            let read = || format!("T{reader} read element {element} of list {key}");
            if !seen.insert(*element) {
                anomalies.push(Anomaly::new(
                    AnomalyKind::Duplicate,
                    vec![reader],
                    format!("{} twice", read()),
                ));
            }
            match self.writers.get(&(key, *element)) {
                None => {
                    let text = format!("{}, which was never appended", read());
                    anomalies.push(Anomaly::new(AnomalyKind::Garbage, vec![reader], text));
                }
                Some(writer) if !self.is_committed[*writer] => {
                    let text = format!("{} of T{writer}, which was aborted", read());
                    anomalies.push(Anomaly::new(AnomalyKind::AbortedRead, vec![*writer, reader], text));
                }
                Some(_) => {}
            }
        }
        anomalies
    }

    /// A read list may not end between two appends of one transaction. If another transaction has
    /// appended between the two, `cycles` finds that as a cycle of writes.
    fn check_last_element(&self, reader: usize, key: Key, list: &[Element]) -> Option<Anomaly> {
        let last = list.last()?;
        let writer = *self.writers.get(&(key, *last))?;
        let final_append =
            self.history[writer].appends.iter().rfind(|(appended_to, _)| *appended_to == key)?;
        let text = || {
            format!("T{reader} read list {key} up to {last}, but T{writer} also appended {}", final_append.1)
        };
        (final_append.1 != *last)
            .then(|| Anomaly::new(AnomalyKind::IntermediateRead, vec![writer, reader], text()))
    }

    /// Pairs of transactions that read the same state of a list and both appended to it.
    fn lost_updates(&self) -> Vec<Anomaly> {
        // By the state that was read (the list, its last element, its length): the last transaction
        // that read this state and appended to the list.
        let mut updates: BTreeMap<(Key, Option<Element>, usize), usize> = BTreeMap::new();
        let mut anomalies = Vec::new();
        for (index, key, list) in self.reads() {
            if !self.history[index].appends.iter().any(|(appended_to, _)| *appended_to == key) {
                continue;
            }
            if let Some(other) = updates.insert((key, list.last().copied(), list.len()), index) {
                let text =
                    format!("T{other} and T{index} both read {list:?} of list {key} and appended to it");
                anomalies.push(Anomaly::new(AnomalyKind::LostUpdate, vec![other, index], text));
            }
        }
        anomalies
    }
}

/// Whether each transaction counts as committed: its outcome is `Committed`; or its outcome is
/// unknown, and a transaction that counts as committed has read one of its elements.
fn committed(history: &[Transaction], writers: &HashMap<(Key, Element), usize>) -> Vec<bool> {
    let mut is_committed: Vec<bool> =
        history.iter().map(|transaction| transaction.outcome == Outcome::Committed).collect();
    let mut to_visit: Vec<usize> = (0..history.len()).filter(|index| is_committed[*index]).collect();
    while let Some(reader) = to_visit.pop() {
        let elements =
            history[reader].reads.iter().flat_map(|(key, list)| list.iter().map(|element| (*key, *element)));
        for writer in elements.filter_map(|element| writers.get(&element)) {
            if history[*writer].outcome == Outcome::Unknown && !is_committed[*writer] {
                is_committed[*writer] = true;
                to_visit.push(*writer);
            }
        }
    }
    is_committed
}
