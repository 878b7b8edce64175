//! What is left of a deleted instance goes: first what its outbox still had to
//! say to others, then every document but the state, which stays as a tombstone
//! for a week, so that late messages are known. Before that is done the
//! tombstone stays however long it takes.

use std::collections::HashSet;

use perihelion_client::{Batch, Query};
use serde::Deserialize;
use tokio::time::Instant;

use crate::documents::lock_token::nonce;
use crate::documents::text::Parts;
use crate::documents::{Outbox, State, Versioned, kind};
use crate::failure::Failure;
use crate::ops::admin::delete;
use crate::ops::core::Core;
use crate::ops::orchestration::deliver;
use crate::store::{RETRY_FOR, Store, retry_until};

/// How long a tombstone stays that has nothing more to do: longer than any
/// message may be under way.
const TOMBSTONE_TTL_SECONDS: u32 = 7 * 24 * 3600;

/// A document of the partition, in short.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Entry {
    pub(crate) id: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) events: u64,
    /// The incarnation it was made by.
    #[serde(default)]
    inc: Option<String>,
    /// Where its text is, if that lies in parts.
    #[serde(default)]
    b: Option<String>,
    #[serde(default)]
    n: u32,
    /// Of a record: what it waits for.
    #[serde(default)]
    staging: Option<String>,
}

impl Entry {
    fn parts(&self) -> Option<Parts> {
        self.b.clone().map(|b| Parts { b, n: self.n, len: 0 })
    }
}

/// Everything of an instance but its state.
pub(crate) async fn entries(store: &Store, instance: &str) -> Result<Vec<Entry>, Failure> {
    let text = "SELECT c.id, c.type, c.events, c.inc, c.item.b, c.item.n, c.staging FROM c WHERE c.id != 'i'";
    store.rows(Query::new(text).in_partition(instance)).await
}

/// Finishes a deletion that is committed. Nothing of a new incarnation is made
/// before it is done, but messages to one may be waiting, or on their way: of
/// messages only those go that the tombstone names or the old incarnation made,
/// each with its parts, and what waits to be committed is left to its record.
pub(crate) async fn finish(core: &Core, tombstone: &Versioned<State>) -> Result<(), Failure> {
    let state = &tombstone.value;
    let instance = state.instance_id.as_str();
    let listed: HashSet<&String> = state.purge.iter().flatten().collect();
    let entries = entries(&core.store, instance).await?;
    let outboxes: Vec<&Entry> = entries.iter().filter(|entry| entry.kind == kind::OUTBOX).collect();
    if !outboxes.is_empty() {
        let companions = delete::companions(&core.store, state).await?;
        for outbox in outboxes {
            last_words(core, instance, &outbox.id, &companions).await?;
        }
    }
    let mut doomed = Vec::new();
    for entry in entries {
        match entry.kind.as_str() {
            kind::MESSAGE | kind::ACTIVITY => {
                let is_ours = entry.inc.as_ref() == Some(&state.incarnation);
                if is_ours || listed.contains(&entry.id) {
                    doomed.extend(entry.parts().iter().flat_map(Parts::ids));
                    doomed.push(entry.id);
                }
            }
            kind::PART if entry.id.starts_with("p:") => {}
            kind::GARBAGE if entry.staging.is_some() => {}
            _ => doomed.push(entry.id),
        }
    }
    for ids in doomed.chunks(Batch::OPERATIONS_MAX) {
        remove(&core.store, instance, ids).await?;
    }
    let ttl = Some(TOMBSTONE_TTL_SECONDS);
    let done = State { purge: None, del: None, made_at: None, ack: nonce(), ttl, ..state.clone() };
    match core.store.put_state(&done, Some(&tombstone.etag), "/ack", done.ack.clone().into()).await {
        Err(Failure::Storage(error)) if !error.is_precondition_failed() => Err(error.into()),
        _ => Ok(()),
    }
}

/// Delivers an outbox, but for starts of children, who would be nobody's, and
/// what is for those that go too.
async fn last_words(core: &Core, instance: &str, id: &str, companions: &[String]) -> Result<(), Failure> {
    let Some(outbox) = core.store.find::<Outbox>(instance, id).await? else { return Ok(()) };
    let mut outbox = outbox.value;
    outbox.messages.retain(|message| {
        message.start_parent.as_deref() != Some(instance) && !companions.contains(&message.instance_id)
    });
    deliver::attempt(core, outbox).await
}

/// Removes documents, at once if all are there. One by one it does not matter
/// what became of an attempt whose answer was lost.
pub(crate) async fn remove(store: &Store, instance: &str, ids: &[String]) -> Result<(), Failure> {
    let mut batch = Batch::new(instance);
    for id in ids {
        batch.delete(id)?;
    }
    match store.container.batch(batch).await {
        Ok(_) => return Ok(()),
        Err(error) if error.is_not_found() || error.is_transient() => {}
        Err(error) => return Err(error.into()),
    }
    for id in ids {
        let delete = || async {
            match store.container.delete(instance, id).await {
                Err(error) if !error.is_not_found() => Err(Failure::from(error)),
                _ => Ok(()),
            }
        };
        retry_until(Instant::now() + RETRY_FOR, delete).await?;
    }
    Ok(())
}
