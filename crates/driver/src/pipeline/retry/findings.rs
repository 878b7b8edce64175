//! Findings: what a status or a failure means for an attempt. `rules` has the rule for each
//! finding. No match here has a wildcard arm.

use perihelion_wire::status::{self, Status};
use perihelion_wire::transport::{Failure, FailureKind, Sent};

/// The meaning of the end of an attempt. A write was applied after [`Finding::Done`], and may
/// have been applied after the findings that say "A write may have been applied". After
/// the other findings, a write was certainly not applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Finding {
    /// The service did what was asked, or (304) the resource has not changed.
    Done,
    /// The service refused one operation of a batch, and so the whole batch.
    BatchRefused,
    /// The resource does not exist.
    NotFound,
    /// The state of the data refuses the write: the id exists, or the etag differs.
    RefusedByState,
    /// The service refuses the request, and would refuse it again.
    Refused,
    /// Too many requests, after the retries inside the attempt.
    Throttled,
    /// The service never answers with this status, so the answer comes from another
    /// program. A write may have been applied.
    UnexpectedStatus,
    /// This region does not take writes.
    WriteForbidden,
    /// This region does not know the account.
    AccountUnknown,
    /// This region has not yet applied the writes of the session.
    SessionNotAvailable,
    /// The container, which the service calls the owner, was deleted or recreated.
    OwnerNotFound,
    /// The container was recreated.
    ContainerReplaced,
    /// The range was split, merged or moved.
    RangeMoved,
    /// Another write of the same document is in progress.
    RetryWith,
    /// The replica is gone or out of resources, and did not process the request.
    ReplicaUnavailable,
    /// The partition or the service is unavailable. A write may have been
    /// applied.
    ServiceUnavailable,
    /// The service failed or was too slow. The service or the request may be at fault.
    /// A write may have been applied.
    ServiceFailed,
    /// No connection to the endpoint could be opened.
    Unreachable,
    /// The request was not sent, though the endpoint can be reached: the connection is
    /// closing or has no room, or the time was up before the request was sent.
    ConnectionUnusable,
    /// The request was sent, or may have been, and no answer came. A write may
    /// have been applied.
    AnswerLost,
}

/// The finding for a status. The compiler checks that all status codes are covered.
/// Sub-statuses with a rule of their own come before the other
/// sub-statuses of the same code.
pub(super) fn finding_for_status(status: Status) -> Finding {
    match status {
        Status { code: 0..=199, .. } => Finding::UnexpectedStatus,
        status::MULTI_STATUS | Status { code: 207, .. } => Finding::BatchRefused,
        Status { code: 200..=299, .. } => Finding::Done,
        status::NOT_MODIFIED | Status { code: 304, .. } => Finding::Done,
        Status { code: 300..=399, .. } => Finding::Refused,

        status::COLLECTION_RID_MISMATCH => Finding::ContainerReplaced,
        status::WRITE_FORBIDDEN => Finding::WriteForbidden,
        status::DATABASE_ACCOUNT_NOT_FOUND => Finding::AccountUnknown,
        status::NOT_FOUND => Finding::NotFound,
        status::READ_SESSION_NOT_AVAILABLE => Finding::SessionNotAvailable,
        status::OWNER_RESOURCE_NOT_FOUND => Finding::OwnerNotFound,
        status::REQUEST_TIMEOUT | Status { code: 408, .. } => Finding::ServiceFailed,
        status::CONFLICT | Status { code: 409, .. } => Finding::RefusedByState,
        status::NAME_CACHE_IS_STALE => Finding::ContainerReplaced,
        status::PARTITION_KEY_RANGE_GONE
        | status::COMPLETING_SPLIT
        | status::COMPLETING_PARTITION_MIGRATION => Finding::RangeMoved,
        status::GONE | Status { code: 410, .. } => Finding::ReplicaUnavailable,
        status::PRECONDITION_FAILED | Status { code: 412, .. } => Finding::RefusedByState,
        status::SYSTEM_RESOURCE_UNAVAILABLE => Finding::ReplicaUnavailable,
        status::TOO_MANY_REQUESTS | Status { code: 429, .. } => Finding::Throttled,
        status::RETRY_WITH | Status { code: 449, .. } => Finding::RetryWith,
        Status { code: 400..=499, .. } => Finding::Refused,

        status::SERVICE_UNAVAILABLE | Status { code: 503, .. } => Finding::ServiceUnavailable,
        status::INTERNAL_SERVER_ERROR | Status { code: 500..=599, .. } => Finding::ServiceFailed,
        Status { code: 600..=u16::MAX, .. } => Finding::UnexpectedStatus,
    }
}

/// The finding for an attempt without an answer.
pub(super) fn finding_for_failure(failure: &Failure) -> Finding {
    match (failure.sent, failure.kind) {
        (Sent::No, FailureKind::Connect | FailureKind::Tls) => Finding::Unreachable,
        // With a timeout, the time was up before the request was sent, for example while the
        // request waited for room on an open connection.
        (Sent::No, FailureKind::Closed | FailureKind::Protocol | FailureKind::Timeout) => {
            Finding::ConnectionUnusable
        }
        (
            Sent::Yes | Sent::Unknown,
            FailureKind::Connect
            | FailureKind::Tls
            | FailureKind::Closed
            | FailureKind::Protocol
            | FailureKind::Timeout,
        ) => Finding::AnswerLost,
    }
}
