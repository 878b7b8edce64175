//! Large texts, which are stored in several documents (*parts*): joins the parts of a text,
//! and stages the text of a message if it is larger than [`ITEM_BYTES_MAX`].
//!
//! Before parts are staged, a *garbage record* is created: it lets the reconciler delete the
//! parts if nothing ever refers to them (see `stage`). Invariant: one batch creates the message
//! and deletes this record. If a repeated attempt does not find the record, an earlier
//! attempt was applied, even if the message has been consumed since.

use perihelion_client::{Batch, Etag, Patch};
use tokio::time::Instant;

use crate::documents::lock_token::nonce;
use crate::documents::stamp::Stamp;
use crate::documents::text::{PartsRef, Text, json_bytes};
use crate::documents::{Message, Part, STATE_ID, State, Versioned};
use crate::failure::Failure;
use crate::ops::orchestration::stage::{self, Staged};
use crate::ops::repair::fenced_delete;
use crate::ops::repair::purge;
use crate::plan::{self, ITEM_BYTES_MAX};
use crate::store::{Store, batch_without_content, retry_until, without_content};

/// Reads the whole text. Fails with [`Failure::Contended`] if a part is missing.
pub(crate) async fn read_text(store: &Store, instance: &str, text: &Text) -> Result<String, Failure> {
    match text {
        Text::Inline(text) => Ok(text.clone()),
        Text::InParts(parts) => Ok(read_all_parts(store, instance, &[parts]).await?.remove(0)),
    }
}

/// Reads several texts of one instance, in order. A text whose parts are missing is `None`: it
/// was removed in the meantime.
pub(crate) async fn read_texts(
    store: &Store,
    instance: &str,
    texts: &[&Text],
) -> Result<Vec<Option<String>>, Failure> {
    let in_parts: Vec<&PartsRef> = texts.iter().filter_map(|text| text.parts()).collect();
    let mut in_parts = read_parts(store, instance, &in_parts).await?.into_iter();
    let whole_text = |text: &&Text| match text {
        Text::Inline(text) => Some(text.clone()),
        Text::InParts(_) => in_parts.next().flatten(),
    };
    Ok(texts.iter().map(whole_text).collect())
}

/// Reads and joins the parts of texts, in order. Fails with [`Failure::Contended`] if a part is
/// missing.
async fn read_all_parts(store: &Store, instance: &str, refs: &[&PartsRef]) -> Result<Vec<String>, Failure> {
    let texts = read_parts(store, instance, refs).await?;
    let lost = || Failure::Contended(format!("a value of {instance} was replaced while it was read"));
    texts.into_iter().map(|text| text.ok_or_else(lost)).collect()
}

/// Reads and joins the parts of texts, in order. A text with missing parts is `None`.
async fn read_parts(
    store: &Store,
    instance: &str,
    refs: &[&PartsRef],
) -> Result<Vec<Option<String>>, Failure> {
    let ids = refs.iter().flat_map(|parts| parts.ids()).map(|id| (instance, id));
    if refs.is_empty() {
        return Ok(Vec::new());
    }
    let mut parts = store.container.read_many::<Part>(ids).await?.items.into_iter();
    let join_next = |parts_ref: &&PartsRef| {
        let found: Vec<Option<Part>> = parts.by_ref().take(parts_ref.count as usize).collect();
        found.into_iter().map(|part| part.map(|part| part.data)).collect::<Option<String>>()
    };
    Ok(refs.iter().map(join_next).collect())
}

/// A message that can be created. If its text is large, the text is staged in parts, and
/// `staged` is the garbage record of the staging.
#[derive(Debug)]
pub(crate) struct PreparedMessage {
    pub(crate) message: Message,
    pub(crate) staged: Option<Staged>,
}

/// Whether the text of a message has more than [`ITEM_BYTES_MAX`] bytes as JSON and is not in
/// parts yet.
pub(crate) fn needs_staging(message: &Message) -> bool {
    matches!(&message.item, Text::Inline(text) if json_bytes(text) > ITEM_BYTES_MAX)
}

/// Stages the text of a message if [`needs_staging`] says so. The garbage record of the staging is
/// created at `now`. Requests are retried until `until`.
pub(crate) async fn prepare_message(
    store: &Store,
    mut message: Message,
    now: Stamp,
    until: Instant,
) -> Result<PreparedMessage, Failure> {
    let Text::Inline(text) = &message.item else { return Ok(PreparedMessage { message, staged: None }) };
    if json_bytes(text) <= ITEM_BYTES_MAX {
        return Ok(PreparedMessage { message, staged: None });
    }
    let (item, staged) = stage_text(store, &message.instance_id, text, now, until).await?;
    message.item = item;
    Ok(PreparedMessage { message, staged: Some(staged) })
}

/// Stages a text as parts. Returns the reference to the parts, and the garbage record of the
/// staging.
async fn stage_text(
    store: &Store,
    instance: &str,
    text: &str,
    now: Stamp,
    until: Instant,
) -> Result<(Text, Staged), Failure> {
    let staging_id = nonce();
    let prefix = format!("p:{staging_id}");
    let parts = plan::part_documents(instance, &prefix, text, Some(&staging_id), None);
    let count = u32::try_from(parts.len()).unwrap_or(u32::MAX);
    let staged = stage::stage_parts(store, instance, &staging_id, &parts, now, until).await?;
    Ok((Text::InParts(PartsRef { prefix, count, len: text.len() as u64 }), staged))
}

