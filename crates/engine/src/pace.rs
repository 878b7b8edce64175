//! `Pace`: ends a page of a query or of a change feed after some time.
//!
//! The service gives a page 5 seconds and then answers with what it has found, even if that is
//! nothing, and a continuation. Here a page also ends early if its owner says so, because other
//! reads wait for their turn. Every page reads at least one entry, so that a query ends however
//! short its pages are.

use std::cell::Cell;
use std::time::Duration;

use perihelion_wire::status;

use crate::clock::Clock;
use crate::page_memory::{HeldMemory, PageMemory, Unlimited};
use crate::refusal::{Layer, Refusal};

/// The time of a page, as the service documents it.
const PAGE_TIME_MAX: Duration = Duration::from_secs(5);

/// The time of a page that needs all documents before it can return a row: aggregates, DISTINCT,
/// GROUP BY and statements in stages. Clients wait for an answer about this long.
const GATHERING_TIME_MAX: Duration = Duration::from_secs(60);

/// The most bytes of a page, as in the service.
pub const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What ends a page before it is full.
#[derive(Clone, Copy)]
pub struct PageLimits<'a> {
    /// The time of the page.
    pub time_max: Duration,
    /// Called before each document. It may wait, and it may refuse the page.
    pub checkpoint: &'a dyn Fn(PageEnd) -> Result<Checked, Refusal>,
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

/// What a checkpoint says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checked {
    /// The page goes on.
    GoOn,
    /// The page should end, because other reads wait. Only for [`PageEnd::Cheap`].
    ShouldEnd,
}

impl Default for PageLimits<'_> {
    fn default() -> Self {
        PageLimits {
            time_max: PAGE_TIME_MAX,
            checkpoint: &|_| Ok(Checked::GoOn),
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
    /// How long the page has waited for its turn. This time is not the page's.
    waited: Cell<Duration>,
}

impl<'a> Pace<'a> {
    pub(crate) fn start(clock: &'a Clock, limits: PageLimits<'a>) -> Self {
        Pace { clock, began_at: clock.unix_time(), limits, entries: Cell::new(0), waited: Cell::default() }
    }

    /// Counts an entry that is about to be read. Returns whether the page has to end before it.
    pub(crate) fn ends_before_entry(&self, end: PageEnd) -> Result<bool, Refusal> {
        let entries = self.entries.get();
        self.entries.set(entries.saturating_add(1));
        let (checked, time) = self.checkpoint(end)?;
        Ok(entries > 0 && (checked == Checked::ShouldEnd || time >= self.limits.time_max))
    }

    /// The memory of the page, which holds nothing yet.
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
        if time < GATHERING_TIME_MAX {
            return Ok(());
        }
        Err(Refusal::new(
            status::REQUEST_TIMEOUT,
            Layer::Backend,
            "The query has to read too many documents before its first row. Narrow its filter or its partition.",
        ))
    }

    /// Lets other reads run if they wait for this one. Returns also the time that the page has taken.
    fn checkpoint(&self, end: PageEnd) -> Result<(Checked, Duration), Refusal> {
        let (before, waited) = (self.clock.unix_time(), self.waited.get());
        let checked = (self.limits.checkpoint)(end)?;
        self.waited.set(waited.saturating_add(self.clock.unix_time().saturating_sub(before)));
        Ok((checked, before.saturating_sub(self.began_at).saturating_sub(waited)))
    }

    fn time(&self) -> Duration {
        self.clock.unix_time().saturating_sub(self.began_at).saturating_sub(self.waited.get())
    }
}
