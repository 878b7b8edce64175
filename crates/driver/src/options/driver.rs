//! Options of a driver, which apply to all its operations.

use std::time::Duration;

use super::{OperationOptions, check};
use crate::error::Error;
use crate::options::Environment;
use crate::region::Region;

/// Options of a driver.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct DriverOptions {
    /// Regions in order of preference. The account's other regions follow in the account's
    /// own order. An account with one write region uses it for writes in any case.
    pub preferred_regions: Vec<Region>,
    /// Defaults for the driver's operations.
    pub operation: OperationOptions,
    /// The most hedges that the driver has under way at once (default 64). Further requests are
    /// not hedged. 0 turns hedging off.
    pub hedges_max: Option<u32>,
    /// Options of the circuit breakers.
    pub circuit_breaker: CircuitBreakerOptions,
    /// How the account's regions are kept up to date.
    pub topology: TopologyOptions,
    /// Appended to the user agent.
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

/// How the account's regions are kept up to date.
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
    /// Whether the driver follows the partitions of an account that fail over one by one
    /// (default yes). Only accounts with one write region have such partitions, if their
    /// account document says so.
    pub partition_failover: bool,
    /// After this time, one write of a partition that has failed over asks the account's write
    /// region again (default 300 s).
    pub failback_after: Duration,
}

impl DriverOptions {
    /// Sets the preferred regions, the best first.
    pub fn with_preferred_regions<R: Into<Region>>(mut self, regions: impl IntoIterator<Item = R>) -> Self {
        self.preferred_regions = regions.into_iter().map(Into::into).collect();
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

    /// Sets how the account's regions are kept up to date.
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

    /// The options as the driver uses them. The environment variables for circuit breakers
    /// and for unavailable endpoints replace values that are at their default, bad values
    /// are refused, and the times of circuit breakers and topology are cut to
    /// [`check::TIME_MAX`].
    pub(crate) fn resolved(mut self, environment: &Environment) -> Result<Self, Error> {
        let topology_default = TopologyOptions::default();
        if let Some(enabled) = environment.circuit_breaker_enabled
            && self.circuit_breaker.enabled == CircuitBreakerOptions::default().enabled
        {
            self.circuit_breaker.enabled = enabled;
        }
        if let Some(unavailable_for) = environment.unavailable_for
            && self.topology.unavailable_for == topology_default.unavailable_for
        {
            self.topology.unavailable_for = unavailable_for;
        }
        check::driver_options(&self)?;
        for time in [
            &mut self.circuit_breaker.counter_reset,
            &mut self.circuit_breaker.probe_after,
            &mut self.circuit_breaker.cleanup_interval,
            &mut self.topology.refresh_interval,
            &mut self.topology.refresh_pause,
            &mut self.topology.unavailable_for,
            &mut self.topology.failback_after,
        ] {
            *time = (*time).min(check::TIME_MAX);
        }
        Ok(self)
    }
}

impl CircuitBreakerOptions {
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

    /// Sets the time after which one write of a partition that has failed over asks the
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
