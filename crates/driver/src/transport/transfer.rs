//! The phases of a request that is under way ([`TransferLog`]), and its end ([`Delivered`]).

use std::time::Duration;

use perihelion_wire::transport::{Failure, Response};
use tokio::time::Instant;

use crate::diagnostics::{Carrier, Protocol, Transfer, Wait};

/// The result of a request, and how it was carried.
pub(crate) struct Delivered {
    pub(crate) result: Result<Response, Failure>,
    /// `None` when the transport does not tell.
    pub(crate) transfer: Option<Transfer>,
}

impl From<Result<Response, Failure>> for Delivered {
    fn from(result: Result<Response, Failure>) -> Self {
        Delivered { result, transfer: None }
    }
}

/// The phases of a request that is under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct TransferLog {
    carrier: Option<Carrier>,
    /// What the request waits for until a connection takes it.
    waiting: Wait,
    /// How long the request waited, without the current phase.
    waited: Duration,
    /// When the current phase began.
    phase_began_at: Instant,
    /// From the moment when a connection took the request until the head of the answer arrived.
    first_byte: Option<Duration>,
}

impl TransferLog {
    /// The log of a request that begins now.
    pub(super) fn start(now: Instant) -> Self {
        TransferLog {
            carrier: None,
            waiting: Wait::Stream,
            waited: Duration::ZERO,
            phase_began_at: now,
            first_byte: None,
        }
    }

    /// Records what the request waits for from now on.
    pub(super) fn wait_for(&mut self, waiting: Wait) {
        self.waiting = waiting;
    }

    /// Records that a connection has taken the request.
    pub(super) fn hand_over(&mut self, carrier: Carrier, now: Instant) {
        self.waited += now.duration_since(self.phase_began_at);
        if carrier.protocol == Protocol::Http1 && !carrier.is_new {
            // An idle connection was taken, and none was opened.
            self.waiting = Wait::Stream;
        }
        self.carrier = Some(carrier);
        self.phase_began_at = now;
    }

    /// Records that the connection has given the request back. The request waits for another
    /// connection.
    pub(super) fn take_back(&mut self) {
        self.carrier = None;
    }

    /// Records that the head of the answer has arrived.
    pub(super) fn answer_begins(&mut self, now: Instant) {
        self.first_byte = Some(now.duration_since(self.phase_began_at));
        self.phase_began_at = now;
    }

    /// The transfer of a request that has ended, with an answer or without one.
    pub(super) fn end(self, now: Instant) -> Transfer {
        let last_phase = now.duration_since(self.phase_began_at);
        let (waited, body) = match self.carrier {
            Some(_) => (self.waited, last_phase),
            None => (self.waited + last_phase, Duration::ZERO),
        };
        Transfer::new(self.carrier, (self.waiting, waited), self.first_byte, body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_measured_one_after_the_other() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut log = TransferLog::start(start);
        log.wait_for(Wait::Connection);
        let waiting = log.end(at(7));
        assert_eq!((waiting.connecting(), waiting.queued()), (Duration::from_millis(7), Duration::ZERO));
        assert_eq!((waiting.protocol(), waiting.first_byte()), (None, None));
        let carrier = Carrier { protocol: Protocol::Http2, number: 3, is_new: true, streams: 2 };
        log.hand_over(carrier, at(10));
        let unanswered = log.end(at(90));
        assert_eq!((unanswered.first_byte(), unanswered.body()), (None, Duration::from_millis(80)));
        log.answer_begins(at(30));
        let transfer = log.end(at(35)).with_resends(1);
        assert_eq!(transfer.connecting(), Duration::from_millis(10));
        assert_eq!(transfer.first_byte(), Some(Duration::from_millis(20)));
        assert_eq!(transfer.body(), Duration::from_millis(5));
        assert_eq!((transfer.connection(), transfer.streams(), transfer.resends()), (Some(3), 2, 1));
        assert!(transfer.is_new_connection());
    }
}
