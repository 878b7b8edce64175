//! `ack_orchestration_item`: loads the documents that the plan needs, plans the turn, commits it, and
//! delivers its messages.
//!
//! Invariant: up to the commit, requests that fail with a transient failure are retried. If the ack
//! returned such a failure, the runtime would retry only briefly and then fail the workflow. The ack
//! renews its lock while it stages documents and while it retries the commit. Reads are retried until
//! the lock expires. When the answer to a commit was lost, the state is read to find out whether the
//! commit was applied.

use std::sync::Arc;
use std::time::Duration;

use perihelion_client::Etag;
use tokio::time::Instant;

use crate::documents::Activity;
use crate::documents::lock_token::{LockToken, nonce};
use crate::documents::{Bundle, CancelledActivity, Charge, Message, PastExecution, State, Versioned};
use crate::failure::Failure;
use crate::ops::activity::sessions;
use crate::ops::core::Core;
use crate::ops::orchestration::commit::{CommitOutcome, WrittenEtags};
use crate::ops::orchestration::deliver;
use crate::ops::orchestration::direct_dispatch::DirectDispatch;
use crate::ops::orchestration::held_lock;
use crate::ops::orchestration::leftovers;
use crate::ops::orchestration::pace::ActivityCounts;
use crate::ops::orchestration::send_commit::{CommitForm, CommitSender};
use crate::ops::orchestration::stage;
use crate::ops::orchestration::unpack;
use crate::ops::repair::garbage;
use crate::ops::token_lock;
use crate::plan::{self, Basis, TurnAck, TurnPlan, past_execution_id};
use crate::process::clock::HybridClock;
use crate::process::hints::ReadyActivity;
use crate::process::lock_table::LockedInstance;
use crate::process::metrics;
use crate::store::state_cache::Snapshot;
use crate::store::{ConflictBudget, SharedDocument, Store, retry_until};
use crate::timing::{LATE_ATTEMPT_MAX, POLL_INTERVAL_MIN, STAGING_GUARD_TTL};

/// The most plans of one turn, including the first. A turn is planned again if its commit was
/// stale and its lock still holds. A commit is stale if another writer changed the state, a
/// bundle or the document of a past execution, or the reconciler deleted the staged documents.
/// Such writers are rare under a lock: they append events, renew the lock from another process,
/// unpack a bundle, or mark the instance for a deletion that is then aborted.
const PLANS_MAX: usize = 16;

/// The longest time that one plan is staged and its commit retried. The lock is renewed
/// meanwhile, so a commit of many megabytes on a slow or throttled connection can finish.
const COMMIT_RETRIED_FOR: Duration = Duration::from_secs(600);

/// How long an ack waits until the bundles of its turn are unpacked. Usually that takes less. A partition
/// that hangs must not hold the dispatcher, which could run other instances.
const UNPACK_WAIT: Duration = Duration::from_secs(5);

// The guard document of a staging outlives the last attempt to create it.
const _: () =
    assert!(STAGING_GUARD_TTL.as_secs() > 2 * (COMMIT_RETRIED_FOR.as_secs() + LATE_ATTEMPT_MAX.as_secs()));

pub(crate) async fn run(core: &Core, token: &str, ack: TurnAck) -> Result<(), Failure> {
    let (token, held) = held_lock::find(core, token).await?;
    metrics::charge_transactions_to(&token.instance);
    let mut held = held.lock().await;
    if let Err(ended) = token_lock::check_not_expired(held.until) {
        // The runtime acks once more, with the failure of the workflow. That ack must not find the lock
        // in the document: a renewal whose answer was lost may have written a later end. Ending the lock
        // also frees its memory, which has the state and the history.
        core.instance_locks.end(&token.nonce);
        return Err(ended);
    }
    let nonce = nonce();
    let mut budget = ConflictBudget::new(SharedDocument::State(&token.instance), PLANS_MAX);
    let committed = loop {
        budget.spend()?;
        if let Some(committed) = commit_turn(core, &token, &mut held, &ack, &nonce).await? {
            break committed;
        }
    };
    finish_turn(core, &token, &mut held, ack, committed).await;
    Ok(())
}

/// A turn after its commit.
struct CommittedTurn<'a> {
    plan: TurnPlan,
    etags: WrittenEtags,
    dispatch: DirectDispatch<'a>,
    /// The form of the last attempt.
    form: CommitForm,
}

