//! Judges an attempt: collects the inputs for `retry::evaluate`, which returns the
//! verdict and the effects.

use perihelion_wire::status::Status;

use super::attempt::{AttemptResult, status_of};
use super::prepare::Prepared;
use super::retry::{Budgets, Effects, Ending, Limits, Regions, Verdict, evaluate};
use super::state::profile_of;
use crate::operation::{Operation, Verb};
use crate::response::retry_after;

/// The verdict on an attempt, and its effects. `jitter` is a sample from 0 to 1.
pub(super) fn judge(
    prepared: &Prepared<'_>,
    result: &AttemptResult,
    budgets: Budgets,
    jitter: f64,
) -> (Verdict, Effects) {
    let (operation, settings) = (prepared.call.operation, prepared.call.settings);
    let limits =
        Limits { failovers_max: settings.failovers_max, session_retries_max: settings.session_retries_max };
    evaluate(
        profile_of(operation),
        ending_of(operation, &budgets, result),
        regions_of(prepared),
        limits,
        budgets,
        jitter,
    )
}

/// How an attempt ended. The service refuses a batch with 207. When an earlier
/// attempt of the batch may have been applied, the ending does not have the status 207,
/// but the status of the refused operation inside the batch, if the body names one.
pub(super) fn ending_of<'l>(
    operation: &Operation,
    budgets: &Budgets,
    result: &'l AttemptResult,
) -> Ending<'l> {
    match result {
        Err(failure) => Ending::Failed(failure),
        Ok(response) => {
            let mut status = status_of(response);
            if operation.verb == Verb::Batch && budgets.is_ambiguous && status.code == 207 {
                status = batch_refusal(response.body()).unwrap_or(status);
            }
            Ending::Answered { status, retry_after: retry_after(response.headers()) }
        }
    }
}

/// The status of the operation that made the service refuse a batch. The other operations
/// of the batch have the status 424.
fn batch_refusal(body: &[u8]) -> Option<Status> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct OperationResult {
        status_code: u16,
        #[serde(default)]
        sub_status_code: u32,
    }
    let results: Vec<OperationResult> = serde_json::from_slice(body).ok()?;
    let failed = results.into_iter().find(|result| result.status_code >= 400 && result.status_code != 424)?;
    Some(Status::new(failed.status_code, failed.sub_status_code))
}

/// The regions that the operation may use, by the snapshot of the attempt.
pub(super) fn regions_of(prepared: &Prepared<'_>) -> Regions {
    let has_breaker = prepared.partition.as_ref().is_some_and(|partition| {
        prepared.snapshot.breakers.has_breaker(partition, &prepared.route.location.region)
    });
    Regions {
        candidates: prepared.route.candidates.max(1),
        is_multi_write: prepared.snapshot.account.is_multi_write,
        has_breaker,
    }
}
