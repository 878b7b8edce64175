//! The poll of this process: finds work of other processes in storage, in both queues,
//! for all fetches that wait.
//!
//! A poll is one query per physical partition, in parallel and without a query plan: no
//! order over all partitions is needed. It asks only for work that the waiting fetches
//! can take, leaves out instances that are known to be locked or parked, and puts what
//! it finds into the hints, where fetches take it.
//!
//! Invariants: at most one poll runs at a time, and all fetches share its result. A
//! fetch that looks once gets the result of a poll that began after the fetch. No task
//! polls: the fetch that finds the poll due runs it, and when that fetch is dropped,
//! the next one does.

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
use ingest::{Found, ingest};

/// Rows of one page of one physical partition.
const PAGE_ROWS: u32 = 64;

/// The most pages that one poll reads of a partition while it finds nothing new. The
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
    /// fetch looks once: it polls at once and takes work of any age.
    pub(crate) fn join(&self, membership: &Membership, interest: Interest, is_eager: bool) -> Ticket<'_> {
        membership.called(&interest);
        self.interests.join(interest, is_eager)
    }

    /// Tells the membership that the waiting fetches are still there.
    pub(crate) fn remind(&self, membership: &Membership) {
        self.interests.all().interests.iter().for_each(|interest| membership.called(interest));
    }

    /// When the next poll for a fetch is due.
    pub(crate) fn next(&self, ticket: &Ticket<'_>) -> Instant {
        self.schedule.next(ticket.interest())
    }

    /// Polls now and then before a fetch looks through the hints. Otherwise fetches
    /// that always find work in the hints would never poll, and work of other processes
    /// would wait. A failure is ignored.
    pub(crate) async fn glance(&self, core: &Core, ticket: &Ticket<'_>) {
        if !ticket.is_eager()
            && self.schedule.is_urgent(ticket.interest())
            && let Err(failure) = self.poll(core, ticket).await
        {
            tracing::debug!(?failure, "a poll failed and is tried again later");
        }
    }

    /// Polls if a poll is due. Returns whether it found new work for this fetch.
    pub(crate) async fn poll(&self, core: &Core, ticket: &Ticket<'_>) -> Result<bool, Failure> {
        let (interest, must) = (ticket.interest(), ticket.is_eager());
        let came = self.schedule.rounds();
        if !must && !self.schedule.is_due(interest) {
            return Ok(false);
        }
        let mut cursors = self.cursors.lock().await;
        if let Some(found) = self.schedule.result_since(came, interest) {
            return Ok(found);
        }
        if !must && !self.schedule.is_due(interest) {
            return Ok(false);
        }
        let waiting = self.interests.all();
        let round = self.schedule.begin();
        core.metrics.polled();
        let found = Found::new(&core.membership, waiting.is_eager, core.clock.stamp());
        let found = sweep(core, &mut cursors, &PollQuery::of(&waiting.interests), found).await?;
        self.schedule.end(round, &waiting.interests, &found);
        Ok(found.has(interest))
    }
}

/// The poll of one partition.
struct PartitionScan {
    range: FeedRange,
    from: Stamp,
    feed: QueryFeed<Value>,
}

/// Reads all partitions page by page until one has new work. A partition that fails
/// does not hide the results of the others.
async fn sweep(
    core: &Core,
    cursors: &mut Cursors,
    poll_query: &PollQuery,
    mut found: Found,
) -> Result<Found, Failure> {
    let (now, at, is_eager) = (found.now(), Instant::now(), found.is_eager());
    let ask = |range: FeedRange, from: Stamp| {
        let query =
            poll_query.query(&core.hints, &core.options, now, from, PAGE_ROWS).in_range(range.clone());
        PartitionScan { feed: core.store.container.query(query), range, from }
    };
    let ranges = core.store.container.feed_ranges().await?;
    cursors.begin(poll_query, &ranges);
    let begin = |range: FeedRange| {
        let from = cursors.from(&range, now, at, is_eager);
        ask(range, from)
    };
    let mut scans: Vec<PartitionScan> = ranges.into_iter().map(begin).collect();
    let mut failure = None;
    for _ in 0..PAGES_MAX {
        let mut left = Vec::new();
        let answers = pages(scans).await;
        // Which other processes are alive matters only when there is work to share.
        if !is_eager && answers.iter().any(|(_, rows)| rows.as_ref().is_ok_and(|rows| !rows.is_empty())) {
            heartbeat::refresh(&core.store, &core.clock, &core.membership).await;
            found.update_view(&core.membership);
        }
        for (scan, answer) in answers {
            match answer {
                Ok(rows) if rows.len() < PAGE_ROWS as usize => {
                    ingest(core, rows, &mut found).await;
                    // The scan began behind the known rows at the head. When these are due
                    // to be read again, they are read last.
                    let is_due = scan.from > Stamp(0) && cursors.is_due(&scan.range, at, is_eager);
                    left.extend(is_due.then(|| ask(scan.range, Stamp(0))));
                }
                Ok(rows) => {
                    let last = ingest(core, rows, &mut found).await;
                    if !found.is_any() {
                        cursors.paged(&scan.range, scan.from, last, at);
                    }
                    left.push(scan);
                }
                Err(error) => failure = Some(error),
            }
        }
        scans = left;
        if found.is_any() || scans.is_empty() {
            break;
        }
    }
    if !found.is_any() {
        scans.iter().for_each(|scan| cursors.left(&scan.range));
    }
    match failure {
        Some(failure) if !found.is_any() => Err(failure),
        _ => Ok(found),
    }
}

/// The next page of each partition.
async fn pages(mut scans: Vec<PartitionScan>) -> Vec<(PartitionScan, Result<Vec<Value>, Failure>)> {
    let mut answers = Vec::with_capacity(scans.len());
    while !scans.is_empty() {
        let some = scans.drain(..scans.len().min(PARALLEL_MAX)).map(|mut scan| async move {
            let page = scan.feed.next_page().await;
            let rows = page.map(|page| page.map(|page| page.items).unwrap_or_default());
            (scan, rows.map_err(Failure::from))
        });
        answers.extend(join_all(some).await);
    }
    answers
}

#[cfg(test)]
mod tests;
