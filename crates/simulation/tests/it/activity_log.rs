//! The activity log: how often each activity was run by all processes together. A run of an
//! activity is a side effect of its workflow, so the log outlives every process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The number of runs that began of each activity, by the activity's input.
#[derive(Debug, Clone, Default)]
pub(crate) struct ActivityLog(Arc<Mutex<BTreeMap<String, u32>>>);

impl ActivityLog {
    /// Records that a run of the activity with this input begins. Returns the number of runs
    /// so far, the new one included.
    pub(crate) fn record(&self, input: &str) -> u32 {
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = runs.entry(input.to_owned()).or_default();
        *count += 1;
        *count
    }

    /// The number of runs that began, by input.
    pub(crate) fn runs(&self) -> BTreeMap<String, u32> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
