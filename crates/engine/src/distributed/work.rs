//! Bounds of the work that one transaction may cause.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use perihelion_wire::status;

use super::DistributedOperation;
use crate::charge;
use crate::documents::{self, ITEM_BYTES_MAX, ItemOperation, NewPatch, Target};
use crate::keys::{ContainerNumber, LogicalPartition};
use crate::refusal::Refusal;
use crate::storage::View;

/// The most bytes of the existing documents that one transaction may change, counted once for
/// each operation. The writer may have to parse them all, which takes about 100 ms.
pub const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The most work of all patch conditions of one transaction, in units of about 100 ns: about 100
/// ms. The conditions are evaluated before the transaction reaches the writer.
pub const CONDITION_WORK_MAX: u64 = 1_000_000;

/// The most bytes of the documents that one read transaction returns: as many as a page of a
/// query may have.
pub const READ_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The work that is left for the conditions of one transaction.
#[derive(Debug, Clone)]
pub struct ConditionWork(Arc<AtomicU64>);

impl Default for ConditionWork {
    fn default() -> Self {
        ConditionWork(Arc::new(AtomicU64::new(CONDITION_WORK_MAX)))
    }
}

impl ConditionWork {
    /// Makes the condition of a patch take its work from the work that is left for the transaction.
    pub fn shared_with(&self, operation: ItemOperation) -> ItemOperation {
        match operation {
            ItemOperation::Patch { id, patch } => {
                ItemOperation::Patch { id, patch: NewPatch::sharing_work(patch, Arc::clone(&self.0)) }
            }
            other => other,
        }
    }
}

/// Refuses a transaction if none of its containers exists. No range could be charged for such a
/// transaction, so its answer is not recorded.
pub(crate) fn check_containers(operations: &[DistributedOperation]) -> Result<(), Refusal> {
    let mut missing = None;
    for operation in operations {
        match &operation.container {
            Ok(_) => return Ok(()),
            Err(refusal) => missing = missing.or(Some(refusal)),
        }
    }
    missing.cloned().map_or(Ok(()), Err)
}

/// Whether the operations might change more bytes of documents than one transaction may, if every
/// document had the largest size. Only then are the sizes of the documents read. A create changes
/// no document, unless it replaces an expired document.
pub(crate) fn may_change_many_bytes(operations: &[DistributedOperation]) -> bool {
    let changes = |operation: &&DistributedOperation| match (&operation.container, &operation.operation) {
        (Ok(container), Ok(ItemOperation::Create { .. })) => container.default_ttl.is_some(),
        _ => true,
    };
    operations.iter().filter(changes).count() * ITEM_BYTES_MAX > DOCUMENT_BYTES_MAX
}

/// Refuses a transaction that changes too many bytes of documents; the refusal has the charge
/// for reading them. The check reads a snapshot before the transaction reaches the writer.
/// Documents that grow after the snapshot are not noticed; the bound is about time and need not
/// be exact.
pub(crate) fn check_document_bytes(
    view: &dyn View,
    operations: &[DistributedOperation],
) -> Result<(), Refusal> {
    // The sizes of documents that earlier operations of the transaction write.
    let mut written: BTreeMap<(ContainerNumber, LogicalPartition, &str), usize> = BTreeMap::new();
    let (mut bytes, mut charge) = (0, 0.0);
    for DistributedOperation { container, partition_key, id, operation, .. } in operations {
        let (Ok(container), Ok(operation)) = (container, operation) else { continue };
        // A key with a wrong number of levels fails its operation later.
        let Ok(target) = Target::resolve(container, partition_key.clone()) else { continue };
        let place = (container.number(), target.partition.clone(), id.as_str());
        let size = match written.get(&place) {
            Some(size) => *size,
            None => {
                let size = documents::lookup_any(view, &target, id)?.map_or(0, |(_, old)| old.text.len());
                charge += charge::read(size);
                size
            }
        };
        bytes += size;
        if bytes > DOCUMENT_BYTES_MAX {
            return Err(Refusal::gateway(
                status::TOO_LARGE,
                format!(
                    "The transaction changes more than {DOCUMENT_BYTES_MAX} bytes of documents. Divide it into several transactions."
                ),
            )
            .with_charge(charge));
        }
        let size_after = match operation {
            ItemOperation::Create { body }
            | ItemOperation::Upsert { body }
            | ItemOperation::Replace { body, .. } => body.text_bytes(),
            ItemOperation::Patch { patch, .. } => size + patch.changes.added_bytes_max(),
            ItemOperation::Delete { .. } => 0,
            ItemOperation::Read { .. } => size,
        };
        written.insert(place, size_after);
    }
    Ok(())
}
