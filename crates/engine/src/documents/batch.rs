//! Batches: several item operations in one request, for one logical partition,
//! or (bulk) for one physical partition with a key per operation.
//!
//! An atomic batch performs either all its writes, under one LSN, or none. A batch that is not
//! atomic gives each write an LSN of its own. When an operation of such a batch fails, the
//! earlier writes stay. The batch then stops, or continues if the client asked for that. A
//! batch without the header `x-ms-cosmos-batch-atomic` is not atomic.

use std::sync::Arc;

use perihelion_model::partition_key::PartitionKey;
use perihelion_wire::status;

use super::items::{self, ItemOperation, ItemOutcome, Precondition, Target, Usage, WriteStamps};
use crate::catalog::Container;
use crate::keys::RangeId;
use crate::refusal::{Layer, Refusal};
use crate::state::Position;
use crate::transaction::Transaction;

/// The most operations a batch may have. The server checks it.
pub const OPERATIONS_MAX: usize = 100;

/// The most bytes of documents that a bulk request returns. The service answers with at most 4 MB.
const RESPONSE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// One operation of a batch.
#[derive(Debug, Clone)]
pub struct BatchOperation {
    /// The operation, or the refusal of its body. An invalid body fails its operation,
    /// not the whole request.
    pub operation: Result<ItemOperation, Refusal>,
    /// The precondition on the document's etag.
    pub precondition: Precondition,
    /// The partition key of a bulk operation. In a batch for one logical partition it is
    /// `None` or the key of the batch; another key fails the operation.
    pub partition_key: Option<PartitionKey>,
}

/// A whole batch.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The partition of the batch.
    pub scope: BatchScope,
    /// The operations, in order.
    pub operations: Vec<BatchOperation>,
    /// Whether the batch performs either all its writes or none.
    pub is_atomic: bool,
    /// Whether a batch that is not atomic continues after a failure.
    pub continues_on_error: bool,
    /// Whether the answer has the documents that the batch writes. The answer always has the documents
    /// that the batch reads.
    pub returns_written: bool,
}

/// The partition of a batch.
#[derive(Debug, Clone)]
pub enum BatchScope {
    /// One logical partition.
    Partition(PartitionKey),
    /// One physical partition; each operation has its own key.
    Range(RangeId),
}

/// The outcome of a batch.
#[derive(Debug, Clone)]
pub struct BatchOutcome {
    /// The outcome of each operation.
    pub results: Vec<Result<ItemOutcome, Refusal>>,
    /// Request units of all operations.
    pub charge: f64,
    /// The physical partition's position after the batch.
    pub position: Position,
    /// Documents and bytes in the container before the batch.
    pub usage: Usage,
}

impl Batch {
    /// The physical partition of the batch.
    pub(crate) fn range(&self, container: &Arc<Container>) -> Result<RangeId, Refusal> {
        Ok(match &self.scope {
            BatchScope::Partition(key) => Target::resolve(container, key.clone())?.range.id,
            BatchScope::Range(range) => *range,
        })
    }
}

impl BatchOutcome {
    /// Whether any operation failed.
    pub fn has_failed(&self) -> bool {
        self.results.iter().any(Result::is_err)
    }

    /// The sub-status of the whole answer: that of the first failed operation that has a
    /// sub-status.
    pub fn sub_status(&self) -> Option<u32> {
        self.results.iter().filter_map(|result| result.as_ref().err()).find_map(|refusal| refusal.sub_status)
    }
}

/// Performs a batch.
pub(crate) fn perform(
    transaction: &mut Transaction<'_>,
    container: &Arc<Container>,
    batch: Batch,
) -> Result<BatchOutcome, Refusal> {
    let state = transaction.state(container.number())?;
    let usage = Usage::of(&state);
    let range = batch.range(container)?;
    let results = if batch.is_atomic {
        perform_atomic(transaction, container, batch)?
    } else {
        perform_each(transaction, container, batch)
    };
    let charge = results.iter().map(|result| match result {
        Ok(outcome) => outcome.charge,
        Err(refusal) => refusal.charge,
    });
    let charge = charge.sum();
    let position = transaction.state(container.number())?.position(range);
    Ok(BatchOutcome { results, charge, position, usage })
}

