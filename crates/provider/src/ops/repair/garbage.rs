//! Garbage collection: deletes documents that nothing refers to any more. These are
//! parts of consumed, delivered or overwritten texts, inputs of cancelled activities,
//! pruned histories, and documents that were staged for a commit that never came. A *garbage
//! record* is a document that names such documents.
//!
//! Invariants: the record is deleted last, so that any process can repeat the collection. Each batch
//! of a collection is applied only while the record exists. A purge deletes the garbage records of its
//! instance, so a late collection deletes nothing of the next instance of that name, whose documents
//! may have the same ids. Only records of staged documents survive a purge: the ids of staged documents
//! are never used again. A record of staged documents is closed, under its etag, before the collection.
//! The commit would delete the record under the same etag, so it cannot succeed any more.
//!
//! An attempt to create a record of staged documents may arrive after a later attempt has created the
//! record and the commit has deleted it. If the record has a guard document (see `stage`), this late
//! attempt is refused. Without a guard, it creates the record again, which then names documents that
//! are in use. So the collection of a record without a guard first checks whether the commit was
//! applied.

use std::sync::Arc;

use perihelion_client::{Batch, Query};
use serde_json::Value;

use crate::documents::{DocumentType, Garbage, STATE_ID, Versioned};
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::ops::repair::fenced_delete::{self, FencedOutcome};
use crate::ops::repair::purge;
use crate::store::{Store, without_content};

/// Collects, in the background, the garbage of a record that was just written. If this fails,
/// the reconciler repeats it.
pub(crate) async fn collect_in_background(core: &Core, garbage: Garbage) {
    let (store, repair_signal) = (core.store.clone(), Arc::clone(&core.repair_signal));
    let collection = async move {
        if let Err(failure) = collect(&store, &garbage).await {
            let (instance, id) = (&garbage.instance_id, &garbage.id);
            tracing::warn!(instance, id, ?failure, "garbage waits for the reconciler");
            repair_signal.record_unfinished_work();
        }
    };
    core.background.run(collection).await;
}

/// Collects the garbage of a record that is due. If it is a record of staged documents, closes
/// the record first.
pub(crate) async fn collect_due(store: &Store, record: Versioned<Garbage>) -> Result<(), Failure> {
    let Versioned { value: mut garbage, etag } = record;
    if garbage.staging_id.is_some() && !garbage.is_closed {
        garbage.is_closed = true;
        match store.put(&garbage.instance_id, &garbage.id, &garbage, &etag, without_content()).await {
            Ok(_) => {}
            // The commit has deleted the record, or another process has closed it.
            Err(Failure::Storage(error))
                if error.is_precondition_failed() || error.is_document_not_found() =>
            {
                return Ok(());
            }
            Err(failure) => return Err(failure),
        }
    }
    if let Some(staging_id) = &garbage.staging_id
        && !garbage.has_guard
        && is_committed(store, &garbage, staging_id).await?
    {
        let (instance, id) = (&garbage.instance_id, &garbage.id);
        tracing::debug!(instance, id, "a garbage record came after its commit; its documents stay");
        return purge::delete_documents(store, instance, std::slice::from_ref(id)).await;
    }
    collect(store, &garbage).await
}

/// The types that a commit gives to staged documents.
const COMMITTED: [DocumentType; 2] = [DocumentType::Bundle, DocumentType::Outbox];

/// All documents of an instance that may show the commit of a staging, except the state. Chunks
/// and parts refer to no documents.
const MAY_SHOW_COMMIT: &str = "SELECT * FROM c WHERE c.id != 'i' AND c.id != @record AND \
    NOT IS_DEFINED(c.hx) AND c.type != 'part' AND \
    (NOT IS_DEFINED(c.mark) OR c.mark != @staging OR c.type IN ('bundle', 'outbox'))";

/// Whether the commit of a staging was applied: a bundle or an outbox is no longer staged, or a
/// document outside of the staging refers to one of its documents, whose ids contain the staging id.
/// Usually that document is the state. If it is not, the other documents of the instance are read, page
/// by page, except chunks and parts, which are the large ones.
async fn is_committed(store: &Store, garbage: &Garbage, staging_id: &str) -> Result<bool, Failure> {
    let state = store.find::<Value>(&garbage.instance_id, STATE_ID).await?;
    if state.is_some_and(|state| state.value.to_string().contains(staging_id)) {
        return Ok(true);
    }
    let query = Query::new(MAY_SHOW_COMMIT)
        .with_parameter("@record", garbage.id.as_str())
        .with_parameter("@staging", staging_id)
        .in_partition(&*garbage.instance_id);
    let mut feed = store.container.query::<Value>(query);
    while let Some(page) = feed.next_page().await? {
        let shows_commit = |document: &Value| match document["mark"] == staging_id {
            true => COMMITTED.iter().any(|it| document["type"] == it.as_str()),
            false => document.to_string().contains(staging_id),
        };
        if page.items.iter().any(shows_commit) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Deletes the documents of a record, and the record with the last of them. Does nothing if the record
/// does not exist: another process has collected the garbage, or the instance was purged.
pub(crate) async fn collect(store: &Store, garbage: &Garbage) -> Result<(), Failure> {
    let mut ids: Vec<String> = garbage.parts.iter().flat_map(|parts| parts.ids()).collect();
    ids.extend(find_unlisted(store, garbage).await?);
    let mut batch_documents_max = fenced_delete::DOCUMENTS_MAX;
    // Each round of the loop makes the list shorter or the next batch smaller.
    loop {
        let count = ids.len().min(batch_documents_max);
        let is_last = count == ids.len();
        let mut batch = Batch::new(garbage.instance_id.as_str());
        match is_last {
            true => batch.delete(&garbage.id)?,
            false => batch.read(&garbage.id)?,
        };
        match fenced_delete::delete(store, batch, &ids[..count]).await? {
            FencedOutcome::Applied(_) if is_last => return Ok(()),
            FencedOutcome::Applied(_) => {
                ids.drain(..count);
                batch_documents_max = fenced_delete::more(batch_documents_max);
            }
            FencedOutcome::FenceLost => return Ok(()),
            // An earlier collection deleted the document, and ended before it had deleted them all.
            FencedOutcome::Missing(position) => {
                ids.remove(position);
                batch_documents_max = fenced_delete::fewer(batch_documents_max);
            }
            FencedOutcome::TooLarge => batch_documents_max = fenced_delete::fewer(count),
        }
    }
}

/// The ids of the documents that the record does not name one by one: documents of its staging,
/// parts of the inputs of its activities, and chunks of its execution.
async fn find_unlisted(store: &Store, garbage: &Garbage) -> Result<Vec<String>, Failure> {
    let mut ids = Vec::new();
    let (by_staging, by_activity, by_execution) = (
        "SELECT VALUE c.id FROM c WHERE c.mark = @value",
        "SELECT VALUE c.id FROM c WHERE ARRAY_CONTAINS(@value, c.of)",
        "SELECT VALUE c.id FROM c WHERE c.hx = @value",
    );
    let find_ids = async |text: &str, value: Value| {
        let query = Query::new(text).with_parameter("@value", value).in_partition(&*garbage.instance_id);
        store.rows::<String>(query).await
    };
    if let Some(staging_id) = &garbage.staging_id {
        ids.extend(find_ids(by_staging, staging_id.as_str().into()).await?);
    }
    if !garbage.activities.is_empty() {
        ids.extend(find_ids(by_activity, garbage.activities.clone().into()).await?);
    }
    if let Some(execution) = garbage.history {
        ids.extend(find_ids(by_execution, execution.into()).await?);
    }
    Ok(ids)
}
