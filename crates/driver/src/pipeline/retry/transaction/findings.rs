//! Findings of transactions: what the end of an attempt means.

use perihelion_wire::status::{self, Status};

use super::super::effects::{Effect, Effects};
use super::super::findings::{Finding, finding_for_failure};
use super::{Results, TransactionEnding};

/// A finding: what the end of an attempt of a transaction means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TransactionFinding {
    /// The transaction was committed, or its documents were read.
    Done,
    /// The service says that the transaction succeeded, but sends no complete results. Or the
    /// status and the results of a write contradict each other, so that it may have been applied.
    Unreadable,
    /// The service has aborted the transaction, and says that it may be repeated.
    AbortedRetriable,
    /// The service has decided that the transaction fails.
    Refused,
    /// The service says that it has aborted the transaction, but sends no results. So it is not
    /// known whether the transaction may be repeated.
    AbortedWithoutResults,
    /// The service did not process the request, and would refuse it again.
    NotProcessed,
    /// The service failed while it worked on the transaction, and says in the body that the same
    /// request may be repeated.
    Retriable,
    /// The service refused the transaction, and says in the body that the same request may be
    /// repeated.
    RefusedRetriable,
    /// The coordinator is stuck, or another request with this token is running.
    CoordinatorBusy,
    /// The infrastructure of transactions failed.
    InfrastructureFailed,
    /// Too many requests, after the retries inside the attempt.
    Throttled,
    /// This region does not take transactions, or does not know the account.
    NotWriteRegion,
    /// The service is unavailable or failed.
    Unavailable,
    /// The service asks for a retry in a way that is not part of the protocol, the status and the
    /// results contradict each other, or the answer comes from another program.
    Unexpected,
    /// No connection to the endpoint could be opened.
    Unreachable,
    /// The request was not sent, though the endpoint can be reached.
    ConnectionUnusable,
    /// The request was sent, or may have been, and no answer came.
    AnswerLost,
}

/// The outcome of a transaction's writes, as far as an attempt shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteOutcome {
    /// The service has said what became of the transaction with this token.
    Decided,
    /// The attempt changed nothing. What was unknown before is still unknown.
    Unchanged,
    /// The writes were applied, or may have been.
    Unknown,
}

/// The finding for an ending.
pub(super) fn finding_for(is_write: bool, ending: TransactionEnding<'_>) -> TransactionFinding {
    match ending {
        TransactionEnding::Failed(failure) => match finding_for_failure(failure) {
            Finding::Unreachable => TransactionFinding::Unreachable,
            Finding::ConnectionUnusable => TransactionFinding::ConnectionUnusable,
            Finding::AnswerLost
            | Finding::Done
            | Finding::BatchRefused
            | Finding::NotFound
            | Finding::RefusedByState
            | Finding::Refused
            | Finding::Throttled
            | Finding::UnexpectedStatus
            | Finding::WriteForbidden
            | Finding::AccountUnknown
            | Finding::SessionNotAvailable
            | Finding::OwnerNotFound
            | Finding::ContainerReplaced
            | Finding::RangeMoved
            | Finding::RetryWith
            | Finding::ReplicaUnavailable
            | Finding::ServiceUnavailable
            | Finding::ServiceFailed => TransactionFinding::AnswerLost,
        },
        TransactionEnding::Answered { status, results, is_retriable, retry_after: None | Some(..) } => {
            match (status.code, results) {
                (200..=299, Results::Succeeded) => TransactionFinding::Done,
                (207, Results::Failed) => finding_for_refusal(status, is_retriable),
                // A commit has no failed operations, so either the status or the results are
                // wrong. A retry with the same token shows which.
                (200..=206 | 208..=299, Results::Failed) if is_write => TransactionFinding::Unreadable,
                (200..=206 | 208..=299, Results::Failed) => TransactionFinding::Done,
                (200..=299, Results::None | Results::Incomplete) => TransactionFinding::Unreadable,
                // All documents of a read are unchanged. HTTP layers drop the body of a 304.
                (304, Results::None | Results::Incomplete | Results::Succeeded | Results::Failed)
                    if !is_write =>
                {
                    TransactionFinding::Done
                }
                (400..=599, Results::Failed) => finding_for_refusal(status, is_retriable),
                // The status and the results contradict each other. A retry with a new token could
                // apply the writes twice.
                (452, Results::Succeeded) if is_write && is_retriable => TransactionFinding::Unreadable,
                (400..=599, Results::Incomplete | Results::Succeeded) if is_retriable => {
                    finding_for_refusal(status, true)
                }
                (452, Results::None | Results::Incomplete | Results::Succeeded) => {
                    TransactionFinding::AbortedWithoutResults
                }
                // The status and the results contradict each other.
                (400..=451 | 453..=599, Results::Succeeded) => TransactionFinding::Unexpected,
                (
                    0..=199 | 300..=u16::MAX,
                    Results::None | Results::Incomplete | Results::Succeeded | Results::Failed,
                ) => finding_for_status(status),
            }
        }
    }
}

