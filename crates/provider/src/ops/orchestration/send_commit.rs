//! `CommitSender` sends a commit until it has an outcome, as a batch or as a distributed
//! transaction.
//!
//! Invariant: every attempt is conditional on the etag of the state, so at most one attempt is
//! applied. A transaction may be followed by a batch even if the outcome of the transaction is
//! unknown. If the batch then finds that the state has changed, the nonce in the state tells whether
//! one of the attempts was applied. It does not matter which attempt was applied: both write the same
//! messages under the same ids, and delivering an outbox that a transaction has delivered has no
//! effect.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::documents::lock_token::LockToken;
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::ops::orchestration::commit::transaction::{self, Obstacle, TransactionOutcome};
use crate::ops::orchestration::commit::{CommitOutcome, CommitPreconditions, commit};
use crate::ops::orchestration::direct_dispatch::DirectDispatch;
use crate::ops::orchestration::held_lock::{self, Renewal};
use crate::ops::orchestration::stage::Staged;
use crate::plan::TurnPlan;
use crate::process::lock_table::LockedInstance;
use crate::store::retry_until;

/// The longest lease of a lock that an ack renews itself.
const LEASE_MAX: Duration = Duration::from_secs(120);

/// The most attempts of one commit as a transaction. After that the commit is sent as a batch,
/// because batches may work while transactions fail.
const TRANSACTIONS_MAX: u32 = 3;

/// How long one attempt as a transaction may take. The next attempt is conditional on the same etag, so
/// it does not matter whether the transaction is applied after all.
const TRANSACTION_TIMEOUT: Duration = Duration::from_secs(3);

/// How a commit is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommitForm {
    /// One batch. Messages to other instances are in an outbox, and are delivered afterwards.
    Batch,
    /// One distributed transaction, which delivers the messages to other instances.
    Transaction,
}

/// Sends one commit.
pub(crate) struct CommitSender<'a> {
    core: &'a Core,
    token: &'a LockToken,
    plan: &'a TurnPlan,
    dispatch: &'a DirectDispatch<'a>,
    staged: Option<&'a Staged>,
    /// How many more attempts may be transactions.
    transactions_left: AtomicU32,
}

impl<'a> CommitSender<'a> {
    pub(crate) fn new(
        core: &'a Core,
        token: &'a LockToken,
        plan: &'a TurnPlan,
        dispatch: &'a DirectDispatch<'a>,
        staged: Option<&'a Staged>,
    ) -> Self {
        let is_transaction_wanted = core.transactions.are_used() && !plan.outboxes.is_empty();
        let fits = is_transaction_wanted && plan.fits_transaction();
        if is_transaction_wanted && !fits {
            let instance = plan.state.instance_id.as_str();
            core.transactions.record_too_large(instance, &"it has too many or too large messages");
        }
        let transactions_left = AtomicU32::new(if fits { TRANSACTIONS_MAX } else { 0 });
        CommitSender { core, token, plan, dispatch, staged, transactions_left }
    }

    /// The form of the next attempt. When the commit has an outcome, the form of the attempt that
    /// had this outcome.
    pub(crate) fn form(&self) -> CommitForm {
        // Only an attempt that fails as a transaction changes the count: see `attempt`.
        match self.transactions_left.load(Ordering::Relaxed) {
            0 => CommitForm::Batch,
            _ => CommitForm::Transaction,
        }
    }

    /// Sends the commit until it has an outcome. Transient failures are retried until `until`;
    /// between attempts the lock is renewed when a third of it is left. No renewal runs beside an
    /// attempt, because it would change the etag that the commit is conditional on.
    pub(crate) async fn send(
        &mut self,
        held: &mut LockedInstance,
        until: Instant,
    ) -> Result<CommitOutcome, Failure> {
        loop {
            // A commit after a long staging gets most of a lease to finish in.
            let is_spent = held.until.saturating_duration_since(Instant::now()) < held.lease * 2 / 3;
            if self.staged.is_some() && is_spent && self.renew_and_check_stale(held).await? {
                return Ok(CommitOutcome::Stale);
            }
            let preconditions = CommitPreconditions { etag: held.etag.as_ref(), staged: self.staged };
            // An attempt ends before the lock, so that the lock can be renewed after it.
            let attempt_until = held.until.checked_sub(held.lease / 6).unwrap_or(held.until);
            let attempt = || self.attempt(preconditions, attempt_until);
            match retry_until(held_lock::renewal_due(held), attempt).await {
                Err(failure) if failure.is_transient() && Instant::now() < until => {
                    tracing::debug!(instance = self.token.instance, ?failure, "the commit is tried again");
                    // After an attempt that took the whole time, the next attempt gets twice as
                    // much time.
                    if attempt_until <= Instant::now() {
                        held.lease = (held.lease * 2).min(LEASE_MAX).max(held.lease);
                    }
                    if self.renew_and_check_stale(held).await? {
                        return Ok(CommitOutcome::Stale);
                    }
                }
                outcome => return outcome,
            }
        }
    }

    /// One attempt. If the answer to a transaction shows that only a batch is possible, the same
    /// attempt sends the batch at once.
    async fn attempt(
        &self,
        preconditions: CommitPreconditions<'_>,
        until: Instant,
    ) -> Result<CommitOutcome, Failure> {
        let (store, plan, dispatch) = (&self.core.store, self.plan, self.dispatch);
        if self.form() == CommitForm::Transaction {
            let until = until.min(Instant::now() + TRANSACTION_TIMEOUT);
            let sent = transaction::commit(store, plan, dispatch, preconditions, until);
            match Box::pin(sent).await {
                Ok(TransactionOutcome::Decided(outcome)) => return Ok(outcome),
                Ok(TransactionOutcome::OnlyAsBatch(obstacle)) => {
                    self.record(obstacle);
                    self.transactions_left.store(0, Ordering::Relaxed);
                }
                Err(failure) => {
                    if self.transactions_left.fetch_sub(1, Ordering::Relaxed) == 1 {
                        self.core.transactions.record_failing(&format!("{failure:?}"));
                    }
                    return Err(failure);
                }
            }
        }
        commit(store, plan, dispatch, preconditions, until).await
    }

    /// Remembers and logs why the commit is not a transaction.
    fn record(&self, obstacle: Obstacle) {
        let (transactions, instance) = (&self.core.transactions, self.token.instance.as_str());
        match obstacle {
            Obstacle::Unsupported(error) => transactions.record_refusal(&error),
            Obstacle::Throttled(error) => transactions.record_failing(&error),
            Obstacle::TooLarge(error) => transactions.record_too_large(instance, &error),
            Obstacle::Refused(error) => {
                tracing::debug!(instance, %error, "a turn goes through the outbox");
            }
        }
    }

    /// Renews the lock. Returns true if another writer has changed the state: then the commit would be
    /// stale.
    async fn renew_and_check_stale(&self, held: &mut LockedInstance) -> Result<bool, Failure> {
        let renewed = Box::pin(held_lock::renew(self.core, self.token, held, held.lease)).await?;
        Ok(renewed == Renewal::Stale)
    }
}
