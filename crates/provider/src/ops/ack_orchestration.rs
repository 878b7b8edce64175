//! `ack_orchestration_item`: load, plan, commit, deliver.
//!
//! What always holds: no transient failure leaves this function before the
//! lock's deadline, because the runtime answers one by failing the workflow; an
//! answer that was lost is found out by reading, never reported as a failure.

use std::sync::Arc;

use perihelion_client::Etag;

use crate::cache::Snapshot;
use crate::documents::{Bundle, PastExecution, State, Versioned};
use crate::failure::Failure;
use crate::held::Turn;
use crate::inner::Inner;
use crate::ops::commit::{CommitBasis, Outcome, Versions, commit};
use crate::ops::handover::Handover;
use crate::ops::{deliver, litter, stage, turn, unpack};
use crate::plan::{self, Basis, TurnAck, TurnPlan, past_id};
use crate::store::patiently;
use crate::token::{Token, nonce};

/// How often the state may change under a turn that holds its lock: deletions
/// and pruning do it, and they are rare.
const REPLANS_MAX: usize = 16;

pub(crate) async fn run(inner: &Inner, token: &str, ack: TurnAck) -> Result<(), Failure> {
    let (token, turn) = turn::of(inner, token).await?;
    let mut turn = turn.lock().await;
    turn::check(&turn)?;
    let nonce = nonce();
    for _ in 0..REPLANS_MAX {
        let mut plan = plan_turn(inner, &turn, &ack, &nonce).await?;
        let staged = stage::turn(inner, &plan, turn.until).await?;
        let handover = Handover::promise(inner, &mut plan);
        let basis = CommitBasis { etag: turn.etag.as_ref(), staged: staged.as_ref() };
        let send = || commit(inner, &plan, &handover, basis, turn.until);
        match patiently(turn.until, send).await? {
            Outcome::Committed(versions) => {
                conclude(inner, &token, &mut turn, ack, plan, versions, handover).await;
                return Ok(());
            }
            Outcome::Stale => {
                if patiently(turn.until, || is_applied(inner, &token, &nonce)).await? {
                    conclude(inner, &token, &mut turn, ack, plan, Versions::default(), handover).await;
                    return Ok(());
                }
                turn::refresh(inner, &token, &mut turn).await?;
                turn::check(&turn)?;
            }
            // What this process knew of the messages was old.
            Outcome::Refused(_) if !turn.is_durable => {
                turn::lose(inner, &token);
                return Err(Failure::LockLost);
            }
            Outcome::Refused(error) => return Err(Failure::Refused(error.to_string())),
        }
    }
    Err(Failure::Contended(format!("the state of {} keeps changing", token.instance)))
}

async fn plan_turn(inner: &Inner, turn: &Turn, ack: &TurnAck, nonce: &str) -> Result<TurnPlan, Failure> {
    let state = &turn.state;
    let bundles = patiently(turn.until, || open_bundles(inner, state)).await?;
    let past = match ack.execution < state.execution.execution {
        true => {
            let id = past_id(ack.execution);
            let find = || inner.store.find::<PastExecution>(&state.instance_id, &id);
            patiently(turn.until, find).await?
        }
        false => None,
    };
    let now = inner.clock.reserve(ack.stamps());
    plan::turn(&Basis { state, past, bundles: &bundles, once: &turn.once, now, nonce }, ack)
}

/// Those of an instance's bundles that are not unpacked yet.
async fn open_bundles(inner: &Inner, state: &State) -> Result<Vec<Versioned<Bundle>>, Failure> {
    let mut bundles = Vec::new();
    for id in &state.bundles {
        bundles.extend(inner.store.find(&state.instance_id, id).await?);
    }
    Ok(bundles)
}

/// Whether the state is the one this commit wrote, or one after it.
async fn is_applied(inner: &Inner, token: &Token, nonce: &str) -> Result<bool, Failure> {
    let state = inner.store.state(&token.instance).await?;
    Ok(state.is_some_and(|state| state.value.acks.iter().any(|ack| ack == nonce)))
}

/// The turn is committed; what follows can be done by anyone, and is tried here
/// first.
async fn conclude(
    inner: &Inner,
    token: &Token,
    turn: &mut Turn,
    ack: TurnAck,
    mut plan: TurnPlan,
    versions: Versions,
    handover: Handover<'_>,
) {
    inner.turns.remove(&token.nonce);
    let instance = token.instance.as_str();
    let kept = keep(inner, turn, ack, &plan.state, versions.state);
    let now = inner.clock.stamp();
    // Before the instance is free: whoever takes it next must see them.
    inner.hub.instances.tell(|hints| {
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
    handover.conclude(std::mem::take(&mut plan.activities), versions.activities).await;
    let mut unpacked = Vec::new();
    for bundle in plan.bundles {
        match unpack::run(inner, instance, &bundle.id).await {
            Ok(()) => unpacked.push(bundle.id),
            Err(failure) => {
                tracing::warn!(instance, id = bundle.id, ?failure, "a bundle waits for the reconciler");
            }
        }
    }
    if let Some(kept) = kept.filter(|_| !unpacked.is_empty()) {
        forget_bundles(inner, &kept, &unpacked);
    }
    for outbox in plan.outboxes {
        deliver::run(inner, outbox).await;
    }
    if let Some(litter) = plan.litter {
        litter::run(inner, litter).await;
    }
}

/// Keeps what the commit wrote for the next turn and for reads, unless its
/// version or its history is not known.
fn keep(
    inner: &Inner,
    turn: &mut Turn,
    ack: TurnAck,
    state: &State,
    etag: Option<Etag>,
) -> Option<Arc<Snapshot>> {
    inner.store.snapshots.forget(&state.instance_id);
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
    inner.store.snapshots.put(Arc::clone(&snapshot));
    Some(snapshot)
}

/// The next turn need not look for bundles that are unpacked.
fn forget_bundles(inner: &Inner, kept: &Arc<Snapshot>, unpacked: &[String]) {
    let is_current =
        inner.store.snapshots.get(&kept.state.value.instance_id).is_some_and(|now| Arc::ptr_eq(&now, kept));
    if is_current {
        let mut state = kept.state.clone();
        state.value.bundles.retain(|bundle| !unpacked.contains(bundle));
        inner.store.snapshots.put(Arc::new(Snapshot { state, history: Arc::clone(&kept.history) }));
    }
}
