//! Evaluates an attempt: finds the rule for the way it ended, and applies the rule
//! within the limits and budgets of the operation.
//!
//! What always holds:
//!
//! - Every retry spends a budget that is bounded by count, and waits at most a
//!   bounded time, so every chain of attempts ends.
//! - A write that is not idempotent is sent again only when none of its attempts
//!   can have been applied.
//! - If an attempt of a write may have been applied, the write never ends in a plain
//!   failure: its witness is read, or it is reported as ambiguous.
//! - A read is never ambiguous.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::backoff::{self, Backoff};
use super::effects::Effects;
use super::findings::{self, Finding};
use super::rules::{self, Action, Budget, FORBIDDEN_POLICY, RetryPolicy};
use super::verdict::{Budgets, Ending, Limits, OperationProfile, Regions, Verdict};
use crate::diagnostics::Context;
use crate::operation::{Idempotency, Verb};
use crate::routing::resolve::RouteTo;

/// The waits before failovers once every region was tried. With one region and three
/// failovers they are 1.75 s in all, enough for a connection or a process to come back.
pub(super) const UNAVAILABLE_BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(250), longest: Duration::from_secs(4) };

/// Retries in the same region when a connection did not take the request, so that the
/// request was not sent. After these retries, the operation fails over.
pub(super) const UNSENT_RETRIES_MAX: u32 = 1;

/// The waits for replication to bring the writes of the session, which takes tens of
/// milliseconds between regions. They begin once every region that may have those
/// writes was asked.
const SESSION_BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(1) };
/// Retries of an operation when a region does not have the writes of its session yet. One
/// retry goes to the write region, or, where all regions take writes, one to each other
/// region. The other retries wait for replication: 1.5 s in all with one write region,
/// 2.5 s in an account with a single region. Both are longer than replication
/// usually takes. Where three or more regions take writes, fewer retries are left to wait.
const SESSION_RETRIES_USUAL: u32 = 5;

/// The waits while another write of the same document is in progress (449, "Retry With").
const RETRY_WITH_BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(10), longest: Duration::from_secs(1) };
/// The longest random time that is added to each wait of [`RETRY_WITH_BACKOFF`], so that
/// two writers that failed at the same time do not retry at the same time.
const RETRY_WITH_SALT_MAX: Duration = Duration::from_millis(5);
/// Retries while another write of the same document is in progress. If the service
/// does not ask for other waits, these retries wait about 24 s in all, so this count is
/// reached before the limit on the waiting time.
const RETRY_WITH_RETRIES_MAX: u32 = 30;
/// The longest sum of the waits while another write of the same document is in progress.
const RETRY_WITH_WAIT_MAX: Duration = Duration::from_secs(30);

/// Evaluates one attempt of an operation. `jitter` is a sample from 0 to 1.
pub(crate) fn evaluate(
    profile: OperationProfile,
    ending: Ending<'_>,
    regions: Regions,
    limits: Limits,
    budgets: Budgets,
    jitter: f64,
) -> (Verdict, Effects) {
    let rule = rules::rule_for(finding_for(ending), profile, regions);
    let is_ambiguous = (budgets.is_ambiguous || rule.may_have_applied) && !profile.verb.is_read();
    let budgets = budgets.with_ambiguity(is_ambiguous);
    let retry_after = match ending {
        Ending::Answered { retry_after, .. } => retry_after,
        Ending::Failed(..) => None,
    };
    let evaluation = Evaluation { profile, regions, limits, budgets, retry_after, jitter };
    (evaluation.verdict(rule.action), rule.effects)
}

/// Whether the witness of a write is read before the write is sent again. This holds for a
/// conditional write if one of its attempts may have been applied. The condition does not
/// always keep the service from applying the write twice: the id of a created document is
/// free again when the document was deleted meanwhile.
pub(crate) fn reads_witness_before_retry(profile: OperationProfile, budgets: &Budgets) -> bool {
    match profile.idempotency {
        Idempotency::Conditional => profile.has_witness && budgets.is_ambiguous,
        Idempotency::Idempotent | Idempotency::NotIdempotent => false,
    }
}

/// Whether a write whose attempt ended in this way was applied, or may have been.
pub(crate) fn may_have_applied(profile: OperationProfile, ending: Ending<'_>, regions: Regions) -> bool {
    rules::rule_for(finding_for(ending), profile, regions).may_have_applied
}

fn finding_for(ending: Ending<'_>) -> Finding {
    match ending {
        Ending::Answered { status, .. } => findings::finding_for_status(status),
        Ending::Failed(failure) => findings::finding_for_failure(failure),
    }
}

