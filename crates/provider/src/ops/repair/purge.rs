//! Purges a deleted instance: delivers its outboxes, then deletes its documents. The purge
//! keeps documents that a new incarnation may need. It also keeps the state, as a tombstone,
//! for a week, so that late messages are recognised. Until the purge is done, the tombstone
//! has no time to live.
//!
//! Invariant: documents are deleted only while the tombstone of the purge is the state of the
//! instance. So a purge never deletes a document of the next incarnation, however late it is.

use std::collections::HashSet;
use std::ops::ControlFlow;

use perihelion_client::{Batch, Patch, Query};
use serde::Deserialize;
use tokio::time::Instant;

use crate::documents::lock_token::nonce;
use crate::documents::text::PartsRef;
use crate::documents::{DocumentType, Outbox, STATE_ID, State, Versioned};
use crate::failure::Failure;
use crate::ops::admin::delete;
use crate::ops::core::Core;
use crate::ops::orchestration::deliver;
use crate::ops::repair::fenced_delete::{self, FencedOutcome};
use crate::store::{RETRY_FOR, StateChange, Store, retry_until};
use crate::timing::TOMBSTONE_TTL;

/// The most rounds of one purge: reads of what is left of the instance. A purge of few documents needs
/// one round. It needs more if outboxes have to be delivered, if there are many documents, and while
/// workers still complete activities of the instance.
const ROUNDS_MAX: usize = 64;

/// The ids of parts of messages begin with this.
const MESSAGE_PART_PREFIX: &str = "p:";

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

/// Purges an instance whose deletion is committed. If it is deleted together with other instances, their
/// tombstones are written already (see `delete::purge_found`). A new incarnation cannot start before the
/// purge is done, but messages to the new incarnation may arrive. So a message or an activity
/// is deleted, with its parts, only if the tombstone lists it or it names the old incarnation.
/// Other parts whose id begins with `p:` stay, because they may belong to a message to the
/// new incarnation. Garbage records of staged documents stay too, with the guards of their stagings.
///
/// Several processes may purge the same instance, and one of them may be so late that the name is in
/// use again. So each batch is fenced by the etag of the tombstone and gives the tombstone a new etag.
/// If the tombstone was changed, another process purges the instance or has purged it, and this call
/// ends.
pub(crate) async fn run(core: &Core, tombstone: &Versioned<State>) -> Result<PurgeEnd, Failure> {
    let mut purge = Purge {
        core,
        tombstone: tombstone.clone(),
        missing: HashSet::new(),
        batch_documents_max: fenced_delete::DOCUMENTS_MAX,
    };
    for _ in 0..ROUNDS_MAX {
        if let ControlFlow::Break(end) = purge.run_round().await? {
            core.costs.forget(&tombstone.value.instance_id);
            return Ok(end);
        }
    }
    Err(Failure::Contended(format!(
        "cannot purge {}: other processes keep changing its documents. The reconciler tries again",
        tombstone.value.instance_id
    )))
}

/// How a purge ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PurgeEnd {
    /// The instance is purged.
    Done,
    /// Another process has changed the tombstone: it purges the instance, or has purged it.
    TakenOver,
}

/// The purge of one instance by this process.
struct Purge<'a> {
    core: &'a Core,
    /// The tombstone as the last batch of this purge left it.
    tombstone: Versioned<State>,
    /// Documents that were read, and that did not exist when they were to be deleted. A stale replica
    /// may still show them.
    missing: HashSet<String>,
    /// The most documents of the next batch.
    batch_documents_max: usize,
}

/// What became of a batch of the purge.
enum BatchOutcome {
    Deleted,
    /// The document at this position did not exist. Nothing was deleted.
    DocumentMissing(usize),
    /// Another process has changed the tombstone. Nothing was deleted.
    TombstoneChanged,
    /// The documents together are too large for one request. Nothing was deleted.
    TooLarge,
}

