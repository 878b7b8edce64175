//! Deleting instances, all of a set or none.
//!
//! One instance goes with one conditional write: its state becomes a tombstone.
//! Of several, each is marked under its etag, which already fences every turn;
//! the deletion happens when its coordinator becomes `Committed`, and whoever
//! finds it so finishes it. One that was not committed is taken back: first the
//! coordinator says so, then the marks go.

use std::collections::BTreeSet;

use duroxide::providers::DeleteInstanceResult;
use perihelion_client::{Etag, Query};
use serde::Deserialize;

use crate::documents::{Deletion, DeletionStage, State, Versioned, kind};
use crate::failure::Failure;
use crate::inner::Inner;
use crate::ops::purge;
use crate::store::quiet;
use crate::token::nonce;

/// Attempts when an instance changes meanwhile: its turns do it.
const ATTEMPTS_MAX: usize = 64;

/// How long a tombstone stays: longer than any message may be under way.
const TOMBSTONE_TTL_SECONDS: u32 = 24 * 3600;

/// How long a coordinator stays that nobody finished.
const DELETION_TTL_SECONDS: u32 = 7 * 24 * 3600;

/// Messages and activities that a tombstone names; what is beyond carries the
/// incarnation and is dropped when it is met.
const PURGE_MAX: usize = 10_000;

/// The partition of all coordinators.
const COORDINATORS: u64 = 1;

pub(crate) async fn run(inner: &Inner, ids: &[String], force: bool) -> Result<DeleteInstanceResult, Failure> {
    let set: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
    for instance in &set {
        check_status(inner.store.state(instance).await?.as_ref(), instance, force)?;
    }
    check_children(inner, &set).await?;
    let mut result = DeleteInstanceResult::default();
    match Vec::from_iter(&set).as_slice() {
        [] => {}
        [instance] => entomb(inner, instance, None, force, &mut result).await?,
        _ => together(inner, &set, force, &mut result).await?,
    }
    Ok(result)
}

