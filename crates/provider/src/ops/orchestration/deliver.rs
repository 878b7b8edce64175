//! Messages to other instances, out of the outbox: in order for each target,
//! under ids that are the same at every attempt, so that a second delivery finds
//! the first, or its id among those the target has consumed.

use std::collections::BTreeMap;
use std::sync::Arc;

use perihelion_client::Batch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::documents::lock_token::nonce;
use crate::documents::stamp::Stamp;
use crate::documents::text::{Parts, Text};
use crate::documents::{Garbage, Message, Outbox};
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::ops::payload;
use crate::ops::repair::garbage;
use crate::process::metrics;
use crate::store::{RETRY_FOR, Store, retry_until};

/// Targets that are written to at the same time.
const PARALLEL_MAX: usize = 16;

/// Delivers an outbox; that it is removed nobody waits for. What fails is left
/// to the reconciler.
pub(crate) async fn run(core: &Core, outbox: Outbox) {
    let (instance, id) = (outbox.instance_id.clone(), outbox.id.clone());
    if core.is_delivery_failed() {
        tracing::warn!(instance, id, "a test lets this delivery fail");
        core.repair.leave_work();
        return;
    }
    let garbage = garbage_of(&outbox, core.clock.stamp());
    if let Err(failure) = send(core, outbox, true).await {
        tracing::warn!(instance, id, ?failure, "messages wait for the reconciler");
        core.repair.leave_work();
        return;
    }
    let (store, repair) = (core.store.clone(), Arc::clone(&core.repair));
    let removed = async move {
        if let Err(failure) = remove(&store, &instance, &id, garbage).await {
            tracing::warn!(instance, id, ?failure, "an empty outbox waits for the reconciler");
            repair.leave_work();
        }
    };
    core.background.run(removed).await;
}

/// Delivers an outbox that was left over, and removes it.
pub(crate) async fn attempt(core: &Core, outbox: Outbox) -> Result<(), Failure> {
    let (instance, id) = (outbox.instance_id.clone(), outbox.id.clone());
    let garbage = garbage_of(&outbox, core.clock.stamp());
    send(core, outbox, false).await?;
    remove(&core.store, &instance, &id, garbage).await
}

/// Sends all messages. Those that may have been sent, and consumed, before are
/// not `is_first`: whoever takes them up reads what became of their target.
async fn send(core: &Core, outbox: Outbox, is_first: bool) -> Result<(), Failure> {
    let now = core.clock.stamp();
    let mut targets: BTreeMap<String, Vec<Message>> = BTreeMap::new();
    for message in outbox.messages {
        targets.entry(message.instance_id.clone()).or_default().push(message);
    }
    let mut under_way = JoinSet::new();
    let mut targets = targets.into_values();
    let mut delivered: Vec<Message> = Vec::new();
    loop {
        while under_way.len() < PARALLEL_MAX {
            let Some(messages) = targets.next() else { break };
            let store = core.store.clone();
            let sent = to_one(store, outbox.instance_id.clone(), messages, now);
            under_way.spawn(metrics::carried(sent));
        }
        match under_way.join_next().await {
            Some(Ok(outcome)) => delivered.extend(outcome?),
            Some(Err(error)) => return Err(Failure::Contended(format!("a delivery was given up: {error}"))),
            None => return Ok(()),
        }
        core.metrics.delivered(delivered.len());
        core.hints.instances.tell(|hints| {
            delivered.drain(..).for_each(|message| match is_first {
                true => hints.bring(message),
                false => hints.hint(&message.instance_id, message.visible_at),
            });
        });
    }
}

/// Delivers messages to one instance, in order; as they were delivered.
async fn to_one(
    store: Store,
    source: String,
    messages: Vec<Message>,
    now: Stamp,
) -> Result<Vec<Message>, Failure> {
    let mut delivered = Vec::new();
    for mut message in messages {
        let until = Instant::now() + RETRY_FOR;
        // What is large lies beside the outbox and is sent with the message.
        message.item =
            Text::Here(retry_until(until, || payload::text(&store, &source, &message.item)).await?);
        delivered.push(payload::send(&store, message, now, until).await?);
    }
    Ok(delivered)
}

/// What is left of an outbox that was delivered.
fn garbage_of(outbox: &Outbox, now: Stamp) -> Option<Garbage> {
    let parts: Vec<Parts> =
        outbox.messages.iter().filter_map(|message| message.item.parts().cloned()).collect();
    let garbage = Garbage { parts, ..Garbage::blank(&outbox.instance_id, &nonce(), now) };
    Some(garbage).filter(|garbage| !garbage.is_empty())
}

/// Removes an outbox and what it refers to.
async fn remove(store: &Store, instance: &str, id: &str, garbage: Option<Garbage>) -> Result<(), Failure> {
    let removed = match &garbage {
        None => store.container.delete(instance, id).await.map(drop),
        Some(garbage) => {
            let mut batch = Batch::new(instance);
            batch.delete(id)?.create(garbage)?;
            store.container.batch(batch).await.map(drop)
        }
    };
    match (removed, garbage) {
        (Ok(()), Some(garbage)) => garbage::collect(store, &garbage).await,
        // Someone else has delivered it too.
        (Err(error), _) if !error.is_not_found() => Err(error.into()),
        _ => Ok(()),
    }
}
