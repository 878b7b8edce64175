//! The answer of a distributed transaction: the results of its operations, and its own status.

use perihelion_model::json;

use crate::status::{self, Status};

/// The `responseMode` of an answer with the final outcome.
pub const STANDARD_RESPONSE_MODE: &str = "Standard";
/// The `responseMode` of the answer to a commit that is durable but perhaps not applied yet.
pub const FAST_RESPONSE_MODE: &str = "FastResponse";

/// The result of one operation.
#[derive(Debug, Clone, PartialEq)]
pub struct OperationResult {
    /// The status of the operation.
    pub status: Status,
    /// The etag of the document that was written or read; `None` after a delete and a failure.
    pub etag: Option<String>,
    /// The session token of the operation's partition, `{range}:{token}`.
    pub session_token: Option<String>,
    /// The id of the operation's partition key range.
    pub partition_key_range_id: Option<u32>,
    /// The LSN of a write in its range. No published SDK uses it, but the tests of the SDKs compare
    /// it.
    pub local_lsn: Option<u64>,
    /// Request units.
    pub request_charge: f64,
    /// The text of the document that was read, as JSON.
    pub body: Option<bytes::Bytes>,
}

impl OperationResult {
    /// The result of an operation that failed or was undone.
    pub fn failed(status: Status, request_charge: f64) -> Self {
        OperationResult {
            status,
            etag: None,
            session_token: None,
            partition_key_range_id: None,
            local_lsn: None,
            request_charge,
            body: None,
        }
    }
}

/// The most characters of the `diagnosticString`. It is limited because it may quote the request,
/// and because the answer of a write transaction is stored.
pub const DIAGNOSTIC_CHARACTERS_MAX: usize = 400;

/// The members of an answer besides its results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AnswerMembers<'a> {
    /// Whether the transaction may be repeated.
    pub is_retriable: bool,
    /// A sentence for a person. It is cut after [`DIAGNOSTIC_CHARACTERS_MAX`].
    pub diagnostic: Option<&'a str>,
}

/// Prints the body of an answer.
pub fn print_answer(results: &[OperationResult], members: AnswerMembers<'_>) -> String {
    let bodies: usize = results.iter().filter_map(|result| result.body.as_ref()).map(bytes::Bytes::len).sum();
    // An estimate: 96 bytes around the results, and 220 bytes for each result besides its body.
    let mut out = String::with_capacity(96 + 220 * results.len() + bodies);
    out.push_str(if members.is_retriable { "{\"isRetriable\":true" } else { "{\"isRetriable\":false" });
    out.push_str(",\"responseMode\":\"");
    out.push_str(STANDARD_RESPONSE_MODE);
    out.push('"');
    if let Some(diagnostic) = members.diagnostic {
        out.push_str(",\"diagnosticString\":");
        json::print_string(&mut out, cut(diagnostic));
    }
    out.push_str(",\"operationResponses\":[");
    for (index, result) in results.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        print_result(&mut out, index, result);
    }
    out.push_str("]}");
    out
}

/// Changes the mode of a printed answer to [`FAST_RESPONSE_MODE`]. Bytes that are not a printed
/// answer stay as they are.
pub fn in_fast_mode(answer: &bytes::Bytes) -> bytes::Bytes {
    let mode = |name: &str| format!(",\"responseMode\":\"{name}\"");
    match std::str::from_utf8(answer) {
        // The mode is the second member, so it comes before any text from the request.
        Ok(text) => text.replacen(&mode(STANDARD_RESPONSE_MODE), &mode(FAST_RESPONSE_MODE), 1).into(),
        Err(_) => answer.clone(),
    }
}

fn cut(diagnostic: &str) -> &str {
    let end = diagnostic.char_indices().nth(DIAGNOSTIC_CHARACTERS_MAX).map_or(diagnostic.len(), |(at, _)| at);
    &diagnostic[..end]
}

fn print_result(out: &mut String, index: usize, result: &OperationResult) {
    use std::fmt::Write;
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "{{\"index\":{index},\"statusCode\":{},\"subStatusCode\":{}",
        result.status.code, result.status.sub
    );
    if let Some(etag) = &result.etag {
        out.push_str(",\"eTag\":");
        json::print_string(out, etag);
    }
    if let Some(token) = &result.session_token {
        out.push_str(",\"sessionToken\":");
        json::print_string(out, token);
    }
    if let Some(range) = result.partition_key_range_id {
        let _ = write!(out, ",\"partitionKeyRangeId\":\"{range}\"");
    }
    if let Some(lsn) = result.local_lsn {
        let _ = write!(out, ",\"localLsn\":{lsn}");
    }
    // The charge has at most two decimal digits, as everywhere.
    let charge = (result.request_charge * 100.0).round() / 100.0;
    let _ = write!(out, ",\"requestCharge\":{charge},\"isRetriable\":false");
    if let Some(body) = result.body.as_deref().and_then(|body| std::str::from_utf8(body).ok()) {
        out.push_str(",\"resourceBody\":");
        out.push_str(body);
    }
    out.push('}');
}

/// The status of a whole read transaction, by the statuses of its reads:
///
/// - Without failures: 200 if all documents were found, 207 if some are unchanged, 200/5425 if
///   all are unchanged.
/// - With failures: the status of the failures if it is the same for all. If their codes differ,
///   207. If only their sub-statuses differ, their code without a sub-status.
pub fn status_of_read_transaction(statuses: &[Status]) -> Status {
    let failures: Vec<Status> = statuses.iter().copied().filter(|status| !status.is_success()).collect();
    if let Some(first) = failures.first() {
        if failures.iter().any(|failure| failure.code != first.code) {
            return status::MULTI_STATUS;
        }
        let sub = if failures.iter().all(|failure| failure.sub == first.sub) { first.sub } else { 0 };
        return Status::new(first.code, sub);
    }
    let unchanged = statuses.iter().filter(|status| **status == status::NOT_MODIFIED).count();
    match unchanged {
        0 => status::OK,
        count if count == statuses.len() => status::TRANSACTION_ALL_UNCHANGED,
        _ => status::MULTI_STATUS,
    }
}
