//! Evaluates an attempt: carries out the rule for the way it ended, within what
//! the operation may still spend.
//!
//! What always holds:
//!
//! - Every retry spends a budget that is bounded by count, and waits at most a
//!   bounded time, so every chain of attempts ends.
//! - A write that must not be done twice is sent again only when no attempt of
//!   it can have been applied.
//! - A write of which an attempt may have been applied never ends in a plain
//!   failure: it is read back, or reported as ambiguous.
//! - A read is never ambiguous.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::backoff::{self, Backoff};
use super::effects::Effects;
use super::rules::{self, Action, Budget, Finding, RetryPolicy};
use super::verdict::{Budgets, Ending, Limits, Nature, Regions, Verdict};
use crate::diagnostics::Context;
use crate::operation::{Repeat, Verb};
use crate::routing::resolve::RouteTo;

/// The waits between rounds over regions that are all unavailable. With one region
/// and three failovers they are 1.75 s in all, enough for a connection or a process
/// to come back.
const UNAVAILABLE: Backoff = Backoff { first: Duration::from_millis(250), longest: Duration::from_secs(4) };

/// How often a new connection is opened in place of one that was closing. When the
/// second connection closes as well, the endpoint is at fault.
const RECONNECTS_MAX: u32 = 1;

/// The waits until replication has brought the writes that the session has seen
/// (tens of milliseconds between regions). They begin once every region that may
/// have those writes was asked.
const SESSION: Backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(1) };
/// Retries of a read whose session a region does not have yet. One retry goes to the
/// write region (or one to each, where all take writes). The other retries wait for
/// replication, 1.5 to 2.5 s in all, which is longer than the usual delay between
/// regions.
const SESSION_RETRIES_USUAL: u32 = 5;

/// The waits while another write of the same document is in progress.
const RETRY_WITH: Backoff = Backoff { first: Duration::from_millis(10), longest: Duration::from_secs(1) };
/// The most that is added to each of these waits, so that two writers that retry at
/// the same times get different waits.
const RETRY_WITH_SALT_MAX: Duration = Duration::from_millis(5);
/// Retries while another write is in progress. Without hints of the service they wait
/// about 24 s in all, so this count is reached before the limit on the waiting time.
const RETRY_WITH_RETRIES_MAX: u32 = 30;
const RETRY_WITH_WAIT_MAX: Duration = Duration::from_secs(30);

/// Evaluates one attempt of an operation. `jitter` is a sample from 0 to 1.
pub(crate) fn evaluate(
    nature: Nature,
    ending: Ending<'_>,
    regions: Regions,
    limits: Limits,
    budgets: Budgets,
    jitter: f64,
) -> (Verdict, Effects) {
    let rule = rules::rule(finding(ending), nature, regions);
    let is_ambiguous = (budgets.is_ambiguous || rule.may_have_applied) && !nature.verb.is_read();
    let budgets = budgets.with_ambiguity(is_ambiguous);
    let retry_after = match ending {
        Ending::Answered { retry_after, .. } => retry_after,
        Ending::Failed(..) => None,
    };
    let case = Case { nature, regions, limits, budgets, retry_after, jitter };
    (case.verdict(rule.action), rule.effects)
}

/// Whether a write whose attempt has this ending was applied, or may have been.
pub(crate) fn may_have_applied(nature: Nature, ending: Ending<'_>, regions: Regions) -> bool {
    rules::rule(finding(ending), nature, regions).may_have_applied
}

fn finding(ending: Ending<'_>) -> Finding {
    match ending {
        Ending::Answered { status, .. } => rules::answered(status),
        Ending::Failed(failure) => rules::failed(failure),
    }
}

/// Everything that a verdict depends on, besides the rule.
#[derive(Debug, Clone, Copy)]
struct Case {
    nature: Nature,
    regions: Regions,
    limits: Limits,
    budgets: Budgets,
    /// The wait that the service asks for.
    retry_after: Option<Duration>,
    jitter: f64,
}

impl Case {
    fn verdict(self, action: Action) -> Verdict {
        match action {
            Action::Complete => Verdict::Complete,
            Action::CompleteBatch => self.complete_batch(),
            Action::EndAbsent => self.end_absent(),
            Action::EndRefused => self.end_refused(),
            Action::End => self.end(),
            Action::Retry(policy) => self.retry(policy),
            Action::RetrySession => self.retry_session(),
            Action::RetryWith => self.retry_with(),
            Action::Reconnect => self.reconnect(),
            Action::FailOver => self.fail_over(),
        }
    }

    fn end(self) -> Verdict {
        if self.budgets.is_ambiguous { self.read_back(false) } else { Verdict::Abort }
    }

