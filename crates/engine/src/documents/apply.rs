//! Applying the changes of another region. A document is stored with the `_rid`, `_etag` and `_ts`
//! that it has in the other region, unless this region has the same version or a later one.

use std::sync::Arc;

use bytes::Bytes;
use perihelion_model::json::{self, Value};
use perihelion_model::partition_key::EffectiveKey;
use perihelion_wire::status;

use super::content::KeySource;
use super::items::{self, ItemWrite, Precondition, Target, WriteStamps};
use super::stored::StoredDocument;
use super::version_log::RemovalReason;
use crate::catalog::Container;
use crate::keys::{self, ContainerNumber, LogicalPartition, RangeId};
use crate::ledger::{self, LedgerEntry};
use crate::refusal::Refusal;
use crate::region::RegionId;
use crate::replication::{Change, ChangeOperation, OutboxEntry, OutboxRecord, Tombstones, Version};
use crate::transaction::Transaction;

/// The progress of applying outbox entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// Every entry of the outbox up to this number is applied here.
    pub up_to: u64,
    /// How many of the entries were applied by this call.
    pub new_entries: usize,
    /// Whether the next entry must wait for writes of a third region.
    pub is_blocked: bool,
}

/// The number of the last applied entry of a region's outbox, from the record that
/// stores it; 0 if none is applied.
pub(crate) fn decode_applied_up_to(record: Option<Bytes>) -> u64 {
    record.and_then(|record| keys::last_u64(&record)).unwrap_or(0)
}

/// Applies the entries that are not applied yet, in order, up to the first entry that must wait for
/// writes of a third region.
pub(crate) fn apply(
    transaction: &mut Transaction<'_>,
    source: RegionId,
    entries: &[OutboxEntry],
) -> Result<Applied, Refusal> {
    let applied_before = decode_applied_up_to(transaction.get(&keys::applied_up_to(source.0))?);
    let mut applied = Applied { up_to: applied_before, new_entries: 0, is_blocked: false };
    for entry in entries.iter().filter(|entry| entry.sequence > applied_before) {
        let records = entry.changes.iter().map(OutboxRecord::decode).collect::<Option<Vec<_>>>();
        let records = records.ok_or_else(|| unreadable(&format!("Entry {}", entry.sequence)))?;
        if !can_be_applied(transaction, source, &records)? {
            applied.is_blocked = true;
            break;
        }
        apply_entry(transaction, source, records)?;
        applied.up_to = entry.sequence;
        applied.new_entries += 1;
    }
    if applied.new_entries > 0 {
        transaction.put(keys::applied_up_to(source.0), applied.up_to.to_be_bytes().to_vec());
    }
    Ok(applied)
}

