//! Verifies the data of an account: that documents, ids, lists, unique keys, change feed, indexes,
//! expiry list and counters agree. `perihelion check` runs it on a directory that no server uses.
//!
//! The check reads one snapshot and changes nothing. Documents are visited in order; every key
//! that must exist for a document is looked up. Then the keys of each kind that belongs to documents
//! are counted, so that such a key without a document is noticed too.
//! An index that the upgrade of the data will fill again (`layout.rs`) is checked like an index that
//! is not ready.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use perihelion_model::json::Value;

use crate::catalog::{Catalog, Container, LAYOUT};
use crate::documents::{StoredDocument, Target, unique_values};
use crate::index::IndexGroup;
use crate::keys::{self, ContainerNumber, OwnedKeyRange, SegmentId};
use crate::layout::{self, LAYOUT_OF_PARTITION_NAMES};
use crate::region::REGION_BITS;
use crate::state::ContainerState;
use crate::storage::{Direction, Store, StoreError, StoreErrorKind, View};

/// The most problems that a report describes. A damaged file can have millions.
const PROBLEMS_DESCRIBED_MAX: usize = 100;

/// The findings of a check.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct CheckReport {
    /// The containers that were checked.
    pub containers: u64,
    /// The documents that were checked.
    pub documents: u64,
    /// The bytes of the texts of these documents.
    pub bytes: u64,
    /// The index entries that were counted.
    pub index_entries: u64,
    /// The number of problems.
    pub problems: u64,
    /// The first problems, each as a sentence.
    pub descriptions: Vec<String>,
}

impl CheckReport {
    fn add(&mut self, problem: impl FnOnce() -> String) {
        self.problems += 1;
        if self.descriptions.len() < PROBLEMS_DESCRIBED_MAX {
            self.descriptions.push(problem());
        }
    }
}

/// Checks the data that a store holds. An error means that the store could not be read. Problems in
/// the data are in the report.
pub fn check(store: &impl Store) -> Result<CheckReport, StoreError> {
    let view = store.view()?;
    let layout = layout::stored_layout(&*view)?.unwrap_or(LAYOUT);
    if layout < LAYOUT_OF_PARTITION_NAMES {
        return Err(StoreError {
            kind: StoreErrorKind::TooOld,
            message: format!(
                "an earlier version of this program wrote the data: its keys have layout {layout}, and a check can read layouts from {LAYOUT_OF_PARTITION_NAMES} on only. Start a server with the data once, which upgrades it, and check again"
            ),
        });
    }
    let catalog = Catalog::load(&*view)?;
    let expiry_entries = count_expiry_entries(&*view)?;
    let mut report = CheckReport::default();
    for container in catalog.containers() {
        report.containers += 1;
        let container = Arc::new(layout::with_usable_indexes(&*view, container, layout)?);
        let expiry_entries = expiry_entries.get(&container.number()).copied().unwrap_or(0);
        ContainerCheck::new(&*view, &container, &mut report).run(expiry_entries)?;
    }
    Ok(report)
}

/// The check of one container.
struct ContainerCheck<'a> {
    view: &'a dyn View,
    container: &'a Arc<Container>,
    report: &'a mut CheckReport,
    documents: u64,
    bytes: u64,
    /// The documents with an entry in the expiry list.
    expiring: u64,
    /// The unique keys that the documents own.
    unique_keys: u64,
    /// Whether the account has several regions.
    has_regions: bool,
    /// The greatest `_rid` counter of the documents.
    rid_max: u64,
    /// The LSN of the last document in each physical partition.
    lsns: BTreeMap<u32, u64>,
}

impl<'a> ContainerCheck<'a> {
    fn new(view: &'a dyn View, container: &'a Arc<Container>, report: &'a mut CheckReport) -> Self {
        ContainerCheck {
            view,
            container,
            report,
            documents: 0,
            bytes: 0,
            expiring: 0,
            unique_keys: 0,
            has_regions: false,
            rid_max: 0,
            lsns: Default::default(),
        }
    }

    /// `expiry_entries` is the number of the container's entries in the expiry list.
    fn run(mut self, expiry_entries: u64) -> Result<(), StoreError> {
        self.has_regions = self.state()?.is_some_and(|state| state.regions > 0);
        let segments: BTreeSet<SegmentId> = self.container.ranges.iter().map(|range| range.segment).collect();
        for segment in &segments {
            self.check_documents(*segment)?;
        }
        self.count_keys(&segments)?;
        let expiring = self.expiring;
        if expiry_entries != expiring {
            self.problem(|| {
                format!("{expiry_entries} entries in the expiry list for {expiring} documents that expire")
            });
        }
        self.check_counters()?;
        self.report.documents += self.documents;
        self.report.bytes += self.bytes;
        Ok(())
    }

