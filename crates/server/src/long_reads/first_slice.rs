//! `FirstSlice`: the time that a read gets at once, before it counts as a long read.
//!
//! A read with little work ends within this time and never waits for other reads. The time has two
//! parts: the first is measured on the clock, the second as processor time of the thread. So a read
//! does not count as long only because the operating system has interrupted its thread, and a read
//! that ends within the first part costs no system call.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// The length of each of the two parts. Nearly all reads that use an index and return few rows end
/// within a tenth of it. An async worker that runs the slice delays its other tasks by about two such
/// parts at most.
const SLICE_TIME: Duration = Duration::from_micros(500);

/// The first slice of a read.
pub(super) struct FirstSlice {
    began_at: Instant,
    /// The processor time of the thread when the first part ended.
    processor_time: Cell<Option<Duration>>,
}

impl FirstSlice {
    pub(super) fn begin() -> FirstSlice {
        FirstSlice { began_at: Instant::now(), processor_time: Cell::new(None) }
    }

    /// Whether the time is over.
    pub(super) fn is_over(&self) -> bool {
        if self.began_at.elapsed() < SLICE_TIME {
            return false;
        }
        let now = thread_time(self.began_at);
        match self.processor_time.get() {
            Some(before) => now.saturating_sub(before) >= SLICE_TIME,
            None => {
                self.processor_time.set(Some(now));
                false
            }
        }
    }
}

/// The processor time of this thread.
#[cfg(unix)]
fn thread_time(_began_at: Instant) -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The time since `began_at`, on systems that do not tell the processor time of a thread.
#[cfg(not(unix))]
fn thread_time(began_at: Instant) -> Duration {
    began_at.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slice_of_a_busy_thread_ends() {
        let slice = FirstSlice::begin();
        assert!(!slice.is_over());
        while !slice.is_over() {
            std::hint::spin_loop();
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_sleeping_thread_does_not_use_up_its_slice() {
        let slice = FirstSlice::begin();
        for _ in 0..10 {
            std::thread::sleep(SLICE_TIME);
            assert!(!slice.is_over());
        }
    }
}
