//! How long a fetch waits for work: both queues wait alike. A fetch with little
//! time looks once; one with more waits for hints, looks at storage now and
//! then, and waits out an outage.

use std::time::Duration;

use tokio::time::Instant;

use crate::documents::stamp::Stamp;
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::process::clock::HybridClock;

/// Between attempts of a waiting fetch while the database does not answer.
const OUTAGE_PAUSE: Duration = Duration::from_millis(500);

/// No fetch waits longer, whatever it asks for: a time of its caller's is added
/// to a clock, which has an end.
const WAIT_MAX: Duration = Duration::from_secs(24 * 3600);

/// The time of one fetch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FetchWait {
    is_long: bool,
    deadline: Instant,
}

impl FetchWait {
    pub(crate) fn new(core: &Core, poll_timeout: Duration) -> Self {
        let is_long = poll_timeout >= core.options.long_poll_threshold && !poll_timeout.is_zero();
        FetchWait { is_long, deadline: Instant::now() + poll_timeout.min(WAIT_MAX) }
    }

    /// Whether it waits at all.
    pub(crate) fn is_long(self) -> bool {
        self.is_long
    }

    pub(crate) fn is_over(self) -> bool {
        !self.is_long || Instant::now() >= self.deadline
    }

    /// When to look again unless woken: at the next hint, or for a poll.
    pub(crate) fn next_look(self, clock: &HybridClock, hinted: Option<Stamp>, polled: Instant) -> Instant {
        let hinted = hinted.map_or(self.deadline, |stamp| instant_of(clock, stamp));
        hinted.min(polled).min(self.deadline)
    }

    /// Waits out an outage, because the runtime's own waits end in a hot loop
    /// after a minute of them. Gives the failure back when it is not one, or
    /// when there is no time.
    pub(crate) async fn outlast(self, failure: Failure) -> Result<(), Failure> {
        if !(self.is_long && failure.is_transient() && Instant::now() + OUTAGE_PAUSE < self.deadline) {
            return Err(failure);
        }
        tracing::warn!(?failure, "a fetch waits for the database");
        tokio::time::sleep(OUTAGE_PAUSE).await;
        Ok(())
    }
}

/// When a stamp comes, by the clock that waiting goes by.
fn instant_of(clock: &HybridClock, stamp: Stamp) -> Instant {
    Instant::now() + Duration::from_millis((stamp.ms() + 1).saturating_sub(clock.now_ms()))
}
