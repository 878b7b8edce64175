//! Unpacks bundles: creates the activities, the messages and the tombstones of cancelled
//! activities that a bundle lists. Each batch creates documents and removes them from the
//! bundle. So no document is created twice or lost, even if several processes unpack a
//! bundle or one of them ends before it has finished.

use std::collections::HashSet;

use perihelion_client::{Batch, Error, Etag};

use crate::documents::{Activity, Bundle, Message, Versioned};
use crate::failure::Failure;
use crate::plan::tombstone;
use crate::process::hints::Hints;
use crate::store::{Store, batch_without_content};

/// The most documents of one step: a batch holds 100 operations, one of them writes the
/// bundle, and one is spare.
const STEP_MAX: usize = 98;

/// The most bytes of the documents of one step. The first document may be larger. The batch
/// also contains the rest of the bundle.
const STEP_BYTES_MAX: usize = 700_000;

/// The estimated size of a cancelled activity's tombstone, with an instance id of the greatest
/// length.
const TOMBSTONE_BYTES: usize = 2048 + 128;

/// The most steps of a bundle, including those that fail because another process was
/// faster.
const STEPS_MAX: usize = 10_000;

/// One step: the documents to create, and the bundle without them.
struct Step {
    activities: Vec<Activity>,
    messages: Vec<Message>,
    /// Ids of activities that get a tombstone.
    cancelled: Vec<String>,
    rest: Bundle,
}

/// Unpacks one bundle, and adds hints about what it creates. Does nothing if the bundle is
/// gone.
pub(crate) async fn run(store: &Store, hints: &Hints, instance: &str, id: &str) -> Result<(), Failure> {
    let mut known = None;
    for _ in 0..STEPS_MAX {
        let bundle = match known.take() {
            Some(bundle) => bundle,
            None => match store.find::<Bundle>(instance, id).await? {
                Some(bundle) => bundle,
                None => return Ok(()),
            },
        };
        let Versioned { value, etag } = bundle;
        let step = next_step(value);
        let batch = as_batch(instance, &step, &etag)?;
        match store.container.batch(batch).await {
            Ok(results) => {
                let etag_of = |index: usize| results.get(index)?.etag().cloned();
                add_hints(hints, step.activities, step.messages, etag_of);
                if step.rest.is_empty() {
                    return Ok(());
                }
                // The next step starts from the bundle that this one wrote.
                known = etag_of(0).map(|etag| Versioned { value: step.rest, etag });
            }
            // Another process changed or deleted the bundle: read it again.
            Err(error) if error.is_precondition_failed() || error.is_not_found() => {}
            // A document with that id exists: it was created before, or it is the tombstone
            // of a cancelled activity.
            Err(error) if error.is_conflict() => skip_existing(store, instance, &etag, step, &error).await?,
            Err(error) => return Err(error.into()),
        }
    }
    Err(Failure::Contended(format!(
        "cannot unpack bundle {id} of {instance}: it is not empty after {STEPS_MAX} steps"
    )))
}

/// Takes as many documents out of the bundle as one batch can create. Activities that were
/// cancelled since the commit are dropped.
fn next_step(mut bundle: Bundle) -> Step {
    let skip: HashSet<String> = bundle.skip.drain(..).collect();
    bundle.activities.retain(|activity| !skip.contains(&activity.id));
    let mut bytes = 0;
    let mut room = STEP_MAX;
    let mut fits = |size: usize| {
        let is_fitting = room > 0 && (bytes == 0 || bytes + size <= STEP_BYTES_MAX);
        if is_fitting {
            (bytes, room) = (bytes + size, room - 1);
        }
        is_fitting
    };
    let cut = bundle.cancelled.iter().take_while(|_| fits(TOMBSTONE_BYTES)).count();
    let cancelled = bundle.cancelled.drain(..cut).collect();
    let cut = bundle.activities.iter().take_while(|activity| fits(activity.stored_bytes())).count();
    let activities = bundle.activities.drain(..cut).collect();
    let cut = bundle.messages.iter().take_while(|message| fits(message.stored_bytes())).count();
    let messages = bundle.messages.drain(..cut).collect();
    Step { activities, messages, cancelled, rest: bundle }
}

/// The batch of a step. Operation 0 writes the rest of the bundle, or deletes the bundle if
/// nothing is left.
fn as_batch(instance: &str, step: &Step, etag: &Etag) -> Result<Batch, Error> {
    let mut batch = Batch::new(instance);
    if step.rest.is_empty() {
        batch.delete_if_match(&step.rest.id, etag)?;
    } else {
        batch.replace_if_match(&step.rest.id, &step.rest, etag)?;
    }
    for activity in &step.activities {
        batch.create(activity)?;
    }
    for message in &step.messages {
        batch.create(message)?;
    }
    for id in &step.cancelled {
        batch.upsert(&tombstone(instance, id.clone()))?;
    }
    Ok(batch.with_options(batch_without_content()))
}

/// Adds hints about created documents. `etag_of` gives the etag that an operation of the batch
/// wrote: operation 0 wrote the bundle, and the activities follow it.
fn add_hints(
    hints: &Hints,
    activities: Vec<Activity>,
    messages: Vec<Message>,
    etag_of: impl Fn(usize) -> Option<Etag>,
) {
    hints.activities.update_and_wake(|hints| {
        for (index, activity) in activities.into_iter().enumerate() {
            if let Some(etag) = etag_of(index + 1) {
                hints.offer((activity, etag));
            }
        }
    });
    hints.instances.update_and_wake(|hints| {
        for message in messages {
            hints.add_message(message);
        }
    });
}

/// Writes the bundle without the document that exists already. The other documents of the
/// step stay in the bundle.
async fn skip_existing(
    store: &Store,
    instance: &str,
    etag: &Etag,
    step: Step,
    error: &Error,
) -> Result<(), Failure> {
    let Step { mut activities, mut messages, cancelled, mut rest } = step;
    let position = error.operation_index().unwrap_or(0).saturating_sub(1);
    if position < activities.len() {
        activities.remove(position);
    } else if position - activities.len() < messages.len() {
        messages.remove(position - activities.len());
    }
    rest.activities.splice(0..0, activities);
    rest.messages.splice(0..0, messages);
    rest.cancelled.splice(0..0, cancelled);
    match store.put(instance, &rest.id, &rest, etag, crate::store::without_content()).await {
        Ok(_) => Ok(()),
        Err(Failure::Storage(error)) if error.is_precondition_failed() || error.is_not_found() => Ok(()),
        Err(failure) => Err(failure),
    }
}
