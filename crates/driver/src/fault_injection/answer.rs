//! An answer that a fault rule injects.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use perihelion_wire::headers;
use perihelion_wire::transport::Response;

use super::rule::When;

/// An answer that is injected instead of the service's own.
#[derive(Debug, Clone)]
pub struct InjectedAnswer {
    pub(super) status: u16,
    pub(super) sub_status: Option<u32>,
    pub(super) retry_after: Option<Duration>,
    pub(super) headers: HeaderMap,
    /// `None` for a text that says that the answer was injected.
    pub(super) body: Option<Bytes>,
    pub(crate) when: When,
}

impl InjectedAnswer {
    /// An answer with this status, from 200 to 599. The request does not reach the service, unless
    /// [`with_when`](InjectedAnswer::with_when) says otherwise.
    pub fn new(status: u16) -> Self {
        InjectedAnswer {
            status,
            sub_status: None,
            retry_after: None,
            headers: HeaderMap::new(),
            body: None,
            when: When::Before,
        }
    }

    /// Sets the sub-status, such as 1002 for 404/1002.
    pub fn with_sub_status(mut self, sub_status: u32) -> Self {
        self.sub_status = Some(sub_status);
        self
    }

    /// Sets how long the service asks to wait before the next attempt.
    pub fn with_retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Adds a header, or replaces the header of this name.
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Sets the body.
    pub fn with_body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// Sets whether the service acts on the request before its answer is replaced (default:
    /// it does not).
    pub fn with_when(mut self, when: When) -> Self {
        self.when = when;
        self
    }

    pub(crate) fn response(&self) -> Response {
        let body = self.body.clone().unwrap_or_else(|| {
            let text = "This answer was injected by a fault rule.";
            Bytes::from(format!(r#"{{"code":"{}","message":"{text}"}}"#, self.status))
        });
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(self.status).expect("checked when the rule was added");
        let map = response.headers_mut();
        map.insert(headers::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(sub_status) = self.sub_status {
            map.insert(headers::SUBSTATUS, HeaderValue::from(sub_status));
        }
        if let Some(wait) = self.retry_after {
            let milliseconds = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            map.insert(headers::RETRY_AFTER_MS, HeaderValue::from(milliseconds));
        }
        for (name, value) in &self.headers {
            map.insert(name.clone(), value.clone());
        }
        response
    }
}
