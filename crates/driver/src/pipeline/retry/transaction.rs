//! The retry rules of distributed transactions. An ending becomes a [`TransactionFinding`]
//! (`findings`), and each finding has one rule in [`evaluate_transaction`].
//!
//! Every attempt of a transaction has an idempotency token. If the service has already decided the
//! transaction with this token, it repeats its answer. So a transaction may always be sent again
//! with the same token. A transaction goes only to the account's write region, so no rule fails
//! over to another region.
//!
//! | an attempt ends with | the transaction | bounds |
//! |---|---|---|
//! | 429 without results | retries after the wait that the service asks for, within the attempt (`throttle`) | as for single operations |
//! | 408, 449/5352, without `isRetriable: true` | retries after the wait that the service asks for, or else 1 s | 10 retries |
//! | 500/5411, 5412, 5413, without `isRetriable: true` | retries, 100 ms doubling to 5 s | 9 retries |
//! | 452 with `isRetriable: true` | retries with a **new** token, 1 s doubling, at least the wait that the service asks for; in a replay the first time at once | 10 retries and 30 s, for this row and the next one together |
//! | 207 or another status from 400 to 599, with `isRetriable: true` | retries with the same token, with the same waits | |
//! | 403/3, 403/1008 | reads the account again and goes to the write region that it names | as for single operations: 10 retries, 5 s of waiting |
//! | 503, 410, another 5xx, without `isRetriable: true`; no connection; no answer | reads the account again, waits and retries in the write region | as failovers of single operations: 3 |
//! | an open connection that did not take the request | retries at once | 1 retry, then as after no connection |
//! | 2xx without exactly one result for each operation; for a write also 2xx (except 207) with a failed operation, and 452 with `isRetriable: true` and no failed operation | retries at once | 1 retry |
//! | anything else, such as a failure without `isRetriable: true` whose results all succeeded | ends | |
//!
//! A write whose outcome is unknown at the end is ambiguous. The outcome is unknown if an attempt
//! may have been applied and no later answer decides the outcome. Two kinds of answer decide it:
//! 2xx with all results, and a refusal with all results. No ending marks the endpoint as failed,
//! because the coordinator of transactions can fail while the endpoint still serves other
//! operations.
//!
//! The outcome of a replay is unknown from the start, because an earlier run may have been
//! applied. A 452 with `isRetriable: true` does not decide the outcome: the earlier run may have
//! gone on with the next token.

mod findings;
#[cfg(test)]
mod tests;

use std::time::Duration;

use perihelion_wire::status::Status;
use perihelion_wire::transport::Failure;

use self::findings::{TransactionFinding, WriteOutcome, effects_of, finding_for, outcome_of};
use super::backoff::Backoff;
use super::effects::Effects;
use super::evaluate::{UNAVAILABLE_BACKOFF, UNSENT_RETRIES_MAX};
use super::rules::{Budget, FORBIDDEN_POLICY};
use super::verdict::{Budgets, Limits, Verdict};
use crate::diagnostics::Context;
use crate::routing::resolve::RouteTo;

/// Retries while the coordinator is stuck, or while another request with the same token runs.
pub(super) const COORDINATOR_RETRIES_MAX: u32 = 10;
/// The wait before a retry while the coordinator is busy, if the service asks for none.
const COORDINATOR_WAIT: Duration = Duration::from_secs(1);
/// The longest wait before a retry while the coordinator is busy. If the service asks for a longer
/// wait, the retries end, because most callers have given up by then.
const COORDINATOR_WAIT_MAX: Duration = Duration::from_secs(30);

/// Retries after a failure of the infrastructure of transactions, as in the published SDKs.
pub(super) const INFRASTRUCTURE_RETRIES_MAX: u32 = 9;
const INFRASTRUCTURE_BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(5) };

/// Retries when the service says that the transaction may be repeated, as in the published SDKs.
pub(super) const RETRIABLE_RETRIES_MAX: u32 = 10;
/// The longest sum of the waits when the service says that the transaction may be repeated.
const RETRIABLE_WAIT_MAX: Duration = Duration::from_secs(30);
const RETRIABLE_BACKOFF: Backoff =
    Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(32) };

