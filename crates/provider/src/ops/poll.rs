//! The polls of this process: they find work in the database that this process has no hints
//! about, in both queues, for all fetches that wait.
//!
//! Each physical partition is polled by itself, with its own schedule, cursor and timeout.
//! A poll is one query without a query plan. It asks for work that the waiting fetches can
//! take, and for unfinished outboxes and bundles. It leaves out instances that this process
//! looks at anyway. Work that this process may take becomes a hint, and fetches take it from
//! there. Unfinished documents wake the reconciler.
//!
//! Invariants: at most one poll of a partition runs at a time, and all fetches share its
//! result. A partition that answers slowly or fails is polled less often, and delays neither
//! the polls of other partitions nor a fetch that waits. Only a fetch that looks once waits
//! for polls: it gets the results of polls that began after it asked. Polls run while fetches
//! are called: a fetch that finds a poll due starts it.

mod cursor;
mod ingest;
mod partition;
mod query;
mod schedule;
mod takeover;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use perihelion_client::FeedRange;
use tokio::time::Instant;

use crate::failure::Failure;
use crate::ops::core::Core;
use crate::ops::wait::write_outage_notice;
use crate::process::interest::{Interest, Interests, Ticket};
use crate::process::membership::Membership;
use crate::process::metrics;
use crate::sync::lock;
use crate::timing::POLL_INTERVAL_MIN;
use partition::PartitionPoller;

/// The most partitions that this process queries at the same time.
const PARALLEL_MAX: usize = 32;

/// How long a poll waits for one page, and for the list of partitions.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The polls of this process.
#[derive(Debug)]
pub(crate) struct Poller {
    interests: Interests,
    /// The physical partitions, as the last poll saw them.
    partitions: Mutex<Arc<[Arc<PartitionPoller>]>>,
    /// Permits to query a partition.
    permits: Arc<tokio::sync::Semaphore>,
}

impl Default for Poller {
    fn default() -> Self {
        Poller {
            interests: Interests::default(),
            partitions: Mutex::new(Arc::default()),
            permits: Arc::new(tokio::sync::Semaphore::new(PARALLEL_MAX)),
        }
    }
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

    /// When the next poll for a fetch is due in any partition. Partitions that are being
    /// polled do not count: the end of a poll wakes the fetches.
    pub(crate) fn next_poll_at(&self, ticket: &Ticket<'_>) -> Instant {
        let partitions = Arc::clone(&lock(&self.partitions));
        let due = partitions.iter().filter_map(|partition| partition.next_poll_at(ticket.interest()));
        let fallback = if partitions.is_empty() { POLL_INTERVAL_MIN } else { ANSWER_TIMEOUT };
        let (next, now) = (due.min(), Instant::now());
        // A poll that is due and was not started waits for a permit, or the partitions could
        // not be read.
        next.map_or(now + fallback, |next| if next <= now { now + POLL_INTERVAL_MIN } else { next })
    }

    /// Starts the polls that are due for this fetch, and does not wait for them. With
    /// `is_overdue_only`, starts only polls of partitions that were not asked for its work
    /// for long: a fetch that always finds work in the hints must see the work of other
    /// processes too.
    pub(crate) async fn start_due(&self, core: &Core, ticket: &Ticket<'_>, is_overdue_only: bool) {
        let partitions = match self.refresh_partitions(core).await {
            Ok(partitions) => partitions,
            Err(failure) => {
                tracing::debug!(?failure, "the partitions were not read; polls are tried again later");
                write_outage_notice(&core.outage_notice, &failure);
                return;
            }
        };
        let Some(core) = core.this.upgrade() else { return };
        // With this fetch, at least.
        let waiting = Arc::new(self.interests.all());
        for partition in partitions.iter() {
            let is_due = match is_overdue_only {
                true => partition.is_overdue(ticket.interest()),
                false => partition.is_due(ticket.interest()),
            };
            let Some(running) = is_due.then(|| partition.try_begin()).flatten() else { continue };
            // If too many polls run, this one starts later: the partition stays due.
            let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else { break };
            partition.take_overdue(ticket.interest());
            let (core, partition, waiting) = (Arc::clone(&core), Arc::clone(partition), Arc::clone(&waiting));
            let poll = async move {
                if let Err(failure) = partition.poll(&core, &waiting).await {
                    tracing::debug!(?failure, "a poll failed and is tried again later");
                    write_outage_notice(&core.outage_notice, &failure);
                }
                drop((running, permit));
                core.hints.instances.wake.notify_waiters();
                core.hints.activities.wake.notify_waiters();
            };
            tokio::spawn(metrics::for_current_call(poll));
        }
    }

    /// Polls all partitions for a fetch that looks once, and waits for the results. If another
    /// fetch polled a partition meanwhile, its result is used. Returns whether there is new
    /// work in the queue of this fetch, whatever its tags. Fails if a partition failed and no
    /// other had new work.
    pub(crate) async fn poll_all(&self, core: &Core, ticket: &Ticket<'_>) -> Result<bool, Failure> {
        let partitions = self.refresh_partitions(core).await?;
        let mut results = Vec::with_capacity(partitions.len());
        for group in partitions.chunks(PARALLEL_MAX) {
            let polls =
                group.iter().map(|partition| partition.poll_now(core, &self.interests, ticket.interest()));
            results.extend(join_all(polls).await);
        }
        let is_found = results.iter().any(|result| matches!(result, Ok(true)));
        match results.into_iter().find_map(Result::err) {
            Some(failure) if !is_found => Err(failure),
            _ => Ok(is_found),
        }
    }

    /// Whether the container has one physical partition, as the last poll saw it.
    fn has_one_partition(&self) -> bool {
        lock(&self.partitions).len() == 1
    }

    /// The current partitions. Those that were split or merged are forgotten, with their
    /// schedule.
    async fn refresh_partitions(&self, core: &Core) -> Result<Arc<[Arc<PartitionPoller>]>, Failure> {
        let ranges = tokio::time::timeout(ANSWER_TIMEOUT, core.store.container.feed_ranges()).await;
        let ranges: Vec<FeedRange> =
            ranges.map_err(|_| no_answer("the list of partitions", ANSWER_TIMEOUT))??;
        let mut partitions = lock(&self.partitions);
        let is_current = partitions.len() == ranges.len()
            && partitions.iter().zip(&ranges).all(|(partition, range)| partition.range() == range);
        if !is_current {
            let known = |range: &FeedRange| partitions.iter().find(|known| known.range() == range).cloned();
            let next =
                |range: FeedRange| known(&range).unwrap_or_else(|| Arc::new(PartitionPoller::new(range)));
            *partitions = ranges.into_iter().map(next).collect();
        }
        Ok(Arc::clone(&partitions))
    }
}

/// The failure of a request that was not answered in time.
fn no_answer(what: &str, timeout: Duration) -> Failure {
    Failure::Contended(format!("no answer within {} s for {what}", timeout.as_secs()))
}

#[cfg(test)]
mod tests;
