//! The work that a turn schedules: activities, messages to itself and to other instances,
//! cancellations. A few become documents of the commit; many are packed into bundles.

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

/// The most activities, messages and cancellations that become documents of the commit.
/// If there are more, they are packed into bundles. A batch needs room for 64 consumed
/// messages and the state.
const LOOSE_MAX: usize = 30;

/// The most bytes of activities and messages that become documents of the commit.
const LOOSE_BYTES_MAX: usize = 600_000;

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
        scheduled(&mut plan.state, basis.now, ack, layout, spill)?;
    if plan.state.has_spilled_activities {
        garbage.activities = cancelled.iter().cloned().collect();
        garbage.activities.sort();
    }
    plan.edited_bundles = edit_bundles(basis.bundles, &mut cancelled);
    plan.state.bundles = basis.bundles.iter().map(|bundle| bundle.value.id.clone()).collect();
    plan.state.is_continued = messages.iter().any(|message| message.enqueued_at <= ENQUEUED_FIRST);
    let instance = plan.state.instance_id.clone();
    let staging_id = plan.staging_id.clone();
    let origin = bundles::Origin {
        instance: &instance,
        seq: plan.state.commit_number,
        now: basis.now,
        staging_id: staging_id.as_deref(),
    };
    plan.outboxes = bundles::outboxes(&origin, outgoing);
    let mut cancelled: Vec<String> = cancelled.into_iter().collect();
    cancelled.sort();
    let bytes = bundles::bytes(&activities, &messages);
    if activities.len() + messages.len() + cancelled.len() <= LOOSE_MAX && bytes <= LOOSE_BYTES_MAX {
        plan.cancelled = cancelled.into_iter().map(|id| tombstone(&instance, id)).collect();
        (plan.activities, plan.messages) = (activities, messages);
        return Ok(());
    }
    // The start of the next execution must be written by this commit.
    let (now, later) = messages.into_iter().partition(|message| message.enqueued_at <= ENQUEUED_FIRST);
    plan.messages = now;
    plan.bundles = bundles::bundles(&origin, activities, later, cancelled);
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

fn scheduled(
    state: &mut State,
    now: Stamp,
    ack: &TurnAck,
    layout: &BatchLayout,
    spill: &mut Spill,
) -> Result<Scheduled, Failure> {
    let mut stamp = now;
    let mut next = || {
        stamp.0 += 1;
        stamp
    };
    let mut cancelled: HashSet<String> =
        ack.cancelled.iter().map(|target| activity_id(target.execution_id, target.activity_id)).collect();
    let inc = Some(state.incarnation.clone());
    let (mut activities, mut messages, mut outgoing) = (Vec::new(), Vec::new(), Vec::new());
    for item in &ack.worker_items {
        let mut activity = activity_document(item, next())?;
        // Scheduled and cancelled in one turn: neither is written.
        if !cancelled.remove(&activity.id) {
            activity.incarnation = inc.clone();
            state.has_spilled_activities |= spill.activity(&mut activity, layout.item_bytes_max);
            activities.push(activity);
        }
    }
    let source = items::source(&state.instance_id, &state.incarnation);
    for (position, item) in ack.orchestrator_items.iter().enumerate() {
        let is_own = target_instance(item) == state.instance_id;
        let id = match is_own {
            true => format!("n:{:x}:{position:05}", state.commit_number),
            false => sent_message_id(&source, state.commit_number, position),
        };
        let mut message = message_document(item, id, next(), None)?;
        items::address(&mut message, item, state);
        if is_own {
            items::set_by_our_clock(&mut message, item, ack.clock_offset_ms, now);
        }
        spill.message(&mut message, layout.item_bytes_max);
        match is_own {
            true => messages.push(Message { incarnation: inc.clone(), ..message }),
            false => outgoing.push(message),
        }
    }
    Ok(Scheduled { activities, messages, outgoing, cancelled })
}

/// Marks cancelled activities in bundles that are not unpacked yet. They need no
/// tombstone.
fn edit_bundles(bundles: &[Versioned<Bundle>], cancelled: &mut HashSet<String>) -> Vec<Versioned<Bundle>> {
    let mut edited = Vec::new();
    for bundle in bundles {
        let ids = bundle.value.activities.iter().map(|activity| &activity.id);
        let found: Vec<String> = ids.filter(|id| cancelled.remove(*id)).cloned().collect();
        if !found.is_empty() {
            let mut bundle = bundle.clone();
            bundle.value.skip.extend(found);
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
