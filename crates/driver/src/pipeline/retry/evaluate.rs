//! The judge of attempts: what an ending means ([`classify`]), what to do next
//! (here), and what everyone is to know ([`effects`]).
//!
//! It is a table in three steps. Numbers become a [`Finding`], a closed list;
//! each step then spells every finding out, so that a new one must be decided
//! on purpose: there is no wildcard arm in these files. Nothing here reads a
//! clock, draws a number or does I/O.
//!
//! What always holds:
//!
//! - Every retry spends a budget that is bounded by count, and waits at most a
//!   bounded time, so every chain of endings ends.
//! - A write that must not be done twice is sent again only when no attempt of
//!   it can have been applied.
//! - A write of which an attempt may have been applied never ends in a plain
//!   failure: it is read back, or reported as ambiguous.
//! - A read is never ambiguous.

#![deny(clippy::wildcard_enum_match_arm, clippy::match_wildcard_for_single_variants)]

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::backoff::{self, Backoff};
use super::classify::{self, Finding};
use super::effects::{self, Effects};
use super::verdict::{Budgets, Ending, Limits, Nature, Regions, Verdict};
use crate::diagnostics::Context;
use crate::operation::{Repeat, Verb};
use crate::routing::resolve::RouteTo;

/// Between rounds over regions that are all unavailable: with three failovers
/// in one region 1.75 s, enough for a connection or a process to come back.
const UNAVAILABLE: Backoff = Backoff { first: Duration::from_millis(250), longest: Duration::from_secs(4) };

/// New connections in place of one that was closing: a second one that closes
/// as well is not a coincidence.
const RECONNECTS_MAX: u32 = 1;

/// While a write region moves (seconds). The first retry does not wait: mostly
/// only this client had not heard of the move.
const FORBIDDEN: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(15) };
/// Retries and waiting after which a region that refuses is taken at its word.
const FORBIDDEN_RETRIES_MAX: u32 = 10;
const FORBIDDEN_WAIT_MAX: Duration = Duration::from_secs(5);

/// For replication to bring what a session has seen (tens of milliseconds
/// between regions), once every place that may know it was asked.
const SESSION: Backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(1) };
/// Once in the region that takes writes (or in each that does), and then, when
/// that cannot be asked, while replication brings it: 1.5 to 2.5 s of waiting,
/// which outlasts a usual delay between regions.
const SESSION_RETRIES_USUAL: u32 = 5;

/// While a split, a merge or a move completes. The first retry does not wait:
/// mostly it is over, and only this client's map was old.
const REROUTE: Backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(2) };
/// Retries with a newly learnt map: about 7 s, which outlasts a split's end.
const REROUTES_MAX: u32 = 8;
/// Once is enough to tell a recreated container from a deleted one.
const OWNER_GONE_REROUTES_MAX: u32 = 1;

/// While another write of the same document is under way.
const RETRY_WITH: Backoff = Backoff { first: Duration::from_millis(10), longest: Duration::from_secs(1) };
/// Added to it, so that two writers in lockstep part.
const RETRY_WITH_SALT_MAX: Duration = Duration::from_millis(5);
/// Without hints these are about 24 s of waiting, so the count ends it first.
const RETRY_WITH_RETRIES_MAX: u32 = 30;
const RETRY_WITH_WAIT_MAX: Duration = Duration::from_secs(30);

/// Judges one attempt of an operation. `jitter` is a sample from 0 to 1.
pub(crate) fn evaluate(
    nature: Nature,
    ending: Ending<'_>,
    regions: Regions,
    limits: Limits,
    budgets: Budgets,
    jitter: f64,
) -> (Verdict, Effects) {
    let (finding, retry_after) = match ending {
        Ending::Answered { status, retry_after } => (classify::answer(status), retry_after),
        Ending::Failed(failure) => (classify::failure(failure), None),
    };
    let is_ambiguous = budgets.is_ambiguous && !nature.verb.is_read();
    let budgets = Budgets { is_ambiguous, ..budgets };
    let case = Case { nature, regions, limits, budgets, retry_after, jitter };
    (case.judge(finding), effects::of(finding, nature, regions))
}

