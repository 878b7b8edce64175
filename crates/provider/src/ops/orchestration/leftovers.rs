//! Leftovers: completions that a turn has consumed and its commit could not delete, because a
//! batch holds 100 operations. The commit lists their ids in the state (`State::undeleted`).
//! The process that made the commit deletes them right after it.
//!
//! If that process ends before it has deleted them, polls find the leftovers, and the next claim of
//! the instance deletes them. Until then the list in the state shows that they were consumed, so no
//! turn takes them again. The next commit after the deletion writes a state without the list.

use std::collections::HashSet;

use futures_util::future::join_all;
use perihelion_client::{Batch, Query};

use crate::documents::{State, Versioned};
use crate::failure::Failure;
use crate::ops::repair::purge;
use crate::store::Store;

/// The ids of all completions in the queue of an instance.
const COMPLETIONS: &str = "SELECT VALUE c.id FROM c WHERE c.type = 'orch_queue' AND STARTSWITH(c.id, 'c:')";

/// Deletes the leftovers of a turn after its commit. Returns whether all of them are deleted.
pub(crate) async fn delete_after_commit(store: &Store, instance: &str, ids: &[String]) -> bool {
    match delete(store, instance, ids).await {
        Ok(()) => true,
        Err(failure) => {
            tracing::debug!(
                instance,
                ?failure,
                "consumed completions are not deleted yet; the next claim of the instance deletes them"
            );
            false
        }
    }
}

/// Deletes the leftovers that the state lists, empties the list in `state`, and returns the ids
/// that it had. The caller has read `state` and the messages before this call, so the messages
/// may contain leftovers. If the returned set is not empty, the caller must read the messages
/// again, even if this function had nothing to delete: the process that made the commit may have
/// deleted the leftovers meanwhile.
pub(crate) async fn remove(store: &Store, state: &mut Versioned<State>) -> Result<HashSet<String>, Failure> {
    if state.value.undeleted.is_empty() {
        return Ok(HashSet::new());
    }
    let instance = state.value.instance_id.clone();
    // If this process made the commit, it knows whether it has deleted them.
    let cached = store.state_cache.get(&instance).filter(|cached| cached.state.etag == state.etag);
    let are_deleted = cached.is_some_and(|cached| cached.state.value.undeleted.is_empty());
    let listed: HashSet<String> = std::mem::take(&mut state.value.undeleted).into_iter().collect();
    if !are_deleted {
        let queued: Vec<String> = store.rows(Query::new(COMPLETIONS).in_partition(instance.as_str())).await?;
        let remaining_ids: Vec<String> = queued.into_iter().filter(|id| listed.contains(id)).collect();
        delete(store, &instance, &remaining_ids).await?;
    }
    Ok(listed)
}

/// Deletes messages, in batches at the same time.
async fn delete(store: &Store, instance: &str, ids: &[String]) -> Result<(), Failure> {
    let batches = ids.chunks(Batch::OPERATIONS_MAX).map(|ids| purge::delete_documents(store, instance, ids));
    join_all(batches).await.into_iter().collect()
}
