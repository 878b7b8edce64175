//! Commits a plan, as one batch or as one distributed transaction. The first operation replaces
//! the state under its etag, or creates the state. The nonce of the commit is stored in the
//! state: it is the witness that shows whether the commit was applied.
//!
//! A batch puts messages to other instances into an outbox. A transaction (`transaction`) creates
//! them in the partitions of their instances. Everything else is the same (`operations`). Both are
//! conditional on the same etag, so of several attempts of one commit at most one is applied,
//! whatever their forms are.

mod operations;
pub(crate) mod transaction;

use std::time::Duration;

use perihelion_client::{Batch, Error, Etag};
use tokio::time::Instant;

use self::operations::{Operations, StaleIfMissing, add_operations};
use crate::documents::{Activity, STATE_ID};
use crate::failure::Failure;
use crate::ops::orchestration::direct_dispatch::DirectDispatch;
use crate::ops::orchestration::stage::Staged;
use crate::plan::{COMMIT_BYTES_MAX, TurnPlan};
use crate::store::{Store, batch_without_content};

/// The shortest timeout of a commit, even when the lock is about to expire.
const TIMEOUT_MIN: Duration = Duration::from_millis(200);

/// The outcome of a commit.
pub(crate) enum CommitOutcome {
    /// Applied.
    Committed(WrittenEtags),
    /// The commit came too late. One of these has happened before:
    ///
    /// - Another writer has changed the state.
    /// - Another writer has changed or deleted a bundle, or the document of a past execution.
    /// - The reconciler has given up the staged documents.
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
    /// The garbage record of the staged documents, if the plan stages any: the record by which the
    /// reconciler would delete them. The commit deletes the record under its etag.
    pub(crate) staged: Option<&'a Staged>,
}

/// Commits a plan as a batch. Waits for the answer until `until`, but at least [`TIMEOUT_MIN`].
pub(crate) async fn commit(
    store: &Store,
    plan: &TurnPlan,
    dispatch: &DirectDispatch<'_>,
    preconditions: CommitPreconditions<'_>,
    until: Instant,
) -> Result<CommitOutcome, Failure> {
    let activities = dispatch.with_lease_ends(&plan.activities);
    let (batch, stale_if_missing) = as_batch(plan, &activities, preconditions)?;
    let batch = batch.with_options(batch_without_content().with_timeout(timeout(until)));
    match store.container.batch(batch).await {
        Ok(results) => {
            let etag_of = |index: usize| results.get(index)?.etag().cloned();
            Ok(CommitOutcome::Committed(written_etags(plan, etag_of)))
        }
        Err(error) => judge_refusal(&stale_if_missing, error),
    }
}

/// The time for an attempt that ends at `until`.
fn timeout(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now()).max(TIMEOUT_MIN)
}

/// The etags of a commit, by the index of the operation. Operation 0 writes the state. The
/// operations after it create the activities.
fn written_etags(plan: &TurnPlan, etag_of: impl Fn(usize) -> Option<Etag>) -> WrittenEtags {
    let activities = (1..=plan.activities.len()).map(&etag_of).collect();
    WrittenEtags { state: etag_of(0), activities }
}

/// Decides the outcome of a refused commit. The error names the first operation in the instance's
/// own partition that failed. A document that does not exist any more makes the turn permanently
/// impossible only if it is a message that the turn consumes.
fn judge_refusal(stale_if_missing: &StaleIfMissing, error: Error) -> Result<CommitOutcome, Failure> {
    let Some(index) = error.operation_index() else { return Err(error.into()) };
    match error {
        error if index == 0 && (is_changed_or_deleted(&error) || error.is_conflict()) => {
            Ok(CommitOutcome::Stale)
        }
        error if error.is_precondition_failed() => Ok(CommitOutcome::Stale),
        // The reconciler has deleted the garbage record of the staging and the staged documents, a
        // bundle was unpacked, or a past execution was pruned: the turn is planned again.
        error if stale_if_missing.contains(index) && error.is_document_not_found() => {
            Ok(CommitOutcome::Stale)
        }
        error if is_changed_or_deleted(&error) || error.is_conflict() => Ok(CommitOutcome::Refused(error)),
        error => Err(error.into()),
    }
}

/// Whether an operation failed because its document does not exist or has another etag.
fn is_changed_or_deleted(error: &Error) -> bool {
    error.is_document_not_found() || error.is_precondition_failed()
}

/// The whole commit as one batch, and the operations that make the commit stale if their document does
/// not exist. `activities` are the activities of the plan, with the ends of their leases.
pub(crate) fn as_batch(
    plan: &TurnPlan,
    activities: &[Activity],
    preconditions: CommitPreconditions<'_>,
) -> Result<(Batch, StaleIfMissing), Failure> {
    let mut batch = Batch::new(plan.state.instance_id.as_str());
    let stale_if_missing =
        add_operations(&mut Operations::Batch(&mut batch), plan, activities, preconditions)
            .map_err(|error| Failure::Refused(format!("the turn is too large: {error}")))?;
    debug_assert!(batch.bytes() <= COMMIT_BYTES_MAX, "the plan has {} bytes", batch.bytes());
    let nonce = plan.state.commit_nonce.as_str();
    Ok((batch.with_witness(STATE_ID, "/ack", nonce), stale_if_missing))
}
