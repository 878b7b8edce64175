//! What users may set, in plain structs, resolved once per operation.
//!
//! Three layers hold the same [`OperationOptions`]: the environment (the
//! runtime), the driver, the operation; what the nearest layer sets wins.
//! `Settings` is the outcome, with every field decided; it is computed once for
//! all operations that set nothing of their own.

mod check;
mod driver;
mod environment;
mod settings;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use crate::region::Region;

pub use driver::{CircuitBreakerOptions, DriverOptions, TopologyOptions};
pub use environment::Environment;
pub(crate) use settings::{Layers, Settings};

/// Options of one operation, or defaults for all operations of a driver.
/// What is `None` is left to the layer above.
///
/// ```
/// use std::time::Duration;
/// use perihelion_driver::options::{Hedging, OperationOptions};
///
/// let options = OperationOptions::default()
///     .with_timeout(Duration::from_secs(2))
///     .with_hedging(Hedging::Fixed(Duration::from_millis(200)));
/// assert_eq!(options.timeout, Some(Duration::from_secs(2)));
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct OperationOptions {
    /// End to end: by then there is an answer or an error (default 65 s;
    /// metadata 160 s).
    pub timeout: Option<Duration>,
    /// One request on the wire (default 6 s; metadata 65 s).
    pub attempt_timeout: Option<Duration>,
    /// Regions that this operation must not use.
    pub excluded_regions: Option<Vec<Region>>,
    /// Whether and when a second region is asked as well (default dynamic).
    pub hedging: Option<Hedging>,
    /// What a read must see (default as the account says).
    pub read_consistency: Option<ReadConsistency>,
    /// A session token from elsewhere, instead of the driver's own.
    pub session_token: Option<Arc<str>>,
    /// Retries in another region (default 3).
    pub failovers_max: Option<u32>,
    /// Retries of a read whose session is not there yet (default 5, or the
    /// number of regions when all take writes).
    pub session_retries_max: Option<u32>,
    /// Retries of a throttled request (default 18; metadata 9).
    pub throttle_retries_max: Option<u32>,
    /// Waiting for throttled requests altogether (default 270 s; metadata 30 s),
    /// and never past the end of `timeout`.
    pub throttle_wait_max: Option<Duration>,
    /// Whether a write's answer carries the document (default yes).
    pub content_on_write: Option<bool>,
}

impl OperationOptions {
    /// Whether nothing is set, so that the driver's settings hold as they are.
    pub fn is_default(&self) -> bool {
        let OperationOptions {
            timeout,
            attempt_timeout,
            excluded_regions,
            hedging,
            read_consistency,
            session_token,
            failovers_max,
            session_retries_max,
            throttle_retries_max,
            throttle_wait_max,
            content_on_write,
        } = self;
        timeout.is_none()
            && attempt_timeout.is_none()
            && excluded_regions.is_none()
            && hedging.is_none()
            && read_consistency.is_none()
            && session_token.is_none()
            && failovers_max.is_none()
            && session_retries_max.is_none()
            && throttle_retries_max.is_none()
            && throttle_wait_max.is_none()
            && content_on_write.is_none()
    }

    /// Gives up after this long, end to end.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Gives up on one request after this long.
    pub fn with_attempt_timeout(mut self, timeout: Duration) -> Self {
        self.attempt_timeout = Some(timeout);
        self
    }

    /// Does not use these regions; an empty list lifts what the driver excludes.
    pub fn with_excluded_regions<R: Into<Region>>(mut self, regions: impl IntoIterator<Item = R>) -> Self {
        self.excluded_regions = Some(regions.into_iter().map(Into::into).collect());
        self
    }

    /// Asks a second region like this.
    pub fn with_hedging(mut self, hedging: Hedging) -> Self {
        self.hedging = Some(hedging);
        self
    }

    /// Reads with this consistency.
    pub fn with_read_consistency(mut self, consistency: ReadConsistency) -> Self {
        self.read_consistency = Some(consistency);
        self
    }

    /// Reads at least what this session token covers.
    pub fn with_session_token(mut self, token: impl Into<Arc<str>>) -> Self {
        self.session_token = Some(token.into());
        self
    }

    /// Tries so many times in another region.
    pub fn with_failovers_max(mut self, count: u32) -> Self {
        self.failovers_max = Some(count);
        self
    }

    /// Tries so many times to find a session that is not there yet.
    pub fn with_session_retries_max(mut self, count: u32) -> Self {
        self.session_retries_max = Some(count);
        self
    }

    /// Repeats a throttled request so many times.
    pub fn with_throttle_retries_max(mut self, count: u32) -> Self {
        self.throttle_retries_max = Some(count);
        self
    }

    /// Waits this long altogether for throttled requests.
    pub fn with_throttle_wait_max(mut self, wait: Duration) -> Self {
        self.throttle_wait_max = Some(wait);
        self
    }

    /// Whether writes answer with the document they wrote.
    pub fn with_content_on_write(mut self, is_wanted: bool) -> Self {
        self.content_on_write = Some(is_wanted);
        self
    }
}

/// Speculative execution in a second region.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Hedging {
    /// Never.
    Off,
    /// After the P99 of recent requests to the fastest eligible region, kept
    /// within these bounds (and within 50 to 4000 ms).
    Dynamic {
        /// Never sooner than this.
        min: Duration,
        /// Never later than this.
        max: Duration,
    },
    /// After this long.
    Fixed(Duration),
}

impl Hedging {
    /// The soonest that a dynamic threshold may be: below, ordinary variance
    /// of a healthy region would double its requests.
    pub const DYNAMIC_MIN: Duration = Duration::from_millis(50);
    /// The latest that a dynamic threshold may be: above, the first region's
    /// own timeout is near.
    pub const DYNAMIC_MAX: Duration = Duration::from_millis(4000);

    /// Dynamic within the widest bounds: the default.
    pub const fn dynamic() -> Self {
        Hedging::Dynamic { min: Hedging::DYNAMIC_MIN, max: Hedging::DYNAMIC_MAX }
    }
}

/// What a read must see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadConsistency {
    /// As the account says.
    Account,
    /// Anything a replica has.
    Eventual,
    /// At least what this driver has read and written.
    Session,
    /// The latest that was committed in the region.
    LatestCommitted,
    /// The latest that was committed anywhere; needs a strong account.
    GlobalStrong,
}
