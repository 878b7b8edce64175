//! Deletes instances: either all instances of a set or none.
//!
//! One instance is deleted by one conditional write: its state becomes a tombstone.
//! `one_transaction` deletes several instances by one distributed transaction, if the provider uses
//! such transactions and the instances fit into one transaction. Otherwise `two_phase` deletes
//! them, atomically too. After that, `repair::purge` removes the other documents of each instance.
//!
//! The purge deletes the messages that were queued before the tombstone was written: they are for the
//! deleted instance. Later messages are for the next instance of that name, and stay. So a caller may
//! use a name again after a deletion has returned without an error: all tombstones are written by then.
//!
//! A child belongs to its parent's tree as soon as the parent has committed the start of the
//! child: while the start is in the outbox, while it is queued, and after the child has begun.
//! Parent and child may be deleted together while the start, or another message of the parent to the
//! child, is in delivery. Then the child's tombstone lists these messages as consumed, so a message that
//! arrives later has no effect: neither on the deleted child nor on the next child of that name.

mod one_transaction;
mod two_phase;

use std::collections::BTreeSet;
use std::time::Duration;

use duroxide::EventKind;
use duroxide::providers::DeleteInstanceResult;
use futures_util::future::join_all;
use perihelion_client::Query;
use serde::Deserialize;
use serde_json::Value;

use crate::documents::dedup::DedupEntry;
use crate::documents::lock_token::nonce;
use crate::documents::{Deletion, DocumentType, ExecutionStatus, Message, Outbox, State, Versioned};
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::ops::read;
use crate::ops::repair::purge;
use crate::store::{ConflictBudget, SharedDocument, Store, decode_row, unless_stale};

/// The most attempts to write the state of an instance. An attempt fails if another writer
/// changes the state in the meantime.
const ATTEMPTS_MAX: usize = 64;

/// The most values of an IN list.
pub(super) const IN_LIST_MAX: usize = 64;

/// The most requests of one deletion that run at the same time.
pub(crate) const PARALLEL_MAX: usize = 8;

/// The most messages and activities that a tombstone lists for deletion. Beyond this limit, a
/// message or an activity is deleted only if it names the incarnation of the instance, as
/// timers and completions do. Others, such as external events, stay in their queue.
const PURGE_MAX: usize = 10_000;

/// Children that were scheduled within this time are also searched in the parent's history,
/// because a query may miss them. Replicas lag behind by less than this.
const SCHEDULED_LATELY: Duration = Duration::from_secs(600);

pub(crate) use two_phase::{advance_deletion, deleted_together, is_unfinished, purge_found, resolve_mark};

/// Deletes all of these instances or none. Refuses to delete an instance that the terms exclude, and an
/// instance with a child that is not in `ids`. After success, the tombstones of all instances are
/// written. If a single instance is deleted and its purge fails, that failure is returned although the
/// instance is deleted. The counts do not include documents that the reconciler has to delete later.
pub(crate) async fn run(
    core: &Core,
    ids: &[String],
    terms: Terms<'_>,
) -> Result<DeleteInstanceResult, Failure> {
    let set: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
    let instances: Vec<&str> = set.iter().copied().collect();
    for group in instances.chunks(PARALLEL_MAX) {
        for (instance, state) in group.iter().zip(states_of(&core.store, group).await?) {
            check_status(state.as_ref(), instance, terms)?;
        }
    }
    check_children(core, &set).await?;
    let mut result = DeleteInstanceResult::default();
    match Vec::from_iter(&set).as_slice() {
        [] => {}
        [instance] => {
            let (tombstone, counts) = write_tombstone(core, instance, None, terms).await?;
            add_counts(&mut result, &counts);
            if let Some(tombstone) = tombstone {
                purge_found(core, &tombstone).await?;
            }
        }
        _ if Box::pin(one_transaction::delete(core, &set, terms, &mut result)).await? => {}
        _ => two_phase::delete(core, &set, terms, &mut result).await?,
    }
    Ok(result)
}

