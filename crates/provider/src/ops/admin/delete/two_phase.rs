//! Deletes several instances atomically: a two-phase commit with a coordinator document.
//!
//! First, each instance is marked: the id of the deletion is written into its state, under
//! the state's etag. No turn of a marked instance can commit. The deletion takes effect
//! when the stage of the coordinator becomes `Committed`. After that, any process that finds
//! the coordinator or a mark finishes the deletion: it writes the tombstones of all instances, then
//! purges all instances, then deletes the coordinator. A process that finds a tombstone, because it wants
//! to use the name, writes all tombstones too, and then purges only that instance.
//!
//! Invariant: no instance is purged before all have their tombstones. An instance can be created again
//! only after its purge. So while an instance still has its mark, no instance of the set exists again,
//! and all messages in its queue are for the deleted instance: no start of a parent that was created
//! again is among them, and no event or cancellation for a child of such a parent. A caller that sends
//! a start before the tombstone is written sends it to the old instance, as if it came before the
//! deletion. So the deletion succeeds only when all tombstones are written. If that takes too long, the
//! caller gets a failure that says so. (Processes of earlier versions purge each instance at once, so this
//! does not hold while some of them run.)
//!
//! Invariant: while the coordinator exists, the purges of its instances may be under way. When it is
//! deleted, all of them are done. A tombstone whose coordinator is gone was left by an earlier version of
//! this provider.
//!
//! The process that began a deletion aborts it if a mark or a check fails. Any process aborts
//! a deletion that is not committed and has recorded no progress for `deletion_timeout`. To abort a
//! deletion, the stage of the coordinator becomes `Aborted`, then the marks are cleared. If the
//! coordinator of a mark no longer exists, any process that finds the mark clears it, but only when
//! the deletion began more than `deletion_timeout` ago.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use duroxide::providers::DeleteInstanceResult;
use futures_util::future::join_all;
use perihelion_client::{Etag, Query, Written};
use tokio::time::Instant;

use super::{
    ATTEMPTS_MAX, PARALLEL_MAX, Terms, add_counts, check_children_of, check_status, messages_in_outboxes,
    states_of, write_tombstone,
};
use crate::documents::lock_token::nonce;
use crate::documents::stamp::Stamp;
use crate::documents::{
    Deletion, DeletionStage, DocumentType, Message, MessageInDelivery, State, UnknownMembers, Versioned,
};
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::ops::repair::purge::{self, PurgeEnd};
use crate::options::config::Options;
use crate::process::clock::HybridClock;
use crate::store::{
    ConflictBudget, RETRY_FOR, SharedDocument, Store, retry_until, unless_stale, without_content,
};

/// How many instances are checked for children before the progress is recorded.
const CHECKED_AT_ONCE: usize = 256;

/// The most tombstones that a deletion keeps in memory until their purges. It reads the others again. A
/// tombstone has up to some hundred KB.
const TOMBSTONES_KEPT_MAX: usize = 256;

/// The partition key of all coordinators.
const COORDINATORS_KEY: u64 = 1;

