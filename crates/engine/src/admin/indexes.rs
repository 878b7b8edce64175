//! Registering the indexes of a container.

use std::sync::Arc;

use perihelion_model::json::Value;

use super::update_container;
use crate::catalog::Container;
use crate::index::{self, IndexDefinition, IndexShape};
use crate::refusal::Refusal;
use crate::transaction::Transaction;

/// The most indexes of a container. Each index makes every write more expensive.
const INDEXES_MAX: usize = 32;

/// Registers an index that is still to be filled. Returns its id, or `None` when the index
/// exists already or the container has [`INDEXES_MAX`] indexes.
pub(crate) fn add_index(
    transaction: &mut Transaction<'_>,
    container: &Arc<Container>,
    shape: IndexShape,
) -> Result<Option<u16>, Refusal> {
    let container = transaction.current(container)?;
    if container.has_index(&shape) || container.indexes.len() >= INDEXES_MAX {
        return Ok(None);
    }
    let id = container.index_next;
    update_container(transaction, &container, |container, _| push_index(container, shape, false));
    Ok(Some(id))
}

/// Marks an index as complete.
pub(crate) fn finish_index(
    transaction: &mut Transaction<'_>,
    container: &Arc<Container>,
    id: u16,
) -> Result<(), Refusal> {
    let container = transaction.current(container)?;
    update_container(transaction, &container, |container, _| {
        if let Some(index) = container.indexes.iter_mut().find(|index| index.id == id) {
            index.is_ready = true;
        }
    });
    Ok(())
}

/// Adds the composite indexes that the indexing policy declares and the container does
/// not have, up to [`INDEXES_MAX`] in all. `is_ready` is true for a container without
/// documents, whose indexes are complete.
pub(super) fn add_declared_indexes(container: &mut Container, is_ready: bool) {
    let policy = container.definition.get("indexingPolicy").cloned().unwrap_or(Value::Null);
    for shape in index::declared(&policy) {
        if !container.has_index(&shape) && container.indexes.len() < INDEXES_MAX {
            push_index(container, shape, is_ready);
        }
    }
}

/// Adds an index under the next id.
fn push_index(container: &mut Container, shape: IndexShape, is_ready: bool) {
    container.indexes.push(IndexDefinition { id: container.index_next, shape, is_ready });
    container.index_next += 1;
}
