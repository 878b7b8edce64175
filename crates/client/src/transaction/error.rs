//! Why a transaction did not succeed. The three cases need different reactions, so they are
//! variants of an enum, and not methods of one error type.

use std::fmt;

use perihelion_driver::Status;
use perihelion_driver::diagnostics::Diagnostics;
use perihelion_driver::transaction::{IdempotencyToken, TransactionAnswer};

use super::results::{TransactionResult, TransactionResults};
use crate::Error;

/// Why a transaction did not succeed.
///
/// | variant | what was written | what to do |
/// |---|---|---|
/// | `Aborted` | nothing | look at the culprits: another writer was faster, or the program is wrong |
/// | `OutcomeUnknown` | all or nothing | commit the same operations with the same token again |
/// | `Failed` | nothing | look at the [`Error`]: the service or the network failed, or the request is wrong |
///
/// A commit whose token may have been used before is never `Failed`: if the service does not
/// decide this commit, the outcome of the earlier commit is still unknown.
///
/// With `?`, a `TransactionError` becomes an [`Error`]: an abort has the status of its first culprit
/// ([`Error::is_conflict`], [`Error::operation_index`]), and an unknown outcome is ambiguous
/// ([`Error::is_ambiguous`]).
#[derive(Debug, Clone)]
pub enum TransactionError {
    /// The service has decided that the transaction fails, because one of its operations failed.
    /// In a read transaction, a document does not exist or cannot be read.
    Aborted(Box<AbortedTransaction>),
    /// The transaction may or may not have been committed: its answer was lost, and the repeats had
    /// no clear answer either, or no time was left to repeat it. Another case: an earlier commit with
    /// the same token may have been applied, and this commit did not find out. Never for reads.
    OutcomeUnknown(UnknownOutcome),
    /// The service did not process the transaction, and no earlier commit used its token.
    Failed(Error),
}

/// A transaction that the service has aborted. Nothing was written.
#[derive(Debug, Clone)]
pub struct AbortedTransaction {
    results: TransactionResults,
    is_retriable: bool,
    next_token: Option<IdempotencyToken>,
    diagnostic: Option<String>,
    error: Error,
}

impl AbortedTransaction {
    pub(super) fn new(mut answer: TransactionAnswer, error: Error) -> Self {
        let (is_retriable, next_token) = (answer.is_retriable, answer.next_token());
        let diagnostic = answer.diagnostic.take();
        let results = TransactionResults::new(answer);
        AbortedTransaction { results, is_retriable, next_token, diagnostic, error }
    }

    /// The operations that failed by themselves, with their index. All others were rolled back
    /// because of them.
    pub fn culprits(&self) -> impl Iterator<Item = (usize, &TransactionResult)> {
        self.results.results().iter().enumerate().filter(|(_, result)| result.is_culprit())
    }

    /// The status of the first culprit, such as 409 or 412. If there is no culprit, the status of
    /// the whole transaction.
    pub fn status(&self) -> Status {
        self.culprits().next().map_or(self.results.status(), |(_, result)| result.status())
    }

    /// All results, with the culprits' own statuses and 453 (or 424) for the others.
    pub fn results(&self) -> &TransactionResults {
        &self.results
    }

    /// Whether the service says that the transaction may succeed when it is tried again. The
    /// client has used up its own retries, or its time.
    /// [`next_token`](AbortedTransaction::next_token) is the token for another try.
    pub fn is_retriable(&self) -> bool {
        self.is_retriable
    }

    /// The token for another try of the same operations
    /// ([`with_idempotency_token`](crate::DistributedWriteTransaction::with_idempotency_token));
    /// `None` if the service does not say that the transaction may succeed.
    ///
    /// Do not try again with a new transaction: it has a random token. The program may replay the
    /// first token later, for example after a crash. Then the client learns that the first try was
    /// aborted, and continues with the token of this method. If the second try has used this token, the
    /// replay finds the outcome of the second try. If the second try has used a random token, the replay
    /// applies the writes again.
    pub fn next_token(&self) -> Option<IdempotencyToken> {
        self.next_token
    }

    /// The service's explanation for a person.
    pub fn diagnostic(&self) -> Option<&str> {
        self.diagnostic.as_deref()
    }

    /// The abort as an error with the status of the first culprit.
    pub fn error(&self) -> &Error {
        &self.error
    }
}

/// A transaction that may or may not have been committed.
#[derive(Debug, Clone)]
pub struct UnknownOutcome {
    token: IdempotencyToken,
    error: Error,
}

impl UnknownOutcome {
    /// The token of the transaction. To find out the outcome, commit the same operations with this
    /// token.
    pub fn idempotency_token(&self) -> IdempotencyToken {
        self.token
    }

    /// The last error.
    pub fn error(&self) -> &Error {
        &self.error
    }
}

impl TransactionError {
    /// The error of a run of a transaction that began with the token `first`. This is not a
    /// `From<Error>`, because the error of any other write has no token.
    pub(super) fn of_run(error: Error, first: IdempotencyToken) -> Self {
        if !error.is_ambiguous() {
            return TransactionError::Failed(error);
        }
        let token = error.diagnostics().idempotency_token().unwrap_or(first);
        TransactionError::OutcomeUnknown(UnknownOutcome { token, error })
    }

    /// Attempts, regions, timings.
    pub fn diagnostics(&self) -> &Diagnostics {
        self.error().diagnostics()
    }

    /// The underlying error.
    pub fn error(&self) -> &Error {
        match self {
            TransactionError::Aborted(aborted) => &aborted.error,
            TransactionError::OutcomeUnknown(unknown) => &unknown.error,
            TransactionError::Failed(error) => error,
        }
    }
}

impl fmt::Display for TransactionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TransactionError::Aborted(aborted) => aborted.error.fmt(f),
            TransactionError::OutcomeUnknown(unknown) => write!(
                f,
                "{}. To find out, commit the same operations again with the idempotency token {}",
                unknown.error, unknown.token
            ),
            TransactionError::Failed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TransactionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.error())
    }
}

impl From<TransactionError> for Error {
    fn from(error: TransactionError) -> Self {
        match error {
            TransactionError::Aborted(aborted) => aborted.error,
            TransactionError::OutcomeUnknown(unknown) => unknown.error,
            TransactionError::Failed(error) => error,
        }
    }
}
