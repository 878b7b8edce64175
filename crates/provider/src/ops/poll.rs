//! Polls: a poll finds work in the database that this process has no hints about, in both
//! queues, for all fetches that wait.
//!
//! A poll sends one query to each physical partition, in parallel and without a query plan,
//! because no order over all partitions is needed. The query asks for work that the waiting
//! fetches can take, and for unfinished outboxes and bundles. It leaves out instances that
//! this process has locked or will claim without the poll. Work that this process may take
//! becomes a hint, and fetches take work from the hints. Unfinished outboxes and bundles wake
//! the reconciler.
//!
//! Invariants: at most one poll runs at a time, and all fetches share its result. A fetch
//! that looks once gets the result of a poll that began after the fetch asked for the poll.
//! No background task polls: a fetch that finds a poll due runs the poll. If that fetch is
//! dropped, another fetch runs the poll.

mod cursors;
mod ingest;
mod query;
mod schedule;
mod takeover;

use perihelion_client::{FeedRange, QueryFeed};
use serde_json::Value;
use tokio::time::Instant;

use crate::process::interest::{Interest, Interests, Ticket};
use cursors::Cursors;
use query::PollQuery;
use schedule::Schedule;

use crate::documents::stamp::Stamp;
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::ops::heartbeat;
use crate::process::membership::Membership;
use futures_util::future::join_all;
use ingest::{FoundWork, ingest};

/// The most rows of one page of one physical partition.
const PAGE_ROWS: u32 = 64;

/// The most pages of a partition that one poll reads while no partition has new work. The next
/// poll continues where this poll stopped.
const PAGES_MAX: usize = 8;

/// The most partitions that are queried at the same time.
const PARALLEL_MAX: usize = 32;

/// The state of the polls of this process.
#[derive(Debug, Default)]
pub(crate) struct Poller {
    interests: Interests,
    schedule: Schedule,
    /// Where a poll begins in each partition. The fetch that holds this mutex polls.
    cursors: tokio::sync::Mutex<Cursors>,
}

impl Poller {
    /// Registers a fetch: polls ask for its work until the ticket is dropped. An eager fetch
    /// has a short timeout and looks once. It polls even if no poll is due. While an eager
    /// fetch is registered, polls give this process work of any age.
    pub(crate) fn register(&self, membership: &Membership, interest: Interest, is_eager: bool) -> Ticket<'_> {
        membership.record_fetch(&interest);
        self.interests.register(interest, is_eager)
    }

    /// Records the waiting fetches, so that the next heartbeat has their roles.
    pub(crate) fn record_waiting_fetches(&self, membership: &Membership) {
        self.interests.all().interests.iter().for_each(|interest| membership.record_fetch(interest));
    }

    /// When the next poll for a fetch is due.
    pub(crate) fn next_poll_at(&self, ticket: &Ticket<'_>) -> Instant {
        self.schedule.next_poll_at(ticket.interest())
    }

    /// A fetch calls this before it looks through the hints. Polls if no poll has asked for
    /// the work of this fetch for some time (see `Schedule::take_overdue`). Otherwise fetches
    /// that always find work in the hints would never poll, and work of other processes would
    /// wait. Does nothing for an eager fetch. A failure is logged and ignored.
    pub(crate) async fn poll_if_overdue(&self, core: &Core, ticket: &Ticket<'_>) {
        if !ticket.is_eager()
            && self.schedule.take_overdue(ticket.interest())
            && let Err(failure) = self.poll(core, ticket).await
        {
            tracing::debug!(?failure, "a poll failed and is tried again later");
        }
    }

    /// Polls if a poll is due or the fetch is eager. If another fetch ends a poll while this
    /// fetch waits for its turn to poll, the result of that poll is used instead. Returns
    /// whether the poll found new work in the queue of this fetch. The new work may have tags
    /// that this fetch does not take.
    pub(crate) async fn poll(&self, core: &Core, ticket: &Ticket<'_>) -> Result<bool, Failure> {
        let (interest, is_eager) = (ticket.interest(), ticket.is_eager());
        let polls_before = self.schedule.polls_begun();
        if !is_eager && !self.schedule.is_due(interest) {
            return Ok(false);
        }
        let mut cursors = self.cursors.lock().await;
        if let Some(has_new_work) = self.schedule.result_since(polls_before, interest) {
            return Ok(has_new_work);
        }
        if !is_eager && !self.schedule.is_due(interest) {
            return Ok(false);
        }
        let waiting = self.interests.all();
        let poll_number = self.schedule.begin_poll();
        core.metrics.count_poll();
        let found = FoundWork::new(&core.membership, waiting.is_eager, core.clock.stamp());
        let found = scan_partitions(core, &mut cursors, &PollQuery::of(&waiting.interests), found).await?;
        self.schedule.record_result(poll_number, &waiting.interests, &found);
        Ok(found.has_work_for(interest))
    }
}