    /// Reports a problem of this container.
    fn problem(&mut self, what: impl FnOnce() -> String) {
        let name = &self.container.name;
        self.report.add(|| format!("container {name}: {}", what()));
    }

    fn check_documents(&mut self, segment: SegmentId) -> Result<(), StoreError> {
        let prefix = keys::document_prefix(self.container.number(), segment);
        let view = self.view;
        let mut failure = None;
        view.scan(OwnedKeyRange::prefix(&prefix).as_range(), Direction::Forward, &mut |key, record| {
            let Some(rid) = keys::last_u64(key) else { return ControlFlow::Continue(()) };
            match self.check_document(segment, rid, &Bytes::copy_from_slice(record)) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failure = Some(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        failure.map_or(Ok(()), Err)
    }

    fn check_document(&mut self, segment: SegmentId, rid: u64, record: &Bytes) -> Result<(), StoreError> {
        self.documents += 1;
        self.rid_max = self.rid_max.max(rid);
        let Some(document) = StoredDocument::decode(record) else {
            self.problem(|| format!("the record of document {rid} in segment {segment} cannot be read"));
            return Ok(());
        };
        self.bytes += document.text.len() as u64;
        self.expiring += u64::from(document.expires_at != 0);
        let value = document.value();
        let Some((id, target)) = self.target_of(&value) else {
            self.problem(|| {
                format!("document {rid} in segment {segment} is not JSON, or has no id or partition key")
            });
            return Ok(());
        };
        if target.effective_key != document.effective_key || target.range.segment != segment {
            self.problem(|| {
                format!(
                    "document {id:?} ({rid}) is in segment {segment}, but its partition key belongs elsewhere"
                )
            });
            return Ok(());
        }
        let lsn = self.lsns.entry(target.range.id).or_default();
        *lsn = (*lsn).max(document.lsn);
        for (what, key, points_here) in self.expected_keys(&target, &id, rid, &document, &value) {
            let found = self.view.get(&key)?;
            let is_right = match &found {
                Some(value) if points_here => keys::last_u64(value) == Some(rid),
                found => found.is_some(),
            };
            if !is_right {
                self.problem(|| {
                    format!("document {id:?} ({rid}): its {what} is missing or points to another document")
                });
            }
        }
        self.check_unique_keys(&target, &id, rid, &document, &value)
    }

    /// Looks up the unique keys of a document. Another document can own them: a new document takes
    /// them from an expired one, and two regions can write the same values. When the other document is
    /// deleted, no document owns them. So a missing key is a problem only if the document cannot
    /// expire and the account has one region.
    fn check_unique_keys(
        &mut self,
        target: &Target,
        id: &str,
        rid: u64,
        document: &StoredDocument,
        value: &Value,
    ) -> Result<(), StoreError> {
        let expires = document.expires_at != 0 || document.expiry(self.container.default_ttl).is_some();
        let number = self.container.number();
        for (constraint, paths) in self.container.unique_keys.iter().enumerate() {
            let values = unique_values(value, paths);
            let key = keys::unique_key(number, &target.partition, constraint as u16, &values);
            let owner = self.view.get(&key)?.and_then(|owner| keys::last_u64(&owner));
            self.unique_keys += u64::from(owner == Some(rid));
            if owner.is_none() && !expires && !self.has_regions {
                self.problem(|| format!("document {id:?} ({rid}): its unique key is missing"));
            }
        }
        Ok(())
    }

    /// The id of a document, and the partition that it belongs to.
    fn target_of(&self, value: &Value) -> Option<(String, Target)> {
        let Value::Object(object) = value else { return None };
        let id = object.get("id").and_then(Value::as_str)?.to_owned();
        let key = self.container.partition_key.extract(object);
        Some((id, Target::resolve(self.container, key).ok()?))
    }

    /// The keys that must exist for a document, except its unique keys. Each comes with its name in
    /// messages, and with whether its value is the document's `_rid` counter.
    fn expected_keys(
        &self,
        target: &Target,
        id: &str,
        rid: u64,
        document: &StoredDocument,
        value: &Value,
    ) -> Vec<(&'static str, Vec<u8>, bool)> {
        let (number, segment) = (self.container.number(), target.range.segment);
        let mut expected = vec![
            ("id", keys::id(number, &target.partition, id), true),
            (
                "entry in the list of its partition",
                keys::partition_member(number, &target.partition, rid),
                false,
            ),
            (
                "entry in the change feed",
                keys::feed_entry(number, segment, document.lsn, document.ordinal),
                true,
            ),
        ];
        if document.expires_at != 0 {
            let key = keys::expiry(document.expires_at, number, segment, rid);
            expected.push(("entry in the expiry list", key, false));
        }
        let group = IndexGroup { partition: &target.partition, segment };
        for index in self.container.indexes.iter().filter(|index| index.is_ready) {
            expected.push(("index entry", index.entry_key(number, group, value, rid), false));
        }
        expected
    }

    /// Counts the keys of each kind that has one key per document, and the unique keys.
    fn count_keys(&mut self, segments: &BTreeSet<SegmentId>) -> Result<(), StoreError> {
        let number = self.container.number();
        let feed = segments.iter().map(|segment| keys::feed_entry_prefix(number, *segment)).collect();
        // Of each kind: its name, its prefixes, and whether every document must have such a key.
        let mut kinds: Vec<(String, Vec<Vec<u8>>, bool)> = vec![
            ("ids".to_owned(), vec![keys::id_prefix(number)], true),
            (
                "entries in lists of partitions".to_owned(),
                vec![keys::partition_member_prefix(number, &[])],
                true,
            ),
            ("entries in the change feed".to_owned(), feed, true),
        ];
        for index in self.container.indexes.iter() {
            let prefix = keys::index_prefix(number, index.id);
            kinds.push((format!("entries in index {}", index.id), vec![prefix], index.is_ready));
        }
        for (what, prefixes, is_complete) in kinds {
            let mut count = 0;
            for prefix in prefixes {
                count += count_keys(self.view, &prefix)?;
            }
            if what.contains("index") {
                self.report.index_entries += count;
            }
            let documents = self.documents;
            if count > documents || is_complete && count < documents {
                self.problem(|| format!("{count} {what} for {documents} documents"));
            }
        }
        let (count, owned) = (count_keys(self.view, &keys::unique_key_prefix(number))?, self.unique_keys);
        if count != owned {
            self.problem(|| format!("{count} unique keys, of which documents own {owned}"));
        }
        Ok(())
    }

    /// The counters; `None` if they are missing or cannot be read.
    fn state(&self) -> Result<Option<ContainerState>, StoreError> {
        let record = self.view.get(&keys::container_state(self.container.number()))?;
        Ok(record.and_then(|record| ContainerState::decode(&record)))
    }

    fn check_counters(&mut self) -> Result<(), StoreError> {
        let Some(state) = self.state()? else {
            self.problem(|| "its counters are missing or cannot be read".to_owned());
            return Ok(());
        };
        let (documents, bytes) = (self.documents, self.bytes);
        if (state.documents(), state.bytes()) != (documents, bytes) {
            let (counted, counted_bytes) = (state.documents(), state.bytes());
            self.problem(|| {
                format!("its counters say {counted} documents and {counted_bytes} bytes; it has {documents} and {bytes}")
            });
        }
        let rid_max = if state.regions == 0 { self.rid_max } else { self.rid_max >> REGION_BITS };
        if rid_max >= state.rid_next {
            self.problem(|| {
                format!("the next _rid, {}, is not above the last one, {rid_max}", state.rid_next)
            });
        }
        for (range, lsn) in std::mem::take(&mut self.lsns) {
            if lsn > state.lsn(range) {
                self.problem(|| {
                    let range_lsn = state.lsn(range);
                    format!("range {range} has a document with LSN {lsn}, above the range's LSN {range_lsn}")
                });
            }
        }
        Ok(())
    }
}

fn count_keys(view: &dyn View, prefix: &[u8]) -> Result<u64, StoreError> {
    let mut count = 0;
    view.scan(OwnedKeyRange::prefix(prefix).as_range(), Direction::Forward, &mut |_, _| {
        count += 1;
        ControlFlow::Continue(())
    })?;
    Ok(count)
}

/// The number of entries in the expiry list, by container. A deleted container can have entries.
fn count_expiry_entries(view: &dyn View) -> Result<BTreeMap<ContainerNumber, u64>, StoreError> {
    let mut counts = BTreeMap::new();
    let expiry_list = OwnedKeyRange::prefix(&keys::expiry_prefix());
    view.scan(expiry_list.as_range(), Direction::Forward, &mut |key, _| {
        if let Some((_, container, ..)) = keys::parse_expiry(key) {
            *counts.entry(container).or_default() += 1;
        }
        ControlFlow::Continue(())
    })?;
    Ok(counts)
}

#[cfg(test)]
mod tests;
