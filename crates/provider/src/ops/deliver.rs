//! Messages to other instances, out of the outbox: in order for each target,
//! under ids that are the same at every attempt, so that a second delivery finds
//! the first, or its id among those the target has consumed.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::documents::{Message, Outbox};
use crate::failure::Failure;
use crate::inner::Inner;
use crate::meter;
use crate::ops::enqueue;
use crate::store::{PATIENCE, patiently};

/// Targets that are written to at the same time.
const PARALLEL_MAX: usize = 16;

/// Delivers an outbox and removes it; what fails is left to the reconciler.
pub(crate) async fn run(inner: &Inner, outbox: Outbox) {
    let (instance, id) = (outbox.instance_id.clone(), outbox.id.clone());
    if inner.is_delivery_failed() {
        tracing::warn!(instance, id, "a test lets this delivery fail");
        inner.leave_work();
        return;
    }
    if let Err(failure) = attempt(inner, outbox).await {
        tracing::warn!(instance, id, ?failure, "messages wait for the reconciler");
        inner.leave_work();
    }
}

pub(crate) async fn attempt(inner: &Inner, outbox: Outbox) -> Result<(), Failure> {
    let mut targets: BTreeMap<String, Vec<Message>> = BTreeMap::new();
    for message in outbox.messages {
        targets.entry(message.instance_id.clone()).or_default().push(message);
    }
    let mut under_way = JoinSet::new();
    let mut targets = targets.into_values();
    let container = Arc::new(inner.store.clone());
    let mut delivered: Vec<Message> = Vec::new();
    loop {
        while under_way.len() < PARALLEL_MAX {
            let Some(messages) = targets.next() else { break };
            let store = Arc::clone(&container);
            under_way.spawn(meter::carried(async move {
                for message in &messages {
                    let until = Instant::now() + PATIENCE;
                    patiently(until, || enqueue::create(&store, message)).await?;
                }
                Ok::<_, Failure>(messages)
            }));
        }
        match under_way.join_next().await {
            Some(Ok(outcome)) => delivered.extend(outcome?),
            Some(Err(error)) => return Err(Failure::Contended(format!("a delivery was given up: {error}"))),
            None => break,
        }
        inner.meter.delivered(delivered.len());
        inner.hub.instances.tell(|hints| {
            delivered.drain(..).for_each(|message| hints.bring(message));
        });
    }
    match inner.store.container.delete(outbox.instance_id.as_str(), &outbox.id).await {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(()),
    }
}
