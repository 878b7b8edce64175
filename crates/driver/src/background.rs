//! The driver's background task. The task refreshes the account, probes unavailable
//! endpoints and removes stale circuit breakers. While the task sleeps, it has only a
//! weak reference to the driver's core. The task is aborted when the last clone of the
//! driver is dropped.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::core::Core;
use crate::metadata;
use crate::routing::account::Location;

/// While an endpoint is unavailable, the task checks this often whether a probe is due.
const PROBE_PAUSE: Duration = Duration::from_millis(500);

/// The handle of the task. Dropping the handle aborts the task, and the tasks that read
/// metadata.
pub(crate) struct Background {
    task: JoinHandle<()>,
    core: Weak<Core>,
}

impl Drop for Background {
    fn drop(&mut self) {
        self.task.abort();
        if let Some(core) = self.core.upgrade() {
            core.shared_tasks().abort_all();
        }
    }
}

/// Starts the task on the current runtime.
pub(crate) fn start(core: &Arc<Core>) -> Background {
    Background { task: tokio::spawn(run(Arc::downgrade(core))), core: Arc::downgrade(core) }
}

async fn run(weak: Weak<Core>) {
    let mut refreshed_at = Instant::now();
    let mut breakers_cleaned_at = Instant::now();
    loop {
        let Some(core) = weak.upgrade() else { return };
        let topology = core.topology();
        let now = Instant::now();
        if now.duration_since(refreshed_at) >= topology.options().refresh_interval {
            refreshed_at = now;
            let deadline = now + core.option_layers().metadata_settings().timeout;
            core.account_reader().refresh(&*core, topology, None, deadline).await;
        }
        if now.duration_since(breakers_cleaned_at) >= topology.breaker_options().cleanup_interval {
            breakers_cleaned_at = now;
            topology.update_breakers(|breakers| breakers.remove_stale(now));
        }
        probe_unavailable(&core).await;
        let next_due = (refreshed_at + topology.options().refresh_interval)
            .min(breakers_cleaned_at + topology.breaker_options().cleanup_interval);
        wait(core, next_due).await;
    }
}

/// Probes the unavailable endpoints whose probes are due, one after the other. An
/// endpoint that the account does not have any more is not probed, and is no longer
/// marked unavailable.
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

/// Sleeps until `next_due`, or until an endpoint is marked unavailable. If an endpoint is
/// unavailable already, the sleep is at most [`PROBE_PAUSE`]. The core is released
/// meanwhile.
async fn wait(core: Arc<Core>, next_due: Instant) {
    let topology = core.topology();
    let has_unavailable_endpoint = topology.snapshot().account.has_unavailable_endpoint();
    let until = if has_unavailable_endpoint { next_due.min(Instant::now() + PROBE_PAUSE) } else { next_due };
    let marked_unavailable = Arc::clone(&topology.marked_unavailable);
    drop(core);
    tokio::select! {
        () = tokio::time::sleep_until(until) => {}
        () = marked_unavailable.notified() => {}
    }
}
