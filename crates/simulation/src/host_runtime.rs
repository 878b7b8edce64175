//! A tokio runtime of the simulation: on the current thread, with a paused clock, and run for
//! one stretch of virtual time after the other.

use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

use crate::virtual_clock;

/// The runtime of a process or of the server.
pub struct HostRuntime {
    runtime: Runtime,
    idle: Arc<Idle>,
}

/// Tells when no task of a runtime can go on before its clock moves.
#[derive(Debug, Default)]
struct Idle {
    waker: Mutex<Option<Waker>>,
}

impl HostRuntime {
    /// A runtime whose clock shows the current virtual time.
    pub fn new() -> Self {
        let idle = Arc::new(Idle::default());
        let idle_of_runtime = Arc::clone(&idle);
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .on_thread_park(move || idle_of_runtime.signal())
            .build()
            .expect("a runtime starts");
        HostRuntime { runtime, idle }
    }

    pub fn handle(&self) -> &Handle {
        self.runtime.handle()
    }

    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        self.runtime.spawn(task)
    }

    pub fn block_on<R>(&self, future: impl Future<Output = R>) -> R {
        self.runtime.block_on(future)
    }

    /// Runs the tasks until `stop` is ready. Then, unless `is_ended` returns true, runs them until
    /// none of them can go on before the clock moves. Returns the virtual time of the runtime's
    /// clock.
    pub fn run_until(&self, stop: impl Future<Output = ()>, is_ended: impl Fn() -> bool) -> Duration {
        self.runtime.block_on(async {
            stop.await;
            if !is_ended() {
                self.idle.wait().await;
            }
            virtual_clock::elapsed()
        })
    }
}

impl Default for HostRuntime {
    fn default() -> Self {
        HostRuntime::new()
    }
}

impl Idle {
    /// Called when no task of the runtime can make progress. Wakes the future that waits for this,
    /// if there is one. Then the virtual clock does not advance, because a runtime with a woken
    /// future does not park.
    fn signal(&self) {
        if let Some(waker) = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take() {
            waker.wake();
        }
    }

    /// Waits until no task can go on.
    async fn wait(&self) {
        let mut is_set = false;
        poll_fn(|context| {
            let mut waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
            if is_set && waker.is_none() {
                return Poll::Ready(());
            }
            is_set = true;
            *waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
