//! Write transactions: one job of the writer.

use std::collections::BTreeSet;
use std::sync::Arc;

use perihelion_wire::status;

use super::{DistributedAnswer, DistributedOperation, DistributedOutcome, DistributedWrite};
use crate::catalog::Container;
use crate::documents::{self, ItemOutcome, Target, WriteStamps};
use crate::keys::{self, ContainerNumber, LogicalPartition, RangeId};
use crate::ledger::{self, LedgerEntry, LedgerLimits, RecordedAnswer};
use crate::refusal::{Layer, Refusal};
use crate::replication::{self, OutboxCursor, WriteGate};
use crate::session::check_session;
use crate::transaction::Transaction;

/// Commits or aborts a write transaction and records its answer, which `print` makes. A request
/// whose token has an answer gets that answer. An error refuses the whole request: nothing is
/// written or recorded, and the token stays free.
pub(crate) fn commit(
    transaction: &mut Transaction<'_>,
    gate: &WriteGate,
    limits: LedgerLimits,
    write: DistributedWrite,
    print: impl FnOnce(&DistributedOutcome) -> RecordedAnswer,
) -> Result<DistributedAnswer, Refusal> {
    let DistributedWrite { token, fingerprint, operations } = write;
    let record = transaction.get(&keys::ledger_entry(token.to_bytes()))?;
    if let Some(answer) = ledger::recorded_answer(record, &fingerprint)? {
        return Ok(DistributedAnswer { answer, is_replay: true, charges: Vec::new() });
    }
    ledger::check_room(transaction, limits)?;
    let (outcome, mut outbox) = perform(transaction, gate, operations)?;
    if !outcome.is_committed {
        ledger::check_room_of_aborted(transaction, limits)?;
    }
    let entry = LedgerEntry { time: transaction.now, fingerprint, answer: print(&outcome) };
    ledger::put(transaction, token, &entry)?;
    if transaction.replica.is_some() {
        let record = replication::encode_ledger_entry(token, &entry.encode());
        replication::append_to_outbox(transaction, &mut outbox, record)?;
    }
    let charges = outcome.results.iter().map(|result| match result {
        Ok(outcome) => outcome.charge,
        Err(refusal) => refusal.charge,
    });
    Ok(DistributedAnswer { charges: charges.collect(), answer: entry.answer, is_replay: false })
}

/// Performs all operations, or undoes them all. Also returns the outbox entry of the transaction.
fn perform(
    transaction: &mut Transaction<'_>,
    gate: &WriteGate,
    operations: Vec<DistributedOperation>,
) -> Result<(DistributedOutcome, OutboxCursor), Refusal> {
    let mut run = Run::default();
    // The transaction's own writes must not satisfy its session tokens.
    let sessions: Vec<_> =
        operations.iter().map(|operation| check_operation_session(transaction, operation)).collect();
    let attempt = transaction.attempt(|transaction| {
        for (operation, session) in operations.into_iter().zip(sessions) {
            run.try_operation(transaction, gate, operation, session)?;
        }
        // The refusal undoes the writes; the results say why.
        if run.has_failed { Err(rolled_back()) } else { Ok(()) }
    });
    match attempt {
        Ok(()) => Ok((DistributedOutcome { results: run.results, is_committed: true }, run.outbox)),
        Err(_) if run.has_failed && !run.is_refused => {
            let results = run.results.into_iter().map(|result| match result {
                // Operations that were undone are charged.
                Ok(outcome) => Err(rolled_back().with_charge(outcome.charge)),
                failed => failed,
            });
            // The undone writes took the number of an outbox entry, which is free again.
            let outcome = DistributedOutcome { results: results.collect(), is_committed: false };
            Ok((outcome, OutboxCursor::default()))
        }
        Err(refusal) => Err(refusal),
    }
}

/// A document, by its container, logical partition and id.
type DocumentPlace = (ContainerNumber, LogicalPartition, String);

/// The state while the operations are performed one after the other. After a failure the others
/// are still tried, so that the answer names every operation that failed.
#[derive(Default)]
struct Run {
    results: Vec<Result<ItemOutcome, Refusal>>,
    has_failed: bool,
    /// Whether the whole request is refused.
    is_refused: bool,
    /// The documents whose operations failed. Later operations on them are not tried: they would
    /// fail as a consequence.
    failed_documents: BTreeSet<DocumentPlace>,
    /// One LSN for each range.
    stamps: Vec<((ContainerNumber, RangeId), WriteStamps)>,
    /// One outbox entry for the whole transaction.
    outbox: OutboxCursor,
}

impl Run {
    /// Performs one operation and adds its result. `session` is a refusal if this region has not
    /// applied the writes that the operation's session tokens cover. A returned refusal refuses the
    /// whole request.
    fn try_operation(
        &mut self,
        transaction: &mut Transaction<'_>,
        gate: &WriteGate,
        operation: DistributedOperation,
        session: Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let result = match resolve(transaction, &operation) {
            Ok((container, target)) => {
                gate.check_range(&container, target.range.id).inspect_err(|_| self.is_refused = true)?;
                let place = (container.number(), target.partition.clone(), operation.id.clone());
                if self.failed_documents.contains(&place) {
                    Err(rolled_back())
                } else {
                    let result =
                        session.and_then(|()| self.perform(transaction, &container, &target, operation));
                    if result.is_err() {
                        self.failed_documents.insert(place);
                    }
                    result
                }
            }
            Err(refusal) => Err(refusal),
        };
        if let Err(refusal) = &result {
            self.has_failed = true;
            // A failure of the store says nothing about the operation.
            if refusal.status >= status::INTERNAL_SERVER_ERROR.code {
                self.is_refused = true;
                return Err(refusal.clone());
            }
        }
        self.results.push(result);
        Ok(())
    }

    fn perform(
        &mut self,
        transaction: &mut Transaction<'_>,
        container: &Arc<Container>,
        target: &Target,
        operation: DistributedOperation,
    ) -> Result<ItemOutcome, Refusal> {
        let item = operation.operation?;
        let range = (container.number(), target.range.id);
        let at = match self.stamps.iter().position(|(other, _)| *other == range) {
            Some(at) => at,
            None => {
                self.stamps.push((range, WriteStamps::default()));
                self.stamps.len() - 1
            }
        };
        let stamps = &mut self.stamps[at].1;
        stamps.outbox = self.outbox;
        let outcome = transaction.attempt(|transaction| {
            documents::perform_item(transaction, target, item, &operation.precondition, stamps)
        });
        self.outbox = stamps.outbox;
        outcome
    }
}

/// The container as it is now, and the partition of an operation.
fn resolve(
    transaction: &Transaction<'_>,
    operation: &DistributedOperation,
) -> Result<(Arc<Container>, Target), Refusal> {
    let container = transaction.current(operation.container.as_ref().map_err(Refusal::clone)?)?;
    let target = Target::resolve(&container, operation.partition_key.clone())?;
    Ok((container, target))
}

/// Checks the session tokens of an operation. An operation without a container, or whose partition key
/// does not fit the container, passes this check and fails later.
fn check_operation_session(
    transaction: &Transaction<'_>,
    operation: &DistributedOperation,
) -> Result<(), Refusal> {
    if operation.session.is_empty() {
        return Ok(());
    }
    let Ok((container, target)) = resolve(transaction, operation) else { return Ok(()) };
    let state = transaction.state(container.number())?;
    check_session(&container, &state, &operation.session, &[target.range.id])
}

/// The result of an operation that was undone because another operation failed.
fn rolled_back() -> Refusal {
    Refusal::new(status::OPERATION_ROLLED_BACK, Layer::Document, "")
}
