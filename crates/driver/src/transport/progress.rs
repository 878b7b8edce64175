//! How far a request has come, so that whoever stops waiting for it knows
//! whether it may have arrived.

use perihelion_wire::transport::{Endpoint, Failure, FailureKind, Sent};

/// The stages of a request, in order. Written by the code that carries it,
/// read when the deadline passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// There is no connection yet.
    Connecting,
    /// The connection has no room yet.
    Queued,
    /// The connection has it; how much of it is written is not known.
    Accepted,
    /// The head of the answer is here.
    Answering,
}

impl Progress {
    /// What a request that ends at this stage may have done.
    pub(super) fn sent(self) -> Sent {
        match self {
            Progress::Connecting | Progress::Queued => Sent::No,
            Progress::Accepted => Sent::Unknown,
            Progress::Answering => Sent::Yes,
        }
    }

    /// The deadline passed at this stage.
    pub(super) fn timed_out(self, endpoint: &Endpoint) -> Failure {
        let (kind, doing) = match self {
            // Not to get through in time says something about the endpoint;
            // to wait for room in our own queue does not.
            Progress::Connecting => (FailureKind::Connect, "connecting"),
            Progress::Queued => (FailureKind::Timeout, "waiting for a free connection or stream"),
            Progress::Accepted => (FailureKind::Timeout, "waiting for the answer"),
            Progress::Answering => (FailureKind::Timeout, "reading the answer's body"),
        };
        Failure::new(kind, self.sent(), format!("{endpoint}: the deadline passed while {doing}"))
    }
}
