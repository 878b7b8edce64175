//! Parses the answer to a transaction. The answer is untrusted: the parser does not accept an
//! answer that is not JSON, has a wrong number of results, or has a wrong index or status in a
//! result. The memory of the parser is bounded by a few times the size of the body.
//!
//! Some things are tolerated on purpose, because services differ: names of members in any letter
//! case, unknown members, and missing or badly typed members, except the index and the status of
//! a result. So a bad charge, etag or session token never makes a committed transaction look
//! failed.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use bytes::Bytes;
use perihelion_wire::status::{self, Status};
use perihelion_wire::transaction::IdempotencyToken;
use serde::de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::token::successor;
use crate::response::Response;

/// The statuses of operations that did not fail by themselves: another operation failed, so a write
/// was rolled back (453) or a read was withheld (424). Some services use 424 for both.
const ROLLED_BACK: [u16; 2] = [424, status::OPERATION_ROLLED_BACK.code];

/// The most characters of the service's diagnostic text that are kept.
const DIAGNOSTIC_CHARACTERS_MAX: usize = 1024;

/// The answer to a transaction that the service has decided.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TransactionAnswer {
    /// The status of the whole transaction. If the service answered 207 and an operation failed, this is
    /// the status of the first operation that failed by itself, or else of the first that failed at all.
    pub status: Status,
    /// One result for each operation, in the order of the operations.
    pub results: Vec<OperationResult>,
    /// Whether the service says that the transaction may be repeated.
    pub is_retriable: bool,
    /// How far the writes were applied when the service answered.
    pub mode: ResponseMode,
    /// The service's explanation for a person, shortened.
    pub diagnostic: Option<String>,
    /// The idempotency token that the answer belongs to.
    pub token: IdempotencyToken,
    /// The answer as it arrived, with the diagnostics of the whole operation.
    pub response: Response,
}

/// The result of one operation.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct OperationResult {
    /// The status of the operation.
    pub status: Status,
    /// The etag of the document that was read or written.
    pub etag: Option<String>,
    /// The session token of the operation's partition, `{range}:{token}`.
    pub session_token: Option<String>,
    /// The id of the operation's partition key range.
    pub range: Option<String>,
    /// Request units; 0 when the answer does not state them.
    pub charge: f64,
    /// The document as JSON text; empty when the result has none.
    pub body: Bytes,
}

/// How far the writes of a transaction were applied when the service answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ResponseMode {
    /// All writes are applied. An unknown mode counts as this mode.
    #[default]
    Standard,
    /// The service has stored durably that it will apply all writes, and may still be doing so.
    Fast,
}

impl TransactionAnswer {
    /// The token for another try of the same operations; `None` if the service does not say that
    /// the transaction may be repeated. After an abort (452) the service repeats the abort for the
    /// old token, so a new token is needed. The new token is computed from the old one, so that a
    /// replay of the old token leads to the same new token, and the transaction is not applied
    /// twice. After any other answer the token stays the same.
    pub fn next_token(&self) -> Option<IdempotencyToken> {
        let is_aborted = self.response.status.code == status::TRANSACTION_ABORTED.code;
        self.is_retriable.then(|| if is_aborted { successor(self.token) } else { self.token })
    }
}

impl OperationResult {
    /// A result that has only a status.
    pub(crate) fn of_status(status: Status) -> Self {
        OperationResult {
            status,
            etag: None,
            session_token: None,
            range: None,
            charge: 0.0,
            body: Bytes::new(),
        }
    }

    /// Whether the operation failed, by itself or because another one did.
    pub fn is_failure(&self) -> bool {
        self.status.code >= 400
    }

    /// Whether the operation failed by itself, and so is a cause of the transaction's failure. An
    /// operation with the status of the whole abort (452) is not such a cause: the service did not
    /// say which operation failed.
    pub fn is_culprit(&self) -> bool {
        let is_rolled_back = ROLLED_BACK.contains(&self.status.code);
        let is_whole_abort = self.status.code == status::TRANSACTION_ABORTED.code;
        self.is_failure() && !is_rolled_back && !is_whole_abort
    }
}

/// The content of the body of an answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Content {
    pub(crate) is_retriable: bool,
    pub(crate) mode: ResponseMode,
    pub(crate) diagnostic: Option<String>,
    /// One result for each operation, in order; `None` if the answer has fewer or more results,
    /// or a result that cannot be read.
    pub(crate) results: Option<Vec<OperationResult>>,
}

/// Parses the body of an answer to a transaction of this many operations. `None` if the body is
/// not that of a transaction: it is empty, or comes from a gateway, a proxy or another program.
pub(crate) fn parse(body: &Bytes, operations: usize) -> Option<Content> {
    let text = std::str::from_utf8(body).ok()?;
    let [is_retriable, mode, diagnostic, results] =
        members(text, ["isRetriable", "responseMode", "diagnosticString", "operationResponses"])?;
    if is_retriable.is_none() && results.is_none() {
        return None;
    }
    let mode = match mode.and_then(read_text).as_deref() {
        Some("FastResponse") => ResponseMode::Fast,
        _ => ResponseMode::Standard,
    };
    Some(Content {
        is_retriable: is_retriable.and_then(read).unwrap_or(false),
        mode,
        diagnostic: diagnostic
            .and_then(read_text)
            .map(|text| text.chars().take(DIAGNOSTIC_CHARACTERS_MAX).collect()),
        results: results.and_then(|results| parse_results(results, body, operations)),
    })
}

