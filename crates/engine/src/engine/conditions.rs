//! The conditions of patches are evaluated here, on a snapshot, before the patches reach the
//! writer. See `documents::patch`.

use std::collections::BTreeSet;
use std::sync::Arc;

use perihelion_model::partition_key::PartitionKey;
use perihelion_wire::status;

use super::Engine;
use crate::catalog::Container;
use crate::distributed::{DOCUMENT_BYTES_MAX, DistributedWrite};
use crate::documents::{
    self, Batch, BatchScope, DocumentVersion, ITEM_BYTES_MAX, ItemOperation, JUDGED_WORK_MAX, NewPatch,
    Target,
};
use crate::refusal::Refusal;
use crate::storage::View;

impl Engine {
    /// Evaluates the condition of an operation, if it has one. A key that does not fit the
    /// container is refused later, by the operation.
    pub(super) fn judge_item(
        &self,
        container: &Arc<Container>,
        key: &PartitionKey,
        operation: &mut ItemOperation,
    ) -> Result<(), Refusal> {
        if let ItemOperation::Patch { id, patch } = operation
            && patch.has_condition()
            && let Ok(target) = Target::resolve(container, key.clone())
        {
            let (view, now) = (self.store.view()?, self.clock().seconds());
            judge(&*view, now, &target, id, patch, &mut JUDGED_WORK_MAX.clone())?;
        }
        Ok(())
    }

    /// Evaluates the conditions of a batch, and refuses a batch that patches too many bytes of
    /// documents. The writer evaluates a condition on a document that an earlier operation of
    /// the batch may have changed.
    pub(super) fn judge_batch(&self, container: &Arc<Container>, batch: &mut Batch) -> Result<(), Refusal> {
        let is_patch = |operation: &ItemOperation| matches!(operation, ItemOperation::Patch { .. });
        let patches = batch.operations.iter().flat_map(|item| &item.operation).filter(|one| is_patch(one));
        let has_condition =
            |one: &ItemOperation| matches!(one, ItemOperation::Patch { patch, .. } if patch.has_condition());
        let (count, conditions) = patches.fold((0, 0), |(count, conditions), one| {
            (count + 1, conditions + usize::from(has_condition(one)))
        });
        if conditions == 0 && count * ITEM_BYTES_MAX <= DOCUMENT_BYTES_MAX {
            return Ok(());
        }
        let (view, now) = (self.store.view()?, self.clock().seconds());
        let (mut work_left, mut bytes) = (JUDGED_WORK_MAX, 0);
        let mut changed: BTreeSet<(String, String)> = BTreeSet::new();
        for item in &mut batch.operations {
            let key = match (&batch.scope, &item.partition_key) {
                (BatchScope::Partition(key), _) => key,
                (BatchScope::Range(_), Some(key)) => key,
                (BatchScope::Range(_), None) => continue,
            };
            let (Ok(target), Ok(operation)) = (Target::resolve(container, key.clone()), &mut item.operation)
            else {
                continue;
            };
            let place = (format!("{key:?}"), id_of(operation).to_owned());
            if let ItemOperation::Patch { id, patch } = operation
                && !changed.contains(&place)
            {
                bytes += judge(&*view, now, &target, id, patch, &mut work_left)?;
            }
            changed.insert(place);
        }
        if bytes > DOCUMENT_BYTES_MAX {
            return Err(Refusal::gateway(
                status::TOO_LARGE,
                format!(
                    "The batch patches more than {DOCUMENT_BYTES_MAX} bytes of documents. Divide it into several."
                ),
            ));
        }
        Ok(())
    }

    /// Evaluates the conditions of a distributed transaction. The writer evaluates a condition on
    /// a document that an earlier operation of the transaction may have changed.
    pub(super) fn judge_distributed(&self, write: &mut DistributedWrite) -> Result<(), Refusal> {
        let (view, now) = (self.store.view()?, self.clock().seconds());
        let mut work_left = JUDGED_WORK_MAX;
        let mut changed = BTreeSet::new();
        for one in &mut write.operations {
            let (Ok(container), Ok(operation)) = (&one.container, &mut one.operation) else { continue };
            let Ok(target) = Target::resolve(container, one.partition_key.clone()) else { continue };
            let place = (container.number(), target.partition.clone(), id_of(operation).to_owned());
            if let ItemOperation::Patch { id, patch } = operation
                && patch.has_condition()
                && !changed.contains(&place)
            {
                judge(&*view, now, &target, id, patch, &mut work_left)?;
            }
            changed.insert(place);
        }
        Ok(())
    }
}

/// The id of the document that an operation is about.
fn id_of(operation: &ItemOperation) -> &str {
    match operation {
        ItemOperation::Create { body } | ItemOperation::Upsert { body } => &body.id,
        ItemOperation::Replace { id, .. }
        | ItemOperation::Patch { id, .. }
        | ItemOperation::Delete { id }
        | ItemOperation::Read { id } => id,
    }
}

/// Evaluates the condition of a patch on the document in the view, if there is one. Returns the
/// bytes of the document.
fn judge(
    view: &dyn View,
    now: u64,
    target: &Target,
    id: &str,
    patch: &mut NewPatch,
    work_left: &mut u64,
) -> Result<usize, Refusal> {
    let Some((rid, document)) = documents::lookup(view, target, id, now)? else { return Ok(0) };
    if patch.has_condition() {
        patch.judge(DocumentVersion::of(rid, &document), &document.value(), work_left);
    }
    Ok(document.text.len())
}
