//! `Pulse`: shows whether the runtime of a task still makes progress.
//!
//! A runtime can exist and make no progress: a current-thread runtime runs its tasks only
//! inside `block_on`. A task on such a runtime neither ends nor is dropped, so a caller that
//! waits for its result would wait forever. So a task that others wait for records when it will
//! run again. A task that is far behind that time is taken to be stuck, and its work is done
//! again in another task.
//!
//! When the whole process was stopped for a while (a signal, a debugger, a paused virtual machine),
//! every task is far behind, and runs again a moment later. So before a caller gives up something
//! of value, such as an open connection, it gives the task some time to run again
//! ([`Pulse::is_given_up`]).
//!
//! A caller also gives some time to a task of its own runtime. Some programs run their runtime only
//! during single calls of `block_on`, and all its tasks are late when such a call begins
//! ([`Pulse::is_stuck_for`]).

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::{self, Handle};
use tokio::time::{Instant, timeout_at};

/// A task in [`run_with_pulse`] runs at least this often, and callers that wait for it check its
/// pulse this often.
pub(crate) const PULSE_INTERVAL: Duration = Duration::from_millis(500);

/// A task in [`run_with_pulse`] that is this late is taken to be stuck. A busy runtime is late by
/// much less. If the task runs again after all, its work was done twice, which does no harm.
pub(crate) const LATE_AFTER: Duration = Duration::from_secs(3);

/// A task that seems to be stuck has this long to run again, before something of value is given
/// up. A task that was stopped with the whole process runs again within milliseconds.
pub(crate) const RESUME_GRACE: Duration = Duration::from_millis(250);

/// The pulse of a task: when the task will run again.
#[derive(Debug)]
pub(crate) struct Pulse {
    /// The times in the other fields count from here.
    began_at: Instant,
    /// When the task is to run again, at the latest.
    due_ms: AtomicU64,
    /// When the task was first seen to be stuck; [`NOT_STUCK`] if it runs.
    stuck_since_ms: AtomicU64,
}

const NOT_STUCK: u64 = u64::MAX;

impl Pulse {
    /// The pulse of a task that is about to be started.
    pub(crate) fn new(now: Instant) -> Self {
        Pulse { began_at: now, due_ms: AtomicU64::new(0), stuck_since_ms: AtomicU64::new(NOT_STUCK) }
    }

    /// Records that the task will run again at this time at the latest.
    pub(crate) fn expect_at(&self, due_at: Instant) {
        self.due_ms.store(self.milliseconds(due_at), Ordering::Relaxed);
        self.stuck_since_ms.store(NOT_STUCK, Ordering::Relaxed);
    }

    /// Records that the task is to run at this time at the latest, if it is not expected earlier.
    pub(crate) fn expect_by(&self, due_at: Instant) {
        self.due_ms.fetch_min(self.milliseconds(due_at), Ordering::Relaxed);
    }

    /// Whether the task should have run, and is late by more than `late_after`.
    pub(crate) fn is_late_by(&self, late_after: Duration, now: Instant) -> bool {
        let due = Duration::from_millis(self.due_ms.load(Ordering::Relaxed));
        now.saturating_duration_since(self.began_at) > due.saturating_add(late_after)
    }

    /// Whether the task is stuck.
    pub(crate) fn is_stuck(&self, now: Instant) -> bool {
        self.is_late_by(LATE_AFTER, now)
    }

    /// Whether the task is stuck, and an earlier call at least [`RESUME_GRACE`] ago found it stuck
    /// too. The first call for a stuck task returns `false`.
    pub(crate) fn is_given_up(&self, now: Instant) -> bool {
        if !self.is_stuck(now) {
            return false;
        }
        let now_ms = self.milliseconds(now);
        let since = self.stuck_since_ms.fetch_min(now_ms, Ordering::Relaxed);
        since != NOT_STUCK && now_ms.saturating_sub(since) >= RESUME_GRACE.as_millis() as u64
    }

    /// Whether a caller should do the work of a task on `runtime` again. A task of the caller's own
    /// runtime first gets time to run. If it still does not run, its thread is blocked.
    pub(crate) fn is_stuck_for(&self, runtime: runtime::Id, now: Instant) -> bool {
        match is_current_runtime(runtime) {
            true => self.is_given_up(now),
            false => self.is_stuck(now),
        }
    }

    /// When the task is to run again, in milliseconds since the pulse began.
    #[cfg(test)]
    pub(crate) fn due_ms(&self) -> u64 {
        self.due_ms.load(Ordering::Relaxed)
    }

    fn milliseconds(&self, moment: Instant) -> u64 {
        let since = moment.saturating_duration_since(self.began_at).as_millis();
        u64::try_from(since).unwrap_or(NOT_STUCK - 1)
    }
}

/// The runtime of the current task.
pub(crate) fn current_runtime() -> runtime::Id {
    Handle::current().id()
}

/// Whether the current task runs on this runtime. Some programs run their runtime only during single
/// calls of `block_on`. At the beginning of each call all its tasks are late, and go on during the
/// call. If each call started their work again, work that takes longer than one call would never end.
pub(crate) fn is_current_runtime(runtime: runtime::Id) -> bool {
    current_runtime() == runtime
}

/// Runs a future that others wait for. The pulse shows whether it still makes progress.
pub(crate) async fn run_with_pulse<F: Future>(pulse: &Pulse, future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        let due_at = Instant::now() + PULSE_INTERVAL;
        pulse.expect_at(due_at);
        if let Ok(done) = timeout_at(due_at, &mut future).await {
            return done;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_is_not_run_is_stuck() {
        let pulse = Arc::new(Pulse::new(Instant::now()));
        let mut task = pin!(run_with_pulse(&pulse, tokio::time::sleep(Duration::from_secs(60))));
        // While a long task is run, it is not stuck.
        assert!(tokio::time::timeout(Duration::from_secs(30), &mut task).await.is_err());
        assert!(!pulse.is_stuck(Instant::now()));
        tokio::time::advance(LATE_AFTER / 2).await;
        assert!(!pulse.is_stuck(Instant::now()), "a busy runtime is late, but not stuck");
        tokio::time::advance(LATE_AFTER).await;
        assert!(pulse.is_stuck(Instant::now()));
        // The task runs again.
        assert!(tokio::time::timeout(Duration::ZERO, &mut task).await.is_err());
        assert!(!pulse.is_stuck(Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stuck_task_gets_time_to_run_again_before_it_is_given_up() {
        let pulse = Pulse::new(Instant::now());
        let advance = tokio::time::advance;
        // In the second round the task has run again, so it gets the same time once more.
        for _ in 0..2 {
            pulse.expect_at(Instant::now());
            advance(LATE_AFTER + RESUME_GRACE).await;
            assert!(!pulse.is_given_up(Instant::now()), "the first call finds the task stuck");
            advance(RESUME_GRACE / 2).await;
            assert!(!pulse.is_given_up(Instant::now()));
            advance(RESUME_GRACE / 2).await;
            assert!(pulse.is_given_up(Instant::now()));
        }
    }
}
