//! The outbox: what this region wrote, in order, until every other has it.

use std::ops::ControlFlow;

use bytes::Bytes;

use super::Change;
use crate::items::Stamp;
use crate::keys::{self, Span};
use crate::refusal::Refusal;
use crate::storage::{Direction, StoreError, View};
use crate::transaction::Transaction;

/// Parcels of a page, and its bytes: what one commit of a target applies, so
/// that its clients never wait long behind it. A parcel is never cut.
const PAGE_PARCELS_MAX: usize = 256;
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Records removed per job.
const TRIM_STEP: usize = 1000;

/// What one write made.
#[derive(Debug, Clone)]
pub struct Parcel {
    pub seq: u64,
    pub(crate) changes: Vec<Bytes>,
}

/// The number of the next parcel, as its record says it.
pub(crate) fn next(record: Option<Bytes>) -> u64 {
    record.and_then(|record| keys::last_u64(&record)).unwrap_or(1)
}

/// Adds a change to the parcel of its write.
pub(crate) fn log(
    transaction: &mut Transaction<'_>,
    stamp: &mut Stamp,
    place: u64,
    change: &Change,
) -> Result<(), Refusal> {
    let seq = match stamp.parcel {
        Some(seq) => seq,
        None => {
            let seq = next(transaction.get(&keys::outbox_next())?);
            transaction.put(keys::outbox_next(), (seq + 1).to_be_bytes().to_vec());
            stamp.parcel = Some(seq);
            seq
        }
    };
    transaction.put(keys::outbox(seq, place), change.encode());
    Ok(())
}

/// The first parcel that is still there.
pub(crate) fn first(view: &dyn View) -> Result<Option<u64>, StoreError> {
    let mut first = None;
    view.scan(Span::prefix(&keys::outboxes()).as_range(), Direction::Forward, &mut |key, _| {
        first = keys::lsn_and_place(key).map(|(seq, _)| seq);
        ControlFlow::Break(())
    })?;
    Ok(first)
}

pub(crate) fn read(view: &dyn View, after: u64, to: u64) -> Result<Vec<Parcel>, Refusal> {
    let mut parcels: Vec<Parcel> = Vec::new();
    let mut bytes = 0;
    let span = Span::prefix_after(&keys::outboxes(), &keys::outbox(after, u64::MAX));
    view.scan(span.as_range(), Direction::Forward, &mut |key, value| {
        let Some((seq, _)) = keys::lsn_and_place(key) else { return ControlFlow::Continue(()) };
        if seq > to {
            return ControlFlow::Break(());
        }
        let is_full = parcels.len() >= PAGE_PARCELS_MAX || bytes >= PAGE_BYTES_MAX;
        let change = Bytes::copy_from_slice(value);
        match parcels.last_mut() {
            Some(parcel) if parcel.seq == seq => parcel.changes.push(change),
            _ if is_full => return ControlFlow::Break(()),
            _ => parcels.push(Parcel { seq, changes: vec![change] }),
        }
        bytes += value.len();
        ControlFlow::Continue(())
    })?;
    Ok(parcels)
}

/// Removes parcels up to `to`, or as many as one job may.
pub(crate) fn trim(transaction: &mut Transaction<'_>, to: u64) -> Result<u64, Refusal> {
    let span = Span::between(&keys::outboxes(), &keys::outbox(to.saturating_add(1), 0));
    let entries = transaction.entries(&span, TRIM_STEP)?;
    // The last parcel of a full step may go on behind it: it is for the next.
    let is_all = entries.len() < TRIM_STEP;
    let trimmed = match entries.last().and_then(|(key, _)| keys::lsn_and_place(key)) {
        Some((seq, _)) if !is_all => seq - 1,
        _ => to,
    };
    for (key, _) in entries {
        transaction.remove(key);
    }
    Ok(trimmed)
}