/// Retries after a success without readable results. A retry with the same token gets the results,
/// if the first answer was only damaged on its way.
pub(super) const UNREADABLE_RETRIES_MAX: u32 = 1;

/// The properties of a transaction that matter for its retries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TransactionProfile {
    pub(crate) is_write: bool,
    /// Whether this is a write whose token may have been used by an earlier run.
    pub(crate) is_replay: bool,
}

/// How an attempt of a transaction ended.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TransactionEnding<'a> {
    Answered {
        status: Status,
        results: Results,
        /// Whether the body says `isRetriable: true`.
        is_retriable: bool,
        /// The wait that the service asks for; `None` when it names none.
        retry_after: Option<Duration>,
    },
    Failed(&'a Failure),
}

/// The results in the body of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Results {
    /// The body is empty, or not that of a transaction.
    None,
    /// The body is that of a transaction, but does not have one result for each operation.
    Incomplete,
    /// There is one result for each operation, and none of them failed.
    Succeeded,
    /// There is one result for each operation, and at least one failed.
    Failed,
}

/// Evaluates one attempt of a transaction. `jitter` is a sample from 0 to 1.
pub(crate) fn evaluate_transaction(
    profile: TransactionProfile,
    ending: TransactionEnding<'_>,
    limits: Limits,
    budgets: Budgets,
    jitter: f64,
) -> (Verdict, Effects) {
    let TransactionProfile { is_write, is_replay } = profile;
    let finding = finding_for(is_write, ending);
    let is_ambiguous = match outcome_of(finding, is_replay) {
        WriteOutcome::Decided => false,
        WriteOutcome::Unchanged => budgets.is_ambiguous,
        WriteOutcome::Unknown => is_write,
    };
    let retry_after = match ending {
        TransactionEnding::Answered { retry_after, .. } => retry_after.filter(|wait| !wait.is_zero()),
        TransactionEnding::Failed(..) => None,
    };
    let evaluation =
        Evaluation { limits, budgets: budgets.with_ambiguity(is_ambiguous), is_replay, retry_after, jitter };
    (evaluation.verdict(finding), effects_of(finding))
}

/// Everything that a verdict depends on, besides the finding.
#[derive(Debug, Clone, Copy)]
struct Evaluation {
    limits: Limits,
    budgets: Budgets,
    is_replay: bool,
    /// The wait that the service asks for; `None` when it names none.
    retry_after: Option<Duration>,
    /// A sample from 0 to 1.
    jitter: f64,
}

impl Evaluation {
    fn verdict(self, finding: TransactionFinding) -> Verdict {
        match finding {
            TransactionFinding::Done => Verdict::Complete,
            TransactionFinding::Refused
            | TransactionFinding::AbortedWithoutResults
            | TransactionFinding::NotProcessed
            | TransactionFinding::Throttled
            | TransactionFinding::Unexpected => self.end(),
            TransactionFinding::Unreadable => self.retry_at_once(Budget::Unreadable, UNREADABLE_RETRIES_MAX),
            TransactionFinding::AbortedRetriable => self.retry_aborted(),
            TransactionFinding::Retriable | TransactionFinding::RefusedRetriable => {
                self.retry_retriable(Context::Retry)
            }
            TransactionFinding::CoordinatorBusy => self.retry_coordinator(),
            TransactionFinding::InfrastructureFailed => self.retry_infrastructure(),
            TransactionFinding::NotWriteRegion => self.retry_forbidden(),
            TransactionFinding::Unavailable
            | TransactionFinding::Unreachable
            | TransactionFinding::AnswerLost => self.retry_unavailable(),
            TransactionFinding::ConnectionUnusable => self.retry_unsent(),
        }
    }

    /// Ends the transaction: with the failure as it is, or with an unknown outcome.
    fn end(self) -> Verdict {
        if self.budgets.is_ambiguous { Verdict::AbortAmbiguous } else { Verdict::Abort }
    }

