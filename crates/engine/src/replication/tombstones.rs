//! Tombstones: the versions of deletes. A tombstone stops an older write that
//! arrives late from bringing the document back.

use bytes::Bytes;

use super::Version;
use crate::keys::{self, ContainerNumber, LogicalPartition, OwnedKeyRange};
use crate::refusal::Refusal;
use crate::storage::{StoreError, View};
use crate::transaction::Transaction;

/// How long a tombstone is stored after the delete. When a region is cut off for a longer
/// time, its older writes may bring deleted documents back.
const RETENTION_SECONDS: u64 = 24 * 60 * 60;

/// The key of a document: its container, logical partition and id.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DocumentKey<'a> {
    pub(crate) container: ContainerNumber,
    pub(crate) partition: &'a LogicalPartition,
    pub(crate) id: &'a str,
}

impl DocumentKey<'_> {
    fn tombstone(&self) -> Vec<u8> {
        keys::tombstone(self.container, self.partition, self.id)
    }
}

/// Reads and writes tombstones in a transaction.
pub(crate) trait Tombstones {
    /// The version of a document's delete; `None` if the document has no tombstone.
    fn tombstone(&self, document: DocumentKey<'_>) -> Result<Option<Version>, Refusal>;
    /// Writes a tombstone, over an older one if there is one.
    fn put_tombstone(&mut self, document: DocumentKey<'_>, version: Version);
    /// Removes a tombstone. `version` is the version in the tombstone.
    fn remove_tombstone(&mut self, document: DocumentKey<'_>, version: Version);
}

impl Tombstones for Transaction<'_> {
    fn tombstone(&self, document: DocumentKey<'_>) -> Result<Option<Version>, Refusal> {
        let record = self.get(&document.tombstone())?;
        Ok(record.and_then(|record| {
            let (timestamp, etag_counter) = keys::last_u64_pair(&record)?;
            Some(Version { timestamp, etag_counter })
        }))
    }

    fn put_tombstone(&mut self, document: DocumentKey<'_>, version: Version) {
        let key = document.tombstone();
        self.put(keys::tombstone_age(version.timestamp, &key), Bytes::new());
        let mut record = version.timestamp.to_be_bytes().to_vec();
        record.extend_from_slice(&version.etag_counter.to_be_bytes());
        self.put(key, record);
    }

    fn remove_tombstone(&mut self, document: DocumentKey<'_>, version: Version) {
        let key = document.tombstone();
        self.remove(keys::tombstone_age(version.timestamp, &key));
        self.remove(key);
    }
}

/// The age keys of up to `limit` tombstones that are past their retention. `now` is in
/// seconds since 1970.
pub(crate) fn expired_tombstones(
    view: &dyn View,
    now: u64,
    limit: usize,
) -> Result<Vec<Vec<u8>>, StoreError> {
    let Some(before) = now.checked_sub(RETENTION_SECONDS) else { return Ok(Vec::new()) };
    OwnedKeyRange::between(&keys::tombstone_age_prefix(), &keys::tombstone_age(before, &[]))
        .first_keys(view, limit)
}

/// Removes tombstones and their age keys.
pub(crate) fn remove_expired_tombstones(
    transaction: &mut Transaction<'_>,
    keys_by_age: Vec<Vec<u8>>,
) -> Result<(), Refusal> {
    for key in keys_by_age {
        if let Some((deleted_at, tombstone)) = keys::parse_tombstone_age(&key) {
            // If the times differ, a later delete of the same document has replaced the
            // tombstone and added an age key of its own. The later tombstone stays.
            let record = transaction.get(tombstone)?;
            let time = record.and_then(|record| keys::last_u64_pair(&record)).map(|(time, _)| time);
            if time == Some(deleted_at) {
                transaction.remove(tombstone.to_vec());
            }
        }
        transaction.remove(key);
    }
    Ok(())
}
