//! Histories and the other things that are read of one instance.

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
use crate::plan::past_id;
use crate::store::state_cache::Snapshot;
use crate::store::{Changed, RETRY_FOR, Store, retry_until};

/// An instance's state: what is kept of it, when the service says that it still
/// holds.
pub(crate) async fn state(store: &Store, instance: &str) -> Result<Option<Known>, Failure> {
    let Some(kept) = store.state_cache.get(instance) else {
        return Ok(store.state(instance).await?.map(|state| Known::Read(Box::new(state))));
    };
    match store.state_if_changed(instance, &kept.state.etag).await? {
        Changed::Not => Ok(Some(Known::Kept(kept))),
        Changed::To(state) => Ok(Some(Known::Read(state))),
        Changed::Gone => Ok(None),
    }
}

/// A state, and perhaps its history.
pub(crate) enum Known {
    Kept(Arc<Snapshot>),
    Read(Box<Versioned<State>>),
}

impl Known {
    fn into_state(self) -> State {
        match self {
            Known::Kept(snapshot) => snapshot.state.value.clone(),
            Known::Read(state) => state.value,
        }
    }
}

/// A live instance's state: one that was deleted is none.
pub(crate) async fn live(store: &Store, instance: &str) -> Result<Option<State>, Failure> {
    let found = state(store, instance).await?;
    Ok(found.map(Known::into_state).filter(|state| !state.is_deleted()))
}

/// The state of an instance that exists, to whoever manages instances.
pub(crate) async fn created(store: &Store, instance: &str) -> Result<State, Failure> {
    let state = live(store, instance).await?.filter(|state| state.created);
    state.ok_or_else(|| Failure::NotFound(instance.to_owned()))
}

/// The history of the latest execution; nothing for an unknown instance. Before
/// each activity the runtime takes a failure of this for an empty history.
pub(crate) async fn latest(store: &Store, instance: &str) -> Result<Vec<Event>, Failure> {
    retry_until(Instant::now() + RETRY_FOR, || latest_now(store, instance)).await
}

async fn latest_now(store: &Store, instance: &str) -> Result<Vec<Event>, Failure> {
    let history = match state(store, instance).await? {
        None => return Ok(Vec::new()),
        // Of a deleted instance it is empty.
        Some(Known::Kept(snapshot)) => Arc::clone(&snapshot.history),
        Some(Known::Read(state)) if state.value.is_deleted() => return Ok(Vec::new()),
        Some(Known::Read(state)) => history(store, &state).await?.map_err(Failure::Refused)?,
    };
    Ok(Arc::try_unwrap(history).unwrap_or_else(|shared| Vec::clone(&shared)))
}

/// The current execution's history, from what is kept or read and then kept; or
/// why it cannot be read.
pub(crate) async fn history(
    store: &Store,
    state: &Versioned<State>,
) -> Result<Result<Arc<Vec<Event>>, String>, Failure> {
    let kept = store.state_cache.get(&state.value.instance_id);
    if let Some(kept) = kept.filter(|kept| kept.state.etag == state.etag) {
        return Ok(Ok(Arc::clone(&kept.history)));
    }
    let history = match current(store, &state.value).await? {
        Ok(history) => Arc::new(history),
        Err(error) => return Ok(Err(error)),
    };
    store.state_cache.put(Arc::new(Snapshot { state: state.clone(), history: Arc::clone(&history) }));
    Ok(Ok(history))
}

/// The history of one execution.
pub(crate) async fn execution(store: &Store, instance: &str, execution: u64) -> Result<Vec<Event>, Failure> {
    let Some(state) = live(store, instance).await? else { return Ok(Vec::new()) };
    if state.execution.execution == execution {
        return current(store, &state).await?.map_err(Failure::Refused);
    }
    let Some(past) = past(store, instance, execution).await? else { return Ok(Vec::new()) };
    let text = chunks(store, instance, &past).await?;
    text.and_then(|text| decode(&text)).map_err(Failure::Refused)
}

/// An execution that is no longer current.
pub(crate) async fn past(
    store: &Store,
    instance: &str,
    execution: u64,
) -> Result<Option<Execution>, Failure> {
    let found = store.find::<PastExecution>(instance, &past_id(execution)).await?;
    Ok(found.map(|found| found.value.execution))
}

/// The current execution's history, or why it cannot be read.
pub(crate) async fn current(store: &Store, state: &State) -> Result<Result<Vec<Event>, String>, Failure> {
    let text = chunks(store, &state.instance_id, &state.execution).await?;
    Ok(text.and_then(|text| decode(&(text + &state.event_data))))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    id: String,
    event_data: String,
}

