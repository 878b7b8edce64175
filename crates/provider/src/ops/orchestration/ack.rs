//! `ack_orchestration_item`: load, plan, commit, deliver.
//!
//! What always holds: no transient failure leaves this function before the
//! lock's deadline, because the runtime answers one by failing the workflow; an
//! answer that was lost is found out by reading, never reported as a failure.

use std::sync::Arc;

use perihelion_client::Etag;

use crate::documents::lock_token::{LockToken, nonce};
use crate::documents::{Bundle, PastExecution, State, Versioned};
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::ops::orchestration::commit::{CommitBasis, Outcome, Versions, commit};
use crate::ops::orchestration::deliver;
use crate::ops::orchestration::direct_dispatch::DirectDispatch;
use crate::ops::orchestration::instance_lock;
use crate::ops::orchestration::stage;
use crate::ops::orchestration::unpack;
use crate::ops::repair::garbage;
use crate::plan::{self, Basis, TurnAck, TurnPlan, past_id};
use crate::process::lock_table::LockedInstance;
use crate::store::retry_until;
use crate::store::state_cache::Snapshot;

/// How often the state may change under a turn that holds its lock: deletions
/// and pruning do it, and they are rare.
const REPLANS_MAX: usize = 16;

pub(crate) async fn run(core: &Core, token: &str, ack: TurnAck) -> Result<(), Failure> {
    let (token, turn) = instance_lock::of(core, token).await?;
    let mut turn = turn.lock().await;
    instance_lock::check(&turn)?;
    let nonce = nonce();
    for _ in 0..REPLANS_MAX {
        let mut plan = plan_turn(core, &turn, &ack, &nonce).await?;
        let staged = stage::turn(core, &plan, turn.until).await?;
        let dispatch = DirectDispatch::promise(core, &mut plan);
        let basis = CommitBasis { etag: turn.etag.as_ref(), staged: staged.as_ref() };
        let send = || commit(core, &plan, &dispatch, basis, turn.until);
        match retry_until(turn.until, send).await? {
            Outcome::Committed(versions) => {
                conclude(core, &token, &mut turn, ack, plan, versions, dispatch).await;
                return Ok(());
            }
            Outcome::Stale => {
                if retry_until(turn.until, || is_applied(core, &token, &nonce)).await? {
                    conclude(core, &token, &mut turn, ack, plan, Versions::default(), dispatch).await;
                    return Ok(());
                }
                instance_lock::refresh(core, &token, &mut turn).await?;
                instance_lock::check(&turn)?;
            }
            // What this process knew of the messages was old.
            Outcome::Refused(_) if !turn.is_durable => {
                instance_lock::lose(core, &token);
                return Err(Failure::LockLost);
            }
            Outcome::Refused(error) => return Err(Failure::Refused(error.to_string())),
        }
    }
    Err(Failure::Contended(format!("the state of {} keeps changing", token.instance)))
}

async fn plan_turn(
    core: &Core,
    turn: &LockedInstance,
    ack: &TurnAck,
    nonce: &str,
) -> Result<TurnPlan, Failure> {
    let state = &turn.state;
    let bundles = retry_until(turn.until, || open_bundles(core, state)).await?;
    let past = match ack.execution < state.execution.execution {
        true => {
            let id = past_id(ack.execution);
            let find = || core.store.find::<PastExecution>(&state.instance_id, &id);
            retry_until(turn.until, find).await?
        }
        false => None,
    };
    let now = core.clock.reserve(ack.stamps());
    plan::turn(&Basis { state, past, bundles: &bundles, once: &turn.once, now, nonce }, ack)
}

/// Those of an instance's bundles that are not unpacked yet.
async fn open_bundles(core: &Core, state: &State) -> Result<Vec<Versioned<Bundle>>, Failure> {
    let mut bundles = Vec::new();
    for id in &state.bundles {
        bundles.extend(core.store.find(&state.instance_id, id).await?);
    }
    Ok(bundles)
}

/// Whether the state is the one this commit wrote, or one after it.
async fn is_applied(core: &Core, token: &LockToken, nonce: &str) -> Result<bool, Failure> {
    let state = core.store.state(&token.instance).await?;
    Ok(state.is_some_and(|state| state.value.acks.iter().any(|ack| ack == nonce)))
}

/// The turn is committed; what follows can be done by anyone, and is tried here
/// first.
async fn conclude(
    core: &Core,
    token: &LockToken,
    turn: &mut LockedInstance,
    ack: TurnAck,
    mut plan: TurnPlan,
    versions: Versions,
    dispatch: DirectDispatch<'_>,
) {
    core.instance_locks.remove(&token.nonce);
    let instance = token.instance.as_str();
    let kept = keep(core, turn, ack, &plan.state, versions.state);
    let now = core.clock.stamp();
    // Before the instance is free: whoever takes it next must see them.
    core.hints.instances.tell(|hints| {
        for message in plan.messages.drain(..) {
            hints.bring(message);
        }
        if turn.is_more {
            hints.hint(instance, now.at_once());
        }
        if turn.state.execution.pin != plan.state.execution.pin {
            hints.unpark(instance);
        }
        hints.committed(instance);
    });
    dispatch.conclude(std::mem::take(&mut plan.activities), versions.activities).await;
    let mut unpacked = Vec::new();
    for bundle in plan.bundles {
        match unpack::run(core, instance, &bundle.id).await {
            Ok(()) => unpacked.push(bundle.id),
            Err(failure) => {
                tracing::warn!(instance, id = bundle.id, ?failure, "a bundle waits for the reconciler");
            }
        }
    }
    if let Some(kept) = kept.filter(|_| !unpacked.is_empty()) {
        forget_bundles(core, &kept, &unpacked);
    }
    for outbox in plan.outboxes {
        deliver::run(core, outbox).await;
    }
    if let Some(garbage) = plan.garbage {
        garbage::run(core, garbage).await;
    }
}

/// Keeps what the commit wrote for the next turn and for reads, unless its
/// version or its history is not known.
fn keep(
    core: &Core,
    turn: &mut LockedInstance,
    ack: TurnAck,
    state: &State,
    etag: Option<Etag>,
) -> Option<Arc<Snapshot>> {
    core.store.state_cache.forget(&state.instance_id);
    let history = match turn.state.execution.execution {
        before if before == state.execution.execution => {
            // Nobody else has it, unless someone is reading: then it is copied.
            let mut history = Arc::unwrap_or_clone(turn.history.take()?);
            if ack.execution == before {
                history.extend(ack.history_delta);
            }
            history
        }
        _ => ack.history_delta,
    };
    let state = Versioned { value: state.clone(), etag: etag? };
    let snapshot = Arc::new(Snapshot { state, history: Arc::new(history) });
    core.store.state_cache.put(Arc::clone(&snapshot));
    Some(snapshot)
}

/// The next turn need not look for bundles that are unpacked.
fn forget_bundles(core: &Core, kept: &Arc<Snapshot>, unpacked: &[String]) {
    let is_current =
        core.store.state_cache.get(&kept.state.value.instance_id).is_some_and(|now| Arc::ptr_eq(&now, kept));
    if is_current {
        let mut state = kept.state.clone();
        state.value.bundles.retain(|bundle| !unpacked.contains(bundle));
        core.store.state_cache.put(Arc::new(Snapshot { state, history: Arc::clone(&kept.history) }));
    }
}
