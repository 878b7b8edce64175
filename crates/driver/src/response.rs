//! The answer that an operation ends with when it does not fail: status, headers, body,
//! diagnostics.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use perihelion_wire::headers;
use perihelion_wire::status::Status;

use crate::diagnostics::Diagnostics;
use crate::region::Region;

/// The service's answer to an operation: 2xx, or 304 when a resource or a feed has not
/// changed. 207 is the answer to a batch that was refused; its body says why.
///
/// If the answer to a write was lost, [`Diagnostics::resolution`] says how the driver
/// found out that the write was applied. With
/// [`Resolution::Witnessed`](crate::diagnostics::Resolution::Witnessed), this is the
/// answer to the read of the witness. With
/// [`Resolution::AlreadyGone`](crate::diagnostics::Resolution::AlreadyGone), the service
/// answered 404; here the status is 204 and the body is empty.
#[derive(Debug, Clone)]
pub struct Response {
    /// The status.
    pub status: Status,
    /// All headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// Attempts, regions, timings, charges.
    pub diagnostics: Diagnostics,
}

impl Response {
    /// A header as text; `None` when absent or not ASCII.
    pub fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The request units of this answer alone; 0 when the answer does not state them.
    /// [`Diagnostics::charge`] sums all attempts.
    pub fn charge(&self) -> f64 {
        charge(&self.headers).unwrap_or(0.0)
    }

    /// The resource's etag.
    pub fn etag(&self) -> Option<&str> {
        self.header(&headers::ETAG)
    }

    /// The continuation token of the next page; `None` on the last page. An empty token counts as
    /// none: as the header of a request, it would mean the first page.
    pub fn continuation(&self) -> Option<&str> {
        self.header(&headers::CONTINUATION).filter(|token| !token.is_empty())
    }

    /// The region that answered. It is `global` for the account's own endpoint.
    pub fn region(&self) -> Option<&Region> {
        self.diagnostics.answering_region()
    }

    /// The service's id of this request, to quote in a support case.
    pub fn activity_id(&self) -> Option<&str> {
        self.header(&headers::ACTIVITY_ID)
    }

    /// The session token of this answer.
    pub fn session_token(&self) -> Option<&str> {
        self.header(&headers::SESSION_TOKEN)
    }
}

/// The charge that an answer states. A charge that is negative or not finite is ignored, because it
/// would make every sum wrong.
pub(crate) fn charge(headers: &HeaderMap) -> Option<f64> {
    let charge: f64 = headers.get(&headers::REQUEST_CHARGE)?.to_str().ok()?.parse().ok()?;
    (charge.is_finite() && charge >= 0.0).then_some(charge)
}

/// The wait that an answer asks for: `x-ms-retry-after-ms`, or else `Retry-After` in seconds,
/// which proxies and load balancers send. A `Retry-After` that is a date is ignored.
pub(crate) fn retry_after(map: &HeaderMap) -> Option<Duration> {
    let number = |name: &HeaderName| map.get(name)?.to_str().ok()?.trim().parse().ok();
    let milliseconds = number(&headers::RETRY_AFTER_MS).map(Duration::from_millis);
    milliseconds.or_else(|| number(&headers::RETRY_AFTER).map(Duration::from_secs))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[track_caller]
    fn check(milliseconds: Option<&'static str>, seconds: Option<&'static str>, expected: Option<Duration>) {
        let mut map = HeaderMap::new();
        for (name, value) in [(headers::RETRY_AFTER_MS, milliseconds), (headers::RETRY_AFTER, seconds)] {
            value.into_iter().for_each(|value| {
                map.insert(name.clone(), HeaderValue::from_static(value));
            });
        }
        assert_eq!(retry_after(&map), expected);
    }

    #[test]
    fn a_charge_that_is_negative_or_not_finite_is_ignored() {
        for (text, expected) in [
            ("2.86", Some(2.86)),
            ("0", Some(0.0)),
            ("1e308", Some(1e308)),
            ("NaN", None),
            ("inf", None),
            ("-inf", None),
            ("1e400", None),
            ("-0.5", None),
            ("", None),
        ] {
            let map = HeaderMap::from_iter([(headers::REQUEST_CHARGE, HeaderValue::from_static(text))]);
            assert_eq!(charge(&map), expected, "{text}");
        }
    }

    #[test]
    fn a_wait_in_seconds_counts_when_there_is_none_in_milliseconds() {
        check(None, None, None);
        check(Some("120"), None, Some(Duration::from_millis(120)));
        check(None, Some("2"), Some(Duration::from_secs(2)));
        check(Some("120"), Some("2"), Some(Duration::from_millis(120)));
        check(Some("soon"), Some(" 2"), Some(Duration::from_secs(2)));
        check(None, Some("Wed, 21 Oct 2026 07:28:00 GMT"), None);
        check(None, Some("-1"), None);
    }
}
