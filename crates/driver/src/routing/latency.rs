//! Latencies of recent requests to a region, and the hedging threshold that
//! follows from them. Each kind of operation has a window of its own: a query takes longer
//! than a point read, so the latencies of reads say nothing about queries.
//!
//! A [`LatencyWindow`] is a histogram with logarithmic buckets, divided into
//! slices of time that are reused. Recording is two atomic additions, without a
//! lock and without allocation. A percentile is taken over the newest slices that
//! together hold enough requests: under load these are the last seconds, with
//! little traffic the last half minute. A request that is recorded while its slice
//! is being emptied may be lost.
//!
//! Counts of two uses of a slice are not mixed, unless a thread is paused inside
//! `record` for about half a minute.
//!
//! A region that becomes slow must not raise the threshold by itself, so [`threshold`]
//! uses the fastest region. While the first region works, it gets all traffic, and no
//! other region is measured. During that time the usual percentile of the first region (the
//! least P99 of the last minutes) limits the threshold, once that percentile is known.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;

use super::account::Location;

/// The length of a slice. With enough traffic a change of latency shows after at
/// most one slice.
const SLICE_LENGTH: Duration = Duration::from_secs(5);

/// The number of slices: together they are half a minute, for regions with little
/// traffic.
const SLICE_COUNT: usize = 6;

/// When the newest slices hold this many requests, older slices are not used.
const SAMPLES_ENOUGH: u32 = 200;

/// With fewer requests than this there is no percentile: the largest of ten is a
/// rough upper bound, the largest of two is random.
const SAMPLES_MIN: u32 = 10;

/// A percentile of fewer requests than this is not used as the usual percentile:
/// the largest of a few latencies is often below the real percentile.
const SAMPLES_TRUSTED: u32 = 100;

/// The usual percentile is the least percentile of the current period of this many
/// slices (150 s) and of the period before.
const USUAL_SLICES: u64 = 30;

/// When no other region was measured, the threshold rises to at most this many times
/// the usual percentile. Slower requests are hedged, and the hedges measure the other
/// regions. If the other regions are slow too, the threshold rises further.
const RISE_UNCONFIRMED_MAX: u32 = 2;

/// How long a computed percentile is used before it is computed again.
const PERCENTILE_CACHED_FOR: Duration = Duration::from_millis(100);

/// The number of buckets per octave (a doubling of the latency). Neighbouring bounds
/// are 3 to 6 % apart.
const STEPS_PER_OCTAVE: usize = 1 << STEP_BITS;
const STEP_BITS: u32 = 4;

/// The first bucket begins at 2^6 us = 64 us. It also counts faster requests, which are
/// rare over a network.
const FIRST_OCTAVE: u32 = 6;

/// The last bucket begins at 2^23 us = 8.4 s, beyond every threshold.
const LAST_OCTAVE: u32 = 23;

const BUCKETS: usize = (LAST_OCTAVE - FIRST_OCTAVE) as usize * STEPS_PER_OCTAVE + 1;

/// The threshold when no region has had enough recent requests.
const THRESHOLD_UNKNOWN: Duration = Duration::from_secs(1);

/// The shortest threshold. Shorter thresholds that were measured or set are raised to it.
const THRESHOLD_FLOOR: Duration = Duration::from_millis(50);

/// The longest threshold. Longer thresholds that were measured or set are lowered to it.
const THRESHOLD_CEILING: Duration = Duration::from_millis(4000);

/// A kind of operation whose latencies are measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LatencyKind {
    /// Reads of one document.
    PointRead,
    Query,
    ChangeFeed,
    /// Writes of documents.
    Write,
    /// Reads of a container and of its ranges.
    Metadata,
}

/// The number of kinds.
const KINDS: usize = LatencyKind::Metadata as usize + 1;

/// Recent latencies of one region, in one window for each kind of operation. A window has
/// several kilobytes, so it is allocated when an operation of its kind first uses it.
#[derive(Debug, Default)]
pub(crate) struct LatencyWindows([OnceLock<Box<LatencyWindow>>; KINDS]);

impl LatencyWindows {
    /// The window of a kind.
    pub(crate) fn of(&self, kind: LatencyKind) -> &LatencyWindow {
        self.0[kind as usize].get_or_init(|| Box::new(LatencyWindow::new()))
    }
}

/// Recent latencies of one kind of operation in one region.
#[derive(Debug)]
pub(crate) struct LatencyWindow {
    /// When slice 0 begins: at the first request.
    origin: OnceLock<Instant>,
    slices: [Slice; SLICE_COUNT],
    /// The latest percentile, for the interval (tick) of [`PERCENTILE_CACHED_FOR`] in which it was
    /// computed.
    current: CachedPercentile,
    /// The least percentiles of the current period and the one before. Here a tick is a period of
    /// [`USUAL_SLICES`].
    usual: [CachedPercentile; 2],
}

