//! Building indexes (registering, filling and marking them ready), and removing retired indexes.

use std::sync::Arc;

use bytes::Bytes;
use perihelion_model::json::Value;

use super::ENTRIES_PER_JOB_MAX;
use super::documents::for_each_document;
use crate::admin;
use crate::catalog::Container;
use crate::documents::StoredDocument;
use crate::index::{IndexGroup, IndexShape};
use crate::keys::{self, ContainerNumber, LogicalPartition, OwnedKeyRange};
use crate::refusal::Refusal;
use crate::writer::StoreHandle;

/// Fills the indexes that were registered but not finished, unless they are retired.
pub(super) async fn finish_indexes(store: &StoreHandle) -> Result<(), Refusal> {
    let catalog = store.catalog();
    for container in catalog.containers() {
        for index in container.indexes.iter().filter(|index| !index.is_ready && !index.is_retired) {
            fill_index(store, container.number(), index.id).await?;
        }
    }
    Ok(())
}

/// Removes retired indexes that no query can use any more, and their entries, in small jobs.
pub(super) async fn remove_retired_indexes(store: &StoreHandle) -> Result<(), Refusal> {
    for container in store.catalog().containers() {
        if admin::has_removable_indexes(container, store.clock().seconds()) {
            let container = Arc::clone(container);
            store.write(move |transaction| admin::remove_retired_indexes(transaction, &container)).await?;
        }
    }
    for container in store.catalog().containers() {
        for id in &container.index_purges {
            purge_index(store, container, *id).await?;
        }
    }
    Ok(())
}

/// Removes the entries of a removed index. No job adds entries to it any more.
async fn purge_index(store: &StoreHandle, container: &Arc<Container>, id: u16) -> Result<(), Refusal> {
    let entries = OwnedKeyRange::prefix(&keys::index_prefix(container.number(), id));
    loop {
        let next = entries.first_keys(&*store.view()?, ENTRIES_PER_JOB_MAX)?;
        let container = Arc::clone(container);
        let is_last = next.is_empty();
        store
            .write(move |transaction| {
                next.into_iter().for_each(|key| transaction.remove(key));
                if is_last { admin::finish_purge(transaction, &container, id) } else { Ok(()) }
            })
            .await?;
        if is_last {
            return Ok(());
        }
    }
}

/// Registers an index, fills it and marks it ready. Does nothing if the container does not exist,
/// or if [`admin::add_index`] does not register the index.
pub(crate) async fn build_index(
    store: &StoreHandle,
    number: ContainerNumber,
    shape: IndexShape,
) -> Result<(), Refusal> {
    let Some(container) = store.catalog().container_by_number(number).cloned() else { return Ok(()) };
    let added = store.write(move |transaction| admin::add_index(transaction, &container, shape)).await?;
    match added {
        Some(id) => fill_index(store, number, id).await,
        None => Ok(()),
    }
}

/// Adds an entry for every document to a registered index and marks the index ready.
async fn fill_index(store: &StoreHandle, number: ContainerNumber, id: u16) -> Result<(), Refusal> {
    for_each_document(store, number, move |transaction, container, segment, key, record| {
        let index = container.indexes.iter().find(|index| index.id == id);
        if let (Some(index), Some(rid)) = (index, keys::last_u64(&key))
            && let Some(document) = StoredDocument::decode(&record)
            && let Value::Object(value) = document.value()
        {
            let partition = LogicalPartition::of(&container.partition_key.extract(&value));
            let group = IndexGroup { partition: &partition, segment };
            let key = index.entry_key(container.number(), group, &Value::Object(value), rid);
            transaction.put(key, Bytes::new());
        }
        Ok(())
    })
    .await?;
    let Some(container) = store.catalog().container_by_number(number).cloned() else { return Ok(()) };
    store.write(move |transaction| admin::finish_index(transaction, &container, id)).await
}
