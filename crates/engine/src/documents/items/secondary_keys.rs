//! The keys that change together with a document: id, partition member, unique
//! keys, index entries, the entries of the change feed and of the expiry list, the
//! counters, the version log. Writes of this region and changes of other regions
//! use the same functions.

use std::sync::Arc;

use bytes::Bytes;

use super::WriteStamp;
use super::write::ItemWrite;
use crate::charge;
use crate::documents::content::KeySource;
use crate::documents::stored::StoredDocument;
use crate::documents::version_log::{self, LoggedChange, RemovalReason};
use crate::keys;
use crate::prepared::{DocumentVersion, KnownDocument};
use crate::refusal::Refusal;

impl ItemWrite<'_, '_> {
    /// The LSN and ordinal of the next change of this write.
    pub(crate) fn next_stamp(&mut self) -> WriteStamp {
        self.stamps.next(&mut self.state, self.target.range.id, self.transaction.replica)
    }

    /// Whether the container needs the parsed document: for unique keys or
    /// indexes.
    pub(crate) fn needs_value(&self) -> bool {
        self.target.container.needs_contents()
    }

    /// Adds the id key and the partition member key of a new document.
    pub(crate) fn link_document(&mut self, id: &str, rid: u64) {
        let number = self.target.container.number();
        self.transaction.put(keys::id(number, &self.target.partition, id), rid.to_be_bytes().to_vec());
        self.transaction.put(keys::partition_member(number, &self.target.partition, rid), Bytes::new());
    }

    /// Removes the id key of a document.
    pub(super) fn unlink_id(&mut self, id: &str) {
        self.transaction.remove(keys::id(self.target.container.number(), &self.target.partition, id));
    }

    /// Writes a version of a document and updates index entries, feed entry, expiry entry, counters
    /// and version log. `key_source` is the new version; `None` if [`ItemWrite::needs_value`] is false.
    /// The caller writes the id, the partition member and the unique keys.
    pub(crate) fn put_document(
        &mut self,
        rid: u64,
        old: Option<&StoredDocument>,
        stored: &StoredDocument,
        key_source: Option<KeySource<'_>>,
    ) -> Result<(), Refusal> {
        if key_source.is_some() {
            let old = old.map(|old| self.known_or_parsed(rid, old)).transpose()?;
            self.replace_index_entries(rid, old.as_deref().map(KeySource::of_known), key_source);
        }
        self.replace_feed_and_expiry_entries(rid, old, Some(stored));
        self.update_counters(old, Some(stored));
        let stamp = WriteStamp { lsn: stored.lsn, ordinal: stored.ordinal };
        let change = LoggedChange::Write { old, new: stored };
        version_log::append(self.transaction, self.target, change, stamp);
        let key = keys::document(self.target.container.number(), self.target.range.segment, rid);
        self.transaction.put(key, stored.encode());
        Ok(())
    }

    /// A stored version, parsed. If it was parsed before the write reached the writer, that result
    /// is used; otherwise the version is parsed now.
    fn known_or_parsed(&mut self, rid: u64, old: &StoredDocument) -> Result<Arc<KnownDocument>, Refusal> {
        let version = DocumentVersion::of(rid, old);
        let number = self.target.container.number();
        match self.transaction.prepared.document(number, rid).filter(|known| known.version == version) {
            Some(known) => Ok(Arc::clone(known)),
            None => {
                self.transaction.spend_parsing(old.text.len())?;
                Ok(Arc::new(KnownDocument { version, value: old.value(), unique_values: None }))
            }
        }
    }

    /// Removes a document and every key that points at it.
    pub(crate) fn remove_document(
        &mut self,
        id: &str,
        rid: u64,
        old: &StoredDocument,
        reason: RemovalReason,
        stamp: WriteStamp,
    ) -> Result<(), Refusal> {
        let number = self.target.container.number();
        if self.needs_value() {
            let known = self.known_or_parsed(rid, old)?;
            self.release_unique_keys(rid, KeySource::of_known(&known))?;
            self.replace_index_entries(rid, Some(KeySource::of_known(&known)), None);
        }
        self.replace_feed_and_expiry_entries(rid, Some(old), None);
        self.update_counters(Some(old), None);
        let change = LoggedChange::Removal { id, old, is_expiry: reason == RemovalReason::Expire };
        version_log::append(self.transaction, self.target, change, stamp);
        self.transaction.remove(keys::id(number, &self.target.partition, id));
        self.transaction.remove(keys::partition_member(number, &self.target.partition, rid));
        self.transaction.remove(keys::document(number, self.target.range.segment, rid));
        Ok(())
    }

    /// The store's keys for the unique keys of a document, one for each constraint.
    fn unique_keys_of(&self, key_source: KeySource<'_>) -> Vec<Vec<u8>> {
        let container = &self.target.container;
        let constraints = container.unique_keys.iter().enumerate();
        constraints
            .map(|(constraint, paths)| {
                let values = key_source.unique_values(constraint, paths);
                keys::unique_key(container.number(), &self.target.partition, constraint as u16, &values)
            })
            .collect()
    }