/// Marks all instances, checks for children again, commits the deletion, writes the tombstones, and
/// purges the instances. If the tombstones cannot be written for [`RETRY_FOR`], that is a failure
/// although the deletion is committed: the names are not free yet. If a purge fails, that is only
/// logged. In both cases the reconciler finishes the deletion, and `result` does not count what the
/// reconciler deletes.
pub(super) async fn delete(
    core: &Core,
    set: &BTreeSet<&str>,
    terms: Terms<'_>,
    result: &mut DeleteInstanceResult,
) -> Result<(), Failure> {
    let now = core.clock.stamp();
    let mut deletion = Deletion {
        id: format!("d:{:x}:{}", now.0, nonce()),
        instance_id: COORDINATORS_KEY,
        document_type: DocumentType::Deletion,
        instances: set.iter().map(|instance| (*instance).to_owned()).collect(),
        in_delivery: Vec::new(),
        stage: DeletionStage::Prepared,
        made_at: now,
        unknown: UnknownMembers::default(),
    };
    let create = || core.store.create(COORDINATORS_KEY, &deletion.id, &deletion);
    let mut etag = retry_until(Instant::now() + RETRY_FOR, create).await?;
    match prepare(core, set, &mut deletion, &mut etag, terms).await {
        Ok(()) => {}
        Err(failure) => {
            abort(&core.store, deletion, &etag).await?;
            return Err(failure);
        }
    }
    deletion.stage = DeletionStage::Committed;
    let until = Instant::now() + RETRY_FOR;
    if !retry_until(until, || write_stage(&core.store, &deletion, &etag)).await? {
        clear_marks(&core.store, &deletion).await?;
        // If the answer of the commit was lost, another process may have finished the deletion.
        return match are_deleted(&core.store, &deletion.instances).await? {
            true => Ok(()),
            false => Err(aborted_by_other(&deletion)),
        };
    }
    let tombstones = match write_tombstones(core, &deletion, RETRY_FOR, result).await {
        Ok(tombstones) => tombstones,
        Err(failure) => {
            core.repair_signal.record_unfinished_work();
            return Err(unfinished(&deletion, &failure));
        }
    };
    match purge_all(core, &deletion, tombstones).await {
        Ok(PurgeEnd::Done) => {}
        Ok(PurgeEnd::TakenOver) => core.repair_signal.record_unfinished_work(),
        Err(failure) => {
            tracing::warn!(id = deletion.id, ?failure, "a deletion waits for the reconciler");
            core.repair_signal.record_unfinished_work();
        }
    }
    Ok(())
}

/// Marks all instances. After that, no instance of the set can start a child or send a message. Then
/// collects the messages from one instance of the set to another that may be in delivery, and checks for
/// children again.
async fn prepare(
    core: &Core,
    set: &BTreeSet<&str>,
    deletion: &mut Deletion,
    etag: &mut Etag,
    terms: Terms<'_>,
) -> Result<(), Failure> {
    let instances: Vec<&str> = set.iter().copied().collect();
    for group in instances.chunks(PARALLEL_MAX) {
        let id = deletion.id.clone();
        let mut marks = Vec::with_capacity(group.len());
        for instance in group {
            marks.push(mark_instance(core, instance, &id, terms));
        }
        join_all(marks).await.into_iter().collect::<Result<Vec<()>, Failure>>()?;
        record_progress(core, deletion, etag).await?;
    }
    for group in instances.chunks(PARALLEL_MAX) {
        let mut outboxes = Vec::with_capacity(group.len());
        for instance in group {
            outboxes.push(messages_in_outboxes(&core.store, instance));
        }
        for messages in join_all(outboxes).await {
            // Other messages are answers, and name the incarnation that they are for.
            let is_within =
                |message: &Message| message.needs_dedup && set.contains(message.instance_id.as_str());
            let within = messages?.into_iter().filter(is_within);
            deletion.in_delivery.extend(
                within.map(|message| MessageInDelivery { instance: message.instance_id, id: message.id }),
            );
        }
        record_progress(core, deletion, etag).await?;
    }
    for group in instances.chunks(CHECKED_AT_ONCE) {
        check_children_of(core, &group.iter().copied().collect(), set).await?;
        record_progress(core, deletion, etag).await?;
    }
    Ok(())
}

