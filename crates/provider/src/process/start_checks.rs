//! `StartChecks`: decides whether the state of an instance is read when its start is enqueued.
//!
//! After a process has enqueued a start, it claims the first turn without reading the state, because
//! almost every start is for a new instance. If the instance exists, the commit of that turn is
//! refused, and the runtime logs warnings though nothing is wrong. That happens when a program
//! which starts a workflow is run again. So starts are checked at first, and for some time after a
//! start of an existing instance. A check is one point read, at the same time as the write of the
//! start.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::sync::lock;

/// How long starts are checked after the provider was opened on a container that existed.
const CHECKED_AT_FIRST: Duration = Duration::from_secs(60);

/// How long starts are checked after a start of an instance that existed.
const CHECKED_AFTER_COLLISION: Duration = Duration::from_secs(3600);

/// Until when starts are checked.
#[derive(Debug)]
pub(crate) struct StartChecks(Mutex<Instant>);

impl StartChecks {
    /// The checks of a provider that is opened now. A container that it has just created has no
    /// instances.
    pub(crate) fn new(is_new_container: bool) -> Self {
        let checked_for = if is_new_container { Duration::ZERO } else { CHECKED_AT_FIRST };
        StartChecks(Mutex::new(Instant::now() + checked_for))
    }

    /// Whether a start is checked now.
    pub(crate) fn is_due(&self) -> bool {
        Instant::now() < *lock(&self.0)
    }

    /// Records the start of an instance that existed.
    pub(crate) fn record_collision(&self) {
        let mut until = lock(&self.0);
        *until = (*until).max(Instant::now() + CHECKED_AFTER_COLLISION);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn starts_are_checked_at_first_and_after_a_collision() {
        let checks = StartChecks::new(false);
        assert!(checks.is_due() && !StartChecks::new(true).is_due());
        tokio::time::advance(CHECKED_AT_FIRST).await;
        assert!(!checks.is_due());
        checks.record_collision();
        tokio::time::advance(CHECKED_AFTER_COLLISION / 2).await;
        assert!(checks.is_due());
        tokio::time::advance(CHECKED_AFTER_COLLISION).await;
        assert!(!checks.is_due());
    }
}
