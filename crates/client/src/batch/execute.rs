//! Sending a batch, and telling from its answer which operation was to blame.

use bytes::Bytes;
use http::StatusCode;
use perihelion_driver::diagnostics::Resolution;
use perihelion_driver::operation::{KeyScope, Operation, Scope, Target, Verb};
use perihelion_driver::{Response, Status};

use super::results::{BatchResult, BatchResults, parse};
use super::{Batch, Entry};
use crate::Error;
use crate::container::Container;

/// What the service says of operations that it dropped with the one it refused.
const FAILED_DEPENDENCY: u16 = 424;

pub(crate) async fn execute(container: &Container, batch: Batch) -> Result<BatchResults, Error> {
    if batch.is_empty() {
        return Err(Error::input("a batch needs at least one operation"));
    }
    let repeat = batch.repeat();
    let Batch { key, mut body, entries, witness, options, .. } = batch;
    body.push(b']');
    let scope = Scope::Key(KeyScope::new(key));
    let mut operation =
        Operation::new(Verb::Batch, Target::items(container.inner()), scope, Bytes::from(body))
            .with_repeat(repeat);
    if let Some(witness) = witness {
        operation = operation.with_witness(witness);
    }
    let response = container.driver().execute(&operation, &options).await.or_else(refused_after_all)?;
    conclude(&entries, response)
}

/// A batch that was repeated because its first answer was lost, and then
/// refused: the driver gives the refusal of the second as an error, results and
/// all. When it cannot tell what became of the first, that stays as it is.
fn refused_after_all(error: Error) -> Result<Response, Error> {
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

/// All results, or the operation that failed.
pub(super) fn conclude(entries: &[Entry], response: Response) -> Result<BatchResults, Error> {
    if response.diagnostics.resolution() == Some(Resolution::Witnessed) {
        // The answer was lost; what we hold is the witness, not the results.
        return Ok(BatchResults::new(Vec::new(), response));
    }
    let results = parse(&response.body)?;
    if results.len() != entries.len() {
        return Err(Error::answer(format!(
            "a batch of {} operations has {} results",
            entries.len(),
            results.len()
        )));
    }
    match culprit(&results) {
        None => Ok(BatchResults::new(results, response)),
        Some(index) => Err(refusal(entries, &results, index, response)),
    }
}

/// The operation that was refused on its own account.
fn culprit(results: &[BatchResult]) -> Option<usize> {
    let has_failed = |result: &BatchResult| result.status().code >= 400;
    results
        .iter()
        .position(|result| has_failed(result) && result.status().code != FAILED_DEPENDENCY)
        .or_else(|| results.iter().position(has_failed))
}

#[cold]
fn refusal(entries: &[Entry], results: &[BatchResult], index: usize, response: Response) -> Error {
    let own = results[index].status();
    // The service states the sub-status for the whole answer only.
    let status = if own.sub == 0 { Status::new(own.code, response.status.sub) } else { own };
    let message = format!(
        "operation {index} of the batch ({}) was refused; none of the {} was applied",
        entries[index],
        entries.len()
    );
    Error::batch_refused(index, status, message, response)
}
