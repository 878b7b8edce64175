//! Applying what another region wrote: the same document, with its `_rid`,
//! `_etag` and `_ts`, unless a later version is here already.

use std::sync::Arc;

use bytes::Bytes;

use super::{Change, Kind, RegionId, Version, tombstones};
use crate::container::Container;
use crate::document::StoredDocument;
use crate::items::{self, ItemWrite, Precondition, Stamp, Target};
use crate::keys::{self, RangeId};
use crate::refusal::Refusal;
use crate::transaction::Transaction;
use crate::versions;

/// How far an apply came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// Everything up to this parcel is here.
    pub to: u64,
    /// How many parcels were new.
    pub parcels: usize,
    /// The next parcel must wait for the writes of a third region.
    pub is_blocked: bool,
}

/// The position in a region's outbox, as its record says it.
pub(crate) fn position(record: Option<Bytes>) -> u64 {
    record.and_then(|record| keys::last_u64(&record)).unwrap_or(0)
}

pub(crate) fn apply(
    transaction: &mut Transaction<'_>,
    source: RegionId,
    parcels: &[super::Parcel],
) -> Result<Applied, Refusal> {
    let begun = position(transaction.get(&keys::applied(source.0))?);
    let mut applied = Applied { to: begun, parcels: 0, is_blocked: false };
    for parcel in parcels.iter().filter(|parcel| parcel.seq > begun) {
        let changes = parcel.changes.iter().map(Change::decode).collect::<Option<Vec<_>>>();
        let changes = changes.ok_or_else(|| {
            Refusal::gateway(500, format!("Parcel {} of an outbox cannot be read.", parcel.seq))
        })?;
        if !is_due(transaction, source, &changes)? {
            applied.is_blocked = true;
            break;
        }
        apply_parcel(transaction, source, changes)?;
        applied.to = parcel.seq;
        applied.parcels += 1;
    }
    if applied.parcels > 0 {
        transaction.put(keys::applied(source.0), applied.to.to_be_bytes().to_vec());
    }
    Ok(applied)
}

