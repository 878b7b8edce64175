//! Serves one request: checks its head, reads its body, calls the handler.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response, Version};
use hyper::body::{Body, Incoming};

use super::body::{self, BodyError};
use super::buffered_body::BufferedBody;
use super::connection_state::ConnectionState;
use super::{Handler, Hangup, Limits, Peer, Rejection};
use crate::memory::{MemoryBudget, MemoryShare};

/// The parts of a connection that all its requests share.
#[derive(Debug)]
pub(super) struct Context<H> {
    pub(super) handler: Arc<H>,
    pub(super) limits: Arc<Limits>,
    pub(super) memory: Arc<MemoryBudget>,
    pub(super) state: Arc<ConnectionState>,
    pub(super) peer: Peer,
}

/// Answers a request. Its head has been parsed; its body is still to be read.
pub(super) async fn serve<H: Handler>(
    context: Arc<Context<H>>,
    request: Request<Incoming>,
) -> Result<Response<BufferedBody>, Hangup> {
    let _in_flight = context.state.begin_request();
    let version = request.version();
    let mut share = context.memory.new_share();
    context.state.wait_for_taken_responses(context.limits.response_bytes_per_connection).await;
    let response = match receive(&context, request, &mut share).await {
        Ok(request) => context.handler.handle(request, context.peer).await?,
        Err(BodyError::Refused(response)) => closing(&context, response, version),
        Err(BodyError::Rejected(rejection)) => closing(&context, context.handler.reject(rejection), version),
        Err(BodyError::Unreadable) => return Err(Hangup::Unserved),
    };
    Ok(BufferedBody::response(response, |bytes| {
        let mut share = context.memory.new_share();
        // A response that is ready is sent even if it exceeds the memory budget. Only new
        // requests are refused then.
        let _ = share.take(bytes);
        (share, ConnectionState::begin_response(&context.state, bytes))
    }))
}

/// The longest body that counts as small. The first piece of a small body is read before
/// [`Handler::refuse_head`] is called. Nearly all small bodies arrive in one piece. Then `refuse_head` is
/// not called, and only [`Handler::handle`] checks the head.
const SMALL_BODY_BYTES_MAX: u64 = 64 * 1024;

async fn receive<H: Handler>(
    context: &Context<H>,
    request: Request<Incoming>,
    share: &mut MemoryShare,
) -> Result<Request<Bytes>, BodyError> {
    let (head, body) = request.into_parts();
    check_head(&head, &context.limits).map_err(BodyError::Rejected)?;
    if body.is_end_stream() {
        return Ok(Request::from_parts(head, Bytes::new()));
    }
    // A body of unknown length counts as large.
    let is_large = body.size_hint().upper().is_none_or(|bytes| bytes > SMALL_BODY_BYTES_MAX);
    let refuse = || context.handler.refuse_head(&head, context.peer);
    if is_large && let Some(response) = refuse() {
        return Err(BodyError::Refused(response));
    }
    let refuse_rest = || if is_large { None } else { refuse() };
    let bytes = body::read(body, &context.limits, share, refuse_rest).await?;
    Ok(Request::from_parts(head, bytes))
}

fn check_head(head: &http::request::Parts, limits: &Limits) -> Result<(), Rejection> {
    let uri_bytes = head.uri.path_and_query().map_or(0, |target| target.as_str().len());
    if uri_bytes > limits.uri_bytes {
        return Err(Rejection::UriTooLong { limit: limits.uri_bytes });
    }
    if head.headers.len() > limits.headers {
        return Err(Rejection::TooManyHeaders { limit: limits.headers });
    }
    Ok(())
}

/// The response to a request that was not read to its end. An HTTP/1.1 connection cannot serve
/// another request after it, so the response says `connection: close`. The connection stays open a
/// little longer, so that its client can read the response.
fn closing<H: Handler>(
    context: &Context<H>,
    mut response: Response<Bytes>,
    version: Version,
) -> Response<Bytes> {
    if version < Version::HTTP_2 {
        context.state.set_lingering();
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
