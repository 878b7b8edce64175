//! The wall clock. Only this file of the driver reads the wall clock: for the date that
//! is sent with each request, and for the lifetime of tokens. All waits use tokio's
//! clock.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use http::HeaderValue;

/// The current date as a header. The date is formatted again only when the second has
/// changed since the last request.
#[derive(Debug)]
pub(crate) struct DateHeader {
    current: ArcSwap<FormattedDate>,
}

#[derive(Debug)]
struct FormattedDate {
    second: u64,
    value: HeaderValue,
}

impl DateHeader {
    pub(crate) fn new() -> Self {
        DateHeader { current: ArcSwap::from_pointee(format_date(unix_seconds())) }
    }

    /// The date to sign and send now.
    pub(crate) fn now(&self) -> HeaderValue {
        let second = unix_seconds();
        let current = self.current.load();
        if current.second == second {
            return current.value.clone();
        }
        let fresh = format_date(second);
        let value = fresh.value.clone();
        self.current.store(Arc::new(fresh));
        value
    }
}

fn format_date(second: u64) -> FormattedDate {
    // The signature covers the date in lower case, so it is also sent in lower case.
    let text = perihelion_wire::date::format(second).to_ascii_lowercase();
    FormattedDate { second, value: HeaderValue::from_str(&text).expect("a date is ASCII") }
}

/// Seconds since 1970, from the wall clock; 0 when the clock is before 1970.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}
