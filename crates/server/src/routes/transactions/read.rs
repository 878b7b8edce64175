//! Read transactions: point reads from one snapshot.

use bytes::Bytes;
use perihelion_engine::{DistributedRead, ItemOutcome, Precondition, Refusal, blocking};
use perihelion_wire::status::{self, Status};
use perihelion_wire::transaction::{
    AnswerMembers, OperationResult, TransactionOperation, print_answer, status_of_read_transaction,
};

use super::super::RegionService;
use super::{
    Prepared, admit, answer, check_writers, prepare, printed_session_token, ranges_of, session,
    spend_refused, status_of,
};
use crate::answer::Answer;

pub(super) fn serve(
    service: &RegionService,
    operations: Vec<TransactionOperation>,
) -> Result<Answer, Refusal> {
    let prepared = prepare(service, operations)?;
    let ranges = ranges_of(&prepared);
    check_writers(service, &ranges)?;
    let buckets = admit(service, &prepared)?;
    let reads: Vec<DistributedRead> = prepared.into_iter().map(to_engine).collect();
    let results = match blocking::run(|| service.engine.read_distributed(&reads)) {
        Ok(results) => results,
        Err(refusal) => {
            spend_refused(&service.engine, buckets, &refusal);
            return Err(refusal);
        }
    };
    // Another region takes writes only after the topology says so. So if the topology still
    // names this region, the snapshot has every write that was acknowledged before it was taken.
    check_writers(service, &ranges)?;
    for (bucket, result) in buckets.into_iter().zip(&results) {
        service.engine.spend(bucket, charge_of(result));
    }
    let statuses: Vec<Status> = results.iter().map(status_of_result).collect();
    let has_failed = statuses.iter().any(|status| !status.is_success());
    let printed: Vec<OperationResult> = results.iter().map(|result| to_result(result, has_failed)).collect();
    let charge = printed.iter().map(|result| result.request_charge).sum();
    let first_failure = results.iter().enumerate().find_map(|(index, result)| {
        let refusal = result.as_ref().err()?;
        Some(format!("Operation {index} failed with {}: {}", status_of(refusal), refusal.message))
    });
    let members = AnswerMembers { is_retriable: false, diagnostic: first_failure.as_deref() };
    Ok(answer(status_of_read_transaction(&statuses), charge, print_answer(&printed, members)))
}

fn to_engine(prepared: Prepared) -> DistributedRead {
    let Prepared { operation, container, target } = prepared;
    let session = session(&operation, target.as_ref());
    let TransactionOperation { partition_key, id, if_match, if_none_match, .. } = operation;
    DistributedRead {
        container,
        partition_key,
        id,
        precondition: Precondition { if_match, if_none_match },
        session,
    }
}

fn charge_of(result: &Result<ItemOutcome, Refusal>) -> f64 {
    result.as_ref().map_or_else(|refusal| refusal.charge, |outcome| outcome.charge)
}

fn status_of_result(result: &Result<ItemOutcome, Refusal>) -> Status {
    result.as_ref().map_or_else(status_of, |outcome| outcome.status.into())
}

/// The result of one read. When another read has failed, this one is a failed dependency without
/// a document, as in the service.
fn to_result(result: &Result<ItemOutcome, Refusal>, has_failed: bool) -> OperationResult {
    let request_charge = charge_of(result);
    match result {
        Ok(_) if has_failed => OperationResult::failed(status::FAILED_DEPENDENCY, request_charge),
        Ok(outcome) => OperationResult {
            status: outcome.status.into(),
            etag: outcome.etag.clone(),
            session_token: Some(printed_session_token(&outcome.position)),
            partition_key_range_id: Some(outcome.position.range),
            local_lsn: None,
            request_charge,
            body: Some(outcome.body.clone()).filter(|body: &Bytes| !body.is_empty()),
        },
        Err(refusal) => OperationResult::failed(status_of(refusal), request_charge),
    }
}
