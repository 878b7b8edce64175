//! Chooses the shard for a request, and decides how many shards to open. Both decisions are pure
//! functions of the state of the shards.

use super::limits::{FILL_BEFORE_GROWTH, OPENINGS_AT_ONCE_MAX};
use super::slots::SlotsView;

/// How many connections an endpoint may have when those that were taken out of use are counted too,
/// as a multiple of [`ShardLimits::shards_max`].
const WITH_RETIRED_MAX: usize = 2;

/// The streams of all shards of an endpoint at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Load {
    /// All shards, also suspect ones.
    pub(super) shards: usize,
    /// The connections that were taken out of use and have not ended, because requests are still
    /// under way on them.
    pub(super) retired: usize,
    /// The shards that take requests.
    pub(super) usable: usize,
    /// The streams in use on usable shards.
    pub(super) in_use: usize,
    /// The streams of usable shards.
    pub(super) capacity: usize,
    /// Whether the task of a shard is stuck: its runtime makes no progress.
    pub(super) has_stuck_shard: bool,
}

impl Load {
    pub(super) fn of(shards: impl Iterator<Item = SlotsView>) -> Self {
        shards.fold(Load::default(), Load::with)
    }

    fn with(mut self, slots: SlotsView) -> Self {
        self.shards += 1;
        if slots.is_usable {
            self.usable += 1;
            self.in_use += slots.in_use as usize;
            self.capacity += slots.limit as usize;
        }
        self
    }
}

/// How many shards an endpoint may have, and how many streams a shard may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShardLimits {
    pub(super) shards_min: usize,
    pub(super) shards_max: usize,
    pub(super) streams_max: u32,
}

/// A shard that a request may use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) slots: SlotsView,
    /// Whether the last requests on this shard failed.
    pub(super) is_failing: bool,
    /// Whether the task of this shard is stuck: its runtime makes no progress. If so, the shard
    /// gets no requests.
    pub(super) is_stuck: bool,
}

/// The shard for a request, by its index, and the load of all shards. The chosen shard is the
/// fullest one that has room. So the load gathers on as few shards as it needs, and the others
/// become idle. A shard whose last requests failed is chosen only if no other has room.
pub(super) fn choose(shards: impl Iterator<Item = Candidate>) -> (Option<usize>, Load) {
    let mut best: Option<(usize, (bool, u32))> = None;
    let mut load = Load::default();
    for (index, Candidate { slots, is_failing, is_stuck }) in shards.enumerate() {
        load = load.with(slots);
        load.has_stuck_shard |= is_stuck;
        let rank = (!is_failing, slots.in_use);
        if slots.has_room() && !is_stuck && best.is_none_or(|(_, best_rank)| rank > best_rank) {
            best = Some((index, rank));
        }
    }
    (best.map(|(index, _)| index), load)
}

/// How many shards to open, besides the `opening` ones. The wanted number of shards is the lowest
/// one at which the streams in use and the `waiting` requests fill at most three quarters of all
/// streams. The first shard is opened alone, because it shows the protocol and how many streams
/// the peer allows.
pub(super) fn openings_wanted(load: Load, waiting: usize, opening: usize, limits: ShardLimits) -> usize {
    // Connections that end slowly make room for new ones, but not without a bound: a peer may send
    // GOAWAY on each new connection.
    let room_with_retired =
        (limits.shards_max * WITH_RETIRED_MAX).saturating_sub(load.shards + load.retired + opening);
    let room = limits.shards_max.saturating_sub(load.shards + opening).min(room_with_retired);
    if load.shards == 0 {
        return usize::from(opening == 0).min(room);
    }
    let streams_each = load.capacity.checked_div(load.usable).unwrap_or(limits.streams_max as usize);
    let (full, whole) = FILL_BEFORE_GROWTH;
    let needed = ((load.in_use + waiting) * whole).div_ceil((streams_each * full).max(1));
    needed
        .max(limits.shards_min)
        .saturating_sub(load.usable + opening)
        .min(OPENINGS_AT_ONCE_MAX.saturating_sub(opening))
        .min(room)
}

/// Whether the other shards suffice when one idle shard with `limit` streams is closed.
pub(super) fn is_spare(load: Load, limit: u32, limits: ShardLimits) -> bool {
    let (full, whole) = FILL_BEFORE_GROWTH;
    let rest = load.capacity.saturating_sub(limit as usize);
    load.shards > limits.shards_min && load.in_use * whole <= rest * full
}

#[cfg(test)]
mod tests;
