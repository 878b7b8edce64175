//! The operations of a commit in the instance's own partition. A batch and a transaction have the
//! same operations in the same order, but only a batch has outboxes.

use std::ops::Range;

use perihelion_client::{Batch, Container, DistributedWriteTransaction, Error, Etag, Patch};
use serde::Serialize;

use super::CommitPreconditions;
use crate::documents::{Activity, DocumentType, STATE_ID};
use crate::ops::orchestration::stage::Staged;
use crate::plan::{PastWrite, TurnPlan};

/// The batch or the transaction that the operations are added to.
pub(super) enum Operations<'a> {
    Batch(&'a mut Batch),
    Transaction {
        transaction: &'a mut DistributedWriteTransaction,
        container: &'a Container,
        instance: &'a str,
    },
}

impl Operations<'_> {
    fn create<T: Serialize>(&mut self, value: &T) -> Result<(), Error> {
        match self {
            Operations::Batch(batch) => batch.create(value).map(drop),
            Operations::Transaction { transaction, container, instance } => {
                transaction.create(container, *instance, value).map(drop)
            }
        }
    }

    fn upsert<T: Serialize>(&mut self, value: &T) -> Result<(), Error> {
        match self {
            Operations::Batch(batch) => batch.upsert(value).map(drop),
            Operations::Transaction { transaction, container, instance } => {
                transaction.upsert(container, *instance, value).map(drop)
            }
        }
    }

    fn replace_if_match<T: Serialize>(&mut self, id: &str, value: &T, etag: &Etag) -> Result<(), Error> {
        match self {
            Operations::Batch(batch) => batch.replace_if_match(id, value, etag).map(drop),
            Operations::Transaction { transaction, container, instance } => {
                transaction.replace_if_match(container, *instance, id, value, etag).map(drop)
            }
        }
    }

    fn patch(&mut self, id: &str, patch: &Patch) -> Result<(), Error> {
        match self {
            Operations::Batch(batch) => batch.patch(id, patch).map(drop),
            Operations::Transaction { transaction, container, instance } => {
                transaction.patch(container, *instance, id, patch).map(drop)
            }
        }
    }

    fn patch_if_match(&mut self, id: &str, patch: &Patch, etag: &Etag) -> Result<(), Error> {
        match self {
            Operations::Batch(batch) => batch.patch_if_match(id, patch, etag).map(drop),
            Operations::Transaction { transaction, container, instance } => {
                transaction.patch_if_match(container, *instance, id, patch, etag).map(drop)
            }
        }
    }

    fn delete(&mut self, id: &str) -> Result<(), Error> {
        match self {
            Operations::Batch(batch) => batch.delete(id).map(drop),
            Operations::Transaction { transaction, container, instance } => {
                transaction.delete(container, *instance, id).map(drop)
            }
        }
    }

    fn delete_if_match(&mut self, id: &str, etag: &Etag) -> Result<(), Error> {
        match self {
            Operations::Batch(batch) => batch.delete_if_match(id, etag).map(drop),
            Operations::Transaction { transaction, container, instance } => {
                transaction.delete_if_match(container, *instance, id, etag).map(drop)
            }
        }
    }

    /// The number of operations so far.
    fn len(&self) -> usize {
        match self {
            Operations::Batch(batch) => batch.len(),
            Operations::Transaction { transaction, .. } => transaction.len(),
        }
    }

    fn has_outboxes(&self) -> bool {
        matches!(self, Operations::Batch(_))
    }
}

/// The operations, by index, that make the commit stale if their document does not exist: another
/// writer has deleted the document, and the turn is planned again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StaleIfMissing {
    /// The operations on staged documents. The reconciler may have deleted these documents.
    pub(super) staged: Range<usize>,
    /// The operations on existing documents that the turn changes. Another writer may have pruned the
    /// document of a past execution, or unpacked a bundle.
    pub(super) edited: Range<usize>,
}

impl StaleIfMissing {
    pub(super) fn contains(&self, index: usize) -> bool {
        self.staged.contains(&index) || self.edited.contains(&index)
    }
}

/// Adds the operations of a commit. The parent module relies on the positions of the first
/// operations: the state, then the activities.
pub(super) fn add_operations(
    operations: &mut Operations<'_>,
    plan: &TurnPlan,
    activities: &[Activity],
    preconditions: CommitPreconditions<'_>,
) -> Result<StaleIfMissing, Error> {
    let mut stale_if_missing = StaleIfMissing::default();
    match preconditions.etag {
        Some(etag) => operations.replace_if_match(STATE_ID, &plan.state, etag)?,
        None => operations.create(&plan.state)?,
    }
    for activity in activities {
        operations.create(activity)?;
    }
    match preconditions.staged {
        Some(staged) => {
            let first = operations.len();
            publish_staged(operations, plan, staged)?;
            stale_if_missing.staged = first..operations.len();
        }
        None => create_unstaged(operations, plan)?,
    }
    for message in &plan.messages {
        operations.create(message)?;
    }
    let first_edited = operations.len();
    match &plan.past {
        Some(PastWrite { document, etag: Some(etag) }) => {
            operations.replace_if_match(&document.id, document, etag)?;
        }
        Some(PastWrite { document, etag: None }) => operations.create(document)?,
        None => {}
    }
    for bundle in &plan.edited_bundles {
        let skip = Patch::new().set("/skip", &bundle.value.skip)?;
        operations.patch_if_match(&bundle.value.id, &skip, &bundle.etag)?;
    }
    stale_if_missing.edited = first_edited..operations.len();
    for cancelled in &plan.cancelled {
        operations.upsert(cancelled)?;
    }
    for message in &plan.consumed {
        operations.delete(message)?;
    }
    if let Some(garbage) = &plan.garbage {
        operations.create(garbage)?;
    }
    Ok(stale_if_missing)
}

/// Creates the chunks, parts, bundles and outboxes of a turn that stages none of them.
fn create_unstaged(operations: &mut Operations<'_>, plan: &TurnPlan) -> Result<(), Error> {
    for chunk in &plan.chunks {
        operations.create(chunk)?;
    }
    for part in &plan.parts {
        operations.create(part)?;
    }
    for bundle in &plan.bundles {
        operations.create(bundle)?;
    }
    if operations.has_outboxes() {
        for outbox in &plan.outboxes {
            operations.create(outbox)?;
        }
    }
    Ok(())
}

/// Makes staged documents visible: deletes the garbage record of the staging, and gives bundles
/// and outboxes their type. The new state refers to the chunks and parts.
fn publish_staged(operations: &mut Operations<'_>, plan: &TurnPlan, staged: &Staged) -> Result<(), Error> {
    debug_assert!(operations.has_outboxes(), "a turn with staged documents must be committed as a batch");
    operations.delete_if_match(&staged.id, &staged.etag)?;
    for bundle in &plan.bundles {
        operations.patch(&bundle.id, &Patch::new().set("/type", DocumentType::Bundle)?)?;
    }
    for outbox in &plan.outboxes {
        operations.patch(&outbox.id, &Patch::new().set("/type", DocumentType::Outbox)?)?;
    }
    Ok(())
}
