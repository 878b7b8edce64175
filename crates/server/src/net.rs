//! The HTTP listener: one port serves HTTP/1.1 and HTTP/2, each with and without
//! TLS. This module knows nothing about Cosmos DB.
//!
//! The first bytes that a client sends show the protocol (`sniff`). The layer above
//! implements [`Handler`]: it takes a whole request and returns a whole response.
//! There is no streaming, so a handler does no I/O on the connection.
//!
//! What always holds: a connection takes bounded memory and waits a bounded time for
//! its peer, whatever the peer sends or does not send (`limits` has every bound). No
//! input causes a panic, and an error of one connection never affects another connection.

mod body;
mod buffered_body;
mod connection;
mod connection_state;
mod limits;
mod listener;
mod serve;
mod sniff;
mod supervisor;
mod tracked_stream;

#[cfg(test)]
mod tests;

pub use limits::Limits;
pub(crate) use listener::{Listener, bind};

use std::future::Future;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response};

/// The client end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) scheme: Scheme,
    pub(crate) remote: SocketAddr,
}

/// Whether a connection uses TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

impl Scheme {
    /// The scheme as it is written in a URL.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }
}

/// Turns requests into responses: implemented by the layer above.
pub(crate) trait Handler: Send + Sync + 'static {
    /// Answers one request. Its body has been read and is within the limit.
    ///
    /// The future is dropped at one of its awaits when the client goes away or
    /// the grace period of a drain ends. Work that must not be left half done has
    /// to be handed to a task or a queue of its own before the first await.
    fn handle(
        &self,
        request: Request<Bytes>,
        peer: Peer,
    ) -> impl Future<Output = Result<Response<Bytes>, Hangup>> + Send;

    /// A connection was accepted.
    fn connection_opened(&self) {}

    /// A connection has ended.
    fn connection_closed(&self) {}

    /// The response to a request that never reaches [`Handler::handle`].
    fn reject(&self, rejection: Rejection) -> Response<Bytes>;

    /// The response to a request whose head alone shows that it is refused; `None` if the body has
    /// to be read. So a client without access cannot fill the memory with bodies. The method is
    /// called before a large body is read, and before the second piece of a small body is read.
    fn refuse_head(&self, _head: &http::request::Parts, _peer: Peer) -> Option<Response<Bytes>> {
        None
    }
}

/// Asks for the connection (HTTP/1.1) or the stream (HTTP/2) to be dropped
/// without a response. Fault injection and outages use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hangup {
    /// The request was not carried out.
    Unserved,
    /// The request was carried out; only its response is lost.
    Served,
}

impl std::fmt::Display for Hangup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the request was dropped without a response")
    }
}

impl std::error::Error for Hangup {}

/// Why a request was not handed to the layer above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// The body is longer than `limit` bytes: 413.
    BodyTooLarge { limit: usize },
    /// The body did not arrive in time: 408.
    BodyTimeout,
    /// The request target is longer than `limit` bytes: 414.
    UriTooLong { limit: usize },
    /// More header fields than `limit`: 431.
    TooManyHeaders { limit: usize },
    /// With this body, the server would hold more bytes than its memory budget allows: 503.
    /// The client may try again.
    Overloaded,
}

impl Rejection {
    /// The status of the response.
    pub(crate) fn status(self) -> http::StatusCode {
        match self {
            Rejection::BodyTooLarge { .. } => http::StatusCode::PAYLOAD_TOO_LARGE,
            Rejection::BodyTimeout => http::StatusCode::REQUEST_TIMEOUT,
            Rejection::UriTooLong { .. } => http::StatusCode::URI_TOO_LONG,
            Rejection::TooManyHeaders { .. } => http::StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Rejection::Overloaded => http::StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}
