//! Judges the end of one operation of a bulk: a pure function from the status of the
//! operation, or the error of its request, to a verdict.
//!
//! What always holds: an operation that may have been applied is never reported as a plain
//! failure, and is sent again only if it may be repeated. A read is never ambiguous.

use perihelion_driver::{Error, ErrorKind, Status};
use perihelion_wire::status;

use super::operation::BulkOperation;
use crate::handle::is_status_gone;

/// What to do with an operation after an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The operation was applied, or has read its document.
    Applied,
    /// A repeated delete found no document: an earlier attempt has deleted it.
    AlreadyDeleted,
    /// The operation ends with an error.
    Ended {
        /// Whether the operation may have been applied.
        is_ambiguous: bool,
    },
    /// The operation is sent again.
    Again(RetryReason),
}

/// Why an operation is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryReason {
    /// The service throttled it.
    Throttled,
    /// Its physical partition was split, merged or moved.
    Moved,
    /// The service did not carry it out, and may carry it out when it is sent again.
    NotTried,
    /// Its result did not fit into the response, so the service did not carry it out. Fewer
    /// operations share the next request.
    ResponseFull,
    /// Its answer was lost, and it may be repeated.
    Lost,
    /// The service refused the whole request because of one of its operations. Fewer
    /// operations share the next request.
    InSmallerRequest,
}

/// Judges the result of one operation. `may_have_applied` says whether an earlier attempt
/// may have been applied.
pub(super) fn judge_result(operation: &BulkOperation, may_have_applied: bool, result: Status) -> Verdict {
    match result {
        Status { code: 200..=299, .. } | status::NOT_MODIFIED | Status { code: 304, .. } => Verdict::Applied,
        // With another sub-status a 404 says nothing about the document.
        status::NOT_FOUND if may_have_applied && operation.is_plain_delete() => Verdict::AlreadyDeleted,
        status::GONE | Status { code: 410, .. } => Verdict::Again(RetryReason::Moved),
        status::RESPONSE_FULL => Verdict::Again(RetryReason::ResponseFull),
        status::FAILED_DEPENDENCY | Status { code: 424, .. } => Verdict::Again(RetryReason::NotTried),
        status::TOO_MANY_REQUESTS | Status { code: 429, .. } => Verdict::Again(RetryReason::Throttled),
        status::RETRY_WITH | Status { code: 449, .. } => Verdict::Again(RetryReason::NotTried),
        // The service failed, or returned a status that it does not document. The operation may have
        // been applied.
        status::REQUEST_TIMEOUT | Status { code: 408, .. } => lost(operation),
        Status { code: 0..=199 | 500..=u16::MAX, .. } => lost(operation),
        Status { code: 300..=499, .. } => ended(operation, may_have_applied),
    }
}

/// Judges an operation whose whole request failed. `operations` is the number of operations
/// of that request.
pub(super) fn judge_failure(
    operation: &BulkOperation,
    may_have_applied: bool,
    operations: usize,
    error: &Error,
) -> Verdict {
    // After an answer that cannot be understood, the operation may have been applied.
    if error.is_ambiguous() || error.kind() == ErrorKind::Answer {
        return lost(operation);
    }
    if is_status_gone(error) {
        return Verdict::Again(RetryReason::Moved);
    }
    if error.is_throttled() {
        return Verdict::Again(RetryReason::Throttled);
    }
    let is_request_refused = error.status().is_some_and(|status| {
        status.code == status::BAD_REQUEST.code || status.code == status::TOO_LARGE.code
    });
    if is_request_refused && operations > 1 {
        return Verdict::Again(RetryReason::InSmallerRequest);
    }
    ended(operation, may_have_applied)
}

/// The verdict on an operation that may have been applied by this attempt.
pub(super) fn lost(operation: &BulkOperation) -> Verdict {
    if operation.may_be_repeated() { Verdict::Again(RetryReason::Lost) } else { ended(operation, true) }
}

