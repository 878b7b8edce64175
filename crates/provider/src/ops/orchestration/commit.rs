//! Commits a plan as one batch. The first operation replaces the state under its etag, or
//! creates the state. The nonce of the commit is stored in the state: it is the witness that
//! shows whether the commit was applied.

use std::time::Duration;

use perihelion_client::{Batch, Error, Etag, Patch};
use tokio::time::Instant;

use crate::documents::{Activity, DocumentType, STATE_ID};
use crate::failure::Failure;
use crate::ops::orchestration::direct_dispatch::DirectDispatch;
use crate::ops::orchestration::stage::Staged;
use crate::plan::{COMMIT_BYTES_MAX, PastWrite, TurnPlan};
use crate::store::{Store, batch_without_content};

/// The shortest timeout of a commit, even when the lock is about to expire.
const TIMEOUT_MIN: Duration = Duration::from_millis(200);

/// The outcome of a commit.
pub(crate) enum CommitOutcome {
    /// Applied.
    Committed(WrittenEtags),
    /// Another writer has changed the state, a bundle or the document of a past execution,
    /// or the reconciler has given up the staged documents.
    Stale,
    /// A message that the turn consumes no longer exists, or a document that the turn creates
    /// exists already.
    Refused(Error),
}

/// The etags that a commit wrote. They are unknown if the answer of the commit was lost.
#[derive(Debug, Default)]
pub(crate) struct WrittenEtags {
    pub(crate) state: Option<Etag>,
    /// Etags of the activities of the plan, in order.
    pub(crate) activities: Vec<Option<Etag>>,
}

/// The preconditions of a commit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommitPreconditions<'a> {
    /// The etag of the state; `None` if there is no document yet.
    pub(crate) etag: Option<&'a Etag>,
    /// The garbage record of the staged documents, if the plan stages any.
    pub(crate) staged: Option<&'a Staged>,
}

/// Commits a plan. Waits for the answer until `until`, but at least [`TIMEOUT_MIN`].
pub(crate) async fn commit(
    store: &Store,
    plan: &TurnPlan,
    dispatch: &DirectDispatch<'_>,
    preconditions: CommitPreconditions<'_>,
    until: Instant,
) -> Result<CommitOutcome, Failure> {
    let timeout = until.saturating_duration_since(Instant::now()).max(TIMEOUT_MIN);
    let activities = dispatch.with_lease_ends(&plan.activities);
    let batch = as_batch(plan, &activities, preconditions)?
        .with_options(batch_without_content().with_timeout(timeout));
    // Operation 0 writes the state. The operations after it create the activities.
    let (first_activity, last_activity) = (1, plan.activities.len());
    match store.container.batch(batch).await {
        Ok(results) => {
            let etag_of = |index: usize| results.get(index)?.etag().cloned();
            let activities = (first_activity..=last_activity).map(etag_of).collect();
            Ok(CommitOutcome::Committed(WrittenEtags { state: etag_of(0), activities }))
        }
        Err(error) if error.operation_index().is_none() => Err(error.into()),
        Err(error)
            if error.operation_index() == Some(0)
                && (is_changed_or_deleted(&error) || error.is_conflict()) =>
        {
            Ok(CommitOutcome::Stale)
        }
        Err(error) if error.is_precondition_failed() => Ok(CommitOutcome::Stale),
        // The operation after the activities deletes the garbage record of the staging. The
        // reconciler has deleted the record and the staged documents: they are staged again.
        Err(error)
            if preconditions.staged.is_some() && error.operation_index() == Some(last_activity + 1) =>
        {
            Ok(CommitOutcome::Stale)
        }
        Err(error) if is_changed_or_deleted(&error) || error.is_conflict() => {
            Ok(CommitOutcome::Refused(error))
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether an operation failed because its document does not exist or has another etag.
fn is_changed_or_deleted(error: &Error) -> bool {
    error.is_document_not_found() || error.is_precondition_failed()
}

/// The whole commit as one batch. `activities` are the activities of the plan, with the ends
/// of their leases.
pub(crate) fn as_batch(
    plan: &TurnPlan,
    activities: &[Activity],
    preconditions: CommitPreconditions<'_>,
) -> Result<Batch, Failure> {
    let mut batch = Batch::new(plan.state.instance_id.as_str());
    add_operations(&mut batch, plan, activities, preconditions)
        .map_err(|error| Failure::Refused(format!("the turn is too large: {error}")))?;
    debug_assert!(batch.bytes() <= COMMIT_BYTES_MAX, "the plan has {} bytes", batch.bytes());
    let nonce = plan.state.commit_nonce.as_str();
    Ok(batch.with_witness(STATE_ID, "/ack", nonce))
}

/// Adds the operations of a commit. `commit` relies on the positions of the first operations:
/// the state, then the activities, then the garbage record of the staging.
fn add_operations(
    batch: &mut Batch,
    plan: &TurnPlan,
    activities: &[Activity],
    preconditions: CommitPreconditions<'_>,
) -> Result<(), Error> {
    match preconditions.etag {
        Some(etag) => batch.replace_if_match(STATE_ID, &plan.state, etag)?,
        None => batch.create(&plan.state)?,
    };
    for activity in activities {
        batch.create(activity)?;
    }
    match preconditions.staged {
        Some(staged) => publish_staged(batch, plan, staged)?,
        None => create_unstaged(batch, plan)?,
    }
    for message in &plan.messages {
        batch.create(message)?;
    }
    match &plan.past {
        Some(PastWrite { document, etag: Some(etag) }) => {
            batch.replace_if_match(&document.id, document, etag)?
        }
        Some(PastWrite { document, etag: None }) => batch.create(document)?,
        None => batch,
    };
    for bundle in &plan.edited_bundles {
        let skip = Patch::new().set("/skip", &bundle.value.skip)?;
        batch.patch_if_match(&bundle.value.id, &skip, &bundle.etag)?;
    }
    for cancelled in &plan.cancelled {
        batch.upsert(cancelled)?;
    }
    for message in &plan.consumed {
        batch.delete(message)?;
    }
    if let Some(garbage) = &plan.garbage {
        batch.create(garbage)?;
    }
    Ok(())
}

/// Creates the chunks, parts, bundles and outboxes of a turn that stages none of them.
fn create_unstaged(batch: &mut Batch, plan: &TurnPlan) -> Result<(), Error> {
    for chunk in &plan.chunks {
        batch.create(chunk)?;
    }
    for part in &plan.parts {
        batch.create(part)?;
    }
    for bundle in &plan.bundles {
        batch.create(bundle)?;
    }
    for outbox in &plan.outboxes {
        batch.create(outbox)?;
    }
    Ok(())
}

/// Makes staged documents visible: deletes the garbage record of the staging, and gives bundles
/// and outboxes their type. The new state refers to the chunks and parts.
fn publish_staged(batch: &mut Batch, plan: &TurnPlan, staged: &Staged) -> Result<(), Error> {
    batch.delete_if_match(&staged.id, &staged.etag)?;
    for bundle in &plan.bundles {
        batch.patch(&bundle.id, &Patch::new().set("/type", DocumentType::Bundle)?)?;
    }
    for outbox in &plan.outboxes {
        batch.patch(&outbox.id, &Patch::new().set("/type", DocumentType::Outbox)?)?;
    }
    Ok(())
}
