//! The charge of a request that was abandoned. The charge becomes known when the request is
//! answered, which may be after the end of its operation.

use std::sync::{Arc, OnceLock};

/// The charge of one abandoned request. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct LateCharge(Arc<OnceLock<f64>>);

impl LateCharge {
    /// Stores the charge. Only the first value counts.
    pub(crate) fn set(&self, charge: f64) {
        let _ = self.0.set(charge);
    }

    /// The charge; `None` as long as the request is not answered.
    pub(super) fn get(&self) -> Option<f64> {
        self.0.get().copied()
    }
}
