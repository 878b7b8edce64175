//! Reads the newer events of a history whose older events are cached.
//!
//! A history only grows, and its chunks never change. So a process that has read the history
//! before needs only the chunks that were added since, and the events in the state document.
//! This matters for a fan-out: each activity reads the history of its instance, and between two
//! activities of one process another process has committed a turn. Without the cache, each
//! activity would read and decode the whole history.

use std::sync::Arc;

use duroxide::Event;
use futures_util::future::try_join_all;

use super::decode_events;
use crate::documents::{Chunk, State};
use crate::failure::Failure;
use crate::store::Store;
use crate::store::state_cache::Snapshot;

/// The most chunks that are read one by one, at the same time. With more new chunks, the whole
/// history is read with a query.
const NEW_CHUNKS_MAX: usize = 16;

/// The history of the current execution: the events of the cached snapshot that are in chunks,
/// and the newer ones, which are read. `None` if the snapshot is not an earlier state of the
/// same execution, if too much is new, or if a part is missing: then the whole history is read.
pub(super) async fn append_to_cached(
    store: &Store,
    cached: Option<Arc<Snapshot>>,
    state: &State,
) -> Result<Option<Vec<Event>>, Failure> {
    let Some(cached) = cached.filter(|cached| is_earlier(&cached.state.value, state)) else {
        return Ok(None);
    };
    let known_chunks = usize::try_from(cached.state.value.execution.chunks.len()).unwrap_or(usize::MAX);
    let new_ids: Vec<String> =
        state.execution.chunks.ids(state.execution.number).skip(known_chunks).collect();
    if new_ids.len() > NEW_CHUNKS_MAX {
        return Ok(None);
    }
    let chunks = new_ids.iter().map(|id| store.find::<Chunk>(&state.instance_id, id));
    let mut text = String::new();
    for chunk in try_join_all(chunks).await? {
        let Some(chunk) = chunk else { return Ok(None) };
        text.push_str(&chunk.value.event_data);
    }
    text.push_str(&state.event_data);
    let Ok(newer) = decode_events(&text) else { return Ok(None) };
    // The events of the snapshot that are not in a chunk are the lines of its state document. Later
    // commits move whole events to chunks, oldest first. So `newer` begins with these lines.
    let unchunked_events = cached.state.value.event_data.lines().filter(|line| !line.is_empty()).count();
    let Some(chunked_events) = cached.history.len().checked_sub(unchunked_events) else { return Ok(None) };
    if (chunked_events + newer.len()) as u64 != state.execution.event_count {
        return Ok(None);
    }
    let mut history = store.state_cache.take_history(cached);
    history.truncate(chunked_events);
    history.extend(newer);
    Ok(Some(history))
}

/// Whether `cached` is an earlier state of the same execution: each of its chunks is a chunk of
/// `state`, too.
fn is_earlier(cached: &State, state: &State) -> bool {
    !cached.is_deleted()
        && cached.incarnation == state.incarnation
        && cached.execution.number == state.execution.number
        && cached.commit_number <= state.commit_number
        && cached.execution.chunks.is_prefix_of(&state.execution.chunks)
}
