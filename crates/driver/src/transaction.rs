//! Distributed transactions: writes of several partitions and containers of one account that
//! are applied together or not at all, and reads of several partitions from one snapshot.
//!
//! - `body`: the request body
//! - `answer`: parses the answer of the service, which is untrusted
//! - `sessions`: session tokens of each operation, and those of the results
//! - `token`: idempotency tokens
//! - `runs`: whether a run of a transaction may be a replay
//!
//! Everything here is free of I/O. [`Driver::execute_transaction`](crate::Driver::execute_transaction)
//! runs a [`Transaction`], and `pipeline/retry/transaction.rs` has its retry rules.

mod answer;
mod body;
mod runs;
pub(crate) mod sessions;
mod token;

use std::sync::Arc;

use perihelion_model::partition_key::PartitionKey;
use perihelion_wire::transaction::{BODY_BYTES_MAX, OPERATIONS_MAX};
use serde_json::value::RawValue;

pub(crate) use answer::{Content, parse, promoted_status};
pub use answer::{OperationResult, ResponseMode, TransactionAnswer};
pub(crate) use body::{OperationContext, print};
pub use perihelion_wire::transaction::{IdempotencyToken, TransactionKind, TransactionVerb};
pub use token::new_token;
pub(crate) use token::successor;

use self::runs::Runs;
use crate::error::Error;
use crate::metadata::Container;
use crate::operation::Verb;

/// One operation of a transaction.
#[derive(Debug, Clone)]
pub struct TransactionOperation {
    /// The verb: what the operation does.
    pub verb: TransactionVerb,
    /// The container. It must belong to the account of the transaction.
    pub container: Arc<Container>,
    /// The partition key of the document.
    pub partition_key: PartitionKey,
    /// The id of the document.
    pub id: String,
    /// The document, or the patch with its condition; `None` for a delete and a read.
    pub body: Option<Box<RawValue>>,
    /// The etag that the document must have.
    pub if_match: Option<String>,
    /// The etag of a version that the reader has. If the document still has it, the result of
    /// the read has status 304 and no document.
    pub if_none_match: Option<String>,
    /// A session token of another client, used instead of the driver's own. Only for reads.
    pub session_token: Option<Arc<str>>,
}

impl TransactionOperation {
    /// An operation without a body and without conditions.
    pub fn new(
        verb: TransactionVerb,
        container: &Arc<Container>,
        partition_key: PartitionKey,
        id: impl Into<String>,
    ) -> Self {
        TransactionOperation {
            verb,
            container: Arc::clone(container),
            partition_key,
            id: id.into(),
            body: None,
            if_match: None,
            if_none_match: None,
            session_token: None,
        }
    }
}

/// A distributed transaction.
#[derive(Debug, Clone)]
pub struct Transaction {
    kind: TransactionKind,
    operations: Vec<TransactionOperation>,
    token: IdempotencyToken,
    /// Whether the caller has set the token. If so, another process may have used it before.
    is_token_given: bool,
    runs: Runs,
    /// Whether the limits on operations and bytes are checked before anything is sent. The
    /// limits of the service are not published; the checks use those of our server.
    pub has_limits: bool,
    /// The consistency of a read transaction; `None` for that of the account.
    pub consistency: Option<TransactionConsistency>,
}

/// The consistency level that a read transaction asks for (`x-ms-consistency-level`).
///
/// What a level guarantees depends on the service:
///
/// | level | our server | Azure (preview) |
/// |---|---|---|
/// | `Strong` | one snapshot of the write region; it has every write acknowledged before | one snapshot over all partitions; it has every write acknowledged before |
/// | `BoundedStaleness` | as for `Strong` | one snapshot over all partitions, which may be as old as the account's bound |
/// | `Session` (most accounts) | as for `Strong` | each partition has at least the writes of the session. Microsoft's design document promises no snapshot here. The published service checks that all documents come from one snapshot, but this snapshot may lack a write that was committed just before |
/// | `ConsistentPrefix`, `Eventual` | as for `Strong` | only the check that `Session` has, no other guarantee |
///
/// Our server reads all documents from one view of the store, whatever the level is. A program
/// that needs a snapshot on Azure must ask for `Strong` or `BoundedStaleness`, which the account
/// must have as its default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransactionConsistency {
    /// Every read sees the latest write.
    Strong,
    /// Reads are behind by at most the bound of the account.
    BoundedStaleness,
    /// Reads see the writes of their session.
    Session,
    /// Reads never see writes out of order.
    ConsistentPrefix,
    /// No guarantee of order.
    Eventual,
}

