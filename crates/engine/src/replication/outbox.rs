//! The outbox: the changes this region wrote, in order, until every other
//! region has applied them.

use std::ops::ControlFlow;

use bytes::Bytes;

use crate::keys::{self, OwnedKeyRange};
use crate::refusal::Refusal;
use crate::storage::{Direction, StoreError, View};
use crate::transaction::Transaction;

/// The most entries of a page. The target region applies a page in one commit, so a page is
/// small enough that clients of the target region do not wait long.
const PAGE_ENTRIES_MAX: usize = 256;
/// A page that has this many bytes takes no further entry.
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The most records that one job removes. An entry has a record for each change.
const TRIM_RECORDS_MAX: usize = 1000;

/// The changes of one write.
#[derive(Debug, Clone)]
pub struct OutboxEntry {
    /// The entry's number. Entries are counted from 1.
    pub sequence: u64,
    /// The changes, each encoded by `Change::encode`. A distributed transaction adds its ledger
    /// entry, encoded by `encode_ledger_entry`.
    pub(crate) changes: Vec<Bytes>,
}

/// The outbox entry of one write: its number, and the ordinal of its next record. The entry gets
/// its number with its first record.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OutboxCursor {
    sequence: Option<u64>,
    ordinal_next: u64,
}

/// The number of the next entry, from the record that stores it.
pub(super) fn next_sequence(record: Option<Bytes>) -> u64 {
    record.and_then(|record| keys::last_u64(&record)).unwrap_or(1)
}

/// Adds a record to the outbox entry of its write.
pub(crate) fn append(
    transaction: &mut Transaction<'_>,
    cursor: &mut OutboxCursor,
    record: Vec<u8>,
) -> Result<(), Refusal> {
    let sequence = match cursor.sequence {
        Some(sequence) => sequence,
        None => {
            let next = next_sequence(transaction.get(&keys::outbox_next())?);
            transaction.put(keys::outbox_next(), (next + 1).to_be_bytes().to_vec());
            *cursor.sequence.insert(next)
        }
    };
    transaction.put(keys::outbox(sequence, cursor.ordinal_next), record);
    cursor.ordinal_next += 1;
    Ok(())
}

/// The number of the oldest entry that has not been trimmed; `None` if the outbox is empty.
pub(super) fn first_sequence(view: &dyn View) -> Result<Option<u64>, StoreError> {
    let first = OwnedKeyRange::prefix(&keys::outbox_prefix()).first_keys(view, 1)?;
    Ok(first.first().and_then(|key| keys::last_u64_pair(key)).map(|(sequence, _)| sequence))
}

/// The entries after the number `after` and up to the number `to`, as many as fit a page. An
/// entry is never divided over two pages.
pub(crate) fn read(view: &dyn View, after: u64, to: u64) -> Result<Vec<OutboxEntry>, Refusal> {
    let mut entries: Vec<OutboxEntry> = Vec::new();
    let mut bytes = 0;
    let key_range = OwnedKeyRange::prefix_after(&keys::outbox_prefix(), &keys::outbox(after, u64::MAX));
    view.scan(key_range.as_range(), Direction::Forward, &mut |key, value| {
        let Some((sequence, _)) = keys::last_u64_pair(key) else { return ControlFlow::Continue(()) };
        if sequence > to {
            return ControlFlow::Break(());
        }
        let is_full = entries.len() >= PAGE_ENTRIES_MAX || bytes >= PAGE_BYTES_MAX;
        let change = Bytes::copy_from_slice(value);
        match entries.last_mut() {
            Some(entry) if entry.sequence == sequence => entry.changes.push(change),
            _ if is_full => return ControlFlow::Break(()),
            _ => entries.push(OutboxEntry { sequence, changes: vec![change] }),
        }
        bytes += value.len();
        ControlFlow::Continue(())
    })?;
    Ok(entries)
}

/// Removes the entries up to the number `to`, at most [`TRIM_RECORDS_MAX`] records. Returns
/// the number up to which all entries are removed with all of their records.
pub(crate) fn trim(transaction: &mut Transaction<'_>, to: u64) -> Result<u64, Refusal> {
    let key_range = OwnedKeyRange::between(&keys::outbox_prefix(), &keys::outbox(to.saturating_add(1), 0));
    let records = transaction.entries(&key_range, TRIM_RECORDS_MAX)?;
    // When the limit was reached, the last entry may have more records.
    let reached_limit = records.len() >= TRIM_RECORDS_MAX;
    let trimmed_up_to = match records.last().and_then(|(key, _)| keys::last_u64_pair(key)) {
        Some((sequence, _)) if reached_limit => sequence - 1,
        _ => to,
    };
    for (key, _) in records {
        transaction.remove(key);
    }
    Ok(trimmed_up_to)
}
