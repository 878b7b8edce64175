//! Removing expired documents, and updating the expiry list when the default TTL of a
//! container changes.

use bytes::Bytes;
use perihelion_model::json::Value;

use super::documents::for_each_document;
use super::{BYTES_PER_JOB_MAX, ENTRIES_PER_JOB_MAX, first_container};
use crate::documents::{StoredDocument, Target, expire_item};
use crate::keys::{self, OwnedKeyRange};
use crate::refusal::Refusal;
use crate::replication::WriteGate;
use crate::transaction::Transaction;
use crate::writer::StoreHandle;

/// Removes all expired documents of the ranges whose writes this region accepts.
pub(super) async fn remove_expired(store: &StoreHandle) -> Result<(), Refusal> {
    let (mut from, to) = keys::expiry_bounds(store.clock().seconds());
    loop {
        let expiry_keys = next_expired(store, &OwnedKeyRange::between(&from, &to))?;
        // The keys of ranges whose writes this region does not accept stay in the list. So the next
        // round begins after the last key.
        let Some(last) = expiry_keys.last() else { return Ok(()) };
        from = [last.as_slice(), &[0]].concat();
        let gate = store.write_gate();
        store
            .write(move |transaction| {
                gate.check()?;
                expiry_keys.into_iter().try_for_each(|key| expire(transaction, &gate, key))
            })
            .await?;
    }
}

/// The next keys of the expiry list: up to [`ENTRIES_PER_JOB_MAX`] keys, whose documents together
/// have about [`BYTES_PER_JOB_MAX`] bytes.
fn next_expired(store: &StoreHandle, key_range: &OwnedKeyRange) -> Result<Vec<Vec<u8>>, Refusal> {
    let view = store.view()?;
    let mut expiry_keys = key_range.first_keys(&*view, ENTRIES_PER_JOB_MAX)?;
    let mut bytes = 0;
    for (at, key) in expiry_keys.iter().enumerate() {
        let Some((_, number, segment, rid)) = keys::parse_expiry(key) else { continue };
        bytes += view.get(&keys::document(number, segment, rid))?.map_or(0, |record| record.len());
        if bytes > BYTES_PER_JOB_MAX {
            expiry_keys.truncate(at + 1);
            break;
        }
    }
    Ok(expiry_keys)
}

/// Removes an expired document and its key in the expiry list. The document may have been changed
/// or removed since the key was read; then only the key is removed. Nothing changes in two cases:
/// - another region accepts the writes of the document's range, and removes the document;
/// - the document still has this key and is not expired. The time of the job can be before the time
///   at which the key was read, and the TTL of the container may just have changed. A later run of
///   maintenance needs the key to find the document again.
fn expire(transaction: &mut Transaction<'_>, gate: &WriteGate, key: Vec<u8>) -> Result<(), Refusal> {
    if let Some((at, number, segment, rid)) = keys::parse_expiry(&key)
        && let Some(container) = transaction.catalog.container_by_number(number).cloned()
        && let Some(record) = transaction.get(&keys::document(number, segment, rid))?
        && let Some(document) = StoredDocument::decode(&record)
        && let Value::Object(value) = document.value()
        && let Some(id) = value.get("id").and_then(Value::as_str)
    {
        let target = Target::resolve(&container, container.partition_key.extract(&value))?;
        if !gate.accepts_writes_of(&container, target.range.id) {
            return Ok(());
        }
        let is_gone = expire_item(transaction, &target, id)?;
        if !is_gone && document.expires_at == at {
            return Ok(());
        }
    }
    transaction.remove(key);
    Ok(())
}

/// Updates the expiry list of each container whose default TTL changed. If the TTL changes again
/// meanwhile, the documents of the container are visited again.
pub(super) async fn update_expiry_lists(store: &StoreHandle) -> Result<(), Refusal> {
    while let Some(number) = first_container(store, &keys::pending_expiry_update_prefix())? {
        let pending = store.view()?.get(&keys::pending_expiry_update(number))?;
        for_each_document(store, number, |transaction, container, segment, key, record| {
            let (Some(rid), Some(mut document)) = (keys::last_u64(&key), StoredDocument::decode(&record))
            else {
                return Ok(());
            };
            let expires_at = document.expiry(container.default_ttl).unwrap_or(0);
            if expires_at != document.expires_at {
                let expiry_key = |at| keys::expiry(at, container.number(), segment, rid);
                transaction.remove(expiry_key(document.expires_at));
                if expires_at != 0 {
                    transaction.put(expiry_key(expires_at), Bytes::new());
                }
                document.expires_at = expires_at;
                transaction.put(key, document.encode());
            }
            Ok(())
        })
        .await?;
        store
            .write(move |transaction| {
                let key = keys::pending_expiry_update(number);
                // Each change of the TTL writes another value.
                if transaction.get(&key)? == pending {
                    transaction.remove(key);
                }
                Ok(())
            })
            .await?;
    }
    Ok(())
}
