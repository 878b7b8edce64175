//! Runs a validation in virtual time, on a thread of its own.

use std::future::Future;
use std::time::Duration;

use tokio::runtime::Builder;

use crate::virtual_clock::{self, VirtualClock};

/// The seed of every run.
const SEED: u64 = 1;

/// The limit of a validation in virtual time. The longest one takes less than a minute.
const LIMIT: Duration = Duration::from_secs(600);

pub(crate) fn run(validation: impl Future<Output = ()> + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // The clock is dropped after the runtime, because the tasks of the runtime end in
            // virtual time too.
            let clock = VirtualClock::begin(SEED);
            fastrand::seed(SEED);
            let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
            let runtime = runtime.expect("a runtime starts");
            let outcome = runtime.block_on(async { tokio::time::timeout(LIMIT, validation).await });
            // The runtime is dropped outside of `block_on`. There the clock returns this time.
            clock.set_elapsed(runtime.block_on(async { virtual_clock::elapsed() }));
            outcome.expect("the validation ends within its limit of virtual time");
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}