/// Everything that a verdict depends on, besides the rule.
#[derive(Debug, Clone, Copy)]
struct Evaluation {
    profile: OperationProfile,
    regions: Regions,
    limits: Limits,
    budgets: Budgets,
    /// The wait that the service asks for; `None` when it names none.
    retry_after: Option<Duration>,
    /// A sample from 0 to 1.
    jitter: f64,
}

impl Evaluation {
    fn verdict(self, action: Action) -> Verdict {
        match action {
            Action::Complete => Verdict::Complete,
            Action::CompleteBatch => self.complete_batch(),
            Action::EndNotFound => self.end_not_found(),
            Action::EndRefused => self.end_refused(),
            Action::End => self.end(),
            Action::Retry(policy) => self.retry(policy),
            Action::RetrySession => self.retry_session(),
            Action::RetryAsWriteRegion => self.retry_as_write_region(),
            Action::RetryWith => self.retry_with(),
            Action::RetryUnsent => self.retry_unsent(),
            Action::FailOver => self.fail_over(),
        }
    }

    /// Ends the operation: with the failure as it is, or as an ambiguous write.
    fn end(self) -> Verdict {
        if self.budgets.is_ambiguous { self.read_back(false) } else { Verdict::Abort }
    }

    /// Ends a write that the service refused because of the state of the data. If an
    /// earlier attempt may have been applied, that attempt may have caused this state.
    ///
    /// An earlier attempt may still be under way. A condition that no longer holds (the id
    /// exists, the etag has changed) keeps that attempt from being applied too. So if the
    /// witness is absent, the refusal is final. The refusal is not final if the write has no
    /// condition, or if the earlier attempt may have gone to another write region, where the
    /// condition was checked against other data.
    fn end_refused(self) -> Verdict {
        if !self.budgets.is_ambiguous {
            return Verdict::Abort;
        }
        let is_same_condition = !self.regions.is_multi_write || self.regions.candidates <= 1;
        match self.profile.idempotency {
            Idempotency::Conditional => self.read_back(is_same_condition),
            Idempotency::Idempotent | Idempotency::NotIdempotent => self.read_back(false),
        }
    }

    /// Ends an ambiguous write: its witness is read, if it has one.
    fn read_back(self, is_refusal_final: bool) -> Verdict {
        if self.profile.has_witness {
            Verdict::ReadBack { is_refusal_final }
        } else {
            Verdict::AbortAmbiguous
        }
    }

    fn complete_batch(self) -> Verdict {
        if self.budgets.is_ambiguous { self.end_refused() } else { Verdict::Complete }
    }

    /// Ends an operation whose resource does not exist. An idempotent delete has succeeded
    /// if an earlier attempt of it may have been applied.
    fn end_not_found(self) -> Verdict {
        let is_idempotent_delete =
            self.profile.verb == Verb::Delete && self.profile.idempotency == Idempotency::Idempotent;
        if self.budgets.is_ambiguous && is_idempotent_delete {
            Verdict::CompleteAsDeleted
        } else {
            self.end_refused()
        }
    }

    /// Retries as the policy says, or ends when the budget is spent.
    fn retry(self, policy: RetryPolicy) -> Verdict {
        let spent = self.budgets.spent(policy.budget);
        let wait_left = policy.wait_max.saturating_sub(spent.waited);
        let per_wait = policy.retries_per_wait.max(1);
        // The number of this retry among the retries after the immediate ones, from 0.
        let number = spent.retries.checked_sub(policy.immediate_retries);
        // The retries that share one wait: only the first of them waits.
        let waiting = number.filter(|number| number % per_wait == 0);
        let wait =
            waiting.map_or(Duration::ZERO, |number| policy.backoff.wait(number / per_wait, self.jitter));
        let is_time_up = !wait.is_zero() && wait_left.is_zero();
        if spent.retries >= policy.retries_max || is_time_up {
            return self.end();
        }
        // The last wait is shortened to the time that is left, so that the last retries
        // come when that time is over.
        self.try_again(policy.budget, wait.min(wait_left), policy.route_to, policy.context)
    }

