//! Judges an attempt: collects the inputs for `retry::evaluate`, which returns the
//! verdict and the effects.

use perihelion_wire::status::{self, Status};
use tokio::time::Instant;

use super::attempt::{AttemptResult, status_of};
use super::prepare::{Prepared, follows_partition};
use super::retry::{
    Budgets, Effects, Ending, Limits, PartitionWriteRegion, Regions, Results, TransactionEnding,
    TransactionProfile, Verdict, evaluate, evaluate_transaction,
};
use super::state::profile_of;
use crate::operation::{Operation, TransactionFacts, Verb};
use crate::response::retry_after;
use crate::transaction;

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
    if let Some(facts) = operation.transaction {
        let ending = transaction_ending_of(facts, result);
        let profile = TransactionProfile { is_write: !operation.verb.is_read(), is_replay: facts.is_replay };
        return evaluate_transaction(profile, ending, limits, budgets, jitter);
    }
    evaluate(
        profile_of(operation),
        ending_of(operation, &budgets, result),
        regions_of(prepared),
        limits,
        budgets,
        jitter,
    )
}

/// How an attempt of a transaction ended.
fn transaction_ending_of(facts: TransactionFacts, result: &AttemptResult) -> TransactionEnding<'_> {
    let response = match result {
        Err(failure) => return TransactionEnding::Failed(failure),
        Ok(response) => response,
    };
    let content = transaction::parse(response.body(), facts.operations);
    let results = match &content {
        None => Results::None,
        Some(content) => match &content.results {
            None => Results::Incomplete,
            Some(results) if results.iter().any(|result| result.is_failure()) => Results::Failed,
            Some(_) => Results::Succeeded,
        },
    };
    TransactionEnding::Answered {
        status: status_of(response),
        results,
        is_retriable: content.is_some_and(|content| content.is_retriable),
        retry_after: retry_after(response.headers()),
    }
}

/// The service's words when a container or a database does not exist. For a document that
/// does not exist, the service uses other words.
const CONTAINER_NOT_FOUND: &[u8] = b"Resource Not Found";

/// [`CONTAINER_NOT_FOUND`] is looked for in this many bytes at the start of a body. The words
/// come after the names of a few JSON members.
const CONTAINER_NOT_FOUND_WITHIN: usize = 256;

/// How an attempt ended. The ending has the status of the answer, with two exceptions:
///
/// - The service refuses a batch with 207. When an earlier attempt of the batch may have been
///   applied, the ending has the status of the refused operation inside the batch, if the
///   body names one.
/// - The service answers 404 without a sub-status when a document does not exist, and also
///   when its container does not. In the second case the ending is 404/1003, so that the
///   container's metadata is read again, which shows whether there is such a container. An
///   operation has this ending at most once, and not for a while after a read has shown that
///   the container exists.
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
            if status == status::NOT_FOUND
                && operation.is_data_plane()
                && !budgets.has_rerouted()
                && says_container_not_found(response.body())
                && !is_known_to_exist(operation)
            {
                status = status::OWNER_RESOURCE_NOT_FOUND;
            }
            Ending::Answered { status, retry_after: retry_after(response.headers()) }
        }
    }
}

/// Whether the body of a 404 says that the container does not exist.
fn says_container_not_found(body: &[u8]) -> bool {
    let start = &body[..body.len().min(CONTAINER_NOT_FOUND_WITHIN)];
    start.windows(CONTAINER_NOT_FOUND.len()).any(|words| words == CONTAINER_NOT_FOUND)
}

/// Whether a read a moment ago has shown that the container of the operation exists.
fn is_known_to_exist(operation: &Operation) -> bool {
    let container = operation.target.container.as_ref();
    container.is_some_and(|container| container.was_just_confirmed(Instant::now()))
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
        partition_write_region: partition_write_region(prepared),
    }
}

/// Whether the attempt's region is known to take the writes of the operation's partition. An
/// attempt shows this only if it is a write, or a read that only the write region may answer.
fn partition_write_region(prepared: &Prepared<'_>) -> PartitionWriteRegion {
    let (snapshot, operation) = (&prepared.snapshot, prepared.call.operation);
    let partition = prepared.partition.as_ref();
    let needs_write_region = !operation.verb.is_read() || prepared.header_inputs.is_write_region_only;
    if !needs_write_region || !follows_partition(snapshot, operation, partition) {
        return PartitionWriteRegion::NotTracked;
    }
    let write_region = snapshot.account.write_locations.first().map(|location| &location.region);
    let known = snapshot.moved_to(partition).or(write_region);
    if known == Some(&prepared.route.location.region) {
        PartitionWriteRegion::ThisRegion
    } else {
        PartitionWriteRegion::OtherRegion
    }
}
