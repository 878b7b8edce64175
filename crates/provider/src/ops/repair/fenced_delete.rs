//! Fenced deletes: batches that delete documents only while that is certainly right. The first
//! operation of such a batch is its *fence*: it fails as soon as the documents may belong to a later
//! incarnation of the instance, and then nothing is deleted.
//!
//! A delete without a fence may be late: its process was slow, or an attempt that was given up arrives
//! after all. By then the instance may be deleted and started again, and the new instance has documents
//! with the same ids: chunks of history, executions, activities and completions are numbered from one
//! in every incarnation.

use perihelion_client::{Batch, Etag};
use tokio::time::Instant;

use crate::failure::Failure;
use crate::store::{RETRY_FOR, Store, batch_without_content, retry_until, without_content};

/// The most documents that one batch deletes: the fence is an operation, too.
pub(crate) const DOCUMENTS_MAX: usize = Batch::OPERATIONS_MAX - 1;

/// What became of a fenced batch.
pub(crate) enum FencedOutcome {
    /// The etag of the document that the fence writes or reads; `None` if the fence deletes the
    /// document, or if the answer was lost.
    Applied(Option<Etag>),
    /// The fence failed. Nothing was deleted.
    FenceLost,
    /// The document at this position does not exist. Nothing was deleted.
    Missing(usize),
    /// The documents together are larger than a request may delete. Nothing was deleted.
    TooLarge,
}

/// The status of a request that is too large.
const TOO_LARGE: u16 = 413;

/// Deletes documents, at most [`DOCUMENTS_MAX`], in one batch. `batch` has the fence as its only
/// operation. If the answer to an attempt is lost, the next attempt may find the fence or a document
/// gone.
pub(crate) async fn delete(
    store: &Store,
    mut batch: Batch,
    ids: &[String],
) -> Result<FencedOutcome, Failure> {
    debug_assert_eq!(batch.len(), 1, "the batch has its fence");
    for id in ids {
        batch.delete(id)?;
    }
    let batch = batch.with_options(batch_without_content());
    let send = || async {
        match store.container.batch(batch.clone()).await {
            Ok(results) => {
                Ok(FencedOutcome::Applied(results.get(0).and_then(|result| result.etag().cloned())))
            }
            Err(error) => match error.operation_index() {
                Some(0) if error.is_precondition_failed() || error.is_document_not_found() => {
                    Ok(FencedOutcome::FenceLost)
                }
                Some(index) if error.is_document_not_found() => Ok(FencedOutcome::Missing(index - 1)),
                _ if error.status().is_some_and(|status| status.code == TOO_LARGE) && ids.len() > 1 => {
                    Ok(FencedOutcome::TooLarge)
                }
                _ => Err(Failure::from(error)),
            },
        }
    };
    retry_until(Instant::now() + RETRY_FOR, send).await
}

/// The number of documents of the next batch, after a batch of `count` documents was too large, or one
/// of its documents was missing. If a document was missing, another process probably deletes documents
/// of this instance, too. A smaller batch has a missing document less often.
pub(crate) fn fewer(count: usize) -> usize {
    (count / 2).max(1)
}

/// The number of documents of the next batch, after a batch of at most `count` documents was applied.
pub(crate) fn more(count: usize) -> usize {
    (count * 2).min(DOCUMENTS_MAX)
}

/// Deletes documents that still have the etags with which they were read: the etags are the fences.
/// Returns whether none of the documents is left. A document that was changed is not deleted.
pub(crate) async fn delete_unchanged(
    store: &Store,
    instance: &str,
    documents: &[(&str, &Etag)],
) -> Result<bool, Failure> {
    let mut is_all = true;
    for documents in documents.chunks(Batch::OPERATIONS_MAX) {
        let mut batch = Batch::new(instance);
        for (id, etag) in documents {
            batch.delete_if_match(id, etag)?;
        }
        match store.container.batch(batch.with_options(batch_without_content())).await {
            Ok(_) => continue,
            Err(error)
                if error.is_document_not_found()
                    || error.is_precondition_failed()
                    || error.is_transient() => {}
            Err(error) => return Err(error.into()),
        }
        for (id, etag) in documents {
            let delete = || async {
                let options = without_content().with_if_match(etag);
                match store.container.delete_with(instance, id, &options).await {
                    Ok(_) => Ok(true),
                    Err(error) if error.is_document_not_found() => Ok(true),
                    Err(error) if error.is_precondition_failed() => Ok(false),
                    Err(error) => Err(Failure::from(error)),
                }
            };
            is_all &= retry_until(Instant::now() + RETRY_FOR, delete).await?;
        }
    }
    Ok(is_all)
}
