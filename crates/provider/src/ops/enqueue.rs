//! `enqueue_for_orchestrator` creates a message, and `enqueue_for_worker` an activity, outside
//! a turn. The id of the document is chosen before the first attempt, and all attempts use it.
//! There is one exception: if the id of an activity is already taken, a new id is chosen once,
//! and the attempts start again with the new id.

use std::time::Duration;

use duroxide::providers::WorkItem;
use perihelion_client::Etag;
use tokio::time::Instant;

use crate::documents::Activity;
use crate::documents::dedup::enqueued_message_id;
use crate::documents::lock_token::nonce;
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::ops::payload;
use crate::ops::wait::with_outage_notice;
use crate::plan::{COMMIT_BYTES_MAX, activity_document, message_document, target_instance};
use crate::store::{RETRY_FOR, Store, retry_until, without_content};

/// Creates a message to an instance. With a `delay`, the message becomes visible after the
/// delay.
pub(crate) async fn for_orchestrator(
    core: &Core,
    item: &WorkItem,
    delay: Option<Duration>,
) -> Result<(), Failure> {
    let now = core.clock.stamp();
    let in_flight = core.sequencer.begin(target_instance(item));
    let mut message =
        message_document(item, enqueued_message_id(&in_flight.sender, in_flight.number), now, delay)?;
    message.low_water_mark = in_flight.low_water_mark;
    message.is_left_to_owner |= !core.membership.fetches_instances();
    let instance = message.instance_id.clone();
    let is_checked = matches!(item, WorkItem::StartOrchestration { .. }) && core.start_checks.is_due();
    let sent = payload::send_message(&core.store, message, now, Instant::now() + RETRY_FOR);
    let sent = with_outage_notice(&core.outage_notice, "a message to an instance", Box::pin(sent));
    let (sent, exists) = tokio::join!(sent, async { is_checked && exists(&core.store, &instance).await });
    let message = sent?;
    core.hints.instances.update_and_wake(|hints| match exists {
        // The instance exists, so its claim must read the state.
        true => drop(hints.add_due(&instance, message.visible_at)),
        false => hints.add_message(message, now),
    });
    Ok(())
}

/// Whether the instance has a state document. False if the read fails. If the instance exists although
/// the read has failed, the commit of the turn for the new message is refused, and a later claim reads
/// the state.
async fn exists(store: &Store, instance: &str) -> bool {
    let found = store.state(instance).await;
    found.is_ok_and(|found| found.is_some())
}

/// Creates an activity outside a turn. An activity that does not fit into one document is
/// refused.
pub(crate) async fn for_worker(core: &Core, item: &WorkItem) -> Result<(), Failure> {
    let now = core.clock.stamp();
    let mut activity = activity_document(item, now)?;
    if activity.stored_bytes() > COMMIT_BYTES_MAX {
        return Err(Failure::Refused(format!(
            "cannot enqueue activity {} of {}: its document would have {} bytes, and at most {COMMIT_BYTES_MAX} \
             are possible. Schedule it in an orchestration, which can store a larger input",
            activity.id,
            activity.instance_id,
            activity.stored_bytes(),
        )));
    }
    let until = Instant::now() + RETRY_FOR;
    let read = core.hints.activities.begin_read();
    let created = retry_until(until, || create_activity(&core.store, &activity));
    let mut created = with_outage_notice(&core.outage_notice, "an activity", Box::pin(created)).await?;
    if let Created::IdTaken = created {
        // The runtime never uses an id twice; other callers may.
        activity.id = format!("{}:{}", activity.id, nonce());
        created = Box::pin(retry_until(until, || create_activity(&core.store, &activity))).await?;
    }
    match created {
        Created::Now(etag) => {
            core.hints.activities.update_and_wake(|hints| hints.offer_read(read.number(), (activity, etag)));
        }
        // The activity cannot be locked without its etag. A poll finds it.
        Created::Before | Created::IdTaken => core.poller.poll_soon(),
    }
    Ok(())
}

/// The outcome of an attempt to create an activity.
enum Created {
    /// This attempt created the activity.
    Now(Etag),
    /// An earlier attempt created the activity, and its answer was lost. A worker may have taken the
    /// activity by now.
    Before,
    /// A document with its id exists: another activity, or the tombstone of a cancelled activity.
    IdTaken,
}

async fn create_activity(store: &Store, activity: &Activity) -> Result<Created, Failure> {
    let (instance, id) = (activity.instance_id.as_str(), activity.id.as_str());
    let options = without_content().with_witness(id, "/enq", activity.enqueued_at.0);
    match store.container.create_with(instance, activity, &options).await {
        Ok(written) => Ok(Created::Now(written.etag()?.clone())),
        Err(error) if error.is_conflict() => {
            let found = store.find::<serde_json::Value>(instance, id).await?;
            let is_ours = |found: &serde_json::Value| found["enq"] == activity.enqueued_at.0;
            Ok(match found {
                Some(found) if is_ours(&found.value) => Created::Before,
                Some(_) => Created::IdTaken,
                // The document with this id was deleted between the two requests: a worker has
                // completed its activity. The next attempt creates our activity. If the deleted
                // document was our activity, it is created, and run, a second time.
                None => return Err(Failure::Contended(format!("{id} of {instance} was just completed"))),
            })
        }
        Err(error) => Err(error.into()),
    }
}
