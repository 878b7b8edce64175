//! The polls of one range of the container, which is a slice or a physical partition. One poll
//! runs at a time, and continues with the cursor of the poll before.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use perihelion_client::{FeedRange, QueryFeed};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::cursor::{NextStep, PAGES_MAX, PageRead, PollCursors, PollTime};
use super::ingest::{FoundWork, Room, ingest};
use super::query::PollQuery;
use super::schedule::Schedule;
use super::spread::{Spread, last_query};
use super::targets::is_dividing;
use super::{ANSWER_TIMEOUT, no_answer};
use crate::documents::DocumentType;
use crate::documents::stamp::Stamp;
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::ops::heartbeat;
use crate::process::interest::{Interest, Interests, WaitingInterests};
use crate::sync::lock;

/// A poll may always add this many instances and activities to the hints, if these are empty.
const ROOM_MIN: usize = 16;

/// The process asks others for help if, for this long, no poll has had room in the hints for all
/// instances that it found. It does not ask sooner, for two reasons. First, the room grows with the
/// work that is taken, so after a sudden rise of the load it is large enough within a few polls.
/// Second, in a slice that others help with, every turn needs a durable lock.
const HELP_AFTER: Duration = Duration::from_millis(800);

/// A fetch with a short timeout waits for a running poll of a partition that answers: this many times
/// [`ANSWER_TIMEOUT`]. Such a poll may read several pages of a throttled partition, and each of them may
/// take that long.
const RUNNING_POLL_PAGES: u32 = 4;

/// Up to this many pieces of work in the hints are counted.
const COUNTED_MAX: usize = 4096;

/// The most rows of one page.
const PAGE_ROWS: u32 = 64;

/// The time limit of a page doubles at most this many times, to 64 seconds.
const TIMEOUT_DOUBLINGS_MAX: u32 = 5;

/// The polls of one range.
#[derive(Debug)]
pub(super) struct RangePoller {
    range: FeedRange,
    /// For a physical partition: whether it is the only one. `None` for a slice.
    is_only_partition: Option<bool>,
    schedule: Schedule,
    /// The numbers of instances and activities that fetches had taken by the last poll.
    taken_before: StdMutex<(u64, u64)>,
    /// Since when every poll has left instances because there was no room.
    full_since: StdMutex<Option<Instant>>,
    /// Whether a task polls the range. See [`Running`].
    is_running: Arc<AtomicBool>,
    /// Where the next poll begins. The poll that runs holds this mutex.
    cursor: Mutex<PollCursors>,
    /// Whether the hints have forgotten work since the last poll began.
    has_forgotten_hints: AtomicBool,
    /// Where polls begin in a backlog, if this process helps with the range.
    spread: StdMutex<Spread>,
}

