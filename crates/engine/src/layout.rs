//! The layout of the keys in a store, and the upgrade of a store with an earlier layout.
//!
//! The account's record holds the number of the layout; no number means layout 1. In layout 1 the
//! name of a logical partition was the hash of its key, so two keys with the same hash had one
//! partition. In layout 2 the name is the key itself (`keys/logical_partition.rs`). Every kind of
//! key that contains the name of a partition has another first byte than in layout 1. In layout 3
//! the keys of indexes hold only the beginnings of long strings (`index/encoding.rs`).
//!
//! The upgrade runs when a store is opened, before anything else reads it, in commits of a bounded
//! size. It first marks the indexes that have to be filled again as not ready, so that no query uses
//! them: all indexes of layout 1, and those of layout 2 with a long key. Then it removes their
//! entries, adds the keys of layout 2 to a store of layout 1, and in one commit sets the layout.
//! Maintenance fills the indexes again. Until that commit the store has its earlier layout, so an
//! interrupted upgrade begins again; an index that was already marked is emptied again. The old keys
//! are removed last. If the process ends before they are all removed, the next start removes the
//! rest. Tombstones are not upgraded, because they do not contain the partition key. They have no
//! effect, and are removed when they are old enough.

use std::ops::ControlFlow;

use bytes::Bytes;
use perihelion_model::json::{self, Style, Value};

use crate::catalog::{Catalog, Container, LAYOUT, LAYOUT_MEMBER};
use crate::documents::{StoredDocument, unique_values};
use crate::index::{STRING_BYTES_MAX, encode, find};
use crate::keys::{self, LogicalPartition, OwnedKeyRange};
use crate::storage::{Direction, Store, StoreError, StoreErrorKind, View, Write};

/// The most documents whose keys are added in one commit.
const DOCUMENTS_PER_COMMIT_MAX: usize = 1000;
/// The bytes of documents after which a commit takes no further document.
const BYTES_PER_COMMIT_MAX: usize = 8 * 1024 * 1024;
/// The most keys that are removed in one commit, if they are short. Their bytes are
/// limited too, by [`OwnedKeyRange::first_keys`].
const REMOVALS_PER_COMMIT_MAX: usize = 5000;

/// The writes of one commit: the new value of each key, or `None` to remove it.
type Writes = Vec<(Vec<u8>, Option<Bytes>)>;

/// Brings a store to the current layout. An empty store has it already.
pub(crate) fn upgrade(store: &dyn Store) -> Result<(), StoreError> {
    let Some(layout) = stored_layout(&*store.view()?)? else { return Ok(()) };
    if layout < LAYOUT {
        let view = store.view()?;
        let catalog = Catalog::load(&*view)?;
        let containers = catalog.containers().map(|container| with_usable_indexes(&*view, container, layout));
        let containers = containers.collect::<Result<Vec<Container>, StoreError>>()?;
        drop(view);
        let records = containers
            .iter()
            .map(|container| (keys::container(container.number()), text(&container.to_record())));
        commit(store, &records.collect())?;
        for container in &containers {
            if layout < LAYOUT_OF_PARTITION_NAMES {
                add_keys_of_documents(store, container)?;
            }
            for index in container.indexes.iter().filter(|index| !index.is_ready) {
                remove_prefix(store, &keys::index_prefix(container.number(), index.id))?;
            }
        }
        commit(store, &vec![(keys::account(), text(&catalog.account.to_record()))])?;
    }
    keys::prefixes_of_layout_1().iter().try_for_each(|prefix| remove_prefix(store, prefix))
}

/// The first layout in which a logical partition is named by its key.
pub(crate) const LAYOUT_OF_PARTITION_NAMES: i64 = 2;

/// The layout of the keys in a store; `None` for an empty store. Fails if it is a newer layout.
pub(crate) fn stored_layout(view: &dyn View) -> Result<Option<i64>, StoreError> {
    let Some(record) = view.get(&keys::account())? else { return Ok(None) };
    let layout =
        json::parse(&record).ok().and_then(|record| record.get(LAYOUT_MEMBER)?.as_i64()).unwrap_or(1);
    if layout <= LAYOUT {
        return Ok(Some(layout));
    }
    Err(StoreError {
        kind: StoreErrorKind::TooNew,
        message: format!(
            "a newer version of this program wrote the data: its keys have layout {layout}, and this version can read layouts up to {LAYOUT} only. Use the newer version"
        ),
    })
}

/// A copy of a container from a store with this layout. In the copy, indexes whose keys differ in the
/// current layout are marked as not ready, so that they are filled again: all indexes of layout 1,
/// whose keys contain the old names of partitions, and indexes of layout 2 with a key that may hold a
/// long string.
pub(crate) fn with_usable_indexes(
    view: &dyn View,
    container: &Container,
    layout: i64,
) -> Result<Container, StoreError> {
    let mut container = container.clone();
    if layout < LAYOUT {
        let number = container.number();
        for index in container.indexes.iter_mut().filter(|index| index.is_ready) {
            index.is_ready = layout >= LAYOUT_OF_PARTITION_NAMES
                && !has_long_key(view, &keys::index_prefix(number, index.id))?;
        }
    }
    Ok(container)
}

