//! The bounds of the transport, each with its reason.

use std::time::Duration;

/// The service's pages are at most 4 MB and its documents 2 MB; a peer that
/// sends more than this is not the service.
pub(super) const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Continuations and session tokens travel in headers, tens of kilobytes of
/// them on accounts with many ranges.
pub(super) const HEADER_BYTES_MAX: u32 = 128 * 1024;

/// A stream may receive a whole page, 4 MB, before the window is raised.
pub(super) const STREAM_WINDOW: u32 = 4 * 1024 * 1024;

/// All streams of a connection together may receive several pages.
pub(super) const CONNECTION_WINDOW: u32 = 16 * 1024 * 1024;

/// Streams before the peer has said how many it allows. The service allows 20,
/// and a refused stream costs a round trip.
pub(super) const STREAMS_AT_FIRST: usize = 20;

/// Streams on one connection, even if the peer allows more. With more streams
/// the connection's task is the bottleneck. A request that waits here is known
/// not to be sent; one that waits inside HTTP/2 is not.
pub(super) const STREAMS_MAX: usize = 1000;

/// Streams that were reset and whose late frames are ignored. A late frame of a
/// stream that is not remembered is answered, which does no harm.
pub(super) const RESETS_REMEMBERED_MAX: usize = 4096;

/// Longer than any request waits for an answer, so that no late one is unexpected.
pub(super) const RESETS_REMEMBERED_FOR: Duration = Duration::from_secs(30);

/// Connections that one request is offered to. The first may be closing, and the
/// second is new. The third is for a new one that closes at once, as while a
/// server restarts; then the request fails.
pub(super) const CONNECTIONS_TRIED_MAX: u32 = 3;

/// Endpoints with connections. An account has one per region, and there are about
/// 60 regions.
pub(super) const ENDPOINTS_MAX: usize = 256;

/// Addresses tried for one name.
pub(super) const ADDRESSES_MAX: usize = 8;

/// How long an address is tried before the next one is tried too (RFC 8305).
pub(super) const ADDRESS_STAGGER: Duration = Duration::from_millis(250);

/// HTTP/1.1 has no pings, so the kernel checks idle connections, well before the
/// four minutes after which routers commonly drop them.
pub(super) const TCP_KEEPALIVE_AFTER: Duration = Duration::from_secs(30);

/// Between two checks by the kernel.
pub(super) const TCP_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