fn check_status(state: Option<&Versioned<State>>, instance: &str, force: bool) -> Result<(), Failure> {
    let Some(state) = state.map(|state| &state.value).filter(|state| state.created) else { return Ok(()) };
    if !force && state.execution.status == "Running" {
        return Err(Failure::Refused(format!(
            "Instance {instance} is still running. Cancel it first, or delete it with force"
        )));
    }
    Ok(())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Child {
    instance_id: String,
    parent: String,
}

/// Children of these instances, those that are only queued included.
async fn children(inner: &Inner, parents: &BTreeSet<&str>) -> Result<Vec<Child>, Failure> {
    let parents: Vec<&str> = parents.iter().copied().collect();
    let made = "SELECT c.instanceId, c.parentInstanceId AS parent FROM c WHERE c.type = 'history' AND \
                ARRAY_CONTAINS(@parents, c.parentInstanceId)";
    let queued = "SELECT c.instanceId, c.startParent AS parent FROM c WHERE c.type = 'orch_queue' AND \
                  ARRAY_CONTAINS(@parents, c.startParent)";
    let mut found = Vec::new();
    for text in [made, queued] {
        found.extend(inner.store.rows(Query::new(text).with_parameter("@parents", parents.clone())).await?);
    }
    Ok(found)
}

/// No child may be left without its parent.
async fn check_children(inner: &Inner, set: &BTreeSet<&str>) -> Result<(), Failure> {
    match children(inner, set).await?.into_iter().find(|child| !set.contains(child.instance_id.as_str())) {
        None => Ok(()),
        Some(Child { instance_id, parent }) => Err(Failure::Refused(format!(
            "Cannot delete: instance {parent} has child {instance_id}, which would be an orphan. \
             Read the tree again and retry"
        ))),
    }
}

/// The instance and all below it, queued starts included.
pub(crate) async fn tree(inner: &Inner, root: &str) -> Result<Vec<String>, Failure> {
    let (mut all, mut level) = (vec![root.to_owned()], BTreeSet::from([root.to_owned()]));
    let mut known = level.clone();
    while !level.is_empty() {
        let parents = level.iter().map(String::as_str).collect();
        let found = children(inner, &parents).await?.into_iter().map(|child| child.instance_id);
        level = found.filter(|child| known.insert(child.clone())).collect();
        all.extend(level.iter().cloned());
    }
    Ok(all)
}

/// Makes a tombstone of an instance: the moment it is deleted.
async fn entomb(
    inner: &Inner,
    instance: &str,
    operation: Option<&str>,
    force: bool,
    result: &mut DeleteInstanceResult,
) -> Result<(), Failure> {
    for _ in 0..ATTEMPTS_MAX {
        let found = inner.store.state(instance).await?;
        if found.as_ref().is_some_and(|found| found.value.is_deleted()) {
            return Ok(());
        }
        let mark = found.as_ref().and_then(|found| found.value.del.as_deref());
        match (operation, mark) {
            (None, Some(_)) => return Err(Failure::Contended(format!("{instance} is being deleted"))),
            // Not ours any more: it was deleted, and perhaps made again.
            (Some(ours), mark) if mark != Some(ours) => return Ok(()),
            (Some(_), _) => {}
            (None, None) => {
                // After the state was read: a turn that makes a child since then
                // changes the state, and the write below is refused.
                check_status(found.as_ref(), instance, force)?;
                check_children(inner, &BTreeSet::from([instance])).await?;
            }
        }
        let entries = purge::entries(inner, instance).await?;
        let before = found.as_ref().map(|found| &found.value);
        let tombstone = tombstone(inner, instance, before, &entries);
        let witness = tombstone.ack.clone();
        let etag = found.as_ref().map(|found| &found.etag);
        match inner.store.put_state(&tombstone, etag, "/ack", witness.into()).await {
            Ok(etag) => {
                count(before, &entries, result);
                purge::finish(inner, &Versioned { value: tombstone, etag }).await?;
                inner.hub.instances.quietly(|hints| hints.idle(instance));
                return Ok(());
            }
            Err(Failure::Storage(error)) if is_stale(&error) => {}
            Err(failure) => return Err(failure),
        }
    }
    Err(Failure::Contended(format!("the state of {instance} keeps changing")))
}

fn is_stale(error: &perihelion_client::Error) -> bool {
    error.is_precondition_failed() || error.is_not_found() || error.is_conflict()
}

fn tombstone(inner: &Inner, instance: &str, before: Option<&State>, entries: &[purge::Entry]) -> State {
    let doomed = entries.iter().filter(|entry| matches!(entry.kind.as_str(), kind::MESSAGE | kind::ACTIVITY));
    State {
        kind: kind::DELETED.to_owned(),
        ack: nonce(),
        consumed: before.map(|state| state.consumed.clone()).unwrap_or_default(),
        seq: before.map_or(0, |state| state.seq),
        purge: Some(doomed.map(|entry| entry.id.clone()).take(PURGE_MAX).collect()),
        made_at: Some(inner.clock.stamp()),
        ttl: Some(TOMBSTONE_TTL_SECONDS),
        ..State::blank(instance, before.map_or_else(nonce, |state| state.incarnation.clone()))
    }
}

fn count(before: Option<&State>, entries: &[purge::Entry], result: &mut DeleteInstanceResult) {
    let of = |kind: &str| entries.iter().filter(|entry| entry.kind == kind).count() as u64;
    if let Some(state) = before {
        result.instances_deleted += u64::from(state.created);
        result.executions_deleted += u64::from(state.execution.execution > 0);
        result.events_deleted += state.execution.events;
    }
    result.executions_deleted += of(kind::EXECUTION);
    result.events_deleted += entries.iter().map(|entry| entry.events).sum::<u64>();
    result.queue_messages_deleted += of(kind::MESSAGE) + of(kind::ACTIVITY);
}

/// Several instances: mark, look again, commit, finish.
async fn together(
    inner: &Inner,
    set: &BTreeSet<&str>,
    force: bool,
    result: &mut DeleteInstanceResult,
) -> Result<(), Failure> {
    let mut deletion = Deletion {
        id: format!("d:{}", nonce()),
        instance_id: COORDINATORS,
        kind: kind::DELETION.to_owned(),
        instances: set.iter().map(|instance| (*instance).to_owned()).collect(),
        stage: DeletionStage::Prepared,
        made_at: inner.clock.stamp(),
        ttl: DELETION_TTL_SECONDS,
    };
    let etag = register(inner, &deletion).await?;
    let prepared = async {
        for instance in set {
            mark(inner, instance, &deletion.id, force).await?;
        }
        check_children(inner, set).await
    };
    if let Err(failure) = prepared.await {
        abort(inner, deletion, &etag).await?;
        return Err(failure);
    }
    deletion.stage = DeletionStage::Committed;
    put(inner, &deletion, &etag).await?;
    roll_forward(inner, &deletion, result).await
}

/// Creates the coordinator; its id has a nonce, so one of that id is this one.
async fn register(inner: &Inner, deletion: &Deletion) -> Result<Etag, Failure> {
    let options = quiet().with_witness(deletion.id.as_str(), "/id", deletion.id.as_str());
    let written = inner.store.container.create_with(COORDINATORS, deletion, &options).await?;
    if let Ok(etag) = written.etag() {
        return Ok(etag.clone());
    }
    // The answer was lost, and the witness has spoken.
    let found = inner.store.container.find::<Deletion>(COORDINATORS, &deletion.id).await?;
    let found = found.ok_or_else(|| Failure::Contended("a deletion was taken back".to_owned()))?;
    Ok(found.etag()?.clone())
}

async fn mark(inner: &Inner, instance: &str, operation: &str, force: bool) -> Result<(), Failure> {
    for _ in 0..ATTEMPTS_MAX {
        let found = inner.store.state(instance).await?;
        check_status(found.as_ref(), instance, force)?;
        let (mut next, etag) = match found {
            Some(found) if found.value.is_deleted() => return Ok(()),
            Some(found) => (found.value, Some(found.etag)),
            None => (State::blank(instance, nonce()), None),
        };
        if next.del.as_deref().is_some_and(|other| other != operation) {
            return Err(Failure::Contended(format!("{instance} is part of another deletion")));
        }
        next.del = Some(operation.to_owned());
        match inner.store.put_state(&next, etag.as_ref(), "/del", operation.into()).await {
            Ok(_) => return Ok(()),
            Err(Failure::Storage(error)) if is_stale(&error) => {}
            Err(failure) => return Err(failure),
        }
    }
    Err(Failure::Contended(format!("the state of {instance} keeps changing")))
}

/// Takes a deletion back that was not committed.
pub(crate) async fn abort(inner: &Inner, mut deletion: Deletion, etag: &Etag) -> Result<(), Failure> {
    if deletion.stage == DeletionStage::Prepared {
        deletion.stage = DeletionStage::Aborted;
        put(inner, &deletion, etag).await?;
    }
    for instance in &deletion.instances {
        clear(inner, instance, &deletion.id).await?;
    }
    forget(inner, &deletion).await
}

async fn clear(inner: &Inner, instance: &str, operation: &str) -> Result<(), Failure> {
    for _ in 0..ATTEMPTS_MAX {
        let found = inner.store.state(instance).await?;
        let Some(found) = found.filter(|found| found.value.del.as_deref() == Some(operation)) else {
            return Ok(());
        };
        let next = State { del: None, ack: nonce(), ..found.value };
        match inner.store.put_state(&next, Some(&found.etag), "/ack", next.ack.clone().into()).await {
            Ok(_) => return Ok(()),
            Err(Failure::Storage(error)) if is_stale(&error) => {}
            Err(failure) => return Err(failure),
        }
    }
    Err(Failure::Contended(format!("the state of {instance} keeps changing")))
}

/// Finishes a deletion that is committed.
pub(crate) async fn roll_forward(
    inner: &Inner,
    deletion: &Deletion,
    result: &mut DeleteInstanceResult,
) -> Result<(), Failure> {
    for instance in &deletion.instances {
        entomb(inner, instance, Some(&deletion.id), true, result).await?;
    }
    forget(inner, deletion).await
}

/// Takes a deletion to its next stage. Only its own process commits it, and
/// who else takes it back does what this would.
async fn put(inner: &Inner, deletion: &Deletion, etag: &Etag) -> Result<(), Failure> {
    let stage = serde_json::to_value(deletion.stage).unwrap_or_default();
    let options = quiet().with_if_match(etag).with_witness(deletion.id.as_str(), "/stage", stage);
    inner.store.container.replace_with(COORDINATORS, &deletion.id, deletion, &options).await?;
    Ok(())
}

async fn forget(inner: &Inner, deletion: &Deletion) -> Result<(), Failure> {
    match inner.store.container.delete(COORDINATORS, &deletion.id).await {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(()),
    }
}