/// Whether a key with this prefix is so long that it may hold a whole string that layout 3 cuts.
fn has_long_key(view: &dyn View, prefix: &[u8]) -> Result<bool, StoreError> {
    let mut is_long = false;
    view.scan(OwnedKeyRange::prefix(prefix).as_range(), Direction::Forward, &mut |key, _| {
        is_long = key.len() > STRING_BYTES_MAX;
        if is_long { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(is_long)
}

fn text(record: &Value) -> Option<Bytes> {
    Some(Bytes::from(json::to_text(record, Style::Point)))
}

/// Adds the ids, partition members and unique keys of all documents of a container.
fn add_keys_of_documents(store: &dyn Store, container: &Container) -> Result<(), StoreError> {
    let prefix = keys::all_documents_prefix(container.number());
    let mut range = OwnedKeyRange::prefix(&prefix);
    loop {
        let view = store.view()?;
        let documents = next_documents(&*view, &range)?;
        let Some((last, _)) = documents.last() else { return Ok(()) };
        range = OwnedKeyRange::prefix_after(&prefix, last);
        let mut writes = Writes::new();
        for (key, record) in &documents {
            add_keys(&*view, container, key, record, &mut writes)?;
        }
        drop(view);
        commit(store, &writes)?;
    }
}

/// The first documents of a range of keys, as many as one commit takes.
fn next_documents(view: &dyn View, range: &OwnedKeyRange) -> Result<Vec<(Vec<u8>, Bytes)>, StoreError> {
    let (mut documents, mut bytes) = (Vec::new(), 0);
    view.scan(range.as_range(), Direction::Forward, &mut |key, record| {
        documents.push((key.to_vec(), Bytes::copy_from_slice(record)));
        bytes += record.len();
        if documents.len() < DOCUMENTS_PER_COMMIT_MAX && bytes < BYTES_PER_COMMIT_MAX {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })?;
    Ok(documents)
}

/// Adds the keys of one document. A record that cannot be read gets no keys, because requests
/// could not reach it in layout 1 either.
fn add_keys(
    view: &dyn View,
    container: &Container,
    key: &[u8],
    record: &Bytes,
    writes: &mut Writes,
) -> Result<(), StoreError> {
    let document = StoredDocument::decode(record).map(|document| document.value());
    let (Some(rid), Some(Value::Object(members))) = (keys::last_u64(key), document) else { return Ok(()) };
    let partition_key = container.partition_key.extract(&members);
    let id = members.get("id").and_then(Value::as_str).map(str::to_owned);
    let Some(id) = id else { return Ok(()) };
    let (number, partition) = (container.number(), LogicalPartition::of(&partition_key));
    let rid_bytes = Bytes::copy_from_slice(&rid.to_be_bytes());
    writes.push((keys::id(number, &partition, &id), Some(rid_bytes.clone())));
    writes.push((keys::partition_member(number, &partition, rid), Some(Bytes::new())));
    let (hash, document) = (partition_key.logical_hash(), Value::Object(members));
    for (constraint, paths) in container.unique_keys.iter().enumerate() {
        let constraint = constraint as u16;
        let mut values = Vec::new();
        for path in paths {
            encode(&mut values, Some(find(&document, &path.steps).unwrap_or(&Value::Null)), false);
        }
        // Several documents can have the same values if one of them is expired, or if two regions
        // wrote them. Only one of them owns the unique key.
        let owner = view.get(&keys::unique_key_of_layout_1(number, &hash, constraint, &values))?;
        if owner.and_then(|owner| keys::last_u64(&owner)) == Some(rid) {
            let values = unique_values(&document, paths);
            writes.push((keys::unique_key(number, &partition, constraint, &values), Some(rid_bytes.clone())));
        }
    }
    Ok(())
}

/// Removes all keys with a prefix.
fn remove_prefix(store: &dyn Store, prefix: &[u8]) -> Result<(), StoreError> {
    loop {
        let found = OwnedKeyRange::prefix(prefix).first_keys(&*store.view()?, REMOVALS_PER_COMMIT_MAX)?;
        if found.is_empty() {
            return Ok(());
        }
        commit(store, &found.into_iter().map(|key| (key, None)).collect::<Writes>())?;
    }
}

/// Commits the writes. A store accepts only one write of each key, so of several writes of one key only
/// the first is committed.
fn commit(store: &dyn Store, writes: &Writes) -> Result<(), StoreError> {
    if writes.is_empty() {
        return Ok(());
    }
    let mut distinct: Vec<&(Vec<u8>, Option<Bytes>)> = writes.iter().collect();
    distinct.sort_by(|one, other| one.0.cmp(&other.0));
    distinct.dedup_by(|one, other| one.0 == other.0);
    store.commit(&mut distinct.into_iter().map(|(key, value)| Write { key, value: value.as_deref() }))
}
