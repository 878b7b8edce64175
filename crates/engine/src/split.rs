//! Splitting a physical partition in two.
//!
//! The parent's documents, feed entries and range indexes move under the two
//! children's ids in one commit, so a split is seen whole or not at all. The
//! children go on from the parent's LSN: a continuation or session token of
//! the parent holds for both. Requests that name the parent get 410/1002.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use perihelion_model::partition_key::{EffectiveKey, EffectiveRange};

use crate::admin;
use crate::change_feed::contains;
use crate::container::{Container, PartitionRange};
use crate::document::StoredDocument;
use crate::index::{Group, IndexScope};
use crate::keys::{self, LogicalKey, RangeId, Span};
use crate::refusal::Refusal;
use crate::state::RangeState;
use crate::transaction::Transaction;
use crate::versions;

/// Splits a range in the middle of its keys; returns the children's ids.
pub(crate) fn split(
    transaction: &mut Transaction<'_>,
    container: &Arc<Container>,
    parent: RangeId,
) -> Result<[RangeId; 2], Refusal> {
    let container = admin::current(transaction, container)?;
    let range = container.range(parent).cloned().ok_or_else(Refusal::range_gone)?;
    let middle = range
        .range
        .middle(container.partition_key.version)
        .ok_or_else(|| Refusal::bad_request(format!("Range {parent} is too narrow to be split.")))?;
    let children = children_of(&container, &range, middle);
    let ids = [children[0].id, children[1].id];

    let mut mover = Mover { container: &container, parent, children: &children, places: HashMap::new() };
    let counts = mover.move_documents(transaction)?;
    mover.move_feed(transaction)?;
    mover.move_versions(transaction)?;
    replace_counters(transaction, &container, parent, ids, counts)?;

    let mut changed = Container::clone(&container);
    changed.range_next += 2;
    let place = changed.ranges.iter().position(|range| range.id == parent).unwrap_or(0);
    changed.ranges.splice(place..=place, children);
    admin::put_container(transaction, changed);
    Ok(ids)
}

fn children_of(container: &Container, parent: &PartitionRange, middle: EffectiveKey) -> [PartitionRange; 2] {
    let mut parents = parent.parents.clone();
    parents.push(parent.id);
    let child =
        |id, min, max| PartitionRange { id, range: EffectiveRange { min, max }, parents: parents.clone() };
    [
        child(container.range_next, parent.range.min.clone(), middle.clone()),
        child(container.range_next + 1, middle, parent.range.max.clone()),
    ]
}

/// How many documents and bytes went to each child.
type Counts = [(u64, u64); 2];

struct Mover<'a> {
    container: &'a Container,
    parent: RangeId,
    children: &'a [PartitionRange; 2],
    /// Where each document went.
    places: HashMap<u64, RangeId>,
}

impl Mover<'_> {
    fn child_of(&self, effective: &[u8]) -> usize {
        usize::from(!contains(&self.children[0].range, effective))
    }

    fn move_documents(&mut self, transaction: &mut Transaction<'_>) -> Result<Counts, Refusal> {
        let number = self.container.number();
        let mut counts = Counts::default();
        for (key, record) in
            transaction.entries(&Span::prefix(&keys::documents(number, self.parent)), usize::MAX)?
        {
            let (Some(rid), Some(document)) = (keys::last_u64(&key), StoredDocument::decode(&record)) else {
                continue;
            };
            let place = self.child_of(&document.effective_key);
            let child = self.children[place].id;
            counts[place].0 += 1;
            counts[place].1 += document.text.len() as u64;
            self.places.insert(rid, child);
            self.move_index_entries(transaction, rid, &document, child);
            if document.expires_at != 0 {
                transaction.remove(keys::expiry(document.expires_at, number, self.parent, rid));
                transaction.put(keys::expiry(document.expires_at, number, child, rid), Bytes::new());
            }
            transaction.remove(key);
            transaction.put(keys::document(number, child, rid), record);
        }
        Ok(counts)
    }

    fn move_index_entries(
        &self,
        transaction: &mut Transaction<'_>,
        rid: u64,
        document: &StoredDocument,
        child: RangeId,
    ) {
        let number = self.container.number();
        let mut indexes =
            self.container.indexes.iter().filter(|index| index.scope == IndexScope::Range).peekable();
        if indexes.peek().is_none() {
            return;
        }
        let value = document.value();
        // Range indexes do not look at the partition.
        let partition = LogicalKey(Vec::new());
        for index in indexes {
            let group = |range| Group { partition: &partition, range };
            transaction.remove(index.entry(number, group(self.parent), &value, rid));
            transaction.put(index.entry(number, group(child), &value, rid), Bytes::new());
        }
    }

    fn move_feed(&self, transaction: &mut Transaction<'_>) -> Result<(), Refusal> {
        let number = self.container.number();
        for (key, value) in
            transaction.entries(&Span::prefix(&keys::feeds(number, self.parent)), usize::MAX)?
        {
            let child = keys::last_u64(&value).and_then(|rid| self.places.get(&rid));
            if let (Some((lsn, place)), Some(child)) = (keys::lsn_and_place(&key), child) {
                transaction.put(keys::feed(number, *child, lsn, place), value);
            }
            transaction.remove(key);
        }
        Ok(())
    }

    fn move_versions(&self, transaction: &mut Transaction<'_>) -> Result<(), Refusal> {
        let number = self.container.number();
        for (key, record) in
            transaction.entries(&Span::prefix(&keys::versions(number, self.parent)), usize::MAX)?
        {
            if let (Some((lsn, place)), Some((effective, _))) =
                (keys::lsn_and_place(&key), versions::split_record(&record))
            {
                let child = self.children[self.child_of(effective)].id;
                transaction.put(keys::version(number, child, lsn, place), record);
            }
            transaction.remove(key);
        }
        Ok(())
    }
}

fn replace_counters(
    transaction: &mut Transaction<'_>,
    container: &Container,
    parent: RangeId,
    ids: [RangeId; 2],
    counts: Counts,
) -> Result<(), Refusal> {
    let mut state = transaction.state(container.number())?;
    let lsn = state.lsn(parent);
    state.ranges.retain(|range| range.id != parent);
    for (id, (documents, bytes)) in ids.into_iter().zip(counts) {
        state.ranges.push(RangeState { id, lsn, documents, bytes });
    }
    transaction.put_state(container.number(), &state);
    Ok(())
}
