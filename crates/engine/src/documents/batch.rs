//! Batches: several item operations in one request, for one logical
//! partition, or (bulk) for one physical partition with a key per operation.
//!
//! An atomic batch is one attempt: it leaves all its writes, under one LSN,
//! or none. A batch that is not atomic keeps what succeeded before the first
//! failure and stops there, or goes on when asked to
//! (`docs/cosmos.md`, batches; without the header a batch is not atomic).

use std::sync::Arc;

use perihelion_model::partition_key::PartitionKey;

use super::items::{self, ItemOperation, ItemOutcome, Precondition, Target, Usage, WriteStamps};
use crate::catalog::Container;
use crate::keys::RangeId;
use crate::refusal::{Layer, Refusal, sub_status};
use crate::state::Position;
use crate::transaction::Transaction;

/// The most operations a batch may have.
pub const OPERATIONS_MAX: usize = 100;

/// One operation of a batch.
#[derive(Debug, Clone)]
pub struct BatchOperation {
    /// A body that was found wanting fails its operation, not the request.
    pub operation: Result<ItemOperation, Refusal>,
    pub precondition: Precondition,
    /// A bulk operation brings its own key.
    pub partition_key: Option<PartitionKey>,
}

/// A whole batch.
#[derive(Debug, Clone)]
pub struct Batch {
    pub scope: BatchScope,
    pub operations: Vec<BatchOperation>,
    pub is_atomic: bool,
    pub continues_on_error: bool,
}

/// What a batch is for.
#[derive(Debug, Clone)]
pub enum BatchScope {
    Partition(PartitionKey),
    Range(RangeId),
}

/// What became of each operation.
#[derive(Debug, Clone)]
pub struct BatchOutcome {
    pub results: Vec<Result<ItemOutcome, Refusal>>,
    pub charge: f64,
    pub position: Position,
    pub usage: Usage,
}

/// An operation that was not tried, or undone, because another failed.
const FAILED_DEPENDENCY: u16 = 424;

impl BatchOutcome {
    pub fn has_failed(&self) -> bool {
        self.results.iter().any(Result::is_err)
    }

    /// The sub-status that the whole answer carries: the offender's.
    pub fn sub_status(&self) -> Option<u32> {
        self.results.iter().filter_map(|result| result.as_ref().err()).find_map(|refusal| refusal.sub_status)
    }
}

/// Carries out a batch.
pub(crate) fn perform(
    transaction: &mut Transaction<'_>,
    container: &Arc<Container>,
    batch: Batch,
) -> Result<BatchOutcome, Refusal> {
    let state = transaction.state(container.number())?;
    let usage = Usage::of(&state);
    let range = match &batch.scope {
        BatchScope::Partition(key) => Target::resolve(container, key.clone())?.range.id,
        BatchScope::Range(range) => *range,
    };
    let results = if batch.is_atomic {
        perform_atomic(transaction, container, batch)?
    } else {
        perform_each(transaction, container, batch)
    };
    let charge = results.iter().map(|result| match result {
        Ok(answer) => answer.charge,
        Err(refusal) => refusal.charge,
    });
    let charge = charge.sum();
    let position = transaction.state(container.number())?.position(range);
    Ok(BatchOutcome { results, charge, position, usage })
}

fn perform_atomic(
    transaction: &mut Transaction<'_>,
    container: &Arc<Container>,
    batch: Batch,
) -> Result<Vec<Result<ItemOutcome, Refusal>>, Refusal> {
    let count = batch.operations.len();
    let mut stamps = WriteStamps::default();
    let mut done: Vec<ItemOutcome> = Vec::with_capacity(count);
    let outcome = transaction.attempt(|transaction| {
        for operation in batch.operations {
            let target = resolve(container, &batch.scope, operation.partition_key)?;
            let answer = items::perform(
                transaction,
                &target,
                operation.operation?,
                &operation.precondition,
                &mut stamps,
            )?;
            done.push(answer);
        }
        Ok(())
    });
    let Err(offender) = outcome else { return Ok(done.into_iter().map(Ok).collect()) };
    let place = done.len();
    // What was undone is charged all the same; what was never tried is not.
    let undone = done.iter().map(|answer| aborted().with_charge(answer.charge));
    let mut results: Vec<Result<ItemOutcome, Refusal>> = undone.map(Err).collect();
    results.push(Err(offender));
    results.extend((place + 1..count).map(|_| Err(aborted())));
    Ok(results)
}

fn perform_each(
    transaction: &mut Transaction<'_>,
    container: &Arc<Container>,
    batch: Batch,
) -> Vec<Result<ItemOutcome, Refusal>> {
    let mut has_stopped = false;
    let mut results = Vec::with_capacity(batch.operations.len());
    for operation in batch.operations {
        if has_stopped {
            results.push(Err(aborted()));
            continue;
        }
        let result = resolve(container, &batch.scope, operation.partition_key).and_then(|target| {
            transaction.attempt(|transaction| {
                let mut stamps = WriteStamps::default();
                items::perform(
                    transaction,
                    &target,
                    operation.operation?,
                    &operation.precondition,
                    &mut stamps,
                )
            })
        });
        has_stopped = result.is_err() && !batch.continues_on_error;
        results.push(result);
    }
    results
}

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
            // The client's map of ranges is old: it must ask for it again.
            Err(Refusal::range_gone().with_sub_status(sub_status::PARTITION_KEY_RANGE_GONE))
        }
    }
}

fn aborted() -> Refusal {
    Refusal::new(FAILED_DEPENDENCY, Layer::Document, "")
}
