//! The wall clock. Only this file of the driver reads it, for the date under a
//! signature and for the lifetime of tokens. All waits use tokio's clock.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use http::HeaderValue;

/// The current date as a header, printed once a second.
#[derive(Debug)]
pub(crate) struct DateHeader {
    printed: ArcSwap<Printed>,
}

#[derive(Debug)]
struct Printed {
    second: u64,
    value: HeaderValue,
}

impl DateHeader {
    pub(crate) fn new() -> Self {
        DateHeader { printed: ArcSwap::from_pointee(print(unix_seconds())) }
    }

    /// The date to sign and send now.
    pub(crate) fn now(&self) -> HeaderValue {
        let second = unix_seconds();
        let printed = self.printed.load();
        if printed.second == second {
            return printed.value.clone();
        }
        let fresh = print(second);
        let value = fresh.value.clone();
        self.printed.store(Arc::new(fresh));
        value
    }
}

fn print(second: u64) -> Printed {
    // The signature covers the date in lower case, so it is also sent in lower case.
    let text = perihelion_wire::date::format(second).to_ascii_lowercase();
    Printed { second, value: HeaderValue::from_str(&text).expect("a date is ASCII") }
}

/// Seconds since 1970 by the wall clock.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}