/// Writes the current time into the coordinator, if a quarter of `deletion_timeout` has passed
/// since the time in it. So no other process aborts a deletion that makes progress, however many
/// instances it has.
async fn record_progress(core: &Core, deletion: &mut Deletion, etag: &mut Etag) -> Result<(), Failure> {
    let age = Duration::from_millis(core.clock.now_ms().saturating_sub(deletion.made_at.ms()));
    if age < core.options.deletion_timeout / 4 {
        return Ok(());
    }
    // The messages in delivery are not written before the commit.
    let made_at = core.clock.stamp();
    let progress = Deletion { made_at, in_delivery: Vec::new(), ..deletion.clone() };
    let until = Instant::now() + RETRY_FOR;
    let options = || without_content().with_witness(progress.id.as_str(), "/madeAt", made_at.0);
    let put = || async {
        let options = options().with_if_match(etag);
        Ok(core.store.container.replace_with(COORDINATORS_KEY, &progress.id, &progress, &options).await?)
    };
    let written = unless_stale(retry_until(until, put).await)?;
    let is_answered = |written: &Written| written.receipt().diagnostics().resolution().is_none();
    *etag = match written.as_ref().filter(|written| is_answered(written)).map(Written::etag) {
        Some(Ok(etag)) => etag.clone(),
        // An answer was lost, or another process has changed the coordinator.
        _ => {
            let found = retry_until(until, || read_coordinator(&core.store, &deletion.id)).await?;
            let is_ours =
                |found: &Deletion| found.stage == DeletionStage::Prepared && found.made_at == made_at;
            let found = found.filter(|found| is_ours(&found.value));
            found.ok_or_else(|| aborted_by_other(deletion))?.etag
        }
    };
    deletion.made_at = made_at;
    Ok(())
}