/// Whether a write that ended so was applied, or may have been.
pub(crate) fn may_have_applied(ending: Ending<'_>) -> bool {
    let finding = match ending {
        Ending::Answered { status, .. } => classify::answer(status),
        Ending::Failed(failure) => classify::failure(failure),
    };
    match finding {
        Finding::Done | Finding::Nonsense | Finding::Unavailable | Finding::Failing | Finding::AnswerLost => {
            true
        }
        Finding::BatchRefused
        | Finding::Absent
        | Finding::RefusedByState
        | Finding::Refused
        | Finding::Throttled
        | Finding::WriteForbidden
        | Finding::AccountUnknown
        | Finding::SessionBehind
        | Finding::OwnerGone
        | Finding::ContainerReplaced
        | Finding::RangeMoved
        | Finding::RetryWith
        | Finding::NotTaken
        | Finding::Unreachable
        | Finding::TurnedAway => false,
    }
}

/// All that a verdict depends on, besides the finding.
#[derive(Debug, Clone, Copy)]
struct Case {
    nature: Nature,
    regions: Regions,
    limits: Limits,
    budgets: Budgets,
    /// The service's hint; one of nothing says nothing.
    retry_after: Option<Duration>,
    jitter: f64,
}

impl Case {
    fn judge(self, finding: Finding) -> Verdict {
        match finding {
            Finding::Done => Verdict::Complete,
            Finding::BatchRefused => self.batch_refused(),
            Finding::Absent => self.absent(),
            Finding::RefusedByState => self.refused(),
            Finding::Refused | Finding::Throttled => self.end(),
            Finding::Nonsense => self.in_doubt().end(),
            Finding::WriteForbidden | Finding::AccountUnknown => self.forbidden(),
            Finding::SessionBehind => self.session_behind(),
            Finding::OwnerGone if self.nature.is_data_plane => self.reroute(OWNER_GONE_REROUTES_MAX),
            Finding::OwnerGone => self.end(),
            Finding::ContainerReplaced | Finding::RangeMoved => self.reroute(REROUTES_MAX),
            Finding::RetryWith => self.retry_with(),
            Finding::NotTaken | Finding::Unreachable => self.fail_over(),
            Finding::TurnedAway => self.turned_away(),
            Finding::Unavailable | Finding::Failing | Finding::AnswerLost => self.in_doubt().fail_over(),
        }
    }

    /// After an ending that leaves open whether a write was applied.
    fn in_doubt(mut self) -> Self {
        self.budgets.is_ambiguous = !self.nature.verb.is_read();
        self
    }

    /// No more tries.
    fn end(self) -> Verdict {
        if self.budgets.is_ambiguous { self.read_back(false) } else { Verdict::Abort }
    }

