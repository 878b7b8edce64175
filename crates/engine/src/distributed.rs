//! Distributed transactions: operations on documents of any partitions and containers, all or
//! none of them, and reads of any documents from one snapshot.
//!
//! The engine has one writer, and a view spans the whole store. So a write transaction is one
//! job of the writer and a read transaction is one view: there are no locks, no second phase,
//! and no state between "prepared" and "committed" that could be seen.
//!
//! What always holds:
//! - A transaction takes one LSN in each range that it writes, so a page of a change feed has
//!   everything that the transaction wrote in the range, or nothing of it.
//! - With several regions all its changes are one outbox entry, which another region applies in
//!   one commit.
//! - Its answer is recorded in the same commit ([`crate::ledger`]).
//! - Its work is bounded: by the size of the request, by the bytes of the documents that it changes
//!   ([`DOCUMENT_BYTES_MAX`]), and by the work of its patch conditions ([`CONDITION_WORK_MAX`]).

mod read;
mod work;
mod write;

use std::sync::Arc;

use perihelion_model::partition_key::PartitionKey;
use perihelion_model::session_token::SessionToken;
use perihelion_wire::transaction::{Fingerprint, IdempotencyToken};

pub(crate) use self::read::read;
pub use self::work::{CONDITION_WORK_MAX, ConditionWork, DOCUMENT_BYTES_MAX, READ_BYTES_MAX};
pub(crate) use self::work::{check_containers, check_document_bytes, may_change_many_bytes};
pub(crate) use self::write::commit;
use crate::catalog::Container;
use crate::documents::{ItemOperation, ItemOutcome, Precondition};
use crate::ledger::RecordedAnswer;
use crate::refusal::Refusal;

/// A write transaction.
#[derive(Debug, Clone)]
pub struct DistributedWrite {
    /// The idempotency token.
    pub token: IdempotencyToken,
    /// The fingerprint of the request's body.
    pub fingerprint: Fingerprint,
    /// The operations, in order.
    pub operations: Vec<DistributedOperation>,
}

/// One operation of a write transaction.
#[derive(Debug, Clone)]
pub struct DistributedOperation {
    /// The container, or the refusal if it does not exist. A missing container fails its
    /// operation, and so aborts the transaction.
    pub container: Result<Arc<Container>, Refusal>,
    /// The partition key.
    pub partition_key: PartitionKey,
    /// The id of the document.
    pub id: String,
    /// The operation, or the refusal of its body. Must not be a read.
    pub operation: Result<ItemOperation, Refusal>,
    /// The precondition on the document's etag.
    pub precondition: Precondition,
    /// The session tokens. The operation fails unless this region has applied the writes that they
    /// cover.
    pub session: Vec<SessionToken>,
}

/// One read of a read transaction.
#[derive(Debug, Clone)]
pub struct DistributedRead {
    /// The container, or the refusal if it does not exist.
    pub container: Result<Arc<Container>, Refusal>,
    /// The partition key.
    pub partition_key: PartitionKey,
    /// The id of the document.
    pub id: String,
    /// The precondition on the document's etag.
    pub precondition: Precondition,
    /// The session tokens, or the refusal of a malformed token. The read fails unless this region
    /// has applied the writes that they cover.
    pub session: Result<Vec<SessionToken>, Refusal>,
}

/// The outcome of a write transaction, before it is recorded.
#[derive(Debug, Clone)]
pub struct DistributedOutcome {
    /// The result of each operation. When an operation has failed, nothing was written: the
    /// operations that would have succeeded are refused with `OPERATION_ROLLED_BACK`.
    pub results: Vec<Result<ItemOutcome, Refusal>>,
    /// Whether the transaction was committed.
    pub is_committed: bool,
}

/// The answer to a write transaction.
#[derive(Debug, Clone)]
pub struct DistributedAnswer {
    /// The answer, now recorded.
    pub answer: RecordedAnswer,
    /// Whether the answer was recorded by an earlier request with the same token. Then this
    /// request did nothing.
    pub is_replay: bool,
    /// Request units of each operation; empty for a replay.
    pub charges: Vec<f64>,
}
