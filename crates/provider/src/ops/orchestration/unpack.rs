//! Unpacks bundles: creates the activities, the messages and the tombstones of cancelled
//! activities that a bundle lists. Each batch creates documents and removes them from the
//! bundle. So no document is created twice or lost, even if several processes unpack a
//! bundle, or a process ends before it has unpacked the whole bundle. For the same reason a step
//! whose outcome is unknown needs no further care: the bundle is read again, and shows what is
//! left to do.

use std::collections::HashSet;
use std::time::Duration;

use perihelion_client::{Batch, Error, Etag};
use tokio::time::Instant;

use crate::documents::stamp::Stamp;
use crate::documents::{Activity, Bundle, Message, Versioned};
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::plan::tombstone;
use crate::process::hints::{ActivityRead, Hints};
use crate::store::{Store, batch_without_content, retry_until, without_content};

/// The most documents of one step: a batch holds 100 operations, one of them writes the
/// bundle, and one is spare.
const STEP_DOCUMENTS_MAX: usize = 98;

/// The most bytes of the documents of one step. The first document may be larger. The batch
/// also contains the remaining bundle.
const STEP_BYTES_MAX: usize = 700_000;

/// The estimated size of a cancelled activity's tombstone, with an instance id of the greatest
/// length.
const TOMBSTONE_BYTES: usize = 2048 + 128;

/// The most steps of a bundle, including steps that fail because another process was faster.
const STEPS_MAX: usize = 10_000;

/// How long one step is retried after transient failures. The runtime waits for the unpacking after
/// a commit, and the reconciler repeats it later.
const STEP_RETRIED_FOR: Duration = Duration::from_secs(5);

/// One step: the documents to create, and the bundle without these documents.
struct Step {
    activities: Vec<Activity>,
    messages: Vec<Message>,
    /// Ids of activities that get a tombstone.
    cancelled: Vec<String>,
    remaining_bundle: Bundle,
}

/// What a step has done.
enum Progress {
    /// The bundle is empty, or does not exist.
    Finished,
    /// The bundle is not empty yet. Holds the bundle as the step wrote it; `None` if the next step
    /// has to read the bundle.
    Remaining(Option<Box<Versioned<Bundle>>>),
}

/// Unpacks one bundle, and adds hints about the documents that it creates. Does nothing if the
/// bundle does not exist. Each step is retried for [`STEP_RETRIED_FOR`].
pub(crate) async fn run(core: &Core, instance: &str, id: &str) -> Result<(), Failure> {
    let mut written_bundle = None;
    for _ in 0..STEPS_MAX {
        // Only the first attempt begins with the bundle that the step before wrote.
        let attempt = || {
            let known = written_bundle.take();
            async move { run_step(core, instance, id, known).await }
        };
        match retry_until(Instant::now() + STEP_RETRIED_FOR, attempt).await? {
            Progress::Finished => return Ok(()),
            Progress::Remaining(bundle) => written_bundle = bundle,
        }
    }
    Err(Failure::Contended(format!(
        "cannot unpack bundle {id} of {instance}: it is not empty after {STEPS_MAX} steps"
    )))
}

/// One step. `known` is the stored bundle; if it is `None`, the bundle is read.
async fn run_step(
    core: &Core,
    instance: &str,
    id: &str,
    known: Option<Box<Versioned<Bundle>>>,
) -> Result<Progress, Failure> {
    let Core { store, clock, hints, poller, .. } = core;
    let bundle = match known {
        Some(bundle) => *bundle,
        None => match store.find::<Bundle>(instance, id).await? {
            Some(bundle) => bundle,
            None => return Ok(Progress::Finished),
        },
    };
    let Versioned { value, etag } = bundle;
    let step = next_step(value);
    let read = hints.activities.begin_read();
    match store.container.batch(as_batch(instance, &step, &etag)?).await {
        Ok(results) => {
            let etag_of = |index: usize| results.get(index)?.etag().cloned();
            add_hints(hints, clock.now(), &read, step.activities, step.messages, etag_of);
            if step.remaining_bundle.is_empty() {
                return Ok(Progress::Finished);
            }
            let written = etag_of(0).map(|etag| Box::new(Versioned { value: step.remaining_bundle, etag }));
            Ok(Progress::Remaining(written))
        }
        // Another process has changed or deleted the bundle: the next step reads it again.
        Err(error) if error.is_precondition_failed() || error.is_document_not_found() => {
            Ok(Progress::Remaining(None))
        }
        // A document with the id of a new document exists: it was created before, or it
        // is the tombstone of a cancelled activity.
        Err(error) if error.is_conflict() => {
            skip_existing(store, instance, &etag, step, &error).await?;
            Ok(Progress::Remaining(None))
        }
        Err(error) => {
            // If the batch was applied, there are no hints about its documents, and a poll has to
            // find them.
            poller.poll_soon();
            Err(error.into())
        }
    }
}

