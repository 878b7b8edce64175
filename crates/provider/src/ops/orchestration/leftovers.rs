//! Leftovers: completions that a turn has consumed and its commit could not delete, because a
//! batch has room for only 100 operations. The commit lists their ids in the state (`State::undeleted`).
//! The process that made the commit deletes them right after it.
//!
//! If that process ends before it has deleted the leftovers, polls find them, and the next claim of
//! the instance deletes them. Until then the list in the state shows that they were consumed, so no
//! turn takes them again. The next commit after the deletion writes a state without the list.
//!
//! Invariant: a completion is deleted only if it still has the etag that was read. The next instance of
//! the same name has completions with the same ids, and a late request must not delete these.

use std::collections::{HashMap, HashSet};

use futures_util::future::join_all;
use perihelion_client::{Batch, Etag, Query};
use serde::Deserialize;

use crate::documents::{State, Versioned};
use crate::failure::Failure;
use crate::ops::repair::fenced_delete;
use crate::store::Store;

/// All completions in the queue of an instance.
const COMPLETIONS: &str = "SELECT c.id, c.inc, c._etag FROM c WHERE c.type = 'orch_queue' AND \
    STARTSWITH(c.id, 'c:')";

/// A completion in the queue.
#[derive(Deserialize)]
struct QueuedCompletion {
    id: String,
    /// The incarnation that it is for; `None` for any incarnation.
    #[serde(rename = "inc", default)]
    incarnation: Option<String>,
    #[serde(rename = "_etag")]
    etag: String,
}

/// Deletes the leftovers of a turn after its commit, which wrote `state`. `etags` has the etags with
/// which the messages of the turn were read. Returns whether all leftovers are deleted.
pub(crate) async fn delete_after_commit(
    store: &Store,
    state: &State,
    ids: &[String],
    etags: &HashMap<String, Etag>,
) -> bool {
    let instance = state.instance_id.as_str();
    let known: Option<Vec<(String, Etag)>> =
        ids.iter().map(|id| Some((id.clone(), etags.get(id)?.clone()))).collect();
    let deleted = async {
        let found = match known {
            Some(known) => known,
            None => find(store, state, &ids.iter().cloned().collect()).await?,
        };
        delete(store, instance, &found).await
    };
    match deleted.await {
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
/// that it had. The caller has read the messages before this call, so some of them may be leftovers.
/// If the returned set is not empty, the caller must read the messages again and leave out those
/// with a returned id. That holds even if this call finds no leftover in the queue: another process
/// may have deleted them after the caller's read.
pub(crate) async fn remove(store: &Store, state: &mut Versioned<State>) -> Result<HashSet<String>, Failure> {
    if state.value.undeleted.is_empty() {
        return Ok(HashSet::new());
    }
    let instance = state.value.instance_id.clone();
    // If this process made the commit, its cached state shows whether it has deleted the leftovers.
    let cached = store.state_cache.get(&instance).filter(|cached| cached.state.etag == state.etag);
    let are_deleted = cached.is_some_and(|cached| cached.state.value.undeleted.is_empty());
    let listed: HashSet<String> = std::mem::take(&mut state.value.undeleted).into_iter().collect();
    if !are_deleted {
        let left = find(store, &state.value, &listed).await?;
        delete(store, &instance, &left).await?;
    }
    Ok(listed)
}

/// The listed completions that are in the queue, with their etags. Leaves out completions for another
/// incarnation of the instance.
async fn find(
    store: &Store,
    state: &State,
    listed: &HashSet<String>,
) -> Result<Vec<(String, Etag)>, Failure> {
    let query = Query::new(COMPLETIONS).in_partition(state.instance_id.as_str());
    let queued: Vec<QueuedCompletion> = store.rows(query).await?;
    let is_leftover = |queued: &QueuedCompletion| {
        listed.contains(&queued.id)
            && queued.incarnation.as_ref().is_none_or(|incarnation| *incarnation == state.incarnation)
    };
    let left = queued.into_iter().filter(is_leftover);
    left.map(|queued| Ok((queued.id, Etag::parse(&queued.etag)?))).collect()
}

/// Deletes messages, in batches at the same time. Fails if one of them was changed.
async fn delete(store: &Store, instance: &str, messages: &[(String, Etag)]) -> Result<(), Failure> {
    let messages: Vec<(&str, &Etag)> = messages.iter().map(|(id, etag)| (id.as_str(), etag)).collect();
    let batches = messages.chunks(Batch::OPERATIONS_MAX);
    let batches = batches.map(|messages| fenced_delete::delete_unchanged(store, instance, messages));
    for is_deleted in join_all(batches).await {
        if !is_deleted? {
            return Err(Failure::Contended(format!("a consumed completion of {instance} was changed")));
        }
    }
    Ok(())
}
