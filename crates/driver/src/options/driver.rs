//! Options of a driver, which apply to all its operations.

use std::time::Duration;

use perihelion_wire::transport::Endpoint;

use super::{OperationOptions, check};
use crate::error::Error;
use crate::options::Environment;
use crate::region::Region;

/// Options of a driver.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct DriverOptions {
    /// Regions in order of preference. The account's other regions follow in the account's
    /// own order. An account with one write region uses that region for writes in any case.
    pub preferred_regions: Vec<Region>,
    /// The region of Azure in which the application runs, instead of `preferred_regions`. The
    /// account's regions are then used in the order of their distance from it.
    pub application_region: Option<Region>,
    /// Whether requests go to the endpoints of the account's regions (default yes). With `false`,
    /// all requests go to the account's own endpoint: no failover, no hedging and no choice of a
    /// region.
    pub endpoint_discovery: Option<bool>,
    /// Other addresses of the account, such as those of private endpoints in other regions. They
    /// are asked for the account's regions when the account's own endpoint and the regions that
    /// are known do not answer. At most 16.
    pub backup_endpoints: Vec<Endpoint>,
    /// Defaults for the driver's operations.
    pub operation: OperationOptions,
    /// The most hedges that the driver has under way at once (default 64). Further requests are
    /// not hedged. 0 turns hedging off.
    pub hedges_max: Option<u32>,
    /// Options of the circuit breakers.
    pub circuit_breaker: CircuitBreakerOptions,
    /// Options for keeping the account's regions up to date.
    pub topology: TopologyOptions,
    /// A text that is appended to the user agent.
    pub user_agent: Option<String>,
    /// The scope of Entra ID tokens, when it is not the account's own
    /// `https://<host>/.default`.
    pub token_scope: Option<String>,
}

/// Options of the circuit breakers: when a partition in a region is taken out of use,
/// and when it is tried again.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CircuitBreakerOptions {
    /// Whether circuit breakers are on (default yes).
    pub enabled: bool,
    /// The number of consecutive failed reads that open a breaker (default 2).
    pub read_failures: u32,
    /// The number of consecutive failed writes that open a breaker (default 5).
    pub write_failures: u32,
    /// The number of consecutive lost hedges that open a breaker (default 5). A region loses
    /// a hedge when another region, which was asked later, wins.
    pub hedge_losses: u32,
    /// Failures further apart than this are not consecutive (default 5 min).
    pub counter_reset: Duration,
    /// How long a breaker stays open before one request may probe (default 5 s). Up to
    /// half of this time is added at random.
    pub probe_after: Duration,
    /// How often breakers that are no longer needed are removed (default 300 s): those whose
    /// counts are too old, and open ones whose partition no longer gets requests.
    pub cleanup_interval: Duration,
}

/// Options for keeping the account's regions up to date.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TopologyOptions {
    /// The time between background refreshes of the account (default 300 s).
    pub refresh_interval: Duration,
    /// The least time between refreshes that failures ask for (default 5 s).
    pub refresh_pause: Duration,
    /// How long a region whose endpoint failed is avoided before it is probed (default
    /// 60 s).
    pub unavailable_for: Duration,
    /// Whether the driver supports failover of single partitions: it finds the region that takes
    /// the writes of a partition which has moved alone (default yes). The service offers this to
    /// some accounts with one write region; the account document says so.
    pub partition_failover: bool,
    /// After this time, one write of a partition that has failed over is sent to the account's
    /// write region, to find out whether that region takes the partition's writes again (default
    /// 300 s).
    pub failback_after: Duration,
}

