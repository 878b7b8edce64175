//! Headers that callers choose: the priority of a request, and headers of the caller's own.
//!
//! A header that the driver, the client or the transport sets is refused. Otherwise the caller could
//! change what a request means, and the driver would judge the answer as if it had sent the request
//! that it built.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue, header};
use perihelion_wire::headers;

use crate::error::Error;

/// The most headers of one list. The service limits all headers of a request together, and a
/// caller needs only a few.
const HEADERS_MAX: usize = 32;

/// The priority of requests in a container with priority-based execution. When the
/// container has no throughput left, the service throttles requests of low priority first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Throttled last. The service's default.
    High,
    /// Throttled first.
    Low,
}

impl Priority {
    pub(crate) fn header(self) -> HeaderValue {
        match self {
            Priority::High => HeaderValue::from_static("High"),
            Priority::Low => HeaderValue::from_static("Low"),
        }
    }
}

/// Headers that the caller adds to requests. `Debug` shows the names and not the values, which
/// may be secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CustomHeaders {
    /// Each name once.
    entries: Vec<(HeaderName, HeaderValue)>,
}

impl CustomHeaders {
    /// Whether there are no headers.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The names of the headers.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|(name, _)| name.as_str())
    }

    /// Adds a header, or replaces the value that it has. A header that the driver sets itself
    /// is refused.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
        let parsed: HeaderName = name.parse().map_err(|_| {
            Error::input(format!("{name:?} is not the name of a header: write one such as x-team"))
        })?;
        if let Some(advice) = refusal(&parsed) {
            return Err(Error::input(format!("the header {parsed} cannot be set: {advice}")));
        }
        // The value may be a secret, so the error does not show it.
        let mut value = HeaderValue::from_str(value).map_err(|_| {
            Error::input(format!("the value of the header {parsed} has characters that a header cannot have"))
        })?;
        // `Debug` does not show a sensitive value, and HTTP/2 does not store it in its table.
        value.set_sensitive(true);
        self.insert(parsed, value);
        match self.entries.len() > HEADERS_MAX {
            true => Err(Error::input(format!("there are more than {HEADERS_MAX} headers: set fewer"))),
            false => Ok(()),
        }
    }

    /// These headers, and those of `other` whose names are not among them.
    pub(super) fn or(mut self, other: &CustomHeaders) -> Self {
        for (name, value) in &other.entries {
            if self.entries.iter().all(|(own, _)| own != name) {
                self.entries.push((name.clone(), value.clone()));
            }
        }
        self
    }

    pub(crate) fn insert_into(&self, map: &mut HeaderMap) {
        for (name, value) in &self.entries {
            map.insert(name.clone(), value.clone());
        }
    }

    fn insert(&mut self, name: HeaderName, value: HeaderValue) {
        match self.entries.iter_mut().find(|(own, _)| *own == name) {
            Some((_, own)) => *own = value,
            None => self.entries.push((name, value)),
        }
    }
}

impl fmt::Debug for CustomHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

/// Headers with an option of their own, and how to set it.
static WITH_OPTION: [(HeaderName, &str); 10] = [
    (headers::PRIORITY_LEVEL, "use OperationOptions::with_priority"),
    (headers::THROUGHPUT_BUCKET, "use OperationOptions::with_throughput_bucket"),
    (headers::DEDICATED_GATEWAY_MAX_AGE, "use OperationOptions::with_dedicated_gateway_staleness_max"),
    (headers::DEDICATED_GATEWAY_BYPASS_CACHE, "use OperationOptions::with_dedicated_gateway_bypass"),
    (headers::SESSION_TOKEN, "use OperationOptions::with_session_token"),
    (headers::CONSISTENCY_LEVEL, "use OperationOptions::with_read_consistency"),
    (headers::READ_CONSISTENCY_STRATEGY, "use OperationOptions::with_read_consistency"),
    (headers::PREFER, "use OperationOptions::with_content_on_write"),
    (headers::EXCLUDED_LOCATIONS, "use OperationOptions::with_excluded_regions"),
    (headers::USER_AGENT, "use DriverOptions::with_user_agent"),
];

/// Headers that decide what the request means, or how the driver reads the answer. They belong
/// to the driver, to the client and to the transport.
static SET_BY_DRIVER: [HeaderName; 58] = [
    headers::AUTHORIZATION,
    headers::MS_DATE,
    headers::DATE,
    headers::VERSION,
    headers::ACCEPT,
    headers::ACCEPT_ENCODING,
    headers::CONTENT_TYPE,
    headers::CONTENT_LENGTH,
    headers::CONTENT_ENCODING,
    headers::HTTP_METHOD_OVERRIDE,
    headers::ACTIVITY_ID,
    headers::IF_MATCH,
    headers::IF_NONE_MATCH,
    headers::IF_MODIFIED_SINCE,
    headers::A_IM,
    headers::PARTITION_KEY,
    headers::PARTITION_KEY_RANGE_ID,
    headers::READ_KEY_TYPE,
    headers::START_EPK,
    headers::END_EPK,
    headers::START_ID,
    headers::END_ID,
    headers::IS_UPSERT,
    headers::INTENDED_COLLECTION_RID,
    headers::ALLOW_TENTATIVE_WRITES,
    headers::SUPPORTED_SERIALIZATION_FORMATS,
    headers::CONTENT_SERIALIZATION_FORMAT,
    headers::USE_THIN_CLIENT,
    headers::SDK_SUPPORTED_CAPABILITIES,
    headers::NO_RETRY_ON_449,
    headers::HUB_REGION_PROCESSING_ONLY,
    headers::OFFER_THROUGHPUT,
    headers::OFFER_AUTOPILOT_SETTINGS,
    headers::MIGRATE_OFFER_TO_AUTOPILOT,
    headers::MIGRATE_OFFER_TO_MANUAL,
    headers::MAX_ITEM_COUNT,
    headers::CONTINUATION,
    headers::IS_QUERY,
    headers::IS_QUERY_GO,
    headers::QUERY_VERSION,
    headers::ENABLE_CROSS_PARTITION,
    headers::IS_QUERY_PLAN_REQUEST,
    headers::SUPPORTED_QUERY_FEATURES,
    headers::CHANGE_FEED_WIRE_FORMAT_VERSION,
    headers::CHANGE_FEED_START_FULL_FIDELITY,
    headers::IS_BATCH_REQUEST,
    headers::BATCH_ATOMIC,
    headers::BATCH_ORDERED,
    headers::BATCH_CONTINUE_ON_ERROR,
    headers::IDEMPOTENCY_TOKEN,
    headers::HOST,
    header::CONNECTION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::EXPECT,
    header::PROXY_AUTHORIZATION,
];

/// Why a header cannot be set; `None` for a header that the caller may set.
fn refusal(name: &HeaderName) -> Option<&'static str> {
    let with_option = WITH_OPTION.iter().find(|(other, _)| other == name);
    let is_connection = matches!(name.as_str(), "keep-alive" | "proxy-connection");
    match with_option {
        Some((_, advice)) => Some(advice),
        None if is_connection => Some("it is about one HTTP/1.1 connection, and HTTP/2 forbids it"),
        None if SET_BY_DRIVER.contains(name) => Some("the driver sets it itself"),
        None => None,
    }
}

#[cfg(test)]
mod tests;
