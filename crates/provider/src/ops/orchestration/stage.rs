//! Staging: a turn that is too large for one batch writes its chunks, parts, bundles and
//! outboxes before its commit. Nothing uses these documents until the commit makes them
//! visible: no document refers to the chunks and parts, and the bundles and outboxes have the
//! type `staged`. The parts of a large message are staged in the same way.
//!
//! Invariants:
//!
//! - A garbage record is written before anything is staged. The record becomes due long after
//!   the commit, and the commit deletes the record. So staged documents are collected only if
//!   they have no commit, and the commit needs one operation for any number of chunks and
//!   parts.
//! - The ids of staged documents contain the id of the staging. So staging never overwrites a
//!   document.
//! - A batch of staged documents is applied only while the garbage record exists. An attempt may
//!   arrive long after its caller gave it up and a later attempt was applied, even after the commit
//!   and the deletion of the documents. This late attempt then creates nothing. Otherwise it would
//!   create documents that nothing refers to and nothing deletes.
//! - A late attempt does not create the garbage record again after the commit: the batch that
//!   creates it also creates a guard document, which stays for an hour. If the container has no
//!   time to live, there is no guard, and the collection of such a record looks for the commit first.

use perihelion_client::{Batch, Etag};
use serde::Serialize;
use tokio::time::Instant;

use crate::documents::stamp::Stamp;
use crate::documents::{Bundle, DocumentType, Garbage, Outbox, Part, StagingGuard};
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::plan::{COMMIT_BYTES_MAX, TurnPlan};
use crate::process::clock::HybridClock;
use crate::store::{Store, batch_without_content, retry_until, without_content};
use crate::timing::{LATE_ATTEMPT_MAX, STAGED_KEPT_FOR};

/// The garbage record of staged documents. The commit deletes the record under this etag.
#[derive(Debug)]
pub(crate) struct Staged {
    pub(crate) id: String,
    pub(crate) etag: Etag,
}

/// Stages the large documents of a plan; `None` if the plan stages none. Requests are retried
/// until `until`.
pub(crate) async fn stage_turn(
    store: &Store,
    clock: &HybridClock,
    plan: &TurnPlan,
    until: Instant,
) -> Result<Option<Staged>, Failure> {
    let Some(staging_id) = plan.staging_id.as_deref() else { return Ok(None) };
    let instance = plan.state.instance_id.as_str();
    let staged = create_record(store, instance, staging_id, clock.stamp(), until).await?;
    let mut writer = StageWriter::new(store, instance, &staged, until)?;
    for chunk in &plan.chunks {
        writer.create(chunk).await?;
    }
    for part in &plan.parts {
        writer.create(part).await?;
    }
    for bundle in &plan.bundles {
        writer.create(&Bundle { document_type: DocumentType::Staged, ..bundle.clone() }).await?;
    }
    for outbox in &plan.outboxes {
        writer.create(&Outbox { document_type: DocumentType::Staged, ..outbox.clone() }).await?;
    }
    writer.finish().await?;
    Ok(Some(staged))
}

/// Gives up the documents that were staged for a plan whose commit failed or was not sent. The
/// garbage record is closed, so that the commit can no longer succeed. The reconciler deletes the
/// documents when no request of the staging can be under way any more. If the commit was applied
/// after all, the record no longer exists and nothing happens. If the record cannot be closed, it
/// is due after [`STAGED_KEPT_FOR`].
pub(crate) async fn give_up(core: &Core, plan: &TurnPlan) {
    let Some(staging_id) = plan.staging_id.clone() else { return };
    let (store, instance) = (core.store.clone(), plan.state.instance_id.clone());
    let due = core.clock.stamp().plus(LATE_ATTEMPT_MAX * 2);
    let close = async move {
        let id = Garbage::blank(&instance, &staging_id, due).id;
        let Ok(Some(found)) = store.find::<Garbage>(&instance, &id).await else { return };
        let record = Garbage { due_at: due, is_closed: true, ..found.value };
        let closed = store.put(&instance, &id, &record, &found.etag, without_content()).await;
        if let Err(failure) = closed {
            tracing::debug!(instance, ?failure, "staged documents stay until their record is due");
        }
    };
    core.background.run(close).await;
}

/// Stages the parts of one text. The garbage record is due [`STAGED_KEPT_FOR`] after `now`.
pub(crate) async fn stage_parts(
    store: &Store,
    instance: &str,
    staging_id: &str,
    parts: &[Part],
    now: Stamp,
    until: Instant,
) -> Result<Staged, Failure> {
    let staged = create_record(store, instance, staging_id, now, until).await?;
    let mut writer = StageWriter::new(store, instance, &staged, until)?;
    for part in parts {
        writer.create(part).await?;
    }
    writer.finish().await?;
    Ok(staged)
}

