//! The ledger of distributed transactions: for each idempotency token the whole answer, so that a
//! request that is sent again gets the first answer.
//!
//! An entry is written in the commit of its transaction; an aborted transaction commits only its
//! entry. So a transaction has exactly one answer, even if the process crashes at any point. With
//! several regions the entry is part of the transaction's outbox entry, so a region has the answer
//! exactly when it has the writes. Maintenance removes entries by age, in each region by its own
//! clock. The ledger is bounded: when it is full, new transactions are refused, and no entry is
//! removed early. Answers of aborted transactions may take only a share of the room, because an
//! abort can cost its sender almost nothing.
//!
//! What always holds: an entry has exactly one age key, which sorts the entries by their time.

use std::time::Duration;

use bytes::{Buf, Bytes};
use perihelion_wire::status::{self, Status};
use perihelion_wire::transaction::{Fingerprint, IdempotencyToken};

use crate::keys::{self, OwnedKeyRange};
use crate::refusal::{Layer, Refusal};
use crate::storage::{StoreError, View};
use crate::transaction::Transaction;

/// How many answers are kept, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerLimits {
    /// An answer is kept at least this long. After that a repeated request is a new transaction.
    pub age: Duration,
    /// The most answers. When there are this many, new transactions are refused.
    pub entries_max: u64,
    /// The most bytes of all answers together. When they are reached, new transactions are
    /// refused.
    pub bytes_max: u64,
}

/// The service's documentation does not say how long it keeps answers. A day is longer than any
/// retry of a client, and long enough for a person who repeats a transaction after an incident.
const AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// About a hundred transactions per second for a day, if each has one operation.
const ENTRIES_MAX: u64 = 10_000_000;
/// About 400 bytes for each of [`ENTRIES_MAX`] entries. A record has about 160 bytes, and 180 more
/// for each operation. So 25 transactions of ten operations per second reach this limit in a day.
const BYTES_MAX: u64 = 4 << 30;
/// Aborted transactions may use each limit of the ledger divided by this number: one half of it.
const ABORTED_SHARE: u64 = 2;

impl Default for LedgerLimits {
    fn default() -> Self {
        LedgerLimits { age: AGE, entries_max: ENTRIES_MAX, bytes_max: BYTES_MAX }
    }
}

/// The size of the ledger.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LedgerUse {
    /// The number of entries.
    pub entries: u64,
    /// The bytes of all entries.
    pub bytes: u64,
    /// The number of entries of aborted transactions.
    pub aborted_entries: u64,
    /// The bytes of the entries of aborted transactions.
    pub aborted_bytes: u64,
}

impl LedgerUse {
    fn add(&mut self, size: EntrySize) {
        self.entries += 1;
        self.bytes += size.bytes;
        if size.is_aborted {
            self.aborted_entries += 1;
            self.aborted_bytes += size.bytes;
        }
    }

    fn subtract(&mut self, size: EntrySize) {
        let subtract = |from: &mut u64, amount: u64| *from = from.saturating_sub(amount);
        subtract(&mut self.entries, 1);
        subtract(&mut self.bytes, size.bytes);
        if size.is_aborted {
            subtract(&mut self.aborted_entries, 1);
            subtract(&mut self.aborted_bytes, size.bytes);
        }
    }

    fn decode(record: Option<Bytes>) -> Option<Self> {
        let mut record = record?;
        Some(LedgerUse {
            entries: record.try_get_u64().ok()?,
            bytes: record.try_get_u64().ok()?,
            aborted_entries: record.try_get_u64().ok()?,
            aborted_bytes: record.try_get_u64().ok()?,
        })
    }

    fn encode(self) -> Vec<u8> {
        let numbers = [self.entries, self.bytes, self.aborted_entries, self.aborted_bytes];
        numbers.map(u64::to_be_bytes).concat()
    }
}

/// The size that an entry adds to the ledger. It is the value of the entry's age key, so that an
/// entry can be removed without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct EntrySize {
    bytes: u64,
    is_aborted: bool,
}

impl EntrySize {
    fn decode(mut value: Bytes) -> Option<Self> {
        Some(EntrySize { bytes: value.try_get_u64().ok()?, is_aborted: value.try_get_u8().ok()? != 0 })
    }

    fn encode(self) -> Vec<u8> {
        let mut value = self.bytes.to_be_bytes().to_vec();
        value.push(u8::from(self.is_aborted));
        value
    }
}

