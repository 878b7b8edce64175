//! `RequestKind`: what faults and checks need to know about a request, read from its headers.

use http::Method;
use http::header::{CONTENT_TYPE, IF_MATCH};
use perihelion_wire::headers;
use perihelion_wire::transport::Request;

/// The path of distributed transactions.
pub const TRANSACTION_PATH: &str = "/operations/dtc";

/// The kind of a request, from its headers.
#[derive(Debug, Clone, Copy, Default)]
pub struct RequestKind {
    /// The request is a query or asks for a query plan.
    pub is_query: bool,
    /// A create that replaces the document if it exists.
    pub is_upsert: bool,
    /// The request has the header `If-Match`. The operations of a batch have their conditions in the
    /// body.
    pub has_if_match: bool,
}

impl RequestKind {
    /// The kind of this request.
    pub fn of(request: &Request) -> Self {
        let is_true = |name: &http::HeaderName| {
            request.headers.get(name).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true"))
        };
        let content_type = request.headers.get(CONTENT_TYPE).map(|value| value.as_bytes());
        RequestKind {
            is_query: content_type == Some(b"application/query+json") || is_true(&headers::IS_QUERY),
            is_upsert: is_true(&headers::IS_UPSERT),
            has_if_match: request.headers.contains_key(IF_MATCH),
        }
    }

    /// Whether a request of this kind, with this method, writes.
    pub fn is_write(self, method: &Method) -> bool {
        *method != Method::GET && !self.is_query
    }
}
