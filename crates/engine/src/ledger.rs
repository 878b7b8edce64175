//! The ledger of distributed transactions: for each idempotency token the whole answer, so that
//! a request that is sent again gets the answer of the first.
//!
//! An entry is written in the commit of its transaction; an aborted transaction commits only
//! its entry. So a transaction has exactly one answer, wherever the process ends. With several
//! regions the entry is part of the transaction's outbox entry, so a region has the answer
//! exactly when it has the writes. Maintenance removes entries by age. The ledger is bounded:
//! when it is full, new transactions are refused, and no entry is forgotten early.

use std::time::Duration;

use bytes::{Buf, Bytes};
use perihelion_wire::status::{self, Status};
use perihelion_wire::transaction::{Fingerprint, IdempotencyToken};

use crate::keys::{self, OwnedKeyRange};
use crate::refusal::{Layer, Refusal};
use crate::storage::{StoreError, View};
use crate::transaction::Transaction;

/// How long and how many answers are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerLimits {
    /// An answer is kept at least this long. After that a repeated request is a new transaction.
    pub age: Duration,
    /// The most answers. When there are as many, new transactions are refused.
    pub entries_max: u64,
    /// The most bytes of all answers together. When there are as many, new transactions are
    /// refused.
    pub bytes_max: u64,
}

/// No document says how long the service keeps answers. A day is longer than any retry of a
/// client, and long enough for a person who repeats a transaction after an incident.
const AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// About a hundred transactions per second for a day.
const ENTRIES_MAX: u64 = 10_000_000;
/// About 400 bytes for each of so many entries.
const BYTES_MAX: u64 = 4 << 30;

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

/// The first byte of a record, in case that its form changes.
const RECORD_VERSION: u8 = 1;

impl LedgerEntry {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.answer.body.len());
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

/// How long a client should wait before it asks a full ledger again. Maintenance removes entries
/// every second.
const FULL_RETRY_AFTER_MS: u64 = 1000;

/// Refuses a transaction when the ledger is full.
pub(crate) fn check_room(transaction: &Transaction<'_>, limits: LedgerLimits) -> Result<(), Refusal> {
    let used = decode_use(transaction.get(&keys::ledger_use())?);
    if used.entries < limits.entries_max && used.bytes < limits.bytes_max {
        return Ok(());
    }
    let mut refusal = Refusal::new(
        status::TOO_MANY_REQUESTS,
        Layer::BackendUncharged,
        "The ledger of distributed transactions is full: it keeps every answer for its age. Try again later, or give it a shorter age or more room.",
    );
    refusal.retry_after_ms = Some(FULL_RETRY_AFTER_MS);
    Err(refusal)
}

/// Adds an entry. An entry that exists already stays.
pub(crate) fn put(
    transaction: &mut Transaction<'_>,
    token: IdempotencyToken,
    entry: &LedgerEntry,
) -> Result<(), Refusal> {
    let token = token.to_bytes();
    let key = keys::ledger_entry(token);
    if transaction.get(&key)?.is_some() {
        return Ok(());
    }
    let record = entry.encode();
    let mut used = decode_use(transaction.get(&keys::ledger_use())?);
    used.entries += 1;
    used.bytes += record.len() as u64;
    // The age key has the size, so that removing an entry need not read it.
    transaction.put(keys::ledger_age(entry.time, token), (record.len() as u64).to_be_bytes().to_vec());
    transaction.put(key, record);
    transaction.put(keys::ledger_use(), encode_use(used));
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
pub(crate) fn remove(transaction: &mut Transaction<'_>, age_keys: Vec<Vec<u8>>) -> Result<(), Refusal> {
    let mut used = decode_use(transaction.get(&keys::ledger_use())?);
    for key in age_keys {
        let Some(size) = transaction.get(&key)? else { continue };
        if let Some(token) = keys::parse_ledger_age(&key) {
            transaction.remove(keys::ledger_entry(token));
            used.entries = used.entries.saturating_sub(1);
            used.bytes = used.bytes.saturating_sub(keys::last_u64(&size).unwrap_or(0));
        }
        transaction.remove(key);
    }
    transaction.put(keys::ledger_use(), encode_use(used));
    Ok(())
}

/// The size in its record; nothing is used without a record.
pub(crate) fn decode_use(record: Option<Bytes>) -> LedgerUse {
    let numbers = record.and_then(|record| keys::last_u64_pair(&record));
    numbers.map_or(LedgerUse::default(), |(entries, bytes)| LedgerUse { entries, bytes })
}

fn encode_use(used: LedgerUse) -> Vec<u8> {
    [used.entries.to_be_bytes(), used.bytes.to_be_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_decodes_and_a_cut_or_unknown_one_does_not() {
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
