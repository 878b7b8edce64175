//! Reads of one instance: its state, histories, custom status and key-value pairs.

mod newer_events;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use duroxide::providers::KvEntry;
use duroxide::{Event, SystemStats};
use perihelion_client::Query;
use serde::Deserialize;
use tokio::time::Instant;

use crate::documents::text::Text;
use crate::documents::{Execution, KvValue, PastExecution, State, Versioned};
use crate::failure::Failure;
use crate::ops::payload;
use crate::plan::past_execution_id;
use crate::store::state_cache::Snapshot;
use crate::store::{RETRY_FOR, StateChange, Store, retry_until};

/// The state of an instance: the cached state if the service confirms its etag, else the
/// stored state. The state of a deleted instance is a tombstone. `None` if there is no state
/// document.
pub(crate) async fn state(store: &Store, instance: &str) -> Result<Option<FoundState>, Failure> {
    let Some(cached) = store.state_cache.get(instance) else {
        return Ok(store.state(instance).await?.map(|state| FoundState::Read(Box::new(state))));
    };
    match store.state_if_changed(instance, &cached.state.etag).await? {
        StateChange::Unchanged => Ok(Some(FoundState::Cached(cached))),
        StateChange::Changed(state) => Ok(Some(FoundState::Read(state))),
        StateChange::NoDocument => Ok(None),
    }
}

/// The state of an instance: from the cache, together with the history, or from the database.
pub(crate) enum FoundState {
    Cached(Arc<Snapshot>),
    Read(Box<Versioned<State>>),
}

impl FoundState {
    fn into_state(self) -> State {
        match self {
            FoundState::Cached(snapshot) => snapshot.state.value.clone(),
            FoundState::Read(state) => state.value,
        }
    }
}

/// The state of an instance; `None` if the instance is deleted or has no state document.
pub(crate) async fn live_state(store: &Store, instance: &str) -> Result<Option<State>, Failure> {
    let found = state(store, instance).await?;
    Ok(found.map(FoundState::into_state).filter(|state| !state.is_deleted()))
}

/// The state of an instance that management operations see (`State::is_created`). Fails with
/// [`Failure::NotFound`] for any other instance.
pub(crate) async fn created_state(store: &Store, instance: &str) -> Result<State, Failure> {
    let state = live_state(store, instance).await?.filter(|state| state.is_created);
    state.ok_or_else(|| Failure::NotFound(instance.to_owned()))
}

/// The history of the latest execution; empty for an unknown or deleted instance. Transient
/// failures are retried: the runtime reads the history before each activity, and treats a
/// failure as an empty history.
pub(crate) async fn latest_history(store: &Store, instance: &str) -> Result<Vec<Event>, Failure> {
    retry_until(Instant::now() + RETRY_FOR, || try_latest_history(store, instance)).await
}

async fn try_latest_history(store: &Store, instance: &str) -> Result<Vec<Event>, Failure> {
    let history = match state(store, instance).await? {
        None => return Ok(Vec::new()),
        // The cached history of a deleted instance is empty.
        Some(FoundState::Cached(snapshot)) => Arc::clone(&snapshot.history),
        Some(FoundState::Read(state)) if state.value.is_deleted() => return Ok(Vec::new()),
        Some(FoundState::Read(state)) => current_history(store, &state).await?.map_err(Failure::Refused)?,
    };
    Ok(Arc::try_unwrap(history).unwrap_or_else(|shared| Vec::clone(&shared)))
}

/// The history of the current execution. It comes from the cache if the cached state has the
/// same etag as `state`. If the cached state is older, only the newer events are read. Otherwise
/// the whole history is read. The result is cached. The inner error is the reason why the history
/// is unreadable.
pub(crate) async fn current_history(
    store: &Store,
    state: &Versioned<State>,
) -> Result<Result<Arc<Vec<Event>>, String>, Failure> {
    let cached = store.state_cache.get(&state.value.instance_id);
    if let Some(cached) = cached.as_ref().filter(|cached| cached.state.etag == state.etag) {
        return Ok(Ok(Arc::clone(&cached.history)));
    }
    let history = match newer_events::append_to_cached(store, cached, &state.value).await? {
        Some(history) => Arc::new(history),
        None => match read_current_history(store, &state.value).await? {
            Ok(history) => Arc::new(history),
            Err(error) => return Ok(Err(error)),
        },
    };
    store.state_cache.put(Arc::new(Snapshot {
        state: state.clone(),
        history: Arc::clone(&history),
        is_committed_here: false,
    }));
    Ok(Ok(history))
}

