//! The bounds of the transport, each with its reason.

use std::time::Duration;

/// The longest body of an answer. The service's pages are at most 4 MB and its
/// documents 2 MB; a peer that sends more than this is not the service.
pub(super) const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The longest headers of an answer. They contain continuation and session tokens,
/// which are tens of kilobytes long in containers with many ranges.
pub(super) const HEADER_BYTES_MAX: u32 = 128 * 1024;

/// The flow-control window of a stream: a whole page of 4 MB.
pub(super) const STREAM_WINDOW_BYTES: u32 = 4 * 1024 * 1024;

/// The flow-control window of a connection: several pages at the same time.
pub(super) const CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;

/// The most streams before the peer has said how many it allows. The service allows 20,
/// and a refused stream costs a round trip.
pub(super) const STREAMS_AT_FIRST: usize = 20;

/// The number of reset streams that are remembered, so that their late frames are
/// ignored. A late frame of a stream that is no longer remembered is answered with a
/// reset, which does no harm.
pub(super) const RESETS_REMEMBERED_MAX: usize = 4096;

/// How long a reset stream is remembered: longer than a server usually takes to answer, so
/// that most late answers are ignored.
pub(super) const RESETS_REMEMBERED_FOR: Duration = Duration::from_secs(30);

/// A new HTTP/2 connection is opened when the streams in use are more than this part of all
/// streams, so that it is open before it is needed.
pub(super) const FILL_BEFORE_GROWTH: (usize, usize) = (3, 4);

/// The most connections to one endpoint that are being opened at a time. A burst of requests
/// gets its connections within a few round trips, and the server is not flooded.
pub(super) const OPENINGS_AT_ONCE_MAX: usize = 8;

/// After a connection could not be opened, or ended before it answered a request, a pool does not
/// grow for this time, unless it has no connection.
pub(super) const GROWTH_PAUSE: Duration = Duration::from_secs(1);

/// How many times a request chooses a stream and tries to reserve it. A try fails when another
/// thread has taken the stream first. After the last try, the request waits in the queue.
pub(super) const RESERVE_TRIES_MAX: usize = 16;

/// A request that ran into its deadline, or that its caller gave up, counts as a failure of its
/// connection only if it had at least this much time.
pub(super) const FAILURE_COUNTED_AFTER: Duration = Duration::from_millis(500);

/// How many times a read whose connection ended is sent again on another connection. If that
/// connection ends as well, the caller decides.
pub(super) const READ_RESENDS_MAX: u32 = 1;

/// The number of connections that are tried for one request. The first connection may be
/// closing, and the second connection is new. While a server restarts, a new connection
/// may close at once, so a third connection is tried before the request fails.
pub(super) const CONNECTIONS_TRIED_MAX: u32 = 3;

/// The most endpoints that a transport has connections to. An account has one endpoint per
/// region, and the service has fewer than a hundred regions. The accounts of a driver runtime
/// share the transport, so the limit is for the regions of all these accounts together.
/// When it is reached, the endpoint that was unused for the longest time is forgotten.
pub(super) const ENDPOINTS_MAX: usize = 256;

/// An endpoint may be forgotten when no request has used it for this long. An endpoint without
/// connections and requests may be forgotten at once. A forgotten endpoint probably belongs to an
/// account whose drivers were dropped. If it is used again, new connections are opened.
pub(super) const ENDPOINT_UNUSED_MIN: Duration = Duration::from_secs(60);

/// The most addresses that are tried for one host name. With [`ADDRESS_STAGGER`], all of them are
/// tried within two seconds.
pub(super) const ADDRESSES_MAX: usize = 8;

/// How long an address is tried before the next one is tried too (RFC 8305).
pub(super) const ADDRESS_STAGGER: Duration = Duration::from_millis(250);

/// When the kernel begins to check an idle connection. HTTP/1.1 has no pings, and
/// routers commonly drop connections that were idle for four minutes.
pub(super) const TCP_KEEPALIVE_AFTER: Duration = Duration::from_secs(30);

/// The time between two checks by the kernel.
pub(super) const TCP_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// The longest time that an option may set: a year. Longer times are cut to it, so that adding them
/// to an `Instant` does not overflow.
pub(super) const TIME_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// The shortest pause between a pong and the next ping, so that a short `ping_interval` does not
/// flood the peer.
pub(super) const PING_PAUSE_MIN: Duration = Duration::from_millis(50);