impl DriverOptions {
    /// Sets the preferred regions, the best first.
    pub fn with_preferred_regions<R: Into<Region>>(mut self, regions: impl IntoIterator<Item = R>) -> Self {
        self.preferred_regions = regions.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the region of Azure in which the application runs.
    ///
    /// ```
    /// # use perihelion_driver::DriverOptions;
    /// let options = DriverOptions::default().with_application_region("West Europe");
    /// ```
    pub fn with_application_region(mut self, region: impl Into<Region>) -> Self {
        self.application_region = Some(region.into());
        self
    }

    /// Sets whether requests go to the endpoints of the account's regions.
    pub fn with_endpoint_discovery(mut self, is_on: bool) -> Self {
        self.endpoint_discovery = Some(is_on);
        self
    }

    /// Sets other addresses of the account, at which its regions can be read.
    pub fn with_backup_endpoints(mut self, endpoints: impl IntoIterator<Item = Endpoint>) -> Self {
        self.backup_endpoints = endpoints.into_iter().collect();
        self
    }

    /// Sets defaults for all operations.
    pub fn with_operation(mut self, options: OperationOptions) -> Self {
        self.operation = options;
        self
    }

    /// Sets the most hedges that the driver has under way at once.
    pub fn with_hedges_max(mut self, count: u32) -> Self {
        self.hedges_max = Some(count);
        self
    }

    /// Sets the options of the circuit breakers.
    pub fn with_circuit_breaker(mut self, options: CircuitBreakerOptions) -> Self {
        self.circuit_breaker = options;
        self
    }

    /// Sets the options for keeping the account's regions up to date.
    pub fn with_topology(mut self, options: TopologyOptions) -> Self {
        self.topology = options;
        self
    }

    /// Sets a text that is appended to the user agent.
    pub fn with_user_agent(mut self, suffix: impl Into<String>) -> Self {
        self.user_agent = Some(suffix.into());
        self
    }

    /// Sets the scope of Entra ID tokens.
    pub fn with_token_scope(mut self, scope: impl Into<String>) -> Self {
        self.token_scope = Some(scope.into());
        self
    }

    /// These options, with the values of `defaults` for options that are not set here. An option
    /// of the circuit breakers or of the topology counts as not set if it has its default value.
    /// The choice of regions is one option: if it is made here, that of `defaults` does not
    /// count. Backup endpoints belong to one account and are not taken over.
    pub(crate) fn or(self, defaults: &DriverOptions) -> Self {
        let chooses_regions = !self.preferred_regions.is_empty()
            || self.application_region.is_some()
            || self.endpoint_discovery.is_some();
        let regions = if chooses_regions { &self } else { defaults };
        // All fields are named, so that a new field cannot be forgotten.
        DriverOptions {
            preferred_regions: regions.preferred_regions.clone(),
            application_region: regions.application_region.clone(),
            endpoint_discovery: regions.endpoint_discovery,
            backup_endpoints: self.backup_endpoints,
            operation: self.operation.or(defaults.operation.clone()),
            hedges_max: self.hedges_max.or(defaults.hedges_max),
            circuit_breaker: self.circuit_breaker.or(&defaults.circuit_breaker),
            topology: self.topology.or(&defaults.topology),
            user_agent: self.user_agent.or_else(|| defaults.user_agent.clone()),
            token_scope: self.token_scope.or_else(|| defaults.token_scope.clone()),
        }
    }

    /// The options as the driver uses them. Options that are not set get the values of the
    /// environment. The environment's override for circuit breakers wins over the option. Bad values
    /// are refused, and the times of circuit breakers and topology are cut to [`check::TIME_MAX`].
    pub(crate) fn resolved(self, environment: &Environment) -> Result<Self, Error> {
        // The application's options are checked before they are combined with the environment's.
        check::driver_options(&self)?;
        let mut options = self.or(&environment.driver);
        if let Some(enabled) = environment.overrides.circuit_breaker {
            options.circuit_breaker.enabled = enabled;
        }
        check::driver_options(&options)?;
        for time in [
            &mut options.circuit_breaker.counter_reset,
            &mut options.circuit_breaker.probe_after,
            &mut options.circuit_breaker.cleanup_interval,
            &mut options.topology.refresh_interval,
            &mut options.topology.refresh_pause,
            &mut options.topology.unavailable_for,
            &mut options.topology.failback_after,
        ] {
            *time = (*time).min(check::TIME_MAX);
        }
        Ok(options)
    }
}

/// `own`, or `other` if `own` has its default value.
fn or_other<T: PartialEq>(own: T, default: T, other: T) -> T {
    if own == default { other } else { own }
}

impl CircuitBreakerOptions {
    /// These options, with the values of `other` for options that have their default value.
    fn or(self, other: &Self) -> Self {
        let default = CircuitBreakerOptions::default();
        let CircuitBreakerOptions {
            enabled,
            read_failures,
            write_failures,
            hedge_losses,
            counter_reset,
            probe_after,
            cleanup_interval,
        } = self;
        CircuitBreakerOptions {
            enabled: or_other(enabled, default.enabled, other.enabled),
            read_failures: or_other(read_failures, default.read_failures, other.read_failures),
            write_failures: or_other(write_failures, default.write_failures, other.write_failures),
            hedge_losses: or_other(hedge_losses, default.hedge_losses, other.hedge_losses),
            counter_reset: or_other(counter_reset, default.counter_reset, other.counter_reset),
            probe_after: or_other(probe_after, default.probe_after, other.probe_after),
            cleanup_interval: or_other(cleanup_interval, default.cleanup_interval, other.cleanup_interval),
        }
    }