/// Plans and commits the turn. `None` if the commit was stale but the lock still holds: the
/// caller plans the turn again.
async fn commit_turn<'a>(
    core: &'a Core,
    token: &LockToken,
    held: &mut LockedInstance,
    ack: &TurnAck,
    nonce: &str,
) -> Result<Option<CommittedTurn<'a>>, Failure> {
    let mut taken_charge = core.costs.take(&token.instance);
    let charge = taken_charge.charge().plus(held.charge_in_messages);
    let mut plan = plan_turn(&core.store, &core.clock, held, ack, nonce, charge).await?;
    let until = Instant::now() + COMMIT_RETRIED_FOR;
    // The futures of rare steps are large. They are boxed, so that this future stays small.
    let mut staged = None;
    if plan.staging_id.is_some() {
        let staging = stage::stage_turn(&core.store, &core.clock, &plan, until);
        staged = match Box::pin(held_lock::renew_during(core, token, held, staging)).await {
            Ok(Some(staged)) => staged,
            // A renewal of the lock was stale: the state has changed since the turn was planned.
            Ok(None) => {
                stage::give_up(core, &plan).await;
                Box::pin(held_lock::refresh(core, token, held)).await?;
                return Ok(None);
            }
            Err(failure) => {
                stage::give_up(core, &plan).await;
                return Err(failure);
            }
        };
    }
    let dispatch = DirectDispatch::promise(core, &mut plan);
    let mut sender = CommitSender::new(core, token, &plan, &dispatch, staged.as_ref());
    taken_charge.mark_sent();
    let outcome = sender.send(held, until).await;
    let form = sender.form();
    if !matches!(outcome, Ok(CommitOutcome::Committed(_))) {
        stage::give_up(core, &plan).await;
    }
    match outcome? {
        CommitOutcome::Committed(etags) => Ok(Some(CommittedTurn { plan, etags, dispatch, form })),
        CommitOutcome::Stale => {
            let state = Box::pin(retry_until(held.until, || core.store.state(&token.instance))).await?;
            let state = state.map(|state| state.value);
            if state.as_ref().is_some_and(|state| was_applied(state, nonce)) {
                return Ok(Some(CommittedTurn { plan, etags: WrittenEtags::default(), dispatch, form }));
            }
            taken_charge.put_back();
            if held.etag.is_none() && state.is_some_and(|state| state.is_created) {
                core.start_checks.record_collision();
            }
            Box::pin(held_lock::refresh(core, token, held)).await?;
            token_lock::check_not_expired(held.until)?;
            Ok(None)
        }
        // The lock was in memory only, and the hints had messages that no longer exist.
        CommitOutcome::Refused(_) if held.is_optimistic => {
            taken_charge.put_back();
            held_lock::give_up(core, token);
            Err(Failure::LockLost)
        }
        CommitOutcome::Refused(error) => {
            taken_charge.put_back();
            Err(Failure::Refused(error.to_string()))
        }
    }
}

/// Reads the open bundles and, if the ack is for a past execution, its document; then plans
/// the turn.
async fn plan_turn(
    store: &Store,
    clock: &HybridClock,
    held: &LockedInstance,
    ack: &TurnAck,
    nonce: &str,
    charge: Charge,
) -> Result<TurnPlan, Failure> {
    let state = &held.state;
    let bundles = match state.bundles.is_empty() {
        true => Vec::new(),
        false => Box::pin(retry_until(held.until, || open_bundles(store, state))).await?,
    };
    let past = match ack.execution < state.execution.number {
        true => {
            let id = past_execution_id(ack.execution);
            let find = || store.find::<PastExecution>(&state.instance_id, &id);
            Box::pin(retry_until(held.until, find)).await?
        }
        false => None,
    };
    let now = clock.reserve(ack.stamps_max());
    let dedup_entries = &held.dedup_entries;
    plan::turn(&Basis { state, past, bundles: &bundles, dedup_entries, now, nonce, charge }, ack)
}

/// The bundles of an instance that are not unpacked yet.
async fn open_bundles(store: &Store, state: &State) -> Result<Vec<Versioned<Bundle>>, Failure> {
    let mut bundles = Vec::new();
    for id in &state.bundles {
        let found = store.find::<serde_json::Value>(&state.instance_id, id).await?;
        let Some(Versioned { value, etag }) = found else { continue };
        // A later version may have written the bundle, and can read it. So the failure is
        // transient: a permanent failure would end the workflow.
        let value = serde_json::from_value(value).map_err(|error| {
            Failure::Contended(format!("bundle {id} of {} cannot be read: {error}", state.instance_id))
        })?;
        bundles.push(Versioned { value, etag });
    }
    Ok(bundles)
}

