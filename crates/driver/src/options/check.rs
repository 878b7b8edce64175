//! Checks options. Each error names the option and says what to write instead.
//! Values that are only unusual are accepted.

use std::time::Duration;

use http::HeaderValue;

use super::{DriverOptions, Hedging, OperationOptions};
use crate::error::Error;
use crate::region::{self, Region};

/// The longest time that an option can have: a year. Longer times, such as
/// `Duration::MAX` for "no limit", are cut to it, because adding them to an instant
/// would overflow.
pub(super) const TIME_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// The throughput buckets that a container can have.
const THROUGHPUT_BUCKETS: std::ops::RangeInclusive<u8> = 1..=5;

/// The most backup endpoints. Each of them may take seconds to fail when a driver opens.
const BACKUP_ENDPOINTS_MAX: usize = 16;

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
        return refuse(
            "session_token is not a session token: use the text that Response::session_token returned",
        );
    }
    if let Some(bucket) = options.throughput_bucket
        && !THROUGHPUT_BUCKETS.contains(&bucket)
    {
        return refuse(format!("throughput_bucket is {bucket}: the service has the buckets 1 to 5"));
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
            return refuse(format!(
                "{name} is 0: write 1 or more, or turn circuit breakers off with enabled = false"
            ));
        }
    }
    for (name, time) in [
        ("circuit_breaker.counter_reset", breaker.counter_reset),
        ("circuit_breaker.probe_after", breaker.probe_after),
        ("circuit_breaker.cleanup_interval", breaker.cleanup_interval),
        ("topology.refresh_interval", topology.refresh_interval),
        ("topology.refresh_pause", topology.refresh_pause),
        ("topology.unavailable_for", topology.unavailable_for),
        ("topology.failback_after", topology.failback_after),
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
    check_regions(options)?;
    operation_options(&options.operation)
}

/// Refuses choices of regions that contradict each other.
fn check_regions(options: &DriverOptions) -> Result<(), Error> {
    check_region_names("preferred_regions", &options.preferred_regions)?;
    if let Some(region) = &options.application_region {
        if !options.preferred_regions.is_empty() {
            return refuse("application_region and preferred_regions are both set: write one of them");
        }
        if !region::is_known(region) {
            return refuse(format!(
                "application_region is {region:?}, whose place is not known: write a region of Azure such as \
                 \"West Europe\", or list preferred_regions"
            ));
        }
    }
    let chooses_regions = !options.preferred_regions.is_empty()
        || options.application_region.is_some()
        || !options.backup_endpoints.is_empty();
    if options.endpoint_discovery == Some(false) && chooses_regions {
        return refuse(
            "endpoint_discovery is off, so all requests go to the account's own endpoint: leave out \
             preferred_regions, application_region and backup_endpoints",
        );
    }
    if options.backup_endpoints.len() > BACKUP_ENDPOINTS_MAX {
        return refuse(format!("there are more than {BACKUP_ENDPOINTS_MAX} backup_endpoints: list fewer"));
    }
    Ok(())
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
