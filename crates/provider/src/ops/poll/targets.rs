//! Decides which ranges of the container this process polls, and how often: see [`Targets`]
//! and [`Looks`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use perihelion_client::{FeedRange, KeySpace};
use tokio::time::Instant;

use super::range::RangePoller;
use crate::process::membership::{Membership, View};
use crate::timing::{LOOK_INTERVAL_IDLE, LOOK_INTERVAL_MIN, POLL_INTERVAL_MIN};

/// The targets are computed again after this time at the latest, even if the view has not changed.
/// The reason: the slices that this process watches (`watch_slice_of`) are not in the view.
const CURRENT_FOR: Duration = Duration::from_secs(1);

/// When a process becomes busy, the partitions are divided into slices. For this time, the process
/// still polls the whole of each partition whose first slice it owns. After that the other processes
/// have read its heartbeat, and poll their slices.
const DIVIDED_AFTER: Duration = Duration::from_secs(15);

/// A slice of another process is polled by all processes that help with it. All of them
/// together send one request in this time, or less often. With more than 125 processes it is more
/// often, because each of them polls once in [`HELP_INTERVAL_MAX`].
const HELP_INTERVAL: Duration = Duration::from_millis(40);

/// The longest interval at which one process polls a slice that it helps with. A process asks for
/// help for at least ten seconds, so each helper polls the slice meanwhile.
const HELP_INTERVAL_MAX: Duration = Duration::from_secs(5);

/// With more processes than partitions, each idle process looks less often, up to this factor.
/// All of them together still look at each partition about once in [`LOOK_INTERVAL_IDLE`], or more often.
const IDLE_LOOK_FACTOR_MAX: f64 = 4.0;

/// The ranges that this process polls.
#[derive(Debug, Default)]
pub(super) struct Targets {
    /// The partitions and the view from which the targets were computed, and when; `None` if there
    /// are no targets yet.
    computed: Option<(KeySpace, Arc<View>, Instant)>,
    /// All physical partitions.
    pub(super) partitions: Vec<Arc<RangePoller>>,
    /// The ranges that are polled by their schedule: those that this process owns, those that it
    /// watches, and those that it helps with.
    pub(super) polled: Vec<Arc<RangePoller>>,
}

impl Targets {
    pub(super) fn is_current(&self, space: &KeySpace, membership: &Membership) -> bool {
        self.computed.as_ref().is_some_and(|(known_space, view, at)| {
            known_space.is_same(space) && Arc::ptr_eq(view, &membership.view()) && at.elapsed() < CURRENT_FOR
        })
    }

    /// The polled ranges in the physical partition of this instance; all of them without an instance.
    pub(super) fn polled_near(&self, instance: Option<&str>) -> impl Iterator<Item = &RangePoller> {
        let space = self.computed.as_ref().map(|(space, ..)| space);
        let key = space.zip(instance).map(|(space, instance)| space.range_of(instance));
        let has_key = move |partition: &&Arc<RangePoller>| {
            key.as_ref().is_none_or(|key| partition.range().overlaps(key))
        };
        let near: Vec<&FeedRange> =
            self.partitions.iter().filter(has_key).map(|partition| partition.range()).collect();
        let is_near = move |range: &&RangePoller| near.iter().any(|near| near.overlaps(range.range()));
        self.polled.iter().map(Arc::as_ref).filter(is_near)
    }

    /// The targets for these partitions and the current view. Ranges that are still polled
    /// keep their schedule and cursor; the others are forgotten.
    pub(super) fn next(&self, space: &KeySpace, membership: &Membership) -> Targets {
        let view = membership.view();
        let known = |range: &FeedRange| {
            self.partitions.iter().chain(&self.polled).find(|known| known.range() == range).cloned()
        };
        let ranges = space.feed_ranges();
        let is_only_partition = ranges.len() == 1;
        let partitions: Vec<Arc<RangePoller>> = ranges
            .iter()
            .map(|range| {
                known(range)
                    .unwrap_or_else(|| Arc::new(RangePoller::new(range.clone(), Some(is_only_partition))))
            })
            .collect();
        let poller = |range: &FeedRange| {
            let found = partitions
                .iter()
                .find(|partition| partition.range() == range)
                .cloned()
                .or_else(|| known(range));
            found.unwrap_or_else(|| Arc::new(RangePoller::new(range.clone(), None)))
        };
        let owned = owned_ranges(&view, membership, &ranges);
        let help_interval =
            HELP_INTERVAL.saturating_mul(u32::try_from(view.members().len()).unwrap_or(u32::MAX));
        let is_owned = |range: &FeedRange| owned.iter().any(|owned| owned.contains(range));
        let watched = membership.watched_ranges();
        let helped = view.shared_ranges().into_iter().filter(|range| !watched.contains(range));
        let helped: Vec<FeedRange> = helped.filter(|range| !is_owned(range)).collect();
        let owned_or_watched = owned.iter().chain(watched.iter().filter(|range| !is_owned(range)));
        let mut polled: Vec<Arc<RangePoller>> = owned_or_watched.map(poller).collect();
        let not_helped = |range: &RangePoller| !helped.contains(range.range());
        for range in polled.iter().chain(&partitions).filter(|range| not_helped(range)) {
            range.set_interval_min(POLL_INTERVAL_MIN);
            range.set_place(None);
        }
        for range in &helped {
            let place = view.place_among_helpers(range);
            let range = poller(range);
            range.set_interval_min(help_interval.clamp(POLL_INTERVAL_MIN, HELP_INTERVAL_MAX));
            range.set_place(Some(place));
            polled.push(range);
        }
        Targets { computed: Some((space.clone(), view, Instant::now())), partitions, polled }
    }
}

