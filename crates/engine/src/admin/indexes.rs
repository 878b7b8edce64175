//! Registering, retiring and removing the indexes of a container.
//!
//! A container always has the composite indexes that its policy declares. It also has at most
//! [`REQUESTED_MAX`] other indexes: queries asked for them, or an earlier policy declared them.
//! When a query needs one more of them, the least recently used of these other indexes is retired, if
//! no query has used it for [`UNUSED_SECONDS_MIN`]. New queries do not use a retired index, but writes
//! still maintain it, because a running query may have chosen it from an older snapshot of the
//! catalog. After [`RETIRED_SECONDS`] the index is removed, and maintenance removes its entries.
//!
//! An id is never used for a second index. Otherwise a query with an old snapshot could read the
//! entries of the wrong index.

use std::sync::Arc;

use perihelion_model::json::{Object, Value};

use super::update_container;
use crate::catalog::Container;
use crate::index::{self, IndexDefinition, IndexShape};
use crate::refusal::Refusal;
use crate::transaction::Transaction;

/// The most indexes besides those that the policy declares. Each index makes every write more expensive.
const REQUESTED_MAX: usize = 32;
/// An index that was used within this time is not retired. Otherwise queries of many kinds would
/// make maintenance build indexes all the time.
const UNUSED_SECONDS_MIN: u64 = 600;
/// How long a retired index is still maintained: longer than a query can wait for its turn and run.
const RETIRED_SECONDS: u64 = 300;
/// The most indexes of a container, including the retired ones. A policy declares up to 200
/// indexes, so it can be changed completely a few times within [`RETIRED_SECONDS`].
const INDEXES_MAX: usize = 1000;

/// Registers an index that is still to be filled. Returns its id, or `None` when the index exists
/// already, when [`room_for_index`] finds no room, or when the container has [`INDEXES_MAX`] indexes
/// or no id left. If the index exists but is retired, queries use it again, provided that there is
/// room for it.
pub(crate) fn add_index(
    transaction: &mut Transaction<'_>,
    container: &Arc<Container>,
    shape: IndexShape,
) -> Result<Option<u16>, Refusal> {
    let (container, now) = (transaction.current(container)?, transaction.now);
    let existing = container.index(&shape);
    if existing.is_some_and(|index| !index.is_retired) {
        return Ok(None);
    }
    let Some(room) = room_for_index(&container, now) else { return Ok(None) };
    let id = container.index_next;
    let has_id = id < u16::MAX && container.indexes.len() < INDEXES_MAX;
    if existing.is_none() && !has_id {
        return Ok(None);
    }
    let updated = match room {
        Room::Free => &container,
        Room::InsteadOf(index) => &set_retired(transaction, &container, index, true),
    };
    if let Some(existing) = existing {
        set_retired(transaction, updated, existing, false);
        return Ok(None);
    }
    update_container(transaction, updated, |container, _| push_index(container, shape, false));
    Ok(Some(id))
}

/// How a container makes room for another index that a query asks for.
enum Room<'a> {
    Free,
    /// The container is full. This index is retired to make room.
    InsteadOf(&'a IndexDefinition),
}

/// Returns `None` if the container has [`REQUESTED_MAX`] requested indexes, and the least recently used
/// of them is still being filled or was used within [`UNUSED_SECONDS_MIN`].
fn room_for_index(container: &Container, now: u64) -> Option<Room<'_>> {
    let requested = requested_indexes(container);
    if requested.len() < REQUESTED_MAX {
        return Some(Room::Free);
    }
    let oldest = requested.into_iter().min_by_key(|index| index.last_use.seconds());
    oldest
        .filter(|index| index.is_ready && is_unused_for(index, now, UNUSED_SECONDS_MIN))
        .map(Room::InsteadOf)
}

/// The indexes that the policy does not declare and that are not retired. Indexes that are still
/// being filled count too.
fn requested_indexes(container: &Container) -> Vec<&IndexDefinition> {
    let declared = declared_indexes(container);
    let is_requested = |index: &&IndexDefinition| !index.is_retired && !declared.contains(&index.shape);
    container.indexes.iter().filter(is_requested).collect()
}

/// Whether the last use of an index was at least this many seconds ago. For a retired index, the time
/// at which it was retired counts as its last use.
fn is_unused_for(index: &IndexDefinition, now: u64, seconds: u64) -> bool {
    now.saturating_sub(index.last_use.seconds()) >= seconds
}

/// Retires an index, or lets new queries use a retired index again.
fn set_retired(
    transaction: &mut Transaction<'_>,
    container: &Arc<Container>,
    index: &IndexDefinition,
    is_retired: bool,
) -> Arc<Container> {
    index.last_use.note(transaction.now);
    let id = index.id;
    update_container(transaction, container, |container, _| {
        container.indexes.iter_mut().filter(|index| index.id == id).for_each(|index| {
            index.is_retired = is_retired;
        });
    })
}

