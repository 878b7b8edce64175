//! A record: one commit as bytes in the log.
//!
//! A record is a header (checksum, the instance number of the data file, the sequence number of
//! the commit, lengths) and the writes. A record starts at the start of a sector and is padded to
//! the next sector. So an append never rewrites a sector that holds an acknowledged record, and
//! records are searched for only at the starts of sectors. All numbers are little-endian.
//!
//! The instance number is random and never shown, so a client cannot store a document whose
//! bytes look like a record. Otherwise the log would accept such bytes as a record after a power
//! cut has torn the real record around them.

use bytes::Bytes;

use super::crc32c::crc32c;
use crate::storage::Write;

/// Records begin at multiples of this size. A disk writes a sector whole or not at
/// all.
pub(super) const SECTOR_BYTES: usize = 512;

/// The first bytes of every record.
const MAGIC: [u8; 4] = *b"phl1";
/// The header of a record, with the offset of each field: magic (0), checksum (4), instance number
/// (8), sequence number (16), bytes of the writes (24), number of writes (28).
const HEADER_BYTES: usize = 32;
/// The checksum covers everything after itself: the record from this offset up to the
/// padding.
const CHECKED_FROM: usize = 8;

/// The two lengths at the beginning of each write, of its key and of its value.
const LENGTHS_BYTES: usize = 8;
/// The value length of a key that is removed.
const REMOVED: u32 = u32::MAX;

/// A key with its new value, or `None` when the key is removed.
pub(super) type LoggedWrite = (Bytes, Option<Bytes>);

