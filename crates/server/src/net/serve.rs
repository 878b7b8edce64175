//! Serves one request: checks its head, reads its body, asks the handler.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response, Version};
use hyper::body::{Body, Incoming};

use super::body::{self, Budget, Held, Trouble};
use super::watch::Line;
use super::whole::Whole;
use super::{Handler, Hangup, Limits, Peer, Refusal};

/// What all requests of one connection share.
#[derive(Debug)]
pub(super) struct Context<H> {
    pub(super) handler: Arc<H>,
    pub(super) limits: Arc<Limits>,
    pub(super) budget: Arc<Budget>,
    pub(super) line: Arc<Line>,
    pub(super) peer: Peer,
}

/// From a request whose head has been parsed to the response.
pub(super) async fn serve<H: Handler>(
    context: Arc<Context<H>>,
    request: Request<Incoming>,
) -> Result<Response<Whole>, Hangup> {
    let _busy = context.line.busy();
    let version = request.version();
    let mut held = context.budget.hold();
    let response = match receive(request, &context.limits, &mut held).await {
        Ok(request) => context.handler.handle(request, context.peer).await?,
        Err(Trouble::Refused(refusal)) => refused(&context, refusal, version),
        Err(Trouble::Gone) => return Err(Hangup::Unserved),
    };
    Ok(Whole::response(response))
}

async fn receive(
    request: Request<Incoming>,
    limits: &Limits,
    held: &mut Held<'_>,
) -> Result<Request<Bytes>, Trouble> {
    let (head, body) = request.into_parts();
    check_head(&head, limits).map_err(Trouble::Refused)?;
    if body.is_end_stream() {
        return Ok(Request::from_parts(head, Bytes::new()));
    }
    let bytes = body::read(body, limits, held).await?;
    Ok(Request::from_parts(head, bytes))
}

fn check_head(head: &http::request::Parts, limits: &Limits) -> Result<(), Refusal> {
    let uri_bytes = head.uri.path_and_query().map_or(0, |target| target.as_str().len());
    if uri_bytes > limits.uri_bytes {
        return Err(Refusal::UriTooLong { limit: limits.uri_bytes });
    }
    if head.headers.len() > limits.headers {
        return Err(Refusal::TooManyHeaders { limit: limits.headers });
    }
    Ok(())
}

/// Part of the request may be unread: an HTTP/1.1 connection cannot go on, and
/// must linger for its client to see the answer.
fn refused<H: Handler>(context: &Context<H>, refusal: Refusal, version: Version) -> Response<Bytes> {
    let mut response = context.handler.refuse(refusal);
    if version < Version::HTTP_2 {
        context.line.set_lingering();
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
