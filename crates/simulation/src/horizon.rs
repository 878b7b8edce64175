//! The horizon of a host: how far its process may run before the server has to run, too.
//!
//! Only the answer to one of its own requests can reach a process from outside. The network
//! draws the delays of a request and of its answer when the request is sent, so the earliest
//! moment of the answer is known then. Until that moment the process runs alone.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker, ready};
use std::time::Duration;

use tokio::time::Instant;

use crate::virtual_clock;

/// The horizon of one process. It follows from the answers that the process waits for.
#[derive(Debug, Default)]
pub struct Horizon {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the next request.
    next_number: u64,
    /// The earliest moment of each answer that the process waits for.
    answers: BTreeMap<u64, Duration>,
    /// Whether the process was killed. Then it does not run any more.
    is_ended: bool,
    /// Wakes the future of [`Horizon::reach`].
    waker: Option<Waker>,
}

/// How far a process may run at most, and how far it runs at least.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The process does not run beyond this moment: the end of the time that the world simulates
    /// at once (its *window*).
    pub end: Duration,
    /// The process runs this far also when an answer can come earlier. It then gets the answer
    /// at this moment.
    pub floor: Duration,
    /// The process stops only at multiples of this time.
    pub step: Duration,
}

impl Horizon {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the process waits for an answer that comes at this moment or later, until the
    /// returned value is dropped.
    pub fn expect_answer(self: &Arc<Self>, not_before: Duration) -> ExpectedAnswer {
        let mut state = self.state();
        let number = state.next_number;
        state.next_number += 1;
        state.answers.insert(number, not_before);
        if let Some(waker) = &state.waker {
            waker.wake_by_ref();
        }
        ExpectedAnswer { horizon: Arc::clone(self), number }
    }

    /// Called when the process was killed.
    pub fn end(&self) {
        let mut state = self.state();
        state.is_ended = true;
        if let Some(waker) = &state.waker {
            waker.wake_by_ref();
        }
    }

    /// How far the process may run now.
    pub fn target(&self, limits: Limits) -> Duration {
        self.state().target(limits)
    }

    /// Waits on the runtime of the process until it has come to its horizon or was killed. A
    /// request that the process sends meanwhile can bring the horizon nearer.
    pub async fn reach(&self, limits: Limits) {
        let mut sleep = pin!(tokio::time::sleep_until(instant(limits.end)));
        poll_fn(|context| {
            loop {
                let mut state = self.state();
                let target = state.target(limits);
                if state.is_ended || virtual_clock::elapsed() >= target {
                    state.waker = None;
                    return Poll::Ready(());
                }
                state.waker = Some(context.waker().clone());
                drop(state);
                if sleep.deadline() != instant(target) {
                    sleep.as_mut().reset(instant(target));
                }
                ready!(sleep.as_mut().poll(context));
            }
        })
        .await;
    }
}

impl State {
    fn target(&self, limits: Limits) -> Duration {
        let first = self.answers.values().min().copied().unwrap_or(limits.end);
        round_up(first.max(limits.floor), limits.step).min(limits.end)
    }
}

/// The first multiple of `step` at this moment or after it.
pub fn round_up(moment: Duration, step: Duration) -> Duration {
    let step_ns = step.as_nanos().max(1);
    let rounded_ns = moment.as_nanos().div_ceil(step_ns).saturating_mul(step_ns);
    Duration::from_nanos(u64::try_from(rounded_ns).unwrap_or(u64::MAX))
}

/// An answer that a process waits for.
#[derive(Debug)]
pub struct ExpectedAnswer {
    horizon: Arc<Horizon>,
    number: u64,
}

impl ExpectedAnswer {
    /// The server's side of this answer.
    pub fn promise(&self) -> AnswerPromise {
        AnswerPromise { horizon: Arc::clone(&self.horizon), number: self.number }
    }
}

impl Drop for ExpectedAnswer {
    fn drop(&mut self) {
        self.horizon.state().answers.remove(&self.number);
    }
}

/// The server's side of an [`ExpectedAnswer`].
#[derive(Debug)]
pub struct AnswerPromise {
    horizon: Arc<Horizon>,
    number: u64,
}

impl AnswerPromise {
    /// Called when the moment of the answer is known.
    pub fn comes_at(&self, moment: Duration) {
        if let Some(not_before) = self.horizon.state().answers.get_mut(&self.number) {
            *not_before = moment;
        }
    }

    /// Called when the answer has arrived.
    pub fn keep(self) {
        self.horizon.state().answers.remove(&self.number);
    }
}

fn instant(elapsed: Duration) -> Instant {
    Instant::from_std(virtual_clock::instant(elapsed))
}
