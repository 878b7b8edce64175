//! `WrongLogins`: makes answers to wrong tokens wait, so that tokens cannot be guessed fast. One
//! wrong login is answered per second. The right token is never slowed down, so that a stranger
//! cannot lock people out.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The time between two answers to wrong logins.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest wait. A stranger who tries many tokens at once is limited by the number of
/// connections.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// When the last wrong login is answered.
#[derive(Debug, Default)]
pub(super) struct WrongLogins(Mutex<Option<Instant>>);

impl WrongLogins {
    /// How long the answer to a wrong login waits.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let after = last.map_or(now, |last| last.max(now)) + PAUSE;
        let at = after.min(now + WAIT_MAX);
        *last = Some(at);
        at.duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_logins_are_answered_once_per_second() {
        let (logins, now) = (WrongLogins::default(), Instant::now());
        let waits: Vec<u64> = (0..12).map(|_| logins.wait(now).as_secs()).collect();
        assert_eq!(waits, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 10]);
        assert_eq!(logins.wait(now + Duration::from_secs(60)), PAUSE, "a minute later");
    }
}