    /// The state of the data refuses the write. After an ambiguous attempt
    /// that may be the state which this very write made.
    ///
    /// A guard that holds no longer (the id is taken, the etag has moved on)
    /// also keeps an earlier attempt, should it still be under way, from being
    /// applied later: if the witness is absent, the refusal stands. Not so
    /// without a guard, nor when the earlier attempt may have gone to another
    /// region that takes writes, where the guard was judged by other data.
    fn refused(self) -> Verdict {
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

    /// An answer the caller gets as it is, unless it refuses the repeat of a
    /// batch that was applied the first time.
    fn batch_refused(self) -> Verdict {
        if self.budgets.is_ambiguous { self.refused() } else { Verdict::Complete }
    }

    /// Nothing there: what a repeated deletion wants to hear.
    fn absent(self) -> Verdict {
        let is_free_deletion = self.nature.verb == Verb::Delete && self.nature.repeat == Repeat::Freely;
        if self.budgets.is_ambiguous && is_free_deletion { Verdict::CompleteAsGone } else { self.refused() }
    }

    /// The region is up and refuses; the account, read again, knows another.
    fn forbidden(self) -> Verdict {
        let wait_left = FORBIDDEN_WAIT_MAX.saturating_sub(self.budgets.forbidden_waited);
        if self.budgets.forbidden_retries >= FORBIDDEN_RETRIES_MAX || wait_left.is_zero() {
            return self.end();
        }
        // The last wait is cut short rather than dropped: a region that moves
        // within the time allowed is found.
        let after = FORBIDDEN.wait_after(1, self.budgets.forbidden_retries, self.jitter).min(wait_left);
        let budgets = Budgets {
            forbidden_retries: self.budgets.forbidden_retries + 1,
            forbidden_waited: self.budgets.forbidden_waited + after,
            ..self.budgets
        };
        self.again(after, RouteTo::Next, Context::Failover, budgets)
    }

    /// Another region may have seen what the session has: with one write
    /// region that is the one, else any.
    fn session_behind(self) -> Verdict {
        let others = self.others();
        let (route_to, elsewhere) = match (self.regions.is_multi_write, others) {
            (false, 0..=u32::MAX) => (RouteTo::WriteRegion, others.min(1)),
            (true, 0) => (RouteTo::Same, 0),
            (true, 1..=u32::MAX) => (RouteTo::Next, others),
        };
        let usual = SESSION_RETRIES_USUAL.max(elsewhere.saturating_add(1));
        if self.budgets.session_retries >= self.limits.session_retries_max.unwrap_or(usual) {
            return self.end();
        }
        let after = SESSION.wait_after(elsewhere, self.budgets.session_retries, self.jitter);
        let budgets = Budgets { session_retries: self.budgets.session_retries + 1, ..self.budgets };
        self.again(after, route_to, Context::SessionRetry, budgets)
    }

    /// Where things are was learnt anew.
    fn reroute(self, reroutes_max: u32) -> Verdict {
        if self.budgets.reroutes >= reroutes_max {
            return self.end();
        }
        let after = REROUTE.wait_after(1, self.budgets.reroutes, self.jitter);
        let budgets = Budgets { reroutes: self.budgets.reroutes + 1, ..self.budgets };
        self.again(after, RouteTo::Same, Context::Rerouted, budgets)
    }

    /// Another write of the same document is under way.
    fn retry_with(self) -> Verdict {
        let salt = RETRY_WITH_SALT_MAX.mul_f64(backoff::sample(self.jitter));
        let own = RETRY_WITH.unspread(self.budgets.retry_with_retries) + salt;
        let after = self.hint().unwrap_or(own);
        let waited = self.budgets.retry_with_waited.saturating_add(after);
        if self.budgets.retry_with_retries >= RETRY_WITH_RETRIES_MAX || waited > RETRY_WITH_WAIT_MAX {
            return self.end();
        }
        let budgets = Budgets {
            retry_with_retries: self.budgets.retry_with_retries + 1,
            retry_with_waited: waited,
            ..self.budgets
        };
        self.again(after, RouteTo::Same, Context::Retry, budgets)
    }

    /// A connection that takes no more says nothing about its endpoint: the
    /// first time, a new connection to the same region is the nearest remedy.
    fn turned_away(self) -> Verdict {
        if self.budgets.reconnects >= RECONNECTS_MAX {
            return self.fail_over();
        }
        let budgets = Budgets { reconnects: self.budgets.reconnects + 1, ..self.budgets };
        self.again(Duration::ZERO, RouteTo::Same, Context::Retry, budgets)
    }

    /// To the next region, at once while there are untried ones; with one
    /// region there again, after a wait.
    fn fail_over(self) -> Verdict {
        if self.budgets.failovers >= self.limits.failovers_max {
            return self.end();
        }
        let others = self.others();
        let own = UNAVAILABLE.wait_after(others, self.budgets.failovers, self.jitter);
        let (after, route_to, context) = match others {
            0 => {
                (self.hint().map_or(own, |hint| hint.min(UNAVAILABLE.longest)), RouteTo::Same, Context::Retry)
            }
            1..=u32::MAX => (own, RouteTo::Next, Context::Failover),
        };
        let budgets = Budgets { failovers: self.budgets.failovers + 1, ..self.budgets };
        self.again(after, route_to, context, budgets)
    }

    /// The one door to another attempt, closed for a write that must not be
    /// done twice and may have been done.
    fn again(self, after: Duration, route_to: RouteTo, context: Context, budgets: Budgets) -> Verdict {
        match self.nature.repeat {
            Repeat::Never if self.budgets.is_ambiguous => self.end(),
            Repeat::Never | Repeat::Guarded | Repeat::Freely => {
                Verdict::Retry { after, route_to, context, budgets }
            }
        }
    }

    /// Regions besides the one just tried.
    fn others(self) -> u32 {
        self.regions.candidates.saturating_sub(1)
    }

    fn hint(self) -> Option<Duration> {
        self.retry_after.filter(|wait| !wait.is_zero())
    }
}
