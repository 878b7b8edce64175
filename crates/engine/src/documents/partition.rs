//! Deleting a whole logical partition.

use perihelion_model::json::Value;
use perihelion_wire::status;

use super::items::{self, ItemOperation, Precondition, Target, WriteStamps};
use super::stored::StoredDocument;
use crate::keys::{self, OwnedKeyRange};
use crate::refusal::Refusal;
use crate::transaction::Transaction;

/// Deletes all documents of a logical partition that are not expired, as one write;
/// returns how many.
pub(crate) fn delete_partition(transaction: &mut Transaction<'_>, target: &Target) -> Result<u64, Refusal> {
    let number = target.container.number();
    let members = transaction.entries(
        &OwnedKeyRange::prefix(&keys::partition_member_prefix(number, &target.partition.0)),
        usize::MAX,
    )?;
    let (mut stamps, mut count) = (WriteStamps::default(), 0);
    for (key, _) in members {
        let Some(rid) = keys::last_u64(&key) else { continue };
        let record = transaction.get(&keys::document(number, target.range.segment, rid))?;
        let value = record.as_ref().and_then(StoredDocument::decode).map(|document| document.value());
        if let Some(id) = value.as_ref().and_then(|value| value.get("id")).and_then(Value::as_str) {
            let operation = ItemOperation::Delete { id: id.to_owned() };
            match items::perform(transaction, target, operation, &Precondition::default(), &mut stamps) {
                Ok(_) => count += 1,
                Err(refusal) if refusal.status == status::NOT_FOUND.code => {}
                Err(refusal) => return Err(refusal),
            }
        }
    }
    Ok(count)
}
