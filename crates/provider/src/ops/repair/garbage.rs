//! Documents that nobody refers to any more are removed: parts of what was
//! consumed or overwritten, inputs of cancelled activities, histories that were
//! pruned, and what was staged for a commit that never came.
//!
//! What always holds: a record of them goes last, so that whoever finds it can
//! begin again. One that waits for a commit is closed first, under its etag;
//! the commit, which removes it under the same etag, then cannot come.

use std::sync::Arc;

use perihelion_client::{Batch, Query};

use crate::documents::{Garbage, Versioned};
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::ops::repair::purge;
use crate::store::{Store, quiet};

/// Removes what a commit of this process dropped, which nobody waits for; what
/// fails is left to the reconciler.
pub(crate) async fn run(core: &Core, garbage: Garbage) {
    let (store, repair) = (core.store.clone(), Arc::clone(&core.repair));
    let removed = async move {
        if let Err(failure) = collect(&store, &garbage).await {
            let (instance, id) = (&garbage.instance_id, &garbage.id);
            tracing::warn!(instance, id, ?failure, "documents wait to be removed by the reconciler");
            repair.leave_work();
        }
    };
    core.background.run(removed).await;
}

/// Removes what a record names that is due.
pub(crate) async fn finish(store: &Store, found: Versioned<Garbage>) -> Result<(), Failure> {
    let Versioned { value: mut garbage, etag } = found;
    if garbage.staging.is_some() && !garbage.is_closed {
        garbage.is_closed = true;
        match store.put(&garbage.instance_id, &garbage.id, &garbage, &etag, quiet()).await {
            Ok(_) => {}
            // The commit has come after all, or someone else closes it.
            Err(Failure::Storage(error)) if error.is_precondition_failed() || error.is_not_found() => {
                return Ok(());
            }
            Err(failure) => return Err(failure),
        }
    }
    collect(store, &garbage).await
}

/// Removes what a record names, and the record.
pub(crate) async fn collect(store: &Store, garbage: &Garbage) -> Result<(), Failure> {
    let instance = garbage.instance_id.as_str();
    let mut ids: Vec<String> = garbage.parts.iter().flat_map(|parts| parts.ids()).collect();
    ids.extend(found(store, garbage).await?);
    for ids in ids.chunks(Batch::OPERATIONS_MAX) {
        purge::remove(store, instance, ids).await?;
    }
    purge::remove(store, instance, std::slice::from_ref(&garbage.id)).await
}

/// What is not named one by one.
async fn found(store: &Store, garbage: &Garbage) -> Result<Vec<String>, Failure> {
    let mut ids = Vec::new();
    let (by_staging, by_activity, by_execution) = (
        "SELECT VALUE c.id FROM c WHERE c.mark = @value",
        "SELECT VALUE c.id FROM c WHERE ARRAY_CONTAINS(@value, c.of)",
        "SELECT VALUE c.id FROM c WHERE c.hx = @value",
    );
    let ask = async |text: &str, value: serde_json::Value| {
        let query = Query::new(text).with_parameter("@value", value).in_partition(&*garbage.instance_id);
        store.rows::<String>(query).await
    };
    if let Some(mark) = &garbage.staging {
        ids.extend(ask(by_staging, mark.as_str().into()).await?);
    }
    if !garbage.of.is_empty() {
        ids.extend(ask(by_activity, garbage.of.clone().into()).await?);
    }
    if let Some(execution) = garbage.history {
        ids.extend(ask(by_execution, execution.into()).await?);
    }
    Ok(ids)
}
