//! What is left of a deleted instance goes: first what its outbox still had to
//! say to others, then every document but the state, which stays as a tombstone
//! for a day, so that late messages are known.

use perihelion_client::{Batch, Query};
use serde::Deserialize;
use tokio::time::Instant;

use crate::documents::{Outbox, State, Versioned, kind};
use crate::failure::{Failure, is_transient};
use crate::inner::Inner;
use crate::ops::deliver;
use crate::store::{PATIENCE, patiently};
use crate::token::nonce;

/// A document of the partition, in short.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Entry {
    pub(crate) id: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) events: u64,
}

/// Everything of an instance but its state.
pub(crate) async fn entries(inner: &Inner, instance: &str) -> Result<Vec<Entry>, Failure> {
    let query = Query::new("SELECT c.id, c.type, c.events FROM c WHERE c.id != 'i'").in_partition(instance);
    inner.store.rows(query).await
}

/// Finishes a deletion that is committed. Nothing of a new incarnation is made
/// before it is done, but messages to one may be waiting: only those that the
/// tombstone names are removed.
pub(crate) async fn finish(inner: &Inner, tombstone: &Versioned<State>) -> Result<(), Failure> {
    let state = &tombstone.value;
    let instance = state.instance_id.as_str();
    let listed = state.purge.clone().unwrap_or_default();
    let mut doomed = Vec::new();
    for entry in entries(inner, instance).await? {
        match entry.kind.as_str() {
            kind::MESSAGE | kind::ACTIVITY if !listed.contains(&entry.id) => {}
            kind::OUTBOX => last_words(inner, instance, &entry.id).await?,
            _ => doomed.push(entry.id),
        }
    }
    for ids in doomed.chunks(Batch::OPERATIONS_MAX) {
        remove(inner, instance, ids).await?;
    }
    let done = State { purge: None, made_at: None, ack: nonce(), ..state.clone() };
    match inner.store.put_state(&done, Some(&tombstone.etag), "/ack", done.ack.clone().into()).await {
        Err(Failure::Storage(error)) if !error.is_precondition_failed() => Err(error.into()),
        _ => Ok(()),
    }
}

/// Delivers an outbox, but for starts of children: they would be nobody's.
async fn last_words(inner: &Inner, instance: &str, id: &str) -> Result<(), Failure> {
    let Some(outbox) = inner.store.find::<Outbox>(instance, id).await? else { return Ok(()) };
    let mut outbox = outbox.value;
    outbox.messages.retain(|message| message.start_parent.as_deref() != Some(instance));
    deliver::attempt(inner, outbox).await
}

/// Removes documents, at once if all are there. One by one it does not matter
/// what became of an attempt whose answer was lost.
pub(crate) async fn remove(inner: &Inner, instance: &str, ids: &[String]) -> Result<(), Failure> {
    let mut batch = Batch::new(instance);
    for id in ids {
        batch.delete(id)?;
    }
    match inner.store.container.batch(batch).await {
        Ok(_) => return Ok(()),
        Err(error) if error.is_not_found() || is_transient(&error) => {}
        Err(error) => return Err(error.into()),
    }
    for id in ids {
        let delete = || async {
            match inner.store.container.delete(instance, id).await {
                Err(error) if !error.is_not_found() => Err(Failure::from(error)),
                _ => Ok(()),
            }
        };
        patiently(Instant::now() + PATIENCE, delete).await?;
    }
    Ok(())
}