/// The scan of one partition by a poll.
struct PartitionScan {
    range: FeedRange,
    /// Where the scan began: rows with an earlier `visibleAt` are not read.
    from: Stamp,
    feed: QueryFeed<Value>,
}

/// Reads all partitions page by page until a partition has new work, all are at their end, or
/// [`PAGES_MAX`] pages of each were read. Fails if the query of a partition failed and no
/// partition had new work.
async fn scan_partitions(
    core: &Core,
    cursors: &mut Cursors,
    poll_query: &PollQuery,
    mut found: FoundWork,
) -> Result<FoundWork, Failure> {
    // The time of the poll: as a stamp, and on tokio's clock.
    let (now, at) = (found.now(), Instant::now());
    let is_eager = found.is_eager();
    let begin_scan = |range: FeedRange, from: Stamp| {
        let query =
            poll_query.build(&core.hints, &core.options, now, from, PAGE_ROWS).in_range(range.clone());
        PartitionScan { feed: core.store.container.query(query), range, from }
    };
    let ranges = core.store.container.feed_ranges().await?;
    cursors.begin(poll_query, &ranges);
    let begin_at_cursor = |range: FeedRange| {
        let from = cursors.start_of_scan(&range, now, at, is_eager);
        begin_scan(range, from)
    };
    let mut scans: Vec<PartitionScan> = ranges.into_iter().map(begin_at_cursor).collect();
    let mut failure = None;
    for _ in 0..PAGES_MAX {
        let mut unfinished = Vec::new();
        let answers = next_pages(scans).await;
        // Only a poll that found rows needs to know which other processes are alive.
        if !is_eager && answers.iter().any(|(_, rows)| rows.as_ref().is_ok_and(|rows| !rows.is_empty())) {
            heartbeat::refresh_view(&core.store, &core.clock, &core.membership).await;
            found.update_view(&core.membership);
        }
        for (scan, answer) in answers {
            match answer {
                Ok(rows) if rows.len() < PAGE_ROWS as usize => {
                    ingest(core, rows, &mut found).await;
                    // This is the end of the partition. If the scan began behind the known
                    // rows at the head, and these rows are due again, they are read now.
                    let is_head_due =
                        scan.from > Stamp(0) && cursors.must_read_head(&scan.range, at, is_eager);
                    unfinished.extend(is_head_due.then(|| begin_scan(scan.range, Stamp(0))));
                }
                Ok(rows) => {
                    let last_visible_at = ingest(core, rows, &mut found).await;
                    if !found.has_work() {
                        cursors.record_known_page(&scan.range, scan.from, last_visible_at, at);
                    }
                    unfinished.push(scan);
                }
                Err(error) => failure = Some(error),
            }
        }
        scans = unfinished;
        if found.has_work() || scans.is_empty() {
            break;
        }
    }
    if !found.has_work() {
        scans.iter().for_each(|scan| cursors.record_unfinished_scan(&scan.range));
    }
    match failure {
        Some(failure) if !found.has_work() => Err(failure),
        _ => Ok(found),
    }
}

/// The next page of each partition; empty at the end of a partition.
async fn next_pages(mut scans: Vec<PartitionScan>) -> Vec<(PartitionScan, Result<Vec<Value>, Failure>)> {
    let mut answers = Vec::with_capacity(scans.len());
    while !scans.is_empty() {
        let group = scans.drain(..scans.len().min(PARALLEL_MAX)).map(|mut scan| async move {
            let page = scan.feed.next_page().await;
            let rows = page.map(|page| page.map(|page| page.items).unwrap_or_default());
            (scan, rows.map_err(Failure::from))
        });
        answers.extend(join_all(group).await);
    }
    answers
}

#[cfg(test)]
mod tests;