/// Takes as many documents out of the bundle as one batch can create. Activities that the
/// bundle lists in `skip`, because they were cancelled after the commit, are dropped.
fn next_step(mut bundle: Bundle) -> Step {
    let skip: HashSet<String> = bundle.skip.drain(..).collect();
    bundle.activities.retain(|activity| !skip.contains(&activity.id));
    let mut bytes = 0;
    let mut room = STEP_DOCUMENTS_MAX;
    // Reserves room for one more document. False if the document does not fit.
    let mut reserve = |document_bytes: usize| {
        let is_fitting = room > 0 && (bytes == 0 || bytes + document_bytes <= STEP_BYTES_MAX);
        if is_fitting {
            (bytes, room) = (bytes + document_bytes, room - 1);
        }
        is_fitting
    };
    let count = bundle.cancelled.iter().take_while(|_| reserve(TOMBSTONE_BYTES)).count();
    let cancelled = bundle.cancelled.drain(..count).collect();
    let count = bundle.activities.iter().take_while(|activity| reserve(activity.stored_bytes())).count();
    let activities = bundle.activities.drain(..count).collect();
    let count = bundle.messages.iter().take_while(|message| reserve(message.stored_bytes())).count();
    let messages = bundle.messages.drain(..count).collect();
    Step { activities, messages, cancelled, remaining_bundle: bundle }
}

/// The batch of a step. Operation 0 writes the remaining bundle, or deletes the bundle if it is
/// empty.
fn as_batch(instance: &str, step: &Step, etag: &Etag) -> Result<Batch, Error> {
    let mut batch = Batch::new(instance);
    if step.remaining_bundle.is_empty() {
        batch.delete_if_match(&step.remaining_bundle.id, etag)?;
    } else {
        batch.replace_if_match(&step.remaining_bundle.id, &step.remaining_bundle, etag)?;
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

/// Adds hints about created documents. `etag_of` returns the etag that an operation of the batch
/// wrote. Operation 0 wrote the bundle, and the next operations created the activities. `read` began
/// before the batch.
fn add_hints(
    hints: &Hints,
    now: Stamp,
    read: &ActivityRead<'_>,
    activities: Vec<Activity>,
    messages: Vec<Message>,
    etag_of: impl Fn(usize) -> Option<Etag>,
) {
    hints.activities.update_and_wake(|hints| {
        for (index, activity) in activities.into_iter().enumerate() {
            if let Some(etag) = etag_of(index + 1) {
                hints.offer_read(read.number(), (activity, etag));
            }
        }
    });
    hints.instances.update_and_wake(|hints| {
        for message in messages {
            hints.add_message(message, now);
        }
    });
}

/// Writes the bundle without the document that exists already. `error` has the index of that
/// document in the batch. The other documents of the step stay in the bundle.
async fn skip_existing(
    store: &Store,
    instance: &str,
    etag: &Etag,
    step: Step,
    error: &Error,
) -> Result<(), Failure> {
    let Step { mut activities, mut messages, cancelled, mut remaining_bundle } = step;
    // Without an index it is not known which document exists, and none may be dropped.
    let Some(position) = error.operation_index().and_then(|index| index.checked_sub(1)) else {
        return Err(Failure::Contended(format!(
            "cannot unpack bundle {} of {instance}: a document exists, and it is not known which",
            remaining_bundle.id
        )));
    };
    if position < activities.len() {
        activities.remove(position);
    } else if position - activities.len() < messages.len() {
        messages.remove(position - activities.len());
    }
    remaining_bundle.activities.splice(0..0, activities);
    remaining_bundle.messages.splice(0..0, messages);
    remaining_bundle.cancelled.splice(0..0, cancelled);
    match store.put(instance, &remaining_bundle.id, &remaining_bundle, etag, without_content()).await {
        Ok(_) => Ok(()),
        Err(Failure::Storage(error)) if error.is_precondition_failed() || error.is_document_not_found() => {
            Ok(())
        }
        Err(failure) => Err(failure),
    }
}