/// The answer of a transaction, as it was sent.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedAnswer {
    /// The status of the whole transaction.
    pub status: Status,
    /// Request units of all operations.
    pub charge: f64,
    /// The body.
    pub body: Bytes,
}

/// One entry.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LedgerEntry {
    /// The time of the transaction, in seconds since 1970.
    pub(crate) time: u64,
    /// The fingerprint of the request's body.
    pub(crate) fingerprint: Fingerprint,
    pub(crate) answer: RecordedAnswer,
}

/// The first byte of a record: the version of its format.
const RECORD_VERSION: u8 = 1;

/// The bytes of a record without the body of the answer.
const RECORD_HEAD_BYTES: usize = 1 + 8 + 32 + 2 + 4 + 8;

impl LedgerEntry {
    fn size(&self) -> EntrySize {
        EntrySize {
            bytes: (RECORD_HEAD_BYTES + self.answer.body.len()) as u64,
            is_aborted: !self.answer.status.is_success(),
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(RECORD_HEAD_BYTES + self.answer.body.len());
        out.push(RECORD_VERSION);
        out.extend_from_slice(&self.time.to_be_bytes());
        out.extend_from_slice(&self.fingerprint);
        out.extend_from_slice(&self.answer.status.code.to_be_bytes());
        out.extend_from_slice(&self.answer.status.sub.to_be_bytes());
        out.extend_from_slice(&self.answer.charge.to_bits().to_be_bytes());
        out.extend_from_slice(&self.answer.body);
        out
    }

    pub(crate) fn decode(mut record: Bytes) -> Option<Self> {
        if record.try_get_u8().ok()? != RECORD_VERSION {
            return None;
        }
        let time = record.try_get_u64().ok()?;
        let mut fingerprint = Fingerprint::default();
        record.try_copy_to_slice(&mut fingerprint).ok()?;
        let status = Status::new(record.try_get_u16().ok()?, record.try_get_u32().ok()?);
        let charge = f64::from_bits(record.try_get_u64().ok()?);
        Some(LedgerEntry { time, fingerprint, answer: RecordedAnswer { status, charge, body: record } })
    }
}

/// The answer in the record of a token. `None` without a record: the token is new. Refused when
/// the token was used for a request with another body.
pub(crate) fn recorded_answer(
    record: Option<Bytes>,
    fingerprint: &Fingerprint,
) -> Result<Option<RecordedAnswer>, Refusal> {
    let Some(record) = record else { return Ok(None) };
    let entry = LedgerEntry::decode(record).ok_or_else(|| {
        let message = "The recorded answer of this transaction cannot be read. Restore a copy of the data.";
        Refusal::gateway(status::TRANSACTION_LEDGER_FAILED, message)
    })?;
    if entry.fingerprint == *fingerprint {
        return Ok(Some(entry.answer));
    }
    Err(Refusal::gateway(
        status::TRANSACTION_INVALID_OPERATION,
        "The idempotency token was used for a transaction with another body. Use a new token.",
    ))
}

/// How long a client should wait before it tries again when the ledger is full. Maintenance removes
/// entries every second.
const FULL_RETRY_AFTER_MS: u64 = 1000;

/// Refuses a transaction when the ledger is full.
pub(crate) fn check_room(transaction: &Transaction<'_>, limits: LedgerLimits) -> Result<(), Refusal> {
    let used = decode_use(transaction.get(&keys::ledger_use())?);
    if used.entries < limits.entries_max && used.bytes < limits.bytes_max { Ok(()) } else { Err(full()) }
}

/// Refuses an aborted transaction when such transactions have taken their share of the ledger.
pub(crate) fn check_room_of_aborted(
    transaction: &Transaction<'_>,
    limits: LedgerLimits,
) -> Result<(), Refusal> {
    let used = decode_use(transaction.get(&keys::ledger_use())?);
    let has_room = used.aborted_entries < limits.entries_max.div_ceil(ABORTED_SHARE)
        && used.aborted_bytes < limits.bytes_max.div_ceil(ABORTED_SHARE);
    if has_room { Ok(()) } else { Err(full()) }
}

fn full() -> Refusal {
    let mut refusal = Refusal::new(
        status::TOO_MANY_REQUESTS,
        Layer::BackendUncharged,
        "The ledger of distributed transactions is full. It keeps every answer for a fixed time. Try again later, or set a shorter ledger age or higher ledger limits.",
    );
    refusal.retry_after_ms = Some(FULL_RETRY_AFTER_MS);
    refusal
}

/// Adds an entry. If the token has an entry with an earlier time, the new entry replaces it. In that
/// case the region of the new transaction had already removed the earlier entry by its age, and this
/// region had not. An entry with the same or a later time stays.
pub(crate) fn put(
    transaction: &mut Transaction<'_>,
    token: IdempotencyToken,
    entry: &LedgerEntry,
) -> Result<(), Refusal> {
    let token = token.to_bytes();
    let key = keys::ledger_entry(token);
    let mut used = decode_use(transaction.get(&keys::ledger_use())?);
    if let Some(old) = transaction.get(&key)?.and_then(LedgerEntry::decode) {
        if old.time >= entry.time {
            return Ok(());
        }
        used.subtract(old.size());
        transaction.remove(keys::ledger_age(old.time, token));
    }
    used.add(entry.size());
    transaction.put(keys::ledger_age(entry.time, token), entry.size().encode());
    transaction.put(key, entry.encode());
    transaction.put(keys::ledger_use(), used.encode());
    Ok(())
}

/// The age keys of up to `limit` entries that are older than `age`. `now` is in seconds since
/// 1970.
pub(crate) fn expired(
    view: &dyn View,
    now: u64,
    age: Duration,
    limit: usize,
) -> Result<Vec<Vec<u8>>, StoreError> {
    let Some(before) = now.checked_sub(age.as_secs()) else { return Ok(Vec::new()) };
    let (from, to) = keys::ledger_age_bounds(before);
    OwnedKeyRange::between(&from, &to).first_keys(view, limit)
}

/// Removes the entries of these age keys.
pub(crate) fn remove(transaction: &mut Transaction<'_>, keys_by_age: Vec<Vec<u8>>) -> Result<(), Refusal> {
    let mut used = decode_use(transaction.get(&keys::ledger_use())?);
    for key in keys_by_age {
        // If the age key does not exist any more, the entry was removed or replaced after the
        // age keys were listed.
        let Some(size) = transaction.get(&key)? else { continue };
        if let (Some(token), Some(size)) = (keys::parse_ledger_age(&key), EntrySize::decode(size)) {
            transaction.remove(keys::ledger_entry(token));
            used.subtract(size);
        }
        transaction.remove(key);
    }
    transaction.put(keys::ledger_use(), used.encode());
    Ok(())
}

/// Decodes the size of the ledger. Without a record the ledger is empty.
pub(crate) fn decode_use(record: Option<Bytes>) -> LedgerUse {
    LedgerUse::decode(record).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_decoded_and_a_truncated_or_unknown_record_is_not() {
        let entry = LedgerEntry {
            time: 7,
            fingerprint: [9; 32],
            answer: RecordedAnswer {
                status: status::TRANSACTION_ABORTED,
                charge: 12.5,
                body: Bytes::from_static(b"{}"),
            },
        };
        let record = Bytes::from(entry.encode());
        assert_eq!(entry.size(), EntrySize { bytes: record.len() as u64, is_aborted: true });
        assert_eq!(LedgerEntry::decode(record.clone()), Some(entry.clone()));
        for length in 0..record.len() - entry.answer.body.len() {
            assert_eq!(LedgerEntry::decode(record.slice(..length)), None, "{length}");
        }
        let mut unknown = record.to_vec();
        unknown[0] = 2;
        assert_eq!(LedgerEntry::decode(unknown.into()), None);
    }

    #[test]
    fn a_token_with_another_body_is_refused() {
        let answer = RecordedAnswer { status: status::OK, charge: 1.0, body: Bytes::new() };
        let entry = LedgerEntry { time: 0, fingerprint: [1; 32], answer: answer.clone() };
        let record = || Some(Bytes::from(entry.encode()));
        assert_eq!(recorded_answer(record(), &[1; 32]), Ok(Some(answer)));
        let refusal = recorded_answer(record(), &[2; 32]).unwrap_err();
        assert_eq!((refusal.status, refusal.sub_status), (400, Some(5410)));
        assert_eq!(recorded_answer(None, &[2; 32]), Ok(None));
        assert_eq!(recorded_answer(Some(Bytes::from_static(b"?")), &[1; 32]).unwrap_err().status, 500);
    }
}