/// Creates a message. If a document with its id exists, or the garbage record of its staging
/// does not exist, the message was created before, and is not created again.
pub(crate) async fn create_message(store: &Store, prepared: &PreparedMessage) -> Result<(), Failure> {
    let (message, instance) = (&prepared.message, prepared.message.instance_id.as_str());
    let Some(staged) = &prepared.staged else {
        return match store.container.create_with(instance, message, &without_content()).await {
            Err(error) if !error.is_conflict() => Err(error.into()),
            _ => Ok(()),
        };
    };
    let mut batch = Batch::new(instance);
    batch.delete_if_match(&staged.id, &staged.etag)?.create(message)?;
    match store.container.batch(batch.with_options(batch_without_content())).await {
        Err(error) if error.operation_index() == Some(0) && error.is_document_not_found() => Ok(()),
        // The message was created before, with other parts.
        Err(error) if error.is_conflict() => {
            discard_staged(store, message, staged).await;
            Ok(())
        }
        Err(error) => Err(error.into()),
        Ok(_) => Ok(()),
    }
}

/// Deletes the staged parts of a message that was created before, and the garbage record, in one
/// batch. With two steps, a late attempt of the staging could create a part again between them, and
/// nothing would delete that part. If the batch fails, or
/// there are too many parts for it, the reconciler finds the record and deletes the parts when no
/// late attempt can arrive any more.
async fn discard_staged(store: &Store, message: &Message, staged: &Staged) {
    let instance = message.instance_id.as_str();
    let parts: Vec<String> = message.item.parts().into_iter().flat_map(PartsRef::ids).collect();
    if parts.len() >= Batch::OPERATIONS_MAX {
        return;
    }
    let delete = async {
        let mut batch = Batch::new(instance);
        batch.delete_if_match(&staged.id, &staged.etag)?;
        for part in &parts {
            batch.delete(part)?;
        }
        store.container.batch(batch.with_options(batch_without_content())).await
    };
    match delete.await {
        Err(error) if !error.is_document_not_found() => {
            tracing::warn!(instance, id = staged.id, %error, "staged parts wait for the reconciler");
        }
        _ => {}
    }
}

/// Sends a message to its instance: stages its text if it is large, and creates the message.
/// Transient failures are retried until `until`. Returns the message as it was written.
pub(crate) async fn send_message(
    store: &Store,
    message: Message,
    now: Stamp,
    until: Instant,
) -> Result<Message, Failure> {
    let prepared = prepare_message(store, message, now, until).await?;
    retry_until(until, || create_message(store, &prepared)).await?;
    Ok(prepared.message)
}

/// Deletes a message that must not be delivered, if it still has the etag with which it was read. Its
/// parts are deleted before it: no process delivers a message without its parts.
pub(crate) async fn remove_message(store: &Store, message: &Message, etag: &Etag) -> Result<(), Failure> {
    let instance = message.instance_id.as_str();
    let parts: Vec<String> = message.item.parts().into_iter().flat_map(PartsRef::ids).collect();
    for ids in parts.chunks(Batch::OPERATIONS_MAX) {
        purge::delete_documents(store, instance, ids).await?;
    }
    // If the message was changed, another message has its id by now.
    fenced_delete::delete_unchanged(store, instance, &[(message.id.as_str(), etag)]).await.map(drop)
}

/// Deletes messages of an instance with their parts, if each message and the state still has the
/// etag with which it was read. If one of them has changed, deletes nothing and returns false.
///
/// If there was no state document, a state that was created since is not noticed. That is
/// harmless: a turn that has taken one of the messages deletes it in its commit, and is refused
/// because the message no longer exists.
pub(crate) async fn remove_messages_if_unchanged(
    store: &Store,
    instance: &str,
    state: Option<&Versioned<State>>,
    messages: &[(&Message, &Etag)],
) -> Result<bool, Failure> {
    let mut batch = Batch::new(instance);
    for (message, etag) in messages {
        batch.delete_if_match(&message.id, etag)?;
    }
    let mut room = Batch::OPERATIONS_MAX.saturating_sub(messages.len());
    if let Some(state) = state {
        // The member has this value already, so the patch only checks the etag.
        let unchanged = Patch::new().set("/enq", state.value.enqueued_at)?;
        batch.patch_if_match(STATE_ID, &unchanged, &state.etag)?;
        store.state_cache.forget(instance);
        room = room.saturating_sub(1);
    }
    let texts = messages.iter().filter_map(|(message, _)| message.item.parts());
    let parts: Vec<String> = texts.flat_map(PartsRef::ids).collect();
    let (in_batch, rest) = parts.split_at(parts.len().min(room));
    for part in in_batch {
        batch.delete(part)?;
    }
    match store.container.batch(batch.with_options(batch_without_content())).await {
        Ok(_) => {}
        Err(error) if error.is_precondition_failed() || error.is_document_not_found() => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    for ids in rest.chunks(Batch::OPERATIONS_MAX) {
        purge::delete_documents(store, instance, ids).await?;
    }
    Ok(true)
}
