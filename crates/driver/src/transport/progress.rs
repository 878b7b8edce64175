//! The progress of a request. When the deadline passes, the progress tells whether the
//! request may have been sent.

use perihelion_wire::transport::{Endpoint, Failure, FailureKind, Sent};

/// The stage that a request has reached. The code that sends the request sets the stage,
/// and the stage is read when the deadline passes. Over HTTP/1.1, `Queued` comes before
/// `Connecting`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// The request waits for a connection to be opened.
    Connecting,
    /// The request waits for a stream of the HTTP/2 connection, or for its turn to use an
    /// HTTP/1.1 connection.
    Queued,
    /// The connection has taken the request. It is not known how much of the request was
    /// sent.
    Accepted,
    /// The head of the answer has arrived.
    Answering,
}

impl Progress {
    /// Whether a request that ends at this stage was sent.
    pub(super) fn sent(self) -> Sent {
        match self {
            Progress::Connecting | Progress::Queued => Sent::No,
            Progress::Accepted => Sent::Unknown,
            Progress::Answering => Sent::Yes,
        }
    }

    /// The failure of a request whose deadline passed at this stage.
    pub(super) fn timeout_failure(self, endpoint: &Endpoint) -> Failure {
        let (kind, doing) = match self {
            // A slow connect may be the fault of the endpoint. A long wait for a free
            // connection or stream is not.
            Progress::Connecting => (FailureKind::Connect, "connecting"),
            Progress::Queued => (FailureKind::Timeout, "waiting for a free connection or stream"),
            Progress::Accepted => (FailureKind::Timeout, "waiting for the answer"),
            Progress::Answering => (FailureKind::Timeout, "reading the answer's body"),
        };
        Failure::new(kind, self.sent(), format!("{endpoint}: the deadline passed while {doing}"))
    }
}
