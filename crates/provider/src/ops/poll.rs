//! The poll of this process: finds work in the database that this process has no hints
//! about, in both queues, for all fetches that wait.
//!
//! A poll is one query per physical partition, in parallel and without a query plan: no
//! order over all partitions is needed. It asks for work that the waiting fetches can take,
//! and for unfinished outboxes and bundles. It leaves out instances that this process looks
//! at anyway. Work that this process may take becomes a hint, and fetches take it from
//! there. Unfinished documents wake the reconciler.
//!
//! Invariants: at most one poll runs at a time, and all fetches share its result. A
//! fetch that looks once gets the result of a poll that began after the fetch asked for
//! it. No task polls: the fetch that finds the poll due runs it, and when that fetch is
//! dropped, the next one does.

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

/// The most pages that one poll reads of a partition while no partition has new work. The
/// next poll continues where this one stopped.
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
    /// Registers a fetch: polls ask for its work until the ticket is dropped. An eager
    /// fetch looks once: it polls even if no poll is due. While it is registered, polls give
    /// this process work of any age.
    pub(crate) fn register(&self, membership: &Membership, interest: Interest, is_eager: bool) -> Ticket<'_> {
        membership.record_fetch(&interest);
        self.interests.register(interest, is_eager)
    }

    /// Records the waiting fetches, so that the next heartbeat has their roles.
    pub(crate) fn record_waiting_fetches(&self, membership: &Membership) {
        self.interests.all().interests.iter().for_each(|interest| membership.record_fetch(interest));
    }

    /// When the next poll for a fetch is due.
    pub(crate) fn next_poll(&self, ticket: &Ticket<'_>) -> Instant {
        self.schedule.next_poll(ticket.interest())
    }

    /// Polls before a fetch looks through the hints, if no poll has asked for its work for
    /// some time (see `Schedule::take_overdue`). Otherwise fetches that always find work in
    /// the hints would never poll, and work of other processes would wait. Does nothing for
    /// an eager fetch. A failure is logged and ignored.
    pub(crate) async fn poll_if_overdue(&self, core: &Core, ticket: &Ticket<'_>) {
        if !ticket.is_eager()
            && self.schedule.take_overdue(ticket.interest())
            && let Err(failure) = self.poll(core, ticket).await
        {
            tracing::debug!(?failure, "a poll failed and is tried again later");
        }
    }

    /// Polls if a poll is due; an eager fetch always polls. If another fetch polled in the
    /// meantime, its result is used instead. Returns whether the poll found new work in the
    /// queue of this fetch, whatever its tags.
    pub(crate) async fn poll(&self, core: &Core, ticket: &Ticket<'_>) -> Result<bool, Failure> {
        let (interest, is_eager) = (ticket.interest(), ticket.is_eager());
        let polls_before = self.schedule.polls_begun();
        if !is_eager && !self.schedule.is_due(interest) {
            return Ok(false);
        }
        let mut cursors = self.cursors.lock().await;
        if let Some(found) = self.schedule.result_since(polls_before, interest) {
            return Ok(found);
        }
        if !is_eager && !self.schedule.is_due(interest) {
            return Ok(false);
        }
        let waiting = self.interests.all();
        let poll_number = self.schedule.begin();
        core.metrics.count_poll();
        let found = FoundWork::new(&core.membership, waiting.is_eager, core.clock.stamp());
        let found = scan_partitions(core, &mut cursors, &PollQuery::of(&waiting.interests), found).await?;
        self.schedule.end(poll_number, &waiting.interests, &found);
        Ok(found.has(interest))
    }
}

/// The scan of one partition by a poll.
struct PartitionScan {
    range: FeedRange,
    /// Where the scan began: only rows with this `visibleAt` or a later one are read.
    from: Stamp,
    feed: QueryFeed<Value>,
}

/// Reads all partitions page by page until one has new work, all are at their end, or
/// [`PAGES_MAX`] pages of each were read. Fails if a partition failed and no other had new work.
async fn scan_partitions(
    core: &Core,
    cursors: &mut Cursors,
    poll_query: &PollQuery,
    mut found: FoundWork,
) -> Result<FoundWork, Failure> {
    let (now, at, is_eager) = (found.now(), Instant::now(), found.is_eager());
    let begin_scan = |range: FeedRange, from: Stamp| {
        let query =
            poll_query.query(&core.hints, &core.options, now, from, PAGE_ROWS).in_range(range.clone());
        PartitionScan { feed: core.store.container.query(query), range, from }
    };
    let ranges = core.store.container.feed_ranges().await?;
    cursors.begin(poll_query, &ranges);
    let begin = |range: FeedRange| {
        let from = cursors.start_of_scan(&range, now, at, is_eager);
        begin_scan(range, from)
    };
    let mut scans: Vec<PartitionScan> = ranges.into_iter().map(begin).collect();
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
                    // The scan began behind the known rows at the head. When these are due
                    // to be read again, they are read last.
                    let is_head_due =
                        scan.from > Stamp(0) && cursors.must_read_head(&scan.range, at, is_eager);
                    unfinished.extend(is_head_due.then(|| begin_scan(scan.range, Stamp(0))));
                }
                Ok(rows) => {
                    let last = ingest(core, rows, &mut found).await;
                    if !found.is_any() {
                        cursors.record_known_page(&scan.range, scan.from, last, at);
                    }
                    unfinished.push(scan);
                }
                Err(error) => failure = Some(error),
            }
        }
        scans = unfinished;
        if found.is_any() || scans.is_empty() {
            break;
        }
    }
    if !found.is_any() {
        scans.iter().for_each(|scan| cursors.record_unfinished_scan(&scan.range));
    }
    match failure {
        Some(failure) if !found.is_any() => Err(failure),
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
