//! Options: plain structs that users set. The options of a driver are resolved once, the
//! options of an operation once per operation.
//!
//! There are [`OperationOptions`] in four layers: the environment, the runtime, the driver and
//! the operation. A value of the operation wins over the driver's value, the driver's over the
//! runtime's ([`DriverRuntime`](crate::DriverRuntime)), and the runtime's over the
//! environment's. `Settings` is the result, with a value for every field.
//! Operations without options of their own share one `Settings` per class of operations:
//! documents, transactions, reads of metadata, writes of metadata.

mod check;
mod driver;
mod environment;
mod headers;
mod settings;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::region::Region;

pub use driver::{CircuitBreakerOptions, DriverOptions, TopologyOptions};
pub use environment::{Environment, Overrides};
pub use headers::{CustomHeaders, Priority};
pub(crate) use settings::{OperationClass, OptionLayers, Settings};

/// Options of one operation, or defaults for all operations of a driver. A field that
/// is `None` takes its value from the next layer: the driver, then the runtime, then the
/// environment, then the default.
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
    /// The time for the whole operation, retries included (default 65 s; metadata
    /// 160 s).
    pub timeout: Option<Duration>,
    /// The time for one request (default 6 s; distributed transactions 20 s; creates, replaces
    /// and deletes of metadata 65 s).
    pub attempt_timeout: Option<Duration>,
    /// Regions that this operation must not use. There are three exceptions. A write goes
    /// to the only write region even if that region is excluded. If all regions are
    /// excluded, other operations go to the account's own endpoint. In an account with one
    /// write region, the driver's read of a witness ignores exclusions.
    pub excluded_regions: Option<Vec<Region>>,
    /// Whether and when a second region is asked as well (default dynamic).
    pub hedging: Option<Hedging>,
    /// Whether writes are hedged too, where every region takes writes (default no). Only
    /// upserts, replaces, deletes and patches that may be repeated are hedged. A first leg that
    /// arrives late is applied as one more write, and can overwrite a newer write that was
    /// acknowledged.
    pub hedged_writes: Option<bool>,
    /// The consistency of reads (default: the account's).
    pub read_consistency: Option<ReadConsistency>,
    /// A session token of another client, used instead of the driver's own.
    pub session_token: Option<Arc<str>>,
    /// Retries after a region was unavailable, in the next region or, if there is no
    /// other, in the same one (default 3).
    pub failovers_max: Option<u32>,
    /// Retries when a region does not have the writes of the session yet (default 5; where
    /// all regions take writes, the number of regions if that is more).
    pub session_retries_max: Option<u32>,
    /// Retries of a throttled request in one attempt (default 18; metadata 9).
    pub throttle_retries_max: Option<u32>,
    /// The longest sum of the waits after throttled requests in one attempt (default
    /// 270 s; metadata 30 s). No wait goes beyond `timeout`.
    pub throttle_wait_max: Option<Duration>,
    /// Whether the answer to a write contains the document (default yes).
    pub content_on_write: Option<bool>,
    /// The priority of operations on documents (default: the service's, which is high).
    pub priority: Option<Priority>,
    /// The throughput bucket of operations on documents, 1 to 5 (default: none). The service
    /// limits the share of the container's throughput that a bucket may use.
    pub throughput_bucket: Option<u8>,
    /// How old an answer from the cache of a dedicated gateway may be (default: the service's,
    /// 5 min). It applies to reads and queries through a dedicated gateway, and is sent in
    /// whole milliseconds.
    pub dedicated_gateway_staleness_max: Option<Duration>,
    /// Whether reads and queries bypass the cache of a dedicated gateway (default no).
    pub dedicated_gateway_bypass: Option<bool>,
    /// Headers of the caller's own. The headers of all layers are sent. If several layers have
    /// a header of the same name, the layer that is nearest to the operation wins.
    pub headers: CustomHeaders,
}

impl OperationOptions {
    /// Whether nothing is set, so that the driver's settings apply unchanged.
    pub fn is_default(&self) -> bool {
        *self == OperationOptions::default()
    }

    /// These options, with the values of `other` for options that are not set here.
    pub fn or(self, other: OperationOptions) -> Self {
        // All fields are named, so that a new field cannot be forgotten.
        let OperationOptions {
            timeout,
            attempt_timeout,
            excluded_regions,
            hedging,
            hedged_writes,
            read_consistency,
            session_token,
            failovers_max,
            session_retries_max,
            throttle_retries_max,
            throttle_wait_max,
            content_on_write,
            priority,
            throughput_bucket,
            dedicated_gateway_staleness_max,
            dedicated_gateway_bypass,
            headers,
        } = other;
        OperationOptions {
            timeout: self.timeout.or(timeout),
            attempt_timeout: self.attempt_timeout.or(attempt_timeout),
            excluded_regions: self.excluded_regions.or(excluded_regions),
            hedging: self.hedging.or(hedging),
            hedged_writes: self.hedged_writes.or(hedged_writes),
            read_consistency: self.read_consistency.or(read_consistency),
            session_token: self.session_token.or(session_token),
            failovers_max: self.failovers_max.or(failovers_max),
            session_retries_max: self.session_retries_max.or(session_retries_max),
            throttle_retries_max: self.throttle_retries_max.or(throttle_retries_max),
            throttle_wait_max: self.throttle_wait_max.or(throttle_wait_max),
            content_on_write: self.content_on_write.or(content_on_write),
            priority: self.priority.or(priority),
            throughput_bucket: self.throughput_bucket.or(throughput_bucket),
            dedicated_gateway_staleness_max: self
                .dedicated_gateway_staleness_max
                .or(dedicated_gateway_staleness_max),
            dedicated_gateway_bypass: self.dedicated_gateway_bypass.or(dedicated_gateway_bypass),
            headers: self.headers.or(&headers),
        }
    }

