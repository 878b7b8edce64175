//! A commit as one distributed transaction: the operations of the batch without its outboxes, and
//! then one create for each message to another instance.
//!
//! When an answer is lost, the client sends the transaction again under its idempotency token and
//! gets the first answer. If that fails too, the outcome is unknown, as it can be for a batch.
//! The caller then tries again. The nonce in the state shows whether the first attempt was applied.

use perihelion_client::{
    AbortedTransaction, DistributedWriteTransaction, Error, ErrorKind, OperationOptions, Status,
    TransactionError,
};
use tokio::time::Instant;

use super::operations::{Operations, StaleIfMissing, add_operations};
use super::{CommitOutcome, CommitPreconditions, judge_refusal, timeout, written_etags};
use crate::failure::{Failure, is_access_refused};
use crate::ops::orchestration::direct_dispatch::DirectDispatch;
use crate::plan::TurnPlan;
use crate::store::Store;

/// The statuses of a request whose path the service does not know.
const PATH_UNKNOWN: [u16; 2] = [404, 405];

/// The status of a request body that is too large.
const TOO_LARGE: u16 = 413;

/// The status of a request that was throttled.
const THROTTLED: u16 = 429;

/// The sub-status of a transaction with too many operations, with status 400.
const TOO_MANY_OPERATIONS: u32 = 5407;

/// How often a throttled transaction is sent again. After that the commit is sent as a batch, which is
/// retried for longer.
const THROTTLE_RETRIES_MAX: u32 = 1;

/// The outcome of an attempt to commit by a transaction.
pub(crate) enum TransactionOutcome {
    /// The service has decided the transaction, with an outcome that a batch has too. If it is
    /// committed, the messages to other instances are delivered.
    Decided(CommitOutcome),
    /// The commit can only be a batch. Nothing was written.
    OnlyAsBatch(Obstacle),
}

/// Why a commit cannot be a transaction.
#[derive(Debug)]
pub(crate) enum Obstacle {
    /// The account has no transactions.
    Unsupported(Error),
    /// The transaction has too many operations or bytes.
    TooLarge(Error),
    /// The transaction was throttled as a whole: for example, the server has no room to remember
    /// more transactions.
    Throttled(Error),
    /// A message to another instance cannot be created, or the transaction was refused for
    /// another reason.
    Refused(Error),
}

/// Commits a plan as a transaction. Waits for the answer until `until`, as a batch does.
pub(crate) async fn commit(
    store: &Store,
    plan: &TurnPlan,
    dispatch: &DirectDispatch<'_>,
    preconditions: CommitPreconditions<'_>,
    until: Instant,
) -> Result<TransactionOutcome, Failure> {
    let options = OperationOptions::default()
        .with_timeout(timeout(until))
        .with_throttle_retries_max(THROTTLE_RETRIES_MAX);
    let mut transaction = store.client.write_transaction().with_options(options);
    let (own_operations, stale_if_missing) =
        match add_all(&mut transaction, store, plan, dispatch, preconditions) {
            Ok(added) => added,
            Err(error) => return Ok(TransactionOutcome::OnlyAsBatch(Obstacle::TooLarge(error))),
        };
    match transaction.commit().await {
        Ok(results) => {
            let etag_of = |index: usize| results.results().get(index)?.etag().cloned();
            Ok(TransactionOutcome::Decided(CommitOutcome::Committed(written_etags(plan, etag_of))))
        }
        Err(TransactionError::Aborted(aborted)) => judge_abort(&stale_if_missing, &aborted, own_operations),
        Err(TransactionError::OutcomeUnknown(unknown)) => Err(unknown.error().clone().into()),
        Err(TransactionError::Failed(error)) => judge_failure(error),
    }
}

/// Adds all operations. Returns the number of operations in the instance's own partition, and those
/// that make the commit stale if their document does not exist. The creates of messages to other
/// instances follow the operations in the own partition.
fn add_all(
    transaction: &mut DistributedWriteTransaction,
    store: &Store,
    plan: &TurnPlan,
    dispatch: &DirectDispatch<'_>,
    preconditions: CommitPreconditions<'_>,
) -> Result<(usize, StaleIfMissing), Error> {
    let activities = dispatch.with_lease_ends(&plan.activities);
    let (container, instance) = (&store.container, plan.state.instance_id.as_str());
    let mut operations = Operations::Transaction { transaction, container, instance };
    let stale_if_missing = add_operations(&mut operations, plan, &activities, preconditions)?;
    let own_operations = transaction.len();
    for message in plan.outboxes.iter().flat_map(|outbox| &outbox.messages) {
        transaction.create(container, message.instance_id.as_str(), message)?;
    }
    Ok((own_operations, stale_if_missing))
}

/// Judges an aborted transaction, which has written nothing. If the state has changed, the commit
/// is stale, as a batch would be. After all other refusals the batch is sent, for two reasons.
/// First, a batch processes the state first, while a service may name any of the operations that
/// failed in a transaction. Second, the outbox of a batch delivers the messages: a message that
/// exists already counts as delivered, and a message that its partition refuses does not block its
/// sender.
fn judge_abort(
    stale_if_missing: &StaleIfMissing,
    aborted: &AbortedTransaction,
    own_operations: usize,
) -> Result<TransactionOutcome, Failure> {
    let error = aborted.error().clone();
    if aborted.is_retriable() || error.is_transient() {
        return Err(Failure::Contended(format!("the transaction of a turn was aborted: {error}")));
    }
    let is_own = error.operation_index().is_some_and(|index| index < own_operations);
    if is_own && matches!(judge_refusal(stale_if_missing, error.clone()), Ok(CommitOutcome::Stale)) {
        return Ok(TransactionOutcome::Decided(CommitOutcome::Stale));
    }
    Ok(TransactionOutcome::OnlyAsBatch(Obstacle::Refused(error)))
}

/// Judges a transaction that the service has not processed. After a permanent refusal the batch
/// is sent: the service may accept the batch, or its refusal of the batch says what is wrong.
fn judge_failure(error: Error) -> Result<TransactionOutcome, Failure> {
    let status = error.status();
    if is_unsupported(&error) {
        return Ok(TransactionOutcome::OnlyAsBatch(Obstacle::Unsupported(error)));
    }
    let is_refused_by_size =
        status.is_some_and(|status| status.code == TOO_LARGE || status.sub == TOO_MANY_OPERATIONS);
    // The client checks the size before it sends anything.
    if is_refused_by_size || error.kind() == ErrorKind::Input {
        return Ok(TransactionOutcome::OnlyAsBatch(Obstacle::TooLarge(error)));
    }
    if status.is_some_and(|status| status.code == THROTTLED) {
        return Ok(TransactionOutcome::OnlyAsBatch(Obstacle::Throttled(error)));
    }
    let failure = Failure::from(error.clone());
    match failure.is_transient() {
        true => Err(failure),
        false => Ok(TransactionOutcome::OnlyAsBatch(Obstacle::Refused(error))),
    }
}

/// Whether an error of a whole transaction shows that the account has no transactions: the account
/// says so, does not know the path, or does not let this credential use transactions. If the
/// credential is wrong, the batch is refused too.
pub(crate) fn is_unsupported(error: &Error) -> bool {
    let is_path_unknown = |status: Status| status.sub == 0 && PATH_UNKNOWN.contains(&status.code);
    error.is_unsupported()
        || (error.operation_index().is_none()
            && (error.status().is_some_and(is_path_unknown) || is_access_refused(error)))
}
