//! The fault plan: which requests fail, and how long each request and answer takes. A plan
//! has no fault, or one fault at a given request, or a seed that decides about each request.

use std::time::Duration;

use crate::fault::Fault;
use crate::process_run::{ProcessRun, Role};

/// The delay of a request to the server, and of an answer back, in plans without a seed.
const LATENCY: Duration = Duration::from_millis(1);

/// The plan for the requests that are sent from now on.
#[derive(Debug, Clone)]
pub enum FaultPlan {
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
pub struct RandomFaults {
    pub rng: fastrand::Rng,
    /// The faults to draw from, all with the same probability.
    pub faults: Vec<Fault>,
    /// The probability that a request fails.
    pub fault_rate: f64,
    /// The probability that a worker's request fails if the previous request of any worker
    /// has failed.
    pub repeat_rate: f64,
    /// Whether the previous request of any worker failed.
    pub has_worker_failed: bool,
    /// The usual maximum of a delay, in milliseconds.
    pub latency_max_ms: u64,
    /// The probability of a longer delay, and the maximum of a longer delay in milliseconds.
    /// For workers only.
    pub slow_tail: (f64, u64),
}

impl FaultPlan {
    /// A plan with one fault, or none.
    pub fn one(fault_at: Option<(u64, Fault)>) -> Self {
        fault_at.map_or(FaultPlan::None, |(index, fault)| FaultPlan::One { index, fault })
    }

    /// Decides what happens to the next request of a process. A request of a faultless
    /// process has no number and never fails.
    pub fn decide(&mut self, process: &ProcessRun, number: Option<u64>) -> Delivery {
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

/// What happens to one request: its fault, and the delays of the request and the response.
#[derive(Debug, Clone, Copy)]
pub struct Delivery {
    pub fault: Option<Fault>,
    pub request_delay: Duration,
    pub response_delay: Duration,
}

impl RandomFaults {
    /// No request fails, and each delay is drawn up to `latency_max_ms`.
    pub fn latency_only(seed: u64, latency_max_ms: u64) -> Self {
        RandomFaults {
            rng: fastrand::Rng::with_seed(seed),
            faults: Vec::new(),
            fault_rate: 0.0,
            repeat_rate: 0.0,
            has_worker_failed: false,
            latency_max_ms,
            slow_tail: (0.0, 0),
        }
    }

    /// Draws the fault and the delays of a request. Repeated faults and long delays are for
    /// workers only. A user that waits too long for an answer gives up, and then cannot know
    /// whether its request was served.
    fn draw(&mut self, process: &ProcessRun) -> Delivery {
        let is_worker = process.role == Role::Worker;
        let rate = if self.has_worker_failed && is_worker { self.repeat_rate } else { self.fault_rate };
        let is_faulty = !self.faults.is_empty() && self.rng.f64() < rate;
        let fault = is_faulty.then(|| self.faults[self.rng.usize(..self.faults.len())]);
        if is_worker {
            self.has_worker_failed = is_faulty;
        }
        let fault = fault.filter(|fault| fault.applies_to(process.role));
        let (request_delay, response_delay) = (self.draw_delay(is_worker), self.draw_delay(is_worker));
        Delivery { fault, request_delay, response_delay }
    }

    fn draw_delay(&mut self, is_worker: bool) -> Duration {
        let (probability, slow_max_ms) = if is_worker { self.slow_tail } else { (0.0, 0) };
        let max_ms = if self.rng.f64() < probability { slow_max_ms } else { self.latency_max_ms };
        Duration::from_millis(self.rng.u64(0..=max_ms))
    }
}
