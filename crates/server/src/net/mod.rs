//! The front of the server: one listening port, four dialects.
//!
//! HTTP/1.1 and HTTP/2, each in clear and over TLS, share one port and are
//! told apart by the first bytes a client sends (`sniff`). Everything above
//! sees one thing only: a whole request with its body in, a whole response out
//! ([`Handler`]). That costs streaming, which the service does not have either
//! (2 MB documents, 4 MB pages), and buys a handler without I/O in it.
//!
//! What always holds: a connection costs bounded memory and bounded time
//! whatever its peer sends or fails to send ([`Limits`] names every bound), no
//! input makes it panic, and one connection's trouble never reaches another.

mod body;
mod connection;
mod front;
mod limits;
mod serve;
mod sniff;
mod watch;
mod watched;
mod whole;

#[cfg(test)]
mod tests;

pub use front::{Front, listen};
pub use limits::Limits;

use std::future::Future;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response};

/// What a request came over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    pub scheme: Scheme,
    pub remote: SocketAddr,
}

/// In clear or over TLS: the account document echoes it to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    Http,
    Https,
}

impl Scheme {
    /// The scheme as it is written in a URL.
    pub fn as_str(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }
}

/// The layer above: turns requests into responses.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request, its body already read and within the limit.
    ///
    /// The future is dropped at any of its waits when the client goes away or
    /// a drain runs out of grace: what must not be left half done has to be
    /// handed to a task or a queue of its own before the first wait.
    fn handle(
        &self,
        request: Request<Bytes>,
        peer: Peer,
    ) -> impl Future<Output = Result<Response<Bytes>, Hangup>> + Send;

    /// Answers for a request that never reaches [`Handler::handle`].
    fn refuse(&self, refusal: Refusal) -> Response<Bytes>;
}

/// Asks for the connection (HTTP/1.1) or the stream (HTTP/2) to be dropped
/// without an answer: fault injection needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hangup {
    /// Nothing was done.
    Unserved,
    /// The request was carried out; only its answer is lost.
    Served,
}

impl std::fmt::Display for Hangup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the request was dropped without an answer")
    }
}

impl std::error::Error for Hangup {}

/// Why a request was not handed to the layer above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The body is longer than `limit` bytes: 413.
    BodyTooLarge { limit: usize },
    /// The body did not arrive in time: 408.
    BodyTimeout,
    /// The request target is longer than `limit` bytes: 414.
    UriTooLong { limit: usize },
    /// More header fields than `limit`: 431.
    TooManyHeaders { limit: usize },
    /// All requests together already hold as many body bytes as the server
    /// keeps in memory: 503, and worth trying again.
    Overloaded,
}

impl Refusal {
    /// The status this refusal is answered with.
    pub fn status(self) -> http::StatusCode {
        match self {
            Refusal::BodyTooLarge { .. } => http::StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::BodyTimeout => http::StatusCode::REQUEST_TIMEOUT,
            Refusal::UriTooLong { .. } => http::StatusCode::URI_TOO_LONG,
            Refusal::TooManyHeaders { .. } => http::StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Refusal::Overloaded => http::StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}
