//! `FailingCauses`: parts of the work of this process that fail while the rest of the database answers,
//! and when the person on call was last told about each of them.
//!
//! A cause is reported when it has failed for some seconds, and then at most once a minute. While nothing
//! else is answered either, the database is out, which the notice of an outage says. Then no cause is
//! reported. The number of causes is bounded, so an outage of many partitions writes a bounded number of
//! lines.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::process::memory_size::MemorySize;
use crate::process::notice::Notice;
use crate::sync::lock;

/// The most causes remembered. Further causes are not reported until some of these are forgotten.
const CAUSES_MAX: usize = 32;

/// A cause that has failed for a shorter time is not reported: most failures pass. It is also the time
/// within which another answer shows that the database is not out. A process that waits for work polls
/// more often.
const REPORTED_AFTER: Duration = Duration::from_secs(5);

/// An answer shortly after a failure may belong to a request that was sent before an outage.
const LATE_ANSWER_MAX: Duration = Duration::from_secs(1);

/// A cause that has not failed for this time is forgotten. Longer than the pauses between two failed
/// rounds of the reconciler in one partition.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(120);

/// No success clears claims of instances, locks of activities and claims of sessions. If one of them has not
/// failed for this time, the next failure is a new one. While each attempt fails, two failures are less than
/// 48 s apart: an instance is claimed at most 24 s after its last failed claim, and the claim takes at most
/// 24 s.
const ENDED_AFTER: Duration = Duration::from_secs(60);

/// What fails. Partitions are physical ones, named by their first key; `None` if the partitions are not
/// known.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Cause {
    /// Claims of instances of this partition.
    Claims(Option<String>),
    /// Locks of activities of this partition.
    ActivityLocks(Option<String>),
    /// Claims of sessions whose documents are in this partition.
    Sessions(String),
    /// The heartbeat of this process, or reading those of the others.
    Heartbeat,
    /// The reconciler's rounds in this partition.
    Repair(String),
}

impl Cause {
    /// Whether the work clears the cause when it succeeds.
    fn is_cleared_by_success(&self) -> bool {
        match self {
            Cause::Claims(_) | Cause::ActivityLocks(_) | Cause::Sessions(_) => false,
            Cause::Heartbeat | Cause::Repair(_) => true,
        }
    }
}

/// The causes that have failed lately.
#[derive(Debug, Default)]
pub(crate) struct FailingCauses(Mutex<HashMap<Cause, Failing>>);

#[derive(Debug)]
struct Failing {
    /// The first failure since the work last succeeded or, for some causes, since a pause without failures.
    since: Instant,
    /// The last failure.
    last_at: Instant,
    /// The failures since the last notice.
    count: u32,
    notice: Notice,
}

impl FailingCauses {
    /// Records a failure at `now`. Returns the number of failures since the last notice if a notice is to
    /// be written now. `answered_at` is when the database last answered any request of this process.
    pub(crate) fn record(&self, cause: Cause, now: Instant, answered_at: Option<Instant>) -> Option<u32> {
        let mut causes = lock(&self.0);
        causes.retain(|_, failing| now.saturating_duration_since(failing.last_at) < FORGOTTEN_AFTER);
        if causes.len() >= CAUSES_MAX && !causes.contains_key(&cause) {
            return None;
        }
        let new = || Failing { since: now, last_at: now, count: 0, notice: Notice::default() };
        let is_ended_by_pause = !cause.is_cleared_by_success();
        let failing = causes.entry(cause).or_insert_with(new);
        let last_at = std::mem::replace(&mut failing.last_at, now);
        if is_ended_by_pause && now.saturating_duration_since(last_at) > ENDED_AFTER {
            failing.since = now;
        }
        failing.count += 1;
        let is_answered = answered_at.is_some_and(|at| {
            at + REPORTED_AFTER > now || at >= last_at.max(failing.since) + LATE_ANSWER_MAX
        });
        let is_reported = now >= failing.since + REPORTED_AFTER && is_answered && failing.notice.is_due();
        is_reported.then(|| std::mem::take(&mut failing.count))
    }

    /// Forgets a cause: the work has succeeded.
    pub(crate) fn clear(&self, cause: &Cause) {
        lock(&self.0).remove(cause);
    }

    /// The number of causes.
    pub(crate) fn memory_size(&self) -> MemorySize {
        MemorySize::kept("failing causes", lock(&self.0).len(), CAUSES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Fails every second for five minutes. Returns how many notices are written.
    async fn notices(answered_at: impl Fn(Instant) -> Option<Instant>) -> usize {
        let (causes, mut written) = (FailingCauses::default(), 0);
        for _ in 0..300 {
            let now = Instant::now();
            written += usize::from(causes.record(Cause::Heartbeat, now, answered_at(now)).is_some());
            tokio::time::advance(SECOND).await;
        }
        written
    }

    #[tokio::test(start_paused = true)]
    async fn a_cause_is_reported_once_a_minute_while_other_requests_are_answered() {
        assert_eq!(notices(|now| Some(now - SECOND)).await, 5);
        let begun = Instant::now();
        assert_eq!(notices(|_| Some(begun)).await, 0, "in an outage");
        assert_eq!(notices(|_| None).await, 0, "nothing was ever answered");
    }

    #[tokio::test(start_paused = true)]
    async fn a_cause_that_fails_seldom_is_reported_when_something_was_answered_between_two_failures() {
        let causes = FailingCauses::default();
        let failure_after_a_minute = async |answered: Duration| {
            let before = Instant::now();
            tokio::time::advance(60 * SECOND).await;
            causes.record(Cause::Heartbeat, Instant::now(), Some(before + answered))
        };
        assert_eq!(failure_after_a_minute(SECOND).await, None, "the first failure");
        assert_eq!(failure_after_a_minute(SECOND / 2).await, None, "that answer may be an old one");
        assert_eq!(failure_after_a_minute(30 * SECOND).await, Some(3));
        causes.clear(&Cause::Heartbeat);
        assert_eq!(failure_after_a_minute(30 * SECOND).await, None, "it worked in between");
    }

    /// Records failures of a cause that no success clears. Between two of them there are `pause` seconds, in
    /// which other requests are answered. Returns what is reported.
    async fn reports_of_claims(pause: u32, count: usize) -> Vec<Option<u32>> {
        let (causes, mut reports) = (FailingCauses::default(), Vec::new());
        for _ in 0..count {
            let now = Instant::now();
            reports.push(causes.record(Cause::Claims(None), now, Some(now)));
            tokio::time::advance(pause * SECOND).await;
        }
        reports
    }

    #[tokio::test(start_paused = true)]
    async fn two_failed_claims_that_are_far_apart_are_not_reported() {
        assert_eq!(reports_of_claims(90, 2).await, [None, None]);
        // The longest time limit of a claim, and the pause after it.
        assert_eq!(reports_of_claims(24 + 24, 2).await, [None, Some(2)], "each attempt fails");
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_causes_and_so_of_lines_is_limited() {
        let (causes, mut written) = (FailingCauses::default(), 0);
        for _ in 0..10 {
            let now = Instant::now();
            let record = |number| causes.record(Cause::Repair(format!("{number}")), now, Some(now));
            written += (0..1_000).filter_map(record).count();
            tokio::time::advance(SECOND).await;
        }
        assert_eq!((written, causes.memory_size().entries), (CAUSES_MAX, CAUSES_MAX));
        tokio::time::advance(FORGOTTEN_AFTER).await;
        causes.record(Cause::Heartbeat, Instant::now(), None);
        assert_eq!(causes.memory_size().entries, 1, "old ones are forgotten");
    }
}
