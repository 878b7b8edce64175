//! The driver's background task. It refreshes the account, probes unavailable endpoints
//! and removes stale circuit breakers. While it sleeps it has only a weak reference to
//! the driver's core. It is aborted when the last driver is dropped.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::core::Core;
use crate::metadata;
use crate::routing::account::Location;

/// How often the task checks which unavailable endpoints are due for a probe, while
/// there are any.
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
    Background(tokio::spawn(run(Arc::downgrade(core))))
}

async fn run(weak: Weak<Core>) {
    let mut refreshed_at = Instant::now();
    let mut stale_removed_at = Instant::now();
    loop {
        let Some(core) = weak.upgrade() else { return };
        let topology = core.topology();
        let now = Instant::now();
        if now.duration_since(refreshed_at) >= topology.options().refresh_interval {
            refreshed_at = now;
            let deadline = now + core.settings().metadata().timeout;
            core.account().refresh(&*core, topology, None, deadline).await;
        }
        if now.duration_since(stale_removed_at) >= topology.breaker_options().cleanup_interval {
            stale_removed_at = now;
            topology.update_breakers(|breakers| breakers.remove_stale(now));
        }
        probe_unavailable(&core).await;
        let next = (refreshed_at + topology.options().refresh_interval)
            .min(stale_removed_at + topology.breaker_options().cleanup_interval);
        wait(core, next).await;
    }
}

/// Probes the unavailable endpoints that are due, one after the other. An endpoint
/// that the account does not have any more is no longer avoided.
async fn probe_unavailable(core: &Core) {
    let account = core.topology().snapshot().account;
    for endpoint in account.due_for_probe(Instant::now()) {
        let locations = || {
            account
                .read_locations
                .iter()
                .chain(&account.write_locations)
                .chain([&account.configured_location])
        };
        let location: Option<&Arc<Location>> = locations().find(|location| location.endpoint == endpoint);
        match location {
            Some(location) if !metadata::probe(core, location).await => {
                core.topology().endpoint_still_failing(&endpoint, Instant::now())
            }
            Some(_) | None => core.topology().endpoint_answered(&endpoint),
        }
    }
}

/// Sleeps until `next`, or for [`PROBE_PAUSE`] when endpoints are unavailable, or
/// until an endpoint is marked unavailable. The core is released meanwhile.
async fn wait(core: Arc<Core>, next: Instant) {
    let topology = core.topology();
    let has_unavailable_endpoint = topology.snapshot().account.has_unavailable_endpoint();
    let until = if has_unavailable_endpoint { next.min(Instant::now() + PROBE_PAUSE) } else { next };
    let endpoint_marked = Arc::clone(&topology.endpoint_marked);
    drop(core);
    tokio::select! {
        () = tokio::time::sleep_until(until) => {}
        () = endpoint_marked.notified() => {}
    }
}
