//! Deleting instances, all of a set or none.
//!
//! One instance goes with one conditional write: its state becomes a tombstone.
//! Of several, each is marked under its etag, which already fences every turn;
//! the deletion happens when its coordinator becomes `Committed`, and whoever
//! finds it so finishes it. One that was not committed is taken back: first the
//! coordinator says so, then the marks go. A mark whose coordinator is gone is
//! nobody's, and whoever meets it when it is old takes it away.
//!
//! Children are part of it from the moment their start is committed: started,
//! queued, or still in the outbox. A start that is on its way while its parent
//! goes is known to the child's tombstone as consumed before it arrives.

use std::collections::BTreeSet;
use std::time::Duration;

use duroxide::providers::DeleteInstanceResult;
use perihelion_client::{Etag, Query};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::clock::Stamp;
use crate::consumed::Once;
use crate::documents::{Deletion, DeletionStage, Late, Outbox, State, Versioned, kind};
use crate::failure::Failure;
use crate::inner::Inner;
use crate::ops::purge;
use crate::store::{PATIENCE, patiently, quiet, versioned};
use crate::token::nonce;

/// Attempts when an instance changes meanwhile: its turns do it.
const ATTEMPTS_MAX: usize = 64;

/// Messages that a tombstone names; what an incarnation made itself needs no
/// naming, and what is beyond waits for a start that does not come.
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

/// Children of these instances: those that are only queued, or not even that,
/// included. Outboxes are asked first: what has left them since is queued.
async fn children(inner: &Inner, parents: &BTreeSet<&str>) -> Result<Vec<Child>, Failure> {
    let made = "SELECT c.instanceId, c.parentInstanceId AS parent FROM c WHERE c.type = 'history' AND \
                ARRAY_CONTAINS(@parents, c.parentInstanceId)";
    let queued = "SELECT c.instanceId, c.startParent AS parent FROM c WHERE c.type = 'orch_queue' AND \
                  ARRAY_CONTAINS(@parents, c.startParent)";
    let mut found = Vec::new();
    for parent in parents {
        let late = late(inner, parent).await?;
        let child = |late: Late| Child { instance_id: late.instance, parent: (*parent).to_owned() };
        found.extend(late.into_iter().map(child));
    }
    let parents: Vec<&str> = parents.iter().copied().collect();
    for text in [made, queued] {
        found.extend(inner.store.rows(Query::new(text).with_parameter("@parents", parents.clone())).await?);
    }
    Ok(found)
}

