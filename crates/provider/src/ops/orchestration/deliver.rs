//! Delivers an outbox: messages to other instances. Each target gets its messages in order.
//! Every attempt uses the same message ids, so a second delivery has no effect. If the message
//! still exists, it is not created again. If the target has consumed the message, the target's
//! dedup record or the runtime recognises the copy.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use perihelion_client::Batch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::documents::lock_token::nonce;
use crate::documents::stamp::Stamp;
use crate::documents::text::{PartsRef, Text};
use crate::documents::{Garbage, Message, Outbox};
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::ops::payload;
use crate::ops::repair::garbage;
use crate::process::metrics;
use crate::store::{RETRY_FOR, Store, retry_until};

/// The most targets that are written to at the same time.
const PARALLEL_MAX: usize = 16;

/// How long an ack waits for the delivery of its messages. A target in a partition that fails must
/// not block the dispatcher, which could run other instances.
const ACK_WAIT: Duration = Duration::from_secs(1);

/// How long the reconciler retries each message of an outbox. The next round tries again.
const REDELIVERY_RETRIED_FOR: Duration = Duration::from_secs(2);

/// Delivers the outboxes of a turn right after its commit, one after the other, because they may
/// have messages to the same target. If that takes longer than [`ACK_WAIT`], it continues in the
/// background, or is left to the reconciler if there are too many tasks. If the answer of the commit
/// was lost (`is_answered` is false), another process may have delivered the outboxes already.
pub(crate) async fn deliver_after_commit(core: &Core, outboxes: Vec<Outbox>, is_answered: bool) {
    // If the provider was dropped, the reconciler of another process delivers the outboxes.
    let Some(shared) = core.this.upgrade().filter(|_| !outboxes.is_empty()) else { return };
    // Boxed, so that the future of an ack without such messages is small.
    let deliver_all = Box::pin(async move {
        let mut delivery = Delivery::new(RETRY_FOR);
        for outbox in outboxes {
            deliver_first_time(&shared, &mut delivery, outbox, is_answered).await;
        }
    });
    if !core.background.deliver_after_or_drop(ACK_WAIT, metrics::for_current_call(deliver_all)).await {
        // The deliveries that were not finished are left to the reconciler. Otherwise the dispatchers
        // would wait for a partition that hangs.
        core.repair_signal.record_unfinished_work();
    }
}

/// Delivers an outbox for the first time. The delivered outbox is deleted in the background. If
/// the delivery or the deletion fails, the reconciler repeats it.
async fn deliver_first_time(core: &Core, delivery: &mut Delivery, outbox: Outbox, is_answered: bool) {
    let (instance, id) = (outbox.instance_id.clone(), outbox.id.clone());
    if core.should_delivery_fail() {
        tracing::warn!(instance, id, "a test makes this delivery fail");
        core.repair_signal.record_unfinished_work();
        return;
    }
    let garbage = outbox_garbage(&outbox, core.clock.stamp());
    if let Err(failure) = delivery.send_all(core, outbox, is_answered).await {
        tracing::warn!(instance, id, ?failure, "messages wait for the reconciler");
        core.repair_signal.record_unfinished_work();
        return;
    }
    let (store, repair_signal) = (core.store.clone(), Arc::clone(&core.repair_signal));
    let cleanup = async move {
        let delete = || delete_outbox(&store, &instance, &id, garbage.clone());
        if let Err(failure) = retry_until(Instant::now() + RETRY_FOR, delete).await {
            tracing::warn!(instance, id, ?failure, "a delivered outbox waits for the reconciler");
            repair_signal.record_unfinished_work();
        }
    };
    if !core.background.run_or_drop(cleanup) {
        core.repair_signal.record_unfinished_work();
    }
}

/// Records the messages to other instances that a commit has delivered itself. If the answer of
/// the commit was lost, a message may have been consumed since. So its hint is added without the
/// message, and the target's next claim reads the messages.
pub(crate) fn record_delivered(core: &Core, outboxes: Vec<Outbox>, is_answered: bool) {
    let now = core.clock.stamp();
    let messages: Vec<Message> = outboxes.into_iter().flat_map(|outbox| outbox.messages).collect();
    if messages.is_empty() {
        return;
    }
    core.metrics.count_delivered(messages.len());
    add_hints(core, messages, is_answered, now);
}

/// Adds hints about delivered messages. If it is certain that the messages are not consumed yet
/// (`is_unconsumed`), the hints hold the messages.
fn add_hints(core: &Core, messages: impl IntoIterator<Item = Message>, is_unconsumed: bool, now: Stamp) {
    core.hints.instances.update_and_wake(|hints| {
        messages.into_iter().for_each(|message| match is_unconsumed {
            true => hints.add_message(message, now),
            false => drop(hints.add_due(&message.instance_id, message.visible_at)),
        });
    });
}

/// Delivers and deletes an outbox that was not delivered, or not deleted, after its commit.
pub(crate) async fn deliver_again(core: &Core, outbox: Outbox) -> Result<(), Failure> {
    Delivery::new(RETRY_FOR).deliver_again(core, outbox).await
}

/// The delivery of one or more outboxes of one instance, in order. After a target has failed, its
/// further messages are not tried: they must not overtake the message that failed, and waiting for
/// the same target again would only delay the other targets.
pub(crate) struct Delivery {
    /// How long each message is retried after transient failures.
    retry_for: Duration,
    failed_targets: HashSet<String>,
}

