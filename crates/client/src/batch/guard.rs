//! Whether a batch is guarded against being applied twice. A create, or an upsert with an etag,
//! guards its batch: once the batch was applied, the document exists and has another etag, so the
//! service refuses the same batch a second time. A batch that also deletes the document is not
//! guarded: the service would create the document again, and an upsert ignores its etag if the
//! document does not exist.

use std::borrow::Cow;
use std::collections::HashSet;

use serde::Deserialize;

use super::{Batch, OperationKind};

/// Whether a document that the batch creates, or upserts under an etag, exists after the batch.
pub(super) fn has_lasting_document(batch: &Batch) -> bool {
    let has = |kind: OperationKind| batch.operations.iter().any(|operation| operation.kind == kind);
    let has_delete = has(OperationKind::Delete);
    // Few batches have both creates and deletes. Only these batches have to be parsed again, for
    // the ids of the documents that they create. An upsert with an etag counts only if the batch
    // deletes nothing at all.
    let is_lasting_create = || !has_delete || has_create_without_delete(batch);
    (batch.has_upsert_with_etag && !has_delete) || (has(OperationKind::Create) && is_lasting_create())
}

/// Whether the batch creates a document that none of its operations deletes.
fn has_create_without_delete(batch: &Batch) -> bool {
    let deleted: HashSet<&str> = batch
        .operations
        .iter()
        .filter(|operation| operation.kind == OperationKind::Delete)
        .filter_map(|operation| operation.id.as_deref())
        .collect();
    let body = [batch.body.as_slice(), b"]"].concat();
    let Ok(written) = serde_json::from_slice::<Vec<WrittenOperation<'_>>>(&body) else { return false };
    let created = batch.operations.iter().zip(written).filter(|(name, _)| name.kind == OperationKind::Create);
    // The service gives an id to a document without an id. No deletion of the batch can name this
    // id.
    created
        .filter_map(|(_, written)| written.resource_body)
        .any(|document| document.id.is_none_or(|id| !deleted.contains(&*id)))
}

/// The parts of an operation in the request body that this module reads.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenOperation<'a> {
    #[serde(borrow, default)]
    resource_body: Option<CreatedDocument<'a>>,
}

#[derive(Deserialize)]
struct CreatedDocument<'a> {
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
}
