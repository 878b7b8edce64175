//! `Limits`: the bounds of a listener, as one plain struct.
//!
//! Each default is a named constant with its reason. Bounds that nobody needs to change
//! are constants only. Tests make single fields small to test one bound.

use std::time::Duration;

/// Twice the 2 MiB that the service allows for a document or a batch, so that most
/// bodies that are too large are refused by the routes, after authentication, as in
/// the service.
const BODY_BYTES: usize = 4 * 1024 * 1024;

/// Bodies of all requests together: the limit per request alone would allow 16 GiB
/// with one request on each of 4096 connections.
const BODY_BYTES_TOTAL: usize = 512 * 1024 * 1024;

/// Session tokens and continuations travel in headers; the service allows
/// tens of kilobytes of them.
const HEADER_BYTES: usize = 64 * 1024;

/// SDKs send about 25 header fields. 100 is hyper's own limit for HTTP/1.1: a higher
/// one would cost an allocation per request.
const HEADERS: usize = 100;

/// An id has at most 1023 bytes, a path holds up to three of them, and
/// percent-encoding makes them three times as long: 9 KiB, and room for the query.
const URI_BYTES: usize = 16 * 1024;

/// What hyper may buffer for one HTTP/1.1 connection in one direction: a
/// whole header block, and enough body for few system calls.
pub(super) const BUFFER_BYTES: usize = 128 * 1024;

/// How long a client may stay silent after connecting. Pools and browsers
/// connect ahead of need, so this is not as short as the header timeout.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(30);

/// A handshake is two round trips and a signature.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// A header block fits in a few packets. A client that needs longer is an attack
/// or has a dead link.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// A bad mobile link carries 4 MiB in 30 s. A client that needs longer is an
/// attack or has a dead link.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Longer than the pools of the official SDKs keep an idle connection, so that
/// the client closes first and no request is sent on a closing connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a connection that was told to drain may take to deliver responses that
/// are already written.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// How much of a rejected HTTP/1.1 request is still read and thrown away.
/// Closing with unread bytes makes the kernel send a reset, which overtakes the
/// response, and many clients write the whole request before they read.
pub(super) const LINGER_BYTES: usize = 16 * 1024 * 1024;

/// How long the rest of a rejected request is read. A client that reads at all
/// has read the response by then.
pub(super) const LINGER_TIMEOUT: Duration = Duration::from_secs(5);

/// Open connections: more than any local use needs, and few enough that the
/// buffers of HTTP/1.1 connections take at most 1 GiB. Further clients wait in the
/// kernel's queue.
const CONNECTIONS: usize = 4096;

/// Concurrent streams of an HTTP/2 connection: the number that the service and
/// most servers announce.
const STREAMS: u32 = 100;

/// Streams that the peer may reset before they are accepted (rapid reset). With
/// more resets the connection is closed. This is h2's own default.
pub(super) const STREAMS_RESET_PENDING: usize = 20;

/// Streams that may be reset because of the peer's errors over the life of a
/// connection. With more resets the connection is closed.
pub(super) const STREAMS_RESET_BY_ERROR: usize = 256;

/// Flow-control window of a stream and of a connection: a 1 MiB batch body
/// arrives without a round trip for credit.
pub(super) const WINDOW_BYTES: u32 = 1024 * 1024;

/// The bounds of one listener.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Longest body of a request.
    pub body_bytes: usize,
    /// Most body bytes of all requests together.
    pub body_bytes_total: usize,
    /// Longest header block, request line included.
    pub header_bytes: usize,
    /// Most header fields of a request. HTTP/1.1 takes no more than 100.
    pub headers: usize,
    /// Longest path with its query.
    pub uri_bytes: usize,
    /// Longest time from connecting to the first request. An HTTP/1.1 header block
    /// that has begun in this time then has `header_timeout`.
    pub first_byte_timeout: Duration,
    /// Longest time for a TLS handshake.
    pub handshake_timeout: Duration,
    /// Longest time from the first byte of an HTTP/1.1 header block to its last.
    pub header_timeout: Duration,
    /// Longest time for a whole body of a request.
    pub body_timeout: Duration,
    /// Longest time without a request on a connection that has served one.
    pub idle_timeout: Duration,
    /// Longest time for a connection that was drained because it was idle to deliver its
    /// last responses and close.
    pub close_timeout: Duration,
    /// Most open connections; further ones wait.
    pub connections: usize,
    /// Most concurrent requests on one HTTP/2 connection.
    pub streams: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            body_bytes: BODY_BYTES,
            body_bytes_total: BODY_BYTES_TOTAL,
            header_bytes: HEADER_BYTES,
            headers: HEADERS,
            uri_bytes: URI_BYTES,
            first_byte_timeout: FIRST_BYTE_TIMEOUT,
            handshake_timeout: HANDSHAKE_TIMEOUT,
            header_timeout: HEADER_TIMEOUT,
            body_timeout: BODY_TIMEOUT,
            idle_timeout: IDLE_TIMEOUT,
            close_timeout: CLOSE_TIMEOUT,
            connections: CONNECTIONS,
            streams: STREAMS,
        }
    }
}
