//! A stored document: a head of fixed layout, the effective partition key, then the
//! text.
//!
//! The text is the whole document as a point read returns it, system members
//! included, so that a read is a copy. A record that ends within its head or
//! its effective key is damaged and does not decode.

use bytes::Bytes;
use perihelion_model::etag;
use perihelion_model::json::{self, Value};

use crate::replication::Version;

/// The parts of one stored document.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StoredDocument {
    /// The LSN of the write that made this version, as counted in this region.
    pub lsn: u64,
    /// The ordinal of this change among the changes with the same LSN.
    pub ordinal: u64,
    /// The LSN of the write that created the document, as counted in the region that
    /// created it.
    pub created_lsn: u64,
    /// The `_ts`: seconds since 1970.
    pub timestamp: u64,
    /// The counter in the `_etag`.
    pub etag_counter: u64,
    /// The document's own TTL in seconds: -1 for never, 0 when the document has
    /// none and the container's default applies.
    pub ttl: i32,
    /// The time of the document's entry in the expiry list, in seconds since 1970; zero
    /// without an entry. The field only serves to find the entry:
    /// [`StoredDocument::is_expired`] decides whether a document is expired.
    pub expires_at: u64,
    /// The number of indexed values. The charge of a write depends on it.
    pub terms: u32,
    /// The effective partition key.
    pub effective_key: Bytes,
    /// The document as a point read returns it.
    pub text: Bytes,
}

/// The bytes of the head: its numbers, and the length of the effective partition key.
const HEAD_BYTES: usize = 8 + 8 + 8 + 8 + 8 + 8 + 4 + 4 + 2;

impl StoredDocument {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_BYTES + self.effective_key.len() + self.text.len());
        out.extend_from_slice(&self.lsn.to_be_bytes());
        out.extend_from_slice(&self.ordinal.to_be_bytes());
        out.extend_from_slice(&self.created_lsn.to_be_bytes());
        out.extend_from_slice(&self.timestamp.to_be_bytes());
        out.extend_from_slice(&self.etag_counter.to_be_bytes());
        out.extend_from_slice(&self.expires_at.to_be_bytes());
        out.extend_from_slice(&self.ttl.to_be_bytes());
        out.extend_from_slice(&self.terms.to_be_bytes());
        out.extend_from_slice(&(self.effective_key.len() as u16).to_be_bytes());
        out.extend_from_slice(&self.effective_key);
        out.extend_from_slice(&self.text);
        out
    }

    pub(crate) fn decode(record: &Bytes) -> Option<Self> {
        let u64_at = |at: usize| Some(u64::from_be_bytes(record.get(at..at + 8)?.try_into().ok()?));
        let u32_at = |at: usize| Some(u32::from_be_bytes(record.get(at..at + 4)?.try_into().ok()?));
        let key_length = usize::from(u16::from_be_bytes(record.get(56..58)?.try_into().ok()?));
        if record.len() < HEAD_BYTES + key_length {
            return None;
        }
        Some(StoredDocument {
            lsn: u64_at(0)?,
            ordinal: u64_at(8)?,
            created_lsn: u64_at(16)?,
            timestamp: u64_at(24)?,
            etag_counter: u64_at(32)?,
            expires_at: u64_at(40)?,
            ttl: u32_at(48)? as i32,
            terms: u32_at(52)?,
            effective_key: record.slice(HEAD_BYTES..HEAD_BYTES + key_length),
            text: record.slice(HEAD_BYTES + key_length..),
        })
    }

    pub(crate) fn version(&self) -> Version {
        Version { timestamp: self.timestamp, etag_counter: self.etag_counter }
    }

    pub(crate) fn etag(&self) -> String {
        etag::etag(self.etag_counter, self.timestamp)
    }

    /// The time at which the document expires, given the container's default TTL; `None` if
    /// it never expires. Without a default TTL no document expires, even with a TTL of its
    /// own.
    pub(crate) fn expiry(&self, default_ttl: Option<i64>) -> Option<u64> {
        let ttl = if self.ttl == 0 { default_ttl? } else { default_ttl.map(|_| i64::from(self.ttl))? };
        u64::try_from(ttl).ok().map(|ttl| self.timestamp + ttl)
    }

    pub(crate) fn is_expired(&self, default_ttl: Option<i64>, now: u64) -> bool {
        self.expiry(default_ttl).is_some_and(|expiry| expiry <= now)
    }

    /// The document as a value; null if the text is damaged and does not parse.
    pub(crate) fn value(&self) -> Value {
        json::parse(&self.text).unwrap_or(Value::Null)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_record_decodes_and_a_truncated_one_does_not() {
        let document = StoredDocument {
            lsn: 1,
            ordinal: 2,
            created_lsn: 1,
            timestamp: 3,
            etag_counter: 4,
            expires_at: 5,
            ttl: -1,
            terms: 6,
            effective_key: Bytes::from_static(&[1, 2, 3]),
            text: Bytes::from_static(b"{}"),
        };
        let record = Bytes::from(document.encode());
        assert_eq!(StoredDocument::decode(&record), Some(document));
        for length in 0..HEAD_BYTES + 3 {
            assert_eq!(StoredDocument::decode(&record.slice(..length)), None, "{length}");
        }
    }

    #[test]
    fn without_a_default_ttl_of_the_container_no_document_expires() {
        let document = |ttl| StoredDocument {
            lsn: 1,
            ordinal: 0,
            created_lsn: 1,
            timestamp: 100,
            etag_counter: 1,
            expires_at: 0,
            ttl,
            terms: 0,
            effective_key: Bytes::new(),
            text: Bytes::new(),
        };
        assert_eq!(document(5).expiry(None), None);
        assert_eq!(document(0).expiry(Some(-1)), None);
        assert_eq!(document(5).expiry(Some(-1)), Some(105));
        assert_eq!(document(0).expiry(Some(7)), Some(107));
        assert_eq!(document(-1).expiry(Some(7)), None);
    }
}