    /// Retries without a wait.
    fn retry_at_once(self, budget: Budget, retries_max: u32) -> Verdict {
        if self.budgets.spent(budget).retries >= retries_max {
            return self.end();
        }
        self.try_again(budget, Duration::ZERO, Context::Retry)
    }

    /// Retries while the coordinator is busy.
    fn retry_coordinator(self) -> Verdict {
        let wait = self.retry_after.unwrap_or(COORDINATOR_WAIT);
        let retries = self.budgets.spent(Budget::Coordinator).retries;
        if retries >= COORDINATOR_RETRIES_MAX || wait > COORDINATOR_WAIT_MAX {
            return self.end();
        }
        self.try_again(Budget::Coordinator, wait, Context::Retry)
    }

    /// Retries after a failure of the infrastructure.
    fn retry_infrastructure(self) -> Verdict {
        let retries = self.budgets.spent(Budget::Infrastructure).retries;
        if retries >= INFRASTRUCTURE_RETRIES_MAX {
            return self.end();
        }
        let wait = INFRASTRUCTURE_BACKOFF.wait(retries, self.jitter);
        self.try_again(Budget::Infrastructure, wait, Context::Retry)
    }

    /// Retries with a new token. The first abort of a replay is most likely an old answer, so
    /// there is nothing to wait for. Later aborts may be new ones, because the replay cannot know
    /// how far the earlier run came.
    fn retry_aborted(self) -> Verdict {
        if self.is_replay && self.budgets.spent(Budget::Retriable).retries == 0 {
            return self.try_again(Budget::Retriable, Duration::ZERO, Context::NewToken);
        }
        self.retry_retriable(Context::NewToken)
    }

    /// Retries because the service says that the transaction may be repeated. A wait that would
    /// exceed the limit is not shortened, but ends the retries.
    fn retry_retriable(self, context: Context) -> Verdict {
        let spent = self.budgets.spent(Budget::Retriable);
        let backoff = RETRIABLE_BACKOFF.wait(spent.retries, self.jitter);
        let wait = self.retry_after.map_or(backoff, |requested| requested.max(backoff));
        if spent.retries >= RETRIABLE_RETRIES_MAX || spent.waited.saturating_add(wait) > RETRIABLE_WAIT_MAX {
            return self.end();
        }
        self.try_again(Budget::Retriable, wait, context)
    }

    /// Retries in the write region that the account names now. The first retry does not wait.
    /// The last wait is shortened to the time that is left.
    fn retry_forbidden(self) -> Verdict {
        let policy = FORBIDDEN_POLICY;
        let spent = self.budgets.spent(policy.budget);
        let wait = policy.backoff.wait_after(policy.immediate_retries, spent.retries, self.jitter);
        let wait_left = policy.wait_max.saturating_sub(spent.waited);
        let is_time_up = !wait.is_zero() && wait_left.is_zero();
        if spent.retries >= policy.retries_max || is_time_up {
            return self.end();
        }
        self.try_again(policy.budget, wait.min(wait_left), policy.context)
    }

    /// Retries in the write region, which may be another one by then.
    fn retry_unavailable(self) -> Verdict {
        let retries = self.budgets.spent(Budget::Failover).retries;
        if retries >= self.limits.failovers_max {
            return self.end();
        }
        let backoff = UNAVAILABLE_BACKOFF.wait(retries, self.jitter);
        let wait = self.retry_after.map_or(backoff, |requested| requested.min(UNAVAILABLE_BACKOFF.longest));
        self.try_again(Budget::Failover, wait, Context::Retry)
    }

    /// Retries a request that was not sent.
    fn retry_unsent(self) -> Verdict {
        if self.budgets.spent(Budget::Unsent).retries >= UNSENT_RETRIES_MAX {
            return self.retry_unavailable();
        }
        self.try_again(Budget::Unsent, Duration::ZERO, Context::Retry)
    }

    /// The verdict for another attempt. Every retry goes to the write region.
    fn try_again(self, budget: Budget, after: Duration, context: Context) -> Verdict {
        let budgets = self.budgets.spend(budget, after);
        Verdict::Retry { after, route_to: RouteTo::WriteRegion, context, budgets }
    }
}
