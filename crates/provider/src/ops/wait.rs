//! `FetchWait`: how long a fetch waits for work. A fetch whose timeout is below
//! `long_poll_threshold` looks once. A fetch with a longer timeout waits for hints, polls
//! now and then, and keeps waiting through an outage.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use crate::documents::stamp::Stamp;
use crate::failure::Failure;
use crate::options::config::Options;
use crate::process::clock::HybridClock;
use crate::process::notice::Notice;
use crate::timing::RETRY_FOR;

/// The pause between attempts of a waiting fetch while the database does not answer.
const OUTAGE_PAUSE: Duration = Duration::from_millis(500);

/// How long a call of a client may wait for the database before a line in the log says so.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// The longest wait. A longer timeout counts as this one, because the wait is added to an
/// `Instant`, which must not overflow.
const WAIT_MAX: Duration = Duration::from_secs(24 * 3600);

/// The waiting time of one fetch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FetchWait {
    /// Whether the fetch waits for work. If not, it looks once.
    is_long: bool,
    /// When the timeout of the fetch ends.
    deadline: Instant,
}

impl FetchWait {
    /// The wait of a fetch that begins now. A `poll_timeout` above [`WAIT_MAX`] counts as
    /// [`WAIT_MAX`].
    pub(crate) fn new(options: &Options, poll_timeout: Duration) -> Self {
        let is_long = poll_timeout >= options.long_poll_threshold && !poll_timeout.is_zero();
        FetchWait { is_long, deadline: Instant::now() + poll_timeout.min(WAIT_MAX) }
    }

    pub(crate) fn is_long(self) -> bool {
        self.is_long
    }

    /// Whether a fetch without work returns now.
    pub(crate) fn is_over(self) -> bool {
        !self.is_long || Instant::now() >= self.deadline
    }

    /// When the fetch tries again unless it is woken: at the next hint, the next poll or the
    /// end of its timeout, whichever is first.
    pub(crate) fn next_attempt_at(
        self,
        clock: &HybridClock,
        next_hint_at: Option<Stamp>,
        next_poll_at: Instant,
    ) -> Instant {
        let next_hint_at = next_hint_at.map_or(self.deadline, |stamp| instant_after(clock, stamp));
        next_hint_at.min(next_poll_at).min(self.deadline)
    }

    /// Pauses after a transient failure, because the runtime's own backoff overflows after
    /// about sixty failures in a row. Other failures are returned. If the container is missing, the
    /// failure is returned after the pause, because the runtime fetches again at once. Every failure
    /// is returned without a pause if the fetch does not wait, or if its timeout ends before the pause.
    pub(crate) async fn pause_after(self, failure: Failure, notice: &Notice) -> Result<(), Failure> {
        let may_pause = failure.is_transient() || failure.is_container_missing();
        if !(self.is_long && may_pause && Instant::now() + OUTAGE_PAUSE < self.deadline) {
            return Err(failure);
        }
        write_outage_notice(notice, &failure);
        tokio::time::sleep(OUTAGE_PAUSE).await;
        if failure.is_transient() { Ok(()) } else { Err(failure) }
    }
}

/// Logs that the database does not answer: at once, and then once a minute.
pub(crate) fn write_outage_notice(notice: &Notice, failure: &Failure) {
    if !notice.is_due() {
        return;
    }
    if failure.is_container_missing() {
        tracing::warn!(
            reason = failure.summary(),
            "the container does not exist any more, so nothing runs. Create it again, or end this process. This \
             line comes once a minute"
        );
    } else {
        tracing::warn!(
            reason = failure.summary(),
            "the database does not answer; work waits and is tried again. Check the account, its regions and the \
             network. This line comes once a minute"
        );
    }
}

/// Runs work that a person may wait for. If it takes longer than [`SILENCE_MAX`], logs that the
/// database does not answer: at most once a minute for all calls together. `what` names the work in
/// the log.
pub(crate) async fn with_outage_notice<T>(notice: &Notice, what: &str, work: impl Future<Output = T>) -> T {
    tokio::pin!(work);
    match tokio::time::timeout(SILENCE_MAX, work.as_mut()).await {
        Ok(done) => done,
        Err(_) => {
            if notice.is_due() {
                tracing::warn!(
                    "{what} waits: the database has not answered for {} s. It is tried for {} s in total. Check the \
                     account, its regions and the network. This line comes once a minute",
                    SILENCE_MAX.as_secs(),
                    RETRY_FOR.as_secs(),
                );
            }
            work.await
        }
    }
}

/// The first millisecond, on tokio's clock, at which a stamp is in the past.
fn instant_after(clock: &HybridClock, stamp: Stamp) -> Instant {
    Instant::now() + Duration::from_millis((stamp.ms() + 1).saturating_sub(clock.now_ms()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_that_waits_for_the_database_says_so_after_two_seconds() {
        let notice = Notice::default();
        let work = |seconds| tokio::time::sleep(Duration::from_secs(seconds));
        let begun = Instant::now();
        with_outage_notice(&notice, "a start", work(1)).await;
        assert!(notice.is_due(), "a short wait is not worth a line");
        let notice = Notice::default();
        with_outage_notice(&notice, "a start", work(19)).await;
        assert!(!notice.is_due(), "the line was written");
        assert_eq!(begun.elapsed(), Duration::from_secs(20), "the work was not disturbed");
    }
}