/// The ranges that this process polls because it owns them.
fn owned_ranges(view: &View, membership: &Membership, partitions: &[FeedRange]) -> Vec<FeedRange> {
    if membership.is_view_old() {
        // The view no longer shows which other processes are alive.
        return partitions.to_vec();
    }
    let Some(owned) = view.owned_ranges() else { return partitions.to_vec() };
    let is_whole = |partition: &&FeedRange| is_dividing(membership, partition);
    let whole: BTreeSet<FeedRange> = partitions.iter().filter(is_whole).cloned().collect();
    let is_outside = |range: &FeedRange| !whole.iter().any(|partition| partition.contains(range));
    owned.into_iter().filter(is_outside).chain(whole.iter().cloned()).collect()
}

/// Whether this process polls a whole partition until the others poll their slices of it.
pub(super) fn is_dividing(membership: &Membership, partition: &FeedRange) -> bool {
    membership.busy_for().is_some_and(|busy_for| busy_for < DIVIDED_AFTER)
        && membership.view().owns_first_slice(partition)
}

/// The looks of this process at partitions of other processes, one after the other.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// When the next look is due; `None` if there is nothing to look at.
    next_at: Option<Instant>,
    /// The index of the partition of the last look. The first partition is chosen at random.
    position: Option<usize>,
    /// The partition to look at next, because its work waits longer than usual.
    suspect: Option<FeedRange>,
    /// Whether the last look, or the next one, is brought forward for a suspect.
    is_brought_forward: bool,
    /// Whether any process was busy at the last call of [`Looks::next`].
    was_busy: bool,
}

impl Looks {
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.next_at
    }

    /// Records that work of a partition waits longer than usual, and that this process may
    /// take the work after `wait`. Brings the next look forward to that time, unless the last look was
    /// brought forward too.
    pub(super) fn record_suspect(&mut self, partition: &FeedRange, wait: Duration) {
        let look_at = Instant::now() + wait.max(POLL_INTERVAL_MIN);
        let may_bring_forward = !std::mem::replace(&mut self.is_brought_forward, true);
        if may_bring_forward && self.next_at.is_some_and(|next_at| look_at < next_at) {
            (self.next_at, self.suspect) = (Some(look_at), Some(partition.clone()));
        }
    }

    /// The partition to look at now; `None` if no look is due. While any process is busy,
    /// looks are more frequent.
    pub(super) fn next(&mut self, targets: &Targets, view: &View) -> Option<Arc<RangePoller>> {
        let is_polled =
            |partition: &RangePoller| targets.polled.iter().any(|polled| polled.range() == partition.range());
        let others: Vec<usize> =
            (0..targets.partitions.len()).filter(|index| !is_polled(&targets.partitions[*index])).collect();
        if others.is_empty() {
            self.next_at = None;
            return None;
        }
        let is_busy = view.is_busy();
        let interval = match is_busy {
            true => LOOK_INTERVAL_MIN.mul_f64((view.processes_per_partition() / 2.0).max(1.0)),
            false => LOOK_INTERVAL_IDLE.mul_f64(view.processes_per_partition().min(IDLE_LOOK_FACTOR_MAX)),
        };
        let now = Instant::now();
        let random_at = now + interval.mul_f64(fastrand::f64());
        let next_at = match self.next_at {
            // The first look of a process comes at a random time, so that the processes of a
            // deployment do not look at the same time. When a process becomes busy, the next look
            // comes at a random time for the same reason.
            None => *self.next_at.insert(random_at),
            Some(next_at) if is_busy && !self.was_busy => *self.next_at.insert(next_at.min(random_at)),
            Some(next_at) => next_at,
        };
        self.was_busy = is_busy;
        if next_at > now {
            return None;
        }
        self.next_at = Some(now + interval);
        let suspect = self.suspect.take();
        self.is_brought_forward = suspect.is_some();
        let is_suspect = |index: &usize| suspect.as_ref() == Some(targets.partitions[*index].range());
        let last = self.position.unwrap_or_else(|| fastrand::usize(..targets.partitions.len()));
        let next = others.iter().copied().find(is_suspect);
        let next = next.or_else(|| others.iter().copied().find(|index| *index > last)).unwrap_or(others[0]);
        self.position = Some(next);
        Some(Arc::clone(&targets.partitions[next]))
    }
}
