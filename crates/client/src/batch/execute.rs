//! Sends a batch. When the service refuses it, the response tells which operation
//! was the cause.

use bytes::Bytes;
use http::StatusCode;
use perihelion_driver::diagnostics::Resolution;
use perihelion_driver::operation::{KeyScope, Operation, Scope, Target, Verb};
use perihelion_driver::{Response, Status};

use super::results::{BatchResult, BatchResults, parse};
use super::{Batch, OperationKind, OperationName};
use crate::Error;
use crate::handle::ContainerHandle;

/// The status of operations that were not applied because another operation of
/// the batch was refused.
const FAILED_DEPENDENCY: u16 = 424;

pub(crate) async fn execute(container: &ContainerHandle, batch: Batch) -> Result<BatchResults, Error> {
    if batch.is_empty() {
        return Err(Error::input("a batch needs at least one operation"));
    }
    let idempotency = batch.idempotency();
    let Batch { key, mut body, operations, witness, repeat_policy, options, .. } = batch;
    body.push(b']');
    let scope = Scope::Key(KeyScope::new(key));
    let mut operation = repeat_policy.apply(
        Operation::new(Verb::Batch, Target::items(container.driver_container()), scope, Bytes::from(body))
            .with_idempotency(idempotency),
    );
    if let Some(witness) = witness {
        operation = operation.with_witness(witness);
    }
    let response = container.execute(&operation, &options).await.or_else(response_in_error)?;
    read_response(&operations, response)
}

/// Takes the response of a repeated batch out of the error of the driver. If the response to the
/// first attempt is lost and the second attempt gets 207, the driver returns an error that holds
/// the second response. Ambiguous errors and errors with another status are returned unchanged.
fn response_in_error(error: Error) -> Result<Response, Error> {
    match error.status() {
        Some(status) if status.code == StatusCode::MULTI_STATUS.as_u16() && !error.is_ambiguous() => {
            Ok(Response {
                status,
                headers: error.headers().clone(),
                body: error.body().clone(),
                diagnostics: error.diagnostics().clone(),
            })
        }
        _ => Err(error),
    }
}

/// Reads the response: the results, or an error that names the refused operation.
pub(super) fn read_response(operations: &[OperationName], response: Response) -> Result<BatchResults, Error> {
    if response.diagnostics.resolution() == Some(Resolution::Witnessed) {
        // The response to the batch was lost. `response` is the response to the read of
        // the witness, so it has no results.
        return Ok(BatchResults::new(Vec::new(), response));
    }
    let results = match parse(&response.body) {
        Ok(results) if results.len() == operations.len() => results,
        Ok(results) => {
            let (expected, count) = (operations.len(), results.len());
            let message = format!("a batch of {expected} operations has {count} results");
            return Err(not_understood(operations, message, response));
        }
        Err(error) => return Err(not_understood(operations, error.message().to_owned(), response)),
    };
    match failed_operation_index(&results) {
        None => Ok(BatchResults::new(results, response)),
        Some(index) => Err(refusal(operations, &results, index, response)),
    }
}

/// The error for a response whose results cannot be read. The service has answered, so a batch
/// with a write may have been applied.
#[cold]
fn not_understood(operations: &[OperationName], message: String, response: Response) -> Error {
    if operations.iter().all(|operation| operation.kind == OperationKind::Read) {
        return Error::answer(message).with_diagnostics(response.diagnostics);
    }
    Error::ambiguous_answer(message, response)
}

/// The index of the operation that caused the refusal; `None` when the batch was
/// applied. The other operations have the status [`FAILED_DEPENDENCY`]. If all refused
/// operations have that status, the first of them counts as the cause.
fn failed_operation_index(results: &[BatchResult]) -> Option<usize> {
    let has_failed = |result: &BatchResult| result.status().code >= 400;
    results
        .iter()
        .position(|result| has_failed(result) && result.status().code != FAILED_DEPENDENCY)
        .or_else(|| results.iter().position(has_failed))
}

#[cold]
fn refusal(operations: &[OperationName], results: &[BatchResult], index: usize, response: Response) -> Error {
    let mut status = results[index].status();
    if status.sub == 0 {
        // The service usually sends the sub-status in a header of the response, and not in
        // the operation's result.
        status = Status::new(status.code, response.status.sub);
    }
    let message = format!(
        "operation {index} of the batch ({}) was refused; none of the {} operations of the batch was applied",
        operations[index],
        operations.len()
    );
    Error::batch_refused(index, status, message, response)
}
