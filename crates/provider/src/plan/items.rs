//! Converts work items to documents. Decides when each document becomes visible, and its place in
//! the queue. Also makes the ids of activities, of sessions, and of the senders of messages.

use std::time::Duration;

use duroxide::providers::WorkItem;
use sha2::{Digest, Sha256};

use crate::documents::stamp::Stamp;
use crate::documents::{Activity, Charge, DocumentType, ENQUEUED_FIRST, Message, State, UnknownMembers};
use crate::failure::Failure;
use crate::timing::TIMER_HORIZON;

/// The most bytes of an instance id: the service's limit for a partition key.
const INSTANCE_BYTES_MAX: usize = 2048;

/// The instance that a message is for, or that an activity belongs to.
pub(crate) fn target_instance(item: &WorkItem) -> &str {
    match item {
        WorkItem::SubOrchCompleted { parent_instance, .. }
        | WorkItem::SubOrchFailed { parent_instance, .. } => parent_instance,
        WorkItem::StartOrchestration { instance, .. }
        | WorkItem::ActivityExecute { instance, .. }
        | WorkItem::ActivityCompleted { instance, .. }
        | WorkItem::ActivityFailed { instance, .. }
        | WorkItem::TimerFired { instance, .. }
        | WorkItem::ExternalRaised { instance, .. }
        | WorkItem::CancelInstance { instance, .. }
        | WorkItem::ContinueAsNew { instance, .. }
        | WorkItem::QueueMessage { instance, .. } => instance,
    }
}

/// A message as a document. It is visible at once, unless there is a `delay` or the item is
/// a timer with a later due time. Its place in the queue is `now`, or the later time at which
/// it becomes visible; a `ContinueAsNew` without a delay is first.
pub(crate) fn message_document(
    item: &WorkItem,
    id: String,
    now: Stamp,
    delay: Option<Duration>,
) -> Result<Message, Failure> {
    let (visible_at, enqueued_at) = match (item, delay) {
        (_, Some(delay)) if !delay.is_zero() => (now.plus(delay), now.plus(delay)),
        (WorkItem::TimerFired { fire_at_ms, .. }, _) if *fire_at_ms > now.ms() => {
            (Stamp::at_ms(*fire_at_ms), Stamp::at_ms(*fire_at_ms))
        }
        (WorkItem::ContinueAsNew { .. }, _) => (now.visible_at_once(), ENQUEUED_FIRST),
        _ => (now.visible_at_once(), now),
    };
    let start_parent = match item {
        WorkItem::StartOrchestration { parent_instance, .. } => parent_instance.clone(),
        _ => None,
    };
    Ok(Message {
        id,
        instance_id: check_instance_id(target_instance(item))?,
        document_type: DocumentType::Message,
        visible_at,
        enqueued_at,
        attempt_count: 0,
        item: to_json(item)?.into(),
        needs_dedup: needs_dedup(item),
        low_water_mark: 0,
        incarnation: None,
        start_parent,
        parent_incarnation: None,
        is_left_to_owner: is_left_to_owner(visible_at, now),
        lock_nonce: None,
        cost: Charge::default(),
        unknown: UnknownMembers::default(),
    })
}

/// Converts the due time of a timer to the provider's clock, which is `offset_ms`
/// milliseconds ahead of the runtime's clock. If the converted time has passed, the timer is
/// visible at once. Other messages are not changed.
pub(super) fn convert_timer_to_provider_clock(
    message: &mut Message,
    item: &WorkItem,
    offset_ms: i64,
    now: Stamp,
) {
    let WorkItem::TimerFired { fire_at_ms, .. } = item else { return };
    let due = fire_at_ms.saturating_add_signed(offset_ms);
    if offset_ms != 0 && due > now.ms() {
        (message.visible_at, message.enqueued_at) = (Stamp::at_ms(due), Stamp::at_ms(due));
    } else if offset_ms != 0 {
        (message.visible_at, message.enqueued_at) = (now.visible_at_once(), now);
    }
    message.is_left_to_owner = is_left_to_owner(message.visible_at, now);
}

