//! `Pulse`: shows whether anybody still runs the runtime of a task.
//!
//! A runtime can exist while nobody runs it: a current-thread runtime makes progress only
//! inside `block_on`. A task on such a runtime neither ends nor is dropped, so whoever waits
//! for its result would wait for ever. So a task that others wait for says when it will run
//! again. A task that is far behind that time is taken to be stuck, and its work is done
//! anew elsewhere.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

/// How often a task in [`beating`] runs at least, and how often those who wait for it look at
/// its pulse.
pub(crate) const BEAT: Duration = Duration::from_millis(500);

/// A task in [`beating`] that is this late is taken to be stuck. A busy runtime is late by
/// much less. If the task runs again after all, its work was done twice, which does no harm.
pub(crate) const LATE_AFTER: Duration = Duration::from_secs(3);

/// When a task will run again.
#[derive(Debug)]
pub(crate) struct Pulse {
    /// The time below counts from here.
    began_at: Instant,
    due_ms: AtomicU64,
}

impl Pulse {
    /// The pulse of a task that is about to be started.
    pub(crate) fn new(now: Instant) -> Self {
        Pulse { began_at: now, due_ms: AtomicU64::new(0) }
    }

    /// The task will run again at this time at the latest.
    pub(crate) fn expect_at(&self, due_at: Instant) {
        let due = due_at.saturating_duration_since(self.began_at).as_millis();
        self.due_ms.store(u64::try_from(due).unwrap_or(u64::MAX), Ordering::Relaxed);
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
}

/// Runs a future that others wait for. The pulse shows whether it is still run.
pub(crate) async fn beating<F: Future>(pulse: &Pulse, future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        let due_at = Instant::now() + BEAT;
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
        let mut task = pin!(beating(&pulse, tokio::time::sleep(Duration::from_secs(60))));
        // While it is run, a long task is not stuck.
        assert!(tokio::time::timeout(Duration::from_secs(30), &mut task).await.is_err());
        assert!(!pulse.is_stuck(Instant::now()));
        tokio::time::advance(LATE_AFTER / 2).await;
        assert!(!pulse.is_stuck(Instant::now()), "a busy runtime is late");
        tokio::time::advance(LATE_AFTER).await;
        assert!(pulse.is_stuck(Instant::now()));
        // It runs again.
        assert!(tokio::time::timeout(Duration::ZERO, &mut task).await.is_err());
        assert!(!pulse.is_stuck(Instant::now()));
    }
}
