//! Counts the runs of a transaction, to know when a run is a replay.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of runs that may have used the token of a transaction. Clones of a transaction have
/// the same token, so they share the count. A run whose future was dropped stays counted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Runs(Arc<AtomicUsize>);

impl Runs {
    /// Counts a run that begins. Returns whether another run may have used the token.
    pub(crate) fn begin(&self) -> bool {
        self.0.fetch_add(1, Ordering::AcqRel) > 0
    }

    /// Takes back a run that has begun and certainly did not use the token.
    pub(crate) fn forget(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_a_replay_unless_all_earlier_runs_were_taken_back() {
        let runs = Runs::default();
        assert!(!runs.begin());
        runs.forget();
        assert!(!runs.clone().begin(), "the first run did not use the token");
        assert!(runs.begin(), "a clone shares the count");
        runs.forget();
        assert!(runs.begin(), "the run of the clone may have used the token");
    }
}