/// The status of a whole transaction: if it is 207, the status of the first operation that
/// failed by itself, or else of the first that failed at all.
pub(crate) fn promoted_status(status: Status, results: &[OperationResult]) -> Status {
    if status.code != status::MULTI_STATUS.code {
        return status;
    }
    let culprit = results.iter().find(|result| result.is_culprit());
    culprit
        .or_else(|| results.iter().find(|result| result.is_failure()))
        .map_or(status, |result| result.status)
}

/// The results in the order of the operations. Every index must occur exactly once.
fn parse_results(list: &RawValue, body: &Bytes, operations: usize) -> Option<Vec<OperationResult>> {
    let list = bounded_list(list.get(), operations)?;
    let mut ordered: Vec<Option<OperationResult>> = vec![None; list.len()];
    for result in list {
        let (index, result) = parse_result(result, body)?;
        let place = ordered.get_mut(index).filter(|place| place.is_none())?;
        *place = Some(result);
    }
    // Nothing is missing: there are as many results as places, and no place was used twice.
    ordered.into_iter().collect::<Option<Vec<_>>>().filter(|results| results.len() == operations)
}

fn parse_result(result: &RawValue, body: &Bytes) -> Option<(usize, OperationResult)> {
    let names = [
        "index",
        "statusCode",
        "subStatusCode",
        "eTag",
        "sessionToken",
        "partitionKeyRangeId",
        "requestCharge",
        "resourceBody",
    ];
    let [index, code, sub, etag, session_token, range, charge, document] = members(result.get(), names)?;
    let code = read::<u16>(code?).filter(|code| (100..1000).contains(code))?;
    // Some services write the id of a range as a string, others as a number.
    let range =
        range.and_then(|range| read_text(range).or_else(|| read::<u64>(range).map(|id| id.to_string())));
    let document = document.map(RawValue::get).filter(|text| *text != "null");
    let result = OperationResult {
        status: Status::new(code, sub.and_then(read).unwrap_or(0)),
        etag: etag.and_then(read_text),
        session_token: session_token.and_then(read_text).map(|token| joined_token(token, range.as_deref())),
        charge: charge.and_then(read::<f64>).filter(|charge| *charge >= 0.0).unwrap_or(0.0),
        body: document.map_or_else(Bytes::new, |text| body.slice_ref(text.as_bytes())),
        range,
    };
    Some((read(index?)?, result))
}

/// A session token with its range. Earlier versions of the service sent the token without the range,
/// and the range in another member of the result.
fn joined_token(token: String, range: Option<&str>) -> String {
    match range {
        Some(range) if !token.contains(':') => format!("{range}:{token}"),
        Some(_) | None => token,
    }
}

fn read<'a, T: Deserialize<'a>>(value: &'a RawValue) -> Option<T> {
    serde_json::from_str(value.get()).ok()
}

fn read_text(value: &RawValue) -> Option<String> {
    read(value)
}

/// The members of a JSON object that have these names, in any letter case; `None` if the text is
/// not a JSON object. All other members are skipped.
fn members<'a, const COUNT: usize>(
    text: &'a str,
    names: [&'static str; COUNT],
) -> Option<[Option<&'a RawValue>; COUNT]> {
    struct Members<'a, const COUNT: usize> {
        names: [&'static str; COUNT],
        lifetime: PhantomData<&'a ()>,
    }

    impl<'a, const COUNT: usize> Visitor<'a> for Members<'a, COUNT> {
        type Value = [Option<&'a RawValue>; COUNT];

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut found = [None; COUNT];
            while let Some(name) = map.next_key::<Cow<'a, str>>()? {
                match self.names.iter().position(|known| known.eq_ignore_ascii_case(&name)) {
                    Some(index) => found[index] = Some(map.next_value::<&'a RawValue>()?),
                    None => drop(map.next_value::<IgnoredAny>()?),
                }
            }
            Ok(found)
        }
    }

    let mut deserializer = serde_json::Deserializer::from_str(text);
    let found = deserializer.deserialize_map(Members { names, lifetime: PhantomData }).ok()?;
    deserializer.end().ok()?;
    Some(found)
}

/// The elements of a JSON array; `None` if the text is not an array, or has more than `most`
/// elements.
fn bounded_list(text: &str, most: usize) -> Option<Vec<&RawValue>> {
    struct Bounded<'a> {
        most: usize,
        lifetime: PhantomData<&'a ()>,
    }

    impl<'a> Visitor<'a> for Bounded<'a> {
        type Value = Vec<&'a RawValue>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array")
        }

        fn visit_seq<A: SeqAccess<'a>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut elements = Vec::new();
            while let Some(element) = list.next_element()? {
                if elements.len() == self.most {
                    return Err(A::Error::custom("too many elements"));
                }
                elements.push(element);
            }
            Ok(elements)
        }
    }

    serde_json::Deserializer::from_str(text).deserialize_seq(Bounded { most, lifetime: PhantomData }).ok()
}

#[cfg(test)]
mod tests;