/// The states of a group of instances, read at the same time. `None` for an instance without a
/// state document.
pub(crate) async fn states_of<S: AsRef<str>>(
    store: &Store,
    group: &[S],
) -> Result<Vec<Option<Versioned<State>>>, Failure> {
    let mut reads = Vec::with_capacity(group.len());
    for instance in group {
        reads.push(store.state(instance.as_ref()));
    }
    join_all(reads).await.into_iter().collect()
}

/// Which instances are deleted even if they run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Force<'a> {
    None,
    All,
    /// All except this instance.
    AllExcept(&'a str),
}

impl Force<'_> {
    fn applies_to(self, instance: &str) -> bool {
        match self {
            Force::None => false,
            Force::All => true,
            Force::AllExcept(spared) => instance != spared,
        }
    }
}

/// The incarnation of an instance that a caller has selected for deletion.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Selected<'a> {
    pub(crate) instance: &'a str,
    pub(crate) incarnation: &'a str,
}

/// The terms of a deletion, which hold for the states that it replaces.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms<'a> {
    force: Force<'a>,
    /// This incarnation is deleted, or nothing: the instance may be deleted and started again since it was
    /// selected. `None` deletes whatever has the name.
    selected: Option<Selected<'a>>,
}

impl<'a> Terms<'a> {
    pub(crate) fn of_selected(selected: Selected<'a>, force: Force<'a>) -> Self {
        Terms { force, selected: Some(selected) }
    }
}

impl From<bool> for Terms<'_> {
    fn from(is_forced: bool) -> Self {
        Terms { force: if is_forced { Force::All } else { Force::None }, selected: None }
    }
}

/// Refuses an instance that runs or is about to continue as new, unless its deletion is forced. Refuses
/// another incarnation of the selected instance, or a name that only has a queued start: the selected
/// instance does not exist any more.
fn check_status(state: Option<&Versioned<State>>, instance: &str, terms: Terms<'_>) -> Result<(), Failure> {
    let state = state.map(|state| &state.value);
    if let Some(selected) = terms.selected.filter(|selected| selected.instance == instance) {
        let is_selected = |state: &&State| !state.is_deleted() && state.incarnation == selected.incarnation;
        state.filter(is_selected).ok_or_else(|| Failure::NotFound(instance.to_owned()))?;
    }
    let Some(state) = state.filter(|state| state.is_created) else { return Ok(()) };
    let is_running = state.execution.status == ExecutionStatus::Running || state.is_continued;
    if is_running && !terms.force.applies_to(instance) {
        return Err(Failure::StillRunning(instance.to_owned()));
    }
    Ok(())
}

/// A child and its parent, by instance id.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Child {
    instance_id: String,
    parent: String,
}

/// Finds the children of these instances, including children whose start is queued or still
/// in an outbox. A start moves from the outbox to the queue, and then the child begins. Outboxes,
/// queue and states are read in the same order. So a start that moves during the reads is not
/// missed: it is found in its old place or in its new place.
///
/// Queries may miss documents that another process has just written. So children that a parent has
/// scheduled lately are also found in its history.
async fn find_children(core: &Core, parents: &BTreeSet<&str>) -> Result<Vec<Child>, Failure> {
    let store = &core.store;
    let parents: Vec<&str> = parents.iter().copied().collect();
    let mut found = Vec::new();
    let mut scheduled = Vec::new();
    for group in parents.chunks(PARALLEL_MAX) {
        let mut lately = Vec::with_capacity(group.len());
        for parent in group {
            lately.push(children_scheduled_lately(core, parent));
        }
        for children in join_all(lately).await {
            scheduled.extend(children?);
        }
    }
    for group in scheduled.chunks(PARALLEL_MAX) {
        let names: Vec<&str> = group.iter().map(|child| child.instance_id.as_str()).collect();
        for (child, state) in group.iter().zip(states_of(store, &names).await?) {
            if is_of_parent(state.map(|state| state.value).as_ref(), &child.parent) {
                found.push(child.clone());
            }
        }
    }
    for group in parents.chunks(PARALLEL_MAX) {
        let mut outboxes = Vec::with_capacity(group.len());
        for parent in group {
            outboxes.push(messages_in_outboxes(store, parent));
        }
        for (parent, messages) in group.iter().zip(join_all(outboxes).await) {
            let is_start = |message: &Message| message.start_parent.as_deref() == Some(*parent);
            for start in messages?.into_iter().filter(is_start) {
                found.push(Child { instance_id: start.instance_id, parent: (*parent).to_owned() });
            }
        }
    }
    let queued = "SELECT c.instanceId, c.startParent AS parent FROM c WHERE c.type = 'orch_queue' AND \
                  c.startParent";
    let created = "SELECT c.instanceId, c.parentInstanceId AS parent FROM c WHERE c.id = 'i' AND \
                   c.type = 'history' AND c.parentInstanceId";
    for text in [queued, created] {
        for group in parents.chunks(IN_LIST_MAX * PARALLEL_MAX) {
            let mut answers = Vec::new();
            for names in group.chunks(IN_LIST_MAX) {
                answers.push(store.rows::<Child>(in_list(text, names)));
            }
            for children in join_all(answers).await {
                found.extend(children?);
            }
        }
    }
    Ok(found)
}