    /// Sets whether circuit breakers are on.
    pub fn with_enabled(mut self, enabled: bool) -> Self {
        self.enabled = enabled;
        self
    }

    /// Sets the number of consecutive failed reads that open a breaker.
    pub fn with_read_failures(mut self, count: u32) -> Self {
        self.read_failures = count;
        self
    }

    /// Sets the number of consecutive failed writes that open a breaker.
    pub fn with_write_failures(mut self, count: u32) -> Self {
        self.write_failures = count;
        self
    }

    /// Sets the number of consecutive lost hedges that open a breaker.
    pub fn with_hedge_losses(mut self, count: u32) -> Self {
        self.hedge_losses = count;
        self
    }

    /// Sets the time after which the counts start again: failures further apart than this
    /// are not consecutive.
    pub fn with_counter_reset(mut self, window: Duration) -> Self {
        self.counter_reset = window;
        self
    }

    /// Sets how long a breaker stays open before one request may probe.
    pub fn with_probe_after(mut self, wait: Duration) -> Self {
        self.probe_after = wait;
        self
    }

    /// Sets how often breakers that are no longer needed are removed.
    pub fn with_cleanup_interval(mut self, interval: Duration) -> Self {
        self.cleanup_interval = interval;
        self
    }
}

impl TopologyOptions {
    /// These options, with the values of `other` for options that have their default value.
    fn or(self, other: &Self) -> Self {
        let default = TopologyOptions::default();
        let TopologyOptions {
            refresh_interval,
            refresh_pause,
            unavailable_for,
            partition_failover,
            failback_after,
        } = self;
        TopologyOptions {
            refresh_interval: or_other(refresh_interval, default.refresh_interval, other.refresh_interval),
            refresh_pause: or_other(refresh_pause, default.refresh_pause, other.refresh_pause),
            unavailable_for: or_other(unavailable_for, default.unavailable_for, other.unavailable_for),
            partition_failover: or_other(
                partition_failover,
                default.partition_failover,
                other.partition_failover,
            ),
            failback_after: or_other(failback_after, default.failback_after, other.failback_after),
        }
    }

    /// Sets the time between background refreshes of the account.
    pub fn with_refresh_interval(mut self, interval: Duration) -> Self {
        self.refresh_interval = interval;
        self
    }

    /// Sets the least time between refreshes that failures ask for.
    pub fn with_refresh_pause(mut self, pause: Duration) -> Self {
        self.refresh_pause = pause;
        self
    }

    /// Sets how long a region whose endpoint failed is avoided before it is probed.
    pub fn with_unavailable_for(mut self, time: Duration) -> Self {
        self.unavailable_for = time;
        self
    }

    /// Sets whether the driver follows partitions that fail over one by one.
    pub fn with_partition_failover(mut self, enabled: bool) -> Self {
        self.partition_failover = enabled;
        self
    }

    /// Sets the time after which one write of a partition that has failed over is sent to the
    /// account's write region again.
    pub fn with_failback_after(mut self, time: Duration) -> Self {
        self.failback_after = time;
        self
    }
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
            cleanup_interval: Duration::from_secs(300),
        }
    }
}

impl Default for TopologyOptions {
    fn default() -> Self {
        TopologyOptions {
            refresh_interval: Duration::from_secs(300),
            refresh_pause: Duration::from_secs(5),
            unavailable_for: Duration::from_secs(60),
            partition_failover: true,
            failback_after: Duration::from_secs(300),
        }
    }
}
