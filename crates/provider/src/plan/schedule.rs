//! The work that a turn schedules: activities, messages and cancellations. Messages to
//! other instances are packed into outboxes. The rest become documents of the commit if they
//! are few, and are packed into bundles if they are many.

use std::collections::HashSet;

use super::spill::Spill;
use super::{
    Basis, BatchLayout, TurnAck, TurnPlan, activity_document, activity_id, bundles, items, message_document,
    target_instance,
};
use crate::documents::dedup::sent_message_id;
use crate::documents::stamp::Stamp;
use crate::documents::{
    Activity, Bundle, CancelledActivity, DocumentType, ENQUEUED_FIRST, Garbage, Message, State, Versioned,
};
use crate::failure::Failure;
use crate::timing::CANCELLED_TTL;

/// The most activities, messages to the instance itself and cancellations, all together, that
/// become documents of the commit. If there are more, all are packed into bundles, except the start
/// of the next execution. A batch of 100 operations also needs room for 64 consumed messages,
/// the state, and a few other documents.
const UNBUNDLED_MAX: usize = 30;

/// The most bytes of activities and messages that become documents of the commit. If they
/// have more, all are packed into bundles.
const UNBUNDLED_BYTES_MAX: usize = 600_000;

/// Adds the scheduled work to the plan.
pub(super) fn apply(
    plan: &mut TurnPlan,
    basis: &Basis<'_>,
    ack: &TurnAck,
    layout: &BatchLayout,
    spill: &mut Spill,
    garbage: &mut Garbage,
) -> Result<(), Failure> {
    let Scheduled { activities, messages, outgoing, mut cancelled } =
        scheduled_work(&mut plan.state, basis.now, ack, layout, spill)?;
    // The work item of a cancelled activity may be in parts, whose ids are not known here. The
    // garbage record finds the parts by the id of the activity.
    if plan.state.has_spilled_activities {
        garbage.activities = cancelled.iter().cloned().collect();
        garbage.activities.sort();
    }
    plan.edited_bundles = edit_bundles(basis.bundles, &mut cancelled);
    plan.state.bundles = basis.bundles.iter().map(|bundle| bundle.value.id.clone()).collect();
    plan.state.is_continued = messages.iter().any(|message| message.enqueued_at <= ENQUEUED_FIRST);
    let instance = plan.state.instance_id.clone();
    let staging_id = plan.staging_id.clone();
    let packed_turn = bundles::PackedTurn {
        instance: &instance,
        commit_number: plan.state.commit_number,
        now: basis.now,
        staging_id: staging_id.as_deref(),
    };
    plan.outboxes = bundles::pack_outboxes(&packed_turn, outgoing);
    let mut cancelled: Vec<String> = cancelled.into_iter().collect();
    cancelled.sort();
    let bytes = bundles::total_bytes(&activities, &messages);
    if activities.len() + messages.len() + cancelled.len() <= UNBUNDLED_MAX && bytes <= UNBUNDLED_BYTES_MAX {
        plan.cancelled = cancelled.into_iter().map(|id| tombstone(&instance, id)).collect();
        (plan.activities, plan.messages) = (activities, messages);
        return Ok(());
    }
    // The start of the next execution must be written by this commit.
    let (starts, others) = messages.into_iter().partition(|message| message.enqueued_at <= ENQUEUED_FIRST);
    plan.messages = starts;
    plan.bundles = bundles::pack_bundles(&packed_turn, activities, others, cancelled);
    plan.state.bundles.extend(plan.bundles.iter().map(|bundle| bundle.id.clone()));
    Ok(())
}

/// The scheduled work as documents.
struct Scheduled {
    activities: Vec<Activity>,
    /// Messages to the instance itself.
    messages: Vec<Message>,
    /// Messages to other instances.
    outgoing: Vec<Message>,
    /// Ids of cancelled activities of earlier turns.
    cancelled: HashSet<String>,
}

/// Converts the work of a turn to documents, each with a stamp of its own, in order. Splits
/// large work items.
fn scheduled_work(
    state: &mut State,
    now: Stamp,
    ack: &TurnAck,
    layout: &BatchLayout,
    spill: &mut Spill,
) -> Result<Scheduled, Failure> {
    let mut stamp = now;
    let mut next_stamp = || {
        stamp.0 += 1;
        stamp
    };
    let mut cancelled: HashSet<String> =
        ack.cancelled.iter().map(|target| activity_id(target.execution_id, target.activity_id)).collect();
    let incarnation = Some(state.incarnation.clone());
    let (mut activities, mut messages, mut outgoing) = (Vec::new(), Vec::new(), Vec::new());
    for item in &ack.worker_items {
        let mut activity = activity_document(item, next_stamp())?;
        // An activity that is scheduled and cancelled in one turn is not written, and
        // needs no tombstone.
        if !cancelled.remove(&activity.id) {
            activity.incarnation = incarnation.clone();
            state.has_spilled_activities |= spill.split_activity(&mut activity, layout.item_bytes_max);
            activities.push(activity);
        }
    }
    let sender = items::sender_hash(&state.instance_id, &state.incarnation);
    for (position, item) in ack.orchestrator_items.iter().enumerate() {
        let is_own = target_instance(item) == state.instance_id;
        let id = match is_own {
            // The sender's hash depends on the incarnation. When the id of an instance whose
            // tombstone has expired is used again, a timer of the earlier incarnation may still
            // exist, and must have another id.
            true => format!("n:{sender}:{:x}:{position:05}", state.commit_number),
            false => sent_message_id(&sender, state.commit_number, position),
        };
        let mut message = message_document(item, id, next_stamp(), None)?;
        items::set_parent_incarnation(&mut message, item, state);
        if is_own {
            items::convert_timer_to_provider_clock(&mut message, item, ack.clock_offset_ms, now);
        }
        spill.split_message(&mut message, layout.item_bytes_max);
        match is_own {
            true => messages.push(Message { incarnation: incarnation.clone(), ..message }),
            false => outgoing.push(message),
        }
    }
    Ok(Scheduled { activities, messages, outgoing, cancelled })
}

/// Records cancelled activities in bundles that are not unpacked yet, and removes their ids
/// from `cancelled`, because these activities need no tombstone. Returns the bundles that
/// changed.
fn edit_bundles(bundles: &[Versioned<Bundle>], cancelled: &mut HashSet<String>) -> Vec<Versioned<Bundle>> {
    let mut edited = Vec::new();
    for bundle in bundles {
        let ids = bundle.value.activities.iter().map(|activity| &activity.id);
        let to_skip: Vec<String> = ids.filter(|id| cancelled.remove(*id)).cloned().collect();
        if !to_skip.is_empty() {
            let mut bundle = bundle.clone();
            bundle.value.skip.extend(to_skip);
            edited.push(bundle);
        }
    }
    edited
}

/// The tombstone of a cancelled activity.
pub(crate) fn tombstone(instance: &str, id: String) -> CancelledActivity {
    CancelledActivity {
        id,
        instance_id: instance.to_owned(),
        document_type: DocumentType::Cancelled,
        ttl: CANCELLED_TTL.as_secs() as u32,
    }
}
