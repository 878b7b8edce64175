//! Documents that nobody refers to any more are removed: parts of what was
//! consumed or overwritten, inputs of cancelled activities, histories that were
//! pruned, and what was staged for a commit that never came.
//!
//! What always holds: a record of them goes last, so that whoever finds it can
//! begin again. One that waits for a commit is closed first, under its etag;
//! the commit, which removes it under the same etag, then cannot come.

use perihelion_client::{Batch, Query};

use crate::documents::{Litter, Versioned};
use crate::failure::Failure;
use crate::inner::Inner;
use crate::ops::purge;
use crate::store::{Store, quiet};

/// Removes what a commit of this process dropped, which nobody waits for; what
/// fails is left to the reconciler.
pub(crate) async fn run(inner: &Inner, litter: Litter) {
    let (store, leave_work) = (inner.store.clone(), inner.leave_work_later());
    let removed = async move {
        if let Err(failure) = collect(&store, &litter).await {
            let (instance, id) = (&litter.instance_id, &litter.id);
            tracing::warn!(instance, id, ?failure, "documents wait to be removed by the reconciler");
            leave_work();
        }
    };
    inner.chores.add(removed).await;
}

/// Removes what a record names that is due.
pub(crate) async fn finish(inner: &Inner, found: Versioned<Litter>) -> Result<(), Failure> {
    let Versioned { value: mut litter, etag } = found;
    if litter.staging.is_some() && !litter.is_closed {
        litter.is_closed = true;
        match inner.store.put(&litter.instance_id, &litter.id, &litter, &etag, quiet()).await {
            Ok(_) => {}
            // The commit has come after all, or someone else closes it.
            Err(Failure::Storage(error)) if error.is_precondition_failed() || error.is_not_found() => {
                return Ok(());
            }
            Err(failure) => return Err(failure),
        }
    }
    collect(&inner.store, &litter).await
}

/// Removes what a record names, and the record.
pub(super) async fn collect(store: &Store, litter: &Litter) -> Result<(), Failure> {
    let instance = litter.instance_id.as_str();
    let mut ids: Vec<String> = litter.parts.iter().flat_map(|parts| parts.ids()).collect();
    ids.extend(found(store, litter).await?);
    for ids in ids.chunks(Batch::OPERATIONS_MAX) {
        purge::remove(store, instance, ids).await?;
    }
    purge::remove(store, instance, std::slice::from_ref(&litter.id)).await
}

/// What is not named one by one.
async fn found(store: &Store, litter: &Litter) -> Result<Vec<String>, Failure> {
    let mut ids = Vec::new();
    let (by_staging, by_activity, by_execution) = (
        "SELECT VALUE c.id FROM c WHERE c.mark = @value",
        "SELECT VALUE c.id FROM c WHERE ARRAY_CONTAINS(@value, c.of)",
        "SELECT VALUE c.id FROM c WHERE c.hx = @value",
    );
    let ask = async |text: &str, value: serde_json::Value| {
        let query = Query::new(text).with_parameter("@value", value).in_partition(&*litter.instance_id);
        store.rows::<String>(query).await
    };
    if let Some(mark) = &litter.staging {
        ids.extend(ask(by_staging, mark.as_str().into()).await?);
    }
    if !litter.of.is_empty() {
        ids.extend(ask(by_activity, litter.of.clone().into()).await?);
    }
    if let Some(execution) = litter.history {
        ids.extend(ask(by_execution, execution.into()).await?);
    }
    Ok(ids)
}
