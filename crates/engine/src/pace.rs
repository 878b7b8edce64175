//! `Pace`: ends a page of a query or of a change feed after some time.
//!
//! The service gives a page 5 seconds. Then it answers with the rows that it has found, even if
//! there are none, and a continuation. Here a page also ends early if the owner of the engine says
//! so, because other reads wait for their turn. Every page reads at least one entry, so that a
//! query makes progress however short its pages are.

use std::cell::Cell;
use std::time::Duration;

use perihelion_wire::status;

use crate::clock::Clock;
use crate::page_memory::{HeldMemory, PageMemory, Unlimited};
use crate::refusal::{Layer, Refusal};

/// The longest time of a page, as the service documents it.
const PAGE_TIME_MAX: Duration = Duration::from_secs(5);

/// The longest time of a page that needs all documents before it can return a row: aggregates,
/// DISTINCT, GROUP BY and statements in stages. Clients wait for an answer about this long.
const GATHERING_TIME_MAX: Duration = Duration::from_secs(60);

/// The longest time of a page together with the time that it waits for other reads. No client waits
/// for an answer this long, and other reads would wait for the page.
const TIME_WITH_WAITS_MAX: Duration = Duration::from_secs(120);

/// One wait counts as at most this time. The longest wait in the server is 35 s: 30 s for a long
/// turn and 5 s for a processor (`long_reads` in the server). A much longer wait only means that the
/// clock was set forward during the wait.
const WAIT_COUNTED_MAX: Duration = Duration::from_secs(40);

/// The most bytes of a page, as in the service.
pub const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What ends a page before it is full.
#[derive(Clone, Copy)]
pub struct PageLimits<'a> {
    /// The time of the page.
    pub time_max: Duration,
    /// Called before each entry that the page reads, and between other parts of its work. It may
    /// wait, and it may refuse the page. It has nothing to do with the checkpoints of the disk store.
    pub checkpoint: &'a dyn Fn(PageEnd) -> Result<CheckpointResult, Refusal>,
    /// Called with the bytes of each document of a query before the document is evaluated. It may
    /// refuse the page.
    pub on_document: &'a dyn Fn(usize) -> Result<(), Refusal>,
    /// The most bytes of the rows or items of the page. A page has more only if its first row, or
    /// the items of its first write, have more.
    pub bytes_max: usize,
    /// The memory for rows and groups.
    pub memory: &'a dyn PageMemory,
}

/// Whether a page can end now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageEnd {
    /// The page can end, and the next page goes on at no extra cost.
    Cheap,
    /// The page has to go on, or much of its work is lost.
    Costly,
}

/// The result of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointResult {
    /// The page goes on.
    GoOn,
    /// The page should end, because other reads wait. Only for [`PageEnd::Cheap`].
    ShouldEnd,
}

impl Default for PageLimits<'_> {
    fn default() -> Self {
        PageLimits {
            time_max: PAGE_TIME_MAX,
            checkpoint: &|_| Ok(CheckpointResult::GoOn),
            on_document: &|_| Ok(()),
            bytes_max: PAGE_BYTES_MAX,
            memory: &Unlimited,
        }
    }
}

/// The time that a page has taken.
pub(crate) struct Pace<'a> {
    clock: &'a Clock,
    began_at: Duration,
    limits: PageLimits<'a>,
    /// How many entries the page has read.
    entries: Cell<u64>,
    /// How long the page has waited for its turn. This time does not count as time of the page.
    waited: Cell<Duration>,
    /// How long the page has waited, where each wait counts as at most [`WAIT_COUNTED_MAX`].
    waited_counted: Cell<Duration>,
}

impl<'a> Pace<'a> {
    pub(crate) fn start(clock: &'a Clock, limits: PageLimits<'a>) -> Self {
        Pace {
            clock,
            began_at: clock.unix_time(),
            limits,
            entries: Cell::new(0),
            waited: Cell::default(),
            waited_counted: Cell::default(),
        }
    }

    /// Counts an entry that is about to be read. Returns whether the page has to end before it.
    pub(crate) fn ends_before_entry(&self, end: PageEnd) -> Result<bool, Refusal> {
        let entries = self.entries.get();
        self.entries.set(entries.saturating_add(1));
        let (checked, time) = self.checkpoint(end)?;
        let is_over = time >= self.limits.time_max || self.with_waits(time) >= TIME_WITH_WAITS_MAX;
        Ok(entries > 0 && (checked == CheckpointResult::ShouldEnd || is_over))
    }

