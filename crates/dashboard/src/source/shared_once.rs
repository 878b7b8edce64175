//! `SharedOnce`: a value that is made on first use and then kept. Callers that ask while the value is
//! being made wait for the same attempt and get its result. A failure is not kept: the next caller
//! begins a new attempt.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::failure::Failure;

/// The result of an attempt; `None` while it goes on.
type Outcome<T> = Option<Result<T, Failure>>;

/// A value that is made once and then kept.
#[derive(Debug)]
pub(super) struct SharedOnce<T>(Arc<Mutex<State<T>>>);

#[derive(Debug)]
struct State<T> {
    made: Option<T>,
    /// The result of the last attempt, which may have ended or still goes on.
    last_attempt: Option<watch::Receiver<Outcome<T>>>,
}

impl<T> Default for SharedOnce<T> {
    fn default() -> Self {
        SharedOnce(Arc::new(Mutex::new(State { made: None, last_attempt: None })))
    }
}

impl<T: Clone + Send + Sync + 'static> SharedOnce<T> {
    /// The value, if it has been made. Never waits for an attempt.
    pub(super) fn made(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).made.clone()
    }

    /// Returns the value. If it has not been made, waits for the running attempt, or begins one, and
    /// returns its result. The attempt continues if the caller is dropped.
    pub(super) async fn get<F>(&self, make: impl FnOnce() -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let mut outcome = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(made) = &state.made {
                return Ok(made.clone());
            }
            // If the channel is closed and has no outcome, the attempt panicked.
            let is_running = |outcome: &watch::Receiver<Outcome<T>>| {
                outcome.borrow().is_none() && outcome.has_changed().is_ok()
            };
            let running = state.last_attempt.clone().filter(is_running);
            let outcome = running.unwrap_or_else(|| self.begin(make()));
            state.last_attempt = Some(outcome.clone());
            outcome
        };
        let ended = outcome.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone());
        ended.unwrap_or_else(|| Err(Failure::account("The account could not be opened. Try again.")))
    }

    fn begin(
        &self,
        making: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> watch::Receiver<Outcome<T>> {
        let (sender, outcome) = watch::channel(None);
        let state = Arc::clone(&self.0);
        tokio::spawn(async move {
            let made = making.await;
            state.lock().unwrap_or_else(PoisonError::into_inner).made = made.as_ref().ok().cloned();
            sender.send_replace(Some(made));
        });
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use tokio::time::{Instant, sleep};

    use super::*;

    const LONG: Duration = Duration::from_millis(300);

    #[tokio::test(start_paused = true)]
    async fn all_callers_share_one_attempt() {
        let (shared, begun) = (SharedOnce::default(), Arc::new(AtomicU32::new(0)));
        // The first attempt fails and the second succeeds.
        let make = || {
            let number = begun.fetch_add(1, Ordering::Relaxed);
            async move {
                sleep(LONG).await;
                if number == 0 { Err(Failure::account("unreachable")) } else { Ok(number) }
            }
        };
        let begin = Instant::now();
        let [one, two, three] = [shared.get(make), shared.get(make), shared.get(make)];
        let asked = tokio::join!(one, two, three);
        assert!(asked.0.is_err() && asked.1.is_err() && asked.2.is_err());
        assert!(begin.elapsed() < LONG * 2, "no caller waits for a second attempt");
        assert_eq!((begun.load(Ordering::Relaxed), shared.made()), (1, None));
        // The first caller is dropped. The attempt goes on for the others.
        assert!(tokio::time::timeout(LONG / 10, shared.get(make)).await.is_err());
        assert_eq!(shared.get(make).await.ok(), Some(1));
        assert_eq!((shared.get(make).await.ok(), shared.made()), (Some(1), Some(1)));
        assert_eq!(begun.load(Ordering::Relaxed), 2);
    }
}