/// Whether a container has retired indexes that no query can use any more.
pub(crate) fn has_removable_indexes(container: &Container, now: u64) -> bool {
    container.indexes.iter().any(|index| is_removable(index, now))
}

/// Whether an index is retired and no query can use it any more. An index that was retired before it
/// was complete is not filled any more, and can be removed too.
fn is_removable(index: &IndexDefinition, now: u64) -> bool {
    index.is_retired && is_unused_for(index, now, RETIRED_SECONDS)
}

/// Removes the retired indexes that no query can use any more. Their entries are still to be
/// removed.
pub(crate) fn remove_retired_indexes(
    transaction: &mut Transaction<'_>,
    container: &Arc<Container>,
) -> Result<(), Refusal> {
    let (container, now) = (transaction.current(container)?, transaction.now);
    update_container(transaction, &container, |container, _| {
        let removed = container.indexes.extract_if(.., |index| is_removable(index, now));
        container.index_purges.extend(removed.map(|index| index.id));
    });
    Ok(())
}

/// Ends the purge of a removed index, after all its entries were removed.
pub(crate) fn finish_purge(
    transaction: &mut Transaction<'_>,
    container: &Arc<Container>,
    id: u16,
) -> Result<(), Refusal> {
    let container = transaction.current(container)?;
    update_container(transaction, &container, |container, _| {
        container.index_purges.retain(|known| *known != id)
    });
    Ok(())
}

/// Marks an index as complete.
pub(crate) fn finish_index(
    transaction: &mut Transaction<'_>,
    container: &Arc<Container>,
    id: u16,
) -> Result<(), Refusal> {
    let (container, now) = (transaction.current(container)?, transaction.now);
    update_container(transaction, &container, |container, _| {
        if let Some(index) = container.indexes.iter_mut().find(|index| index.id == id) {
            index.is_ready = true;
            index.last_use.note(now);
        }
    });
    Ok(())
}

/// Adds the composite indexes that the indexing policy declares and the container does
/// not have. `is_ready` is true for a container without documents, whose indexes are complete.
pub(super) fn add_declared_indexes(container: &mut Container, is_ready: bool) {
    for shape in declared_indexes(container) {
        match container.indexes.iter_mut().find(|index| index.shape == shape) {
            Some(index) => index.is_retired = false,
            None => push_index(container, shape, is_ready),
        }
    }
}

/// Retires indexes that the policy does not declare until at most [`REQUESTED_MAX`] of them are
/// left. The least recently used ones are retired first.
pub(super) fn retire_undeclared_indexes(container: &mut Container, now: u64) {
    let mut requested = requested_indexes(container);
    // Queries update `last_use` during the sort. A sort whose keys change may panic, so each key is
    // read once.
    requested.sort_by_cached_key(|index| index.last_use.seconds());
    let retired: Vec<u16> = requested.iter().rev().skip(REQUESTED_MAX).map(|index| index.id).collect();
    for index in container.indexes.iter_mut().filter(|index| retired.contains(&index.id)) {
        index.is_retired = true;
        index.last_use.note(now);
    }
}

/// Refuses a definition if the container has no room or no ids left for the composite indexes that the
/// definition declares.
pub(super) fn check_declared_indexes(container: &Container, definition: &Object) -> Result<(), Refusal> {
    let declared = declared_in(definition);
    let added = declared.iter().filter(|shape| container.index(shape).is_none()).count();
    let ids_left = usize::from(u16::MAX - container.index_next);
    if added > ids_left {
        return Err(Refusal::bad_request(format!(
            "The indexing policy of the container '{}' declares {added} new indexes, and {ids_left} can still be added in the life of the container. Create a new container.",
            container.name
        )));
    }
    if added > 0 && container.indexes.len() + added > INDEXES_MAX {
        return Err(Refusal::bad_request(format!(
            "The indexing policy of the container '{}' has changed too often: dropped indexes are still being removed. Try again in {} minutes.",
            container.name,
            RETIRED_SECONDS / 60
        )));
    }
    Ok(())
}

fn declared_indexes(container: &Container) -> Vec<IndexShape> {
    declared_in(&container.definition)
}

fn declared_in(definition: &Object) -> Vec<IndexShape> {
    index::declared(definition.get("indexingPolicy").unwrap_or(&Value::Null))
}

/// Adds an index under the next id. If no id is left, no index is added, and queries scan.
fn push_index(container: &mut Container, shape: IndexShape, is_ready: bool) {
    let Some(next) = container.index_next.checked_add(1) else { return };
    container.indexes.push(IndexDefinition::new(container.index_next, shape, is_ready));
    container.index_next = next;
}

#[cfg(test)]
mod tests;
