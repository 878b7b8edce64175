//! Preparing writes on a snapshot before they reach the writer: the documents that they change are
//! parsed, conditions of patches are evaluated, and patches are applied.
//!
//! All writes wait for the one writer. A preparation is valid only for the versions in the
//! snapshot. When the writer finds another version, because of a concurrent write, the writer does
//! the work itself if it is little, or refuses with 449. After a 449, a write of one item or a
//! batch is prepared again.
//!
//! An operation on a document that an earlier operation of the same request changes cannot be
//! prepared, because the changed version does not exist yet. The writer does the work of such an
//! operation.

use std::collections::BTreeMap;
use std::sync::Arc;

use perihelion_model::json::Value;
use perihelion_model::partition_key::PartitionKey;
use perihelion_wire::status;

use super::Engine;
use crate::blocking;
use crate::catalog::Container;
use crate::charge;
use crate::distributed::{DOCUMENT_BYTES_MAX, DistributedWrite};
use crate::documents::{
    self, Batch, BatchScope, ITEM_BYTES_MAX, ItemOperation, JUDGED_WORK_MAX, StoredDocument, Target,
};
use crate::keys::{ContainerNumber, LogicalPartition};
use crate::prepared::{DocumentVersion, KnownDocument, PreparedDocuments};
use crate::refusal::Refusal;
use crate::storage::View;
use crate::transaction::Transaction;

/// The most times that a write is prepared, if its documents keep changing.
pub(super) const PREPARATIONS_MAX: u32 = 8;

/// The bytes of documents that the writer may parse for one request because of concurrent writes.
/// To parse them takes less than a millisecond.
const PARSED_BYTES_MAX: usize = 64 * 1024;

/// The bytes of documents that the writer may parse for one batch because earlier operations of the
/// batch change these documents. A distributed transaction has a bound of its own,
/// [`DOCUMENT_BYTES_MAX`].
const CHAINED_BYTES_MAX: usize = ITEM_BYTES_MAX;

/// The most bytes of stored documents that are parsed for one request, or copied to the version log
/// because the request removes them. Parsed values take several times as much memory, until the
/// writer has run the request.
const STORED_BYTES_MAX: usize = 32 * 1024 * 1024;

/// To parse a larger document takes milliseconds, so it is parsed with [`blocking::run`], which
/// lets other tasks run.
const PROMPT_BYTES_MAX: usize = 256 * 1024;

/// The preparation of one job of the writer.
#[derive(Debug, Clone)]
pub(super) struct Prepared {
    documents: Arc<PreparedDocuments>,
    parsed_bytes_max: usize,
}

impl Prepared {
    /// Gives the job its prepared documents.
    pub(super) fn give_to(&self, transaction: &mut Transaction<'_>) {
        transaction.use_prepared(Arc::clone(&self.documents), self.parsed_bytes_max);
    }
}

impl Engine {
    /// Prepares an operation on one item. A key that does not fit the container is refused later,
    /// by the operation.
    pub(super) fn prepare_item(
        &self,
        container: &Arc<Container>,
        key: &PartitionKey,
        operation: &mut ItemOperation,
    ) -> Result<Prepared, Refusal> {
        let container = &self.newest(container);
        let view = self.store.view()?;
        let mut preparation = Preparation::new(&*view, self.clock().seconds());
        if let Ok(target) = Target::resolve(container, key.clone()) {
            preparation.add(&target, operation)?;
        }
        preparation.finish(CHAINED_BYTES_MAX)
    }

    /// Prepares a batch, and refuses a batch that changes too many bytes of documents.
    pub(super) fn prepare_batch(
        &self,
        container: &Arc<Container>,
        batch: &mut Batch,
    ) -> Result<Prepared, Refusal> {
        let container = &self.newest(container);
        let view = self.store.view()?;
        let mut preparation = Preparation::new(&*view, self.clock().seconds());
        for item in &mut batch.operations {
            let key = match (&batch.scope, &item.partition_key) {
                (BatchScope::Partition(key), _) => key,
                (BatchScope::Range(_), Some(key)) => key,
                (BatchScope::Range(_), None) => continue,
            };
            if let (Ok(target), Ok(operation)) =
                (Target::resolve(container, key.clone()), &mut item.operation)
            {
                preparation.add(&target, operation)?;
            }
        }
        preparation.finish(CHAINED_BYTES_MAX)
    }

