//! The bounds of the transport, each with its reason.

use std::time::Duration;

/// The service's pages are at most 4 MB and its documents 2 MB; a peer that
/// sends more than this is not the service.
pub(super) const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Continuations and session tokens travel in headers, tens of kilobytes of
/// them on accounts with many ranges.
pub(super) const HEADER_BYTES_MAX: u32 = 128 * 1024;

/// A stream may receive a whole page, 4 MB, before we have to say a word.
pub(super) const STREAM_WINDOW: u32 = 4 * 1024 * 1024;

/// Several pages at once, for the same reason.
pub(super) const CONNECTION_WINDOW: u32 = 16 * 1024 * 1024;

/// Streams before the peer has said how many it allows: the service allows 20,
/// and what it refuses costs a round trip.
pub(super) const STREAMS_AT_FIRST: usize = 20;

/// Streams on one connection, however many the peer allows: beyond this one
/// connection's loop is the bottleneck, and waiting here is known not to have
/// been sent, which waiting inside HTTP/2 is not.
pub(super) const STREAMS_MAX: usize = 1000;

/// Streams that we reset and whose late frames are to be ignored in silence. A
/// frame for a stream that is forgotten is answered instead, which is harmless.
pub(super) const RESETS_REMEMBERED_MAX: usize = 4096;

/// Longer than anyone waits for an answer, so that no late one is a surprise.
pub(super) const RESETS_REMEMBERED_FOR: Duration = Duration::from_secs(30);

/// Connections that a request asks to take it: one that turns out to be closing
/// costs a turn, and the next is fresh. The third is for a fresh one that closes
/// at once, as during a restart; then it is the caller's turn.
pub(super) const TURNS_MAX: u32 = 3;

/// Endpoints with a connection: an account has one per region, and there are
/// about 60 regions.
pub(super) const ENDPOINTS_MAX: usize = 256;

/// Addresses tried for one name.
pub(super) const ADDRESSES_MAX: usize = 8;

/// How long an address is tried alone before the next one joins in (RFC 8305).
pub(super) const ADDRESS_STAGGER: Duration = Duration::from_millis(250);

/// Idle HTTP/1.1 connections have no pings: the kernel asks whether the peer
/// is still there, before the usual four minutes after which routers forget.
pub(super) const TCP_KEEPALIVE_AFTER: Duration = Duration::from_secs(30);

/// Between the kernel's questions.
pub(super) const TCP_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
