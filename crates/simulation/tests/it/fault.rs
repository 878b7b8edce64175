//! The ways in which one request can go wrong.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use perihelion_wire::transport::{Failure, FailureKind, Response, Sent};

use crate::network::Role;

/// What a throttled request is told to wait, in milliseconds. More than stock
/// duroxide bears in an ack (310 ms), so that the provider must wait itself.
const RETRY_AFTER_MS: u64 = 400;

/// How long an outage lasts. Stock duroxide fails a workflow for good when an
/// ack fails for 310 milliseconds, and its failure is then recorded.
pub(crate) const OUTAGE: Duration = Duration::from_millis(800);

/// How long a bad one lasts: longer than the driver bears (1.75 s), so that the
/// provider must go on, and shorter than a lock.
pub(crate) const LONG_OUTAGE: Duration = Duration::from_millis(2400);

/// How long a connection that has ended is waited on: longer than other
/// processes take to find what was written, shorter than a user's patience.
pub(crate) const LATE: Duration = Duration::from_secs(4);

/// What happens to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// 429 with a hint; nothing was done.
    Throttled,
    /// 449: a conflict inside the service; nothing was done.
    RetryWith,
    /// 503; nothing was done.
    Unavailable,
    /// 503 to this and every other request, for a while; nothing is done.
    Outage,
    /// The same for longer. In tests of its own.
    LongOutage,
    /// 410: the replica has moved; nothing was done.
    Gone,
    /// No connection, and certainly nothing was sent.
    Unsent,
    /// The connection ends, nothing was done, and nobody can know.
    LostRequest,
    /// It was done, and the connection ends before the answer.
    LostAnswer,
    /// It was done, and that the connection has ended is noticed only seconds
    /// later: what was written may have been read, consumed and removed by then.
    LostLate,
    /// It was done, and the answer is 408.
    DoneButTimeout,
    /// It was done, and then the process that asked is killed.
    Kill,
    /// Nothing of that process gets through for so long, and then everything
    /// does that was on its way. In tests of its own.
    Stuck(Duration),
}

impl Fault {
    pub(crate) const ALL: [Fault; 11] = [
        Fault::Throttled,
        Fault::RetryWith,
        Fault::Unavailable,
        Fault::Outage,
        Fault::Gone,
        Fault::Unsent,
        Fault::LostRequest,
        Fault::LostAnswer,
        Fault::LostLate,
        Fault::DoneButTimeout,
        Fault::Kill,
    ];

    /// What strikes the request of that number in systematic runs: everything
    /// that differs to a client, and one in turn of those that differ little.
    pub(crate) fn many_at(index: u64) -> Vec<Fault> {
        let in_turn = [Fault::Gone, Fault::Unsent, Fault::DoneButTimeout];
        vec![
            Fault::Throttled,
            Fault::RetryWith,
            Fault::Unavailable,
            Fault::Outage,
            Fault::LostRequest,
            Fault::LostAnswer,
            Fault::LostLate,
            Fault::Kill,
            in_turn[index as usize % in_turn.len()],
        ]
    }

    /// The same in short: what leaves a doubt, and one of the others in turn.
    pub(crate) fn few_at(index: u64) -> Vec<Fault> {
        let in_turn = [
            Fault::Throttled,
            Fault::RetryWith,
            Fault::Unavailable,
            Fault::Outage,
            Fault::Gone,
            Fault::Unsent,
            Fault::DoneButTimeout,
        ];
        let in_turn = in_turn[index as usize % in_turn.len()];
        vec![Fault::LostRequest, Fault::LostAnswer, Fault::LostLate, Fault::Kill, in_turn]
    }

    /// Only workers are killed: what a user who is killed had asked for is
    /// nobody's to finish. Only users wait long for nothing: a worker's locks
    /// would run out.
    pub(crate) fn may_befall(self, role: Role) -> bool {
        match self {
            Fault::Kill | Fault::Stuck(_) => role == Role::Worker,
            Fault::LostLate => role == Role::User,
            _ => role != Role::Watcher,
        }
    }

    /// Whether the server sees the request.
    pub(crate) fn is_served(self) -> bool {
        match self {
            Fault::LostAnswer | Fault::LostLate | Fault::DoneButTimeout | Fault::Kill | Fault::Stuck(_) => {
                true
            }
            Fault::Throttled
            | Fault::RetryWith
            | Fault::Unavailable
            | Fault::Outage
            | Fault::LongOutage
            | Fault::Gone
            | Fault::Unsent
            | Fault::LostRequest => false,
        }
    }

    /// What the driver gets instead of the answer.
    pub(crate) fn outcome(self) -> Result<Response, Failure> {
        let closed = |sent, message| Err(Failure::new(FailureKind::Closed, sent, message));
        match self {
            Fault::Throttled => Ok(answer(429, 3200, Some(RETRY_AFTER_MS))),
            Fault::RetryWith => Ok(answer(449, 0, None)),
            Fault::Unavailable | Fault::Outage | Fault::LongOutage => Ok(answer(503, 0, None)),
            Fault::Gone => Ok(answer(410, 0, None)),
            Fault::DoneButTimeout => Ok(answer(408, 0, None)),
            Fault::Unsent => Err(Failure::new(FailureKind::Connect, Sent::No, "injected: no connection")),
            Fault::LostRequest => closed(Sent::Unknown, "injected: closed before the request was served"),
            Fault::LostAnswer | Fault::LostLate | Fault::Kill | Fault::Stuck(_) => {
                closed(Sent::Yes, "injected: closed before the answer")
            }
        }
    }
}

fn answer(status: u16, sub_status: u32, retry_after_ms: Option<u64>) -> Response {
    let body = format!("{{\"code\":\"{status}\",\"message\":\"Injected by the simulation.\"}}");
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    let headers = response.headers_mut();
    headers.insert("x-ms-substatus", HeaderValue::from(sub_status));
    if let Some(wait) = retry_after_ms {
        headers.insert("x-ms-retry-after-ms", HeaderValue::from(wait));
    }
    response
}
