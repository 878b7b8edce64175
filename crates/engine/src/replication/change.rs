//! A record of an outbox. Most records are a change of one document: everything that another
//! region needs to store the same document, and the writes that the other region must have
//! applied before the change.

use bytes::{Buf, Bytes};
use perihelion_wire::transaction::IdempotencyToken;

use crate::keys::{ContainerNumber, LogicalPartition, RangeId};
use crate::region::REGIONS_MAX;

/// The version of a document. Versions are ordered: of two writes, every region treats the write
/// with the greater version as the later write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    /// Seconds since 1970.
    pub(crate) timestamp: u64,
    /// Unique over all regions, and greater than every counter of the writes that the
    /// writing region had applied before.
    pub(crate) etag_counter: u64,
}

/// A change of one document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) container: ContainerNumber,
    /// The range of the write in the writing region.
    pub(crate) range: RangeId,
    /// The LSN of the write in the writing region.
    pub(crate) lsn: u64,
    pub(crate) version: Version,
    /// For each region, the LSN of its last write in `range` that the writing region
    /// had applied. A region applies this change only after those writes. The element of
    /// the writing region itself is `lsn`.
    pub(crate) applied_lsns: [u64; REGIONS_MAX],
    /// The counter in the document's `_rid`.
    pub(crate) rid: u64,
    /// `None` in a record of layout 1, which has the hash of the key instead.
    pub(crate) partition: Option<LogicalPartition>,
    pub(crate) effective_key: Bytes,
    pub(crate) id: String,
    pub(crate) operation: ChangeOperation,
}

/// The operation of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChangeOperation {
    /// Stores a version of the document. The fields are those of a `StoredDocument`.
    Put {
        created_lsn: u64,
        ttl: i32,
        terms: u32,
        text: Bytes,
    },
    Delete,
    /// A delete because the TTL was over.
    Expire,
}

/// A record of an outbox.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum OutboxRecord {
    Change(Change),
    /// The ledger entry of a distributed transaction, encoded.
    LedgerEntry(IdempotencyToken, Bytes),
}

/// The first byte of a record that holds a ledger entry.
const LEDGER_ENTRY: u8 = 3;
/// The first byte of a change is this number plus the number of the operation. A record of layout 1
/// has the hash of the partition key; its first byte is only the number of the operation.
const CHANGE: u8 = 4;

/// The record of a ledger entry. `entry` is the encoded entry.
pub(crate) fn encode_ledger_entry(token: IdempotencyToken, entry: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(17 + entry.len());
    out.push(LEDGER_ENTRY);
    out.extend_from_slice(&token.to_bytes());
    out.extend_from_slice(entry);
    out
}

impl OutboxRecord {
    pub(crate) fn decode(record: &Bytes) -> Option<Self> {
        if record.first() != Some(&LEDGER_ENTRY) {
            return Change::decode(record).map(OutboxRecord::Change);
        }
        let token = record.get(1..17)?.try_into().ok()?;
        Some(OutboxRecord::LedgerEntry(IdempotencyToken::from_bytes(token), record.slice(17..)))
    }
}