/// Whether the commit with this nonce was applied. The state has the nonces of the recent
/// commits.
fn was_applied(state: &State, nonce: &str) -> bool {
    state.recent_nonces.iter().any(|recent| recent == nonce)
}

/// Does the work after a commit. The next turn of the instance begins after the consumed
/// completions are deleted, because otherwise it would find them again. Activities and messages to
/// other instances do not wait for these deletions. If the work on a bundle, an outbox or garbage
/// fails, the reconciler of any process repeats it; if completions are not deleted, the next claim
/// deletes them.
async fn finish_turn(
    core: &Core,
    token: &LockToken,
    held: &mut LockedInstance,
    ack: TurnAck,
    committed: CommittedTurn<'_>,
) {
    let CommittedTurn { plan, etags, dispatch, form } = committed;
    core.instance_locks.remove(&token.nonce);
    let TurnPlan { state, messages, undeleted, activities, bundles, outboxes, garbage, cancelled, .. } = plan;
    forget_cancelled(core, &token.instance, &cancelled, &bundles);
    let is_answered = etags.state.is_some();
    let cached = cache_state(&core.store, held, ack, &state, etags.state);
    let (held, cached) = (&*held, cached.as_ref());
    let next_turn = async {
        if !undeleted.is_empty()
            && Box::pin(leftovers::delete_after_commit(&core.store, &state, &undeleted, &held.message_etags))
                .await
        {
            update_cached(&core.store, cached, |state| state.undeleted.clear());
        }
        begin_next_turn(core, held, &state, messages, cached);
    };
    let deliveries = async {
        share_foreign_sessions(core, &token.instance, &activities);
        // Messages that the commit has delivered itself need no request, so they come first.
        let undelivered = match form {
            CommitForm::Batch => outboxes,
            CommitForm::Transaction => {
                deliver::record_delivered(core, outboxes, is_answered);
                Vec::new()
            }
        };
        // They run at the same time, so that none of them waits while another one retries.
        tokio::join!(
            biased;
            dispatch.hand_over(activities, etags.activities),
            unpack_after_commit(core, &token.instance, bundles, cached),
            deliver::deliver_after_commit(core, undelivered, is_answered),
        );
    };
    // If there are no completions to delete, the hints of the next turn are set first.
    tokio::join!(biased; next_turn, deliveries);
    if let Some(garbage) = garbage {
        garbage::collect_in_background(core, garbage).await;
    }
    if state.execution.status.ends_instance() && !state.is_continued {
        core.costs.forget(&token.instance);
    }
}

/// Updates the hints after a commit, so that the next turn of the instance can begin. `state` is
/// the committed state, and `messages` are the messages of the instance to itself.
fn begin_next_turn(
    core: &Core,
    held: &LockedInstance,
    state: &State,
    messages: Vec<Message>,
    cached: Option<&Arc<Snapshot>>,
) {
    let (instance, now) = (state.instance_id.as_str(), core.clock.stamp());
    let is_polled = core.membership.view().is_polled(instance);
    let is_ended = state.execution.completed_at.is_some();
    let may_wait = !held.has_more_messages && !is_ended;
    let pause = cached.filter(|_| may_wait).and_then(|cached| ActivityCounts::of(&cached.history).pause());
    // This process has run a turn, so it no longer leaves the instance to other processes.
    core.hints.left_instances.forget(instance);
    core.hints.instances.update_and_wake(|hints| {
        // Messages first: the next fetch of the instance must see them.
        for message in messages {
            hints.add_message(message, now);
        }
        // The next turn of a wide fan-out waits for further completions (see `pace`). Polls leave the
        // instance out during this pause. After a short pause the next poll finds
        // its messages soon. After a longer pause, this hint makes a fetch read the instance.
        let is_read_after_pause = pause.is_some_and(|pause| pause >= POLL_INTERVAL_MIN);
        if held.has_more_messages || is_read_after_pause {
            hints.add_due(instance, now.visible_at_once());
        }
        if held.state.execution.pinned_version != state.execution.pinned_version {
            hints.unpark(instance);
        }
        hints.record_commit(instance);
        if !is_polled {
            hints.record_unpolled(instance, now);
        }
        if let Some(pause) = pause {
            hints.block(instance, core.clock.now().plus(pause));
        }
    });
}

