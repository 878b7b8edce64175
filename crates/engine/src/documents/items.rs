//! Item operations: create, read, upsert, replace, patch, delete.
//!
//! Each operation is a function on a transaction. It either writes to the transaction and returns
//! an outcome, or refuses. The caller runs the function in an attempt ([`Transaction::attempt`]),
//! which undoes the writes of a refused operation. Batches use the same functions.

mod secondary_keys;
mod stamps;
mod store;
mod target;
mod write;

use bytes::Bytes;
use perihelion_model::etag;
use perihelion_wire::status;

pub(crate) use self::stamps::{WriteStamp, WriteStamps};
pub use self::target::Target;
pub(crate) use self::write::ItemWrite;
pub(super) use self::write::bad_document;
use super::body::NewBody;
use super::patch::NewPatch;
use super::stored::StoredDocument;
use crate::charge;
use crate::keys;
use crate::refusal::Refusal;
use crate::state::{ContainerState, Position};
use crate::storage::{StoreError, View};
use crate::transaction::Transaction;

/// An operation on one item.
#[derive(Debug, Clone)]
pub enum ItemOperation {
    /// Stores a new document.
    Create {
        /// The new document.
        body: NewBody,
    },
    /// Creates a document, or replaces the existing document with the same id.
    Upsert {
        /// The new document.
        body: NewBody,
    },
    /// Replaces the existing document with this id. A body with another id renames it.
    Replace {
        /// The id of the existing document.
        id: String,
        /// The new document.
        body: NewBody,
    },
    /// Changes some paths of an existing document.
    Patch {
        /// The id of the existing document.
        id: String,
        /// The changes.
        patch: NewPatch,
    },
    /// Removes a document.
    Delete {
        /// The id of the document.
        id: String,
    },
    /// Reads a document; only in a batch.
    Read {
        /// The id of the document.
        id: String,
    },
}

/// `If-Match` and `If-None-Match` as sent: an etag, or `*` for any. They are checked only
/// against a document that exists: a create, and an upsert of a new document, ignore
/// them.
#[derive(Debug, Clone, Default)]
pub struct Precondition {
    /// The etag that the document must have.
    pub if_match: Option<String>,
    /// The etag that the document must not have.
    pub if_none_match: Option<String>,
}

/// The outcome of an item operation.
#[derive(Debug, Clone)]
pub struct ItemOutcome {
    /// The status that the service answers with.
    pub status: u16,
    /// The document's text; empty after a delete and when the document is
    /// unchanged (`NOT_MODIFIED`).
    pub body: Bytes,
    /// The etag of the document that was written or read; `None` after a delete.
    pub etag: Option<String>,
    /// Request units.
    pub charge: f64,
    /// The position of the range after the operation.
    pub position: Position,
    /// The LSN of the document's last write. Only for a read that returns the document.
    pub item_lsn: Option<u64>,
    /// Documents and bytes in the container before this operation.
    pub usage: Usage,
}

/// The size of a container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// The number of documents.
    pub documents: u64,
    /// The bytes of the documents' texts.
    pub bytes: u64,
}

impl Usage {
    pub(crate) fn of(state: &ContainerState) -> Self {
        Usage { documents: state.documents(), bytes: state.bytes() }
    }
}

/// Reads single keys, from a snapshot or from a transaction.
pub(crate) trait KeyReader {
    fn read_key(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError>;
}

impl KeyReader for dyn View + '_ {
    fn read_key(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.get(key)
    }
}

impl KeyReader for Transaction<'_> {
    fn read_key(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.get(key)
    }
}

/// Finds a document by its partition and id; `None` also for an expired document. Returns
/// the counter in its `_rid`, and the document. `now` is in seconds since 1970.
pub(crate) fn lookup<R: KeyReader + ?Sized>(
    reader: &R,
    target: &Target,
    id: &str,
    now: u64,
) -> Result<Option<(u64, StoredDocument)>, Refusal> {
    Ok(lookup_any(reader, target, id)?.filter(|(_, document)| !target.has_expired(document, now)))
}

