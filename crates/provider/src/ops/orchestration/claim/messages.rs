//! The messages of a claim: reads them with the state, decodes them, and drops those that
//! must not be delivered.

use duroxide::providers::WorkItem;
use perihelion_client::Query;
use serde_json::Value;

use crate::documents::stamp::Stamp;
use crate::documents::text::Text;
use crate::documents::{Message, STATE, State, Versioned};
use crate::failure::Failure;
use crate::ops::payload;
use crate::ops::set_aside::set_aside;
use crate::store::{Store, decode_row};

/// The most messages of one turn: their deletions must fit into the commit's batch.
pub(super) const MESSAGES_MAX: usize = 64;

/// The most bytes of the messages of one turn. A single message may be larger.
const MESSAGES_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// The state document, then the visible messages in order.
const WAITING: &str = "SELECT TOP 65 * FROM c WHERE c.enq >= 0 AND (c.id = 'i' OR \
    (c.type = 'orch_queue' AND c.visibleAt <= @now)) ORDER BY c.enq";

/// Visible starts. A message that is stored in parts may be one.
const STARTS: &str = "SELECT TOP 64 * FROM c WHERE c.type = 'orch_queue' AND c.visibleAt <= @now AND \
    (NOT IS_STRING(c.item) OR STARTSWITH(c.item, '{\"StartOrchestration\"')) ORDER BY c.enq";

/// The state and visible messages of an instance.
pub(super) struct Waiting {
    pub(super) state: Option<Versioned<State>>,
    pub(super) messages: Vec<(Message, WorkItem)>,
    /// There are more messages than one turn takes.
    pub(super) is_more: bool,
}

/// Reads the state and the visible messages of an instance.
pub(super) async fn waiting(store: &Store, instance: &str, now: Stamp) -> Result<Waiting, Failure> {
    let query = Query::new(WAITING).with_parameter("@now", now.0).in_partition(instance);
    let rows: Vec<Value> = store.rows(query).await?;
    let is_more = rows.len() > MESSAGES_MAX;
    let (mut state, mut messages) = (None, Vec::new());
    for row in rows {
        if row["id"] == STATE {
            state = Some(decode_row::<State>(row)?);
            continue;
        }
        let id = row["id"].as_str().unwrap_or_default().to_owned();
        match serde_json::from_value::<Message>(row) {
            Ok(message) => messages.push(message),
            Err(_) => set_aside(store, instance, &id).await,
        }
    }
    let count = messages.len();
    messages.truncate(affordable(&messages));
    let is_more = is_more || messages.len() < count;
    let messages = with_items(store, instance, messages).await?;
    Ok(Waiting { state, messages, is_more })
}

/// How many of the messages one turn takes.
fn affordable(messages: &[Message]) -> usize {
    let mut bytes = 0;
    let fitting = messages.iter().take(MESSAGES_MAX).take_while(|message| {
        bytes += message.item.len();
        bytes <= MESSAGES_BYTES_MAX
    });
    fitting.count().max(1)
}

/// Decodes messages. Large texts are joined from their parts.
async fn with_items(
    store: &Store,
    instance: &str,
    messages: Vec<Message>,
) -> Result<Vec<(Message, WorkItem)>, Failure> {
    let texts: Vec<&Text> = messages.iter().map(|message| &message.item).collect();
    let texts = payload::read_texts(store, instance, &texts).await?;
    let mut readable = Vec::new();
    for (message, text) in messages.into_iter().zip(texts) {
        // The parts are gone if the message was consumed in the meantime.
        let Some(text) = text else { continue };
        match serde_json::from_str(&text) {
            Ok(item) => readable.push((message, item)),
            Err(_) => set_aside(store, instance, &message.id).await,
        }
    }
    Ok(readable)
}

/// Deletes and leaves out messages that were consumed before or are for an earlier
/// incarnation.
pub(super) async fn drop_stale(
    store: &Store,
    instance: &str,
    live: Option<&State>,
    state: &Option<Versioned<State>>,
    messages: Vec<(Message, WorkItem)>,
) -> Vec<(Message, WorkItem)> {
    let consumed = state.as_ref().map(|state| &state.value.dedup_record);
    let is_deleted = state.as_ref().is_some_and(|state| state.value.is_deleted());
    let is_stale = |(message, item): &(Message, WorkItem)| {
        let is_foreign = message
            .incarnation
            .as_ref()
            .is_some_and(|inc| live.is_none_or(|state| state.incarnation != *inc));
        let is_consumed = || consumed.is_some_and(|consumed| consumed.contains(&message.id));
        is_foreign || (is_deleted && is_answer(item)) || (message.needs_dedup && is_consumed())
    };
    let (stale, fresh): (Vec<_>, Vec<_>) = messages.into_iter().partition(is_stale);
    for (message, _) in stale {
        tracing::debug!(instance, id = message.id, "a stale message is deleted");
        if let Err(failure) = payload::remove_message(store, &message).await {
            tracing::warn!(instance, id = message.id, ?failure, "a stale message could not be removed");
        }
    }
    fresh
}

/// Whether a message answers a request of the instance. After a deletion the request
/// was made by the earlier incarnation.
fn is_answer(item: &WorkItem) -> bool {
    matches!(
        item,
        WorkItem::SubOrchCompleted { .. }
            | WorkItem::SubOrchFailed { .. }
            | WorkItem::ActivityCompleted { .. }
            | WorkItem::ActivityFailed { .. }
            | WorkItem::TimerFired { .. }
    )
}

/// The start of an instance, when more messages came before it than one turn takes.
/// Without the start no turn could ever consume them.
pub(super) async fn start_behind(
    store: &Store,
    instance: &str,
    now: Stamp,
) -> Result<Vec<(Message, WorkItem)>, Failure> {
    let query = Query::new(STARTS).with_parameter("@now", now.0).in_partition(instance);
    let rows: Vec<Value> = store.rows(query).await?;
    let messages = rows.into_iter().filter_map(|row| serde_json::from_value(row).ok()).collect();
    let items = with_items(store, instance, messages).await?;
    let is_start = |(_, item): &(Message, WorkItem)| matches!(item, WorkItem::StartOrchestration { .. });
    Ok(items.into_iter().find(is_start).into_iter().collect())
}