    /// Sets the time for the whole operation, retries included.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the time for one request.
    pub fn with_attempt_timeout(mut self, timeout: Duration) -> Self {
        self.attempt_timeout = Some(timeout);
        self
    }

    /// Sets the regions that must not be used. An empty list removes the driver's
    /// exclusions.
    pub fn with_excluded_regions<R: Into<Region>>(mut self, regions: impl IntoIterator<Item = R>) -> Self {
        self.excluded_regions = Some(regions.into_iter().map(Into::into).collect());
        self
    }

    /// Sets whether and when a second region is asked as well.
    pub fn with_hedging(mut self, hedging: Hedging) -> Self {
        self.hedging = Some(hedging);
        self
    }

    /// Sets whether writes are hedged too, where every region takes writes. A first leg that
    /// arrives late can overwrite a newer write that was acknowledged. So allow this only for
    /// documents that are not written again within seconds, or whose writes all carry the same
    /// value.
    pub fn with_hedged_writes(mut self, is_allowed: bool) -> Self {
        self.hedged_writes = Some(is_allowed);
        self
    }

    /// Sets the consistency of reads.
    pub fn with_read_consistency(mut self, consistency: ReadConsistency) -> Self {
        self.read_consistency = Some(consistency);
        self
    }

    /// Sets the session token: reads see at least the writes that it covers.
    pub fn with_session_token(mut self, token: impl Into<Arc<str>>) -> Self {
        self.session_token = Some(token.into());
        self
    }

    /// Sets the number of retries after a region was unavailable.
    pub fn with_failovers_max(mut self, count: u32) -> Self {
        self.failovers_max = Some(count);
        self
    }

    /// Sets the number of retries when a region does not have the writes of the session
    /// yet.
    pub fn with_session_retries_max(mut self, count: u32) -> Self {
        self.session_retries_max = Some(count);
        self
    }

    /// Sets the number of retries of a throttled request in one attempt.
    pub fn with_throttle_retries_max(mut self, count: u32) -> Self {
        self.throttle_retries_max = Some(count);
        self
    }

    /// Sets the longest sum of the waits after throttled requests in one attempt.
    pub fn with_throttle_wait_max(mut self, wait: Duration) -> Self {
        self.throttle_wait_max = Some(wait);
        self
    }

    /// Sets whether the answer to a write contains the document.
    pub fn with_content_on_write(mut self, is_wanted: bool) -> Self {
        self.content_on_write = Some(is_wanted);
        self
    }

    /// Sets the priority of operations on documents.
    pub fn with_priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Sets the throughput bucket of operations on documents, 1 to 5.
    pub fn with_throughput_bucket(mut self, bucket: u8) -> Self {
        self.throughput_bucket = Some(bucket);
        self
    }

    /// Sets how old an answer from the cache of a dedicated gateway may be.
    pub fn with_dedicated_gateway_staleness_max(mut self, staleness: Duration) -> Self {
        self.dedicated_gateway_staleness_max = Some(staleness);
        self
    }

    /// Sets whether reads and queries bypass the cache of a dedicated gateway.
    pub fn with_dedicated_gateway_bypass(mut self, is_bypassed: bool) -> Self {
        self.dedicated_gateway_bypass = Some(is_bypassed);
        self
    }

    /// Adds a header of the caller's own to every request. In the options of a driver, this
    /// includes the requests for metadata that the driver makes itself. Headers that the driver
    /// sets, such as `authorization`, are refused.
    ///
    /// ```
    /// # use perihelion_driver::OperationOptions;
    /// let options = OperationOptions::default().with_header("x-team", "orders")?;
    /// assert!(OperationOptions::default().with_header("x-ms-date", "today").is_err());
    /// # Ok::<(), perihelion_driver::Error>(())
    /// ```
    pub fn with_header(mut self, name: &str, value: &str) -> Result<Self, Error> {
        self.headers.set(name, value)?;
        Ok(self)
    }
}

/// Hedging: whether and when a second region is asked as well.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Hedging {
    /// No request is hedged.
    Off,
    /// A second region is asked after the P99 of recent requests to the faster of the
    /// two regions, kept within these bounds (and within 50 to 4000 ms).
    Dynamic {
        /// The lower bound.
        min: Duration,
        /// The upper bound.
        max: Duration,
    },
    /// A second region is asked after this time.
    Fixed(Duration),
}

impl Hedging {
    /// The lowest dynamic threshold. With a lower one, the ordinary variance of a region
    /// that works would cause many needless hedges.
    pub const DYNAMIC_MIN: Duration = Duration::from_millis(50);
    /// The highest dynamic threshold. With a higher one, the first region's request would
    /// soon time out anyway.
    pub const DYNAMIC_MAX: Duration = Duration::from_millis(4000);

    /// The default: dynamic, within the widest bounds.
    pub const fn dynamic() -> Self {
        Hedging::Dynamic { min: Hedging::DYNAMIC_MIN, max: Hedging::DYNAMIC_MAX }
    }
}

/// The consistency of reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadConsistency {
    /// The account's default consistency.
    Account,
    /// A read may return the state of any replica.
    Eventual,
    /// A read sees at least the writes that this driver has made or read.
    Session,
    /// A read sees the latest commit in the region.
    LatestCommitted,
    /// A read sees the latest commit in any region. The account must have strong
    /// consistency.
    GlobalStrong,
}