/// Performs all operations, or undoes them all.
fn perform_atomic(
    transaction: &mut Transaction<'_>,
    container: &Arc<Container>,
    batch: Batch,
) -> Result<Vec<Result<ItemOutcome, Refusal>>, Refusal> {
    let count = batch.operations.len();
    let mut stamps = WriteStamps::default();
    let mut outcomes: Vec<ItemOutcome> = Vec::with_capacity(count);
    let attempt = transaction.attempt(|transaction| {
        for operation in batch.operations {
            outcomes.push(perform_one(transaction, container, &batch.scope, operation, &mut stamps)?);
        }
        Ok(())
    });
    let Err(failure) = attempt else { return Ok(outcomes.into_iter().map(Ok).collect()) };
    let failed_at = outcomes.len();
    // Operations that were undone are charged. Operations that were never tried are
    // not.
    let undone = outcomes.iter().map(|outcome| aborted().with_charge(outcome.charge));
    let mut results: Vec<Result<ItemOutcome, Refusal>> = undone.map(Err).collect();
    results.push(Err(failure));
    results.extend((failed_at + 1..count).map(|_| Err(aborted())));
    Ok(results)
}

/// Performs one operation after the other. Only the writes of a failed operation are
/// undone. When the documents that a bulk request returns do not fit into the response, the operation
/// whose document does not fit is undone, and the later operations are not tried.
fn perform_each(
    transaction: &mut Transaction<'_>,
    container: &Arc<Container>,
    batch: Batch,
) -> Vec<Result<ItemOutcome, Refusal>> {
    let mut has_stopped = false;
    let mut bytes_left = match batch.scope {
        BatchScope::Range(_) => RESPONSE_BYTES_MAX,
        BatchScope::Partition(_) => usize::MAX,
    };
    let mut results = Vec::with_capacity(batch.operations.len());
    for operation in batch.operations {
        if bytes_left == 0 {
            results.push(Err(response_full()));
            continue;
        }
        if has_stopped {
            results.push(Err(aborted()));
            continue;
        }
        let returns_document =
            batch.returns_written || matches!(operation.operation, Ok(ItemOperation::Read { .. }));
        let (mut is_full, is_first) = (false, results.is_empty());
        let result = transaction.attempt(|transaction| {
            let mut stamps = WriteStamps::default();
            let outcome = perform_one(transaction, container, &batch.scope, operation, &mut stamps)?;
            is_full = returns_document && outcome.body.len() > bytes_left && !is_first;
            // A refusal makes the attempt undo the writes of the operation.
            if is_full { Err(response_full()) } else { Ok(outcome) }
        });
        has_stopped = result.is_err() && !is_full && !batch.continues_on_error;
        bytes_left = match &result {
            _ if is_full => 0,
            Ok(outcome) if returns_document => bytes_left.saturating_sub(outcome.body.len()),
            Ok(_) | Err(_) => bytes_left,
        };
        results.push(result);
    }
    results
}

/// Performs one operation of a batch.
fn perform_one(
    transaction: &mut Transaction<'_>,
    container: &Arc<Container>,
    scope: &BatchScope,
    operation: BatchOperation,
    stamps: &mut WriteStamps,
) -> Result<ItemOutcome, Refusal> {
    let target = resolve(container, scope, operation.partition_key)?;
    items::perform(transaction, &target, operation.operation?, &operation.precondition, stamps)
}

/// The partition of one operation.
fn resolve(
    container: &Arc<Container>,
    scope: &BatchScope,
    own_key: Option<PartitionKey>,
) -> Result<Target, Refusal> {
    match (scope, own_key) {
        (BatchScope::Partition(key), None) => Target::resolve(container, key.clone()),
        (BatchScope::Partition(key), Some(own)) if own == *key => Target::resolve(container, own),
        (BatchScope::Partition(_), Some(_)) => Err(Refusal::partition_key_mismatch()),
        (BatchScope::Range(_), None) => Err(Refusal::partition_key_missing()),
        (BatchScope::Range(range), Some(own)) => {
            let target = Target::resolve(container, own)?;
            if target.range.id == *range {
                return Ok(target);
            }
            // The client's list of ranges is stale. This refusal makes the client read the list
            // again.
            Err(Refusal::range_gone())
        }
    }
}

/// The result of an operation that was not carried out, because the response is full.
fn response_full() -> Refusal {
    Refusal::new(status::RESPONSE_FULL, Layer::Document, "The results of the request have more than 4 MB.")
}

/// The result of an operation that was undone, or not tried, because another operation
/// failed.
fn aborted() -> Refusal {
    Refusal::new(status::FAILED_DEPENDENCY, Layer::Document, "")
}