    /// Prepares a distributed transaction.
    pub(super) fn prepare_distributed(&self, write: &mut DistributedWrite) -> Result<Prepared, Refusal> {
        let view = self.store.view()?;
        let mut preparation = Preparation::new(&*view, self.clock().seconds());
        for item in &mut write.operations {
            let (Ok(container), Ok(operation)) = (&item.container, &mut item.operation) else { continue };
            if let Ok(target) = Target::resolve(&self.newest(container), item.partition_key.clone()) {
                preparation.add(&target, operation)?;
            }
        }
        preparation.finish(DOCUMENT_BYTES_MAX)
    }

    /// The container as the catalog has it now. The given container may be older: meanwhile the
    /// container may have got its first index, and then the writer needs the contents of documents.
    /// The writer refuses a container that was deleted meanwhile.
    fn newest(&self, container: &Arc<Container>) -> Arc<Container> {
        let catalog = self.catalog();
        Arc::clone(catalog.container_by_number(container.number()).unwrap_or(container))
    }
}

/// The operations of one request, while they are prepared one after the other.
struct Preparation<'a> {
    view: &'a dyn View,
    /// Seconds since 1970.
    now: u64,
    /// The work that may still be done for conditions of patches, of [`JUDGED_WORK_MAX`].
    work_left: u64,
    documents: PreparedDocuments,
    /// The documents that the operations so far change, and about how many bytes each has after its
    /// change.
    changed: BTreeMap<(ContainerNumber, LogicalPartition, String), usize>,
    /// The bytes of the stored documents that were parsed.
    stored_bytes: usize,
    /// The bytes of the documents that are patched.
    patched_bytes: usize,
    /// The bytes of the documents that the writer has to parse, because earlier operations of the
    /// request change them.
    chained_bytes: usize,
}

impl<'a> Preparation<'a> {
    fn new(view: &'a dyn View, now: u64) -> Self {
        Preparation {
            view,
            now,
            work_left: JUDGED_WORK_MAX,
            documents: PreparedDocuments::default(),
            changed: BTreeMap::new(),
            stored_bytes: 0,
            patched_bytes: 0,
            chained_bytes: 0,
        }
    }

    /// Prepares the next operation.
    fn add(&mut self, target: &Target, operation: &mut ItemOperation) -> Result<(), Refusal> {
        let (id, bytes_after) = match operation {
            ItemOperation::Read { .. } => return Ok(()),
            ItemOperation::Create { body } | ItemOperation::Upsert { body } => {
                (body.id.clone(), body.text_bytes())
            }
            ItemOperation::Replace { id, body } => (id.clone(), body.text_bytes()),
            ItemOperation::Patch { id, patch } => (id.clone(), patch.changes.added_bytes_max()),
            ItemOperation::Delete { id } => (id.clone(), 0),
        };
        let is_patch = matches!(operation, ItemOperation::Patch { .. });
        if !is_patch && !target.container.needs_contents() {
            self.count_logged_removal(target, &id, operation)?;
            // The writer parses nothing, unless a later operation patches the document.
            if let ItemOperation::Replace { body, .. } = operation {
                self.changed.insert(place(target, body.id.clone()), bytes_after);
            }
            self.changed.insert(place(target, id), bytes_after);
            return Ok(());
        }
        let place_of_document = place(target, id);
        let bytes_before = match self.changed.get(&place_of_document) {
            Some(bytes) => {
                self.chained_bytes += bytes;
                *bytes
            }
            None => self.prepare_stored(target, &place_of_document.2, operation)?,
        };
        if let ItemOperation::Replace { id, body } = operation
            && body.id != *id
        {
            // An expired document may have the new id.
            let new_id = body.id.clone();
            self.prepare_stored(target, &new_id, operation)?;
            self.changed.insert(place(target, new_id), bytes_after);
        }
        let bytes_after = if is_patch { bytes_before + bytes_after } else { bytes_after };
        self.patched_bytes += if is_patch { bytes_before } else { 0 };
        self.changed.insert(place_of_document, bytes_after);
        Ok(())
    }

