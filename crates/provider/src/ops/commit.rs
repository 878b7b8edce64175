//! A plan becomes one batch: the state under its etag first, everything else
//! beside it. The nonce of the commit, in the state, is its witness.

use perihelion_client::{Batch, Error, Etag};

use crate::documents::STATE;
use crate::failure::Failure;
use crate::inner::Inner;
use crate::plan::TurnPlan;
use crate::store::quiet_operation;

/// A commit's bytes. The service takes 2 MiB; the rest is room for its own
/// accounting.
const BYTES_MAX: usize = 1_800_000;

/// What became of a commit.
pub(crate) enum Outcome {
    /// Applied. The versions of the activities, in order, unless the answer was
    /// lost.
    Committed(Vec<Option<Etag>>),
    /// The state has changed, or a bundle.
    Stale,
    /// A message of the turn is gone, or something it makes exists.
    Refused(Error),
}

pub(crate) async fn commit(inner: &Inner, plan: &TurnPlan, etag: &Etag) -> Result<Outcome, Failure> {
    let batch = as_batch(plan, etag)?;
    let (first, last) = (1, plan.activities.len());
    match inner.store.container.batch(batch).await {
        Ok(results) => {
            let versions = (first..=last).map(|index| results.get(index)?.etag().cloned());
            Ok(Outcome::Committed(versions.collect()))
        }
        Err(error) if error.operation_index().is_none() => Err(error.into()),
        Err(error) if error.operation_index() == Some(0) && is_gone(&error) => Ok(Outcome::Stale),
        Err(error) if error.is_precondition_failed() => Ok(Outcome::Stale),
        Err(error) if is_gone(&error) || error.is_conflict() => Ok(Outcome::Refused(error)),
        Err(error) => Err(error.into()),
    }
}

fn is_gone(error: &Error) -> bool {
    error.is_not_found() || error.is_precondition_failed()
}

fn as_batch(plan: &TurnPlan, etag: &Etag) -> Result<Batch, Failure> {
    let mut batch = Batch::new(plan.state.instance_id.as_str());
    fill(&mut batch, plan, etag)
        .map_err(|error| Failure::Refused(format!("the turn is too large: {error}")))?;
    if batch.bytes() > BYTES_MAX {
        return Err(Failure::Refused(format!(
            "the turn has {} bytes; one commit takes {BYTES_MAX}. Pass large values by reference",
            batch.bytes()
        )));
    }
    let nonce = plan.state.ack.as_str();
    Ok(batch.with_witness(STATE, "/ack", nonce).with_options(quiet_operation()))
}

fn fill(batch: &mut Batch, plan: &TurnPlan, etag: &Etag) -> Result<(), Error> {
    batch.replace_if_match(STATE, &plan.state, etag)?;
    for activity in &plan.activities {
        batch.create(activity)?;
    }
    for message in &plan.messages {
        batch.create(message)?;
    }
    for chunk in &plan.chunks {
        batch.create(chunk)?;
    }
    if let Some(past) = &plan.past {
        batch.upsert(past)?;
    }
    if let Some(bundle) = &plan.bundle {
        batch.create(bundle)?;
    }
    if let Some(outbox) = &plan.outbox {
        batch.create(outbox)?;
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
