//! The one poll of this process: what other processes left in storage, for all
//! fetches that wait, both queues at once.
//!
//! A poll is one query per physical partition, in parallel and without a plan:
//! nothing here needs one order over all of them. It asks only for what fetches
//! under way can take, leaves out what is known to be taken or parked, and puts
//! what it finds into the hints, from where fetches take it.
//!
//! What always holds: at most one poll is under way; whoever waits for it shares
//! its answer; a fetch that must not miss anything has an answer to a question
//! that was asked after it came. No task is behind it: the fetch that finds the
//! poll due does it, and when that fetch is dropped, the next one does.

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

/// Rows of one page: a partition's head that is taken within a moment.
const PAGE_ROWS: u32 = 64;

/// Pages that one poll asks of a partition while all it finds is known here.
/// What is behind is left to the next poll, which goes on from there.
const PAGES_MAX: usize = 8;

/// Partitions asked at once.
const PARALLEL_MAX: usize = 32;

/// Polls of a process.
#[derive(Debug, Default)]
pub(crate) struct Poller {
    interests: Interests,
    schedule: Schedule,
    /// Where a poll begins; whoever has it polls.
    cursors: tokio::sync::Mutex<Cursors>,
}

impl Poller {
    /// A fetch comes; it is asked for until the ticket is dropped. An eager one
    /// looks once: it is polled for at once, and whatever is there is taken.
    pub(crate) fn join(&self, membership: &Membership, interest: Interest, is_eager: bool) -> Ticket<'_> {
        membership.called(&interest);
        self.interests.join(interest, is_eager)
    }

    /// Fetches that have waited for a while are still there.
    pub(crate) fn remind(&self, membership: &Membership) {
        self.interests.all().interests.iter().for_each(|interest| membership.called(interest));
    }

    /// When the next poll for that fetch is due.
    pub(crate) fn next(&self, ticket: &Ticket<'_>) -> Instant {
        self.schedule.next(ticket.interest())
    }

    /// A fetch may find work in this process again and again and never come to
    /// poll, and all the others too: then what other processes leave is polled
    /// for first, now and then. It is nothing that a fetch depends on.
    pub(crate) async fn glance(&self, core: &Core, ticket: &Ticket<'_>) {
        if !ticket.is_eager()
            && self.schedule.is_urgent(ticket.interest())
            && let Err(failure) = self.poll(core, ticket).await
        {
            tracing::debug!(?failure, "what others left is looked for later");
        }
    }

    /// Asks storage when it is time to; whether there is anything to take that
    /// was not known before.
    pub(crate) async fn poll(&self, core: &Core, ticket: &Ticket<'_>) -> Result<bool, Failure> {
        let (interest, must) = (ticket.interest(), ticket.is_eager());
        let came = self.schedule.rounds();
        if !must && !self.schedule.is_due(interest) {
            return Ok(false);
        }
        let mut cursors = self.cursors.lock().await;
        if let Some(found) = self.schedule.answered_since(came, interest) {
            return Ok(found);
        }
        if !must && !self.schedule.is_due(interest) {
            return Ok(false);
        }
        let asked = self.interests.all();
        let round = self.schedule.begin();
        core.metrics.polled();
        let found = Found::new(&core.membership, asked.is_eager, core.clock.stamp());
        let found = sweep(core, &mut cursors, &PollQuery::of(&asked.interests), found).await?;
        self.schedule.end(round, &asked.interests, &found);
        Ok(found.has(interest))
    }
}

/// How far a poll is in one partition.
struct Place {
    range: FeedRange,
    from: Stamp,
    feed: QueryFeed<Value>,
}

/// Looks through all partitions, page by page, until something is found that
/// was not known. A partition that does not answer hides nothing of the others.
async fn sweep(
    core: &Core,
    cursors: &mut Cursors,
    question: &PollQuery,
    mut found: Found,
) -> Result<Found, Failure> {
    let (now, at, is_eager) = (found.now(), Instant::now(), found.is_eager());
    let ask = |range: FeedRange, from: Stamp| {
        let query = question.query(&core.hints, &core.options, now, from, PAGE_ROWS).in_range(range.clone());
        Place { feed: core.store.container.query(query), range, from }
    };
    let ranges = core.store.container.feed_ranges().await?;
    cursors.begin(question, &ranges);
    let begin = |range: FeedRange| {
        let from = cursors.from(&range, now, at, is_eager);
        ask(range, from)
    };
    let mut places: Vec<Place> = ranges.into_iter().map(begin).collect();
    let mut failure = None;
    for _ in 0..PAGES_MAX {
        let mut left = Vec::new();
        let answers = pages(places).await;
        // Others matter only when there is something to share.
        if !is_eager && answers.iter().any(|(_, rows)| rows.as_ref().is_ok_and(|rows| !rows.is_empty())) {
            heartbeat::refresh(&core.store, &core.clock, &core.membership).await;
            found.look_around(&core.membership);
        }
        for (place, answer) in answers {
            match answer {
                Ok(rows) if rows.len() < PAGE_ROWS as usize => {
                    ingest(core, rows, &mut found).await;
                    // It began behind the head: the head comes last.
                    let is_due = place.from > Stamp(0) && cursors.is_due(&place.range, at, is_eager);
                    left.extend(is_due.then(|| ask(place.range, Stamp(0))));
                }
                Ok(rows) => {
                    let last = ingest(core, rows, &mut found).await;
                    if !found.is_any() {
                        cursors.paged(&place.range, place.from, last, at);
                    }
                    left.push(place);
                }
                Err(error) => failure = Some(error),
            }
        }
        places = left;
        if found.is_any() || places.is_empty() {
            break;
        }
    }
    if !found.is_any() {
        places.iter().for_each(|place| cursors.left(&place.range));
    }
    match failure {
        Some(failure) if !found.is_any() => Err(failure),
        _ => Ok(found),
    }
}

/// The next page of each place.
async fn pages(mut places: Vec<Place>) -> Vec<(Place, Result<Vec<Value>, Failure>)> {
    let mut answers = Vec::with_capacity(places.len());
    while !places.is_empty() {
        let some = places.drain(..places.len().min(PARALLEL_MAX)).map(|mut place| async move {
            let page = place.feed.next_page().await;
            let rows = page.map(|page| page.map(|page| page.items).unwrap_or_default());
            (place, rows.map_err(Failure::from))
        });
        answers.extend(join_all(some).await);
    }
    answers
}

#[cfg(test)]
mod tests;
