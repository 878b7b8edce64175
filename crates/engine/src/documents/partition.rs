//! Deleting a whole logical partition.

use perihelion_model::json::Value;
use perihelion_wire::status;

use super::items::{self, ItemOperation, Precondition, Target, WriteStamps};
use super::stored::StoredDocument;
use crate::keys::{self, OwnedKeyRange};
use crate::refusal::Refusal;
use crate::transaction::Transaction;

/// The most documents that one job deletes, so that other writes never wait long for it.
const DOCUMENTS_PER_JOB_MAX: usize = 200;
/// A job ends when the documents that it has deleted have more bytes than this.
const BYTES_PER_JOB_MAX: usize = 1024 * 1024;

/// The part of a logical partition that is still to be deleted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PartitionRest {
    /// The `_rid` counter of the last document that was looked at.
    after: u64,
    /// The container's next `_rid` counter when the deletion began. Documents that are created
    /// later stay, so that the deletion ends. `None` at the beginning.
    until: Option<u64>,
}

/// Deletes some of the documents of a logical partition that are not expired, as one write. Returns
/// the number of deleted documents, and the part that is still to be deleted; `None` at the end.
pub(crate) fn delete_partition(
    transaction: &mut Transaction<'_>,
    target: &Target,
    rest: PartitionRest,
) -> Result<(u64, Option<PartitionRest>), Refusal> {
    let number = target.container.number();
    let until = match rest.until {
        Some(until) => until,
        None => transaction.state(number)?.rid_after_all(transaction.replica),
    };
    let prefix = keys::partition_member_prefix(number, &target.partition.0);
    let after = keys::partition_member(number, &target.partition, rest.after);
    let members =
        transaction.entries(&OwnedKeyRange::prefix_after(&prefix, &after), DOCUMENTS_PER_JOB_MAX)?;
    let (mut stamps, mut count, mut bytes) = (WriteStamps::default(), 0, 0);
    let mut rest = None;
    for (key, _) in members {
        let Some(rid) = keys::last_u64(&key).filter(|rid| *rid < until) else { return Ok((count, None)) };
        rest = Some(PartitionRest { after: rid, until: Some(until) });
        let record = transaction.get(&keys::document(number, target.range.segment, rid))?;
        bytes += record.as_ref().map_or(0, bytes::Bytes::len);
        let value = record.as_ref().and_then(StoredDocument::decode).map(|document| document.value());
        if let Some(id) = value.as_ref().and_then(|value| value.get("id")).and_then(Value::as_str) {
            let operation = ItemOperation::Delete { id: id.to_owned() };
            match items::perform(transaction, target, operation, &Precondition::default(), &mut stamps) {
                Ok(_) => count += 1,
                Err(refusal) if refusal.status == status::NOT_FOUND.code => {}
                Err(refusal) => return Err(refusal),
            }
        }
        if bytes > BYTES_PER_JOB_MAX {
            break;
        }
    }
    Ok((count, rest))
}
