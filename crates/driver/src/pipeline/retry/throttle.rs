//! Retries of throttled requests within one attempt: whether the same request is
//! sent to the same region again, and when.
//!
//! A throttled request was not applied, so any operation may wait and repeat it.
//! The bounds are a count, the length of one wait, the sum of the waits and the
//! operation's deadline.

#[cfg(test)]
mod tests;

use std::time::Duration;

use perihelion_wire::status::{self, Status};

use super::backoff::Backoff;

/// The waits when the service does not say how long to wait.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(5), longest: Duration::from_secs(5) };

/// The longest single wait of an operation on documents. Callers rarely want to
/// wait longer for a container whose throughput is used up.
const DATA_WAIT_MAX: Duration = Duration::from_secs(15);
/// The longest single wait of an operation on metadata: other operations may wait
/// for its result.
const METADATA_WAIT_MAX: Duration = Duration::from_secs(5);

/// The time that must be left before the deadline after a wait, for the answer to
/// arrive.
const DEADLINE_MARGIN: Duration = Duration::from_millis(100);

/// The retries and waits that one attempt has left for throttled requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ThrottleBudget {
    retries_made: u32,
    retries_max: u32,
    /// How much the attempt may still wait in all.
    wait_left: Duration,
    /// The longest single wait.
    single_wait_max: Duration,
}

impl ThrottleBudget {
    /// A budget of which nothing is spent yet.
    pub(crate) fn new(retries_max: u32, wait_max: Duration, is_data_plane: bool) -> Self {
        let single_wait_max = if is_data_plane { DATA_WAIT_MAX } else { METADATA_WAIT_MAX };
        ThrottleBudget { retries_made: 0, retries_max, wait_left: wait_max, single_wait_max }
    }
}

/// The verdict on a throttled answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ThrottleVerdict {
    /// Send the request again after the wait. `budget` is the remaining budget.
    RetryAfter { wait: Duration, budget: ThrottleBudget },
    /// Send no more requests: the throttled answer is the result of the attempt.
    GiveUp(GiveUp),
}

/// Why a throttled request is not repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GiveUp {
    /// The attempt has used all its retries.
    RetriesSpent,
    /// The wait is longer than one wait may be.
    WaitTooLong,
    /// The sum of the waits would exceed its limit.
    WaitSpent,
    /// The wait would end too near the deadline.
    DeadlineNear,
}

/// Whether a status means throttling. A replica that is out of resources also
/// answers 429 (429/3092), but waiting does not help there: the operation fails over.
pub(crate) fn is_throttle(status: Status) -> bool {
    match status {
        status::SYSTEM_RESOURCE_UNAVAILABLE => false,
        status::TOO_MANY_REQUESTS | Status { code: 429, .. } => true,
        Status { code: 0..=428 | 430..=u16::MAX, .. } => false,
    }
}

/// Decides whether a throttled request is sent again, and when. The wait that the service
/// asks for wins over the backoff. If that wait is longer than the longest single wait, the
/// retries end; a longer backoff is shortened. The retries also end if the wait would exceed the
/// limit of all waits together, or would end too near the deadline. `jitter` is a sample from 0 to
/// 1, `time_left` is the time until the operation's deadline.
pub(crate) fn judge(
    budget: ThrottleBudget,
    retry_after: Option<Duration>,
    jitter: f64,
    time_left: Duration,
) -> ThrottleVerdict {
    if budget.retries_made >= budget.retries_max {
        return ThrottleVerdict::GiveUp(GiveUp::RetriesSpent);
    }
    // A wait of zero is ignored: a request that is sent at once would be throttled again.
    let requested_wait = retry_after.filter(|wait| !wait.is_zero());
    let wait = requested_wait
        .unwrap_or_else(|| BACKOFF.wait(budget.retries_made, jitter).min(budget.single_wait_max));
    if wait > budget.single_wait_max {
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
        budget: ThrottleBudget { retries_made: budget.retries_made + 1, wait_left, ..budget },
    }
}