/// A poll that a task runs. The range counts as polled until this is dropped.
#[derive(Debug)]
pub(super) struct Running(Arc<AtomicBool>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl RangePoller {
    pub(super) fn new(range: FeedRange, is_only_partition: Option<bool>) -> Self {
        RangePoller {
            range,
            is_only_partition,
            schedule: Schedule::default(),
            taken_before: StdMutex::default(),
            full_since: StdMutex::default(),
            is_running: Arc::default(),
            cursor: Mutex::default(),
            has_forgotten_hints: AtomicBool::new(false),
            spread: StdMutex::default(),
        }
    }

    pub(super) fn range(&self) -> &FeedRange {
        &self.range
    }

    pub(super) fn is_due(&self, interest: &Interest) -> bool {
        self.schedule.next_poll_at(interest) <= Instant::now()
    }

    /// Sets the shortest interval between polls.
    pub(super) fn set_interval_min(&self, interval_min: Duration) {
        self.schedule.set_interval_min(interval_min);
    }

    /// Brings the next poll forward, to the shortest interval after the last poll.
    pub(super) fn poll_soon(&self) {
        self.schedule.poll_soon();
    }

    /// Lets the next poll read the head again. See [`PollCursors::record_left_work`].
    pub(super) fn read_backlog_soon(&self) {
        self.has_forgotten_hints.store(true, Ordering::Relaxed);
    }

    /// Sets the place of this process among the helpers of the range, from 0 to 1; `None` if
    /// this process does not help with it.
    pub(super) fn set_place(&self, place: Option<f64>) {
        lock(&self.spread).set_place(place);
    }

    /// When the next poll for an interest is due; `None` while a task polls the range.
    pub(super) fn next_poll_at(&self, interest: &Interest) -> Option<Instant> {
        let is_running = self.is_running.load(Ordering::Acquire);
        (!is_running).then(|| self.schedule.next_poll_at(interest))
    }

    /// Begins a poll by a task; `None` if a task polls the range already.
    pub(super) fn try_begin(&self) -> Option<Running> {
        let was_running = self.is_running.swap(true, Ordering::AcqRel);
        (!was_running).then(|| Running(Arc::clone(&self.is_running)))
    }

    /// Polls for these fetches.
    pub(super) async fn poll(&self, core: &Core, waiting: &WaitingInterests) -> Result<FoundWork, Failure> {
        let mut cursor = self.cursor.lock().await;
        self.poll_from(core, &mut cursor, waiting).await
    }

    /// Polls now, unless a poll that begins after this call has a result for the interest. If a poll runs
    /// already, waits for its end: at most [`ANSWER_TIMEOUT`] if the last poll of the partition has failed,
    /// else [`RUNNING_POLL_PAGES`] times as long. Returns whether there is new work in the queue of the
    /// interest.
    pub(super) async fn poll_now(
        &self,
        core: &Core,
        interests: &Interests,
        interest: &Interest,
    ) -> Result<bool, Failure> {
        let polls_before = self.schedule.polls_begun();
        let wait = match self.schedule.failures() {
            0 => RUNNING_POLL_PAGES * ANSWER_TIMEOUT,
            _ => ANSWER_TIMEOUT,
        };
        let cursor = tokio::time::timeout(wait, self.cursor.lock()).await;
        let mut cursor = cursor.map_err(|_| no_answer("a poll of a partition", wait))?;
        if let Some(is_found) = self.schedule.result_since(polls_before, interest) {
            return Ok(is_found);
        }
        if self.schedule.has_failed_since(polls_before) {
            return Err(no_answer("a poll of a partition", ANSWER_TIMEOUT));
        }
        let found = self.poll_from(core, &mut cursor, &interests.all()).await?;
        Ok(found.has_work_for(interest))
    }

    async fn poll_from(
        &self,
        core: &Core,
        cursor: &mut PollCursors,
        waiting: &WaitingInterests,
    ) -> Result<FoundWork, Failure> {
        let poll_number = self.schedule.begin_poll();
        if self.has_forgotten_hints.swap(false, Ordering::Relaxed) {
            cursor.record_left_work();
        }
        core.metrics.count_poll();
        let read = core.hints.activities.begin_read();
        let mut found = FoundWork::new(&core.membership, waiting.is_eager, core.clock.now());
        found.set_activity_read(read.number());
        let is_dividing = self.is_only_partition.is_some() && is_dividing(&core.membership, &self.range);
        let was_full_for_long = lock(&self.full_since).is_some_and(|since| since.elapsed() >= HELP_AFTER);
        found.set_limits(self.room(core, waiting, found.now()), was_full_for_long, is_dividing);
        let query = PollQuery::of(&waiting.interests);
        match self.scan(core, cursor, &query, found).await {
            Ok(found) => {
                let mut full_since = lock(&self.full_since);
                *full_since = found.no_room_for().instances.then(|| full_since.unwrap_or_else(Instant::now));
                drop(full_since);
                self.schedule.record_result(poll_number, &waiting.interests, &found);
                Ok(found)
            }
            Err(failure) => {
                self.schedule.record_failure(poll_number);
                Err(failure)
            }
        }
    }

    /// How many instances and how many activities this poll may add to the hints: not many
    /// more than this process takes until the next poll. The rest is left to other processes.
    fn room(&self, core: &Core, waiting: &WaitingInterests, now: Stamp) -> Room {
        let counts = core.poller.taken.counts();
        let before = std::mem::replace(&mut *lock(&self.taken_before), counts);
        let room = |taken: u64, queued: usize| {
            let taken = usize::try_from(taken).unwrap_or(usize::MAX);
            let wanted = ROOM_MIN.saturating_add(waiting.count).saturating_add(taken.saturating_mul(2));
            wanted.saturating_sub(queued)
        };
        let queued_instances = core.hints.instances.with(|hints| hints.count_due(now, COUNTED_MAX));
        let queued_activities = core.hints.activities.with(|hints| hints.count_due(now, COUNTED_MAX));
        Room {
            instances: room(counts.0 - before.0, queued_instances),
            activities: room(counts.1 - before.1, queued_activities),
        }
    }

    /// Reads the range page by page until it finds new work, has read the parts that the cursor
    /// names, or has read [`PAGES_MAX`] pages.
    async fn scan(
        &self,
        core: &Core,
        cursor: &mut PollCursors,
        query: &PollQuery,
        mut found: FoundWork,
    ) -> Result<FoundWork, Failure> {
        let time = PollTime { now: found.now(), at: Instant::now(), is_eager: found.is_eager() };
        let PollTime { now, at, is_eager } = time;
        let place = lock(&self.spread).begin_at(at).filter(|_| !is_eager);
        if let Some(place) = place {
            return self.scan_from_place(core, query, place, found).await;
        }
        let mut poll = cursor.begin(query, time);
        let mut feed = self.feed(core, query, now, poll.from());
        loop {
            let (mut rows, is_end) = self.next_page(&mut feed, is_eager).await?;
            let is_empty = rows.is_empty();
            let may_spread = !is_eager && !is_end && poll.from() == Stamp(0);
            let place = if may_spread { self.choose_place(core, &rows, now, at).await? } else { None };
            if place.is_some() {
                // The activities at the head are for the owner of the slice.
                rows.retain(|row| DocumentType::of(row) != Some(DocumentType::Activity));
            }
            let last = self.ingest(core, rows, &mut found).await;
            let has_work = found.has_work() || query.is_full(&found);
            if let Some(place) = place
                && !has_work
            {
                return self.scan_from_place(core, query, place, found).await;
            }
            let has_left_work = found.has_left_work();
            let page = PageRead { last: (!is_empty).then_some(last), is_end, has_work, has_left_work };
            match poll.record_page(page) {
                NextStep::Page => {}
                NextStep::Scan => feed = self.feed(core, query, now, poll.from()),
                NextStep::End => return Ok(found),
            }
        }
    }

    /// Reads the range from the place of this helper in the backlog, like [`RangePoller::scan`].
    /// The cursor is for the head, and is not used.
    async fn scan_from_place(
        &self,
        core: &Core,
        query: &PollQuery,
        place: Stamp,
        mut found: FoundWork,
    ) -> Result<FoundWork, Failure> {
        let mut feed = self.feed(core, query, found.now(), place);
        for _ in 0..PAGES_MAX {
            let (rows, is_end) = self.next_page(&mut feed, false).await?;
            self.ingest(core, rows, &mut found).await;
            if is_end {
                lock(&self.spread).record_end();
            }
            if is_end || found.has_work() || query.is_full(&found) {
                break;
            }
        }
        Ok(found)
    }

    /// The rows from `from` on.
    fn feed(&self, core: &Core, query: &PollQuery, now: Stamp, from: Stamp) -> QueryFeed<Value> {
        let is_only_partition = self.is_only_partition == Some(true);
        let query = query.build(&core.hints, &core.options, now, from, PAGE_ROWS, is_only_partition);
        core.store.container.query(query.in_range(self.range.clone()))
    }

    /// The next page, and whether it is the last one. A partition that answers slowly gets more
    /// time after each failure, except if the poll is for a fetch with a short timeout
    /// (`is_eager`).
    async fn next_page(
        &self,
        feed: &mut QueryFeed<Value>,
        is_eager: bool,
    ) -> Result<(Vec<Value>, bool), Failure> {
        let doublings = if is_eager { 0 } else { self.schedule.failures().min(TIMEOUT_DOUBLINGS_MAX) };
        let timeout = ANSWER_TIMEOUT * (1 << doublings);
        let page = tokio::time::timeout(timeout, feed.next_page()).await;
        let page = page.map_err(|_| no_answer("a poll of a partition", timeout))??;
        let is_end = page.as_ref().is_none_or(|page| matches!(page.continuation(), Ok(None)));
        Ok((page.map(|page| page.items).unwrap_or_default(), is_end))
    }

    /// Turns rows into hints. Returns the latest `visibleAt` of the rows.
    async fn ingest(&self, core: &Core, rows: Vec<Value>, found: &mut FoundWork) -> Stamp {
        // Only a poll that found rows needs to know which other processes are alive.
        if !found.is_eager() && !rows.is_empty() {
            heartbeat::refresh_view(&core.store, &core.clock, &core.membership).await;
            found.update_view(&core.membership);
        }
        ingest(core, rows, found).await
    }

    /// Where a helper begins in the backlog whose first page is `rows`; `None` if there is no
    /// backlog, or this process does not help.
    async fn choose_place(
        &self,
        core: &Core,
        rows: &[Value],
        now: Stamp,
        at: Instant,
    ) -> Result<Option<Stamp>, Failure> {
        if !lock(&self.spread).is_wanted(rows) {
            return Ok(None);
        }
        let last = core.store.rows::<u64>(last_query(now).in_range(self.range.clone()));
        let last = tokio::time::timeout(ANSWER_TIMEOUT, last).await;
        let last = last.map_err(|_| no_answer("the end of a backlog", ANSWER_TIMEOUT))??;
        let first = rows.first().and_then(|row| row["visibleAt"].as_u64());
        let bounds = first.zip(last.first().copied());
        Ok(bounds.map(|(first, last)| lock(&self.spread).choose(Stamp(first), Stamp(last), at)))
    }
}
