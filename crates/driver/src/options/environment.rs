//! Options from environment variables, for people who run a program but do not
//! change its code.
//!
//! | variable | sets | written as |
//! |---|---|---|
//! | `AZURE_COSMOS_HEDGING_ENABLED` | [`OperationOptions::hedging`]: dynamic, or off | `true`, `false` |
//! | `AZURE_COSMOS_HEDGING_THRESHOLD_MS` | [`OperationOptions::hedging`]: fixed | milliseconds above 0 |
//! | `AZURE_COSMOS_MAX_FAILOVER_RETRY_COUNT` | [`OperationOptions::failovers_max`] | a count |
//! | `AZURE_COSMOS_MAX_SESSION_RETRY_COUNT` | [`OperationOptions::session_retries_max`] | a count |
//! | `AZURE_COSMOS_MAX_THROTTLE_RETRY_COUNT` | [`OperationOptions::throttle_retries_max`] | a count |
//! | `AZURE_COSMOS_READ_CONSISTENCY_STRATEGY` | [`OperationOptions::read_consistency`] | `Default`, `Eventual`, `Session`, `LatestCommitted`, `GlobalStrong` |
//! | `AZURE_COSMOS_CONTENT_RESPONSE_ON_WRITE` | [`OperationOptions::content_on_write`] | `true`, `false` |
//! | `AZURE_COSMOS_HEDGING_ENABLED_OVERRIDE` | [`Overrides::hedging`] | `true`, `false` |
//! | `AZURE_COSMOS_PPCB_ENABLED_OVERRIDE` | [`Overrides::circuit_breaker`] | `true`, `false` |
//! | `AZURE_COSMOS_PPCB_ENABLED` | [`CircuitBreakerOptions::enabled`] | `true`, `false` |
//! | `AZURE_COSMOS_PPCB_READ_FAILURE_THRESHOLD` | [`CircuitBreakerOptions::read_failures`] | 1 to 1000 |
//! | `AZURE_COSMOS_PPCB_WRITE_FAILURE_THRESHOLD` | [`CircuitBreakerOptions::write_failures`] | 1 to 1000 |
//! | `AZURE_COSMOS_PPCB_CONSECUTIVE_HEDGE_WIN_THRESHOLD` | [`CircuitBreakerOptions::hedge_losses`] | 1 to 1000 |
//! | `AZURE_COSMOS_PPCB_COUNTER_RESET_WINDOW_MS` | [`CircuitBreakerOptions::counter_reset`] | milliseconds above 0 |
//! | `AZURE_COSMOS_PPCB_PARTITION_UNAVAILABILITY_DURATION_MS` | [`CircuitBreakerOptions::probe_after`] | milliseconds above 0 |
//! | `AZURE_COSMOS_PPCB_FAILBACK_SWEEP_INTERVAL_MS` | [`CircuitBreakerOptions::cleanup_interval`] | milliseconds above 0 |
//! | `AZURE_COSMOS_ENDPOINT_UNAVAILABLE_TTL_MS` | [`TopologyOptions::unavailable_for`] | milliseconds above 0 |
//! | `AZURE_COSMOS_APPLICATION_REGION` | [`DriverOptions::application_region`] | a region of Azure |
//!
//! `PPCB` is Microsoft's name for the circuit breakers (per-partition circuit breaker).
//!
//! Case does not matter in a value, `1` and `0` mean `true` and `false`, and an empty
//! variable counts as not set. `AZURE_COSMOS_HEDGING_ENABLED=false` wins over a
//! threshold. Options in code win over the environment. Only the two overrides, which are for
//! emergencies, win over options in code. A variable that sets an option of
//! [`CircuitBreakerOptions`] or [`TopologyOptions`] applies when code left that option at its
//! default. The region applies when code chooses no regions. A value that cannot be parsed is an
//! error that names the variable, so that a mistake is noticed.
//!
//! The options of connections have variables, too: see
//! [`HttpOptions`](crate::transport::HttpOptions).

#[cfg(test)]
mod tests;

use super::{
    CircuitBreakerOptions, DriverOptions, Hedging, OperationOptions, ReadConsistency, TopologyOptions,
};
use crate::error::Error;
use crate::region::{self, Region};
use crate::variable::{self, Variable};

/// The most failures before a breaker opens. A breaker that opens later protects nothing.
const FAILURES_MAX: usize = 1000;

/// The options that environment variables set.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Environment {
    /// Defaults for all drivers and their operations.
    pub driver: DriverOptions,
    /// Choices that win over the options in code.
    pub overrides: Overrides,
}

/// Choices of the environment that win over the options in code: switches for people who run a
/// program while the service has an incident.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Overrides {
    /// `false` turns hedging off for all operations. `true` turns it on, with the dynamic
    /// threshold, where an option has turned it off.
    pub hedging: Option<bool>,
    /// Whether circuit breakers are on.
    pub circuit_breaker: Option<bool>,
}

