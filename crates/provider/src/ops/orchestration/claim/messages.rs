//! The messages of a claim: reads the messages together with the state, decodes them, and
//! drops messages that must not be delivered.

use std::collections::HashMap;

use duroxide::providers::WorkItem;
use perihelion_client::{Etag, Query};
use serde_json::Value;

use crate::documents::stamp::Stamp;
use crate::documents::text::Text;
use crate::documents::{Message, STATE_ID, State, Versioned};
use crate::failure::Failure;
use crate::ops::payload;
use crate::ops::set_aside::{is_item_of_later_version, is_of_later_version, set_aside};
use crate::plan::CONSUMED_IN_COMMIT_MAX;
use crate::store::{Store, decode_row};

/// The most messages of one turn, not counting further completions. The deletions of these
/// messages must fit into the commit's batch.
pub(super) const MESSAGES_MAX: usize = CONSUMED_IN_COMMIT_MAX;

/// The most bytes of the messages of one turn. The first message is taken even if it is
/// larger.
const MESSAGES_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// The state document, if there is one, then the visible messages in order. 65 rows are enough
/// for the state and [`MESSAGES_MAX`] messages. Without a state, the rows hold one message more.
const STATE_AND_MESSAGES: &str = "SELECT TOP 65 * FROM c WHERE c.enq >= 0 AND (c.id = 'i' OR \
    (c.type = 'orch_queue' AND c.visibleAt <= @now)) ORDER BY c.enq";

/// The messages that start the instance, or that may start it because their text is stored in
/// parts. Also those that are not visible yet: a process that cannot run the orchestration gives
/// its start back with a delay.
const STARTS: &str = "SELECT TOP 64 * FROM c WHERE c.type = 'orch_queue' AND \
    (NOT IS_STRING(c.item) OR STARTSWITH(c.item, '{\"StartOrchestration\"')) ORDER BY c.enq";

/// The state and the visible messages of an instance, as they were read.
pub(super) struct InstanceRead {
    pub(super) state: Option<Versioned<State>>,
    /// The messages in order, at most as many as one turn takes.
    pub(super) messages: Vec<(Message, WorkItem)>,
    /// The etags of the messages that were read, by message id.
    pub(super) etags: HashMap<String, Etag>,
    /// Whether there may be more visible messages than these.
    pub(super) has_more_messages: bool,
    /// The id of a message that only a later version can read. `messages` has the messages
    /// before it. The messages after it wait, so that the order is kept.
    pub(super) later_version_message: Option<String>,
}

/// Reads the state and the messages of an instance that are visible at `now`. A broken
/// message is set aside; an unreadable state is an error.
pub(super) async fn read_instance(
    store: &Store,
    instance: &str,
    now: Stamp,
) -> Result<InstanceRead, Failure> {
    let query = Query::new(STATE_AND_MESSAGES).with_parameter("@now", now.0).in_partition(instance);
    let rows: Vec<Value> = store.rows(query).await?;
    let has_more_messages = rows.len() > MESSAGES_MAX;
    let (mut state, mut messages, mut later_version_message) = (None, Vec::new(), None);
    let mut etags = HashMap::new();
    for row in rows {
        if row["id"] == STATE_ID {
            state = Some(decode_row::<State>(row)?);
            continue;
        }
        let id = row["id"].as_str().unwrap_or_default().to_owned();
        etags.extend(etag_of(&row).map(|etag| (id.clone(), etag)));
        let is_of_later_version = is_of_later_version(&row);
        match serde_json::from_value::<Message>(row) {
            Ok(message) => messages.push(message),
            Err(_) if is_of_later_version => {
                later_version_message = Some(id);
                break;
            }
            Err(_) => set_aside(store, instance, &id).await,
        }
    }
    let count = messages.len();
    messages.truncate(count_for_one_turn(&messages));
    let has_more_messages = has_more_messages || messages.len() < count;
    let decoded = decode_items(store, instance, messages).await?;
    // If the turn leaves messages to the next turn, the message of a later version is behind them.
    // Then the next turn deals with it.
    let later_version_message =
        decoded.later_version_message.or(later_version_message.filter(|_| !has_more_messages));
    let has_more_messages = has_more_messages || later_version_message.is_some();
    Ok(InstanceRead { state, messages: decoded.messages, etags, has_more_messages, later_version_message })
}

/// The etag of a document that a query returned.
pub(super) fn etag_of(row: &Value) -> Option<Etag> {
    row["_etag"].as_str().and_then(|etag| Etag::parse(etag).ok())
}