/// The children that an instance has scheduled within [`SCHEDULED_LATELY`] and that have not
/// answered, by its history. Some of these children may be deleted, or have another parent. The
/// history comes with the state that the deletion is conditional on, so it is never out of date when
/// the deletion succeeds.
async fn children_scheduled_lately(core: &Core, parent: &str) -> Result<Vec<Child>, Failure> {
    let Some(state) = core.store.state(parent).await? else { return Ok(Vec::new()) };
    if state.value.is_deleted() || !state.value.has_children {
        return Ok(Vec::new());
    }
    // An instance with an unreadable history can still be deleted.
    let Ok(history) = read::current_history(&core.store, &state).await? else { return Ok(Vec::new()) };
    let lately_ms = u64::try_from(SCHEDULED_LATELY.as_millis()).unwrap_or(u64::MAX);
    let since_ms = core.clock.now_ms().saturating_sub(lately_ms);
    let is_answer = |kind: &EventKind| {
        matches!(kind, EventKind::SubOrchestrationCompleted { .. } | EventKind::SubOrchestrationFailed { .. })
    };
    let answers = history.iter().filter(|event| is_answer(&event.kind));
    let answered: BTreeSet<u64> = answers.filter_map(|event| event.source_event_id).collect();
    let mut children = Vec::new();
    for event in history.iter().filter(|event| event.timestamp_ms >= since_ms) {
        let EventKind::SubOrchestrationScheduled { instance, .. } = &event.kind else { continue };
        if answered.contains(&event.event_id) {
            continue;
        }
        let instance_id = duroxide::build_child_instance_id(parent, instance);
        children.push(Child { instance_id, parent: parent.to_owned() });
    }
    Ok(children)
}

/// Whether a child that this parent has scheduled belongs to it, by the state of the child. A deleted
/// child does not belong to it. A child that has not begun does.
fn is_of_parent(state: Option<&State>, parent: &str) -> bool {
    match state {
        Some(state) if state.is_deleted() => false,
        Some(state) if state.is_created => state.parent_instance_id.as_deref() == Some(parent),
        Some(_) | None => true,
    }
}

/// The query `text IN (names)`. Every implementation of the service answers `IN` with an index. Some
/// do not use an index for `ARRAY_CONTAINS`.
pub(super) fn in_list(text: &str, names: &[&str]) -> Query {
    let parameters: Vec<String> = (0..names.len()).map(|number| format!("@name{number}")).collect();
    let query = Query::new(format!("{text} IN ({})", parameters.join(", ")));
    parameters
        .iter()
        .zip(names)
        .fold(query, |query, (parameter, name)| query.with_parameter(parameter, *name))
}

/// The messages in the outboxes of an instance. Some of them may be delivered already: an outbox is
/// deleted only after the delivery of its last message.
async fn messages_in_outboxes(store: &Store, sender: &str) -> Result<Vec<Message>, Failure> {
    let query = Query::new("SELECT * FROM c WHERE c.type = 'outbox'").in_partition(sender);
    let mut found = Vec::new();
    for row in store.rows::<Value>(query).await? {
        found.extend(decode_row::<Outbox>(row)?.value.messages);
    }
    Ok(found)
}