/// Finds a document by its partition and id, expired or not. Returns the counter in its
/// `_rid`, and the document.
pub(crate) fn lookup_any<R: KeyReader + ?Sized>(
    reader: &R,
    target: &Target,
    id: &str,
) -> Result<Option<(u64, StoredDocument)>, Refusal> {
    let number = target.container.number();
    let Some(rid) = reader.read_key(&keys::id(number, &target.partition, id))? else {
        return Ok(None);
    };
    let Some(rid) = keys::last_u64(&rid) else { return Ok(None) };
    let record = reader.read_key(&keys::document(number, target.range.segment, rid))?;
    Ok(record.as_ref().and_then(StoredDocument::decode).map(|document| (rid, document)))
}

/// Performs one operation.
pub(crate) fn perform(
    transaction: &mut Transaction<'_>,
    target: &Target,
    operation: ItemOperation,
    precondition: &Precondition,
    stamps: &mut WriteStamps,
) -> Result<ItemOutcome, Refusal> {
    let number = target.container.number();
    let state = transaction.state(number)?;
    let usage = Usage::of(&state);
    let mut write = ItemWrite { transaction, target, precondition, stamps, state };
    let written = match operation {
        ItemOperation::Create { body } => write.create(body)?,
        ItemOperation::Upsert { body } => write.upsert(body)?,
        ItemOperation::Replace { id, body } => write.replace(&id, body)?,
        ItemOperation::Patch { id, patch } => write.patch(&id, &patch)?,
        ItemOperation::Delete { id } => write.delete(&id)?,
        ItemOperation::Read { id } => {
            return read(write.transaction, target, &id, precondition, &write.state, write.transaction.now);
        }
    };
    let state = write.state;
    transaction.put_state(number, &state);
    Ok(ItemOutcome {
        status: written.status,
        etag: written.stored.as_ref().map(StoredDocument::etag),
        body: written.stored.map_or_else(Bytes::new, |stored| stored.text),
        charge: written.charge,
        position: state.position(target.range.id),
        item_lsn: None,
        usage,
    })
}

/// Reads one document.
pub(crate) fn read<R: KeyReader + ?Sized>(
    reader: &R,
    target: &Target,
    id: &str,
    precondition: &Precondition,
    state: &ContainerState,
    now: u64,
) -> Result<ItemOutcome, Refusal> {
    let position = state.position(target.range.id);
    let Some((_, document)) = lookup(reader, target, id, now)? else {
        return Err(Refusal::no_such_document().with_charge(charge::NOT_FOUND_READ).at(position));
    };
    let etag = document.etag();
    if let Some(condition) = &precondition.if_match
        && !etag::matches(condition, &etag)
    {
        return Err(Refusal::precondition_failed().with_charge(charge::PRECONDITION_FAILED).at(position));
    }
    let is_unchanged =
        precondition.if_none_match.as_ref().is_some_and(|condition| etag::matches(condition, &etag));
    Ok(ItemOutcome {
        status: if is_unchanged { status::NOT_MODIFIED.code } else { status::OK.code },
        charge: if is_unchanged { charge::read(0) } else { charge::read(document.text.len()) },
        body: if is_unchanged { Bytes::new() } else { document.text },
        etag: Some(etag),
        position,
        item_lsn: (!is_unchanged).then_some(document.lsn),
        usage: Usage::of(state),
    })
}

/// Removes an expired document, if it is still there and still expired. Returns whether the
/// document is gone.
pub(crate) fn expire(transaction: &mut Transaction<'_>, target: &Target, id: &str) -> Result<bool, Refusal> {
    let Some((rid, old)) = lookup_any(transaction, target, id)? else { return Ok(true) };
    if !target.has_expired(&old, transaction.now) {
        return Ok(false);
    }
    let (precondition, mut stamps) = (Precondition::default(), WriteStamps::default());
    let state = transaction.state(target.container.number())?;
    let mut write =
        ItemWrite { transaction, target, precondition: &precondition, stamps: &mut stamps, state };
    write.expire(id, rid, &old)?;
    let state = write.state;
    transaction.put_state(target.container.number(), &state);
    Ok(true)
}