/// How long to wait for the first region before the second region is asked as well: the P99 of this
/// kind of operation in the fastest of `locations`, kept within `min` and `max` and within 50 to
/// 4000 ms. If only one of several locations was measured, [`RISE_UNCONFIRMED_MAX`] limits the
/// threshold.
pub(crate) fn threshold(
    locations: &[&Arc<Location>],
    kind: LatencyKind,
    min: Duration,
    max: Duration,
    now: Instant,
) -> Duration {
    let is_measured = |location: &&&Arc<Location>| location.latency.of(kind).p99(now).is_some();
    let is_only_measured = locations.len() > 1 && locations.iter().filter(is_measured).count() == 1;
    let fastest = locations
        .iter()
        .filter_map(|location| location.latency.of(kind).threshold(is_only_measured, now))
        .min();
    let floor = min.clamp(THRESHOLD_FLOOR, THRESHOLD_CEILING);
    let ceiling = max.clamp(floor, THRESHOLD_CEILING);
    fastest.unwrap_or(THRESHOLD_UNKNOWN).clamp(floor, ceiling)
}

impl LatencyWindow {
    pub(crate) fn new() -> Self {
        LatencyWindow {
            origin: OnceLock::new(),
            slices: std::array::from_fn(|_| Slice::new()),
            current: CachedPercentile::default(),
            usual: Default::default(),
        }
    }

    /// Counts one request that was sent at `sent_at` and took `elapsed`.
    pub(crate) fn record(&self, sent_at: Instant, elapsed: Duration) {
        let number = slice_number(*self.origin.get_or_init(|| sent_at), sent_at);
        self.slices[number as usize % SLICE_COUNT].record(number, bucket(elapsed));
    }

    /// The latency that 99 of 100 recent requests stayed under; `None` when
    /// there were too few.
    pub(crate) fn p99(&self, now: Instant) -> Option<Duration> {
        let origin = *self.origin.get()?;
        let tick =
            (now.saturating_duration_since(origin).as_millis() / PERCENTILE_CACHED_FOR.as_millis()) as u32;
        match self.current.get(tick) {
            Some(percentile) => percentile,
            None => self.current.put(tick, self.compute_p99(slice_number(origin, now))),
        }
    }

    /// The threshold that follows from this region: its P99. If `is_only_measured` (no other
    /// region was measured), the threshold is at most [`RISE_UNCONFIRMED_MAX`] times the
    /// usual percentile, once that is known.
    fn threshold(&self, is_only_measured: bool, now: Instant) -> Option<Duration> {
        let p99 = self.p99(now)?;
        let period = slice_number(*self.origin.get()?, now) / USUAL_SLICES;
        let usual = [Some(period), period.checked_sub(1)].into_iter().flatten();
        let usual = usual.filter_map(|period| self.usual[period as usize % 2].get(period as u32)?).min();
        Some(usual.filter(|_| is_only_measured).map_or(p99, |usual| p99.min(usual * RISE_UNCONFIRMED_MAX)))
    }

    /// Takes the P99 over the newest slices; `newest` is the number of the newest one. If it was
    /// taken over at least [`SAMPLES_TRUSTED`] requests, and is the least P99 of the current period,
    /// it is stored in `usual`.
    fn compute_p99(&self, newest: u64) -> Option<Duration> {
        let mut used: [Option<&Slice>; SLICE_COUNT] = [None; SLICE_COUNT];
        let mut count: u32 = 0;
        for (age, slot) in used.iter_mut().enumerate() {
            *slot = newest.checked_sub(age as u64).and_then(|number| self.slice(number));
            count = count.saturating_add(slot.map_or(0, |slice| slice.count.load(Ordering::Relaxed)));
            if count >= SAMPLES_ENOUGH {
                break;
            }
        }
        if count < SAMPLES_MIN {
            return None;
        }
        let p99 = percentile(&used, count);
        if count >= SAMPLES_TRUSTED {
            let period = newest / USUAL_SLICES;
            let usual = &self.usual[period as usize % 2];
            let least = usual.get(period as u32).flatten().into_iter().chain(p99).min();
            usual.put(period as u32, least);
        }
        p99
    }

    /// The slice with this number, unless it was reused for another number.
    fn slice(&self, number: u64) -> Option<&Slice> {
        let slice = &self.slices[number as usize % SLICE_COUNT];
        (slice.number.load(Ordering::Acquire) == number).then_some(slice)
    }
}

