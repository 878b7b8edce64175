//! Deletes several instances by one distributed transaction, which writes all their tombstones.
//! `two_phase` is not needed then: there are no marks and no coordinator.
//!
//! Invariant: each tombstone is conditional on the etag of the state that was read before the
//! checks. A turn that starts a child, or writes an outbox, changes the state of its instance, so
//! the transaction is then aborted as a whole.

use std::collections::BTreeSet;
use std::time::Duration;

use duroxide::providers::DeleteInstanceResult;
use futures_util::future::join_all;
use perihelion_client::{DistributedWriteTransaction, Etag, OperationOptions, TransactionError};
use tokio::time::Instant;

use super::{
    PARALLEL_MAX, Terms, add_counts, check_children, check_status, count_deleted, states_of, tombstone_of,
};
use crate::documents::{DocumentType, STATE_ID, State, Versioned};
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::ops::orchestration::commit::transaction::is_unsupported;
use crate::ops::repair::purge::{self, DocumentHead};
use crate::store::{RETRY_FOR, retry_until};

/// The most attempts. An attempt fails if another writer changes one of the states meanwhile. A
/// deletion in two phases, which marks one instance after the other, then succeeds more easily.
const ATTEMPTS_MAX: usize = 3;

/// How long one attempt may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// An instance that is to be deleted.
struct InstanceToDelete {
    before: Option<Versioned<State>>,
    tombstone: State,
    counts: DeleteInstanceResult,
}

/// Deletes all of these instances or none. Returns false if they have to be deleted in two phases.
/// Then nothing was deleted. The reasons are: there are too many instances; one of them is in another
/// deletion, has undelivered messages, or waits for its start; other writers changed the states in
/// every attempt; or the provider uses no transactions, or the service refused this one.
pub(super) async fn delete(
    core: &Core,
    set: &BTreeSet<&str>,
    terms: Terms<'_>,
    result: &mut DeleteInstanceResult,
) -> Result<bool, Failure> {
    if !core.transactions.are_used() || set.len() > DistributedWriteTransaction::OPERATIONS_MAX {
        return Ok(false);
    }
    for _ in 0..ATTEMPTS_MAX {
        let Some(to_delete) = read_all(core, set, terms).await? else { return Ok(false) };
        match commit(core, &to_delete).await? {
            Committed::Yes(etags) => {
                finish(core, to_delete, etags, result).await;
                return Ok(true);
            }
            Committed::Stale => {}
            Committed::Impossible => return Ok(false),
        }
    }
    Ok(false)
}

/// Reads the states, then checks them and looks for children, then prepares the tombstones. `None`
/// if one of the instances cannot be deleted by a transaction.
async fn read_all(
    core: &Core,
    set: &BTreeSet<&str>,
    terms: Terms<'_>,
) -> Result<Option<Vec<InstanceToDelete>>, Failure> {
    let instances: Vec<&str> = set.iter().copied().collect();
    let mut states = Vec::with_capacity(instances.len());
    for group in instances.chunks(PARALLEL_MAX) {
        for (instance, state) in group.iter().zip(states_of(&core.store, group).await?) {
            check_status(state.as_ref(), instance, terms)?;
            let is_in_deletion = |state: &State| state.deletion.is_some() || state.purge.is_some();
            if state.as_ref().is_some_and(|state| is_in_deletion(&state.value)) {
                return Ok(None);
            }
            states.push(state);
        }
    }
    check_children(core, set).await?;
    let mut to_delete = Vec::with_capacity(instances.len());
    let mut states = states.into_iter();
    for group in instances.chunks(PARALLEL_MAX) {
        let mut reads = Vec::with_capacity(group.len());
        for instance in group {
            reads.push(purge::document_heads(&core.store, instance));
        }
        for ((instance, heads), before) in group.iter().zip(join_all(reads).await).zip(states.by_ref()) {
            let heads = heads?;
            // To purge an outbox, the coordinator of a deletion in two phases is needed.
            if heads.iter().any(|head| head.document_type == Some(DocumentType::Outbox)) {
                return Ok(None);
            }
            let state = before.as_ref().map(|before| &before.value);
            let has_begun = state.is_some_and(|state| !state.is_deleted());
            // The child has not begun, and its start message was not found: the message is in an
            // outbox that is being delivered, or it was delivered just now and a replica does not
            // show it yet. Only the marks of a deletion in two phases make sure that it is found.
            // If the tombstone did not name it, the child would begin after its deletion.
            if !has_begun && !heads.iter().any(DocumentHead::is_start_of_child) {
                return Ok(None);
            }
            let tombstone = tombstone_of(core, instance, state, &heads, None);
            let counts = count_deleted(state, &heads);
            to_delete.push(InstanceToDelete { before, tombstone, counts });
        }
    }
    Ok(Some(to_delete))
}

