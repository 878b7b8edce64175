//! The driver's background task: it refreshes the account, probes unavailable
//! endpoints and sweeps the circuit breakers. It holds the driver's core by a
//! weak reference and is aborted with the driver.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::core::Core;
use crate::metadata;
use crate::routing::account::Site;

/// The time between two looks at unavailable endpoints, when there are any.
const PROBE_PAUSE: Duration = Duration::from_millis(500);

/// Aborts the task when the last driver is dropped.
#[derive(Debug)]
pub(crate) struct Background(JoinHandle<()>);

impl Drop for Background {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts the task on the current runtime.
pub(crate) fn start(core: &Arc<Core>) -> Background {
    Background(tokio::spawn(keep_fresh(Arc::downgrade(core))))
}

async fn keep_fresh(weak: Weak<Core>) {
    let mut refreshed = Instant::now();
    let mut swept = Instant::now();
    loop {
        let Some(core) = weak.upgrade() else { return };
        let topology = core.topology();
        let now = Instant::now();
        if now.duration_since(refreshed) >= topology.options().refresh_interval {
            refreshed = now;
            let deadline = now + core.settings().metadata().timeout;
            core.account().refresh(&*core, topology, None, deadline).await;
        }
        if now.duration_since(swept) >= topology.breaker_options().failback_interval {
            swept = now;
            topology.update_breakers(|breakers| breakers.sweep(now));
        }
        probe_unavailable(&core).await;
        let next = (refreshed + topology.options().refresh_interval)
            .min(swept + topology.breaker_options().failback_interval);
        wait(core, next).await;
    }
}

/// Probes the endpoints that were avoided long enough.
async fn probe_unavailable(core: &Core) {
    let account = core.topology().snapshot().account;
    for endpoint in account.due_for_probe(Instant::now()) {
        let sites = || account.reads.iter().chain(&account.writes).chain([&account.hub]);
        let site: Option<&Arc<Site>> = sites().find(|site| site.endpoint == endpoint);
        match site {
            Some(site) if !metadata::probe(core, site).await => {
                core.topology().endpoint_still_failing(&endpoint, Instant::now())
            }
            Some(_) | None => core.topology().endpoint_answered(&endpoint),
        }
    }
}

/// Sleeps until `next`, or for a short time when endpoints are unavailable, or
/// until one is marked. Meanwhile it does not hold the core.
async fn wait(core: Arc<Core>, next: Instant) {
    let topology = core.topology();
    let is_avoiding = topology.snapshot().account.is_avoiding();
    let until = if is_avoiding { next.min(Instant::now() + PROBE_PAUSE) } else { next };
    let marked = Arc::clone(&topology.marked);
    drop(core);
    tokio::select! {
        () = tokio::time::sleep_until(until) => {}
        () = marked.notified() => {}
    }
}
