//! Faults: the ways in which one request can fail.

use std::time::Duration;

use perihelion_testkit::faults;
use perihelion_wire::transport::{Failure, Response};

use crate::network::Role;

/// The `retry-after` of a throttled request, in milliseconds. Longer than duroxide
/// retries an ack (310 ms), so that the provider must wait.
const RETRY_AFTER_MS: u64 = 400;

/// How long an outage lasts. duroxide fails a workflow for good when an ack fails
/// for 310 milliseconds.
pub(crate) const OUTAGE: Duration = Duration::from_millis(800);

/// How long a long outage lasts: longer than the driver retries (1.75 s), so that
/// the provider must retry, and shorter than a lock.
pub(crate) const LONG_OUTAGE: Duration = Duration::from_millis(2400);

/// The time until a sender notices that its connection is lost: long enough for other
/// processes to find what was written, and short enough for a user to wait.
pub(crate) const LATE: Duration = Duration::from_secs(4);

/// The ways in which one request fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// 429 with a wait; the request is not served.
    Throttled,
    /// 449, a conflict inside the service; the request is not served.
    RetryWith,
    /// 503; the request is not served.
    Unavailable,
    /// 503 for this and every other request during [`OUTAGE`].
    Outage,
    /// 503 for this and every other request during [`LONG_OUTAGE`]. Not drawn at
    /// random.
    LongOutage,
    /// 410, the replica has moved; the request is not served.
    Gone,
    /// There is no connection, and the sender knows that nothing was sent.
    NotConnected,
    /// The connection ends before the request is served; the sender cannot know.
    LostRequest,
    /// The request is served, and the connection ends before the answer.
    LostAnswer,
    /// The request is served, and the sender notices only after [`LATE`] that the
    /// connection has ended. Other processes may have read, consumed and deleted
    /// what was written by then.
    LostAnswerLate,
    /// The request is served, and the answer is 408.
    DoneButTimeout,
    /// The request is served, and then the process that sent it is killed.
    Kill,
    /// For this time no request of the process reaches the server. Then all requests
    /// that it sent in that time arrive. Not drawn at random.
    CutOff(Duration),
}

impl Fault {
    /// The faults that are drawn at random.
    pub(crate) const ALL: [Fault; 11] = [
        Fault::Throttled,
        Fault::RetryWith,
        Fault::Unavailable,
        Fault::Outage,
        Fault::Gone,
        Fault::NotConnected,
        Fault::LostRequest,
        Fault::LostAnswer,
        Fault::LostAnswerLate,
        Fault::DoneButTimeout,
        Fault::Kill,
    ];

    /// Faults for the request of that number: every fault that clients handle differently,
    /// and one of three that they handle alike.
    pub(crate) fn many_at(index: u64) -> Vec<Fault> {
        let alternating = [Fault::Gone, Fault::NotConnected, Fault::DoneButTimeout];
        vec![
            Fault::Throttled,
            Fault::RetryWith,
            Fault::Unavailable,
            Fault::Outage,
            Fault::LostRequest,
            Fault::LostAnswer,
            Fault::LostAnswerLate,
            Fault::Kill,
            alternating[index as usize % alternating.len()],
        ]
    }

    /// Fewer faults for the request of that number: those that lose a request or an answer or
    /// kill the sender, and one of the others.
    pub(crate) fn few_at(index: u64) -> Vec<Fault> {
        let alternating = [
            Fault::Throttled,
            Fault::RetryWith,
            Fault::Unavailable,
            Fault::Outage,
            Fault::Gone,
            Fault::NotConnected,
            Fault::DoneButTimeout,
        ];
        let other = alternating[index as usize % alternating.len()];
        vec![Fault::LostRequest, Fault::LostAnswer, Fault::LostAnswerLate, Fault::Kill, other]
    }

    /// Whether a process with this role can get the fault. Only workers are killed or cut
    /// off: no process finishes the request of a killed user. Only users wait long for a lost
    /// answer: the locks of a worker would expire.
    pub(crate) fn applies_to(self, role: Role) -> bool {
        match self {
            Fault::Kill | Fault::CutOff(_) => role == Role::Worker,
            Fault::LostAnswerLate => role == Role::User,
            _ => role != Role::Observer,
        }
    }

    /// Whether the server sees the request.
    pub(crate) fn is_served(self) -> bool {
        match self {
            Fault::LostAnswer
            | Fault::LostAnswerLate
            | Fault::DoneButTimeout
            | Fault::Kill
            | Fault::CutOff(_) => true,
            Fault::Throttled
            | Fault::RetryWith
            | Fault::Unavailable
            | Fault::Outage
            | Fault::LongOutage
            | Fault::Gone
            | Fault::NotConnected
            | Fault::LostRequest => false,
        }
    }

    /// The response or failure that the driver gets instead of the server's response. Not
    /// used for `CutOff`, whose sender gets the server's response.
    pub(crate) fn outcome(self) -> Result<Response, Failure> {
        match self {
            Fault::Throttled => Ok(faults::refusal(429, 3200, Some(RETRY_AFTER_MS))),
            Fault::RetryWith => Ok(faults::refusal(449, 0, None)),
            Fault::Unavailable | Fault::Outage | Fault::LongOutage => Ok(faults::refusal(503, 0, None)),
            Fault::Gone => Ok(faults::refusal(410, 0, None)),
            Fault::DoneButTimeout => Ok(faults::refusal(408, 0, None)),
            Fault::NotConnected => Err(faults::unreachable()),
            Fault::LostRequest => Err(faults::request_lost()),
            Fault::LostAnswer | Fault::LostAnswerLate | Fault::Kill | Fault::CutOff(_) => {
                Err(faults::response_lost())
            }
        }
    }
}