/// The history of one execution; empty if the execution is unknown.
pub(crate) async fn execution_history(
    store: &Store,
    instance: &str,
    execution: u64,
) -> Result<Vec<Event>, Failure> {
    let Some(state) = live_state(store, instance).await? else { return Ok(Vec::new()) };
    if state.execution.number == execution {
        return read_current_history(store, &state).await?.map_err(Failure::Refused);
    }
    let Some(past) = past_execution(store, instance, execution).await? else { return Ok(Vec::new()) };
    let text = read_chunks(store, instance, &past).await?;
    text.and_then(|text| decode_events(&text)).map_err(Failure::Refused)
}

/// A past execution; `None` if it is unknown or pruned.
pub(crate) async fn past_execution(
    store: &Store,
    instance: &str,
    execution: u64,
) -> Result<Option<Execution>, Failure> {
    let found = store.find::<PastExecution>(instance, &past_execution_id(execution)).await?;
    Ok(found.map(|found| found.value.execution))
}

/// Reads the history of the current execution. The inner error is the reason why the history
/// is unreadable.
pub(crate) async fn read_current_history(
    store: &Store,
    state: &State,
) -> Result<Result<Vec<Event>, String>, Failure> {
    let text = read_chunks(store, &state.instance_id, &state.execution).await?;
    Ok(text.and_then(|text| decode_events(&(text + &state.event_data))))
}

/// A row of the query for chunks.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ChunkText {
    id: String,
    event_data: String,
}

/// The joined text of an execution's chunks. The inner error names a missing chunk.
async fn read_chunks(
    store: &Store,
    instance: &str,
    execution: &Execution,
) -> Result<Result<String, String>, Failure> {
    if execution.chunks.is_empty() {
        return Ok(Ok(String::new()));
    }
    let query = Query::new("SELECT c.id, c.eventData FROM c WHERE c.hx = @execution")
        .with_parameter("@execution", execution.number)
        .in_partition(instance);
    let chunks: Vec<ChunkText> = store.rows(query).await?;
    let mut chunks: HashMap<String, String> =
        chunks.into_iter().map(|chunk| (chunk.id, chunk.event_data)).collect();
    let mut text = String::new();
    for id in execution.chunks.ids(execution.number) {
        match chunks.remove(&id) {
            Some(chunk) => text.push_str(&chunk),
            None => return Ok(Err(format!("the history of {instance} has lost its chunk {id}"))),
        }
    }
    Ok(Ok(text))
}

/// Decodes events, one per line.
fn decode_events(text: &str) -> Result<Vec<Event>, String> {
    let lines = text.lines().filter(|line| !line.is_empty());
    let events: Result<Vec<Event>, _> = lines.map(serde_json::from_str).collect();
    events.map_err(|error| format!("the history cannot be read: {error}"))
}

/// `get_custom_status`: the status and its version. `None` if the version is not greater
/// than `last_seen`, or the instance does not exist.
pub(crate) async fn custom_status(
    store: &Store,
    instance: &str,
    last_seen: u64,
) -> Result<Option<(Option<String>, u64)>, Failure> {
    let attempt = || async {
        let state = live_state(store, instance).await?.filter(|state| state.is_created);
        let Some(state) = state.filter(|state| state.custom_status_version > last_seen) else {
            return Ok(None);
        };
        let status = whole_text(store, instance, state.custom_status.as_ref()).await?;
        Ok(Some((status, state.custom_status_version)))
    };
    retry_until(Instant::now() + RETRY_FOR, attempt).await
}