    /// The state of the data refuses the write. After an ambiguous attempt, that
    /// attempt may have made this state.
    ///
    /// A guard that no longer holds (the id exists, the etag has changed) also keeps
    /// an earlier attempt that is still under way from being applied later. So if
    /// the witness is absent, the refusal is final. It is not final without a guard,
    /// nor when the earlier attempt may have gone to another write region, where
    /// the guard was checked against other data.
    fn end_refused(self) -> Verdict {
        if !self.budgets.is_ambiguous {
            return Verdict::Abort;
        }
        let is_one_guard = !self.regions.is_multi_write || self.regions.candidates <= 1;
        match self.nature.repeat {
            Repeat::Guarded => self.read_back(is_one_guard),
            Repeat::Freely | Repeat::Never => self.read_back(false),
        }
    }

    fn read_back(self, refused: bool) -> Verdict {
        if self.nature.has_witness { Verdict::ReadBack { refused } } else { Verdict::AbortAmbiguous }
    }

    fn complete_batch(self) -> Verdict {
        if self.budgets.is_ambiguous { self.end_refused() } else { Verdict::Complete }
    }

    fn end_absent(self) -> Verdict {
        let is_free_delete = self.nature.verb == Verb::Delete && self.nature.repeat == Repeat::Freely;
        if self.budgets.is_ambiguous && is_free_delete { Verdict::CompleteAsGone } else { self.end_refused() }
    }

    fn retry(self, policy: RetryPolicy) -> Verdict {
        let spent = self.budgets.spent(policy.budget);
        let wait_left = policy.wait_max.saturating_sub(spent.waited);
        if spent.retries >= policy.retries_max || wait_left.is_zero() {
            return self.end();
        }
        // The last wait is cut short rather than dropped: a change that happens
        // within the time allowed is found.
        let wait = policy.backoff.wait_after(policy.immediate_retries, spent.retries, self.jitter);
        self.again(policy.budget, wait.min(wait_left), policy.route_to, policy.context)
    }

    /// Retries in a region that may have the writes that the session has seen: the
    /// write region, or any region where all take writes.
    fn retry_session(self) -> Verdict {
        let others = self.others();
        let (route_to, elsewhere) = match (self.regions.is_multi_write, others) {
            (false, 0..=u32::MAX) => (RouteTo::WriteRegion, others.min(1)),
            (true, 0) => (RouteTo::Same, 0),
            (true, 1..=u32::MAX) => (RouteTo::Next, others),
        };
        let retries = self.budgets.spent(Budget::Session).retries;
        let usual = SESSION_RETRIES_USUAL.max(elsewhere.saturating_add(1));
        if retries >= self.limits.session_retries_max.unwrap_or(usual) {
            return self.end();
        }
        let after = SESSION.wait_after(elsewhere, retries, self.jitter);
        self.again(Budget::Session, after, route_to, Context::SessionRetry)
    }

    fn retry_with(self) -> Verdict {
        let spent = self.budgets.spent(Budget::RetryWith);
        let salt = RETRY_WITH_SALT_MAX.mul_f64(backoff::sample(self.jitter));
        let own = RETRY_WITH.unspread(spent.retries) + salt;
        let after = self.hint().unwrap_or(own);
        let waited = spent.waited.saturating_add(after);
        if spent.retries >= RETRY_WITH_RETRIES_MAX || waited > RETRY_WITH_WAIT_MAX {
            return self.end();
        }
        self.again(Budget::RetryWith, after, RouteTo::Same, Context::Retry)
    }

    /// A connection that takes no more requests says nothing about its endpoint,
    /// so the first retry opens a new connection to the same region.
    fn reconnect(self) -> Verdict {
        if self.budgets.spent(Budget::Reconnect).retries >= RECONNECTS_MAX {
            return self.fail_over();
        }
        self.again(Budget::Reconnect, Duration::ZERO, RouteTo::Same, Context::Retry)
    }

    /// Goes to the next region, at once while there are untried ones. With one
    /// region it retries there after a wait.
    fn fail_over(self) -> Verdict {
        let retries = self.budgets.spent(Budget::Failover).retries;
        if retries >= self.limits.failovers_max {
            return self.end();
        }
        let others = self.others();
        let own = UNAVAILABLE.wait_after(others, retries, self.jitter);
        match others {
            0 => {
                let after = self.hint().map_or(own, |hint| hint.min(UNAVAILABLE.longest));
                self.again(Budget::Failover, after, RouteTo::Same, Context::Retry)
            }
            1..=u32::MAX => self.again(Budget::Failover, own, RouteTo::Next, Context::Failover),
        }
    }

    /// Another attempt. Every retry comes through here, so that a write that
    /// must not be done twice and may have been applied is never sent again.
    fn again(self, budget: Budget, after: Duration, route_to: RouteTo, context: Context) -> Verdict {
        match self.nature.repeat {
            Repeat::Never if self.budgets.is_ambiguous => self.end(),
            Repeat::Never | Repeat::Guarded | Repeat::Freely => {
                Verdict::Retry { after, route_to, context, budgets: self.budgets.spend(budget, after) }
            }
        }
    }

    /// Regions besides the one just tried.
    fn others(self) -> u32 {
        self.regions.candidates.saturating_sub(1)
    }

    /// The wait that the service asks for. A wait of zero counts as none.
    fn hint(self) -> Option<Duration> {
        self.retry_after.filter(|wait| !wait.is_zero())
    }
}
