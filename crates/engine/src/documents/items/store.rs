//! Storing a version of a document or removing it, and adding the change to the
//! outbox for the other regions.

use bytes::Bytes;
use perihelion_wire::status;

use super::WriteStamp;
use super::write::{ItemWrite, Written};
use crate::charge;
use crate::documents::ITEM_BYTES_MAX;
use crate::documents::body::{NewBody, SystemMembers};
use crate::documents::content::{Content, KeySource};
use crate::documents::stored::StoredDocument;
use crate::documents::version_log::RemovalReason;
use crate::refusal::Refusal;
use crate::region::REGIONS_MAX;
use crate::replication::{self, Change, ChangeOperation, Tombstones, Version};

impl ItemWrite<'_, '_> {
    /// Stores a document that does not exist.
    pub(super) fn store_new(&mut self, body: NewBody) -> Result<Written, Refusal> {
        let rid = self.state.take_rid(self.transaction.replica);
        self.link_document(&body.id, rid);
        let stored = self.store(rid, None, Content::New(body))?;
        let charge = charge::create(stored.terms, stored.text.len());
        Ok(Written { status: status::CREATED.code, stored: Some(stored), charge })
    }

    /// Stores a new version of an existing document. `charge_of` is one of the functions in
    /// the module [`charge`]. It takes the numbers of indexed values of the old version
    /// and of the new version, and the size of the new version in bytes.
    pub(super) fn store_over(
        &mut self,
        rid: u64,
        old: &StoredDocument,
        content: Content,
        charge_of: fn(u32, u32, usize) -> f64,
    ) -> Result<Written, Refusal> {
        let stored = self.store(rid, Some(old), content)?;
        let charge = charge_of(old.terms, stored.terms, stored.text.len());
        Ok(Written { status: status::OK.code, stored: Some(stored), charge })
    }

    /// Writes a version of a document and the keys that change with it. The caller has
    /// written the id and the partition member of a new document. With several regions,
    /// adds a change for the other regions.
    fn store(
        &mut self,
        rid: u64,
        old: Option<&StoredDocument>,
        content: Content,
    ) -> Result<StoredDocument, Refusal> {
        let ttl = Self::checked_ttl(&content)?;
        let stamp = self.next_stamp();
        let etag_counter = self.state.take_etag(self.transaction.replica);
        // Only the outbox and the tombstones need the id. An account with one region has
        // neither.
        let id = self.transaction.replica.map(|_| content.id().to_owned());
        let timestamp = self.write_time(id.as_deref(), old)?;
        let system = SystemMembers::new(&self.target.container, rid, etag_counter, timestamp);
        let container = &self.target.container;
        let terms = content.terms();
        let text = content.text(&system);
        let mut stored = StoredDocument {
            lsn: stamp.lsn,
            ordinal: stamp.ordinal,
            created_lsn: old.map_or(stamp.lsn, |old| old.created_lsn),
            timestamp,
            etag_counter,
            expires_at: 0,
            ttl,
            terms,
            effective_key: self.target.effective_key.clone(),
            text: Bytes::from(text),
        };
        stored.expires_at = stored.expiry(container.default_ttl).unwrap_or(0);
        if stored.text.len() > ITEM_BYTES_MAX {
            return Err(Refusal::too_large());
        }
        let key_source = self.needs_value().then_some(KeySource::New(&content, &system));
        if let Some(key_source) = key_source {
            self.claim_unique_keys(rid, old, key_source)?;
        }
        self.put_document(rid, old, &stored, key_source)?;
        if let Some(id) = id {
            let (created_lsn, text) = (stored.created_lsn, stored.text.clone());
            let operation = ChangeOperation::Put { created_lsn, ttl, terms, text };
            self.append_to_outbox(stamp, stored.version(), id, rid, operation)?;
        }
        Ok(stored)
    }

    /// Removes a document and every key that points at it. With several regions, adds
    /// a tombstone and a change for the other regions.
    pub(super) fn erase(
        &mut self,
        id: &str,
        rid: u64,
        old: &StoredDocument,
        reason: RemovalReason,
    ) -> Result<(), Refusal> {
        let stamp = self.next_stamp();
        self.remove_document(id, rid, old, reason, stamp)?;
        if self.transaction.replica.is_none() {
            return Ok(());
        }
        let operation = match reason {
            RemovalReason::Expire => ChangeOperation::Expire,
            RemovalReason::Delete => ChangeOperation::Delete,
        };
        self.send_delete(stamp, id, rid, old, operation)
    }

    /// Changes the id of a document. Only for an account with one region.
    pub(super) fn move_id(&mut self, from: &str, to: &str, rid: u64) {
        self.unlink_id(from);
        self.link_document(to, rid);
    }

    /// Adds a tombstone, and a change that removes the document in the other regions.
    fn send_delete(
        &mut self,
        stamp: WriteStamp,
        id: &str,
        rid: u64,
        old: &StoredDocument,
        operation: ChangeOperation,
    ) -> Result<(), Refusal> {
        let version = Version {
            timestamp: self.transaction.now.max(old.timestamp),
            etag_counter: self.state.take_etag(self.transaction.replica),
        };
        self.transaction.put_tombstone(self.target.document_key(id), version);
        self.append_to_outbox(stamp, version, id.to_owned(), rid, operation)
    }

    /// The timestamp of a write. With one region (`id` is `None`) the timestamp is the time now.
    /// With several regions it is not before the timestamp of the version or tombstone that the
    /// write replaces, so that every region treats the write as the later one. Also removes the
    /// tombstone that the write replaces.
    fn write_time(&mut self, id: Option<&str>, old: Option<&StoredDocument>) -> Result<u64, Refusal> {
        let (now, Some(id)) = (self.transaction.now, id) else { return Ok(self.transaction.now) };
        let now = now.max(old.map_or(0, |old| old.timestamp));
        // A deleted document may have had this id. Then the id has a tombstone.
        let document = self.target.document_key(id);
        let Some(deleted) = self.transaction.tombstone(document)? else { return Ok(now) };
        self.transaction.remove_tombstone(document, deleted);
        Ok(now.max(deleted.timestamp))
    }

    /// Adds a change to the outbox, for the other regions.
    fn append_to_outbox(
        &mut self,
        stamp: WriteStamp,
        version: Version,
        id: String,
        rid: u64,
        operation: ChangeOperation,
    ) -> Result<(), Refusal> {
        let range = self.target.range.id;
        let change = Change {
            container: self.target.container.number(),
            range,
            lsn: stamp.lsn,
            version,
            applied_lsns: self.state.range(range).map_or([0; REGIONS_MAX], |range| range.applied_lsns),
            rid,
            partition: Some(self.target.partition.clone()),
            effective_key: self.target.effective_key.clone(),
            id,
            operation,
        };
        replication::append_to_outbox(self.transaction, &mut self.stamps.outbox, change.encode())
    }

    /// The document's own `ttl`, 0 for none. An invalid `ttl` is refused in every container.
    fn checked_ttl(content: &Content) -> Result<i32, Refusal> {
        content.ttl().ok_or_else(|| {
            let text = "The input ttl is invalid. Ensure to provide a nonzero positive integer or -1.";
            Refusal::bad_request(text).with_charge(charge::BAD_DOCUMENT)
        })
    }
}
