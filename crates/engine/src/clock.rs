//! The engine's clock, the only code of the engine that reads the wall clock.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A clock that returns the time since 1970: the clock of the operating system or, in
/// simulations, a virtual clock.
#[derive(Clone)]
pub struct Clock {
    read: Arc<dyn Fn() -> Duration + Send + Sync>,
}

impl Clock {
    /// The clock of the operating system.
    pub fn system() -> Self {
        Clock::from_fn(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    /// A clock that returns the result of `read`.
    pub fn from_fn(read: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Clock { read: Arc::new(read) }
    }

    /// The time since 1970, now.
    pub fn unix_time(&self) -> Duration {
        (self.read)()
    }

    /// Whole seconds since 1970.
    pub fn seconds(&self) -> u64 {
        self.unix_time().as_secs()
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}
