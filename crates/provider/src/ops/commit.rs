//! A plan becomes one batch: the state under its etag first, everything else
//! beside it. The nonce of the commit, in the state, is its witness.

use std::time::Duration;

use perihelion_client::{Batch, Error, Etag, Patch};
use tokio::time::Instant;

use crate::documents::{Activity, STATE, kind};
use crate::failure::Failure;
use crate::inner::Inner;
use crate::ops::handover::Handover;
use crate::plan::TurnPlan;
use crate::store::quiet_operation;

/// A commit's bytes. The service takes 2 MiB; the rest is room for its own
/// accounting.
const BYTES_MAX: usize = 1_800_000;

/// A commit that is begun gets this long, however late it is.
const TIMEOUT_MIN: Duration = Duration::from_millis(200);

/// What became of a commit.
pub(crate) enum Outcome {
    /// Applied.
    Committed(Versions),
    /// The state has changed, or a bundle.
    Stale,
    /// A message of the turn is gone, or something it makes exists.
    Refused(Error),
}

/// The versions that a commit wrote, as far as its answer told.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    pub(crate) state: Option<Etag>,
    /// Of the activities, in order.
    pub(crate) activities: Vec<Option<Etag>>,
}

/// Commits a plan, or not: by `until` it is over.
pub(crate) async fn commit(
    inner: &Inner,
    plan: &TurnPlan,
    handover: &Handover<'_>,
    etag: Option<&Etag>,
    until: Instant,
) -> Result<Outcome, Failure> {
    let timeout = until.saturating_duration_since(Instant::now()).max(TIMEOUT_MIN);
    let activities = handover.stamped(&plan.activities);
    let batch = as_batch(plan, &activities, etag)?.with_options(quiet_operation().with_timeout(timeout));
    let (first, last) = (1, plan.activities.len());
    match inner.store.container.batch(batch).await {
        Ok(results) => {
            let version = |index: usize| results.get(index)?.etag().cloned();
            let activities = (first..=last).map(version).collect();
            Ok(Outcome::Committed(Versions { state: version(0), activities }))
        }
        Err(error) if error.operation_index().is_none() => Err(error.into()),
        Err(error) if error.operation_index() == Some(0) && (is_gone(&error) || error.is_conflict()) => {
            Ok(Outcome::Stale)
        }
        Err(error) if error.is_precondition_failed() => Ok(Outcome::Stale),
        Err(error) if is_gone(&error) || error.is_conflict() => Ok(Outcome::Refused(error)),
        Err(error) => Err(error.into()),
    }
}

fn is_gone(error: &Error) -> bool {
    error.is_not_found() || error.is_precondition_failed()
}

/// Whether a plan is too large for one batch as it is.
pub(crate) fn is_too_large(plan: &TurnPlan, etag: Option<&Etag>) -> bool {
    let chunks = plan.chunks.iter().map(|chunk| chunk.event_data.len());
    let bundles = plan.bundles.iter().flat_map(|bundle| {
        let messages = bundle.messages.iter().map(|message| message.item.len());
        bundle.activities.iter().map(|activity| activity.item.len()).chain(messages)
    });
    let outboxes = plan.outboxes.iter().flat_map(|outbox| &outbox.messages).map(|message| message.item.len());
    let least: usize = chunks.chain(bundles).chain(outboxes).sum();
    // Below that nothing can make it too large, escapes included.
    least > BYTES_MAX / 4 && as_batch(plan, &plan.activities, etag).is_err()
}

fn as_batch(plan: &TurnPlan, activities: &[Activity], etag: Option<&Etag>) -> Result<Batch, Failure> {
    let mut batch = Batch::new(plan.state.instance_id.as_str());
    fill(&mut batch, plan, activities, etag)
        .map_err(|error| Failure::Refused(format!("the turn is too large: {error}")))?;
    if batch.bytes() > BYTES_MAX {
        return Err(Failure::Refused(format!(
            "the turn has {} bytes; one commit takes {BYTES_MAX}. Pass large values by reference",
            batch.bytes()
        )));
    }
    let nonce = plan.state.ack.as_str();
    Ok(batch.with_witness(STATE, "/ack", nonce))
}

fn fill(
    batch: &mut Batch,
    plan: &TurnPlan,
    activities: &[Activity],
    etag: Option<&Etag>,
) -> Result<(), Error> {
    match etag {
        Some(etag) => batch.replace_if_match(STATE, &plan.state, etag)?,
        None => batch.create(&plan.state)?,
    };
    for activity in activities {
        batch.create(activity)?;
    }
    for message in &plan.messages {
        batch.create(message)?;
    }
    if let Some(past) = &plan.past {
        batch.upsert(past)?;
    }
    if plan.is_staged {
        publish(batch, plan)?;
    } else {
        for chunk in &plan.chunks {
            batch.create(chunk)?;
        }
        for bundle in &plan.bundles {
            batch.create(bundle)?;
        }
        for outbox in &plan.outboxes {
            batch.create(outbox)?;
        }
    }
    for bundle in &plan.edited_bundles {
        batch.replace_if_match(&bundle.value.id, &bundle.value, &bundle.etag)?;
    }
    for cancelled in &plan.cancelled {
        batch.upsert(cancelled)?;
    }
    for message in &plan.consumed {
        batch.delete(message)?;
    }
    Ok(())
}

/// What was staged stays, and is what it was meant to be.
fn publish(batch: &mut Batch, plan: &TurnPlan) -> Result<(), Error> {
    let stays = || Patch::new().remove("/ttl");
    for chunk in &plan.chunks {
        batch.patch(&chunk.id, &stays()?)?;
    }
    for bundle in &plan.bundles {
        batch.patch(&bundle.id, &stays()?.set("/type", kind::BUNDLE)?)?;
    }
    for outbox in &plan.outboxes {
        batch.patch(&outbox.id, &stays()?.set("/type", kind::OUTBOX)?)?;
    }
    Ok(())
}
