//! Applies retention: deletes trees of finished instances, and past executions and ended
//! children of instances that continue as new. `plan::retention` sets the time at which a tree is
//! due.

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::PruneOptions;
use perihelion_client::Query;
use serde::Deserialize;

use crate::documents::lock_token::{LockKind, LockToken, nonce};
use crate::documents::stamp::Stamp;
use crate::documents::{State, Versioned};
use crate::failure::Failure;
use crate::ops::admin::delete;
use crate::ops::admin::delete::{Force, Selected, Terms};
use crate::ops::admin::prune;
use crate::ops::core::Core;
use crate::plan::retention::is_finished;
use crate::process::clock::HybridClock;
use crate::store::Store;

/// The pause before the next attempt to delete a tree that has a running member.
const POSTPONED_FOR: Duration = Duration::from_secs(600);

/// The most children that are deleted after one execution.
const CHILDREN_MAX: usize = 64;

/// Past executions and ended children are deleted after every eighth execution of an instance,
/// because the queries that find them cost as much as a few deletions.
const PRUNE_EVERY: u64 = 8;

/// Deletes the tree of a root instance whose retention is over: the root and all its
/// descendants. If a member of the tree has not ended, postpones the deletion. Does nothing if the root was
/// deleted since it was read, also if it was started again.
pub(crate) async fn delete_expired_tree(core: &Core, root: &Versioned<State>) -> Result<(), Failure> {
    let instance = root.value.instance_id.as_str();
    let tree = delete::tree(core, instance).await?;
    for group in tree.chunks(delete::PARALLEL_MAX) {
        // A child whose start is queued has no state yet. It counts as running.
        let has_ended = |state: &Option<Versioned<State>>| {
            state.as_ref().is_some_and(|state| is_finished(&state.value) || state.value.is_deleted())
        };
        let mut states = group.iter().zip(delete::states_of(&core.store, group).await?);
        if let Some((member, _)) = states.find(|(_, state)| !has_ended(state)) {
            tracing::debug!(instance, member, "a tree is kept: a member still runs");
            return postpone(&core.store, &core.clock, root).await;
        }
    }
    let selected = Selected { instance, incarnation: &root.value.incarnation };
    let deleted = match delete::run(core, &tree, Terms::of_selected(selected, Force::None)).await {
        Err(Failure::NotFound(_)) => return Ok(()),
        deleted => deleted?,
    };
    tracing::debug!(
        instance,
        instances = deleted.instances_deleted,
        "a tree was deleted: its retention is over"
    );
    Ok(())
}

/// Sets the due time of a root to [`POSTPONED_FOR`] from now. Does nothing if another process
/// has changed or deleted the state in the meantime: the next pass of the reconciler looks at
/// the root again.
async fn postpone(store: &Store, clock: &HybridClock, root: &Versioned<State>) -> Result<(), Failure> {
    let due = Stamp::at_ms(clock.now_ms()).plus(POSTPONED_FOR);
    let postponed = State { repair_at: Some(due), commit_nonce: nonce(), ..root.value.clone() };
    match store.put_state(&postponed, Some(&root.etag), "/ack", postponed.commit_nonce.clone().into()).await {
        Err(Failure::Storage(error)) if error.is_precondition_failed() || error.is_document_not_found() => {
            Ok(())
        }
        outcome => outcome.map(drop),
    }
}

/// Deletes ended children of an instance that continues as new, when their retention is over.
/// Usually children are deleted with the root of their tree, but the root of this tree may never
/// end. Called after the turn that continued `execution` as new: by then all these children have
/// answered or were given up. Runs in the background, after every [`PRUNE_EVERY`]th execution. A
/// failure is logged, and a later execution tries again.
pub(crate) async fn delete_expired_children(core: &Core, token: &str, execution: u64) {
    let Some(finished_for) = core.options.retention.finished_for else { return };
    if !execution.is_multiple_of(PRUNE_EVERY) {
        return;
    }
    let Some(LockToken { instance, .. }) = LockToken::decode(token, LockKind::Orchestration) else { return };
    let Some(core) = core.this.upgrade() else { return };
    let ended_before_ms = Stamp::at_ms(core.clock.now_ms()).minus(finished_for).ms();
    let runner = Arc::clone(&core);
    let deletion = async move {
        if let Err(failure) = delete_children_ended_before(&core, &instance, ended_before_ms).await {
            tracing::warn!(
                instance,
                ?failure,
                "ended children were not deleted; a later execution tries again"
            );
        }
    };
    runner.background.run(deletion).await;
}

/// A child that has ended.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EndedChild {
    instance_id: String,
    incarnation: String,
}

/// Deletes the trees of children of `parent` that ended before a time, at most
/// [`CHILDREN_MAX`] of them.
pub(crate) async fn delete_children_ended_before(
    core: &Core,
    parent: &str,
    ended_before_ms: u64,
) -> Result<(), Failure> {
    let query = Query::new(format!(
        "SELECT TOP {CHILDREN_MAX} c.instanceId, c.incarnation FROM c WHERE c.id = 'i' AND \
         c.type = 'history' AND c.parentInstanceId = @parent AND c.completedAt < @before"
    ))
    .with_parameter("@parent", parent)
    .with_parameter("@before", ended_before_ms);
    for EndedChild { instance_id: child, incarnation } in core.store.rows(query).await? {
        let tree = delete::tree(core, &child).await?;
        let selected = Selected { instance: &child, incarnation: &incarnation };
        match delete::run(core, &tree, Terms::of_selected(selected, Force::None)).await {
            Ok(_) => tracing::debug!(parent, child, "a child was deleted: its retention is over"),
            // The child, or a descendant, runs, or another process has deleted the child.
            Err(Failure::StillRunning(_) | Failure::NotFound(_)) => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

/// Prunes past executions that are too many or too old. Called after the turn that continued
/// `execution` as new. Prunes only if `execution` is a multiple of [`PRUNE_EVERY`] and the
/// options limit the past executions. A failure is logged, and a later execution tries again.
pub(crate) async fn prune_executions(core: &Core, token: &str, execution: u64) {
    let retention = core.options.retention;
    if !execution.is_multiple_of(PRUNE_EVERY)
        || (retention.executions_kept.is_none() && retention.executions_for.is_none())
    {
        return;
    }
    let Some(LockToken { instance, .. }) = LockToken::decode(token, LockKind::Orchestration) else { return };
    let age_ms = retention.executions_for.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    let completed_before = age_ms.map(|age_ms| core.clock.now_ms().saturating_sub(age_ms));
    for (keep_last, completed_before) in [(retention.executions_kept, None), (None, completed_before)] {
        if keep_last.is_none() && completed_before.is_none() {
            continue;
        }
        let options = PruneOptions { keep_last, completed_before };
        if let Err(failure) = prune::run(core, &instance, &options).await {
            tracing::warn!(
                instance,
                ?failure,
                "past executions were not pruned; a later execution tries again"
            );
        }
    }
}