/// The finding for an answer that says what became of the transaction, or that it may be
/// repeated.
fn finding_for_refusal(status: Status, is_retriable: bool) -> TransactionFinding {
    match (status.code, is_retriable) {
        (452, true) => TransactionFinding::AbortedRetriable,
        (408 | 410 | 449 | 500..=u16::MAX, true) => TransactionFinding::Retriable,
        (0..=407 | 409 | 411..=448 | 450 | 451 | 453..=499, true) => TransactionFinding::RefusedRetriable,
        // The service failed while it worked on the transaction, so the status is not its decision.
        (408 | 410 | 429 | 449 | 500..=u16::MAX, false) => finding_for_status(status),
        (0..=407 | 409 | 411..=428 | 430..=448 | 450..=499, false) => TransactionFinding::Refused,
    }
}

/// The finding by the status alone, for an answer without results, or with results that do not say
/// what became of the transaction.
fn finding_for_status(status: Status) -> TransactionFinding {
    match status {
        status::WRITE_FORBIDDEN | status::DATABASE_ACCOUNT_NOT_FOUND => TransactionFinding::NotWriteRegion,
        status::REQUEST_TIMEOUT | Status { code: 408, .. } | status::TRANSACTION_IN_PROGRESS => {
            TransactionFinding::CoordinatorBusy
        }
        status::GONE | Status { code: 410, .. } => TransactionFinding::Unavailable,
        status::TOO_MANY_REQUESTS | Status { code: 429, .. } => TransactionFinding::Throttled,
        status::RETRY_WITH | Status { code: 449, .. } => TransactionFinding::Unexpected,
        status::TRANSACTION_ABORTED | Status { code: 452, .. } => TransactionFinding::Refused,
        Status { code: 300..=499, .. } => TransactionFinding::NotProcessed,
        status::TRANSACTION_LEDGER_FAILED
        | status::TRANSACTION_ACCOUNT_FAILED
        | status::TRANSACTION_DISPATCH_FAILED => TransactionFinding::InfrastructureFailed,
        Status { code: 500..=599, .. } => TransactionFinding::Unavailable,
        Status { code: 0..=299 | 600..=u16::MAX, .. } => TransactionFinding::Unexpected,
    }
}

/// The outcome of the writes, as far as a finding shows it.
pub(super) fn outcome_of(finding: TransactionFinding, is_replay: bool) -> WriteOutcome {
    match finding {
        TransactionFinding::Done | TransactionFinding::Refused => WriteOutcome::Decided,
        // The earlier run with this token had the same answer, and may have continued with the
        // next token.
        TransactionFinding::AbortedRetriable if is_replay => WriteOutcome::Unchanged,
        TransactionFinding::AbortedRetriable => WriteOutcome::Decided,
        // These attempts applied nothing, and do not show what earlier attempts did. This includes
        // an abort without results: the missing results may have said that the transaction may be
        // repeated, and an earlier run may have continued with the next token.
        TransactionFinding::AbortedWithoutResults
        | TransactionFinding::NotProcessed
        | TransactionFinding::RefusedRetriable
        | TransactionFinding::Throttled
        | TransactionFinding::NotWriteRegion
        | TransactionFinding::Unreachable
        | TransactionFinding::ConnectionUnusable => WriteOutcome::Unchanged,
        TransactionFinding::Unreadable
        | TransactionFinding::Retriable
        | TransactionFinding::CoordinatorBusy
        | TransactionFinding::InfrastructureFailed
        | TransactionFinding::Unavailable
        | TransactionFinding::Unexpected
        | TransactionFinding::AnswerLost => WriteOutcome::Unknown,
    }
}

/// The effects of a finding. The write region may have moved if it does not take transactions,
/// or does not answer.
pub(super) fn effects_of(finding: TransactionFinding) -> Effects {
    match finding {
        TransactionFinding::NotWriteRegion
        | TransactionFinding::Unavailable
        | TransactionFinding::Unreachable
        | TransactionFinding::AnswerLost => Effects::one(Effect::RefreshAccount),
        TransactionFinding::Done
        | TransactionFinding::Unreadable
        | TransactionFinding::AbortedRetriable
        | TransactionFinding::Refused
        | TransactionFinding::AbortedWithoutResults
        | TransactionFinding::NotProcessed
        | TransactionFinding::Retriable
        | TransactionFinding::RefusedRetriable
        | TransactionFinding::CoordinatorBusy
        | TransactionFinding::InfrastructureFailed
        | TransactionFinding::Throttled
        | TransactionFinding::Unexpected
        | TransactionFinding::ConnectionUnusable => Effects::NONE,
    }
}
