//! Carries out faults of requests over HTTP/2. The request holds its stream meanwhile, and its
//! outcome counts for the connection's health like that of any other request.

use std::time::Duration;

use h2::RecvStream;
use perihelion_wire::transport::{Failure, FailureKind, Response, Sent};
use tokio::time::{self, Instant, timeout_at};

use super::Fault;
use crate::fault_injection::{ConnectionFault, Effect, When};
use crate::transport::body::BodyCollector;
use crate::transport::http::RequestParts;
use crate::transport::http2::{Exchange, NotTaken, next_part};
use crate::transport::progress::Progress;
use crate::transport::shard::Reservation;
use crate::transport::transfer::TransferLog;

impl Fault {
    /// Sends a request with this fault.
    pub(in crate::transport) async fn send_http2(
        self,
        reservation: Reservation,
        parts: RequestParts,
        deadline: Instant,
    ) -> Result<Response, Failure> {
        let began_at = Instant::now();
        if timeout_at(deadline, time::sleep(self.delay())).await.is_err() {
            return Err(reservation.timeout_failure(Progress::Accepted, began_at));
        }
        let label = self.label();
        match self.effect() {
            // A fault of connecting does not act on requests.
            Effect::None | Effect::Connect(_) => finish(begin(reservation, parts)?, deadline).await,
            Effect::Answer(answer) if answer.when == When::Before => {
                let vitals = &reservation.shard.core.vitals;
                let now = Instant::now();
                vitals.record_arrival(now);
                vitals.answered(now);
                Ok(answer.response())
            }
            Effect::Answer(answer) => {
                finish(begin(reservation, parts)?, deadline).await.map(|_| answer.response())
            }
            Effect::Reset(When::Before) => Err(reset(&reservation, &label)),
            Effect::Reset(When::After) => {
                let mut exchange = begin(reservation, parts)?;
                wait_for_head(&mut exchange, deadline).await?;
                Err(reset(&exchange.reservation, &label))
            }
            Effect::Connection(fault, When::Before) => {
                let switch = reservation.shard.switch.clone();
                // The server does not receive the request.
                switch.mute();
                let exchange = begin(reservation, parts);
                switch.break_by(*fault);
                finish(exchange?, deadline).await
            }
            Effect::Connection(fault, When::After) => {
                let mut exchange = begin(reservation, parts)?;
                wait_for_head(&mut exchange, deadline).await?;
                lose_connection(exchange, *fault, deadline, &label).await
            }
            Effect::BreakOff(bytes) => {
                let mut exchange = begin(reservation, parts)?;
                let stream = wait_for_head(&mut exchange, deadline).await?.into_body();
                break_off(exchange, stream, *bytes, deadline, &label).await
            }
            Effect::SlowBody(bytes_per_second) => {
                let mut exchange = begin(reservation, parts)?;
                let answer = wait_for_head(&mut exchange, deadline).await?;
                let reading = read_slowly(&exchange, answer, *bytes_per_second);
                match timeout_at(deadline, reading).await {
                    Ok(read) => read.inspect(|_| exchange.answered(Instant::now())),
                    Err(_) => Err(exchange.timeout_failure(Progress::Answering)),
                }
            }
        }
    }
}

/// Waits for the whole answer. The caller has its own log of the transfer; the one that is made here
/// is not read.
async fn finish(exchange: Exchange, deadline: Instant) -> Result<Response, Failure> {
    exchange.finish(TransferLog::start(Instant::now()), deadline).await.result
}

/// Hands the request to the connection. If the connection is closing, it does not take the
/// request, which then goes to another connection.
fn begin(reservation: Reservation, parts: RequestParts) -> Result<Exchange, Failure> {
    let endpoint = reservation.owner.endpoint.clone();
    reservation.begin(parts).map_err(|not_taken| match not_taken {
        NotTaken::Refused(failure) => failure,
        NotTaken::Returned(_) => {
            let text = format!("{endpoint}: the connection takes no more requests");
            Failure::new(FailureKind::Closed, Sent::No, text)
        }
    })
}

