//! The judge of throttled answers, in the transport pipeline: whether the same
//! request goes to the same region again, and when.
//!
//! A throttled request was not applied, so any operation may wait and repeat
//! it; what bounds it is a count, a sum of waits and the operation's deadline.
//! Pure.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::backoff::Backoff;
use perihelion_wire::status::{self, Status};

/// When the service gives no hint.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(5), longest: Duration::from_secs(5) };

/// One wait of an operation on documents: a hint above it means a container
/// starved for longer than a caller is likely to want to wait unasked.
const DATA_WAIT_MAX: Duration = Duration::from_secs(15);
/// One wait of an operation on metadata, which others may be waiting for.
const METADATA_WAIT_MAX: Duration = Duration::from_secs(5);

/// What must be left before the deadline after a wait: an answer that arrives
/// any later is of no use.
const DEADLINE_MARGIN: Duration = Duration::from_millis(100);

/// What one attempt may still spend on being throttled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ThrottleBudget {
    retries: u32,
    retries_max: u32,
    wait_left: Duration,
    one_wait_max: Duration,
}

impl ThrottleBudget {
    /// Nothing spent yet.
    pub(crate) fn new(retries_max: u32, wait_max: Duration, is_data_plane: bool) -> Self {
        let one_wait_max = if is_data_plane { DATA_WAIT_MAX } else { METADATA_WAIT_MAX };
        ThrottleBudget { retries: 0, retries_max, wait_left: wait_max, one_wait_max }
    }
}

/// What to do about a throttled answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ThrottleVerdict {
    /// Send it again after the wait, with what is left.
    RetryAfter { wait: Duration, budget: ThrottleBudget },
    /// Hand the answer up.
    GiveUp(GiveUp),
}

/// Why a throttled answer is handed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GiveUp {
    /// It was repeated as often as it may be.
    RetriesSpent,
    /// The wait is longer than one wait may be.
    WaitTooLong,
    /// The waits together would be longer than they may be.
    WaitSpent,
    /// The wait would end too near the deadline.
    DeadlineNear,
}

/// Whether a status is for [`judge`]. A replica out of resources also says 429,
/// but waiting for it is not the remedy: another region is, and the operation
/// pipeline goes there.
pub(crate) fn is_throttle(status: Status) -> bool {
    match status {
        status::SYSTEM_RESOURCE_UNAVAILABLE => false,
        status::TOO_MANY_REQUESTS | Status { code: 429, .. } => true,
        Status { code: 0..=428 | 430..=u16::MAX, .. } => false,
    }
}

/// Judges a throttled answer: the service's own hint wins over our backoff,
/// and a wait that would overrun the budget or the deadline is a refusal, not
/// a shorter wait. `jitter` is a sample from 0 to 1, `time_left` ends with the
/// operation's deadline.
pub(crate) fn judge(
    budget: ThrottleBudget,
    retry_after: Option<Duration>,
    jitter: f64,
    time_left: Duration,
) -> ThrottleVerdict {
    if budget.retries >= budget.retries_max {
        return ThrottleVerdict::GiveUp(GiveUp::RetriesSpent);
    }
    // A hint of nothing is none: repeating at once would be throttled again.
    let hint = retry_after.filter(|wait| !wait.is_zero());
    let wait = hint.unwrap_or_else(|| BACKOFF.wait(budget.retries, jitter).min(budget.one_wait_max));
    if wait > budget.one_wait_max {
        return ThrottleVerdict::GiveUp(GiveUp::WaitTooLong);
    }
    let Some(wait_left) = budget.wait_left.checked_sub(wait) else {
        return ThrottleVerdict::GiveUp(GiveUp::WaitSpent);
    };
    if wait + DEADLINE_MARGIN > time_left {
        return ThrottleVerdict::GiveUp(GiveUp::DeadlineNear);
    }
    ThrottleVerdict::RetryAfter {
        wait,
        budget: ThrottleBudget { retries: budget.retries + 1, wait_left, ..budget },
    }
}
