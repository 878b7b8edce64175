//! Caches counts over the whole container. The runtime asks for the counts once a minute in
//! every process; tools may ask at any rate.
//!
//! A cached count is valid for a minute, or for hours while no process takes work
//! ([`IDLE_AGE_MAX`]), unless this process has written since. Each kind of count has a budget in
//! request units (RU). A new count takes its charge from the budget, at least [`PRICE_MIN_RU`]. The
//! budget grows by [`EARNED_RU_PER_SECOND`]. While the budget is below zero, the cached count is
//! returned, whatever its age. So an occasional caller sees its own writes at once, and the cost is
//! bounded. A caller that asks all the time, or on a container with millions of instances, may get
//! an old count. Its age is at most about the time that the budget needs to earn the price of one
//! count. One count of each kind runs at a time. Other callers wait for it and share its result while
//! it is valid.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use crate::failure::Failure;
use crate::process::metrics::Metrics;

/// How long a count is valid when this process writes nothing: the interval at which the
/// runtime asks.
const AGE_MAX: Duration = Duration::from_secs(60);

/// How long a count is valid while no process takes work.
const IDLE_AGE_MAX: Duration = Duration::from_secs(12 * 3600);

/// What a budget earns: the most that one kind of count costs per second on average. The
/// smallest container has 400 RU per second.
const EARNED_RU_PER_SECOND: f64 = 5.0;

/// The most that a budget holds: enough for twenty cheap counts in a row, as a tool or a test
/// makes them.
const BUDGET_MAX_RU: f64 = 2000.0;

/// The lowest price of a count, so that there are at most three counts a minute on average.
const PRICE_MIN_RU: f64 = 100.0;

/// One kind of count: its cached value and its budget.
#[derive(Debug)]
pub(crate) struct CountCache<T> {
    state: tokio::sync::Mutex<CacheState<T>>,
}

#[derive(Debug)]
struct CacheState<T> {
    cached: Option<CachedCount<T>>,
    /// The budget; below zero after an expensive count.
    budget_ru: f64,
    /// When the earned request units were last added to the budget.
    earned_until: Instant,
}

#[derive(Debug)]
struct CachedCount<T> {
    count: T,
    /// When the count began.
    begun_at: Instant,
    /// The number of writes that this process had made when the count began.
    writes_before: u64,
}

impl<T> Default for CountCache<T> {
    fn default() -> Self {
        let state = CacheState { cached: None, budget_ru: BUDGET_MAX_RU, earned_until: Instant::now() };
        CountCache { state: tokio::sync::Mutex::new(state) }
    }
}

impl<T: Clone> CountCache<T> {
    /// The cached count, or a new one. `count` returns a count and its charge in request
    /// units. `is_idle` says that no live process has taken work for some time.
    pub(crate) async fn get<F>(
        &self,
        metrics: &Metrics,
        is_idle: bool,
        count: impl FnOnce() -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<(T, f64), Failure>>,
    {
        let mut state = self.state.lock().await;
        let (now, writes) = (Instant::now(), metrics.writes());
        state.earn(now);
        let usable =
            state.cached.as_ref().filter(|cached| cached.is_usable(now, writes, state.budget_ru, is_idle));
        if let Some(cached) = usable {
            return Ok(cached.count.clone());
        }
        let (count, charge_ru) = count().await?;
        state.budget_ru -= charge_ru.max(PRICE_MIN_RU);
        state.cached = Some(CachedCount { count: count.clone(), begun_at: now, writes_before: writes });
        Ok(count)
    }
}

impl<T> CacheState<T> {
    /// Adds what the budget has earned up to `now`.
    fn earn(&mut self, now: Instant) {
        let earned_ru = (now - self.earned_until).as_secs_f64() * EARNED_RU_PER_SECOND;
        self.budget_ru = (self.budget_ru + earned_ru).min(BUDGET_MAX_RU);
        self.earned_until = now;
    }
}

impl<T> CachedCount<T> {
    /// Whether the count can be returned: it is valid, or there is no budget for a new one.
    /// `writes` is the number of writes of this process up to now.
    fn is_usable(&self, now: Instant, writes: u64, budget_ru: f64, is_idle: bool) -> bool {
        let age_max = if is_idle { IDLE_AGE_MAX } else { AGE_MAX };
        let is_valid = now - self.begun_at < age_max && writes == self.writes_before;
        is_valid || budget_ru < 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_count_is_repeated_after_a_minute_or_a_write_while_the_budget_allows() {
        let begun_at = Instant::now();
        let cached = CachedCount { count: 0, begun_at, writes_before: 7 };
        let (soon, later) = (begun_at + AGE_MAX / 2, begun_at + AGE_MAX);
        for (now, writes, budget_ru, is_usable) in [
            (soon, 7, 100.0, true),
            (soon, 8, 100.0, false),
            (later, 7, 100.0, false),
            (later, 8, -1.0, true),
        ] {
            assert_eq!(cached.is_usable(now, writes, budget_ru, false), is_usable, "{writes} {budget_ru}");
        }
        assert!(cached.is_usable(later, 7, 100.0, true), "while no process takes work, a count stays valid");
        assert!(
            !cached.is_usable(later, 8, 100.0, true)
                && !cached.is_usable(begun_at + IDLE_AGE_MAX, 7, 100.0, true)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_asks_all_the_time_gets_three_counts_a_minute() {
        let mut state: CacheState<u64> =
            CacheState { cached: None, budget_ru: BUDGET_MAX_RU, earned_until: Instant::now() };
        let (mut counts, begun) = (0, Instant::now());
        for second in 0..3600 {
            state.earn(begun + Duration::from_secs(second));
            if state.budget_ru >= 0.0 {
                state.budget_ru -= PRICE_MIN_RU;
                counts += 1;
            }
        }
        assert!((3 * 60..3 * 60 + 25).contains(&counts), "{counts}");
    }
}
