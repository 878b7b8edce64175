//! What the ending of an attempt means: every status and sub-status, and every
//! failure, becomes one [`Finding`].
//!
//! The compiler checks that the ranges cover all numbers; sub-statuses with a
//! meaning of their own are named before the rest of their code.

use perihelion_wire::transport::{Failure, FailureKind, Sent};

use perihelion_wire::status::{self, Status};

/// What an ending means. Unless it says otherwise, a write that ended so was
/// certainly not applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Finding {
    /// The service did what was asked; or, to a condition, had nothing new.
    Done,
    /// The service took the batch and refused one of its operations.
    BatchRefused,
    /// There is no such resource.
    Absent,
    /// The data are not as the write wants them: the id is taken, the etag is
    /// another one.
    RefusedByState,
    /// The request is refused, and always will be.
    Refused,
    /// Too many requests, after the transport pipeline's own retries.
    Throttled,
    /// Not an answer of this service. A write may have been applied.
    Nonsense,
    /// This region takes no writes.
    WriteForbidden,
    /// This region does not know the account.
    AccountUnknown,
    /// This region has not yet seen what the session has.
    SessionBehind,
    /// The container is gone, or was recreated.
    OwnerGone,
    /// The container was recreated.
    ContainerReplaced,
    /// The range was split, merged or moved.
    RangeMoved,
    /// Another write of the same document is under way.
    RetryWith,
    /// The replica is gone or out of resources, and did not take the request.
    NotTaken,
    /// The partition or the service is unavailable. A write may have been
    /// applied.
    Unavailable,
    /// The service failed or was too slow: its fault, or the request's. A
    /// write may have been applied.
    Failing,
    /// The endpoint could not be reached.
    Unreachable,
    /// An open connection did not take the request (it is closing, or full).
    TurnedAway,
    /// The request went out, or may have, and no answer came. A write may have
    /// been applied.
    AnswerLost,
}

/// What a status means.
pub(super) fn answer(status: Status) -> Finding {
    match status {
        Status { code: 0..=199, .. } => Finding::Nonsense,
        status::MULTI_STATUS | Status { code: 207, .. } => Finding::BatchRefused,
        Status { code: 200..=299, .. } => Finding::Done,
        status::NOT_MODIFIED | Status { code: 304, .. } => Finding::Done,
        Status { code: 300..=399, .. } => Finding::Refused,

        status::COLLECTION_RID_MISMATCH => Finding::ContainerReplaced,
        status::WRITE_FORBIDDEN => Finding::WriteForbidden,
        status::DATABASE_ACCOUNT_NOT_FOUND => Finding::AccountUnknown,
        status::NOT_FOUND => Finding::Absent,
        status::READ_SESSION_NOT_AVAILABLE => Finding::SessionBehind,
        status::OWNER_RESOURCE_NOT_FOUND => Finding::OwnerGone,
        status::REQUEST_TIMEOUT | Status { code: 408, .. } => Finding::Failing,
        status::CONFLICT | Status { code: 409, .. } => Finding::RefusedByState,
        status::NAME_CACHE_IS_STALE => Finding::ContainerReplaced,
        status::PARTITION_KEY_RANGE_GONE
        | status::COMPLETING_SPLIT
        | status::COMPLETING_PARTITION_MIGRATION => Finding::RangeMoved,
        status::GONE | Status { code: 410, .. } => Finding::NotTaken,
        status::PRECONDITION_FAILED | Status { code: 412, .. } => Finding::RefusedByState,
        status::SYSTEM_RESOURCE_UNAVAILABLE => Finding::NotTaken,
        status::TOO_MANY_REQUESTS | Status { code: 429, .. } => Finding::Throttled,
        status::RETRY_WITH | Status { code: 449, .. } => Finding::RetryWith,
        Status { code: 400..=499, .. } => Finding::Refused,

        status::SERVICE_UNAVAILABLE | Status { code: 503, .. } => Finding::Unavailable,
        status::INTERNAL_SERVER_ERROR | Status { code: 500..=599, .. } => Finding::Failing,
        Status { code: 600..=u16::MAX, .. } => Finding::Nonsense,
    }
}

/// What a failure means.
pub(super) fn failure(failure: &Failure) -> Finding {
    match (failure.sent, failure.kind) {
        (Sent::No, FailureKind::Connect | FailureKind::Tls) => Finding::Unreachable,
        // A timeout here was spent waiting for room on a connection that stands.
        (Sent::No, FailureKind::Closed | FailureKind::Protocol | FailureKind::Timeout) => Finding::TurnedAway,
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
