//! [`Transfer`]: the connection that carried one request, and how long each phase took.
//!
//! A transfer is a part of the diagnostics of every attempt, so it must stay small: times
//! are microseconds in 32 bits. The transport makes it.

use std::fmt;
use std::time::Duration;

/// How the driver's HTTP transport has carried a request. A request that was sent again on
/// another connection has the phases of its last connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    carrier: Option<Carrier>,
    /// What the request waited for before a connection took it.
    waiting: Wait,
    waited_us: u32,
    /// [`NEVER`] when no answer began.
    first_byte_us: u32,
    body_us: u32,
    resends: u8,
}

/// The connection that took a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Carrier {
    pub(crate) protocol: Protocol,
    pub(crate) number: u32,
    pub(crate) is_new: bool,
    pub(crate) streams: u16,
}

/// The protocol of a connection, as it was negotiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// HTTP/1.1
    Http1,
    /// HTTP/2
    Http2,
}

/// What a request waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// A stream or a connection of the pool: all were in use.
    Stream,
    /// A connection to be opened.
    Connection,
}

const NEVER: u32 = u32::MAX;

impl Protocol {
    /// `HTTP/1.1` or `HTTP/2`.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Http1 => "HTTP/1.1",
            Protocol::Http2 => "HTTP/2",
        }
    }

    /// The version alone, as OpenTelemetry writes it.
    pub(crate) fn version(self) -> &'static str {
        match self {
            Protocol::Http1 => "1.1",
            Protocol::Http2 => "2",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Transfer {
    /// The protocol; `None` when no connection took the request.
    pub fn protocol(&self) -> Option<Protocol> {
        self.carrier.map(|carrier| carrier.protocol)
    }

    /// The number of the connection. The connections to one endpoint are numbered in the order
    /// in which they were opened, from one. `None` when no connection took the request.
    pub fn connection(&self) -> Option<u32> {
        self.carrier.map(|carrier| carrier.number)
    }

    /// Whether this was the first request on its connection.
    pub fn is_new_connection(&self) -> bool {
        self.carrier.is_some_and(|carrier| carrier.is_new)
    }

    /// The number of requests on the connection just after it took this request. Always 1 over
    /// HTTP/1.1, and 0 when no connection took the request.
    pub fn streams(&self) -> u16 {
        self.carrier.map_or(0, |carrier| carrier.streams)
    }

    /// How long the request waited for a stream, or for one of the pool's connections, while
    /// all were in use.
    pub fn queued(&self) -> Duration {
        self.waited(Wait::Stream)
    }

    /// How long the request waited for a connection to be opened.
    pub fn connecting(&self) -> Duration {
        self.waited(Wait::Connection)
    }

    /// The time from the moment when the connection took the request to the first byte of the
    /// answer; `None` when no answer began.
    pub fn first_byte(&self) -> Option<Duration> {
        (self.first_byte_us != NEVER).then(|| Duration::from_micros(self.first_byte_us.into()))
    }

    /// The time from the first byte of the answer to the last one. Without an answer, the time
    /// from the moment when the connection took the request to the failure of the request.
    pub fn body(&self) -> Duration {
        Duration::from_micros(self.body_us.into())
    }

    /// How often the request was sent again on another connection.
    pub fn resends(&self) -> u8 {
        self.resends
    }

    /// A transfer with these phases. Without a carrier, the request has only waited.
    pub(crate) fn new(
        carrier: Option<Carrier>,
        (waiting, waited): (Wait, Duration),
        first_byte: Option<Duration>,
        body: Duration,
    ) -> Self {
        Transfer {
            carrier,
            waiting,
            waited_us: microseconds(waited),
            first_byte_us: first_byte.map_or(NEVER, microseconds),
            body_us: microseconds(body),
            resends: 0,
        }
    }

    pub(crate) fn with_resends(self, resends: u8) -> Self {
        Transfer { resends, ..self }
    }

    /// A transfer for tests of other modules.
    #[cfg(test)]
    pub(crate) fn example() -> Self {
        let carrier = Carrier { protocol: Protocol::Http2, number: 3, is_new: true, streams: 4 };
        Transfer {
            carrier: Some(carrier),
            waiting: Wait::Connection,
            waited_us: 12_000,
            first_byte_us: 1100,
            body_us: 100,
            resends: 1,
        }
    }

    fn waited(&self, wait: Wait) -> Duration {
        if self.waiting == wait { Duration::from_micros(self.waited_us.into()) } else { Duration::ZERO }
    }
}

/// A duration in microseconds, at most about an hour. The result is always less than [`NEVER`].
fn microseconds(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(NEVER).min(NEVER - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_stays_small() {
        assert!(size_of::<Transfer>() <= 28, "{}", size_of::<Transfer>());
        assert_eq!(microseconds(Duration::MAX), NEVER - 1);
    }
}