/// Whether the tombstones were written.
enum Committed {
    /// The etags of the tombstones, in order.
    Yes(Vec<Option<Etag>>),
    /// Another writer has changed one of the states. Nothing was written.
    Stale,
    /// The tombstones cannot be written as one transaction, or not now. Nothing was written.
    Impossible,
}

/// Writes all tombstones. If an answer is lost, the same transaction is committed again. Then the
/// service answers with the outcome of the first commit.
async fn commit(core: &Core, to_delete: &[InstanceToDelete]) -> Result<Committed, Failure> {
    let store = &core.store;
    let options = OperationOptions::default().with_timeout(TIMEOUT).with_throttle_retries_max(1);
    let mut transaction = store.client.write_transaction().with_options(options);
    for InstanceToDelete { before, tombstone, .. } in to_delete {
        let (container, instance) = (&store.container, tombstone.instance_id.as_str());
        store.state_cache.forget(instance);
        match before {
            Some(before) => {
                transaction.replace_if_match(container, instance, STATE_ID, tombstone, &before.etag)?
            }
            None => transaction.create(container, instance, tombstone)?,
        };
    }
    let send = || async {
        match transaction.commit().await {
            Ok(results) => {
                Ok(Committed::Yes(results.results().iter().map(|result| result.etag().cloned()).collect()))
            }
            Err(TransactionError::Aborted(aborted)) if aborted.is_retriable() => Ok(Committed::Stale),
            Err(TransactionError::Aborted(aborted)) => Ok(judge_abort(aborted.error())),
            Err(TransactionError::OutcomeUnknown(unknown)) => Err(unknown.error().clone().into()),
            // Nothing was written. A deletion in two phases needs no transaction.
            Err(TransactionError::Failed(error)) => {
                if is_unsupported(&error) {
                    core.transactions.record_refusal(&error);
                } else if Failure::from(error.clone()).is_transient() {
                    core.transactions.record_failing(&error);
                }
                Ok(Committed::Impossible)
            }
        }
    };
    retry_until(Instant::now() + RETRY_FOR, send).await
}

fn judge_abort(error: &perihelion_client::Error) -> Committed {
    let is_stale = error.is_precondition_failed() || error.is_document_not_found() || error.is_conflict();
    if is_stale { Committed::Stale } else { Committed::Impossible }
}

/// Purges the deleted instances. If a purge fails, the reconciler finds the tombstone and repeats
/// the purge.
async fn finish(
    core: &Core,
    to_delete: Vec<InstanceToDelete>,
    etags: Vec<Option<Etag>>,
    result: &mut DeleteInstanceResult,
) {
    let mut tombstones = Vec::with_capacity(to_delete.len());
    for (InstanceToDelete { tombstone, counts, .. }, etag) in to_delete.into_iter().zip(etags) {
        add_counts(result, &counts);
        core.hints.instances.with(|hints| hints.record_idle(&tombstone.instance_id));
        match etag {
            Some(etag) => {
                let tombstone = Versioned { value: tombstone, etag };
                core.store.cache_tombstone(&tombstone);
                tombstones.push(tombstone);
            }
            None => core.repair_signal.record_unfinished_work(),
        }
    }
    for group in tombstones.chunks(PARALLEL_MAX) {
        let mut purges = Vec::with_capacity(group.len());
        for tombstone in group {
            purges.push(purge::run(core, tombstone));
        }
        for (tombstone, purged) in group.iter().zip(join_all(purges).await) {
            if let Err(failure) = purged {
                let instance = tombstone.value.instance_id.as_str();
                tracing::warn!(
                    instance,
                    ?failure,
                    "the purge of a deleted instance waits for the reconciler"
                );
                core.repair_signal.record_unfinished_work();
            }
        }
    }
}