    /// Asks whether the page may evaluate a document of this size.
    pub(crate) fn check_document(&self, bytes: usize) -> Result<(), Refusal> {
        (self.limits.on_document)(bytes)
    }

    /// Starts to count the memory that the page holds.
    pub(crate) fn held_memory(&self) -> HeldMemory<'a> {
        HeldMemory::new(self.limits.memory)
    }

    /// The most bytes of the page.
    pub(crate) fn bytes_max(&self) -> usize {
        self.limits.bytes_max
    }

    /// Whether the time of the page is over.
    pub(crate) fn is_over(&self) -> bool {
        self.time() >= self.limits.time_max
    }

    /// Refuses a page that cannot end early and has taken too long, as the service refuses an
    /// operation that times out.
    pub(crate) fn check_gathering(&self) -> Result<(), Refusal> {
        let (_, time) = self.checkpoint(PageEnd::Costly)?;
        if time < GATHERING_TIME_MAX && self.with_waits(time) < TIME_WITH_WAITS_MAX {
            return Ok(());
        }
        Err(Refusal::new(
            status::REQUEST_TIMEOUT,
            Layer::Backend,
            "The query has to read too many documents before its first row. Narrow its filter or its partition.",
        ))
    }

    /// Lets other reads run if they wait for this read. Also returns the time that the page has
    /// taken, without its waits.
    fn checkpoint(&self, end: PageEnd) -> Result<(CheckpointResult, Duration), Refusal> {
        let (before, waited) = (self.clock.unix_time(), self.waited.get());
        let checked = (self.limits.checkpoint)(end)?;
        let wait = self.clock.unix_time().saturating_sub(before);
        self.waited.set(waited.saturating_add(wait));
        self.waited_counted.set(self.waited_counted.get().saturating_add(wait.min(WAIT_COUNTED_MAX)));
        Ok((checked, before.saturating_sub(self.began_at).saturating_sub(waited)))
    }

    /// The time that the page has taken, together with its waits.
    fn with_waits(&self, time: Duration) -> Duration {
        time.saturating_add(self.waited_counted.get())
    }

    fn time(&self) -> Duration {
        self.clock.unix_time().saturating_sub(self.began_at).saturating_sub(self.waited.get())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A clock, and the seconds that it shows.
    fn new_clock() -> (Clock, Arc<AtomicU64>) {
        let seconds = Arc::new(AtomicU64::new(1_700_000_000));
        let shown = Arc::clone(&seconds);
        (Clock::from_fn(move || Duration::from_secs(shown.load(Ordering::Relaxed))), seconds)
    }

    /// Story of a bug: the time that a page waits for its turn did not count. With many other reads a
    /// page ran for minutes, long after its client had given up.
    #[test]
    fn a_page_that_cannot_end_early_is_refused_after_a_long_wait() {
        let (clock, seconds) = new_clock();
        let wait = |_| {
            seconds.fetch_add(50, Ordering::Relaxed);
            Ok(CheckpointResult::GoOn)
        };
        let pace = Pace::start(&clock, PageLimits { checkpoint: &wait, ..PageLimits::default() });
        assert_eq!(pace.check_gathering(), Ok(()));
        assert_eq!(pace.check_gathering(), Ok(()));
        assert_eq!(pace.check_gathering().unwrap_err().status, 408);
    }

    /// Story of a bug: when the clock was set forward during a wait, the page was refused although it had
    /// hardly waited.
    #[test]
    fn a_clock_that_is_set_forward_during_a_wait_does_not_end_a_page() {
        let (clock, seconds) = new_clock();
        let is_set = Cell::new(false);
        let wait = |_| {
            if !is_set.replace(true) {
                seconds.fetch_add(3600, Ordering::Relaxed);
            }
            Ok(CheckpointResult::GoOn)
        };
        let pace = Pace::start(&clock, PageLimits { checkpoint: &wait, ..PageLimits::default() });
        for _ in 0..3 {
            assert_eq!(pace.check_gathering(), Ok(()));
            assert_eq!(pace.ends_before_entry(PageEnd::Cheap), Ok(false));
        }
    }
}