impl Environment {
    /// Reads the environment of this process.
    pub fn of_process() -> Result<Self, Error> {
        Environment::read(variable::of_process)
    }

    /// Reads an environment in which `lookup` returns the value of a variable.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let get = |name: &'static str| Variable::new(name, lookup(name));
        let read = || {
            let overrides = Overrides {
                hedging: get("AZURE_COSMOS_HEDGING_ENABLED_OVERRIDE").boolean()?,
                circuit_breaker: get("AZURE_COSMOS_PPCB_ENABLED_OVERRIDE").boolean()?,
            };
            let unavailable_for = get("AZURE_COSMOS_ENDPOINT_UNAVAILABLE_TTL_MS").milliseconds()?;
            let topology = TopologyOptions::default();
            let driver = DriverOptions {
                operation: operation_options(get)?,
                circuit_breaker: circuit_breaker_options(get)?,
                topology: unavailable_for
                    .map_or(topology.clone(), |time| topology.with_unavailable_for(time)),
                application_region: application_region(get("AZURE_COSMOS_APPLICATION_REGION"))?,
                ..DriverOptions::default()
            };
            Ok(Environment { driver, overrides })
        };
        read().map_err(|text: String| Error::input(text))
    }
}

fn operation_options(get: impl Fn(&'static str) -> Variable) -> Result<OperationOptions, String> {
    let is_hedging_enabled = get("AZURE_COSMOS_HEDGING_ENABLED").boolean()?;
    let hedging_threshold = get("AZURE_COSMOS_HEDGING_THRESHOLD_MS").milliseconds()?;
    Ok(OperationOptions {
        hedging: match (is_hedging_enabled, hedging_threshold) {
            (Some(false), _) => Some(Hedging::Off),
            (_, Some(threshold)) => Some(Hedging::Fixed(threshold)),
            (Some(true), None) => Some(Hedging::dynamic()),
            (None, None) => None,
        },
        failovers_max: get("AZURE_COSMOS_MAX_FAILOVER_RETRY_COUNT").count()?,
        session_retries_max: get("AZURE_COSMOS_MAX_SESSION_RETRY_COUNT").count()?,
        throttle_retries_max: get("AZURE_COSMOS_MAX_THROTTLE_RETRY_COUNT").count()?,
        read_consistency: read_consistency(get("AZURE_COSMOS_READ_CONSISTENCY_STRATEGY"))?,
        content_on_write: get("AZURE_COSMOS_CONTENT_RESPONSE_ON_WRITE").boolean()?,
        ..OperationOptions::default()
    })
}

fn circuit_breaker_options(get: impl Fn(&'static str) -> Variable) -> Result<CircuitBreakerOptions, String> {
    let failures = |name: &'static str, default: u32| {
        let number = get(name).number(1..=FAILURES_MAX)?;
        Ok::<u32, String>(number.and_then(|number| u32::try_from(number).ok()).unwrap_or(default))
    };
    let time = |name: &'static str, default| Ok::<_, String>(get(name).milliseconds()?.unwrap_or(default));
    let default = CircuitBreakerOptions::default();
    Ok(CircuitBreakerOptions {
        enabled: get("AZURE_COSMOS_PPCB_ENABLED").boolean()?.unwrap_or(default.enabled),
        read_failures: failures("AZURE_COSMOS_PPCB_READ_FAILURE_THRESHOLD", default.read_failures)?,
        write_failures: failures("AZURE_COSMOS_PPCB_WRITE_FAILURE_THRESHOLD", default.write_failures)?,
        hedge_losses: failures("AZURE_COSMOS_PPCB_CONSECUTIVE_HEDGE_WIN_THRESHOLD", default.hedge_losses)?,
        counter_reset: time("AZURE_COSMOS_PPCB_COUNTER_RESET_WINDOW_MS", default.counter_reset)?,
        probe_after: time("AZURE_COSMOS_PPCB_PARTITION_UNAVAILABILITY_DURATION_MS", default.probe_after)?,
        cleanup_interval: time("AZURE_COSMOS_PPCB_FAILBACK_SWEEP_INTERVAL_MS", default.cleanup_interval)?,
    })
}

fn application_region(variable: Variable) -> Result<Option<Region>, String> {
    variable.parse("write a region of Azure such as West Europe", |value| {
        Some(Region::new(value)).filter(region::is_known)
    })
}

fn read_consistency(variable: Variable) -> Result<Option<ReadConsistency>, String> {
    let advice = "write Default, Eventual, Session, LatestCommitted or GlobalStrong";
    variable.parse(advice, |value| match value.to_ascii_lowercase().as_str() {
        "default" => Some(ReadConsistency::Account),
        "eventual" => Some(ReadConsistency::Eventual),
        "session" => Some(ReadConsistency::Session),
        "latestcommitted" => Some(ReadConsistency::LatestCommitted),
        "globalstrong" => Some(ReadConsistency::GlobalStrong),
        _ => None,
    })
}