/// The number of bytes of a commit in the log, padding included; `None` if the commit is too
/// large for the length fields.
pub(super) fn size(writes: &[Write<'_>]) -> Option<usize> {
    let of_write = |write: &Write<'_>| LENGTHS_BYTES + write.key.len() + write.value.map_or(0, <[u8]>::len);
    let payload: usize = writes.iter().map(of_write).sum();
    let fits = u32::try_from(payload).is_ok_and(|payload| payload < REMOVED);
    fits.then(|| (HEADER_BYTES + payload).next_multiple_of(SECTOR_BYTES))
}

/// A commit ready to be appended to the log.
#[derive(Debug)]
pub(super) struct Record {
    /// The whole record, padding included.
    pub(super) bytes: Bytes,
    /// The writes, as slices of `bytes`.
    pub(super) entries: Vec<LoggedWrite>,
}

/// Encodes a commit. `size` is the result of [`size`] for these writes.
pub(super) fn encode(instance: u64, sequence: u64, writes: &[Write<'_>], size: usize) -> Record {
    let mut bytes = Vec::with_capacity(size);
    bytes.extend_from_slice(&[0; HEADER_BYTES]);
    for write in writes {
        let value_len = write.value.map_or(REMOVED, |value| value.len() as u32);
        bytes.extend_from_slice(&(write.key.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&value_len.to_le_bytes());
        bytes.extend_from_slice(write.key);
        bytes.extend_from_slice(write.value.unwrap_or_default());
    }
    let len = bytes.len();
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&instance.to_le_bytes());
    bytes[16..24].copy_from_slice(&sequence.to_le_bytes());
    bytes[24..28].copy_from_slice(&((len - HEADER_BYTES) as u32).to_le_bytes());
    bytes[28..32].copy_from_slice(&(writes.len() as u32).to_le_bytes());
    let checksum = crc32c(&bytes[CHECKED_FROM..]);
    bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
    bytes.resize(size, 0);
    debug_assert_eq!(bytes.capacity(), size, "`size` is the size of these writes");
    let bytes = Bytes::from(bytes);
    let mut at = HEADER_BYTES;
    let mut slice = |len: usize| {
        at += len;
        bytes.slice(at - len..at)
    };
    let entries = writes.iter().map(|write| {
        slice(LENGTHS_BYTES);
        (slice(write.key.len()), write.value.map(|value| slice(value.len())))
    });
    Record { entries: entries.collect(), bytes: bytes.clone() }
}

/// A record of the log whose checksum is correct.
#[derive(Debug)]
pub(super) struct FoundRecord {
    pub(super) instance: u64,
    pub(super) sequence: u64,
    /// The number of writes.
    count: u32,
    /// The encoded writes.
    payload: Bytes,
}

/// Parses the record that begins at this offset. `None` if no record begins there, if its
/// checksum is wrong, or if its instance number is not `instance`. With `instance: None` a
/// record with any instance number is returned.
pub(super) fn parse_at(file: &Bytes, offset: usize, instance: Option<u64>) -> Option<FoundRecord> {
    let header = file.get(offset..offset + HEADER_BYTES)?;
    let number = |at: usize| header[at..at + 4].try_into().map(u32::from_le_bytes).unwrap_or_default();
    let long = |at: usize| header[at..at + 8].try_into().map(u64::from_le_bytes).unwrap_or_default();
    if header[..4] != MAGIC || instance.is_some_and(|instance| instance != long(8)) {
        return None;
    }
    let from = offset + HEADER_BYTES;
    let to = from.checked_add(number(24) as usize)?;
    let checked = file.get(offset + CHECKED_FROM..to)?;
    let found = || FoundRecord {
        instance: long(8),
        sequence: long(16),
        count: number(28),
        payload: file.slice(from..to),
    };
    (crc32c(checked) == number(4)).then(found)
}

impl FoundRecord {
    /// The size of the record in the log, padding included.
    pub(super) fn size(&self) -> usize {
        (HEADER_BYTES + self.payload.len()).next_multiple_of(SECTOR_BYTES)
    }

    /// The writes of the record; `None` if its lengths are inconsistent. Because the checksum is
    /// correct, only another program can have written a record with such lengths.
    pub(super) fn entries(&self) -> Option<Vec<LoggedWrite>> {
        let mut entries = Vec::new();
        let mut rest = self.payload.clone();
        let take = |rest: &mut Bytes, len: usize| (len <= rest.len()).then(|| rest.split_to(len));
        for _ in 0..self.count {
            let lengths = take(&mut rest, LENGTHS_BYTES)?;
            let key_len = u32::from_le_bytes(lengths[..4].try_into().ok()?);
            let value_len = u32::from_le_bytes(lengths[4..].try_into().ok()?);
            let key = take(&mut rest, key_len as usize)?;
            let value = match value_len {
                REMOVED => None,
                len => Some(take(&mut rest, len as usize)?),
            };
            entries.push((key, value));
        }
        rest.is_empty().then_some(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITES: [Write<'static>; 3] = [
        Write { key: b"kept", value: Some(b"value") },
        Write { key: b"", value: Some(b"") },
        Write { key: b"gone", value: None },
    ];

    #[test]
    fn a_record_decodes_to_what_was_encoded() {
        let record = encode(7, 9, &WRITES, size(&WRITES).expect("small"));
        assert_eq!(record.bytes.len(), SECTOR_BYTES);
        let found = parse_at(&record.bytes, 0, Some(7)).expect("whole");
        assert_eq!((found.instance, found.sequence, found.size()), (7, 9, SECTOR_BYTES));
        assert_eq!(found.entries().expect("sound"), record.entries);
        let written: Vec<_> = WRITES.map(|write| (write.key, write.value)).to_vec();
        let entries = record.entries.iter().map(|(key, value)| (&key[..], value.as_deref()));
        assert_eq!(entries.collect::<Vec<_>>(), written);
        assert!(parse_at(&record.bytes, 0, Some(8)).is_none(), "another data file's record");
    }

    #[test]
    fn a_record_with_a_wrong_byte_or_a_missing_end_is_not_found() {
        let record = encode(7, 9, &WRITES, size(&WRITES).expect("small"));
        let used = HEADER_BYTES + 3 * LENGTHS_BYTES + 4 + 5 + 4;
        for at_byte in 0..used {
            let mut torn = record.bytes.to_vec();
            torn[at_byte] ^= 0x10;
            assert!(parse_at(&torn.into(), 0, Some(7)).is_none(), "byte {at_byte}");
        }
        for len in 0..used {
            assert!(parse_at(&record.bytes.slice(..len), 0, Some(7)).is_none(), "cut to {len}");
        }
    }
}
