//! Caches counts over the whole container. The runtime asks for them once a minute in
//! every process, tools as often as they like.
//!
//! A cached count is valid for a minute, unless this process has written since. Each kind of
//! count has a budget in request units: a count costs its charge, at least [`PRICE_LEAST`],
//! and the budget grows by [`EARNED_PER_SECOND`]. While the budget is below zero, the cached
//! count is returned, whatever its age. So an occasional caller sees its own writes at once,
//! and the cost is bounded. A caller that asks all the time, or asks for a container with
//! millions of instances, may get a count as old as it takes to earn the price of one count.
//! One count runs at a time; callers wait for it and share its result while it is valid.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use crate::failure::Failure;
use crate::process::metrics::Metrics;

/// How long a count is valid when this process writes nothing: the runtime's interval.
const AGE_MAX: Duration = Duration::from_secs(60);

/// What a budget earns, in request units per second: the most that one kind of count costs on
/// average. It is small against the 400 of the smallest container.
const EARNED_PER_SECOND: f64 = 5.0;

/// The most request units in a budget: enough for twenty cheap counts in a row, as a tool or
/// a test makes them.
const SAVED_MAX: f64 = 2000.0;

/// The least price of a count in request units, so that there are at most three counts a
/// minute on average.
const PRICE_LEAST: f64 = 100.0;

/// One kind of count: its cached value and its budget.
#[derive(Debug)]
pub(crate) struct CountCache<T> {
    state: tokio::sync::Mutex<CacheState<T>>,
}

#[derive(Debug)]
struct CacheState<T> {
    cached: Option<CachedCount<T>>,
    /// The budget in request units; below zero after an expensive count.
    saved: f64,
    /// When the budget was last updated.
    saved_at: Instant,
}

#[derive(Debug)]
struct CachedCount<T> {
    count: T,
    /// When the count began.
    at: Instant,
    /// The number of writes that this process had made when the count began.
    writes: u64,
}

impl<T> Default for CountCache<T> {
    fn default() -> Self {
        let state = CacheState { cached: None, saved: SAVED_MAX, saved_at: Instant::now() };
        CountCache { state: tokio::sync::Mutex::new(state) }
    }
}

impl<T: Clone> CountCache<T> {
    /// The cached count, or a new one. `count` returns a count and its charge in request
    /// units.
    pub(crate) async fn get<F>(&self, metrics: &Metrics, count: impl FnOnce() -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<(T, f64), Failure>>,
    {
        let mut state = self.state.lock().await;
        let (now, writes) = (Instant::now(), metrics.writes());
        state.earn(now);
        if let Some(cached) = state.cached.as_ref().filter(|cached| cached.is_valid(now, writes, state.saved))
        {
            return Ok(cached.count.clone());
        }
        let (count, charge) = count().await?;
        state.saved -= charge.max(PRICE_LEAST);
        state.cached = Some(CachedCount { count: count.clone(), at: now, writes });
        Ok(count)
    }
}

impl<T> CacheState<T> {
    /// Adds what the budget has earned up to `now`.
    fn earn(&mut self, now: Instant) {
        let earned = (now - self.saved_at).as_secs_f64() * EARNED_PER_SECOND;
        (self.saved, self.saved_at) = ((self.saved + earned).min(SAVED_MAX), now);
    }
}

impl<T> CachedCount<T> {
    /// Whether the count can be returned. `writes` is the number of writes of this process,
    /// `saved` is the budget.
    fn is_valid(&self, now: Instant, writes: u64, saved: f64) -> bool {
        let is_fresh = now - self.at < AGE_MAX && writes == self.writes;
        is_fresh || saved < 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cached(at: Instant, writes: u64) -> CachedCount<u64> {
        CachedCount { count: 0, at, writes }
    }

    #[tokio::test(start_paused = true)]
    async fn a_count_is_repeated_after_a_minute_or_a_write_while_the_budget_allows() {
        let at = Instant::now();
        let (soon, later) = (at + AGE_MAX / 2, at + AGE_MAX);
        for (now, writes, saved, is_valid) in [
            (soon, 7, 100.0, true),
            (soon, 8, 100.0, false),
            (later, 7, 100.0, false),
            (later, 8, -1.0, true),
        ] {
            assert_eq!(cached(at, 7).is_valid(now, writes, saved), is_valid, "{writes} {saved}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_asks_all_the_time_gets_three_counts_a_minute() {
        let mut state: CacheState<u64> =
            CacheState { cached: None, saved: SAVED_MAX, saved_at: Instant::now() };
        let (mut counts, begun) = (0, Instant::now());
        for second in 0..3600 {
            state.earn(begun + Duration::from_secs(second));
            if state.saved >= 0.0 {
                state.saved -= PRICE_LEAST;
                counts += 1;
            }
        }
        assert!((3 * 60..3 * 60 + 25).contains(&counts), "{counts}");
    }
}