/// Fails if a child of an instance in the set is not in the set: the child would lose its parent.
async fn check_children(core: &Core, set: &BTreeSet<&str>) -> Result<(), Failure> {
    check_children_of(core, set, set).await
}

/// Refuses a set that would leave a child of one of these parents without its parent.
async fn check_children_of(
    core: &Core,
    parents: &BTreeSet<&str>,
    set: &BTreeSet<&str>,
) -> Result<(), Failure> {
    let children = find_children(core, parents).await?;
    match children.into_iter().find(|child| !set.contains(child.instance_id.as_str())) {
        None => Ok(()),
        Some(Child { instance_id, parent }) => Err(Failure::Refused(format!(
            "Cannot delete: instance {parent} has child {instance_id}, which would be an orphan. \
             Read the tree again and retry"
        ))),
    }
}

/// The instance and all its descendants, level by level, including children whose start is
/// queued or in an outbox.
pub(crate) async fn tree(core: &Core, root: &str) -> Result<Vec<String>, Failure> {
    let (mut all, mut level) = (vec![root.to_owned()], BTreeSet::from([root.to_owned()]));
    let mut known = level.clone();
    while !level.is_empty() {
        let parents = level.iter().map(String::as_str).collect();
        let found = find_children(core, &parents).await?.into_iter().map(|child| child.instance_id);
        level = found.filter(|child| known.insert(child.clone())).collect();
        all.extend(level.iter().cloned());
    }
    Ok(all)
}

/// Replaces the state of an instance with a tombstone. Returns the tombstone, whose purge is still to
/// be done, and the counts of what this write deletes. Without `deletion`, this write deletes the
/// instance. With `deletion`, the coordinator document of that deletion has committed it already, and
/// only an instance with the mark of the deletion is changed. If the instance has a tombstone whose
/// purge is not done, returns that one.
async fn write_tombstone(
    core: &Core,
    instance: &str,
    deletion: Option<&Deletion>,
    terms: Terms<'_>,
) -> Result<(Option<Versioned<State>>, DeleteInstanceResult), Failure> {
    let mut budget = ConflictBudget::new(SharedDocument::State(instance), ATTEMPTS_MAX);
    loop {
        budget.spend()?;
        let found = match deletion {
            Some(deletion) => marked_state(core, instance, deletion).await?,
            None => core.store.state(instance).await?,
        };
        let before = found.as_ref().map(|found| &found.value);
        let mark = before.and_then(|state| state.deletion.as_deref());
        if let Some(tombstone) = found.as_ref().filter(|found| found.value.purge.is_some()) {
            return Ok((Some(tombstone.clone()), DeleteInstanceResult::default()));
        }
        match (deletion, mark) {
            (None, Some(deletion_id)) => {
                Box::pin(two_phase::resolve_mark(core, instance, deletion_id)).await?;
                return Err(Failure::Contended(format!(
                    "cannot delete {instance}: another deletion of it is under way"
                )));
            }
            // Another process has written the tombstone for this deletion. Perhaps the
            // instance was created again since then.
            (Some(ours), mark) if mark != Some(&ours.id) => {
                return Ok((None, DeleteInstanceResult::default()));
            }
            (Some(_), _) => {}
            (None, None) => {
                // The children are checked after the state was read. If a turn creates a child
                // in the meantime, it changes the state, and the write below is refused.
                check_status(found.as_ref(), instance, terms)?;
                check_children(core, &BTreeSet::from([instance])).await?;
            }
        }
        let heads = purge::document_heads(&core.store, instance).await?;
        let value = tombstone_of(core, instance, before, &heads, deletion);
        let etag = found.as_ref().map(|found| &found.etag);
        let put = core.store.put_state(&value, etag, "/ack", value.commit_nonce.clone().into()).await;
        if let Some(etag) = unless_stale(put)? {
            core.hints.instances.with(|hints| hints.record_idle(instance));
            return Ok((Some(Versioned { value, etag }), count_deleted(before, &heads)));
        }
    }
}

