//! Removing what deleted containers leave in the store, old tombstones, and old entries of the
//! transaction ledger.

use std::time::Duration;

use super::{ENTRIES_PER_JOB_MAX, first_container};
use crate::keys::{self, ContainerNumber, OwnedKeyRange};
use crate::ledger;
use crate::refusal::Refusal;
use crate::replication;
use crate::transaction::Transaction;
use crate::writer::StoreHandle;

/// Removes all keys of deleted containers, in small jobs.
pub(super) async fn purge_deleted_containers(store: &StoreHandle) -> Result<(), Refusal> {
    while let Some(number) = first_container(store, &keys::pending_purge_prefix())? {
        store.write(move |transaction| purge_next(transaction, number)).await?;
    }
    Ok(())
}

/// Removes up to [`ENTRIES_PER_JOB_MAX`] keys of a deleted container. When the container has
/// no keys any more, removes the pending purge.
fn purge_next(transaction: &mut Transaction<'_>, number: ContainerNumber) -> Result<(), Refusal> {
    for prefix in keys::prefixes_of_container(number) {
        let entries = transaction.entries(&OwnedKeyRange::prefix(&prefix), ENTRIES_PER_JOB_MAX)?;
        if !entries.is_empty() {
            for (key, _) in entries {
                transaction.remove(key);
            }
            return Ok(());
        }
    }
    transaction.remove(keys::pending_purge(number));
    Ok(())
}

/// Removes the tombstones that are past their retention, in small jobs.
pub(super) async fn purge_tombstones(store: &StoreHandle) -> Result<(), Refusal> {
    loop {
        let now = store.clock().seconds();
        let age_keys = replication::expired_tombstones(&*store.view()?, now, ENTRIES_PER_JOB_MAX)?;
        if age_keys.is_empty() {
            return Ok(());
        }
        store.write(move |transaction| replication::remove_expired_tombstones(transaction, age_keys)).await?;
    }
}

/// Removes the ledger entries that are older than `age`, in small jobs.
pub(super) async fn purge_ledger(store: &StoreHandle, age: Duration) -> Result<(), Refusal> {
    loop {
        let now = store.clock().seconds();
        let age_keys = ledger::expired(&*store.view()?, now, age, ENTRIES_PER_JOB_MAX)?;
        if age_keys.is_empty() {
            return Ok(());
        }
        store.write(move |transaction| ledger::remove(transaction, age_keys)).await?;
    }
}