    /// Prepares an operation on the stored version of a document, if there is one. Returns the
    /// bytes of that version.
    fn prepare_stored(
        &mut self,
        target: &Target,
        id: &str,
        operation: &mut ItemOperation,
    ) -> Result<usize, Refusal> {
        let Some((rid, document)) = documents::lookup_any(self.view, target, id)? else { return Ok(0) };
        let (version, container) = (DocumentVersion::of(rid, &document), &target.container);
        let bytes = document.text.len();
        self.count_stored(bytes)?;
        let is_expired = document.is_expired(container.default_ttl, self.now);
        if bytes > PROMPT_BYTES_MAX {
            blocking::run(|| self.prepare_version(container, version, &document, is_expired, operation));
        } else {
            self.prepare_version(container, version, &document, is_expired, operation);
        }
        Ok(bytes)
    }

    /// Counts the bytes of stored documents. Refuses a request with too many.
    fn count_stored(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.stored_bytes += bytes;
        if self.stored_bytes <= STORED_BYTES_MAX {
            return Ok(());
        }
        Err(Refusal::gateway(
            status::TOO_LARGE,
            format!(
                "The request changes documents that have more than {STORED_BYTES_MAX} bytes in all. Divide it into several requests."
            ),
        )
        .with_charge(charge::read(self.stored_bytes)))
    }

    /// Counts the bytes of the document that an operation removes, if the container logs versions:
    /// the writer copies the document to the log. Other writes also remove an expired document that
    /// has the written id.
    fn count_logged_removal(
        &mut self,
        target: &Target,
        id: &str,
        operation: &ItemOperation,
    ) -> Result<(), Refusal> {
        let container = &target.container;
        let is_delete = matches!(operation, ItemOperation::Delete { .. });
        if !container.logs_versions || !is_delete && container.default_ttl.is_none() {
            return Ok(());
        }
        match documents::lookup_any(self.view, target, id)? {
            Some((_, document)) if is_delete || document.is_expired(container.default_ttl, self.now) => {
                self.count_stored(document.text.len())
            }
            _ => Ok(()),
        }
    }

    fn prepare_version(
        &mut self,
        container: &Container,
        version: DocumentVersion,
        document: &StoredDocument,
        is_expired: bool,
        operation: &mut ItemOperation,
    ) {
        let value = document.value();
        let add_known = |documents: &mut PreparedDocuments, value: Value| {
            let unique_values = Some(documents::unique_values_of(&value, container));
            documents.add(container.number(), KnownDocument { version, value, unique_values });
        };
        let ItemOperation::Patch { patch, .. } = operation else {
            return add_known(&mut self.documents, value);
        };
        if is_expired {
            return;
        }
        if patch.has_condition() {
            patch.judge(version, &value, &mut self.work_left);
        }
        if container.needs_contents() {
            add_known(&mut self.documents, value.clone());
        }
        patch.prepare(version, value, container);
    }

    /// Ends the preparation. Refuses a request with too many bytes of documents.
    fn finish(self, chained_bytes_max: usize) -> Result<Prepared, Refusal> {
        // A refusal is charged too, because the documents were read and parsed.
        let charge = charge::read(self.stored_bytes);
        let refuse = |what: String| Err(Refusal::gateway(status::TOO_LARGE, what).with_charge(charge));
        if self.patched_bytes > DOCUMENT_BYTES_MAX {
            return refuse(format!(
                "The request patches more than {DOCUMENT_BYTES_MAX} bytes of documents. Divide it into several requests."
            ));
        }
        if self.chained_bytes > chained_bytes_max {
            return refuse(format!(
                "The request changes some documents more than once, and these have more than {chained_bytes_max} bytes in all. Divide it into several requests."
            ));
        }
        let parsed_bytes_max = PARSED_BYTES_MAX + self.chained_bytes * PARSES_PER_OPERATION;
        Ok(Prepared { documents: Arc::new(self.documents), parsed_bytes_max })
    }
}

/// How often the writer may parse one version of a document: for a patch, for unique keys, and for
/// index entries.
const PARSES_PER_OPERATION: usize = 3;

/// The key of a document in [`Preparation::changed`].
fn place(target: &Target, id: String) -> (ContainerNumber, LogicalPartition, String) {
    (target.container.number(), target.partition.clone(), id)
}