/// Whether all of these instances have tombstones.
async fn are_deleted(store: &Store, instances: &[String]) -> Result<bool, Failure> {
    for group in instances.chunks(PARALLEL_MAX) {
        let is_deleted =
            |state: &Option<Versioned<State>>| state.as_ref().is_some_and(|state| state.value.is_deleted());
        if !states_of(store, group).await?.iter().all(is_deleted) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn aborted_by_other(deletion: &Deletion) -> Failure {
    Failure::Contended(format!(
        "cannot delete {} instances: the deletion made no progress for too long, and another process aborted it",
        deletion.instances.len()
    ))
}

/// The failure of a deletion that is committed, and that a reconciler has to finish.
fn unfinished(deletion: &Deletion, failure: &Failure) -> Failure {
    Failure::Contended(format!(
        "the deletion of {} instances is committed, but some of them could not be removed yet: {}. The \
         reconciler removes them. Until then do not use their names again: a start would be lost",
        deletion.instances.len(),
        failure.summary()
    ))
}

/// Writes the mark into the state of an instance. If there is no state document, creates a
/// blank state with the mark. Fails if another deletion has marked the instance.
async fn mark_instance(
    core: &Core,
    instance: &str,
    deletion_id: &str,
    terms: Terms<'_>,
) -> Result<(), Failure> {
    let mut budget = ConflictBudget::new(SharedDocument::State(instance), ATTEMPTS_MAX);
    loop {
        budget.spend()?;
        let found = core.store.state(instance).await?;
        check_status(found.as_ref(), instance, terms)?;
        if let Some(tombstone) = found.as_ref().filter(|found| found.value.purge.is_some()) {
            Box::pin(purge_found(core, tombstone)).await?;
            continue;
        }
        let (mut next, etag) = match found {
            Some(found) => (found.value, Some(found.etag)),
            None => (State::blank(instance, nonce()), None),
        };
        if let Some(other) = next.deletion.as_deref().filter(|other| *other != deletion_id) {
            resolve_mark(core, instance, other).await?;
            return Err(Failure::Contended(format!(
                "cannot delete {instance}: another deletion of it is under way"
            )));
        }
        next.deletion = Some(deletion_id.to_owned());
        let put = core.store.put_state(&next, etag.as_ref(), "/del", deletion_id.into()).await;
        if unless_stale(put)?.is_some() {
            return Ok(());
        }
    }
}

/// Writes the stage of a deletion, unless another process has changed the coordinator. Returns
/// whether the coordinator is in that stage.
async fn write_stage(store: &Store, deletion: &Deletion, etag: &Etag) -> Result<bool, Failure> {
    let options = without_content().with_if_match(etag);
    let written = store.container.replace_with(COORDINATORS_KEY, &deletion.id, deletion, &options).await;
    if unless_stale(written.map_err(Failure::from))?.is_some() {
        return Ok(true);
    }
    let found = read_coordinator(store, &deletion.id).await?;
    Ok(found.is_some_and(|found| found.value.stage == deletion.stage))
}

/// Reads the coordinator of a deletion; `None` after the deletion was finished or aborted.
async fn read_coordinator(store: &Store, deletion_id: &str) -> Result<Option<Versioned<Deletion>>, Failure> {
    match store.container.find::<Deletion>(COORDINATORS_KEY, deletion_id).await? {
        Some(item) => Ok(Some(Versioned { etag: item.etag()?.clone(), value: item.into_value() })),
        None => Ok(None),
    }
}

/// Aborts a deletion, or continues an abort. Does nothing if another process has committed
/// the deletion, or has deleted the coordinator already.
async fn abort(store: &Store, mut deletion: Deletion, etag: &Etag) -> Result<(), Failure> {
    if deletion.stage == DeletionStage::Prepared {
        deletion.stage = DeletionStage::Aborted;
        let until = Instant::now() + RETRY_FOR;
        if !retry_until(until, || write_stage(store, &deletion, etag)).await? {
            return Ok(());
        }
    }
    clear_marks(store, &deletion).await?;
    delete_coordinator(store, &deletion).await
}

async fn clear_marks(store: &Store, deletion: &Deletion) -> Result<(), Failure> {
    for instance in &deletion.instances {
        clear_mark(store, instance, &deletion.id).await?;
    }
    Ok(())
}

/// Removes the mark of this deletion from the state of an instance, if the state has it.
async fn clear_mark(store: &Store, instance: &str, deletion_id: &str) -> Result<(), Failure> {
    let mut budget = ConflictBudget::new(SharedDocument::State(instance), ATTEMPTS_MAX);
    loop {
        budget.spend()?;
        let found = store.state(instance).await?;
        let Some(found) = found.filter(|found| found.value.deletion.as_deref() == Some(deletion_id)) else {
            return Ok(());
        };
        let next = State { deletion: None, commit_nonce: nonce(), ..found.value };
        let put = store.put_state(&next, Some(&found.etag), "/ack", next.commit_nonce.clone().into()).await;
        if unless_stale(put)?.is_some() {
            return Ok(());
        }
    }
}

/// Advances the deletion of a marked instance (see [`advance_deletion`]). If the coordinator
/// no longer exists and the deletion began more than `deletion_timeout` ago, clears the mark.
pub(crate) async fn resolve_mark(core: &Core, instance: &str, deletion_id: &str) -> Result<(), Failure> {
    match read_coordinator(&core.store, deletion_id).await? {
        Some(found) => advance_deletion(core, found).await,
        None if is_timed_out(&core.clock, &core.options, begun_at(deletion_id)) => {
            clear_mark(&core.store, instance, deletion_id).await
        }
        None => Ok(()),
    }
}

/// Advances a deletion that its process may have abandoned. Finishes a committed deletion,
/// continues an abort, and aborts a prepared deletion that has recorded no progress for
/// `deletion_timeout`. Does nothing with any other prepared deletion: its own process continues
/// it.
pub(crate) async fn advance_deletion(core: &Core, found: Versioned<Deletion>) -> Result<(), Failure> {
    let Versioned { value: deletion, etag } = found;
    match deletion.stage {
        DeletionStage::Committed => roll_forward(core, &deletion).await.map(drop),
        DeletionStage::Aborted => abort(&core.store, deletion, &etag).await,
        DeletionStage::Prepared if is_timed_out(&core.clock, &core.options, deletion.made_at) => {
            abort(&core.store, deletion, &etag).await
        }
        DeletionStage::Prepared => Ok(()),
    }
}

/// When a deletion began, from its id (see `delete`); zero if the id has no time.
fn begun_at(deletion_id: &str) -> Stamp {
    let stamp = deletion_id.split(':').nth(1).and_then(|stamp| u64::from_str_radix(stamp, 16).ok());
    Stamp(stamp.unwrap_or(0))
}

/// Whether a deletion began, or last recorded progress, at `made_at` more than
/// `deletion_timeout` ago.
fn is_timed_out(clock: &HybridClock, options: &Options, made_at: Stamp) -> bool {
    let age = Duration::from_millis(clock.now_ms().saturating_sub(made_at.ms()));
    age > options.deletion_timeout
}

/// Finishes a committed deletion that its process may have left.
async fn roll_forward(core: &Core, deletion: &Deletion) -> Result<PurgeEnd, Failure> {
    let mut counts = DeleteInstanceResult::default();
    let tombstones = write_tombstones(core, deletion, Duration::ZERO, &mut counts).await?;
    purge_all(core, deletion, tombstones).await
}

/// The tombstones of a deletion, by instance.
type Tombstones = HashMap<String, Versioned<State>>;

/// Writes the tombstones of all instances of a committed deletion, and adds their counts to `result`.
/// Each tombstone is tried again for `retry_for` after transient failures. Returns at most
/// [`TOMBSTONES_KEPT_MAX`] tombstones whose purge is not done.
async fn write_tombstones(
    core: &Core,
    deletion: &Deletion,
    retry_for: Duration,
    result: &mut DeleteInstanceResult,
) -> Result<Tombstones, Failure> {
    let mut kept = Tombstones::new();
    for group in deletion.instances.chunks(PARALLEL_MAX) {
        let until = Instant::now() + retry_for;
        let mut tombstones = Vec::with_capacity(group.len());
        for instance in group {
            let write = move || write_tombstone(core, instance, Some(deletion), true.into());
            tombstones.push(retry_until(until, write));
        }
        // A failure does not stop the other tombstones of the group. The reconciler repeats the
        // whole deletion later.
        let mut first_failure = None;
        for (instance, written) in group.iter().zip(join_all(tombstones).await) {
            match written {
                Ok((tombstone, counts)) => {
                    add_counts(result, &counts);
                    let tombstone = tombstone.filter(|_| kept.len() < TOMBSTONES_KEPT_MAX);
                    kept.extend(tombstone.map(|tombstone| (instance.clone(), tombstone)));
                }
                Err(failure) => drop(first_failure.get_or_insert(failure)),
            }
        }
        if let Some(failure) = first_failure {
            return Err(failure);
        }
    }
    Ok(kept)
}

/// Purges all instances of a deletion, then deletes its coordinator. All tombstones are written, and
/// `known` has some of them. The coordinator is deleted last, because purges read it. If another process
/// is purging an instance, the coordinator stays, and the next call deletes it. A purge that fails stops
/// no other purge: the first failure is returned at the end.
async fn purge_all(core: &Core, deletion: &Deletion, mut known: Tombstones) -> Result<PurgeEnd, Failure> {
    let (mut is_done, mut first_failure) = (true, None);
    for group in deletion.instances.chunks(PARALLEL_MAX) {
        let mut purges = Vec::with_capacity(group.len());
        for instance in group {
            purges.push(purge_member(core, deletion, instance, known.remove(instance)));
        }
        for purged in join_all(purges).await {
            match purged {
                Ok(end) => is_done &= end == PurgeEnd::Done,
                Err(failure) => drop(first_failure.get_or_insert(failure)),
            }
        }
    }
    if let Some(failure) = first_failure {
        return Err(failure);
    }
    if !is_done {
        return Ok(PurgeEnd::TakenOver);
    }
    delete_coordinator(&core.store, deletion).await.map(|()| PurgeEnd::Done)
}

/// Purges an instance of a deletion, unless that is done. The instance may be deleted again by now. Then
/// its tombstone is left to the later deletion.
async fn purge_member(
    core: &Core,
    deletion: &Deletion,
    instance: &str,
    known: Option<Versioned<State>>,
) -> Result<PurgeEnd, Failure> {
    let is_ours = |found: &Versioned<State>| {
        found.value.purge.is_some() && found.value.deletion.as_ref() == Some(&deletion.id)
    };
    let unpurged = || async { Ok::<_, Failure>(core.store.state(instance).await?.filter(is_ours)) };
    let tombstone = match known.filter(is_ours) {
        Some(tombstone) => Some(tombstone),
        None => unpurged().await?,
    };
    let Some(tombstone) = tombstone else { return Ok(PurgeEnd::Done) };
    match purge::run(core, &tombstone).await? {
        // The other process has perhaps finished the purge.
        PurgeEnd::TakenOver if unpurged().await?.is_none() => Ok(PurgeEnd::Done),
        end => Ok(end),
    }
}

/// Purges a deleted instance whose tombstone a process has found. If the instance is deleted together
/// with others, the tombstones of all of them are written first: see the invariants of this module. The
/// other purges, and the coordinator, are left to the deletion's own process or to the reconciler.
///
/// If the coordinator is not found, and the deletion began less than `deletion_timeout` ago, nothing is
/// done: a replica may be late. A replica that answers the coordinator as it was before the commit is
/// late, too. That version does not have the messages in delivery.
pub(crate) async fn purge_found(core: &Core, tombstone: &Versioned<State>) -> Result<PurgeEnd, Failure> {
    let Some(deletion_id) = &tombstone.value.deletion else { return purge::run(core, tombstone).await };
    match read_coordinator(&core.store, deletion_id).await? {
        Some(found) if found.value.stage == DeletionStage::Committed => {
            let (deletion, instance) = (&found.value, &tombstone.value.instance_id);
            let mut counts = DeleteInstanceResult::default();
            let write = Box::pin(write_tombstones(core, deletion, Duration::ZERO, &mut counts));
            let known = write.await?.remove(instance);
            core.repair_signal.record_unfinished_work();
            purge_member(core, deletion, instance, known).await
        }
        Some(_) => Ok(PurgeEnd::TakenOver),
        None if is_timed_out(&core.clock, &core.options, begun_at(deletion_id)) => {
            purge::run(core, tombstone).await
        }
        None => Ok(PurgeEnd::TakenOver),
    }
}

/// Whether a deletion of several instances is not finished: its coordinator exists. The coordinator,
/// which may be large, is not read.
pub(crate) async fn is_unfinished(store: &Store, deletion_id: &str) -> Result<bool, Failure> {
    let query = Query::new("SELECT VALUE c.id FROM c WHERE c.id = @id")
        .with_parameter("@id", deletion_id)
        .in_partition(COORDINATORS_KEY);
    Ok(!store.rows::<String>(query).await?.is_empty())
}

async fn delete_coordinator(store: &Store, deletion: &Deletion) -> Result<(), Failure> {
    match store.container.delete(COORDINATORS_KEY, &deletion.id).await {
        Err(error) if !error.is_document_not_found() => Err(error.into()),
        _ => Ok(()),
    }
}

/// The ids of all instances that were deleted in two phases together with the instance of this
/// tombstone, including that instance. Empty if the instance was deleted in another way, or the
/// coordinator no longer exists.
pub(crate) async fn deleted_together(store: &Store, tombstone: &State) -> Result<Vec<String>, Failure> {
    let Some(deletion_id) = &tombstone.deletion else { return Ok(Vec::new()) };
    Ok(read_coordinator(store, deletion_id).await?.map(|found| found.value.instances).unwrap_or_default())
}