/// The whole text of a member of the state, such as the output; `None` if the member is not
/// set.
pub(crate) async fn whole_text(
    store: &Store,
    instance: &str,
    text: Option<&Text>,
) -> Result<Option<String>, Failure> {
    match text {
        Some(text) => Ok(Some(payload::read_text(store, instance, text).await?)),
        None => Ok(None),
    }
}

/// The key-value pairs at the end of the last execution that has ended. The runtime applies
/// the changes of the current execution itself, from the history.
pub(crate) async fn kv_snapshot(store: &Store, state: &State) -> Result<HashMap<String, KvEntry>, Failure> {
    let values = state.kv.iter().map(|(key, value)| (key.clone(), value));
    let texts = whole_kv(store, &state.instance_id, values).await?;
    let entry = |(key, value, set_at_ms)| (key, KvEntry { value, last_updated_at_ms: set_at_ms });
    Ok(texts.into_iter().map(entry).collect())
}

/// Key-value pairs with their whole texts: the key, the text, and the time at which the value
/// was set, in milliseconds since 1970.
async fn whole_kv<'v>(
    store: &Store,
    instance: &str,
    values: impl Iterator<Item = (String, &'v KvValue)>,
) -> Result<Vec<(String, String, u64)>, Failure> {
    let (keys, values): (Vec<String>, Vec<&KvValue>) = values.unzip();
    let texts: Vec<&Text> = values.iter().map(|value| &value.value).collect();
    let texts = payload::read_texts(store, instance, &texts).await?;
    let whole = keys.into_iter().zip(texts).zip(values).map(|((key, text), value)| {
        let lost = || Failure::Contended(format!("a value of {instance} was replaced while it was read"));
        Ok((key, text.ok_or_else(lost)?, value.set_at_ms))
    });
    whole.collect()
}

/// The current key-value pairs: the pairs at the end of the last execution that has ended
/// (`kv`), with the changes of the current execution (`kv_delta`).
pub(crate) fn current_kv(state: State) -> BTreeMap<String, KvValue> {
    let mut values = state.kv;
    for (key, value) in state.kv_delta {
        match value {
            Some(value) => values.insert(key, value),
            None => values.remove(&key),
        };
    }
    values
}

/// `get_kv_value`: the current value of a key; `None` if the key or the instance does not
/// exist.
pub(crate) async fn kv_value(store: &Store, instance: &str, key: &str) -> Result<Option<String>, Failure> {
    let attempt = || async {
        let Some(state) = live_state(store, instance).await? else { return Ok(None) };
        let value = current_kv(state).remove(key).map(|value| value.value);
        whole_text(store, instance, value.as_ref()).await
    };
    retry_until(Instant::now() + RETRY_FOR, attempt).await
}

/// `get_kv_all_values`: the current values by key; empty if the instance does not exist.
pub(crate) async fn all_kv_values(store: &Store, instance: &str) -> Result<HashMap<String, String>, Failure> {
    let attempt = || async {
        let Some(state) = live_state(store, instance).await? else { return Ok(HashMap::new()) };
        let values = current_kv(state);
        let all = values.iter().map(|(key, value)| (key.clone(), value));
        let texts = whole_kv(store, instance, all).await?;
        Ok(texts.into_iter().map(|(key, text, _)| (key, text)).collect())
    };
    retry_until(Instant::now() + RETRY_FOR, attempt).await
}

/// `get_instance_stats`: figures of the current execution and of the key-value pairs. `None`
/// if the instance does not exist.
pub(crate) async fn instance_stats(store: &Store, instance: &str) -> Result<Option<SystemStats>, Failure> {
    let state = retry_until(Instant::now() + RETRY_FOR, || live_state(store, instance)).await?;
    let Some(state) = state.filter(|state| state.is_created) else { return Ok(None) };
    let execution = state.execution.clone();
    let values = current_kv(state);
    Ok(Some(SystemStats {
        history_event_count: execution.event_count,
        history_size_bytes: execution.event_bytes,
        queue_pending_count: execution.carried_messages,
        kv_user_key_count: values.len() as u64,
        kv_total_value_bytes: values.values().map(|value| value.value.len()).sum(),
    }))
}