/// The latency that all but the slowest hundredth of the `count` requests stayed
/// under. `None` when the slices were emptied meanwhile.
fn percentile(slices: &[Option<&Slice>], count: u32) -> Option<Duration> {
    // Going down from the slowest bucket, the search ends in the bucket of the n-th slowest
    // request, where n is a hundredth of `count`, but at least 1.
    let mut slowest_left = (count / 100).max(1);
    for bucket in (0..BUCKETS).rev() {
        let counts = slices.iter().flatten().map(|slice| slice.buckets[bucket].load(Ordering::Relaxed));
        let in_bucket = counts.fold(0u32, u32::saturating_add);
        if in_bucket >= slowest_left {
            return Some(upper_bound(bucket));
        }
        slowest_left -= in_bucket;
    }
    None
}

/// The counts of one slice of time.
#[derive(Debug)]
struct Slice {
    /// The number of the slice since the origin, or [`UNUSED`], or [`EMPTYING`].
    number: AtomicU64,
    count: AtomicU32,
    buckets: [AtomicU32; BUCKETS],
}

/// The number of a slice that was never used.
const UNUSED: u64 = u64::MAX;

/// The number of a slice that is being emptied for its next use.
const EMPTYING: u64 = u64::MAX - 1;

impl Slice {
    fn new() -> Self {
        Slice {
            number: AtomicU64::new(UNUSED),
            count: AtomicU32::new(0),
            buckets: std::array::from_fn(|_| AtomicU32::new(0)),
        }
    }

    /// Counts one request in the bucket. If the slice still has the counts of an earlier number,
    /// it is emptied first. If it has those of a later number, or another thread is just emptying
    /// it, the request is not counted.
    fn record(&self, number: u64, bucket: usize) {
        let found = self.number.load(Ordering::Acquire);
        if found != number && !self.reuse(found, number) {
            return;
        }
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Empties the slice, which has the number `found`, for its next use as `number`. Returns
    /// false when another thread empties it at the same time, or a later use has begun.
    fn reuse(&self, found: u64, number: u64) -> bool {
        let is_older = found == UNUSED || found < number;
        let is_ours = is_older
            && self.number.compare_exchange(found, EMPTYING, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if is_ours {
            self.count.store(0, Ordering::Relaxed);
            self.buckets.iter().for_each(|bucket| bucket.store(0, Ordering::Relaxed));
            self.number.store(number, Ordering::Release);
        }
        is_ours
    }
}

/// A percentile and its tick, which is the number of the time interval that the percentile
/// belongs to. Both are in one word, so that they are read together: tick + 1 in the upper
/// half, microseconds (0: unknown) in the lower half.
#[derive(Debug, Default)]
struct CachedPercentile(AtomicU64);

impl CachedPercentile {
    /// The percentile that was stored at this tick. The outer `None` means that nothing was
    /// stored at this tick, the inner `None` that there were too few requests for a percentile.
    fn get(&self, tick: u32) -> Option<Option<Duration>> {
        let word = self.0.load(Ordering::Relaxed);
        let micros = word & u64::from(u32::MAX);
        (word >> 32 == u64::from(tick) + 1).then(|| (micros > 0).then(|| Duration::from_micros(micros)))
    }

    /// Stores the percentile of a tick, and returns it.
    fn put(&self, tick: u32, percentile: Option<Duration>) -> Option<Duration> {
        let micros = percentile.map_or(0, |value| value.as_micros() as u64);
        self.0.store((u64::from(tick) + 1) << 32 | micros, Ordering::Relaxed);
        percentile
    }
}

/// The number of the slice that `now` belongs to.
fn slice_number(origin: Instant, now: Instant) -> u64 {
    now.saturating_duration_since(origin).as_secs() / SLICE_LENGTH.as_secs()
}

/// The bucket of a latency: by the octave (the position of the top bit), then by
/// the next four bits.
fn bucket(elapsed: Duration) -> usize {
    let micros =
        u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX).clamp(1 << FIRST_OCTAVE, 1 << LAST_OCTAVE);
    let octave = micros.ilog2();
    let step = (micros >> (octave - STEP_BITS)) as usize & (STEPS_PER_OCTAVE - 1);
    (octave - FIRST_OCTAVE) as usize * STEPS_PER_OCTAVE + step
}

/// The first latency beyond a bucket.
fn upper_bound(bucket: usize) -> Duration {
    let next = bucket + 1;
    let octave = FIRST_OCTAVE + (next / STEPS_PER_OCTAVE) as u32;
    Duration::from_micros((STEPS_PER_OCTAVE + next % STEPS_PER_OCTAVE) as u64 * (1 << (octave - STEP_BITS)))
}

#[cfg(test)]
mod tests;