/// Whether the changes can be applied now. They must wait until this region has applied, in their
/// ranges, every write of a third region that the source region had applied before it made the
/// changes.
fn can_be_applied(
    transaction: &Transaction<'_>,
    source: RegionId,
    records: &[OutboxRecord],
) -> Result<bool, Refusal> {
    let Some(own) = transaction.replica else { return Ok(true) };
    for record in records {
        let OutboxRecord::Change(change) = record else { continue };
        let Some(container) = transaction.catalog.container_by_number(change.container) else { continue };
        let state = transaction.state(change.container)?;
        let others = (0..own.regions).map(RegionId).filter(|region| ![source, own.region].contains(region));
        for region in others {
            let is_applied = |range| state.applied_lsn(range, region) >= change.applied_lsns[region.index()];
            if !container.ranges_of(change.range).all(is_applied) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Applies the records of one entry. Refuses an entry with a container or range that is newer than
/// the catalog here: the copy of the catalog failed, and must succeed first.
fn apply_entry(
    transaction: &mut Transaction<'_>,
    source: RegionId,
    records: Vec<OutboxRecord>,
) -> Result<(), Refusal> {
    // One entry can have changes in several ranges here, and each range counts its own LSNs: a range
    // of the source region may have been split here, and a distributed transaction can change several
    // ranges and containers.
    let mut stamps: Vec<((ContainerNumber, RangeId), WriteStamps)> = Vec::new();
    for record in records {
        let change = match record {
            OutboxRecord::Change(change) => change,
            OutboxRecord::LedgerEntry(token, entry) => {
                let entry = LedgerEntry::decode(entry).ok_or_else(|| unreadable("A ledger entry"))?;
                ledger::put(transaction, token, &entry)?;
                continue;
            }
        };
        let Some(container) = transaction.catalog.container_by_number(change.container).cloned() else {
            if change.container >= transaction.catalog.account.container_next {
                return Err(Refusal::catalog_behind());
            }
            // The container was deleted, and its number is not used again.
            continue;
        };
        if container.ranges_of(change.range).next().is_none() {
            return Err(Refusal::catalog_behind());
        }
        record_applied(transaction, source, &container, &change)?;
        let Some(partition) = partition_of(transaction, &container, &change)? else { continue };
        let target = Target::replicated(&container, partition, change.effective_key.clone());
        let place = (container.number(), target.range.id);
        let at = match stamps.iter().position(|(other, _)| *other == place) {
            Some(at) => at,
            None => {
                stamps.push((place, WriteStamps::replicated(change.lsn)));
                stamps.len() - 1
            }
        };
        apply_change(transaction, &target, change, &mut stamps[at].1)?;
    }
    Ok(())
}

/// The logical partition of a change. Changes that an earlier version of this program recorded do
/// not name their partition. For these it is computed from the document: from the text in the
/// change, or, for a delete, from the document that this region has. `None` if this region does not
/// have the document, so that there is nothing to delete.
fn partition_of(
    transaction: &Transaction<'_>,
    container: &Arc<Container>,
    change: &Change,
) -> Result<Option<LogicalPartition>, Refusal> {
    if change.partition.is_some() {
        return Ok(change.partition.clone());
    }
    let document = if let ChangeOperation::Put { text, .. } = &change.operation {
        json::parse(text).ok()
    } else {
        let segment = container.range_of(&EffectiveKey(change.effective_key.to_vec())).segment;
        let record = transaction.get(&keys::document(container.number(), segment, change.rid))?;
        record.as_ref().and_then(StoredDocument::decode).map(|document| document.value())
    };
    let Some(Value::Object(members)) = document else { return Ok(None) };
    Ok(Some(LogicalPartition::of(&container.partition_key.extract(&members))))
}

fn unreadable(what: &str) -> Refusal {
    Refusal::gateway(status::INTERNAL_SERVER_ERROR, format!("{what} of an outbox cannot be read."))
}

/// Records that the write is applied, in its range or in the children of its range.
/// Raises this region's next counters above those of the write.
fn record_applied(
    transaction: &mut Transaction<'_>,
    source: RegionId,
    container: &Arc<Container>,
    change: &Change,
) -> Result<(), Refusal> {
    let mut state = transaction.state(container.number())?;
    for range in container.ranges_of(change.range) {
        if let Some(range) = state.range_mut(range) {
            let applied_lsn = &mut range.applied_lsns[source.index()];
            *applied_lsn = (*applied_lsn).max(change.lsn);
        }
    }
    state.raise_above(change.rid, change.version.etag_counter);
    transaction.put_state(container.number(), &state);
    Ok(())
}

/// Applies one change, unless a version or tombstone here is at least as late.
fn apply_change(
    transaction: &mut Transaction<'_>,
    target: &Target,
    change: Change,
    stamps: &mut WriteStamps,
) -> Result<(), Refusal> {
    let number = target.container.number();
    let document = target.document_key(&change.id);
    let old = items::lookup_any(transaction, target, &change.id)?;
    let tombstone = transaction.tombstone(document)?;
    let version_here = old.as_ref().map(|(_, document)| document.version()).max(tombstone);
    if version_here.is_some_and(|version| version >= change.version) {
        return Ok(());
    }
    let (precondition, state) = (Precondition::default(), transaction.state(number)?);
    let mut write = ItemWrite { transaction, target, precondition: &precondition, stamps, state };
    match change.operation {
        ChangeOperation::Put { created_lsn, ttl, terms, text } => {
            if let Some(tombstone) = tombstone {
                write.transaction.remove_tombstone(document, tombstone);
            }
            let new = NewVersion { version: change.version, created_lsn, ttl, terms, text };
            put(&mut write, &change.id, change.rid, old, new)?;
        }
        ChangeOperation::Delete => {
            delete(&mut write, &change.id, old, change.version, RemovalReason::Delete)?;
        }
        ChangeOperation::Expire => {
            delete(&mut write, &change.id, old, change.version, RemovalReason::Expire)?;
        }
    }
    let state = write.state;
    transaction.put_state(number, &state);
    Ok(())
}

/// The version of a document that another region wrote.
struct NewVersion {
    version: Version,
    created_lsn: u64,
    ttl: i32,
    terms: u32,
    text: Bytes,
}

/// Stores another region's version of a document over `old`, the version here.
fn put(
    write: &mut ItemWrite<'_, '_>,
    id: &str,
    rid: u64,
    old: Option<(u64, StoredDocument)>,
    new: NewVersion,
) -> Result<(), Refusal> {
    // Two regions may have created documents with the same id. The later document
    // stays, with its `_rid`.
    let old = match old {
        Some((old_rid, document)) if old_rid != rid => {
            let stamp = write.next_stamp();
            write.remove_document(id, old_rid, &document, RemovalReason::Delete, stamp)?;
            None
        }
        old => old.map(|(_, document)| document),
    };
    let stamp = write.next_stamp();
    let mut stored = StoredDocument {
        lsn: stamp.lsn,
        ordinal: stamp.ordinal,
        created_lsn: new.created_lsn,
        timestamp: new.version.timestamp,
        etag_counter: new.version.etag_counter,
        expires_at: 0,
        ttl: new.ttl,
        terms: new.terms,
        effective_key: write.target.effective_key.clone(),
        text: new.text,
    };
    stored.expires_at = stored.expiry(write.target.container.default_ttl).unwrap_or(0);
    if old.is_none() {
        write.link_document(id, rid);
    }
    let value = write.needs_value().then(|| stored.value());
    let key_source = value.as_ref().map(|value| KeySource::Stored(value, None));
    if let Some(key_source) = key_source {
        // Unique keys are checked within a region only. When two regions write
        // documents with the same unique key, both documents stay, so that all
        // regions have the same documents.
        write.overwrite_unique_keys(rid, old.as_ref(), key_source)?;
    }
    write.put_document(rid, old.as_ref(), &stored, key_source)
}

/// Removes the document if it is here, and writes a tombstone in any case.
fn delete(
    write: &mut ItemWrite<'_, '_>,
    id: &str,
    old: Option<(u64, StoredDocument)>,
    version: Version,
    reason: RemovalReason,
) -> Result<(), Refusal> {
    if let Some((rid, document)) = old {
        let stamp = write.next_stamp();
        write.remove_document(id, rid, &document, reason, stamp)?;
    }
    write.transaction.put_tombstone(write.target.document_key(id), version);
    Ok(())
}
