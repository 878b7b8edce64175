//! The activity log: which activities ran, in all processes together. Activities
//! stand for side effects of workflows, so the log outlives every process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// How often a run of each activity began, by its input.
#[derive(Debug, Clone, Default)]
pub(crate) struct ActivityLog(Arc<Mutex<BTreeMap<String, u32>>>);

impl ActivityLog {
    /// Records that a run begins; returns how many have begun, this one included.
    pub(crate) fn record(&self, input: &str) -> u32 {
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = runs.entry(input.to_owned()).or_default();
        *count += 1;
        *count
    }

    pub(crate) fn runs(&self) -> BTreeMap<String, u32> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
