//! The activity log: how often each activity was run, summed over all processes. A run of an
//! activity is a side effect of its workflow, so the log outlives every process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::virtual_clock;

/// The runs of all activities, by the activity's input. A run counts as soon as it begins.
#[derive(Debug, Clone, Default)]
pub struct ActivityLog {
    /// The times at which runs of each activity began, by its input.
    runs: Arc<Mutex<BTreeMap<String, Vec<Duration>>>>,
    /// Every run counts as two, as with the planted bug `RunWithoutLock`.
    is_doubled: bool,
}

impl ActivityLog {
    /// A log in which every run counts as two.
    pub fn doubled() -> Self {
        ActivityLog { is_doubled: true, ..ActivityLog::default() }
    }

    /// Records that a run of the activity with this input begins. Returns the number of runs
    /// so far, the new one included.
    pub fn record(&self, input: &str) -> u32 {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let times = runs.entry(input.to_owned()).or_default();
        let count = if self.is_doubled { 2 } else { 1 };
        times.extend(std::iter::repeat_n(virtual_clock::elapsed(), count));
        times.len() as u32
    }

    /// The number of runs that began, by input.
    pub fn runs(&self) -> BTreeMap<String, u32> {
        let counts = |(input, times): (String, Vec<Duration>)| (input, times.len() as u32);
        self.run_times().into_iter().map(counts).collect()
    }

    /// The times at which runs began, by input.
    pub fn run_times(&self) -> BTreeMap<String, Vec<Duration>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