    /// Retries in a region that may have the writes of the session: in the write
    /// region, or, where all regions take writes, in each other region. Further retries
    /// wait before they ask the same regions again.
    fn retry_session(self) -> Verdict {
        let other_regions = self.other_regions();
        let (route_to, other_region_retries) = match (self.regions.is_multi_write, other_regions) {
            (false, 0..=u32::MAX) => (RouteTo::WriteRegion, other_regions.min(1)),
            (true, 0) => (RouteTo::Same, 0),
            (true, 1..=u32::MAX) => (RouteTo::Next, other_regions),
        };
        let retries = self.budgets.spent(Budget::Session).retries;
        let usual = SESSION_RETRIES_USUAL.max(other_region_retries.saturating_add(1));
        if retries >= self.limits.session_retries_max.unwrap_or(usual) {
            return self.end();
        }
        let after = SESSION_BACKOFF.wait_after(other_region_retries, retries, self.jitter);
        self.try_again(Budget::Session, after, route_to, Context::SessionRetry)
    }

    /// Retries a read that only one region may answer, the region that takes the writes of its
    /// partition. The read asks each other region without a wait. If all of them refuse, any
    /// region may answer the read. This happens, for example, when the options exclude the
    /// region that takes the writes.
    fn retry_as_write_region(self) -> Verdict {
        let other_regions = self.other_regions();
        if self.budgets.spent(Budget::Forbidden).retries < other_regions {
            let route_to = RouteTo::NextAsWriteRegion;
            return self.try_again(Budget::Forbidden, Duration::ZERO, route_to, Context::Failover);
        }
        self.retry(RetryPolicy {
            immediate_retries: FORBIDDEN_POLICY.immediate_retries.saturating_add(other_regions),
            retries_max: FORBIDDEN_POLICY.retries_max.saturating_add(other_regions),
            ..FORBIDDEN_POLICY
        })
    }

    /// Retries in the same region after 449. A wait that would exceed the limit is not
    /// shortened, but ends the operation.
    fn retry_with(self) -> Verdict {
        let spent = self.budgets.spent(Budget::RetryWith);
        let salt = RETRY_WITH_SALT_MAX.mul_f64(backoff::valid_sample(self.jitter));
        let backoff = RETRY_WITH_BACKOFF.without_jitter(spent.retries) + salt;
        let after = self.requested_wait().unwrap_or(backoff);
        let waited = spent.waited.saturating_add(after);
        if spent.retries >= RETRY_WITH_RETRIES_MAX || waited > RETRY_WITH_WAIT_MAX {
            return self.end();
        }
        self.try_again(Budget::RetryWith, after, RouteTo::Same, Context::Retry)
    }

    /// Retries a request that was not sent, because the connection did not take it. This
    /// says nothing about the endpoint, so the first retry goes to the same region. If the
    /// connection was closing, the retry uses a new connection.
    fn retry_unsent(self) -> Verdict {
        if self.budgets.spent(Budget::Unsent).retries >= UNSENT_RETRIES_MAX {
            return self.fail_over();
        }
        self.try_again(Budget::Unsent, Duration::ZERO, RouteTo::Same, Context::Retry)
    }

    /// Retries in the next region, without a wait as long as there are regions that
    /// were not tried. With only one region, the retry goes to the same region after the
    /// wait that the service asks for (at most the longest backoff), or else after the
    /// backoff.
    fn fail_over(self) -> Verdict {
        let retries = self.budgets.spent(Budget::Failover).retries;
        if retries >= self.limits.failovers_max {
            return self.end();
        }
        let other_regions = self.other_regions();
        let backoff = UNAVAILABLE_BACKOFF.wait_after(other_regions, retries, self.jitter);
        match other_regions {
            0 => {
                let after = self
                    .requested_wait()
                    .map_or(backoff, |requested| requested.min(UNAVAILABLE_BACKOFF.longest));
                self.try_again(Budget::Failover, after, RouteTo::Same, Context::Retry)
            }
            1..=u32::MAX => self.try_again(Budget::Failover, backoff, RouteTo::Next, Context::Failover),
        }
    }

    /// The verdict for another attempt. Every retry goes through this function, so
    /// that a write that is not idempotent and may have been applied is never sent
    /// again.
    fn try_again(self, budget: Budget, after: Duration, route_to: RouteTo, context: Context) -> Verdict {
        match self.profile.idempotency {
            Idempotency::NotIdempotent if self.budgets.is_ambiguous => self.end(),
            Idempotency::NotIdempotent | Idempotency::Conditional | Idempotency::Idempotent => {
                Verdict::Retry { after, route_to, context, budgets: self.budgets.spend(budget, after) }
            }
        }
    }

    /// The number of regions that the operation may use besides the one just tried.
    fn other_regions(self) -> u32 {
        self.regions.candidates.saturating_sub(1)
    }

    /// The wait that the service asks for. A wait of zero counts as none.
    fn requested_wait(self) -> Option<Duration> {
        self.retry_after.filter(|wait| !wait.is_zero())
    }
}
