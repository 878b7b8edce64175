//! What activities did, in all processes together: the side effects that the
//! workflows are about. It outlives every process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// How often each activity ran, by its input.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<BTreeMap<String, u32>>>);

impl Ledger {
    /// Notes that a run begins and tells which one it is.
    pub(crate) fn note(&self, input: &str) -> u32 {
        let mut runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = runs.entry(input.to_owned()).or_default();
        *count += 1;
        *count
    }

    pub(crate) fn runs(&self) -> BTreeMap<String, u32> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
