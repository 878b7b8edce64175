//! The one place where the wall clock is read.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Tells the time since 1970. Replaced by a virtual one in simulation.
#[derive(Clone)]
pub struct Clock {
    read: Arc<dyn Fn() -> Duration + Send + Sync>,
}

impl Clock {
    pub fn system() -> Self {
        Clock::from_fn(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    /// A clock that tells what `read` returns.
    pub fn from_fn(read: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Clock { read: Arc::new(read) }
    }

    /// Since 1970.
    pub fn elapsed(&self) -> Duration {
        (self.read)()
    }

    pub fn seconds(&self) -> u64 {
        self.elapsed().as_secs()
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}
