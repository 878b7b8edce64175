//! The weather of a run: episodes, each with a beginning and an end in virtual time, during
//! which requests of some processes are refused, lost, delayed or held back. A fault plan
//! decides about single requests; an episode is longer than the retries of the driver, and may
//! be longer than a lock.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use perihelion_wire::transport::Request;

use crate::fault::Fault;
use crate::fault_plan::Delivery;
use crate::process_run::{ProcessRun, Role};
use crate::request_kind::RequestKind;

/// What happens to the requests of an episode.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Trouble {
    /// Every request gets 503.
    Outage,
    /// Some requests get 429 with a wait of up to this many milliseconds.
    Throttling(u64),
    /// Every write gets 403/3: the write region has moved, and no other region is known.
    WritesForbidden,
    /// Every request gets 403/1008: the region was removed from the account.
    AccountMoved,
    /// Some reads get 404/1002: the replicas have not caught up.
    StaleReplicas,
    /// Every request gets 401: the key was replaced, and the process has the old one.
    KeyReplaced,
    /// Some requests are lost before they are served, or their answers are.
    Losses,
    /// Some requests and answers take up to this many milliseconds longer.
    Delays(u64),
    /// No request reaches the server before the end of the episode. Then all arrive.
    CutOff,
}

/// The processes whose requests an episode affects. Requests of faultless processes are never
/// affected.
#[derive(Debug, Clone, PartialEq)]
pub enum Scope {
    /// Every process.
    All,
    /// Processes that run workflows.
    Workers,
    /// The host with this name: its current process, and each process that replaces it.
    Host(String),
}

/// One episode.
#[derive(Debug, Clone)]
pub struct Episode {
    pub trouble: Trouble,
    pub scope: Scope,
    /// The virtual time of the first moment.
    pub from: Duration,
    /// The virtual time of the end.
    pub until: Duration,
}

/// All episodes of a run.
#[derive(Debug, Clone)]
pub struct Weather {
    pub episodes: Vec<Episode>,
    /// Draws which requests are affected by an episode that affects only some of them.
    pub rng: fastrand::Rng,
}

impl Default for Weather {
    fn default() -> Self {
        Weather { episodes: Vec::new(), rng: fastrand::Rng::with_seed(0) }
    }
}

/// The probability that an episode that affects only some requests affects a request.
const AFFECTED_PROBABILITY: f64 = 0.5;

impl Weather {
    /// Changes the delivery of a request that is sent now, if an episode affects the request. A
    /// fault that the delivery already has stays. Otherwise the first episode that has a fault for
    /// the request sets it. Delayed requests are added to `counts` here; the caller adds faults.
    pub fn change(
        &mut self,
        now: Duration,
        process: &ProcessRun,
        request: &Request,
        delivery: &mut Delivery,
        counts: &mut BTreeMap<&'static str, u64>,
    ) {
        let kind = RequestKind::of(request);
        let is_write = kind.is_write(&request.method);
        let is_read = request.method == Method::GET || kind.is_query;
        for episode in &self.episodes {
            if now < episode.from || now >= episode.until || !episode.scope.includes(process) {
                continue;
            }
            let rng = &mut self.rng;
            let mut is_affected = || rng.f64() < AFFECTED_PROBABILITY;
            let fault = match episode.trouble {
                Trouble::Outage => Some(Fault::Unavailable),
                Trouble::Throttling(wait_max_ms) => {
                    is_affected().then(|| Fault::ThrottledFor(rng.u64(1..=wait_max_ms)))
                }
                Trouble::WritesForbidden => is_write.then_some(Fault::WriteForbidden),
                Trouble::AccountMoved => Some(Fault::AccountMoved),
                Trouble::StaleReplicas => (is_read && is_affected()).then_some(Fault::SessionNotAvailable),
                Trouble::KeyReplaced => Some(Fault::Unauthorized),
                Trouble::Losses => {
                    is_affected().then(|| if rng.bool() { Fault::LostRequest } else { Fault::LostAnswer })
                }
                Trouble::Delays(delay_max_ms) => {
                    if is_affected() {
                        *counts.entry("delay, up to several seconds").or_default() += 1;
                        delivery.request_delay += Duration::from_millis(rng.u64(..=delay_max_ms));
                        delivery.response_delay += Duration::from_millis(rng.u64(..=delay_max_ms));
                    }
                    None
                }
                Trouble::CutOff => {
                    *counts.entry(Fault::CutOff(Duration::ZERO).name()).or_default() += 1;
                    delivery.request_delay = delivery.request_delay.max(episode.until - now);
                    None
                }
            };
            delivery.fault = delivery.fault.or(fault);
        }
    }
}

impl Scope {
    fn includes(&self, process: &ProcessRun) -> bool {
        match self {
            Scope::All => process.role != Role::Faultless,
            Scope::Workers => process.role == Role::Worker,
            // The name of a process is the name of its host and the number of the start.
            Scope::Host(name) => process.name.rsplit_once('.').is_some_and(|(host, _)| host == name),
        }
    }
}
