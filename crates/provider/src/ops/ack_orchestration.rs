//! `ack_orchestration_item`: load, plan, commit, deliver.
//!
//! What always holds: no transient failure leaves this function before the
//! lock's deadline, because the runtime answers one by failing the workflow; an
//! answer that was lost is found out by reading, never reported as a failure.

use crate::documents::{Bundle, PastExecution, State, Versioned};
use crate::failure::Failure;
use crate::held::Turn;
use crate::inner::Inner;
use crate::ops::commit::{Outcome, commit, is_too_large};
use crate::ops::{deliver, stage, turn, unpack};
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
        if is_too_large(&plan, &turn.state.etag) {
            stage::stage(inner, &mut plan, turn.until).await?;
        }
        let outcome = patiently(turn.until, || commit(inner, &plan, &turn.state.etag, turn.until)).await?;
        match outcome {
            Outcome::Committed(versions) => {
                conclude(inner, &token, &turn, plan, versions).await;
                return Ok(());
            }
            Outcome::Stale => {
                if patiently(turn.until, || is_applied(inner, &token, &nonce)).await? {
                    conclude(inner, &token, &turn, plan, Vec::new()).await;
                    return Ok(());
                }
                turn::refresh(inner, &token, &mut turn).await?;
                turn::check(&turn)?;
            }
            Outcome::Refused(error) => return Err(Failure::Refused(error.to_string())),
        }
    }
    Err(Failure::Contended(format!("the state of {} keeps changing", token.instance)))
}

async fn plan_turn(inner: &Inner, turn: &Turn, ack: &TurnAck, nonce: &str) -> Result<TurnPlan, Failure> {
    let state = &turn.state.value;
    let bundles = patiently(turn.until, || open_bundles(inner, state)).await?;
    let past = match ack.execution < state.execution.execution {
        true => {
            let id = past_id(ack.execution);
            let find = || inner.store.find::<PastExecution>(&state.instance_id, &id);
            patiently(turn.until, find).await?.map(|past| past.value.execution)
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

/// Whether the state is the one this commit wrote, or one after it that keeps
/// its nonce.
async fn is_applied(inner: &Inner, token: &Token, nonce: &str) -> Result<bool, Failure> {
    let state = inner.store.state(&token.instance).await?;
    Ok(state.is_some_and(|state| state.value.ack == nonce))
}

/// The turn is committed; what follows can be done by anyone, and is tried here
/// first.
async fn conclude(
    inner: &Inner,
    token: &Token,
    turn: &Turn,
    plan: TurnPlan,
    versions: Vec<Option<perihelion_client::Etag>>,
) {
    inner.turns.remove(&token.nonce);
    let instance = token.instance.as_str();
    let now = inner.clock.stamp();
    inner.hub.instances.tell(|hints| {
        for message in &plan.messages {
            hints.hint(instance, message.visible_at);
        }
        if turn.is_more {
            hints.hint(instance, now.at_once());
        }
        hints.released(instance);
    });
    if !plan.activities.is_empty() {
        let offers = plan.activities.into_iter().zip(versions);
        inner.hub.works.tell(|hints| {
            offers.for_each(|(activity, etag)| {
                if let Some(etag) = etag {
                    hints.offer((activity, etag));
                }
            });
        });
    }
    for bundle in plan.bundles {
        let id = bundle.id;
        if let Err(failure) = unpack::run(inner, instance, &id).await {
            tracing::warn!(instance, id, ?failure, "a bundle waits for the reconciler");
        }
    }
    for outbox in plan.outboxes {
        deliver::run(inner, outbox).await;
    }
}
