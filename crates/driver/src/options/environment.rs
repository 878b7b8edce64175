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
//! | `AZURE_COSMOS_PPCB_ENABLED` | [`CircuitBreakerOptions::enabled`] | `true`, `false` |
//! | `AZURE_COSMOS_ENDPOINT_UNAVAILABLE_TTL_MS` | [`TopologyOptions::unavailable_for`] | milliseconds above 0 |
//!
//! Case does not matter in a value, `1` and `0` mean `true` and `false`, and an empty
//! variable counts as not set. `AZURE_COSMOS_HEDGING_ENABLED=false` wins over a
//! threshold. Options in code win over the environment; the last two variables apply
//! when code left the option at its default. A value that cannot be parsed is an error
//! that names the variable, so that a mistake is noticed.
//!
//! [`CircuitBreakerOptions::enabled`]: crate::options::CircuitBreakerOptions::enabled
//! [`TopologyOptions::unavailable_for`]: crate::options::TopologyOptions::unavailable_for

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::{Hedging, OperationOptions, ReadConsistency};
use crate::error::Error;

/// How many characters of a value an error repeats at most.
const VALUE_SHOWN_CHARS_MAX: usize = 64;

/// The options that environment variables set.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Environment {
    /// Defaults for operations of all drivers.
    pub operation: OperationOptions,
    /// Whether circuit breakers are on.
    pub circuit_breaker_enabled: Option<bool>,
    /// How long a region whose endpoint failed is avoided before it is probed.
    pub unavailable_for: Option<Duration>,
}

impl Environment {
    /// Reads the environment of this process.
    pub fn of_process() -> Result<Self, Error> {
        Environment::read(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    /// Reads an environment in which `lookup` returns the value of a variable.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let get = |name: &'static str| Variable::new(name, lookup(name));
        let is_hedging_enabled = get("AZURE_COSMOS_HEDGING_ENABLED").boolean()?;
        let hedging_threshold = get("AZURE_COSMOS_HEDGING_THRESHOLD_MS").milliseconds()?;
        let operation = OperationOptions {
            hedging: match (is_hedging_enabled, hedging_threshold) {
                (Some(false), _) => Some(Hedging::Off),
                (_, Some(threshold)) => Some(Hedging::Fixed(threshold)),
                (Some(true), None) => Some(Hedging::dynamic()),
                (None, None) => None,
            },
            failovers_max: get("AZURE_COSMOS_MAX_FAILOVER_RETRY_COUNT").count()?,
            session_retries_max: get("AZURE_COSMOS_MAX_SESSION_RETRY_COUNT").count()?,
            throttle_retries_max: get("AZURE_COSMOS_MAX_THROTTLE_RETRY_COUNT").count()?,
            read_consistency: get("AZURE_COSMOS_READ_CONSISTENCY_STRATEGY").consistency()?,
            content_on_write: get("AZURE_COSMOS_CONTENT_RESPONSE_ON_WRITE").boolean()?,
            ..OperationOptions::default()
        };
        Ok(Environment {
            operation,
            circuit_breaker_enabled: get("AZURE_COSMOS_PPCB_ENABLED").boolean()?,
            unavailable_for: get("AZURE_COSMOS_ENDPOINT_UNAVAILABLE_TTL_MS").milliseconds()?,
        })
    }
}

/// One variable.
struct Variable {
    name: &'static str,
    /// `None` when the variable is not set, or empty.
    value: Option<String>,
}

impl Variable {
    fn new(name: &'static str, value: Option<String>) -> Self {
        let value = value.map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        Variable { name, value }
    }

    fn boolean(self) -> Result<Option<bool>, Error> {
        self.parse("write true or false", |value| match value.to_ascii_lowercase().as_str() {
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            _ => None,
        })
    }

    fn count(self) -> Result<Option<u32>, Error> {
        self.parse("write a whole number, 0 or more", |value| value.parse().ok())
    }

    fn milliseconds(self) -> Result<Option<Duration>, Error> {
        self.parse("write milliseconds as a whole number above 0", |value| {
            value.parse().ok().filter(|number| *number > 0).map(Duration::from_millis)
        })
    }

    fn consistency(self) -> Result<Option<ReadConsistency>, Error> {
        let advice = "write Default, Eventual, Session, LatestCommitted or GlobalStrong";
        self.parse(advice, |value| match value.to_ascii_lowercase().as_str() {
            "default" => Some(ReadConsistency::Account),
            "eventual" => Some(ReadConsistency::Eventual),
            "session" => Some(ReadConsistency::Session),
            "latestcommitted" => Some(ReadConsistency::LatestCommitted),
            "globalstrong" => Some(ReadConsistency::GlobalStrong),
            _ => None,
        })
    }

    /// Parses the value with `read`. When `read` returns `None`, the error ends with `advice`.
    fn parse<T>(self, advice: &str, read: impl Fn(&str) -> Option<T>) -> Result<Option<T>, Error> {
        let Some(value) = self.value else { return Ok(None) };
        read(&value).map(Some).ok_or_else(|| {
            let shown: String = value.chars().take(VALUE_SHOWN_CHARS_MAX).collect();
            Error::input(format!("the environment variable {} is {shown:?}: {advice}", self.name))
        })
    }
}
