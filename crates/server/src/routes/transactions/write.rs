//! Write transactions: all operations are applied, or none, and the answer is recorded.

use std::sync::Arc;

use perihelion_engine::{
    ConditionWork, DistributedOperation, DistributedOutcome, DistributedWrite, ItemOutcome, Precondition,
    RecordedAnswer, Refusal, blocking,
};
use perihelion_wire::status;
use perihelion_wire::transaction::{
    AnswerMembers, IdempotencyToken, OperationResult, TransactionOperation, TransactionVerb, print_answer,
    request_fingerprint,
};

use super::super::RegionService;
use super::super::batches::parse_by_type;
use super::{
    Prepared, admit, answer, check_writers, injected, prepare, printed_session_token, ranges_of, session,
    spend_refused, status_of,
};
use crate::answer::Answer;
use crate::call::Call;
use crate::faults::InjectedResults;

/// The longest request body whose documents are printed directly on the async worker. The documents of
/// a longer body are printed with `blocking::run`, which first moves the other tasks of this thread to
/// another thread. That costs as much as printing this many bytes.
const INLINE_BYTES_MAX: usize = 64 * 1024;

/// Commits or aborts a transaction. With `abort`, a fault rule demands that the first operation
/// fails.
pub(super) async fn serve(
    service: &RegionService,
    call: &Call,
    token: IdempotencyToken,
    operations: Vec<TransactionOperation>,
    abort: Option<InjectedResults>,
) -> Result<Answer, Refusal> {
    let fingerprint = request_fingerprint(&call.body);
    if let Some(recorded) = service.engine.recorded_answer(token, &fingerprint)? {
        return Ok(replay(recorded));
    }
    let admitted = prepare(service, operations).and_then(|prepared| {
        check_writers(service, &ranges_of(&prepared))?;
        let buckets = admit(service, &prepared)?;
        Ok((prepared, buckets))
    });
    let (prepared, buckets) = match admitted {
        Ok(admitted) => admitted,
        // A request with the same token may have been committed since the answer was looked up,
        // and may be the reason of the refusal.
        Err(refusal) => {
            let recorded = service.engine.recorded_answer(token, &fingerprint)?;
            return recorded.map(replay).ok_or(refusal);
        }
    };
    let (now, work) = (service.engine.clock().seconds(), ConditionWork::default());
    // Conditions are compiled and documents are printed here and not in the writer, because all
    // writes wait for the one writer.
    let is_short = call.body.len() <= INLINE_BYTES_MAX
        && !prepared.iter().any(|prepared| prepared.operation.verb == TransactionVerb::Patch);
    let to_engine =
        || prepared.into_iter().map(|prepared| to_engine(prepared, now, &work)).collect::<Vec<_>>();
    let mut operations = if is_short { to_engine() } else { blocking::run(to_engine) };
    if let (Some(abort), Some(first)) = (abort, operations.first_mut()) {
        first.operation = Err(injected::refusal(abort));
    }
    let write = DistributedWrite { token, fingerprint, operations };
    let is_retriable = abort.is_some_and(|abort| abort.is_retriable);
    let (engine, is_charged) = (Arc::clone(&service.engine), buckets.iter().any(Option::is_some));
    let commit = async move {
        let done = engine.commit_distributed(write, move |outcome| record(outcome, is_retriable)).await;
        match &done {
            Ok(done) => {
                buckets
                    .into_iter()
                    .zip(&done.charges)
                    .for_each(|(bucket, charge)| engine.spend(bucket, *charge));
            }
            Err(refusal) => spend_refused(&engine, buckets, refusal),
        }
        done
    };
    let done = service.account.long_reads.run_write(is_charged, commit).await?;
    Ok(replay(done.answer))
}

/// The answer that was recorded for this request; `None` if its token is new.
pub(super) fn recorded_answer(
    service: &RegionService,
    call: &Call,
    token: IdempotencyToken,
) -> Result<Option<Answer>, Refusal> {
    let recorded = service.engine.recorded_answer(token, &request_fingerprint(&call.body))?;
    Ok(recorded.map(replay))
}

/// The recorded answer as it is sent, the first time and every time after.
fn replay(recorded: RecordedAnswer) -> Answer {
    answer(recorded.status, recorded.charge, recorded.body)
}

/// An operation as the engine takes it. A body that the service would refuse fails the
/// operation, and so aborts the transaction.
fn to_engine(prepared: Prepared, now: u64, work: &ConditionWork) -> DistributedOperation {
    let Prepared { operation, container, target } = prepared;
    let session = session(&operation, target.as_ref());
    let TransactionOperation { verb, partition_key, id, body, if_match, if_none_match, .. } = operation;
    let item = match &container {
        Ok(container) => {
            parse_by_type(verb.name(), Some(id.clone()), body, container, now).and_then(|item| item)
        }
        Err(refusal) => Err(refusal.clone()),
    };
    let (session, item) = match session {
        Ok(session) => (session, item.map(|item| work.shared_with(item))),
        Err(refusal) => (Vec::new(), Err(refusal)),
    };
    let precondition = Precondition { if_match, if_none_match };
    DistributedOperation { container, partition_key, id, operation: item, precondition, session }
}

/// Prints the answer that is recorded and sent.
fn record(outcome: &DistributedOutcome, is_retriable: bool) -> RecordedAnswer {
    let results: Vec<OperationResult> = outcome.results.iter().map(to_result).collect();
    let charge = results.iter().map(|result| result.request_charge).sum();
    if outcome.is_committed {
        let body = print_answer(&results, AnswerMembers::default()).into();
        return RecordedAnswer { status: status::OK, charge, body };
    }
    let first_failure = outcome.results.iter().enumerate().find_map(|(index, result)| {
        let refusal =
            result.as_ref().err().filter(|refusal| status_of(refusal) != status::OPERATION_ROLLED_BACK)?;
        Some(format!("Operation {index} failed with {}: {}", status_of(refusal), refusal.message))
    });
    let diagnostic = first_failure.as_deref().or(Some("The transaction was aborted."));
    let body = print_answer(&results, AnswerMembers { is_retriable, diagnostic });
    RecordedAnswer { status: status::TRANSACTION_ABORTED, charge, body: body.into() }
}

fn to_result(result: &Result<ItemOutcome, Refusal>) -> OperationResult {
    match result {
        Ok(outcome) => OperationResult {
            status: outcome.status.into(),
            etag: outcome.etag.clone(),
            session_token: Some(printed_session_token(&outcome.position)),
            partition_key_range_id: Some(outcome.position.range),
            local_lsn: Some(outcome.position.lsn),
            request_charge: outcome.charge,
            body: None,
        },
        Err(refusal) => OperationResult::failed(status_of(refusal), refusal.charge),
    }
}
