//! Answers to transactions that fault rules inject: results with any status, and the mode
//! `FastResponse`. An injected abort of a write (452) is a real abort: its answer is recorded, so
//! its token is used up, and a client that sends the token again gets the same answer.

use perihelion_engine::{Layer, Refusal};
use perihelion_wire::headers;
use perihelion_wire::status;
use perihelion_wire::transaction::{
    AnswerMembers, OperationResult, TransactionKind, TransactionRequest, in_fast_mode, print_answer,
};

use super::super::RegionService;
use super::{
    answer, answer_parsed, idempotency_token, parse, with_idempotency_token, with_transaction_status, write,
};
use crate::answer::Answer;
use crate::call::Call;
use crate::faults::{InjectedResults, TransactionFault};

/// The sentence in an answer that a fault rule injects.
const MESSAGE: &str = "This answer was injected by a fault rule.";

/// The injected answer to a transaction, which is not carried out.
pub(in crate::routes) async fn instead_of_serving(
    service: &RegionService,
    call: &Call,
    results: InjectedResults,
) -> Result<Answer, Refusal> {
    let request = parse(service, call)?;
    let is_abort = results.status.code == status::TRANSACTION_ABORTED.code;
    if is_abort && request.kind == TransactionKind::Write {
        let answer = answer_parsed(service, call, request, Some(results)).await;
        return answer.map(|answer| with_wait(answer, results)).map_err(with_transaction_status);
    }
    // If an answer is recorded for this token, that answer is sent. An injected refusal that is not
    // retriable would be false after a commit.
    let token = idempotency_token(call)?;
    if request.kind == TransactionKind::Write
        && !results.is_retriable
        && let Some(known_token) = token
        && let Some(recorded) = write::recorded_answer(service, call, known_token)?
    {
        return Ok(with_idempotency_token(recorded, token));
    }
    Ok(with_idempotency_token(print(&request, results), token))
}

/// The injected answer to a transaction that was carried out. It replaces the real answer.
pub(in crate::routes) fn after_serving(
    service: &RegionService,
    call: &Call,
    outcome: Result<Answer, Refusal>,
    fault: TransactionFault,
) -> Result<Answer, Refusal> {
    match fault {
        TransactionFault::Results(results) => {
            let answer = print(&parse(service, call)?, results);
            Ok(with_idempotency_token(answer, idempotency_token(call)?))
        }
        TransactionFault::FastResponse => {
            outcome.map(|answer| Answer { body: in_fast_mode(&answer.body), ..answer })
        }
    }
}

/// The refusal of the first operation, which makes the writer abort the transaction.
pub(super) fn refusal(results: InjectedResults) -> Refusal {
    Refusal::new(results.operation_status, Layer::Document, MESSAGE)
}

fn print(request: &TransactionRequest, results: InjectedResults) -> Answer {
    let sibling = match request.kind {
        TransactionKind::Write => status::OPERATION_ROLLED_BACK,
        TransactionKind::Read => status::FAILED_DEPENDENCY,
    };
    let printed: Vec<OperationResult> = (0..request.operations.len())
        .map(|index| if index == 0 { results.operation_status } else { sibling })
        .map(|status| OperationResult::failed(status, 0.0))
        .collect();
    let members = AnswerMembers { is_retriable: results.is_retriable, diagnostic: Some(MESSAGE) };
    with_wait(answer(results.status, 0.0, print_answer(&printed, members)), results)
}

fn with_wait(answer: Answer, results: InjectedResults) -> Answer {
    let Some(wait_ms) = results.retry_after_ms else { return answer };
    answer
        .with_header(headers::RETRY_AFTER_MS, wait_ms.to_string())
        .with_header(headers::RETRY_AFTER, wait_ms.div_ceil(1000).to_string())
}
