//! The polls of this process: they find work in the database that this process has no hints
//! about, in both queues, for all fetches that wait.
//!
//! A process polls the slices of the container that it owns, see `process::membership`, and
//! slices that others ask for help with. Now and then it *looks* at a whole partition of the
//! others, and takes work that has waited there for too long: the owner may be dead or busy.
//!
//! Each range is polled by itself, with its own schedule, cursor and timeout.
//! A poll is one query without a query plan. It asks for work that the waiting fetches can
//! take, and for unfinished outboxes and bundles. It leaves out instances that this process has
//! locked or will claim without the poll. Work that this process may take becomes a hint, and
//! fetches take it from there. Unfinished documents wake the reconciler.
//!
//! Invariants: at most one poll of a range runs at a time, and all fetches share its
//! result. A range that answers slowly or fails is polled less often, and delays neither
//! the polls of other ranges nor a fetch that waits. Only a fetch that looks once waits
//! for polls: it gets the results of polls of all partitions that began after the fetch. Polls
//! run while fetches are called: a fetch that finds a poll due starts it.

mod cursor;
mod ingest;
mod query;
mod range;
mod schedule;
mod spread;
mod takeover;
mod targets;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use crate::failure::Failure;
use crate::ops::core::Core;
use crate::ops::wait::write_outage_notice;
use crate::process::interest::{Interest, Interests, Ticket};
use crate::process::membership::{Membership, SLICES_PER_PARTITION_MAX};
use crate::process::memory_size::MemorySize;
use crate::process::metrics;
use crate::sync::lock;
use crate::timing::POLL_INTERVAL_MIN;
use range::RangePoller;
use targets::{Looks, Targets};

/// The most ranges that this process queries at the same time.
const PARALLEL_MAX: usize = 32;

/// How long a poll waits for one page, and for the list of partitions.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The shortest time between two scans of the ranges for polls that are due.
const SCAN_INTERVAL: Duration = Duration::from_millis(10);

/// How long the first polls of a process wait until it knows the other processes. Otherwise
/// each process of a new deployment would poll the whole container first.
const FIRST_VIEW_WITHIN: Duration = Duration::from_secs(2);

/// The polls of this process.
#[derive(Debug)]
pub(crate) struct Poller {
    interests: Interests,
    targets: Mutex<Arc<Targets>>,
    scans: Scans,
    looks: Mutex<Looks>,
    /// Permits to query a range.
    permits: Arc<tokio::sync::Semaphore>,
    /// When the first fetch was registered.
    first_fetch_at: OnceLock<Instant>,
    /// The work that fetches have taken.
    taken: TakenWork,
}

impl Default for Poller {
    fn default() -> Self {
        Poller {
            interests: Interests::default(),
            targets: Mutex::default(),
            scans: Scans::default(),
            looks: Mutex::default(),
            permits: Arc::new(tokio::sync::Semaphore::new(PARALLEL_MAX)),
            first_fetch_at: OnceLock::new(),
            taken: TakenWork::default(),
        }
    }
}