/// Starts of children that an instance has committed and not delivered.
async fn late(inner: &Inner, parent: &str) -> Result<Vec<Late>, Failure> {
    let query = Query::new("SELECT * FROM c WHERE c.type = 'outbox'").in_partition(parent);
    let mut late = Vec::new();
    for row in inner.store.rows::<Value>(query).await? {
        let messages = versioned::<Outbox>(row)?.value.messages.into_iter();
        let starts = messages.filter(|message| message.start_parent.as_deref() == Some(parent));
        late.extend(starts.map(|message| Late { instance: message.instance_id, id: message.id }));
    }
    Ok(late)
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

/// Makes a tombstone of an instance: the moment it is deleted, unless that is
/// the deletion's.
async fn entomb(
    inner: &Inner,
    instance: &str,
    deletion: Option<&Deletion>,
    force: bool,
    result: &mut DeleteInstanceResult,
) -> Result<(), Failure> {
    for _ in 0..ATTEMPTS_MAX {
        let found = inner.store.state(instance).await?;
        let before = found.as_ref().map(|found| &found.value);
        let mark = before.and_then(|state| state.del.as_deref());
        if let Some(tombstone) = found.as_ref().filter(|found| found.value.purge.is_some()) {
            return purge::finish(inner, tombstone).await;
        }
        match (deletion, mark) {
            (None, Some(operation)) => {
                Box::pin(settle(inner, instance, operation)).await?;
                return Err(Failure::Contended(format!("{instance} is being deleted")));
            }
            // Not ours any more: it was deleted, and perhaps made again.
            (Some(ours), mark) if mark != Some(&ours.id) => return Ok(()),
            (Some(_), _) => {}
            (None, None) => {
                // After the state was read: a turn that makes a child since then
                // changes the state, and the write below is refused.
                check_status(found.as_ref(), instance, force)?;
                check_children(inner, &BTreeSet::from([instance])).await?;
            }
        }
        let entries = purge::entries(inner, instance).await?;
        let tombstone = tombstone(inner, instance, before, &entries, deletion);
        let witness = tombstone.ack.clone();
        let etag = found.as_ref().map(|found| &found.etag);
        match inner.store.put_state(&tombstone, etag, "/ack", witness.into()).await {
            Ok(etag) => {
                count(before, &entries, result);
                inner.hub.instances.quietly(|hints| hints.idle(instance));
                return purge::finish(inner, &Versioned { value: tombstone, etag }).await;
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

fn tombstone(
    inner: &Inner,
    instance: &str,
    before: Option<&State>,
    entries: &[purge::Entry],
    deletion: Option<&Deletion>,
) -> State {
    let doomed = entries.iter().filter(|entry| matches!(entry.kind.as_str(), kind::MESSAGE | kind::ACTIVITY));
    let late = deletion.iter().flat_map(|deletion| &deletion.late).filter(|late| late.instance == instance);
    let late: Vec<Once> = late.map(|late| Once { id: late.id.clone(), low: 0 }).collect();
    let now = inner.clock.stamp();
    let mut consumed = before.map(|state| state.consumed.clone()).unwrap_or_default();
    consumed.extend(&late, now.ms());
    State {
        kind: kind::DELETED.to_owned(),
        ack: nonce(),
        consumed,
        seq: before.map_or(0, |state| state.seq),
        del: deletion.map(|deletion| deletion.id.clone()),
        purge: Some(doomed.map(|entry| entry.id.clone()).take(PURGE_MAX).collect()),
        made_at: Some(now),
        ..State::blank(instance, before.map_or_else(nonce, |state| state.incarnation.clone()))
    }
}

fn count(before: Option<&State>, entries: &[purge::Entry], result: &mut DeleteInstanceResult) {
    let of = |kind: &str| entries.iter().filter(|entry| entry.kind == kind).count() as u64;
    if let Some(state) = before.filter(|state| !state.is_deleted()) {
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
    let now = inner.clock.stamp();
    let mut deletion = Deletion {
        id: format!("d:{:x}:{}", now.0, nonce()),
        instance_id: COORDINATORS,
        kind: kind::DELETION.to_owned(),
        instances: set.iter().map(|instance| (*instance).to_owned()).collect(),
        late: Vec::new(),
        stage: DeletionStage::Prepared,
        made_at: now,
    };
    let until = Instant::now() + PATIENCE;
    let create = || inner.store.create(COORDINATORS, &deletion.id, &deletion);
    let etag = patiently(until, create).await?;
    match prepare(inner, set, &mut deletion, force).await {
        Ok(()) => {}
        Err(failure) => {
            abort(inner, deletion, &etag).await?;
            return Err(failure);
        }
    }
    deletion.stage = DeletionStage::Committed;
    if !patiently(until, || decide(inner, &deletion, &etag)).await? {
        // It took so long that another process has given it up.
        unmark(inner, &deletion).await?;
        return Err(Failure::Contended("the deletion was interrupted".to_owned()));
    }
    // It has happened; what is left of it anyone can do.
    if let Err(failure) = roll_forward(inner, &deletion, result).await {
        tracing::warn!(id = deletion.id, ?failure, "a deletion waits for the reconciler");
        inner.leave_work();
    }
    Ok(())
}

/// Marks all, then looks for children again: none can be made any more.
async fn prepare(
    inner: &Inner,
    set: &BTreeSet<&str>,
    deletion: &mut Deletion,
    force: bool,
) -> Result<(), Failure> {
    for instance in set {
        mark(inner, instance, &deletion.id, force).await?;
    }
    for instance in set {
        deletion.late.extend(late(inner, instance).await?);
    }
    check_children(inner, set).await
}

async fn mark(inner: &Inner, instance: &str, operation: &str, force: bool) -> Result<(), Failure> {
    for _ in 0..ATTEMPTS_MAX {
        let found = inner.store.state(instance).await?;
        check_status(found.as_ref(), instance, force)?;
        if let Some(tombstone) = found.as_ref().filter(|found| found.value.purge.is_some()) {
            purge::finish(inner, tombstone).await?;
            continue;
        }
        let (mut next, etag) = match found {
            Some(found) => (found.value, Some(found.etag)),
            None => (State::blank(instance, nonce()), None),
        };
        if let Some(other) = next.del.as_deref().filter(|other| *other != operation) {
            settle(inner, instance, other).await?;
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

/// Writes the next stage of a deletion, unless another process has. Whether it
/// is the stage it is in.
async fn decide(inner: &Inner, deletion: &Deletion, etag: &Etag) -> Result<bool, Failure> {
    let options = quiet().with_if_match(etag);
    match inner.store.container.replace_with(COORDINATORS, &deletion.id, deletion, &options).await {
        Ok(_) => Ok(true),
        Err(error) if is_stale(&error) => {
            let found = coordinator(inner, &deletion.id).await?;
            Ok(found.is_some_and(|found| found.value.stage == deletion.stage))
        }
        Err(error) => Err(error.into()),
    }
}

async fn coordinator(inner: &Inner, operation: &str) -> Result<Option<Versioned<Deletion>>, Failure> {
    match inner.store.container.find::<Deletion>(COORDINATORS, operation).await? {
        Some(item) => Ok(Some(Versioned { etag: item.etag()?.clone(), value: item.into_value() })),
        None => Ok(None),
    }
}

/// Takes a deletion back that was not committed.
pub(crate) async fn abort(inner: &Inner, mut deletion: Deletion, etag: &Etag) -> Result<(), Failure> {
    if deletion.stage == DeletionStage::Prepared {
        deletion.stage = DeletionStage::Aborted;
        let until = Instant::now() + PATIENCE;
        if !patiently(until, || decide(inner, &deletion, etag)).await? {
            return Ok(());
        }
    }
    unmark(inner, &deletion).await?;
    forget(inner, &deletion).await
}

async fn unmark(inner: &Inner, deletion: &Deletion) -> Result<(), Failure> {
    for instance in &deletion.instances {
        clear(inner, instance, &deletion.id).await?;
    }
    Ok(())
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

/// Whoever meets a mark brings its deletion on: finishes it, takes it back, or
/// takes away the mark of one that is gone. A young one is left to its process.
pub(crate) async fn settle(inner: &Inner, instance: &str, operation: &str) -> Result<(), Failure> {
    match coordinator(inner, operation).await? {
        Some(found) => advance(inner, found).await,
        None if is_old(inner, made_at(operation)) => clear(inner, instance, operation).await,
        None => Ok(()),
    }
}

/// Brings a deletion on that its process may have left.
pub(crate) async fn advance(inner: &Inner, found: Versioned<Deletion>) -> Result<(), Failure> {
    let Versioned { value: deletion, etag } = found;
    match deletion.stage {
        DeletionStage::Committed => roll_forward(inner, &deletion, &mut Default::default()).await,
        DeletionStage::Aborted => abort(inner, deletion, &etag).await,
        DeletionStage::Prepared if is_old(inner, deletion.made_at) => abort(inner, deletion, &etag).await,
        DeletionStage::Prepared => Ok(()),
    }
}

/// When a deletion was begun, by its id; long ago if that says nothing.
fn made_at(operation: &str) -> Stamp {
    let stamp = operation.split(':').nth(1).and_then(|stamp| u64::from_str_radix(stamp, 16).ok());
    Stamp(stamp.unwrap_or(0))
}

fn is_old(inner: &Inner, made_at: Stamp) -> bool {
    let age = Duration::from_millis(inner.clock.stamp().ms().saturating_sub(made_at.ms()));
    age > inner.options.deletion_patience
}

/// Finishes a deletion that is committed.
async fn roll_forward(
    inner: &Inner,
    deletion: &Deletion,
    result: &mut DeleteInstanceResult,
) -> Result<(), Failure> {
    for instance in &deletion.instances {
        entomb(inner, instance, Some(deletion), true, result).await?;
    }
    forget(inner, deletion).await
}

async fn forget(inner: &Inner, deletion: &Deletion) -> Result<(), Failure> {
    match inner.store.container.delete(COORDINATORS, &deletion.id).await {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(()),
    }
}

/// Instances that go together with this one, by the mark on its tombstone.
pub(crate) async fn companions(inner: &Inner, tombstone: &State) -> Result<Vec<String>, Failure> {
    let Some(operation) = &tombstone.del else { return Ok(Vec::new()) };
    Ok(coordinator(inner, operation).await?.map(|found| found.value.instances).unwrap_or_default())
}
