//! The results of a transaction, one per operation. A document stays unparsed in the answer's
//! bytes until [`TransactionResult::value`] is called.

use bytes::Bytes;
use perihelion_driver::Status;
use perihelion_driver::diagnostics::Diagnostics;
use perihelion_driver::transaction::{IdempotencyToken, OperationResult, ResponseMode, TransactionAnswer};
use serde::de::DeserializeOwned;

use crate::response::{Receipt, decode};
use crate::{Error, Etag};

/// The results of a transaction, in the order of its operations.
#[derive(Debug, Clone)]
pub struct TransactionResults {
    status: Status,
    results: Vec<TransactionResult>,
    mode: ResponseMode,
    token: IdempotencyToken,
    receipt: Receipt,
}

impl TransactionResults {
    pub(super) fn new(answer: TransactionAnswer) -> Self {
        TransactionResults {
            status: answer.status,
            results: answer.results.into_iter().map(TransactionResult::new).collect(),
            mode: answer.mode,
            token: answer.token,
            receipt: Receipt::split(answer.response).0,
        }
    }

    /// The status of the whole transaction. For writes: 200 for a commit, 452 for an abort. For
    /// reads: 200; 207 if some documents are unchanged; 200/5425 or 304 if all documents are
    /// unchanged. If a read failed, the status of the first read that failed.
    pub fn status(&self) -> Status {
        self.status
    }

    /// One result per operation.
    pub fn results(&self) -> &[TransactionResult] {
        &self.results
    }

    /// The result of one operation, counted from zero.
    pub fn get(&self, index: usize) -> Option<&TransactionResult> {
        self.results.get(index)
    }

    /// The idempotency token that the answer belongs to. It differs from the token that the
    /// commit began with if the service aborted the first try and allowed another one.
    pub fn idempotency_token(&self) -> IdempotencyToken {
        self.token
    }

    /// The mode of the answer to a commit: all writes are applied, or (on some accounts of Azure)
    /// all writes will certainly be applied.
    pub fn mode(&self) -> ResponseMode {
        self.mode
    }

    /// Request units of the whole transaction.
    pub fn charge(&self) -> f64 {
        self.receipt.charge()
    }

    /// Status, headers and diagnostics of the answer.
    pub fn receipt(&self) -> &Receipt {
        &self.receipt
    }

    /// Attempts, regions, timings, warnings.
    pub fn diagnostics(&self) -> &Diagnostics {
        self.receipt.diagnostics()
    }
}

impl<'a> IntoIterator for &'a TransactionResults {
    type Item = &'a TransactionResult;
    type IntoIter = std::slice::Iter<'a, TransactionResult>;

    fn into_iter(self) -> Self::IntoIter {
        self.results.iter()
    }
}

/// The result of one operation of a transaction.
#[derive(Debug, Clone)]
pub struct TransactionResult {
    result: OperationResult,
    etag: Option<Etag>,
}

impl TransactionResult {
    fn new(result: OperationResult) -> Self {
        let etag = result.etag.as_deref().and_then(|etag| Etag::parse(etag).ok());
        TransactionResult { result, etag }
    }

    /// The status: 200, 201 for a new document, 204 for a deletion, 304 for a document that has
    /// not changed. After an abort 453 (or 424) for an operation that would have succeeded.
    pub fn status(&self) -> Status {
        self.result.status
    }

    /// Whether a read found that the document still has the etag that the reader knows.
    pub fn is_unchanged(&self) -> bool {
        self.result.status.code == 304
    }

    /// Whether this operation failed by itself, and so made the transaction fail.
    pub fn is_culprit(&self) -> bool {
        self.result.is_culprit()
    }

    /// The version that was read or written; `None` after a deletion and a failure.
    pub fn etag(&self) -> Option<&Etag> {
        self.etag.as_ref()
    }

    /// The session token of the operation's partition. This client has stored it already; another
    /// process needs it to read this write.
    pub fn session_token(&self) -> Option<&str> {
        self.result.session_token.as_deref()
    }

    /// The request units of this operation.
    pub fn charge(&self) -> f64 {
        self.result.charge
    }

    /// The document as JSON text; empty if the result has none. Most services send a document
    /// only for reads.
    pub fn body(&self) -> &Bytes {
        &self.result.body
    }

    /// The document.
    pub fn value<T: DeserializeOwned>(&self) -> Result<T, Error> {
        if self.is_unchanged() {
            return Err(Error::answer(
                "this result has no document: the document still has the etag that was given",
            ));
        }
        if self.body().is_empty() {
            let status = self.status();
            return Err(Error::answer(format!(
                "this result of the transaction has no document (status {status})"
            )));
        }
        decode(self.body(), &"the document in a transaction's result")
    }
}
