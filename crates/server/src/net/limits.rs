//! `Limits`: the bounds of a listener, as one plain struct.
//!
//! Each default is a named constant with its reason. A bound that no user needs to change
//! is only a constant. A test of one bound makes one field small.

use std::time::Duration;

/// Twice the 2 MiB that the service allows for a document or a batch. So most bodies that
/// are too large reach the routes, which refuse them after authentication, like the
/// service.
const BODY_BYTES: usize = 4 * 1024 * 1024;

/// Bodies of all requests and responses together: the limit per request alone would allow 16 GiB
/// with one request on each of 4096 connections. With this bound, a server and its caches fit
/// into 512 MiB, unless thousands of connections fill their buffers (see [`CONNECTIONS`]).
const BODY_BYTES_TOTAL: usize = 256 * 1024 * 1024;

/// How long a client may take to receive a response, besides the time that its bytes take at
/// [`RESPONSE_BYTES_PER_SECOND`].
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// The lowest rate at which a client may receive a response: about half of the rate at which a
/// client has to send a body (see [`BODY_TIMEOUT`]).
const RESPONSE_BYTES_PER_SECOND: usize = 64 * 1024;

/// The response timeout while more than half of [`Limits::body_bytes_total`] is used.
pub(super) const RESPONSE_TIMEOUT_UNDER_PRESSURE: Duration = Duration::from_secs(2);

/// The factor by which the lowest rate of a response grows while more than half of
/// [`Limits::body_bytes_total`] is used.
pub(super) const RATE_FACTOR_UNDER_PRESSURE: usize = 16;

/// Responses of one connection that its client has not taken yet: four of the largest pages. With
/// more, the next request of the connection waits.
const RESPONSE_BYTES_PER_CONNECTION: usize = 16 * 1024 * 1024;

/// The most bytes of the responses of one connection that the kernel buffers. By default it
/// buffers several megabytes for a client that does not read.
pub(super) const SEND_BUFFER_BYTES: u32 = 512 * 1024;

/// Session tokens and continuations are sent in headers. The service allows tens of
/// kilobytes of headers.
const HEADER_BYTES: usize = 64 * 1024;

/// SDKs send about 25 header fields. 100 is hyper's own limit for HTTP/1.1: a higher
/// limit would cost an allocation per request.
const HEADERS: usize = 100;

/// An id has at most 1023 bytes, a path holds up to three ids, and percent-encoding makes
/// an id three times as long. That makes 9 KiB, and there is room for the query.
const URI_BYTES: usize = 16 * 1024;

/// The most bytes that hyper buffers for one HTTP/1.1 connection in one direction: a whole header
/// block, and enough body for few system calls.
pub(super) const BUFFER_BYTES: usize = 128 * 1024;

/// How long a client may stay silent after connecting. Pools and browsers
/// connect before they need a connection, so this is not as short as the header timeout.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A handshake is two round trips and a signature.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// A header block fits in a few packets. A client that needs longer is an attacker
/// or has a broken connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// A bad mobile link carries 4 MiB in 30 s. A client that needs longer is an
/// attacker or has a broken connection.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Longer than the pools of the official SDKs keep an idle connection. So the client
/// closes first, and no request is sent on a closing connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// How long an idle connection stays open after it was told to drain. Its last responses may
/// still be on their way: they are written, but the client has not received them yet.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// How much of a rejected HTTP/1.1 request is still read and thrown away. Many clients
/// write the whole request before they read the response. If the connection were closed
/// with unread bytes, the kernel would send a reset, and the reset would overtake the
/// response.
pub(super) const LINGER_BYTES: usize = 16 * 1024 * 1024;

/// How long the rest of a rejected request is read. A client that reads at all
/// has read the response by then.
pub(super) const LINGER_TIMEOUT: Duration = Duration::from_secs(5);

/// Open connections: more than any local use needs, and few enough that the
/// buffers of HTTP/1.1 connections take at most 1 GiB. Further clients wait in the
/// kernel's queue.
const CONNECTIONS: usize = 4096;

/// Concurrent streams of an HTTP/2 connection: the number that most servers announce. The
/// service takes about 20 (`docs/cosmos.md`).
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
    /// Most body bytes of all requests and responses together, over all listeners of a server.
    pub body_bytes_total: usize,
    /// Longest time in which a client has to receive a response, besides the time that its bytes
    /// take at `response_bytes_per_second`. While more than half of `body_bytes_total` is used,
    /// it is at most 2 s.
    pub response_timeout: Duration,
    /// The least rate at which a client has to take a response. While more than half of
    /// `body_bytes_total` is used, it is 16 times as high.
    pub response_bytes_per_second: usize,
    /// Most bytes of responses that the client of one connection has not taken yet. With more, its
    /// next request waits.
    pub response_bytes_per_connection: usize,
    /// Longest header block, request line included.
    pub header_bytes: usize,
    /// Most header fields of a request. On HTTP/1.1 hyper allows no more than 100.
    pub headers: usize,
    /// Longest path with its query.
    pub uri_bytes: usize,
    /// Longest time from connecting to the first request. If an HTTP/1.1 header block
    /// has begun in this time, `header_timeout` applies to the rest of it.
    pub first_request_timeout: Duration,
    /// Longest time for a TLS handshake.
    pub handshake_timeout: Duration,
    /// Longest time from the first byte of an HTTP/1.1 header block to its last.
    pub header_timeout: Duration,
    /// Longest time for a whole body of a request.
    pub body_timeout: Duration,
    /// Longest time without a request on a connection that has served a request.
    pub idle_timeout: Duration,
    /// Longest time from telling an idle connection to drain until it is closed. In this
    /// time the client can receive the last responses.
    pub close_timeout: Duration,
    /// Most open connections; further clients wait.
    pub connections: usize,
    /// Most concurrent requests on one HTTP/2 connection.
    pub streams: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            body_bytes: BODY_BYTES,
            body_bytes_total: BODY_BYTES_TOTAL,
            response_timeout: RESPONSE_TIMEOUT,
            response_bytes_per_second: RESPONSE_BYTES_PER_SECOND,
            response_bytes_per_connection: RESPONSE_BYTES_PER_CONNECTION,
            header_bytes: HEADER_BYTES,
            headers: HEADERS,
            uri_bytes: URI_BYTES,
            first_request_timeout: FIRST_REQUEST_TIMEOUT,
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
