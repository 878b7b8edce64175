//! Responses and failures that a fault-injecting transport returns instead of
//! the server's.

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use perihelion_wire::headers;
use perihelion_wire::transport::{Failure, FailureKind, Response, Sent};

/// A response with this status and sub-status and, if given, a pause to make
/// before the next attempt.
pub fn refusal(status: u16, sub_status: u32, retry_after_ms: Option<u64>) -> Response {
    let body = format!(r#"{{"code":"{status}","message":"Injected by a test."}}"#);
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = StatusCode::from_u16(status).expect("a status code");
    response.headers_mut().insert(headers::SUBSTATUS, HeaderValue::from(sub_status));
    if let Some(pause) = retry_after_ms {
        response.headers_mut().insert(headers::RETRY_AFTER_MS, HeaderValue::from(pause));
    }
    response
}

/// The failure of a request that was not sent, because no connection was made.
pub fn unreachable() -> Failure {
    Failure::new(FailureKind::Connect, Sent::No, "injected: no connection")
}

/// The failure of a request whose connection closed before the server saw the request. The sender
/// cannot know that.
pub fn request_lost() -> Failure {
    Failure::new(FailureKind::Closed, Sent::Unknown, "injected: closed before the request was served")
}

/// The failure of a request that the server served, and whose connection closed before the
/// response.
pub fn response_lost() -> Failure {
    Failure::new(FailureKind::Closed, Sent::Yes, "injected: closed before the response")
}

/// The failure of a request that was sent, and had no response by its deadline.
pub fn timed_out() -> Failure {
    Failure::new(FailureKind::Timeout, Sent::Yes, "no response by the deadline")
}