/// The verdict on an operation that is not sent again.
pub(super) fn ended(operation: &BulkOperation, may_have_applied: bool) -> Verdict {
    Verdict::Ended { is_ambiguous: may_have_applied && !operation.is_read() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Etag, Patch};
    use serde_json::json;

    fn check(operation: &BulkOperation, may_have_applied: bool, code: u16, expected: Verdict) {
        let verdict = judge_result(operation, may_have_applied, Status::from(code));
        assert_eq!(verdict, expected, "{} {code}, applied before: {may_have_applied}", operation.name());
    }

    #[test]
    fn a_lost_operation_is_sent_again_only_if_it_may_be_repeated() {
        let document = json!({"id": "a"});
        let etag = Etag::parse("\"1\"").unwrap();
        let upsert = BulkOperation::upsert("k", &document).unwrap();
        let create = BulkOperation::create("k", &document).unwrap();
        let guarded = upsert.clone().with_if_match(&etag);
        let increment = BulkOperation::patch("k", "a", &Patch::new().increment("/n", 1).unwrap()).unwrap();
        let set = BulkOperation::patch("k", "a", &Patch::new().set("/n", 1).unwrap()).unwrap();
        let read = BulkOperation::read("k", "a").unwrap();
        let delete = BulkOperation::delete("k", "a").unwrap();
        for code in [408, 500, 503, 0, 999] {
            for repeated in [&upsert, &set, &read, &delete, &create.clone().repeat_if_lost()] {
                check(repeated, false, code, Verdict::Again(RetryReason::Lost));
            }
            for once in [&create, &guarded, &increment] {
                check(once, false, code, Verdict::Ended { is_ambiguous: true });
            }
        }
    }

    #[test]
    fn a_refusal_after_a_lost_answer_is_ambiguous_except_for_reads_and_plain_deletes() {
        let create = BulkOperation::create("k", &json!({"id": "a"})).unwrap();
        let replace = BulkOperation::replace("k", "a", &json!({"id": "a"})).unwrap();
        let read = BulkOperation::read("k", "a").unwrap();
        let delete = BulkOperation::delete("k", "a").unwrap();
        let guarded = delete.clone().with_if_match(&Etag::parse("\"1\"").unwrap());
        check(&create, false, 409, Verdict::Ended { is_ambiguous: false });
        check(&create, true, 409, Verdict::Ended { is_ambiguous: true });
        check(&replace, true, 404, Verdict::Ended { is_ambiguous: true });
        check(&read, true, 404, Verdict::Ended { is_ambiguous: false });
        check(&delete, false, 404, Verdict::Ended { is_ambiguous: false });
        check(&delete, true, 404, Verdict::AlreadyDeleted);
        check(&guarded, true, 404, Verdict::Ended { is_ambiguous: true });
    }

    #[test]
    fn operations_that_were_not_tried_are_sent_again() {
        let create = BulkOperation::create("k", &json!({"id": "a"})).unwrap();
        check(&create, false, 429, Verdict::Again(RetryReason::Throttled));
        check(&create, false, 410, Verdict::Again(RetryReason::Moved));
        check(&create, false, 424, Verdict::Again(RetryReason::NotTried));
        check(&create, false, 449, Verdict::Again(RetryReason::NotTried));
        check(&create, false, 413, Verdict::Ended { is_ambiguous: false });
        let cut = judge_result(&create, false, status::RESPONSE_FULL);
        assert_eq!(cut, Verdict::Again(RetryReason::ResponseFull));
    }

    #[test]
    fn a_request_that_is_refused_whole_is_divided() {
        let create = BulkOperation::create("k", &json!({"id": "a"})).unwrap();
        let refused = |code: u16| {
            let response = perihelion_driver::Response {
                status: Status::from(code),
                headers: http::HeaderMap::new(),
                body: bytes::Bytes::new(),
                diagnostics: perihelion_driver::diagnostics::Diagnostics::default(),
            };
            Error::batch_refused(0, Status::from(code), String::new(), response)
        };
        let bad = refused(400);
        assert_eq!(judge_failure(&create, false, 2, &bad), Verdict::Again(RetryReason::InSmallerRequest));
        assert_eq!(judge_failure(&create, false, 1, &bad), Verdict::Ended { is_ambiguous: false });
        assert_eq!(judge_failure(&create, true, 1, &bad), Verdict::Ended { is_ambiguous: true });
        assert_eq!(judge_failure(&create, false, 2, &refused(403)), Verdict::Ended { is_ambiguous: false });
        assert_eq!(judge_failure(&create, false, 2, &refused(429)), Verdict::Again(RetryReason::Throttled));
        assert_eq!(judge_failure(&create, false, 2, &refused(410)), Verdict::Again(RetryReason::Moved));
    }
}
