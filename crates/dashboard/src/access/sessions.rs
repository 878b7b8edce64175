//! `Sessions`: the sessions of people who are signed in. Each login begins a session of its own, which
//! ends after some time or when the person signs out.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Secret;

/// How long a session lasts: a working day.
pub(super) const SESSION_TIME: Duration = Duration::from_secs(12 * 60 * 60);

/// The most sessions. The oldest session ends when there are more.
const SESSIONS_MAX: usize = 1000;

/// The sessions that have not ended, oldest first.
#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<VecDeque<(Secret, Instant)>>);

impl Sessions {
    pub(super) fn begin(&self, now: Instant) -> Result<Secret, getrandom::Error> {
        let session = Secret::random()?;
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|(_, end)| *end > now);
        if sessions.len() >= SESSIONS_MAX {
            sessions.pop_front();
        }
        sessions.push_back((session.clone(), now + SESSION_TIME));
        Ok(session)
    }

    pub(super) fn has(&self, value: &str, now: Instant) -> bool {
        let sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.iter().any(|(session, end)| *end > now && session.equals(value))
    }

    pub(super) fn end(&self, value: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(session, _)| !session.equals(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_after_some_time_or_when_the_person_signs_out() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let [one, two] = [(); 2].map(|()| sessions.begin(now).unwrap());
        assert!(sessions.has(one.reveal(), now) && sessions.has(two.reveal(), now));
        sessions.end(one.reveal());
        assert!(!sessions.has(one.reveal(), now) && sessions.has(two.reveal(), now));
        assert!(!sessions.has(two.reveal(), now + SESSION_TIME) && !sessions.has("", now));
    }

    #[test]
    fn the_number_of_sessions_is_bounded() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let first = sessions.begin(now).unwrap();
        (0..SESSIONS_MAX).for_each(|_| drop(sessions.begin(now).unwrap()));
        assert!(!sessions.has(first.reveal(), now));
        assert_eq!(sessions.0.lock().unwrap().len(), SESSIONS_MAX);
        sessions.begin(now + SESSION_TIME).unwrap();
        assert_eq!(sessions.0.lock().unwrap().len(), 1, "sessions that have ended are removed");
    }
}