/// The text of an execution's chunks, put together, or why it cannot be.
async fn chunks(
    store: &Store,
    instance: &str,
    execution: &Execution,
) -> Result<Result<String, String>, Failure> {
    if execution.chunks.is_empty() {
        return Ok(Ok(String::new()));
    }
    let query = Query::new("SELECT c.id, c.eventData FROM c WHERE c.hx = @execution")
        .with_parameter("@execution", execution.execution)
        .in_partition(instance);
    let parts: Vec<Part> = store.rows(query).await?;
    let mut parts: HashMap<String, String> =
        parts.into_iter().map(|part| (part.id, part.event_data)).collect();
    let mut text = String::new();
    for id in execution.chunks.ids(execution.execution) {
        match parts.remove(&id) {
            Some(part) => text.push_str(&part),
            None => return Ok(Err(format!("the history of {instance} has lost its part {id}"))),
        }
    }
    Ok(Ok(text))
}

fn decode(text: &str) -> Result<Vec<Event>, String> {
    let lines = text.lines().filter(|line| !line.is_empty());
    let events: Result<Vec<Event>, _> = lines.map(serde_json::from_str).collect();
    events.map_err(|error| format!("the history cannot be read: {error}"))
}

pub(crate) async fn custom_status(
    store: &Store,
    instance: &str,
    last_seen: u64,
) -> Result<Option<(Option<String>, u64)>, Failure> {
    let fresh = || async {
        let state = live(store, instance).await?.filter(|state| state.created);
        let Some(state) = state.filter(|state| state.custom_status_version > last_seen) else {
            return Ok(None);
        };
        let status = output(store, instance, state.custom_status.as_ref()).await?;
        Ok(Some((status, state.custom_status_version)))
    };
    retry_until(Instant::now() + RETRY_FOR, fresh).await
}

/// A text of a state that was just read.
pub(crate) async fn output(
    store: &Store,
    instance: &str,
    text: Option<&Text>,
) -> Result<Option<String>, Failure> {
    match text {
        Some(text) => Ok(Some(payload::text(store, instance, text).await?)),
        None => Ok(None),
    }
}

/// The values that a turn begins with.
pub(crate) async fn snapshot(store: &Store, state: &State) -> Result<HashMap<String, KvEntry>, Failure> {
    let values = state.kv.iter().map(|(key, value)| (key.clone(), value));
    let texts = whole(store, &state.instance_id, values).await?;
    let entry = |(key, value, t)| (key, KvEntry { value, last_updated_at_ms: t });
    Ok(texts.into_iter().map(entry).collect())
}

/// Values with their texts put together.
async fn whole<'v>(
    store: &Store,
    instance: &str,
    values: impl Iterator<Item = (String, &'v KvValue)>,
) -> Result<Vec<(String, String, u64)>, Failure> {
    let (keys, values): (Vec<String>, Vec<&KvValue>) = values.unzip();
    let texts: Vec<&Text> = values.iter().map(|value| &value.v).collect();
    let texts = payload::texts(store, instance, &texts).await?;
    let whole = keys.into_iter().zip(texts).zip(values).map(|((key, text), value)| {
        let lost = || Failure::Contended(format!("a value of {instance} was replaced while it was read"));
        Ok((key, text.ok_or_else(lost)?, value.t))
    });
    whole.collect()
}

/// Key-value pairs as they are now: the delta over the base.
pub(crate) fn values(state: State) -> BTreeMap<String, KvValue> {
    let mut values = state.kv;
    for (key, value) in state.kv_delta {
        match value {
            Some(value) => values.insert(key, value),
            None => values.remove(&key),
        };
    }
    values
}

pub(crate) async fn value(store: &Store, instance: &str, key: &str) -> Result<Option<String>, Failure> {
    let fresh = || async {
        let Some(state) = live(store, instance).await? else { return Ok(None) };
        let value = values(state).remove(key).map(|value| value.v);
        output(store, instance, value.as_ref()).await
    };
    retry_until(Instant::now() + RETRY_FOR, fresh).await
}

pub(crate) async fn all_values(store: &Store, instance: &str) -> Result<HashMap<String, String>, Failure> {
    let fresh = || async {
        let Some(state) = live(store, instance).await? else { return Ok(HashMap::new()) };
        let values = values(state);
        let all = values.iter().map(|(key, value)| (key.clone(), value));
        let texts = whole(store, instance, all).await?;
        Ok(texts.into_iter().map(|(key, text, _)| (key, text)).collect())
    };
    retry_until(Instant::now() + RETRY_FOR, fresh).await
}

pub(crate) async fn stats(store: &Store, instance: &str) -> Result<Option<SystemStats>, Failure> {
    let Some(state) = live(store, instance).await?.filter(|state| state.created) else { return Ok(None) };
    let execution = state.execution.clone();
    let values = values(state);
    Ok(Some(SystemStats {
        history_event_count: execution.events,
        history_size_bytes: execution.event_bytes,
        queue_pending_count: execution.carried,
        kv_user_key_count: values.len() as u64,
        kv_total_value_bytes: values.values().map(|value| value.v.len()).sum(),
    }))
}