impl Change {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let text_bytes = if let ChangeOperation::Put { text, .. } = &self.operation { text.len() } else { 0 };
        let mut out = Vec::with_capacity(256 + self.id.len() + text_bytes);
        let operation = match self.operation {
            ChangeOperation::Put { .. } => 0,
            ChangeOperation::Delete => 1,
            ChangeOperation::Expire => 2,
        };
        let (kind, partition) = match &self.partition {
            Some(partition) => (CHANGE + operation, partition.0.as_slice()),
            None => (operation, &[][..]),
        };
        out.push(kind);
        out.extend_from_slice(&self.container.to_be_bytes());
        out.extend_from_slice(&self.range.to_be_bytes());
        let numbers = [self.lsn, self.version.timestamp, self.version.etag_counter, self.rid];
        for number in numbers.iter().chain(&self.applied_lsns) {
            out.extend_from_slice(&number.to_be_bytes());
        }
        for bytes in [partition, &self.effective_key, self.id.as_bytes()] {
            out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
            out.extend_from_slice(bytes);
        }
        if let ChangeOperation::Put { created_lsn, ttl, terms, text } = &self.operation {
            out.extend_from_slice(&created_lsn.to_be_bytes());
            out.extend_from_slice(&ttl.to_be_bytes());
            out.extend_from_slice(&terms.to_be_bytes());
            out.extend_from_slice(text);
        }
        out
    }

    pub(crate) fn decode(record: &Bytes) -> Option<Self> {
        let mut rest = record.clone();
        let kind = rest.try_get_u8().ok()?;
        let (container, range) = (rest.try_get_u32().ok()?, rest.try_get_u32().ok()?);
        let lsn = rest.try_get_u64().ok()?;
        let version = Version { timestamp: rest.try_get_u64().ok()?, etag_counter: rest.try_get_u64().ok()? };
        let rid = rest.try_get_u64().ok()?;
        let mut applied_lsns = [0; REGIONS_MAX];
        for lsn in &mut applied_lsns {
            *lsn = rest.try_get_u64().ok()?;
        }
        let partition = take_bytes(&mut rest)?;
        let partition = (kind >= CHANGE).then(|| LogicalPartition(partition.to_vec()));
        let effective_key = take_bytes(&mut rest)?;
        let id = String::from_utf8(take_bytes(&mut rest)?.to_vec()).ok()?;
        let operation = match kind.checked_sub(CHANGE).unwrap_or(kind) {
            0 => ChangeOperation::Put {
                created_lsn: rest.try_get_u64().ok()?,
                ttl: rest.try_get_i32().ok()?,
                terms: rest.try_get_u32().ok()?,
                text: rest,
            },
            1 => ChangeOperation::Delete,
            2 => ChangeOperation::Expire,
            _ => return None,
        };
        Some(Change {
            container,
            range,
            lsn,
            version,
            applied_lsns,
            rid,
            partition,
            effective_key,
            id,
            operation,
        })
    }
}

/// Takes a length and that many bytes.
fn take_bytes(rest: &mut Bytes) -> Option<Bytes> {
    let length = rest.try_get_u32().ok()? as usize;
    (length <= rest.len()).then(|| rest.split_to(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_entry_decodes_and_a_truncated_one_does_not() {
        let token = IdempotencyToken::from_bits(7);
        let record = Bytes::from(encode_ledger_entry(token, b"entry"));
        let entry = OutboxRecord::LedgerEntry(token, Bytes::from_static(b"entry"));
        assert_eq!(OutboxRecord::decode(&record), Some(entry));
        assert_eq!(OutboxRecord::decode(&record.slice(..16)), None);
    }

    #[test]
    fn a_change_decodes_and_a_truncated_change_does_not() {
        let put = ChangeOperation::Put { created_lsn: 4, ttl: -1, terms: 3, text: Bytes::from_static(b"{}") };
        for operation in [put, ChangeOperation::Delete, ChangeOperation::Expire] {
            let change = Change {
                container: 1,
                range: 2,
                lsn: 3,
                version: Version { timestamp: 4, etag_counter: 5 },
                applied_lsns: [6; REGIONS_MAX],
                rid: 7,
                partition: Some(LogicalPartition(vec![8; 16])),
                effective_key: Bytes::from_static(&[9; 3]),
                id: "ä".to_owned(),
                operation,
            };
            let record = Bytes::from(change.encode());
            assert_eq!(Change::decode(&record), Some(change));
            // The last field, the text of a put, is stored without its length. So a record that is
            // cut within the two bytes of this text still decodes.
            for length in 0..record.len() - 2 {
                assert_eq!(Change::decode(&record.slice(..length)), None, "{length}");
            }
        }
    }
}