/// Whether a message that becomes visible at `visible_at` is left to the owner of the slice: no process
/// has a hint about it, not even its creator.
fn is_left_to_owner(visible_at: Stamp, now: Stamp) -> bool {
    visible_at > now.plus(TIMER_HORIZON)
}

/// Adds the parent's incarnation to a message that starts a child or carries a child's
/// result. `sender` is the state of the instance that sends the message. A result is only for
/// the incarnation of the parent that started the child. If that incarnation is not known,
/// the result is for any incarnation.
pub(super) fn set_parent_incarnation(message: &mut Message, item: &WorkItem, sender: &State) {
    if message.start_parent.as_ref() == Some(&sender.instance_id) {
        message.parent_incarnation = Some(sender.incarnation.clone());
    }
    if let WorkItem::SubOrchCompleted { parent_instance, .. }
    | WorkItem::SubOrchFailed { parent_instance, .. } = item
    {
        let parent = sender.started_by.as_ref().filter(|parent| parent.instance == *parent_instance);
        message.incarnation = parent.map(|parent| parent.incarnation.clone());
    }
}

/// Whether the provider must not deliver the item twice, because the runtime would process
/// it twice. The runtime recognises completions and timers by their event id. A second copy of a
/// cancellation would cancel an instance that was created again with the same id. A `ContinueAsNew`
/// is created by one commit only. An `ActivityExecute` is never a message.
fn needs_dedup(item: &WorkItem) -> bool {
    match item {
        WorkItem::StartOrchestration { .. }
        | WorkItem::ExternalRaised { .. }
        | WorkItem::CancelInstance { .. }
        | WorkItem::QueueMessage { .. } => true,
        WorkItem::ActivityExecute { .. }
        | WorkItem::ActivityCompleted { .. }
        | WorkItem::ActivityFailed { .. }
        | WorkItem::TimerFired { .. }
        | WorkItem::SubOrchCompleted { .. }
        | WorkItem::SubOrchFailed { .. }
        | WorkItem::ContinueAsNew { .. } => false,
    }
}

/// The document id of an activity, from its execution and the event that scheduled it.
pub(crate) fn activity_id(execution: u64, event: u64) -> String {
    format!("a:{execution}:{event}")
}

/// An activity as a document.
pub(crate) fn activity_document(item: &WorkItem, now: Stamp) -> Result<Activity, Failure> {
    let WorkItem::ActivityExecute { instance, execution_id, id, session_id, tag, .. } = item else {
        return Err(Failure::Refused("only ActivityExecute can be enqueued for workers".to_owned()));
    };
    Ok(Activity {
        id: activity_id(*execution_id, *id),
        instance_id: check_instance_id(instance)?,
        document_type: DocumentType::Activity,
        visible_at: now.visible_at_once(),
        enqueued_at: now,
        attempt_count: 0,
        item: to_json(item)?.into(),
        tag: tag.clone(),
        session_id: session_id.clone(),
        lock_nonce: None,
        incarnation: None,
        unknown: UnknownMembers::default(),
    })
}

fn to_json(item: &WorkItem) -> Result<String, Failure> {
    serde_json::to_string(item)
        .map_err(|error| Failure::Refused(format!("the work item cannot be written as JSON: {error}")))
}

fn check_instance_id(instance: &str) -> Result<String, Failure> {
    if instance.len() > INSTANCE_BYTES_MAX {
        return Err(Failure::Refused(format!(
            "an instance id has {} bytes; a partition key may have {INSTANCE_BYTES_MAX}",
            instance.len()
        )));
    }
    Ok(instance.to_owned())
}

/// The sender in the id of a message that an instance sends. An instance that was deleted
/// and created again is another sender.
pub(crate) fn sender_hash(instance: &str, incarnation: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(instance.as_bytes());
    hash.update([0]);
    hash.update(incarnation.as_bytes());
    hex(&hash.finalize()[..8])
}

/// The id and the numeric partition key of a session's document. The key has 53 bits, so
/// that every JSON reader keeps it exactly.
pub(crate) fn session_document_key(session: &str) -> (String, u64) {
    let hash = Sha256::digest(session.as_bytes());
    let mut key = [0; 8];
    key.copy_from_slice(&hash[..8]);
    (format!("s:{}", hex(&hash)), u64::from_be_bytes(key) >> 11)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
