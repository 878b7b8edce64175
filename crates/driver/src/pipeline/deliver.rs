//! Delivers the request of an attempt: builds the headers, signs them, and hands the request to
//! the transport.
//!
//! A request whose connection ended is built and sent again where that is safe ([`Resends`]). The
//! transport consumes a request, so it has to be built again. Keeping a copy of every request
//! would be wasteful, because most requests are answered. When a leg of a hedge is abandoned, its
//! request continues without its attempt, so nothing sends that request again.

use std::sync::Arc;

use http::HeaderMap;
use perihelion_wire::headers;
use perihelion_wire::transport::{Failure, FailureKind, Request, Route, Sent};
use tokio::time::Instant;

use super::attempt::AttemptInputs;
use super::build;
use crate::core::Core;
use crate::error::Error;
use crate::random::ActivityId;
use crate::transport::{Delivered, Resends};

/// Sends a request with these headers. If the connection ends, sends it again on another
/// connection where that is safe. The repeated request has the same activity id. The result is an
/// error only if the credential gives no Authorization header for a repeated request.
pub(super) async fn deliver(
    core: &Core,
    inputs: &AttemptInputs<'_>,
    (headers, activity_id): (HeaderMap, ActivityId),
    deadline: Instant,
) -> Result<Delivered, Error> {
    let (is_read, mut resends) = (inputs.operation.verb.is_read(), Resends::default());
    let mut delivered = send(core, inputs, headers, deadline).await;
    while core.transport().allows_resends() && resends.allow(is_read, &delivered.result) {
        let headers = signed_headers(core, inputs, activity_id).await?;
        delivered = send(core, inputs, headers, deadline).await;
    }
    Ok(resends.add_count_to(delivered))
}

/// The headers of a request, with date, signature and activity id.
pub(super) async fn signed_headers(
    core: &Core,
    inputs: &AttemptInputs<'_>,
    activity_id: ActivityId,
) -> Result<HeaderMap, Error> {
    let mut map = build::headers(inputs.operation, inputs.header_inputs, inputs.settings, core.user_agent());
    let target = &inputs.operation.target;
    let method = inputs.operation.verb.method();
    let date = core.date().now();
    let scope = core.token_scope();
    let signed = (target.kind.signing_type(), target.signing_link());
    let authorization = core.credential().authorize(&method, signed, &date, scope, inputs.deadline).await?;
    map.insert(headers::MS_DATE, date);
    map.insert(headers::AUTHORIZATION, authorization);
    let mut activity_id = activity_id.header();
    // The activity id is not a secret. The mark keeps HTTP/2 from adding it to the table of
    // repeated headers, in which it would displace headers that are really repeated.
    activity_id.set_sensitive(true);
    map.insert(headers::ACTIVITY_ID, activity_id);
    Ok(map)
}

async fn send(core: &Core, inputs: &AttemptInputs<'_>, headers: HeaderMap, deadline: Instant) -> Delivered {
    if Instant::now() >= deadline {
        let text = "the request's time was up before it was sent";
        return Err(Failure::new(FailureKind::Timeout, Sent::No, text)).into();
    }
    let request = Request {
        endpoint: inputs.location.endpoint.clone(),
        method: inputs.operation.verb.method(),
        target: inputs.operation.target.path.clone(),
        headers,
        body: inputs.operation.body.clone(),
        deadline: deadline.into_std(),
        route: Route { region: Some(inputs.location.region.shared_name()), range: inputs.range.cloned() },
    };
    if !inputs.progress.is_kept() {
        return core.transport().deliver(request).await;
    }
    let transport = Arc::clone(core.transport());
    inputs.progress.keep(Box::pin(async move { transport.deliver(request).await })).await
}
