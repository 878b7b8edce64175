//! Checks options. Each error names the option and says what to write instead.
//! Values that are only unusual are accepted.

use std::time::Duration;

use http::HeaderValue;

use super::{DriverOptions, Hedging, OperationOptions};
use crate::error::Error;
use crate::region::Region;

/// The longest time that an option can have: a year. Longer times, such as
/// `Duration::MAX` for "no limit", are cut to it, because adding them to an instant
/// would overflow.
pub(super) const TIME_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// Refuses an operation's options if they cannot be used.
pub(super) fn operation_options(options: &OperationOptions) -> Result<(), Error> {
    for (name, time) in [("timeout", options.timeout), ("attempt_timeout", options.attempt_timeout)] {
        if time.is_some_and(|time| time.is_zero()) {
            return refuse(format!(
                "{name} is zero: write a time above zero, or leave it out for the default"
            ));
        }
    }
    match options.hedging {
        Some(Hedging::Fixed(time)) if time.is_zero() => {
            return refuse(
                "hedging is fixed at zero, which sends every request twice: write Hedging::Off, or a time \
                 above zero",
            );
        }
        Some(Hedging::Dynamic { min, max }) if min > max => {
            return refuse(format!(
                "the hedging threshold cannot be at least {min:?} and at most {max:?}: write min <= max"
            ));
        }
        Some(Hedging::Off | Hedging::Fixed(_) | Hedging::Dynamic { .. }) | None => {}
    }
    if let Some(token) = &options.session_token
        && (token.is_empty() || HeaderValue::from_str(token).is_err())
    {
        return refuse("session_token is not a session token: pass on what Response::session_token gave");
    }
    check_region_names("excluded_regions", options.excluded_regions.as_deref().unwrap_or_default())
}

/// Refuses a driver's options if they cannot be used.
pub(super) fn driver_options(options: &DriverOptions) -> Result<(), Error> {
    let (breaker, topology) = (&options.circuit_breaker, &options.topology);
    for (name, count) in [
        ("circuit_breaker.read_failures", breaker.read_failures),
        ("circuit_breaker.write_failures", breaker.write_failures),
        ("circuit_breaker.hedge_losses", breaker.hedge_losses),
    ] {
        if count == 0 {
            return refuse(format!("{name} is 0: write 1 or more, or turn it off with enabled = false"));
        }
    }
    for (name, time) in [
        ("circuit_breaker.counter_reset", breaker.counter_reset),
        ("circuit_breaker.probe_after", breaker.probe_after),
        ("circuit_breaker.cleanup_interval", breaker.cleanup_interval),
        ("topology.refresh_interval", topology.refresh_interval),
        ("topology.refresh_pause", topology.refresh_pause),
        ("topology.unavailable_for", topology.unavailable_for),
    ] {
        if time.is_zero() {
            return refuse(format!("{name} is zero: write a time above zero"));
        }
    }
    if let Some(suffix) = &options.user_agent
        && !suffix.bytes().all(|byte| (b' '..=b'~').contains(&byte))
    {
        return refuse("user_agent goes into a header: write printable ASCII");
    }
    if options.token_scope.as_ref().is_some_and(|scope| scope.trim().is_empty()) {
        return refuse("token_scope is empty: write one such as https://cosmos.azure.com/.default");
    }
    check_region_names("preferred_regions", &options.preferred_regions)?;
    operation_options(&options.operation)
}

fn check_region_names(name: &str, regions: &[Region]) -> Result<(), Error> {
    match regions.iter().any(|region| region.name().is_empty()) {
        true => refuse(format!("{name} holds an empty name: write names such as \"West US\"")),
        false => Ok(()),
    }
}

fn refuse(message: impl Into<String>) -> Result<(), Error> {
    Err(Error::input(message))
}
