//! Purges a deleted instance: delivers its outboxes, then deletes its documents. The purge
//! keeps documents that a new incarnation may need. It also keeps the state, as a tombstone,
//! for a week, so that late messages are recognised. Until the purge is done, the tombstone
//! has no time to live.

use std::collections::HashSet;

use perihelion_client::{Batch, Query};
use serde::Deserialize;
use tokio::time::Instant;

use crate::documents::lock_token::nonce;
use crate::documents::text::PartsRef;
use crate::documents::{DocumentType, Outbox, State, Versioned};
use crate::failure::Failure;
use crate::ops::admin::delete;
use crate::ops::core::Core;
use crate::ops::orchestration::deliver;
use crate::store::{RETRY_FOR, Store, retry_until};
use crate::timing::TOMBSTONE_TTL;

/// The members of a document that a deletion and its purge need.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct DocumentHead {
    pub(crate) id: String,
    #[serde(rename = "type", deserialize_with = "DocumentType::if_known")]
    pub(crate) document_type: Option<DocumentType>,
    /// If this is a past execution: the number of its events.
    #[serde(default)]
    pub(crate) events: u64,
    /// If this is a message or an activity: the incarnation that it is for; `None` for any
    /// incarnation.
    #[serde(rename = "inc", default)]
    incarnation: Option<String>,
    /// If the text of the document is stored in parts: the prefix of the ids of the parts.
    #[serde(rename = "b", default)]
    part_prefix: Option<String>,
    /// If the text of the document is stored in parts: the number of parts.
    #[serde(rename = "n", default)]
    part_count: u32,
    /// If this is a garbage record of staged documents: the id of the staging.
    #[serde(default)]
    staging: Option<String>,
    /// If this is the start of a child: its parent.
    #[serde(rename = "startParent", default)]
    start_parent: Option<String>,
}

impl DocumentHead {
    /// Whether this is the message that starts a child.
    pub(crate) fn is_start_of_child(&self) -> bool {
        self.start_parent.is_some()
    }

    /// The parts of the document's text; `None` if the text is inline.
    fn parts(&self) -> Option<PartsRef> {
        self.part_prefix.clone().map(|prefix| PartsRef { prefix, count: self.part_count, len: 0 })
    }
}

/// The heads of all documents of an instance, except its state.
pub(crate) async fn document_heads(store: &Store, instance: &str) -> Result<Vec<DocumentHead>, Failure> {
    let text = "SELECT c.id, c.type, c.events, c.inc, c.item.b, c.item.n, c.staging, c.startParent \
                FROM c WHERE c.id != 'i'";
    store.rows(Query::new(text).in_partition(instance)).await
}

/// Purges an instance whose deletion is committed. A new incarnation cannot start before the
/// purge is done, but messages to the new incarnation may arrive. So a message or an activity
/// is deleted, with its parts, only if the tombstone lists it or it names the old incarnation.
/// Other parts whose id begins with `p:` stay, because they may belong to a message to the
/// new incarnation. Garbage records of staged documents stay too.
pub(crate) async fn run(core: &Core, tombstone: &Versioned<State>) -> Result<(), Failure> {
    let state = &tombstone.value;
    let instance = state.instance_id.as_str();
    let listed: HashSet<&String> = state.purge.iter().flatten().collect();
    let heads = document_heads(&core.store, instance).await?;
    let is_outbox = |head: &&DocumentHead| head.document_type == Some(DocumentType::Outbox);
    let outboxes: Vec<&DocumentHead> = heads.iter().filter(is_outbox).collect();
    if !outboxes.is_empty() {
        let deleted_together = delete::deleted_together(&core.store, state).await?;
        for outbox in outboxes {
            deliver_outbox(core, instance, &outbox.id, &deleted_together).await?;
        }
    }
    let mut to_delete = Vec::new();
    for head in heads {
        use DocumentType::*;
        match head.document_type {
            Some(Message | Activity) => {
                let is_of_old_incarnation = head.incarnation.as_ref() == Some(&state.incarnation);
                if is_of_old_incarnation || listed.contains(&head.id) {
                    to_delete.extend(head.parts().iter().flat_map(PartsRef::ids));
                    to_delete.push(head.id);
                }
            }
            Some(Part) if head.id.starts_with("p:") => {}
            Some(Garbage) if head.staging.is_some() => {}
            Some(
                History | Deleted | Execution | Cancelled | Bundle | Outbox | Staged | Part | Garbage
                | Session | Deletion | Heartbeat | Roster | Unreadable,
            )
            | None => to_delete.push(head.id),
        }
    }
    for ids in to_delete.chunks(Batch::OPERATIONS_MAX) {
        delete_documents(&core.store, instance, ids).await?;
    }
    let ttl = Some(TOMBSTONE_TTL.as_secs() as u32);
    let done =
        State { purge: None, deletion: None, repair_at: None, commit_nonce: nonce(), ttl, ..state.clone() };
    match core.store.put_state(&done, Some(&tombstone.etag), "/ack", done.commit_nonce.clone().into()).await {
        Err(Failure::Storage(error)) if !error.is_precondition_failed() => Err(error.into()),
        _ => {
            core.costs.forget(instance);
            Ok(())
        }
    }
}

/// Delivers and deletes an outbox of a deleted instance. Starts of children, and messages to
/// instances that are deleted together with this instance, are dropped.
async fn deliver_outbox(
    core: &Core,
    instance: &str,
    id: &str,
    deleted_together: &[String],
) -> Result<(), Failure> {
    let Some(outbox) = core.store.find::<Outbox>(instance, id).await? else { return Ok(()) };
    let mut outbox = outbox.value;
    outbox.messages.retain(|message| {
        message.start_parent.as_deref() != Some(instance) && !deleted_together.contains(&message.instance_id)
    });
    deliver::deliver_again(core, outbox).await
}

/// Deletes at most as many documents as a batch holds, in one batch. If a document does not
/// exist, or the batch fails for a transient reason, deletes the documents one by one: a single
/// delete can be repeated if its answer was lost.
pub(crate) async fn delete_documents(store: &Store, instance: &str, ids: &[String]) -> Result<(), Failure> {
    let mut batch = Batch::new(instance);
    for id in ids {
        batch.delete(id)?;
    }
    match store.container.batch(batch).await {
        Ok(_) => return Ok(()),
        Err(error) if error.is_document_not_found() || error.is_transient() => {}
        Err(error) => return Err(error.into()),
    }
    for id in ids {
        let delete = || async {
            match store.container.delete(instance, id).await {
                Err(error) if !error.is_document_not_found() => Err(Failure::from(error)),
                _ => Ok(()),
            }
        };
        retry_until(Instant::now() + RETRY_FOR, delete).await?;
    }
    Ok(())
}