/// The number of messages that one turn takes: as many as its limits allow, at least one.
fn count_for_one_turn(messages: &[Message]) -> usize {
    let mut bytes = 0;
    let fitting = messages.iter().take(MESSAGES_MAX).take_while(|message| {
        bytes += message.item.len();
        bytes <= MESSAGES_BYTES_MAX
    });
    fitting.count().max(1)
}

/// Messages with their work items.
struct DecodedMessages {
    messages: Vec<(Message, WorkItem)>,
    /// See [`InstanceRead::later_version_message`].
    later_version_message: Option<String>,
}

/// Decodes the work items of messages. Large texts are joined from their parts. Messages with
/// missing parts are left out. Broken messages are left out and set aside. Stops at a message
/// that only a later version can read.
async fn decode_items(
    store: &Store,
    instance: &str,
    messages: Vec<Message>,
) -> Result<DecodedMessages, Failure> {
    let texts: Vec<&Text> = messages.iter().map(|message| &message.item).collect();
    let texts = payload::read_texts(store, instance, &texts).await?;
    let mut readable = Vec::new();
    for (message, text) in messages.into_iter().zip(texts) {
        // If the parts do not exist, the message was consumed or removed in the meantime.
        let Some(text) = text else { continue };
        match serde_json::from_str(&text) {
            Ok(item) => readable.push((message, item)),
            Err(_) if is_item_of_later_version(&text) => {
                return Ok(DecodedMessages { messages: readable, later_version_message: Some(message.id) });
            }
            Err(_) => set_aside(store, instance, &message.id).await,
        }
    }
    Ok(DecodedMessages { messages: readable, later_version_message: None })
}

/// Deletes stale messages and returns the other messages. A message is stale if it was
/// consumed before, is for another incarnation, or is an answer to a deleted instance. A stale
/// message that cannot be deleted is not returned either. `state` is the stored state. `live`
/// is the same state, or `None` if the state is a tombstone. A message is deleted only if it still has
/// the etag in `etags`: the next instance of the same name may get a completion with the same id.
pub(super) async fn drop_stale(
    store: &Store,
    instance: &str,
    live: Option<&State>,
    state: &Option<Versioned<State>>,
    messages: Vec<(Message, WorkItem)>,
    etags: &HashMap<String, Etag>,
) -> Vec<(Message, WorkItem)> {
    let dedup_record = state.as_ref().map(|state| &state.value.dedup_record);
    let is_deleted = state.as_ref().is_some_and(|state| state.value.is_deleted());
    let is_stale = |(message, item): &(Message, WorkItem)| {
        let is_for_other_incarnation = message
            .incarnation
            .as_ref()
            .is_some_and(|incarnation| live.is_none_or(|state| state.incarnation != *incarnation));
        let is_consumed = || dedup_record.is_some_and(|record| record.contains(&message.id));
        is_for_other_incarnation || (is_deleted && is_answer(item)) || (message.needs_dedup && is_consumed())
    };
    let (stale, fresh): (Vec<_>, Vec<_>) = messages.into_iter().partition(is_stale);
    for (message, _) in stale {
        let Some(etag) = etags.get(&message.id) else { continue };
        tracing::debug!(instance, id = message.id, "a stale message is deleted");
        if let Err(failure) = Box::pin(payload::remove_message(store, &message, etag)).await {
            tracing::warn!(instance, id = message.id, ?failure, "a stale message could not be removed");
        }
    }
    fresh
}

/// Whether a message is an answer to something that the instance itself has started: an
/// activity, a child or a timer. If the instance is deleted, the deleted incarnation started
/// it.
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

/// Finds the start of an instance if the start is not among the messages that were read: more
/// messages were enqueued before it than one turn takes, or it is not visible yet. Without the
/// start, no turn could ever consume these messages. Returns the start that is visible first, or
/// none if no start is among the rows of [`STARTS`]. Adds the etags of these rows to `etags`.
pub(super) async fn find_start(
    store: &Store,
    instance: &str,
    etags: &mut HashMap<String, Etag>,
) -> Result<Vec<(Message, WorkItem)>, Failure> {
    let query = Query::new(STARTS).in_partition(instance);
    let rows: Vec<Value> = store.rows(query).await?;
    etags.extend(rows.iter().filter_map(|row| Some((row["id"].as_str()?.to_owned(), etag_of(row)?))));
    let messages = rows.into_iter().filter_map(|row| serde_json::from_value(row).ok()).collect();
    let items = decode_items(store, instance, messages).await?.messages;
    let is_start = |(_, item): &(Message, WorkItem)| matches!(item, WorkItem::StartOrchestration { .. });
    let starts = items.into_iter().filter(is_start);
    Ok(starts.min_by_key(|(message, _)| message.visible_at).into_iter().collect())
}
