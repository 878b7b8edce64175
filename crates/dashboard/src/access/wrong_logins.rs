//! `WrongLogins`: makes logins wait after a wrong login, so that tokens cannot be guessed fast. After
//! a wrong login, one login per second is compared with the token, whether it is right or wrong. The
//! wait comes before the comparison, and a login keeps its place in the queue when its connection is
//! closed. So a client that does not wait for the answer learns nothing and gains no time.
//!
//! No login waits longer than [`WAIT_MAX`], so that an attacker cannot lock people out.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The time between two comparisons after a wrong login.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest wait. Logins that would have to wait longer are compared after this time, several of them at
/// once. An attacker cannot send many of them, because the number of connections is limited.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// When the next login may be compared; `None` if there was no wrong login.
#[derive(Debug, Default)]
pub(super) struct WrongLogins(Mutex<Option<Instant>>);

impl WrongLogins {
    /// The time at which a login that has just arrived is compared. If logins have to wait, this login
    /// takes the next free time.
    pub(super) fn compared_at(&self, now: Instant) -> Instant {
        let mut next = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match *next {
            Some(at) if at > now => {
                *next = Some((at + PAUSE).min(now + WAIT_MAX));
                at
            }
            // This login is compared now, and other logins that come at the same time wait.
            Some(_) => {
                *next = Some(now + PAUSE);
                now
            }
            None => now,
        }
    }

    /// Records a wrong login. Returns the time at which it is answered.
    pub(super) fn record(&self, now: Instant) -> Instant {
        let mut next = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let answered_at = now + PAUSE;
        *next = Some(next.map_or(answered_at, |next| next.max(answered_at)));
        answered_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_wrong_login_one_login_per_second_is_compared() {
        let (logins, now) = (WrongLogins::default(), Instant::now());
        assert_eq!([logins.compared_at(now), logins.compared_at(now)], [now; 2], "there was no wrong login");
        assert_eq!(logins.record(now), now + PAUSE);
        let waits: Vec<u64> =
            (0..12).map(|_| logins.compared_at(now).duration_since(now).as_secs()).collect();
        assert_eq!(waits, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 10]);
        let later = now + Duration::from_secs(60);
        let times = [logins.compared_at(later), logins.compared_at(later)];
        assert_eq!(times, [later, later + PAUSE], "a minute later, two at the same time");
    }
}
