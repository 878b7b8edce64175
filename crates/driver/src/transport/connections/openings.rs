//! Opens the shards (HTTP/2 connections) of an endpoint in background tasks.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

use perihelion_wire::transport::Failure;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::{Connections, Open, PoolState};
use crate::pulse::{self, Pulse};
use crate::transport::connect::{KnownProtocol, NewConnection};
use crate::transport::growth::{self, Load};
use crate::transport::limits::GROWTH_PAUSE;
use crate::transport::task::AbortOnDrop;
use crate::transport::waiters::Grant;

impl Connections {
    /// Opens shards ahead of need. Does nothing while another thread changes the pool, so
    /// that requests do not wait for each other.
    pub(super) fn grow_ahead(self: &Arc<Self>, load: Load) {
        let opening = self.opening.load(Ordering::SeqCst);
        if growth::openings_wanted(load, 0, opening, self.limits) > 0
            && let Ok(pool_state) = self.pool_state.try_lock()
        {
            self.grow(pool_state);
        }
    }

    /// Opens a connection to an endpoint that speaks HTTP/1.1, to see whether it speaks HTTP/2
    /// by now.
    pub(in crate::transport) fn negotiate_again(self: &Arc<Self>) {
        let pool_state = self.lock();
        if self.is_http1.load(Ordering::Relaxed) && self.opening.load(Ordering::SeqCst) == 0 {
            let (count, not_before) = (1, None);
            self.open_shards(pool_state, count, not_before);
        }
    }

    /// Opens as many shards as the load and the queue need. A shard that ended is not
    /// replaced before a request needs it.
    pub(super) fn grow(self: &Arc<Self>, mut pool_state: MutexGuard<'_, PoolState>) {
        let (mut load, waiting) = (self.load(), pool_state.waiters.len());
        load.retired = pool_state.count_retired(Instant::now());
        if load.shards == 0 && waiting == 0 {
            return;
        }
        let is_paused = pool_state.growth_paused_until.is_some_and(|until| Instant::now() < until);
        if load.usable > 0 && is_paused {
            return;
        }
        // Without a usable shard, the tasks that open shards are started even during a pause. If the
        // pool has shards, but all are silent and take no requests, the tasks wait until the pause
        // ends.
        let not_before = pool_state.growth_paused_until.filter(|_| is_paused && load.shards > 0);
        let opening = self.opening.load(Ordering::SeqCst);
        let count = growth::openings_wanted(load, waiting, opening, self.limits);
        self.open_shards(pool_state, count, not_before);
    }

    /// Starts `count` tasks that open a shard each, at once or at the time `not_before`. Releases the
    /// lock `pool_state` before it starts them, because a task takes this lock at its end.
    pub(super) fn open_shards(
        self: &Arc<Self>,
        pool_state: MutexGuard<'_, PoolState>,
        count: usize,
        not_before: Option<Instant>,
    ) {
        // Without a runtime, no shard can be opened.
        let Ok(runtime) = Handle::try_current() else { return };
        self.opening.fetch_add(count, Ordering::SeqCst);
        drop(pool_state);
        for _ in 0..count {
            let (pulse, is_counted) = (Arc::new(Pulse::new(Instant::now())), Arc::new(AtomicBool::new(true)));
            let report = OpeningReport {
                owner: Arc::downgrade(self),
                outcome: None,
                is_counted: Arc::clone(&is_counted),
            };
            let opening = open_shard(Arc::clone(&self.opener), report, Arc::clone(&pulse), not_before);
            let task = runtime.spawn(opening);
            let mut tasks = self.opening_tasks.lock().unwrap_or_else(PoisonError::into_inner);
            tasks.retain(|task: &OpeningTask| !task.is_finished());
            tasks.push(OpeningTask { task: AbortOnDrop::new(&task), pulse, is_counted });
        }
    }

    /// Called when a task that opens a connection has ended.
    fn opened(self: &Arc<Self>, outcome: Result<NewConnection, Failure>) {
        match outcome {
            Ok(NewConnection::Http2(new)) => self.add_shard(new),
            Ok(NewConnection::Http1(connection)) => {
                self.http1.add_idle(connection);
                // While there are HTTP/2 shards, one HTTP/1.1 connection changes nothing.
                if !self.has_shards() {
                    self.is_http1.store(true, Ordering::Relaxed);
                    self.end_waits(|| Grant::Http1);
                }
            }
            Err(failure) => {
                tracing::debug!(endpoint = %self.endpoint, %failure, "an HTTP/2 connection was not opened");
                self.lock().growth_paused_until = Some(Instant::now() + GROWTH_PAUSE);
                if !self.has_shards() && self.opening.load(Ordering::SeqCst) == 0 {
                    self.end_waits(|| Grant::Failed(failure.clone()));
                }
            }
        }
        self.grow(self.lock());
    }

    /// Called when a task was dropped before it had opened its connection, because its runtime is
    /// shut down. This says nothing about the endpoint. A task that is started here would be dropped
    /// too, so the next request that waits in the queue opens the connection, on its own runtime.
    fn opening_interrupted(&self) {
        self.is_opening_interrupted.store(true, Ordering::SeqCst);
    }

    /// Opens connections in place of those whose task was dropped. Called by a request that waits.
    pub(super) fn replace_interrupted_openings(self: &Arc<Self>) {
        if self.is_opening_interrupted.swap(false, Ordering::SeqCst) {
            self.grow(self.lock());
        }
    }
}

/// A task that opens a shard.
pub(super) struct OpeningTask {
    task: AbortOnDrop,
    /// Shows whether the task still makes progress.
    pub(super) pulse: Arc<Pulse>,
    /// Whether the task is counted in `Connections::opening`.
    is_counted: Arc<AtomicBool>,
}

impl OpeningTask {
    pub(super) fn is_finished(&self) -> bool {
        self.task.is_finished()
    }

    /// Counts the task as ended, because it is stuck.
    pub(super) fn end(&self, opening: &AtomicUsize) {
        count_ended(&self.is_counted, opening);
    }
}

/// Counts a task as ended, unless it was counted as ended before.
fn count_ended(is_counted: &AtomicBool, opening: &AtomicUsize) {
    if is_counted.swap(false, Ordering::SeqCst) {
        opening.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Reports the outcome of a task that opens a shard. The outcome stays `None` if the task is
/// dropped before its end, because its runtime was shut down.
struct OpeningReport {
    owner: Weak<Connections>,
    outcome: Option<Result<NewConnection, Failure>>,
    is_counted: Arc<AtomicBool>,
}

impl Drop for OpeningReport {
    fn drop(&mut self) {
        let Some(owner) = self.owner.upgrade() else { return };
        count_ended(&self.is_counted, &owner.opening);
        match self.outcome.take() {
            Some(outcome) => owner.opened(outcome),
            None => owner.opening_interrupted(),
        }
    }
}

/// The task that opens a shard. The host name is resolved each time.
async fn open_shard(
    opener: Arc<dyn Open>,
    mut report: OpeningReport,
    pulse: Arc<Pulse>,
    not_before: Option<Instant>,
) {
    let opening = async {
        if let Some(not_before) = not_before {
            tokio::time::sleep_until(not_before).await;
        }
        opener.open(KnownProtocol::Unknown).await
    };
    report.outcome = Some(pulse::run_with_pulse(&pulse, opening).await);
}
