//! Faults: the ways in which one request can fail.

use std::time::Duration;

use perihelion_testkit::faults;
use perihelion_wire::transport::{Failure, Response};

use crate::process_run::Role;

/// The `retry-after` of a throttled request, in milliseconds. duroxide retries a failed ack
/// for 310 ms only, so the provider itself must wait.
const RETRY_AFTER_MS: u64 = 400;

/// How long an outage lasts: longer than the 310 ms for which duroxide retries an ack. After
/// that duroxide fails the workflow for good, so the provider must retry.
pub const OUTAGE: Duration = Duration::from_millis(800);

/// How long a long outage lasts: longer than the driver retries (1.75 s), so that
/// the provider must retry, and shorter than a lock (4 s).
pub const LONG_OUTAGE: Duration = Duration::from_millis(2400);

/// The time after which the sender of a [`Fault::LostAnswerLate`] notices that its
/// connection is lost. Meanwhile other processes find what the request has written.
pub const LOSS_NOTICED_AFTER: Duration = Duration::from_secs(4);

/// The ways in which one request fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// 429 with a wait; the request is not served.
    Throttled,
    /// 449, a conflict inside the service; the request is not served.
    RetryWith,
    /// 503; the request is not served.
    Unavailable,
    /// 503 for this request, and for every request that is sent during [`OUTAGE`].
    Outage,
    /// 503 for this request, and for every request that is sent during [`LONG_OUTAGE`]. Not
    /// drawn at random.
    LongOutage,
    /// 410, the replica has moved; the request is not served.
    Gone,
    /// There is no connection, and the sender knows that nothing was sent.
    NotConnected,
    /// The connection ends before the request is served. The sender cannot know whether it
    /// was served.
    LostRequest,
    /// The request is served, and the connection ends before the answer.
    LostAnswer,
    /// The request is served, and the sender notices only after [`LOSS_NOTICED_AFTER`] that the
    /// connection has ended. By then other processes may have read, consumed and deleted
    /// what the request wrote.
    LostAnswerLate,
    /// The request is served, and the answer is 408.
    DoneButTimeout,
    /// The request is served, and then the process that sent it is killed.
    Kill,
    /// 429 with a wait of this many milliseconds; the request is not served. Only episodes draw
    /// this fault and the next four.
    ThrottledFor(u64),
    /// 403/3: the region does not accept writes any more; the request is not served.
    WriteForbidden,
    /// 403/1008: the account has no such region any more; the request is not served.
    AccountMoved,
    /// 404/1002: the replica has not caught up with the session; the request is not served.
    SessionNotAvailable,
    /// 401, as while a key is replaced; the request is not served.
    Unauthorized,
    /// For this time no request of the process reaches the server. Then all requests that
    /// the process sent in that time arrive. Not drawn at random.
    CutOff(Duration),
}

impl Fault {
    /// The faults that a seed can draw for a single request.
    pub const RANDOM: [Fault; 11] = [
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

    /// Many faults for the request with this number: eight that are tried at every request,
    /// and one of three that clients handle alike.
    pub fn many_for_request(index: u64) -> Vec<Fault> {
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

    /// Few faults for the request with this number: the four that lose a request, lose an
    /// answer or kill the sender, and one of the others.
    pub fn few_for_request(index: u64) -> Vec<Fault> {
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
    /// off, because no other process would finish the work of a user. Only users wait long for
    /// a lost answer, because the locks of a worker would expire.
    pub fn applies_to(self, role: Role) -> bool {
        match self {
            Fault::Kill | Fault::CutOff(_) => role == Role::Worker,
            Fault::LostAnswerLate => role == Role::User,
            _ => role != Role::Faultless,
        }
    }

    /// The name of the fault in the table of a run.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Throttled => "429, wait of 400 ms",
            Fault::RetryWith => "449",
            Fault::Unavailable | Fault::Outage | Fault::LongOutage => "503",
            Fault::Gone => "410",
            Fault::NotConnected => "no connection",
            Fault::LostRequest => "lost request",
            Fault::LostAnswer => "lost answer",
            Fault::LostAnswerLate => "lost answer, noticed late",
            Fault::DoneButTimeout => "408 after the write",
            Fault::Kill => "crash at a request",
            Fault::ThrottledFor(_) => "429, wait of seconds",
            Fault::WriteForbidden => "403/3, failover",
            Fault::AccountMoved => "403/1008, failover",
            Fault::SessionNotAvailable => "404/1002, stale replica",
            Fault::Unauthorized => "401, key replaced",
            Fault::CutOff(_) => "held back, then delivered",
        }
    }

    /// Whether the request reaches the server.
    pub fn is_served(self) -> bool {
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
            | Fault::LostRequest
            | Fault::ThrottledFor(_)
            | Fault::WriteForbidden
            | Fault::AccountMoved
            | Fault::SessionNotAvailable
            | Fault::Unauthorized => false,
        }
    }

    /// The response or failure that the sender gets instead of the server's response. Not
    /// used for `CutOff`, whose sender gets the server's response.
    pub fn outcome(self) -> Result<Response, Failure> {
        match self {
            Fault::Throttled => Ok(faults::refusal(429, 3200, Some(RETRY_AFTER_MS))),
            Fault::ThrottledFor(wait_ms) => Ok(faults::refusal(429, 3200, Some(wait_ms))),
            Fault::WriteForbidden => Ok(faults::refusal(403, 3, None)),
            Fault::AccountMoved => Ok(faults::refusal(403, 1008, None)),
            Fault::SessionNotAvailable => Ok(faults::refusal(404, 1002, None)),
            Fault::Unauthorized => Ok(faults::refusal(401, 0, None)),
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