/// Waits for the head of the answer, so that the service has acted. From then on, dropping the
/// exchange does not count as a failure of the connection. The fault itself records the failure.
async fn wait_for_head(
    exchange: &mut Exchange,
    deadline: Instant,
) -> Result<http::Response<RecvStream>, Failure> {
    match timeout_at(deadline, exchange.head()).await {
        Ok(head) => head.inspect(|_| exchange.settle()),
        Err(_) => Err(exchange.timeout_failure(Progress::Accepted)),
    }
}

/// The failure of a request as if the server had reset its stream. If the request was begun, its
/// stream is really reset, when the exchange is dropped.
fn reset(reservation: &Reservation, label: &str) -> Failure {
    reservation.shard.core.vitals.failed();
    let text = format!("{}: the server reset the stream (injected{label})", reservation.owner.endpoint);
    Failure::new(FailureKind::Closed, Sent::Unknown, text)
}

/// Throws the answer away, breaks the connection, and waits for its end.
async fn lose_connection(
    exchange: Exchange,
    fault: ConnectionFault,
    deadline: Instant,
    label: &str,
) -> Result<Response, Failure> {
    let switch = exchange.reservation.shard.switch.clone();
    switch.break_by(fault);
    if timeout_at(deadline, switch.ended()).await.is_err() {
        return Err(exchange.timeout_failure(Progress::Accepted));
    }
    let (kind, text) = match fault {
        ConnectionFault::Drop | ConnectionFault::Silence => {
            (FailureKind::Closed, "the connection ended before the answer")
        }
        ConnectionFault::Garbage => (FailureKind::Protocol, "the server violates HTTP/2"),
    };
    let Reservation { owner, shard, .. } = &exchange.reservation;
    let text = format!("{}: {text} (injected{label})", owner.endpoint);
    Err(Failure::new(kind, Sent::Unknown, text).with_incident(shard.core.incident_of_end(owner)))
}

/// Reads this many bytes of the body, and then fails as if the server had reset the stream.
async fn break_off(
    exchange: Exchange,
    mut stream: RecvStream,
    bytes: usize,
    deadline: Instant,
    label: &str,
) -> Result<Response, Failure> {
    let reading = async {
        let mut read = 0;
        while read < bytes {
            match next_part(&mut stream).await {
                Ok(Some(part)) => read += part.len(),
                Ok(None) => break,
                Err(error) => return Err(exchange.body_lost(&error)),
            }
        }
        exchange.reservation.shard.core.vitals.failed();
        let endpoint = &exchange.reservation.owner.endpoint;
        let text = format!("{endpoint}: the answer's body broke off (injected{label})");
        Err(Failure::new(FailureKind::Closed, Sent::Yes, text))
    };
    match timeout_at(deadline, reading).await {
        Ok(broken_off) => broken_off,
        Err(_) => Err(exchange.timeout_failure(Progress::Answering)),
    }
}

/// Reads the body at this rate. Parts that have arrived and were not read yet occupy the stream's
/// flow-control window.
async fn read_slowly(
    exchange: &Exchange,
    answer: http::Response<RecvStream>,
    bytes_per_second: u64,
) -> Result<Response, Failure> {
    let owner = &exchange.reservation.owner;
    let (head, mut stream) = answer.into_parts();
    let mut body = BodyCollector::new(&head.headers, &owner.buffered_bytes)
        .map_err(|too_long| too_long.failure(&owner.endpoint))?;
    loop {
        match next_part(&mut stream).await {
            Ok(Some(part)) => {
                time::sleep(time_for(part.len(), bytes_per_second)).await;
                body.push(part).map_err(|too_long| too_long.failure(&owner.endpoint))?;
            }
            Ok(None) => return Ok(Response::from_parts(head, body.finish())),
            Err(error) => return Err(exchange.body_lost(&error)),
        }
    }
}

/// How long this many bytes take at this rate.
pub(super) fn time_for(bytes: usize, bytes_per_second: u64) -> Duration {
    Duration::from_secs_f64(bytes as f64 / bytes_per_second.max(1) as f64)
}