impl Poller {
    /// Registers a fetch: polls ask for its work until the ticket is dropped. An eager fetch
    /// has a short timeout and looks once. It polls even if no poll is due. While an eager
    /// fetch is registered, polls give this process work of any age.
    pub(crate) fn register(&self, membership: &Membership, interest: Interest, is_eager: bool) -> Ticket<'_> {
        self.first_fetch_at.get_or_init(|| {
            // A new process counts as busy: it is started because there is work.
            membership.load.record_work();
            Instant::now()
        });
        membership.record_fetch(&interest);
        self.interests.register(interest, is_eager)
    }

    /// The number of ranges that are polled, and of partitions. A slice is an eighth of a partition or
    /// larger.
    pub(crate) fn memory_size(&self) -> MemorySize {
        let targets = Arc::clone(&lock(&self.targets));
        let (partitions, polled) = (targets.partitions.len(), targets.polled.len());
        let ranges_max = partitions * (1 + SLICES_PER_PARTITION_MAX as usize);
        MemorySize::kept("polled ranges", partitions + polled, ranges_max)
    }

    /// Records the waiting fetches, so that the next heartbeat has their roles.
    pub(crate) fn record_waiting_fetches(&self, membership: &Membership) {
        self.interests.all().interests.iter().for_each(|interest| membership.record_fetch(interest));
    }

    /// Records that a fetch has taken work.
    pub(crate) fn record_taken(&self, membership: &Membership, interest: &Interest) {
        self.taken.record(interest);
        membership.load.record_work();
    }

    /// Brings the next polls forward: hints were out of date and are forgotten.
    pub(crate) fn poll_soon(&self) {
        let targets = Arc::clone(&lock(&self.targets));
        targets.polled.iter().for_each(|range| range.poll_soon());
    }

    /// The hints have forgotten work, in the physical partition of this instance; without an instance,
    /// anywhere. Polls have skipped that work because the hints had it. Now the next polls read it
    /// again.
    pub(crate) fn read_backlog_soon(&self, instance: Option<&str>) {
        let targets = Arc::clone(&lock(&self.targets));
        targets.polled_near(instance).for_each(|range| range.read_backlog_soon());
    }

    /// When the next poll for a fetch is due in any range. Ranges that are being
    /// polled do not count: the end of a poll wakes the fetches.
    pub(crate) fn next_poll_at(&self, ticket: &Ticket<'_>) -> Instant {
        let targets = Arc::clone(&lock(&self.targets));
        let due = targets.polled.iter().filter_map(|range| range.next_poll_at(ticket.interest()));
        let next = due.chain(lock(&self.looks).next_at()).min();
        let fallback = if targets.partitions.is_empty() { POLL_INTERVAL_MIN } else { ANSWER_TIMEOUT };
        let now = Instant::now();
        // A poll that is due and was not started waits for a permit or for the next scan, or the
        // partitions could not be read.
        next.map_or(now + fallback, |next| next.max(now + 2 * SCAN_INTERVAL))
    }

    /// Starts the polls that are due for this fetch, and does not wait for them. A fetch that
    /// finds work in the hints also starts them, because it must see the work of other processes.
    pub(crate) async fn start_due(&self, core: &Core, ticket: &Ticket<'_>) {
        let is_view_awaited = core.membership.view().members().is_empty()
            && self.first_fetch_at.get().is_none_or(|at| at.elapsed() < FIRST_VIEW_WITHIN);
        if is_view_awaited || !self.scans.is_due(ticket.interest()) {
            return;
        }
        let targets = match self.refresh_targets(core).await {
            Ok(targets) => targets,
            Err(failure) => {
                tracing::debug!(?failure, "the partitions were not read; polls are tried again later");
                write_outage_notice(&core.outage_notice, &failure);
                return;
            }
        };
        let Some(core) = core.this.upgrade() else { return };
        for range in targets.polled.iter().filter(|range| range.is_due(ticket.interest())) {
            if !self.start(&core, range, false) {
                return;
            }
        }
        let look = lock(&self.looks).next(&targets, &core.membership.view());
        if let Some(partition) = look {
            self.start(&core, &partition, true);
        }
    }

    /// Starts a poll of a range, unless one runs. Returns false if too many polls run. Then the
    /// poll starts later, because the range stays due.
    fn start(&self, core: &Arc<Core>, range: &Arc<RangePoller>, is_look: bool) -> bool {
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else { return false };
        let Some(running) = range.try_begin() else { return true };
        // The fetch that starts the poll is among the waiting fetches.
        let waiting = self.interests.all();
        let (core, range) = (Arc::clone(core), Arc::clone(range));
        let poll = async move {
            match range.poll(&core, &waiting).await {
                Ok(found) => {
                    if let Some(wait) = found.suspect_in().filter(|_| is_look) {
                        lock(&core.poller.looks).record_suspect(range.range(), wait);
                    }
                }
                Err(failure) => {
                    tracing::debug!(?failure, "a poll failed and is tried again later");
                    write_outage_notice(&core.outage_notice, &failure);
                }
            }
            drop((running, permit));
            core.wake_fetches();
        };
        tokio::spawn(metrics::for_current_call(poll));
        true
    }

    /// Polls all partitions for a fetch that looks once, and waits for the results. If another
    /// fetch polled a partition meanwhile, its result is used. Returns whether there is new
    /// work in the queue of this fetch, whatever its tags. Fails if a partition failed and no
    /// other had new work.
    pub(crate) async fn poll_all(&self, core: &Core, ticket: &Ticket<'_>) -> Result<bool, Failure> {
        let targets = self.refresh_targets(core).await?;
        let mut results = Vec::with_capacity(targets.partitions.len());
        for group in targets.partitions.chunks(PARALLEL_MAX) {
            let polls =
                group.iter().map(|partition| partition.poll_now(core, &self.interests, ticket.interest()));
            results.extend(join_all(polls).await);
        }
        let has_new_work = results.iter().any(|result| matches!(result, Ok(true)));
        match results.into_iter().find_map(Result::err) {
            Some(failure) if !has_new_work => Err(failure),
            _ => Ok(has_new_work),
        }
    }

    /// The ranges to poll, by the current partitions and the current view of the processes.
    async fn refresh_targets(&self, core: &Core) -> Result<Arc<Targets>, Failure> {
        let space = tokio::time::timeout(ANSWER_TIMEOUT, core.store.container.key_space()).await;
        let space = space.map_err(|_| no_answer("the list of partitions", ANSWER_TIMEOUT))??;
        core.membership.update_space(&space, core.clock.now());
        let mut targets = lock(&self.targets);
        if !targets.is_current(&space, &core.membership) {
            *targets = Arc::new(targets.next(&space, &core.membership));
        }
        Ok(Arc::clone(&targets))
    }
}

/// When the ranges were last scanned for polls that are due, for each interest. With many ranges
/// and many fetches, a scan by each fetch would take more time than the work.
#[derive(Debug, Default)]
struct Scans(Mutex<Vec<(Interest, Instant)>>);

impl Scans {
    /// Whether a scan for this interest is due. If so, the caller makes it.
    fn is_due(&self, interest: &Interest) -> bool {
        let now = Instant::now();
        let mut scans = lock(&self.0);
        if let Some((_, at)) = scans.iter_mut().find(|(known, _)| known == interest) {
            let is_due = now - *at >= SCAN_INTERVAL;
            *at = if is_due { now } else { *at };
            return is_due;
        }
        scans.retain(|(_, at)| now - *at < SCAN_INTERVAL);
        scans.push((interest.clone(), now));
        true
    }
}

/// The work that fetches have taken.
#[derive(Debug, Default)]
struct TakenWork {
    instances: AtomicU64,
    activities: AtomicU64,
}

impl TakenWork {
    fn record(&self, interest: &Interest) {
        match interest {
            Interest::Instances => &self.instances,
            Interest::Activities { .. } => &self.activities,
        }
        .fetch_add(1, Ordering::Relaxed);
    }

    /// How many instances and activities were taken so far.
    fn counts(&self) -> (u64, u64) {
        (self.instances.load(Ordering::Relaxed), self.activities.load(Ordering::Relaxed))
    }
}

/// The failure of a request that was not answered in time.
fn no_answer(what: &str, timeout: Duration) -> Failure {
    Failure::Contended(format!("no answer within {} s for {what}", timeout.as_secs()))
}

#[cfg(test)]
mod tests;
