//! Counts over the whole container: the runtime asks for them once a minute in
//! every process, tools as often as they like.
//!
//! A count that is kept is good for a minute, unless this process has written
//! since; then it is made anew as long as there is something left to spend.
//! What is spent is request units: a count costs what it was charged, at least
//! [`PRICE_LEAST`], and a process earns [`EARNED_PER_SECOND`]. So whoever asks now
//! and then sees their own writes at once; whoever asks without end, or of a
//! container with millions of instances, is told what was true a little while
//! ago (up to a minute, or the time it takes to earn one count), and the cost
//! stays where it is. All that ask at once share one count.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use crate::failure::Failure;
use crate::process::metrics::Metrics;

/// How long a count is good when nothing was written here: the runtime's own
/// interval.
const AGE_MAX: Duration = Duration::from_secs(60);

/// What counting may cost in the long run: little of the smallest container's
/// 400 units a second.
const EARNED_PER_SECOND: f64 = 5.0;

/// What may be saved up for counts in a row: twenty cheap ones, as a person's
/// tool or a test asks for.
const SAVED_MAX: f64 = 2000.0;

/// A count costs at least this, so that there are three a minute in the long run.
const PRICE_LEAST: f64 = 100.0;

/// A count that is kept, and what may be spent on it. Both kinds of count have
/// their own.
#[derive(Debug)]
pub(crate) struct CountCache<T> {
    shelf: tokio::sync::Mutex<Shelf<T>>,
}

#[derive(Debug)]
struct Shelf<T> {
    kept: Option<Kept<T>>,
    saved: f64,
    saved_at: Instant,
}

#[derive(Debug)]
struct Kept<T> {
    count: T,
    at: Instant,
    /// How much this process had written when it was asked for.
    writes: u64,
}

impl<T> Default for CountCache<T> {
    fn default() -> Self {
        let shelf = Shelf { kept: None, saved: SAVED_MAX, saved_at: Instant::now() };
        CountCache { shelf: tokio::sync::Mutex::new(shelf) }
    }
}

impl<T: Clone> CountCache<T> {
    /// What is kept, or a new count and its charge by `count`.
    pub(crate) async fn get<F>(&self, metrics: &Metrics, count: impl FnOnce() -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<(T, f64), Failure>>,
    {
        let mut shelf = self.shelf.lock().await;
        let (now, writes) = (Instant::now(), metrics.writes());
        shelf.earn(now);
        if let Some(kept) = shelf.kept.as_ref().filter(|kept| kept.is_good(now, writes, shelf.saved)) {
            return Ok(kept.count.clone());
        }
        let (count, charge) = count().await?;
        shelf.saved -= charge.max(PRICE_LEAST);
        shelf.kept = Some(Kept { count: count.clone(), at: now, writes });
        Ok(count)
    }
}

impl<T> Shelf<T> {
    fn earn(&mut self, now: Instant) {
        let earned = (now - self.saved_at).as_secs_f64() * EARNED_PER_SECOND;
        (self.saved, self.saved_at) = ((self.saved + earned).min(SAVED_MAX), now);
    }
}

impl<T> Kept<T> {
    fn is_good(&self, now: Instant, writes: u64, saved: f64) -> bool {
        let is_fresh = now - self.at < AGE_MAX && writes == self.writes;
        is_fresh || saved < 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(at: Instant, writes: u64) -> Kept<u64> {
        Kept { count: 0, at, writes }
    }

    #[tokio::test(start_paused = true)]
    async fn a_count_is_made_anew_after_a_minute_or_a_write_if_there_is_something_to_spend() {
        let at = Instant::now();
        let (soon, later) = (at + AGE_MAX / 2, at + AGE_MAX);
        for (now, writes, saved, is_good) in [
            (soon, 7, 100.0, true),
            (soon, 8, 100.0, false),
            (later, 7, 100.0, false),
            (later, 8, -1.0, true),
        ] {
            assert_eq!(kept(at, 7).is_good(now, writes, saved), is_good, "{writes} {saved}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_asks_without_end_gets_three_counts_a_minute() {
        let mut shelf: Shelf<u64> = Shelf { kept: None, saved: SAVED_MAX, saved_at: Instant::now() };
        let (mut counts, begun) = (0, Instant::now());
        for second in 0..3600 {
            shelf.earn(begun + Duration::from_secs(second));
            if shelf.saved >= 0.0 {
                shelf.saved -= PRICE_LEAST;
                counts += 1;
            }
        }
        assert!((3 * 60..3 * 60 + 25).contains(&counts), "{counts}");
    }
}