impl Delivery {
    fn new(retry_for: Duration) -> Self {
        Delivery { retry_for, failed_targets: HashSet::new() }
    }

    /// A delivery of outboxes that an earlier delivery has left.
    pub(crate) fn of_reconciler() -> Self {
        Delivery::new(REDELIVERY_RETRIED_FOR)
    }

    /// From now on each message is tried only once.
    pub(crate) fn stop_retrying(&mut self) {
        self.retry_for = Duration::ZERO;
    }

    /// Delivers and deletes an outbox that was not delivered, or not deleted, after its commit.
    pub(crate) async fn deliver_again(&mut self, core: &Core, outbox: Outbox) -> Result<(), Failure> {
        let (instance, id) = (outbox.instance_id.clone(), outbox.id.clone());
        let garbage = outbox_garbage(&outbox, core.clock.stamp());
        self.send_all(core, outbox, false).await?;
        let delete = || delete_outbox(&core.store, &instance, &id, garbage.clone());
        retry_until(Instant::now() + self.retry_for, delete).await
    }

    /// Sends all messages and adds hints about them. If one target fails, the other targets still
    /// get their messages; then the first failure is returned. `is_unconsumed` is false if another
    /// delivery may have sent the messages before. Then a message may have been consumed already. So
    /// its hint is added without the message, and the target's next claim reads the messages.
    async fn send_all(&mut self, core: &Core, outbox: Outbox, is_unconsumed: bool) -> Result<(), Failure> {
        let (now, source) = (core.clock.stamp(), outbox.instance_id.as_str());
        let mut targets: BTreeMap<String, Vec<Message>> = BTreeMap::new();
        for message in outbox.messages {
            targets.entry(message.instance_id.clone()).or_default().push(message);
        }
        let mut first_failure = None;
        if let Some(target) = targets.keys().find(|target| self.failed_targets.contains(*target)) {
            let text = format!("messages from {source} to {target} wait for an earlier message");
            first_failure = Some(Failure::Contended(text));
        }
        targets.retain(|target, _| !self.failed_targets.contains(target));
        let mut under_way = JoinSet::new();
        let mut targets = targets.into_iter();
        let mut delivered: Vec<Message> = Vec::new();
        loop {
            while under_way.len() < PARALLEL_MAX {
                let Some((target, messages)) = targets.next() else { break };
                let send = send_to_one(core.store.clone(), source.to_owned(), messages, now, self.retry_for);
                under_way.spawn(metrics::for_current_call(async move { (target, Box::pin(send).await) }));
            }
            match under_way.join_next().await {
                Some(Ok((_, Ok(messages)))) => delivered.extend(messages),
                Some(Ok((target, Err(failure)))) => {
                    self.failed_targets.insert(target);
                    first_failure.get_or_insert(failure);
                }
                Some(Err(error)) => {
                    let failure = format!("a delivery from {source} was cancelled: {error}");
                    first_failure.get_or_insert(Failure::Contended(failure));
                }
                None => return first_failure.map_or(Ok(()), Err),
            }
            core.metrics.count_delivered(delivered.len());
            add_hints(core, delivered.drain(..), is_unconsumed, now);
        }
    }
}

/// Sends messages of the instance `source` to one instance, in order. Each message is retried for
/// `retry_for`. Returns the messages as they were written.
async fn send_to_one(
    store: Store,
    source: String,
    messages: Vec<Message>,
    now: Stamp,
    retry_for: Duration,
) -> Result<Vec<Message>, Failure> {
    let mut delivered = Vec::new();
    for mut message in messages {
        let until = Instant::now() + retry_for;
        // The parts of a large text are in the partition of the sender. The text is read, and
        // written to the partition of the target together with the message.
        message.item =
            Text::Inline(retry_until(until, || payload::read_text(&store, &source, &message.item)).await?);
        delivered.push(payload::send_message(&store, message, now, until).await?);
    }
    Ok(delivered)
}

/// The garbage record for the large texts of a delivered outbox; `None` if there are none.
fn outbox_garbage(outbox: &Outbox, now: Stamp) -> Option<Garbage> {
    let parts: Vec<PartsRef> =
        outbox.messages.iter().filter_map(|message| message.item.parts().cloned()).collect();
    let garbage = Garbage { parts, ..Garbage::blank(&outbox.instance_id, &nonce(), now) };
    Some(garbage).filter(|garbage| !garbage.is_empty())
}

/// Deletes an outbox and the parts of its large texts.
async fn delete_outbox(
    store: &Store,
    instance: &str,
    id: &str,
    garbage: Option<Garbage>,
) -> Result<(), Failure> {
    let deleted = match &garbage {
        None => store.container.delete(instance, id).await.map(drop),
        Some(garbage) => {
            let mut batch = Batch::new(instance);
            batch.delete(id)?.create(garbage)?;
            store.container.batch(batch).await.map(drop)
        }
    };
    match (deleted, garbage) {
        (Ok(()), Some(garbage)) => garbage::collect(store, &garbage).await,
        (Err(error), _) if !error.is_document_not_found() => Err(error.into()),
        // If the outbox does not exist, another process has delivered and deleted it.
        _ => Ok(()),
    }
}