impl TransactionConsistency {
    /// The value of the header.
    pub(crate) fn header(self) -> &'static str {
        match self {
            TransactionConsistency::Strong => "Strong",
            TransactionConsistency::BoundedStaleness => "BoundedStaleness",
            TransactionConsistency::Session => "Session",
            TransactionConsistency::ConsistentPrefix => "ConsistentPrefix",
            TransactionConsistency::Eventual => "Eventual",
        }
    }
}

impl Transaction {
    /// The most operations of a transaction while its limits are checked.
    pub const OPERATIONS_MAX: usize = OPERATIONS_MAX;

    /// The most bytes of the request body while the limits are checked, 2 MiB.
    pub const BYTES_MAX: usize = BODY_BYTES_MAX;

    /// A transaction without operations, with a new idempotency token.
    pub fn new(kind: TransactionKind) -> Self {
        Transaction {
            kind,
            operations: Vec::new(),
            token: new_token(),
            is_token_given: false,
            runs: Runs::default(),
            has_limits: true,
            consistency: None,
        }
    }

    /// Sets the idempotency token, for a replay. The token may have been used before. So the
    /// outcome of a write is unknown until the service decides it, even if no request of this
    /// process reached the service.
    pub fn set_token(&mut self, token: IdempotencyToken) {
        self.token = token;
        self.is_token_given = true;
    }

    /// The idempotency token. A second request with the same token and the same operations gets
    /// the answer of the first.
    pub fn token(&self) -> IdempotencyToken {
        self.token
    }

    /// Begins a run. Returns whether it is a replay: a write whose token may have been used
    /// before, by an earlier run of this transaction or by another process.
    pub(crate) fn begin_run(&self) -> bool {
        let is_repeated = self.runs.begin();
        self.kind == TransactionKind::Write && (is_repeated || self.is_token_given)
    }

    /// Takes back a run that certainly did not use the token.
    pub(crate) fn forget_run(&self) {
        self.runs.forget();
    }

    /// Whether the transaction reads or writes.
    pub fn kind(&self) -> TransactionKind {
        self.kind
    }

    /// The operations, in order.
    pub fn operations(&self) -> &[TransactionOperation] {
        &self.operations
    }

    /// Adds an operation. Refuses a read in a write transaction, a write in a read transaction,
    /// an empty id, and, while the limits are checked, one operation more than
    /// [`Transaction::OPERATIONS_MAX`]. After a refusal the transaction is as it was before.
    pub fn push(&mut self, operation: TransactionOperation) -> Result<(), Error> {
        if operation.verb.kind() != self.kind {
            return Err(Error::input(match self.kind {
                TransactionKind::Write => {
                    "a write transaction cannot read: read first in a read transaction, and write with the \
                     etags that it returned"
                }
                TransactionKind::Read => "a read transaction cannot write: use a write transaction",
            }));
        }
        if operation.id.is_empty() {
            return Err(Error::input("the id of a document is empty"));
        }
        if self.has_limits && self.operations.len() >= OPERATIONS_MAX {
            return Err(Error::input(format!(
                "a transaction holds at most {OPERATIONS_MAX} operations: use fewer, or turn the check off if \
                 the service accepts more"
            )));
        }
        self.operations.push(operation);
        Ok(())
    }

    /// The verb of the pipeline's operation.
    pub(crate) fn verb(&self) -> Verb {
        match self.kind {
            TransactionKind::Write => Verb::WriteTransaction,
            TransactionKind::Read => Verb::ReadTransaction,
        }
    }

    /// Checks the number of operations, before anything is sent.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.operations.is_empty() {
            return Err(Error::input("a transaction needs at least one operation"));
        }
        if self.has_limits && self.operations.len() > OPERATIONS_MAX {
            return Err(Error::input(format!(
                "the transaction has {} operations; at most {OPERATIONS_MAX} are allowed",
                self.operations.len()
            )));
        }
        Ok(())
    }

    /// Checks the size of the request body.
    pub(crate) fn check_bytes(&self, bytes: usize) -> Result<(), Error> {
        if self.has_limits && bytes > BODY_BYTES_MAX {
            return Err(Error::input(format!(
                "the transaction has {bytes} bytes; at most {BODY_BYTES_MAX} are allowed. Write fewer or smaller \
                 documents, or turn the check off if the service accepts more"
            )));
        }
        Ok(())
    }
}

/// The end of a transaction that the service has decided.
#[derive(Debug, Clone)]
pub enum TransactionEnd {
    /// The writes were applied, or the documents were read.
    Completed(TransactionAnswer),
    /// The writes were not applied, or a document could not be read. The error has the status of
    /// the first operation that failed by itself.
    Refused(TransactionAnswer, Error),
}