impl Purge<'_> {
    /// Reads what is left of the instance, and deletes it. The purge is done when one batch could delete
    /// everything that was read. Otherwise another round follows, because other processes may have
    /// created documents since the read: a prune, for example, replaces an execution by a garbage record.
    ///
    /// A document that another process has deleted since the read is left out, and the round goes on
    /// with the others. The other process may have created another document instead, so a further round
    /// follows. Each batch makes the list of documents shorter or the next batch smaller.
    async fn run_round(&mut self) -> Result<ControlFlow<PurgeEnd>, Failure> {
        let heads = document_heads(&self.core.store, &self.tombstone.value.instance_id).await?;
        if heads.iter().any(|head| head.document_type == Some(DocumentType::Outbox)) {
            return self.deliver_outboxes(&heads).await;
        }
        let mut ids = ids_to_delete(&self.tombstone.value, heads);
        ids.retain(|id| !self.missing.contains(id));
        let mut needs_further_round = false;
        loop {
            let is_all = !needs_further_round && ids.len() <= self.batch_documents_max;
            let count = ids.len().min(self.batch_documents_max);
            let outcome = match is_all {
                true => self.finish(&ids).await?,
                false if count == 0 => return Ok(ControlFlow::Continue(())),
                false => self.delete(&ids[..count]).await?,
            };
            match outcome {
                BatchOutcome::Deleted if is_all => return Ok(ControlFlow::Break(PurgeEnd::Done)),
                BatchOutcome::Deleted => {
                    ids.drain(..count);
                    needs_further_round = true;
                    self.batch_documents_max = fenced_delete::more(self.batch_documents_max);
                }
                BatchOutcome::DocumentMissing(position) => {
                    self.missing.insert(ids.remove(position));
                    needs_further_round = true;
                    self.batch_documents_max = fenced_delete::fewer(self.batch_documents_max);
                }
                BatchOutcome::TooLarge => self.batch_documents_max = fenced_delete::fewer(count),
                BatchOutcome::TombstoneChanged => {
                    return Ok(ControlFlow::Break(PurgeEnd::TakenOver));
                }
            }
        }
    }

    /// Delivers the outboxes among `heads`. The tombstone is read after the heads: if it has not
    /// changed, the outboxes are those of the deleted instance.
    async fn deliver_outboxes(&self, heads: &[DocumentHead]) -> Result<ControlFlow<PurgeEnd>, Failure> {
        let Purge { core, tombstone: Versioned { value: state, etag }, .. } = self;
        let instance = state.instance_id.as_str();
        match core.store.state_if_changed(instance, etag).await? {
            StateChange::Unchanged => {}
            StateChange::Changed(_) | StateChange::NoDocument => {
                return Ok(ControlFlow::Break(PurgeEnd::TakenOver));
            }
        }
        let deleted_together = delete::deleted_together(&core.store, state).await?;
        for outbox in heads.iter().filter(|head| head.document_type == Some(DocumentType::Outbox)) {
            deliver_outbox(core, instance, &outbox.id, &deleted_together).await?;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Deletes documents, and gives the tombstone a new etag.
    async fn delete(&mut self, ids: &[String]) -> Result<BatchOutcome, Failure> {
        let (store, instance) = (&self.core.store, self.tombstone.value.instance_id.as_str());
        let commit_nonce = nonce();
        let mut batch = Batch::new(instance);
        batch.patch_if_match(STATE_ID, &Patch::new().set("/ack", &commit_nonce)?, &self.tombstone.etag)?;
        store.state_cache.forget(instance);
        let batch = batch.with_witness(STATE_ID, "/ack", commit_nonce.as_str());
        let etag = match fenced_delete::delete(store, batch, ids).await? {
            FencedOutcome::Applied(etag) => etag,
            // Perhaps an attempt whose answer was lost has changed the tombstone.
            FencedOutcome::FenceLost => None,
            FencedOutcome::Missing(position) => return Ok(BatchOutcome::DocumentMissing(position)),
            FencedOutcome::TooLarge => return Ok(BatchOutcome::TooLarge),
        };
        let etag = match etag {
            Some(etag) => etag,
            None => match store.state(instance).await? {
                Some(found) if found.value.commit_nonce == commit_nonce => found.etag,
                _ => return Ok(BatchOutcome::TombstoneChanged),
            },
        };
        self.tombstone.value.commit_nonce = commit_nonce;
        self.tombstone.etag = etag;
        store.cache_tombstone(&self.tombstone);
        Ok(BatchOutcome::Deleted)
    }

    /// Deletes the last documents, and writes the tombstone of an instance that is purged.
    async fn finish(&self, ids: &[String]) -> Result<BatchOutcome, Failure> {
        let (store, ttl) = (&self.core.store, Some(TOMBSTONE_TTL.as_secs() as u32));
        let Versioned { value: state, etag } = &self.tombstone;
        let done = State {
            purge: None,
            deletion: None,
            repair_at: None,
            commit_nonce: nonce(),
            ttl,
            ..state.clone()
        };
        let mut batch = Batch::new(done.instance_id.as_str());
        batch.replace_if_match(STATE_ID, &done, etag)?;
        store.state_cache.forget(&done.instance_id);
        let batch = batch.with_witness(STATE_ID, "/ack", done.commit_nonce.as_str());
        match fenced_delete::delete(store, batch, ids).await? {
            FencedOutcome::Applied(etag) => {
                if let Some(etag) = etag {
                    store.cache_tombstone(&Versioned { value: done, etag });
                }
                Ok(BatchOutcome::Deleted)
            }
            // If this process has changed the tombstone itself, in an attempt whose answer was lost,
            // the purge is done, too.
            FencedOutcome::FenceLost => Ok(BatchOutcome::TombstoneChanged),
            FencedOutcome::Missing(position) => Ok(BatchOutcome::DocumentMissing(position)),
            FencedOutcome::TooLarge => Ok(BatchOutcome::TooLarge),
        }
    }
}

/// The ids of the documents that a purge deletes, each once. There are no outboxes among the heads.
fn ids_to_delete(tombstone: &State, heads: Vec<DocumentHead>) -> Vec<String> {
    let listed: HashSet<&String> = tombstone.purge.iter().flatten().collect();
    let message_parts: HashSet<String> =
        heads.iter().map(|head| &head.id).filter(|id| id.starts_with(MESSAGE_PART_PREFIX)).cloned().collect();
    let mut to_delete = Vec::new();
    for head in heads {
        use DocumentType::*;
        match head.document_type {
            Some(Message | Activity) => {
                let is_of_old_incarnation = head.incarnation.as_ref() == Some(&tombstone.incarnation);
                if is_of_old_incarnation || listed.contains(&head.id) {
                    let parts = head.parts();
                    let parts = parts.iter().flat_map(PartsRef::ids);
                    // All other parts are deleted because of their own heads.
                    to_delete.extend(parts.filter(|id| message_parts.contains(id)));
                    to_delete.push(head.id);
                }
            }
            Some(Part) if head.id.starts_with(MESSAGE_PART_PREFIX) => {}
            Some(Garbage) if head.staging.is_some() => {}
            // It may guard the staging of a message to the new incarnation.
            Some(StagingGuard) => {}
            Some(
                History | Deleted | Execution | Cancelled | Bundle | Outbox | Staged | Part | Garbage
                | Session | Deletion | Heartbeat | Roster | Unreadable,
            )
            | None => to_delete.push(head.id),
        }
    }
    to_delete
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

/// Deletes documents in one batch; `ids` must fit into a batch. If a document does not exist, or the
/// batch fails for a transient reason, deletes the documents one by one: a single delete can be
/// repeated if its answer was lost. The deletes have no fence, and may be late. So this is only for
/// documents whose ids are never used again, such as parts.
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
