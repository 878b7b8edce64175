//! What is planned for requests: that one of them fails, or that each is drawn
//! from a seed.

use std::time::Duration;

use crate::fault::Fault;
use crate::network::{Life, Role};

/// How long a request takes there, and its answer back, when nothing is drawn.
const LATENCY: Duration = Duration::from_millis(1);

/// What is planned for the requests to come.
#[derive(Debug, Clone)]
pub(crate) enum Plan {
    Calm,
    /// One request fails; the first has number 0.
    Strike {
        index: u64,
        fault: Fault,
    },
    /// Each is drawn.
    Storm(Box<Storm>),
}

/// Random weather.
#[derive(Debug, Clone)]
pub(crate) struct Storm {
    pub(crate) rng: fastrand::Rng,
    /// What may happen, none twice.
    pub(crate) faults: Vec<Fault>,
    /// How likely a request is to fail.
    pub(crate) rate: f64,
    /// How likely the next one of the same process fails too, if one has.
    pub(crate) again: f64,
    pub(crate) is_again: bool,
    /// The longest that a request, or its answer, usually takes.
    pub(crate) latency_ms: u64,
    /// How likely it takes much longer, and how long.
    pub(crate) straggle: (f64, u64),
}

impl Plan {
    /// One fault, or none.
    pub(crate) fn strike(strike: Option<(u64, Fault)>) -> Self {
        strike.map_or(Plan::Calm, |(index, fault)| Plan::Strike { index, fault })
    }

    /// What happens to the request of that number; without one it is a watcher's.
    pub(crate) fn rule(&mut self, life: &Life, number: Option<u64>) -> Ruling {
        match (self, number) {
            (Plan::Strike { index, fault }, Some(number)) if *index == number => {
                let fault = Some(*fault).filter(|fault| fault.may_befall(life.role));
                Ruling { fault, there: LATENCY, back: LATENCY }
            }
            (Plan::Storm(storm), Some(_)) => storm.draw(life),
            _ => Ruling { fault: None, there: LATENCY, back: LATENCY },
        }
    }
}

/// What happens to one request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ruling {
    pub(crate) fault: Option<Fault>,
    pub(crate) there: Duration,
    pub(crate) back: Duration,
}

impl Storm {
    /// Nothing fails, but everything takes up to so long.
    pub(crate) fn slow(seed: u64, latency_ms: u64) -> Self {
        Storm {
            rng: fastrand::Rng::with_seed(seed),
            faults: Vec::new(),
            rate: 0.0,
            again: 0.0,
            is_again: false,
            latency_ms,
            straggle: (0.0, 0),
        }
    }

    /// What lasts hits workers only: a user who is not answered for long does
    /// not know what became of what it asked for.
    fn draw(&mut self, life: &Life) -> Ruling {
        let is_worker = life.role == Role::Worker;
        let rate = if self.is_again && is_worker { self.again } else { self.rate };
        let is_struck = !self.faults.is_empty() && self.rng.f64() < rate;
        let fault = is_struck.then(|| self.faults[self.rng.usize(..self.faults.len())]);
        if is_worker {
            self.is_again = is_struck;
        }
        let fault = fault.filter(|fault| fault.may_befall(life.role));
        Ruling { fault, there: self.delay(is_worker), back: self.delay(is_worker) }
    }

    fn delay(&mut self, is_worker: bool) -> Duration {
        let (chance, longest) = if is_worker { self.straggle } else { (0.0, 0) };
        let most = if self.rng.f64() < chance { longest } else { self.latency_ms };
        Duration::from_millis(self.rng.u64(0..=most))
    }
}
