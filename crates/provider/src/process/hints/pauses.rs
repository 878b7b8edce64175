//! Pauses of activities that could not be locked: their partition is slow or fails, or only a later
//! version can read them. Until the pause is over, polls do not offer the activity, so that it does
//! not come before activities that can be locked.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use crate::documents::stamp::Stamp;
use crate::process::memory_size::MemorySize;
use crate::sync::lock;

/// The most activities remembered. When there are more, those whose pause is over are
/// forgotten; if there are none, further ones get no pause.
const REMEMBERED_MAX: usize = 8192;

/// The first pause. It doubles with each failure.
const PAUSE_FIRST: Duration = Duration::from_millis(250);

/// Pauses and time limits double at most this many times.
const DOUBLINGS_MAX: u32 = 2;

/// The pauses, by the name of the activity.
#[derive(Debug, Default)]
pub(crate) struct Pauses(Mutex<HashMap<String, Pause>>);

#[derive(Debug, Clone, Copy)]
struct Pause {
    failures: u32,
    until: Stamp,
}

impl Pauses {
    /// Records that an activity could not be locked. `elapsed` is the time that the attempt
    /// took; the pause is at least as long.
    pub(crate) fn record_failure(&self, name: &str, elapsed: Duration, now: Stamp) {
        let failures = lock(&self.0).get(name).map_or(0, |pause| pause.failures);
        let pause = (PAUSE_FIRST * (1 << failures.min(DOUBLINGS_MAX))).max(elapsed);
        self.insert(name, Pause { failures: failures.saturating_add(1), until: now.plus(pause) }, now);
    }

    /// Pauses an activity that this process cannot read.
    pub(crate) fn pause_for(&self, name: &str, pause: Duration, now: Stamp) {
        self.insert(name, Pause { failures: 0, until: now.plus(pause) }, now);
    }

    fn insert(&self, name: &str, pause: Pause, now: Stamp) {
        let mut pauses = lock(&self.0);
        if pauses.len() >= REMEMBERED_MAX && !pauses.contains_key(name) {
            pauses.retain(|_, pause| pause.until > now);
            if pauses.len() >= REMEMBERED_MAX {
                return;
            }
        }
        pauses.insert(name.to_owned(), pause);
    }

    /// Forgets the failures of an activity that was locked.
    pub(crate) fn clear(&self, name: &str) {
        lock(&self.0).remove(name);
    }

    /// The number of activities.
    pub(crate) fn memory_size(&self) -> MemorySize {
        MemorySize::kept("paused activities", lock(&self.0).len(), REMEMBERED_MAX)
    }

    /// Whether an activity is paused at `now`.
    pub(crate) fn contains(&self, name: &str, now: Stamp) -> bool {
        lock(&self.0).get(name).is_some_and(|pause| pause.until > now)
    }

    /// The time limit of the next attempt: `first`, doubled with each failure.
    pub(crate) fn time_limit(&self, name: &str, first: Duration) -> Duration {
        let failures = lock(&self.0).get(name).map_or(0, |pause| pause.failures);
        first * (1 << failures.min(DOUBLINGS_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_and_time_limits_grow_until_the_activity_is_locked() {
        let (pauses, second) = (Pauses::default(), Duration::from_secs(1));
        assert_eq!(pauses.time_limit("a", second), second);
        pauses.record_failure("a", Duration::ZERO, Stamp::at_ms(1_000));
        assert!(pauses.contains("a", Stamp::at_ms(1_249)) && !pauses.contains("a", Stamp::at_ms(1_250)));
        pauses.record_failure("a", second, Stamp::at_ms(2_000));
        assert!(pauses.contains("a", Stamp::at_ms(2_999)) && !pauses.contains("b", Stamp::at_ms(2_001)));
        assert_eq!(pauses.time_limit("a", second), 4 * second);
        pauses.clear("a");
        assert!(!pauses.contains("a", Stamp::at_ms(2_001)));
        assert_eq!(pauses.time_limit("a", second), second);
    }
}
