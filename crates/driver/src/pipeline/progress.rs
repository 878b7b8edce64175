//! The progress of an attempt: what it has done so far. The progress outlives an attempt that
//! is abandoned because the other leg of a hedge won.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::ready;

use super::attempt::AttemptResult;
use crate::response;
use crate::transport::Delivered;

/// A request under way: it waits for a connection or for its answer.
pub(crate) type RequestUnderWay = Pin<Box<dyn Future<Output = Delivered> + Send>>;

/// The progress of one attempt. Only the attempt writes it, until another task takes its request.
/// The lock is free whenever the attempt is not polled.
#[derive(Default)]
pub(crate) struct Progress {
    /// Whether the request under way is kept, so that another task can await it.
    is_kept: bool,
    state: Mutex<ProgressState>,
}

/// The part of the progress that changes.
#[derive(Default)]
struct ProgressState {
    throttles: Throttles,
    /// `None` when no request is under way, or requests are not kept.
    request: Option<RequestUnderWay>,
}

/// The throttled answers of one attempt.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Throttles {
    pub(crate) count: u32,
    /// The request units of the throttled answers, without the answer that ended the attempt:
    /// its charge is counted with the result.
    pub(crate) charge: Option<f64>,
}

impl Progress {
    /// The progress of an attempt whose request can be taken by [`Progress::take_request`].
    pub(crate) fn kept() -> Self {
        Progress { is_kept: true, state: Mutex::default() }
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Awaits a request, and keeps it meanwhile.
    pub(crate) async fn keep(&self, request: RequestUnderWay) -> Delivered {
        self.state().request = Some(request);
        poll_fn(|context| {
            let mut state = self.state();
            // Only the attempt itself polls the request, and no other task takes the request
            // while the attempt polls it.
            let request = state.request.as_mut().expect("no other task takes a request that is polled");
            let result = ready!(request.as_mut().poll(context));
            state.request = None;
            std::task::Poll::Ready(result)
        })
        .await
    }

    /// Takes the request that is under way. The attempt must not be polled afterwards.
    pub(crate) fn take_request(&self) -> Option<RequestUnderWay> {
        self.state().request.take()
    }

    /// Counts a throttled answer.
    pub(crate) fn count_throttle(&self) {
        self.state().throttles.count += 1;
    }

    /// Adds the charge of a throttled answer.
    pub(crate) fn add_charge(&self, result: &AttemptResult) {
        let charge = result.as_ref().ok().and_then(|answer| response::charge(answer.headers()));
        let throttles = &mut self.state().throttles;
        throttles.charge = sum(throttles.charge, charge);
    }

    pub(crate) fn throttles(&self) -> Throttles {
        self.state().throttles
    }

    /// Whether the service has throttled the attempt.
    pub(crate) fn is_throttled(&self) -> bool {
        self.throttles().count > 0
    }

    fn state(&self) -> MutexGuard<'_, ProgressState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sum of the charges that are known; `None` when neither is known.
pub(crate) fn sum(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.into_iter().chain(other).reduce(|one, other| one + other)
}