/// Creates the garbage record of a staging, due [`STAGED_KEPT_FOR`] after `now`, and its guard.
async fn create_record(
    store: &Store,
    instance: &str,
    staging_id: &str,
    now: Stamp,
    until: Instant,
) -> Result<Staged, Failure> {
    let blank = Garbage::blank(instance, staging_id, now.plus(STAGED_KEPT_FOR));
    let record = Garbage { staging_id: Some(staging_id.to_owned()), has_guard: store.is_ttl_on, ..blank };
    let create = || async {
        match record.has_guard {
            true => create_with_guard(store, &record, &StagingGuard::new(instance, staging_id)).await,
            false => store.create(instance, &record.id, &record).await.map(Some),
        }
    };
    let etag = retry_until(until, create).await?.ok_or_else(|| given_up(instance))?;
    Ok(Staged { id: record.id, etag })
}

/// Creates a garbage record and its guard, and returns the etag of the record. If an earlier attempt
/// has created them, the record is read; `None` if it no longer exists.
async fn create_with_guard(
    store: &Store,
    record: &Garbage,
    guard: &StagingGuard,
) -> Result<Option<Etag>, Failure> {
    let instance = record.instance_id.as_str();
    let mut batch = Batch::new(instance);
    batch.create(record)?.create(guard)?;
    match store.container.batch(batch.with_options(batch_without_content())).await {
        Ok(results) => {
            if let Some(etag) = results.get(0).and_then(|result| result.etag().cloned()) {
                return Ok(Some(etag));
            }
        }
        Err(error) if error.is_conflict() => {}
        Err(error) => return Err(error.into()),
    }
    Ok(store.find::<serde_json::Value>(instance, &record.id).await?.map(|found| found.etag))
}

fn given_up(instance: &str) -> Failure {
    Failure::Contended(format!("the staged documents of {instance} were given up before they were complete"))
}

/// Creates documents in batches.
struct StageWriter<'a> {
    store: &'a Store,
    instance: &'a str,
    staged: &'a Staged,
    until: Instant,
    batch: Batch,
}

/// How many operations a batch has before the first document is added.
const OPERATIONS_OF_EMPTY_BATCH: usize = 1;

/// A batch for staged documents. Its first operation reads the garbage record, so that the batch
/// fails when the record does not exist.
pub(in crate::ops) fn new_batch(instance: &str, staged: &Staged) -> Result<Batch, Failure> {
    let mut batch = Batch::new(instance);
    batch.read(&staged.id)?;
    Ok(batch)
}

/// Sends a batch of staged documents once. Returns whether the documents exist now. They do not
/// exist if the garbage record was deleted.
pub(in crate::ops) async fn send_batch(store: &Store, batch: Batch) -> Result<bool, Failure> {
    match store.container.batch(batch.with_options(batch_without_content())).await {
        Ok(_) => Ok(true),
        // An earlier attempt of this batch was applied: no other batch uses these ids.
        Err(error) if error.is_conflict() => Ok(true),
        Err(error) if error.is_document_not_found() => Ok(false),
        Err(error) => Err(Failure::from(error)),
    }
}

impl<'a> StageWriter<'a> {
    fn new(store: &'a Store, instance: &'a str, staged: &'a Staged, until: Instant) -> Result<Self, Failure> {
        Ok(StageWriter { store, instance, staged, until, batch: new_batch(instance, staged)? })
    }

    /// Adds a document to the batch. If the batch is full, sends it first.
    async fn create<T: Serialize>(&mut self, document: &T) -> Result<(), Failure> {
        let mut single = Batch::new(self.instance);
        single.create(document)?;
        if self.batch.is_full() || self.batch.bytes() + single.bytes() > COMMIT_BYTES_MAX {
            self.send().await?;
        }
        self.batch.create(document)?;
        Ok(())
    }

    /// Sends the last batch.
    async fn finish(mut self) -> Result<(), Failure> {
        self.send().await
    }

    async fn send(&mut self) -> Result<(), Failure> {
        let batch = std::mem::replace(&mut self.batch, new_batch(self.instance, self.staged)?);
        if batch.len() <= OPERATIONS_OF_EMPTY_BATCH {
            return Ok(());
        }
        let are_created = retry_until(self.until, || send_batch(self.store, batch.clone())).await?;
        are_created.then_some(()).ok_or_else(|| given_up(self.instance))
    }
}
