//! The fault plan: which requests fail, and how long each takes. Either none fails, or one
//! given request, or a seed decides about each request.

use std::time::Duration;

use crate::fault::Fault;
use crate::network::{ProcessRun, Role};

/// How long a request takes to the server, and an answer back, unless a seed
/// decides.
const LATENCY: Duration = Duration::from_millis(1);

/// The plan for the requests to come.
#[derive(Debug, Clone)]
pub(crate) enum FaultPlan {
    None,
    /// The request with this number fails, if the fault applies to the role of its sender.
    /// The first request has number 0.
    One {
        index: u64,
        fault: Fault,
    },
    /// A seed decides about each request.
    Random(Box<RandomFaults>),
}

/// Faults and delays drawn from a seed.
#[derive(Debug, Clone)]
pub(crate) struct RandomFaults {
    pub(crate) rng: fastrand::Rng,
    /// The faults to draw from, all with the same probability.
    pub(crate) faults: Vec<Fault>,
    /// The probability that a request fails.
    pub(crate) rate: f64,
    /// The probability that a worker's request fails after the last request of a worker has
    /// failed.
    pub(crate) repeat_rate: f64,
    /// Whether the last request of a worker failed.
    pub(crate) was_faulty: bool,
    /// The usual maximum of a delay, in milliseconds.
    pub(crate) latency_ms: u64,
    /// The probability of a longer delay, and its maximum in milliseconds.
    pub(crate) slow_tail: (f64, u64),
}

impl FaultPlan {
    /// A plan with one fault, or none.
    pub(crate) fn one(fault_at: Option<(u64, Fault)>) -> Self {
        fault_at.map_or(FaultPlan::None, |(index, fault)| FaultPlan::One { index, fault })
    }

    /// Decides about request `number`. A request of an observer has no number and
    /// never fails.
    pub(crate) fn next(&mut self, process: &ProcessRun, number: Option<u64>) -> Delivery {
        match (self, number) {
            (FaultPlan::One { index, fault }, Some(number)) if *index == number => {
                let fault = Some(*fault).filter(|fault| fault.applies_to(process.role));
                Delivery { fault, request_delay: LATENCY, response_delay: LATENCY }
            }
            (FaultPlan::Random(random), Some(_)) => random.draw(process),
            _ => Delivery { fault: None, request_delay: LATENCY, response_delay: LATENCY },
        }
    }
}

/// The fate of one request: its fault and its delays.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delivery {
    pub(crate) fault: Option<Fault>,
    pub(crate) request_delay: Duration,
    pub(crate) response_delay: Duration,
}

impl RandomFaults {
    /// Nothing fails, and no delay is longer than `latency_ms`.
    pub(crate) fn latency_only(seed: u64, latency_ms: u64) -> Self {
        RandomFaults {
            rng: fastrand::Rng::with_seed(seed),
            faults: Vec::new(),
            rate: 0.0,
            repeat_rate: 0.0,
            was_faulty: false,
            latency_ms,
            slow_tail: (0.0, 0),
        }
    }

    /// Draws the fault and the delays of a request. Repeated faults and long delays are for
    /// workers only: a user without an answer for long does not know whether its request was
    /// served.
    fn draw(&mut self, process: &ProcessRun) -> Delivery {
        let is_worker = process.role == Role::Worker;
        let rate = if self.was_faulty && is_worker { self.repeat_rate } else { self.rate };
        let is_faulty = !self.faults.is_empty() && self.rng.f64() < rate;
        let fault = is_faulty.then(|| self.faults[self.rng.usize(..self.faults.len())]);
        if is_worker {
            self.was_faulty = is_faulty;
        }
        let fault = fault.filter(|fault| fault.applies_to(process.role));
        Delivery { fault, request_delay: self.delay(is_worker), response_delay: self.delay(is_worker) }
    }

    fn delay(&mut self, is_worker: bool) -> Duration {
        let (probability, longest) = if is_worker { self.slow_tail } else { (0.0, 0) };
        let maximum = if self.rng.f64() < probability { longest } else { self.latency_ms };
        Duration::from_millis(self.rng.u64(0..=maximum))
    }
}