/// Whether all that the writer had seen is here.
fn is_due(transaction: &Transaction<'_>, source: RegionId, changes: &[Change]) -> Result<bool, Refusal> {
    let Some(own) = transaction.replica else { return Ok(true) };
    for change in changes {
        let Some(container) = transaction.catalog.container_by_number(change.container) else { continue };
        let state = transaction.state(change.container)?;
        let others = (0..own.regions).map(RegionId).filter(|region| ![source, own.region].contains(region));
        for region in others {
            let has = |range| state.seen(range, region) >= change.seen[region.place()];
            if !heirs(container, change.range).all(has) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// The ranges that a range is now: itself, or what it was split into.
fn heirs(container: &Container, range: RangeId) -> impl Iterator<Item = RangeId> {
    let is_heir =
        move |heir: &&crate::container::PartitionRange| heir.id == range || heir.parents.contains(&range);
    container.ranges.iter().filter(is_heir).map(|heir| heir.id)
}

fn apply_parcel(
    transaction: &mut Transaction<'_>,
    source: RegionId,
    changes: Vec<Change>,
) -> Result<(), Refusal> {
    // A range of the writer may be two by now; each counts its own LSNs.
    let mut stamps: Vec<(RangeId, Stamp)> = Vec::new();
    for change in changes {
        let Some(container) = transaction.catalog.container_by_number(change.container).cloned() else {
            continue; // Deleted meanwhile, and numbers are not given twice.
        };
        let target = Target::replicated(&container, change.partition.clone(), change.effective_key.clone());
        mark_seen(transaction, source, &container, &change)?;
        let place = match stamps.iter().position(|(range, _)| *range == target.range.id) {
            Some(place) => place,
            None => {
                stamps.push((target.range.id, Stamp::following(change.lsn)));
                stamps.len() - 1
            }
        };
        apply_change(transaction, &target, change, &mut stamps[place].1)?;
    }
    Ok(())
}

/// Notes the write in every range that its range is now.
fn mark_seen(
    transaction: &mut Transaction<'_>,
    source: RegionId,
    container: &Arc<Container>,
    change: &Change,
) -> Result<(), Refusal> {
    let mut state = transaction.state(container.number())?;
    for range in heirs(container, change.range) {
        if let Some(range) = state.range_mut(range) {
            let seen = &mut range.seen[source.place()];
            *seen = (*seen).max(change.lsn);
        }
    }
    state.observe(change.rid, change.version.etag_counter);
    transaction.put_state(container.number(), &state);
    Ok(())
}

fn apply_change(
    transaction: &mut Transaction<'_>,
    target: &Target,
    change: Change,
    stamp: &mut Stamp,
) -> Result<(), Refusal> {
    let number = target.container.number();
    let old = items::lookup_any(transaction, target, &change.id)?;
    let buried = tombstones::get(transaction, target, &change.id)?;
    let here = old.as_ref().map(|(_, document)| document.version()).max(buried);
    if here.is_some_and(|here| here >= change.version) {
        return Ok(());
    }
    let (precondition, state) = (Precondition::default(), transaction.state(number)?);
    let mut write = ItemWrite { transaction, target, precondition: &precondition, stamp, state };
    match change.kind {
        Kind::Put { created_lsn, ttl, terms, text } => {
            if let Some(buried) = buried {
                tombstones::remove(write.transaction, target, &change.id, buried);
            }
            let new = NewVersion { version: change.version, created_lsn, ttl, terms, text };
            put(&mut write, &change.id, change.rid, old, new);
        }
        Kind::Delete => bury(&mut write, &change.id, old, change.version, versions::Change::Delete),
        Kind::Expire => bury(&mut write, &change.id, old, change.version, versions::Change::Expire),
    }
    let state = write.state;
    transaction.put_state(number, &state);
    Ok(())
}

struct NewVersion {
    version: Version,
    created_lsn: u64,
    ttl: i32,
    terms: u32,
    text: Bytes,
}

fn put(
    write: &mut ItemWrite<'_, '_>,
    id: &str,
    rid: u64,
    old: Option<(u64, StoredDocument)>,
    new: NewVersion,
) {
    // Two regions may have created the same id: the later one's `_rid` stays.
    let old = match old {
        Some((old_rid, document)) if old_rid != rid => {
            let stamp = write.next_stamp();
            write.remove_document(id, old_rid, &document, versions::Change::Delete, stamp);
            None
        }
        old => old.map(|(_, document)| document),
    };
    let (lsn, place) = write.next_stamp();
    let mut stored = StoredDocument {
        lsn,
        place,
        created_lsn: new.created_lsn,
        timestamp: new.version.timestamp,
        etag_counter: new.version.etag_counter,
        expires_at: 0,
        ttl: new.ttl,
        terms: new.terms,
        effective_key: write.target.effective.clone(),
        text: new.text,
    };
    stored.expires_at = stored.expiry(write.target.container.default_ttl).unwrap_or(0);
    if old.is_none() {
        write.link_document(id, rid);
    }
    let value = write.needs_value().then(|| stored.value());
    if let Some(value) = &value {
        // A unique key holds within a region. Writes of two regions that break
        // it together both stay, so that all regions end up alike.
        write.claim_unique(rid, old.as_ref(), value);
    }
    write.put_document(rid, old.as_ref(), &stored, value.as_ref());
}

fn bury(
    write: &mut ItemWrite<'_, '_>,
    id: &str,
    old: Option<(u64, StoredDocument)>,
    version: Version,
    change: versions::Change,
) {
    if let Some((rid, document)) = old {
        let stamp = write.next_stamp();
        write.remove_document(id, rid, &document, change, stamp);
    }
    tombstones::put(write.transaction, write.target, id, version);
}