/// The state of an instance that a committed deletion has marked. A state without the mark means that the
/// deletion of the instance is finished. But a replica that is behind answers such a state, too. So a
/// state without the mark is read again.
async fn marked_state(
    core: &Core,
    instance: &str,
    deletion: &Deletion,
) -> Result<Option<Versioned<State>>, Failure> {
    let found = core.store.state(instance).await?;
    let is_marked = |found: &Versioned<State>| found.value.deletion.as_deref() == Some(deletion.id.as_str());
    match found.filter(is_marked) {
        Some(marked) => Ok(Some(marked)),
        None => core.store.newest_state(instance).await,
    }
}

/// The tombstone of an instance. It keeps the incarnation, the commit number and the dedup
/// record of the state `before`. It lists the messages and activities among `heads`, which the
/// purge deletes. The tombstone is due for the reconciler at once. With `deletion`, it is due later: the
/// reconciler finds the coordinator of the deletion first, which finishes all its instances.
fn tombstone_of(
    core: &Core,
    instance: &str,
    before: Option<&State>,
    heads: &[purge::DocumentHead],
    deletion: Option<&Deletion>,
) -> State {
    let to_delete = heads
        .iter()
        .filter(|head| matches!(head.document_type, Some(DocumentType::Message | DocumentType::Activity)));
    // Messages that may be in delivery to this instance count as consumed.
    let in_delivery = deletion
        .iter()
        .flat_map(|deletion| &deletion.in_delivery)
        .filter(|message| message.instance == instance);
    // The queued messages, which the purge deletes, count as consumed too. Several processes may
    // deliver the same outbox, and a late delivery would create a message again after the purge.
    let queued = heads.iter().filter(|head| head.document_type == Some(DocumentType::Message));
    let undeliverable: Vec<DedupEntry> = in_delivery
        .map(|message| &message.id)
        .chain(queued.map(|head| &head.id))
        .map(|id| DedupEntry { id: id.clone(), low_water_mark: 0 })
        .collect();
    let now = core.clock.stamp();
    let repair_at = if deletion.is_some() { now.plus(core.options.deletion_timeout) } else { now };
    let mut dedup_record = before.map(|state| state.dedup_record.clone()).unwrap_or_default();
    dedup_record.extend(&undeliverable, now.ms());
    State {
        document_type: DocumentType::Deleted,
        commit_nonce: nonce(),
        dedup_record,
        commit_number: before.map_or(0, |state| state.commit_number),
        deletion: deletion.map(|deletion| deletion.id.clone()),
        purge: Some(to_delete.map(|head| head.id.clone()).take(PURGE_MAX).collect()),
        repair_at: Some(repair_at),
        ..State::blank(instance, before.map_or_else(nonce, |state| state.incarnation.clone()))
    }
}

/// The counts that the deletion of one instance adds to the result. `before` is the state
/// before the deletion.
fn count_deleted(before: Option<&State>, heads: &[purge::DocumentHead]) -> DeleteInstanceResult {
    let count_of = |document_type: DocumentType| {
        heads.iter().filter(|head| head.document_type == Some(document_type)).count() as u64
    };
    let mut result = DeleteInstanceResult {
        executions_deleted: count_of(DocumentType::Execution),
        events_deleted: heads.iter().map(|head| head.events).sum(),
        queue_messages_deleted: count_of(DocumentType::Message) + count_of(DocumentType::Activity),
        ..DeleteInstanceResult::default()
    };
    if let Some(state) = before.filter(|state| !state.is_deleted()) {
        result.instances_deleted += u64::from(state.is_created);
        result.executions_deleted += u64::from(state.execution.number > 0);
        result.events_deleted += state.execution.event_count;
    }
    result
}

/// Adds the counts of one deletion to a sum.
pub(crate) fn add_counts(sum: &mut DeleteInstanceResult, one: &DeleteInstanceResult) {
    sum.instances_deleted += one.instances_deleted;
    sum.executions_deleted += one.executions_deleted;
    sum.events_deleted += one.events_deleted;
    sum.queue_messages_deleted += one.queue_messages_deleted;
}