    /// Replaces the unique keys of a document by those of its new version. Refuses the
    /// write if another document that is not expired has one of the new keys.
    pub(super) fn claim_unique_keys(
        &mut self,
        rid: u64,
        old: Option<&StoredDocument>,
        new: KeySource<'_>,
    ) -> Result<(), Refusal> {
        self.release_old_unique_keys(rid, old)?;
        for key in self.unique_keys_of(new) {
            if let Some(owner) = self.owner_of_unique_key(&key)?
                && owner != rid
                && !self.is_missing_or_expired(owner)?
            {
                return Err(Refusal::document_exists().with_charge(charge::UNIQUE_CONFLICT));
            }
            self.transaction.put(key, rid.to_be_bytes().to_vec());
        }
        Ok(())
    }

    /// Replaces the unique keys of a document by those of its new version, even if
    /// another document has one of the new keys.
    pub(crate) fn overwrite_unique_keys(
        &mut self,
        rid: u64,
        old: Option<&StoredDocument>,
        new: KeySource<'_>,
    ) -> Result<(), Refusal> {
        self.release_old_unique_keys(rid, old)?;
        for key in self.unique_keys_of(new) {
            self.transaction.put(key, rid.to_be_bytes().to_vec());
        }
        Ok(())
    }

    /// Releases the unique keys of the old version, if there is one.
    fn release_old_unique_keys(&mut self, rid: u64, old: Option<&StoredDocument>) -> Result<(), Refusal> {
        match old {
            Some(old) if !self.target.container.unique_keys.is_empty() => {
                let known = self.known_or_parsed(rid, old)?;
                self.release_unique_keys(rid, KeySource::of_known(&known))
            }
            _ => Ok(()),
        }
    }

    /// Releases the unique keys that this document owns.
    fn release_unique_keys(&mut self, rid: u64, old: KeySource<'_>) -> Result<(), Refusal> {
        for key in self.unique_keys_of(old) {
            if self.owner_of_unique_key(&key)? == Some(rid) {
                self.transaction.remove(key);
            }
        }
        Ok(())
    }

    /// The `_rid` counter of the document that has a unique key.
    fn owner_of_unique_key(&self, key: &[u8]) -> Result<Option<u64>, Refusal> {
        Ok(self.transaction.get(key)?.and_then(|owner| keys::last_u64(&owner)))
    }

    fn is_missing_or_expired(&self, rid: u64) -> Result<bool, Refusal> {
        let key = keys::document(self.target.container.number(), self.target.range.segment, rid);
        let record = self.transaction.get(&key)?;
        Ok(record
            .as_ref()
            .and_then(StoredDocument::decode)
            .is_none_or(|document| self.target.has_expired(&document, self.transaction.now)))
    }

    /// Replaces the index entries of the old version by those of the new version.
    fn replace_index_entries(&mut self, rid: u64, old: Option<KeySource<'_>>, new: Option<KeySource<'_>>) {
        let container = &self.target.container;
        for index in &container.indexes {
            let group = self.target.index_group();
            let entry = |key_source: KeySource<'_>| {
                index.entry_key_by(container.number(), group, |path| key_source.find(path), rid)
            };
            let (old_entry, new_entry) = (old.map(entry), new.map(entry));
            if old_entry == new_entry {
                continue;
            }
            if let Some(key) = old_entry {
                self.transaction.remove(key);
            }
            if let Some(key) = new_entry {
                self.transaction.put(key, Bytes::new());
            }
        }
    }

    /// Replaces the entries in the change feed and in the expiry list.
    fn replace_feed_and_expiry_entries(
        &mut self,
        rid: u64,
        old: Option<&StoredDocument>,
        new: Option<&StoredDocument>,
    ) {
        let (number, segment) = (self.target.container.number(), self.target.range.segment);
        if let Some(old) = old {
            self.transaction.remove(keys::feed_entry(number, segment, old.lsn, old.ordinal));
            if old.expires_at != 0 {
                self.transaction.remove(keys::expiry(old.expires_at, number, segment, rid));
            }
        }
        if let Some(new) = new {
            self.transaction
                .put(keys::feed_entry(number, segment, new.lsn, new.ordinal), rid.to_be_bytes().to_vec());
            if new.expires_at != 0 {
                self.transaction.put(keys::expiry(new.expires_at, number, segment, rid), Bytes::new());
            }
        }
    }

    /// Updates the numbers of documents and bytes of the range.
    fn update_counters(&mut self, old: Option<&StoredDocument>, new: Option<&StoredDocument>) {
        if let Some(range) = self.state.range_mut(self.target.range.id) {
            let size =
                |document: Option<&StoredDocument>| document.map_or(0, |document| document.text.len() as i64);
            range.documents += i64::from(new.is_some()) - i64::from(old.is_some());
            range.bytes += size(new) - size(old);
        }
    }
}
