//! Carries out faults of requests over HTTP/1.1. The caller enforces the deadline.

use std::future::pending;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use perihelion_wire::transport::{Endpoint, Failure, FailureKind, Response, Sent};
use tokio::time;

use super::Fault;
use super::http2::time_for;
use crate::fault_injection::{ConnectionFault, Effect, When};
use crate::transport::body::BodyCollector;
use crate::transport::connections::Connections;
use crate::transport::http1::{Http1Delivery, Http1Lease, broken_body_failure};
use crate::transport::progress::Progress;
use crate::transport::transfer::TransferLog;

impl Fault {
    /// Sends a request with this fault.
    pub(in crate::transport) async fn send_http1(
        self,
        mut lease: Http1Lease<'_>,
        connections: &Connections,
        request: Request<Full<Bytes>>,
        progress: &mut Progress,
    ) -> Result<Http1Delivery, Failure> {
        // To the caller, a request that the fault delays looks like a request that was sent and has
        // no answer yet.
        *progress = Progress::Accepted;
        time::sleep(self.delay()).await;
        let (endpoint, label) = (&connections.endpoint, self.label());
        let closed = |sent, text: &str| {
            Failure::new(FailureKind::Closed, sent, format!("{endpoint}: {text} (injected{label})"))
        };
        let answer = match self.effect() {
            Effect::None | Effect::Connect(_) => {
                return send(lease, connections, request, progress).await;
            }
            Effect::Answer(answer) if answer.when == When::Before => {
                lease.give_back();
                return Ok(Http1Delivery::Answered(answer.response()));
            }
            Effect::Reset(When::Before) => return Err(closed(Sent::Unknown, CONNECTION_ENDED)),
            Effect::Connection(fault, When::Before) => {
                lease.switch().break_at_next_write(*fault);
                return send(lease, connections, request, progress).await;
            }
            Effect::Answer(_)
            | Effect::Reset(When::After)
            | Effect::Connection(_, When::After)
            | Effect::BreakOff(_)
            | Effect::SlowBody(_) => match lease.send_for_head(connections, request, progress).await? {
                Ok(answer) => answer,
                Err(not_taken) => return Ok(Http1Delivery::NotTaken(not_taken)),
            },
        };
        match self.effect() {
            Effect::SlowBody(bytes_per_second) => {
                let response = read_slowly(connections, answer, *bytes_per_second).await?;
                lease.give_back();
                Ok(Http1Delivery::Answered(response))
            }
            Effect::BreakOff(bytes) => {
                read_bytes(endpoint, answer.into_body(), *bytes).await?;
                Err(closed(Sent::Yes, "the answer's body broke off"))
            }
            // The answer is not read to its end, so the connection is not used again.
            Effect::Answer(answer) => Ok(Http1Delivery::Answered(answer.response())),
            Effect::Connection(ConnectionFault::Silence, _) => {
                // The request waits until its deadline, because HTTP/1.1 has no pings.
                *progress = Progress::Accepted;
                pending().await
            }
            Effect::Connection(ConnectionFault::Garbage, _) => {
                let text = format!("{endpoint}: the server violates HTTP/1.1 (injected{label})");
                Err(Failure::new(FailureKind::Protocol, Sent::Unknown, text))
            }
            Effect::Connection(ConnectionFault::Drop, _) => Err(closed(Sent::Unknown, CONNECTION_ENDED)),
            Effect::None | Effect::Reset(_) | Effect::Connect(_) => {
                Err(closed(Sent::Unknown, CONNECTION_ENDED))
            }
        }
    }
}

/// The text of the failure when a fault ends the connection.
const CONNECTION_ENDED: &str = "the connection ended before the answer";

/// Reads this many bytes of the body, or all if there are fewer.
async fn read_bytes(endpoint: &Endpoint, mut body: Incoming, bytes: usize) -> Result<(), Failure> {
    let mut read = 0;
    while read < bytes {
        let Some(frame) = body.frame().await else { break };
        let frame = frame.map_err(|error| broken_body_failure(endpoint, &error))?;
        read += frame.data_ref().map_or(0, |part| part.len());
    }
    Ok(())
}

/// Reads the body at this rate.
async fn read_slowly(
    connections: &Connections,
    answer: http::Response<Incoming>,
    bytes_per_second: u64,
) -> Result<Response, Failure> {
    let endpoint = &connections.endpoint;
    let (head, mut stream) = answer.into_parts();
    let mut body = BodyCollector::new(&head.headers, &connections.buffered_bytes)
        .map_err(|too_long| too_long.failure(endpoint))?;
    while let Some(frame) = stream.frame().await {
        let frame = frame.map_err(|error| broken_body_failure(endpoint, &error))?;
        if let Ok(part) = frame.into_data() {
            time::sleep(time_for(part.len(), bytes_per_second)).await;
            body.push(part).map_err(|too_long| too_long.failure(endpoint))?;
        }
    }
    Ok(Response::from_parts(head, body.finish()))
}

/// Sends the request without a fault. The caller has its own log of the transfer; the log that is made
/// here is not read.
async fn send(
    lease: Http1Lease<'_>,
    connections: &Connections,
    request: Request<Full<Bytes>>,
    progress: &mut Progress,
) -> Result<Http1Delivery, Failure> {
    let mut log = TransferLog::start(time::Instant::now());
    lease.send(connections, request, (progress, &mut log)).await
}
