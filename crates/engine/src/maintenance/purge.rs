//! Removing the keys of deleted containers, old tombstones, and old entries of the transaction
//! ledger.

use std::time::Duration;

use super::{ENTRIES_PER_JOB_MAX, first_container};
use crate::keys::{self, ContainerNumber, OwnedKeyRange};
use crate::ledger;
use crate::refusal::Refusal;
use crate::replication;
use crate::storage::View;
use crate::transaction::Transaction;
use crate::writer::StoreHandle;

/// Removes all keys of deleted containers, in small jobs.
pub(super) async fn purge_deleted_containers(store: &StoreHandle) -> Result<(), Refusal> {
    while let Some(number) = first_container(store, &keys::pending_purge_prefix())? {
        // No job writes keys of a deleted container, so the keys can be listed before the job.
        let next = next_keys(&*store.view()?, number)?;
        store
            .write(move |transaction| {
                purge_next(transaction, number, next);
                Ok(())
            })
            .await?;
    }
    Ok(())
}

/// Up to [`ENTRIES_PER_JOB_MAX`] keys of a deleted container; empty when it has no keys any more.
fn next_keys(view: &dyn View, number: ContainerNumber) -> Result<Vec<Vec<u8>>, Refusal> {
    for prefix in keys::prefixes_of_container(number) {
        let next = OwnedKeyRange::prefix(&prefix).first_keys(view, ENTRIES_PER_JOB_MAX)?;
        if !next.is_empty() {
            return Ok(next);
        }
    }
    Ok(Vec::new())
}

/// Removes the next keys of a deleted container. When there are none, removes the pending purge.
fn purge_next(transaction: &mut Transaction<'_>, number: ContainerNumber, next: Vec<Vec<u8>>) {
    if next.is_empty() {
        transaction.remove(keys::pending_purge(number));
    }
    for key in next {
        transaction.remove(key);
    }
}

/// Removes the tombstones that are past their retention, in small jobs.
pub(super) async fn purge_tombstones(store: &StoreHandle) -> Result<(), Refusal> {
    loop {
        let now = store.clock().seconds();
        let keys_by_age = replication::expired_tombstones(&*store.view()?, now, ENTRIES_PER_JOB_MAX)?;
        if keys_by_age.is_empty() {
            return Ok(());
        }
        store
            .write(move |transaction| replication::remove_expired_tombstones(transaction, keys_by_age))
            .await?;
    }
}

/// Removes the ledger entries that are older than `age`, in small jobs.
pub(super) async fn purge_ledger(store: &StoreHandle, age: Duration) -> Result<(), Refusal> {
    loop {
        let now = store.clock().seconds();
        let keys_by_age = ledger::expired(&*store.view()?, now, age, ENTRIES_PER_JOB_MAX)?;
        if keys_by_age.is_empty() {
            return Ok(());
        }
        store.write(move |transaction| ledger::remove(transaction, keys_by_age)).await?;
    }
}
