//! The request of a bulk: up to a hundred operations for one physical partition, each with
//! its own partition key. The request is not atomic: when the service refuses an operation, it
//! continues with the next one.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use perihelion_driver::operation::{Idempotency, Operation, Scope, Target, Verb};
use perihelion_driver::{ContainerMetadata, OperationOptions};
use perihelion_wire::headers;

use super::congestion::Permit;
use super::partition::QueuedOperation;
use crate::batch::{self, BatchResult};
use crate::handle::ContainerHandle;
use crate::{BulkOptions, Error};

const TRUE: HeaderValue = HeaderValue::from_static("True");
const FALSE: HeaderValue = HeaderValue::from_static("False");
const RETURN_MINIMAL: HeaderValue = HeaderValue::from_static("return=minimal");

/// A request that is under way.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) range_id: Arc<str>,
    pub(super) operations: Vec<QueuedOperation>,
    /// The metadata by which the operations were sent to this partition.
    pub(super) metadata: Arc<ContainerMetadata>,
    pub(super) permit: Permit,
}

/// The answer to a request: one result per operation.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) results: Vec<BatchResult>,
    pub(super) charge: f64,
    /// The wait that the service asks for.
    pub(super) retry_after: Option<Duration>,
}

/// The options of all requests of a bulk. Throttled requests are not repeated by the driver,
/// because the congestion control must see every 429.
pub(super) fn request_options(options: &BulkOptions) -> OperationOptions {
    options.operation.clone().with_throttle_retries_max(0)
}

/// The request for these operations.
///
/// The driver must not send it again when an answer is lost: the operations of one request
/// differ in whether they may be repeated.
pub(super) fn build(
    container: &ContainerHandle,
    range_id: &Arc<str>,
    operations: &[QueuedOperation],
    has_content_on_write: bool,
) -> Operation {
    let bytes: usize = operations.iter().map(|queued| queued.operation.bytes()).sum();
    let mut body = Vec::with_capacity(bytes + 2);
    for queued in operations {
        body.push(if body.is_empty() { b'[' } else { b',' });
        queued.operation.append_to(&mut body);
    }
    body.push(b']');
    let target = Target::items(container.driver_container());
    let operation =
        Operation::new(Verb::Batch, target, Scope::Range(Arc::clone(range_id)), Bytes::from(body))
            .with_idempotency(Idempotency::NotIdempotent)
            .with_header(headers::BATCH_ATOMIC, FALSE)
            .with_header(headers::BATCH_ORDERED, FALSE)
            .with_header(headers::BATCH_CONTINUE_ON_ERROR, TRUE);
    if has_content_on_write { operation } else { operation.with_header(headers::PREFER, RETURN_MINIMAL) }
}

/// Sends a request, and parses its answer. `operations` is the number of operations in the
/// request.
pub(super) async fn send(
    container: ContainerHandle,
    operation: Operation,
    operations: usize,
    options: Arc<OperationOptions>,
) -> Result<Answer, Error> {
    let response = container.execute(&operation, &options).await?;
    let retry_after = response.header(&headers::RETRY_AFTER_MS).and_then(|text| text.parse().ok());
    let charge = response.charge();
    let results = batch::parse(&response.body);
    let results = results.map_err(|error| error.with_diagnostics(response.diagnostics.clone()))?;
    if results.len() != operations {
        return Err(Error::answer(format!(
            "a bulk request of {operations} operations has {} results",
            results.len()
        ))
        .with_diagnostics(response.diagnostics));
    }
    Ok(Answer { results, charge, retry_after: retry_after.map(Duration::from_millis) })
}
