//! The driver's background task. The task refreshes the account, probes unavailable
//! endpoints and removes stale circuit breakers. While the task sleeps, it has only a
//! weak reference to the driver's core. The task is aborted when the last clone of the
//! driver is dropped.
//!
//! The task runs on the runtime of the operation that started it. That runtime may shut down
//! before the driver is dropped, or make no progress any more (see `pulse`). So every operation
//! checks that the task still runs, and starts it again on its own runtime if it does not. There is
//! one exception: the task is only late, and the operation is on the runtime of the task. Some
//! programs run their runtime only during single calls of `block_on`. There the task goes on
//! during this call, so the operation does not start it again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::runtime;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::core::Core;
use crate::metadata;
use crate::pulse::{self, Pulse};
use crate::routing::account::Location;

/// While an endpoint is unavailable, the task checks this often whether a probe is due.
const PROBE_PAUSE: Duration = Duration::from_millis(500);

/// A round that has not begun this long after it was due, or after the task was woken, shows that
/// the runtime makes no progress. Then the task is started again. On a busy runtime, a round is
/// late by much less.
const LATE_AFTER: Duration = Duration::from_secs(5);

/// The background task of a driver. Dropping it aborts the task, and the tasks that read
/// metadata.
pub(crate) struct Background {
    core: Weak<Core>,
    /// The task; `None` before it was started.
    task: ArcSwapOption<Task>,
    /// Held while the task is started, so that it is not started twice.
    starting: Mutex<()>,
    schedule: Arc<Schedule>,
}

/// A task that was started.
struct Task {
    handle: AbortHandle,
    /// The runtime that runs it.
    runtime: runtime::Id,
}

/// When the work of the task was done, and when its next round is due. A task that is started
/// again continues the schedule of the task before.
struct Schedule {
    /// When the task must have begun its next round, or shown that the round goes on.
    next_round: Arc<Pulse>,
    last_rounds: Mutex<LastRounds>,
}

/// When the account was last refreshed, and when the circuit breakers were last cleaned.
#[derive(Debug, Clone, Copy)]
struct LastRounds {
    refreshed_at: Instant,
    breakers_cleaned_at: Instant,
}

impl Background {
    /// The background task of a driver whose account was just read. The task is not started
    /// yet.
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        let now = Instant::now();
        Background {
            core: Arc::downgrade(core),
            task: ArcSwapOption::empty(),
            starting: Mutex::default(),
            schedule: Arc::new(Schedule {
                next_round: Arc::clone(&core.topology().background_round),
                last_rounds: Mutex::new(LastRounds { refreshed_at: now, breakers_cleaned_at: now }),
            }),
        }
    }

    /// Starts the task on the current runtime, unless it is at work. This takes no lock and
    /// allocates nothing while the task is at work.
    pub(crate) fn ensure_running(&self, now: Instant) {
        if !self.is_at_work(now) {
            self.start(now);
        }
    }

    fn is_at_work(&self, now: Instant) -> bool {
        self.task.load().as_ref().is_some_and(|task| {
            let is_stuck = || self.schedule.is_late(now) && !pulse::is_current_runtime(task.runtime);
            !task.handle.is_finished() && !is_stuck()
        })
    }

    #[cold]
    fn start(&self, now: Instant) {
        let _starting = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_at_work(now) {
            return;
        }
        self.schedule.expect_next_round_at(now);
        let handle = tokio::spawn(run(Weak::clone(&self.core), Arc::clone(&self.schedule))).abort_handle();
        let task = Task { handle, runtime: pulse::current_runtime() };
        if let Some(stuck) = self.task.swap(Some(Arc::new(task))) {
            stuck.handle.abort();
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(task) = self.task.load_full() {
            task.handle.abort();
        }
        if let Some(core) = self.core.upgrade() {
            core.shared_tasks().abort_all();
        }
    }
}

impl Schedule {
    /// Sets when the next round is due.
    fn expect_next_round_at(&self, due_at: Instant) {
        self.next_round.expect_at(due_at);
    }

    fn is_late(&self, now: Instant) -> bool {
        self.next_round.is_late_by(LATE_AFTER, now)
    }

    fn last_rounds(&self) -> MutexGuard<'_, LastRounds> {
        self.last_rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn run(weak: Weak<Core>, schedule: Arc<Schedule>) {
    loop {
        let Some(core) = weak.upgrade() else { return };
        let topology = core.topology();
        let now = Instant::now();
        pulse::run_with_pulse(&schedule.next_round, work(&core, &schedule, now)).await;
        let last = *schedule.last_rounds();
        let next_due = (last.refreshed_at + topology.options().refresh_interval)
            .min(last.breakers_cleaned_at + topology.breaker_options().cleanup_interval);
        wait(core, next_due, &schedule).await;
    }
}

/// The work of one round.
async fn work(core: &Core, schedule: &Schedule, now: Instant) {
    let topology = core.topology();
    let last = *schedule.last_rounds();
    let is_due = now.duration_since(last.refreshed_at) >= topology.options().refresh_interval;
    // The endpoint whose failure made an operation ask for a refresh.
    let suspect = topology.take_wanted_refresh();
    if is_due || suspect.is_some() {
        let deadline = now + core.option_layers().metadata_settings().timeout;
        core.account_reader().refresh(core, topology, suspect.as_ref(), deadline).await;
        // If the task is aborted before this line, the next task refreshes the account.
        if is_due {
            schedule.last_rounds().refreshed_at = now;
        }
    }
    if now.duration_since(last.breakers_cleaned_at) >= topology.breaker_options().cleanup_interval {
        schedule.last_rounds().breakers_cleaned_at = now;
        topology.update_breakers(|breakers| breakers.remove_stale(now));
        topology.remove_stale_writers(now);
    }
    probe_unavailable(core).await;
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

/// Sleeps until `next_due`, or until an endpoint is marked unavailable or an operation asks
/// for a refresh. If an endpoint is unavailable already, the sleep is at most
/// [`PROBE_PAUSE`]. The core is released meanwhile.
async fn wait(core: Arc<Core>, next_due: Instant, schedule: &Schedule) {
    let topology = core.topology();
    let has_unavailable_endpoint = topology.snapshot().account.has_unavailable_endpoint();
    let until = if has_unavailable_endpoint { next_due.min(Instant::now() + PROBE_PAUSE) } else { next_due };
    schedule.expect_next_round_at(until);
    let wake_background = Arc::clone(&topology.wake_background);
    drop(core);
    tokio::select! {
        () = tokio::time::sleep_until(until) => {}
        () = wake_background.notified() => {}
    }
}
