//! What users may set, in plain structs, resolved once per operation.
//!
//! Three layers hold the same [`OperationOptions`]: the environment (the
//! runtime), the driver, the operation; what the nearest layer sets wins.
//! [`Settings`] is the outcome, with every field decided.

use std::sync::Arc;
use std::time::Duration;

use crate::region::Region;

/// Options of one operation, or defaults for all operations of a driver.
/// What is `None` is left to the layer above.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct OperationOptions {
    /// End to end: by then there is an answer or an error.
    pub timeout: Option<Duration>,
    /// One request on the wire.
    pub attempt_timeout: Option<Duration>,
    /// Regions that this operation must not use.
    pub excluded_regions: Option<Vec<Region>>,
    /// Whether and when a second region is asked as well.
    pub hedging: Option<Hedging>,
    /// What a read must see.
    pub read_consistency: Option<ReadConsistency>,
    /// A session token from elsewhere, instead of the driver's own.
    pub session_token: Option<Arc<str>>,
    /// Retries in another region (default 3).
    pub failovers_max: Option<u32>,
    /// Retries of a read whose session is not there yet (default 2, or the
    /// number of regions when all take writes).
    pub session_retries_max: Option<u32>,
    /// Retries of a throttled request (default 18; metadata 9).
    pub throttle_retries_max: Option<u32>,
    /// Waiting for throttled requests altogether (default 270 s; metadata 30 s).
    pub throttle_wait_max: Option<Duration>,
    /// Whether a write's answer carries the document (default yes).
    pub content_on_write: Option<bool>,
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

/// Options of a driver.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct DriverOptions {
    /// Regions in order of preference; the account's own order when empty.
    pub preferred_regions: Vec<Region>,
    /// Defaults for its operations.
    pub operation: OperationOptions,
    /// Thresholds of the circuit breaker.
    pub circuit_breaker: CircuitBreakerOptions,
    /// How topology is kept fresh.
    pub topology: TopologyOptions,
    /// Appended to the user agent.
    pub user_agent: Option<String>,
}

/// When a partition in a region is taken out of use, and when it is tried again.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CircuitBreakerOptions {
    /// Whether it is on (default yes).
    pub enabled: bool,
    /// Consecutive failed reads that open it (default 2).
    pub read_failures: u32,
    /// Consecutive failed writes that open it (default 5).
    pub write_failures: u32,
    /// Consecutive hedges won by another region that open it (default 5).
    pub hedge_losses: u32,
    /// Failures further apart than this are not consecutive (default 5 min).
    pub counter_reset: Duration,
    /// How long it stays open before one request may try (default 5 s).
    pub probe_after: Duration,
    /// How often the sweep looks (default 300 s).
    pub failback_interval: Duration,
}

/// How the account's regions are kept track of.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TopologyOptions {
    /// Between background refreshes of the account (default 300 s).
    pub refresh_interval: Duration,
    /// The least time between refreshes that failures ask for (default 5 s).
    pub refresh_pause: Duration,
    /// How long a region that could not be reached is avoided before it is
    /// probed (default 60 s).
    pub unavailable_for: Duration,
}

impl Default for CircuitBreakerOptions {
    fn default() -> Self {
        CircuitBreakerOptions {
            enabled: true,
            read_failures: 2,
            write_failures: 5,
            hedge_losses: 5,
            counter_reset: Duration::from_secs(300),
            probe_after: Duration::from_secs(5),
            failback_interval: Duration::from_secs(300),
        }
    }
}

impl Default for TopologyOptions {
    fn default() -> Self {
        TopologyOptions {
            refresh_interval: Duration::from_secs(300),
            refresh_pause: Duration::from_secs(5),
            unavailable_for: Duration::from_secs(60),
        }
    }
}

/// Every option decided.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) timeout: Duration,
    pub(crate) attempt_timeout: Duration,
    pub(crate) excluded_regions: Vec<Region>,
    pub(crate) hedging: Hedging,
    pub(crate) read_consistency: ReadConsistency,
    pub(crate) session_token: Option<Arc<str>>,
    pub(crate) failovers_max: u32,
    pub(crate) session_retries_max: Option<u32>,
    pub(crate) throttle_retries_max: u32,
    pub(crate) throttle_wait_max: Duration,
    pub(crate) content_on_write: bool,
}