/// Removes the hints of activities that a commit has cancelled. Otherwise workers would try to lock each
/// of them before any other work, because they are the oldest. If such an activity was locked for a
/// worker, and no worker has fetched it yet, the claim of its session is undone.
fn forget_cancelled(core: &Core, instance: &str, cancelled: &[CancelledActivity], bundles: &[Bundle]) {
    let tombstones = cancelled.iter().map(|cancelled| &cancelled.id);
    let ids: Vec<&String> = tombstones.chain(bundles.iter().flat_map(|bundle| &bundle.cancelled)).collect();
    if ids.is_empty() {
        return;
    }
    let ready: Vec<ReadyActivity> = core
        .hints
        .activities
        .with(|hints| ids.into_iter().filter_map(|id| hints.remove(instance, id)).collect());
    for session in ready.into_iter().filter_map(|ready| ready.session) {
        sessions::release_in_background(core, session);
    }
}

/// Unpacks the bundles of a turn after its commit. If that takes longer than [`UNPACK_WAIT`], it
/// continues in the background, or is left to the reconciler if there are too many tasks.
async fn unpack_after_commit(
    core: &Core,
    instance: &str,
    bundles: Vec<Bundle>,
    cached: Option<&Arc<Snapshot>>,
) {
    let Some(shared) = core.this.upgrade().filter(|_| !bundles.is_empty()) else { return };
    let (instance, cached) = (instance.to_owned(), cached.cloned());
    let work = Box::pin(async move { unpack_bundles(&shared, &instance, bundles, cached.as_ref()).await });
    if !core.background.run_after_or_drop(UNPACK_WAIT, metrics::for_current_call(work)).await {
        core.repair_signal.record_unfinished_work();
    }
}

/// Unpacks the bundles of a turn.
async fn unpack_bundles(core: &Core, instance: &str, bundles: Vec<Bundle>, cached: Option<&Arc<Snapshot>>) {
    let mut unpacked = Vec::new();
    for bundle in bundles {
        match Box::pin(unpack::run(core, instance, &bundle.id)).await {
            Ok(()) => unpacked.push(bundle.id),
            Err(failure) => {
                tracing::warn!(instance, id = bundle.id, ?failure, "a bundle waits for the reconciler");
                core.repair_signal.record_unfinished_work();
            }
        }
    }
    if !unpacked.is_empty() {
        update_cached(&core.store, cached, |state| {
            state.bundles.retain(|bundle| !unpacked.contains(bundle));
        });
    }
}

/// Asks the other processes to poll the slice of the instance, if one of its new activities
/// belongs to a session that no worker of this process owns.
fn share_foreign_sessions(core: &Core, instance: &str, activities: &[Activity]) {
    let mut sessions = activities.iter().filter_map(|activity| activity.session_id.as_deref());
    if sessions.any(|session| !core.sessions.is_owned(session)) {
        core.membership.share_slice_of(instance);
    }
}

/// Puts the new state with its history into the cache, for the next turn and for reads, and
/// returns the cached entry. If the history or the etag of the new state is not known, only
/// removes the old state from the cache.
fn cache_state(
    store: &Store,
    held: &mut LockedInstance,
    ack: TurnAck,
    state: &State,
    etag: Option<Etag>,
) -> Option<Arc<Snapshot>> {
    store.state_cache.forget(&state.instance_id);
    let history = match held.state.execution.number {
        number if number == state.execution.number => {
            // The history is copied only if a reader holds it at the same time.
            let mut history = Arc::unwrap_or_clone(held.history.take()?);
            if ack.execution == number {
                history.extend(ack.history_delta);
            }
            history
        }
        _ => ack.history_delta,
    };
    let state = Versioned { value: state.clone(), etag: etag? };
    let snapshot = Arc::new(Snapshot { state, history: Arc::new(history), is_committed_here: true });
    store.state_cache.put(Arc::clone(&snapshot));
    Some(snapshot)
}

/// Removes finished work from a cached state: bundles that were unpacked, or consumed completions
/// that were deleted. The stored document still lists this work. The next turn uses the cached
/// state, so it does not look for this work. Does nothing if the cache has the state of another
/// commit by now.
fn update_cached(store: &Store, cached: Option<&Arc<Snapshot>>, change: impl FnOnce(&mut State)) {
    let Some(cached) = cached else { return };
    let current = store.state_cache.get(&cached.state.value.instance_id);
    let Some(current) = current.filter(|current| current.state.etag == cached.state.etag) else { return };
    let mut state = current.state.clone();
    change(&mut state.value);
    store.state_cache.put(Arc::new(Snapshot {
        state,
        history: Arc::clone(&current.history),
        is_committed_here: current.is_committed_here,
    }));
}
