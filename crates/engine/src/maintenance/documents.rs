//! Visiting every document of a container in small jobs.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::{BYTES_PER_JOB_MAX, ENTRIES_PER_JOB_MAX};
use crate::catalog::Container;
use crate::keys::{self, ContainerNumber, OwnedKeyRange, SegmentId};
use crate::refusal::Refusal;
use crate::transaction::Transaction;
use crate::writer::StoreHandle;

/// Called with each document: the container as it is now, the segment, the
/// document's key and record.
pub(super) trait Visit:
    Fn(&mut Transaction<'_>, &Container, SegmentId, Vec<u8>, Bytes) -> Result<(), Refusal>
{
}
impl<V: Fn(&mut Transaction<'_>, &Container, SegmentId, Vec<u8>, Bytes) -> Result<(), Refusal>> Visit for V {}

/// Visits every document of a container, except documents that are created behind the cursor during
/// the visit. Does nothing if the container does not exist. Returns a refusal if the container is
/// deleted during the visit. The list of segments does not change, because documents never leave
/// their segment and a split creates no segment.
pub(super) async fn for_each_document(
    store: &StoreHandle,
    number: ContainerNumber,
    visit: impl Visit + Clone + Send + 'static,
) -> Result<(), Refusal> {
    let catalog = store.catalog();
    let Some(container) = catalog.container_by_number(number) else { return Ok(()) };
    let segments: BTreeSet<SegmentId> = container.ranges.iter().map(|range| range.segment).collect();
    for segment in segments {
        let mut cursor = Some(keys::document_prefix(number, segment));
        while let Some(after) = cursor {
            let (container, visit) = (Arc::clone(container), visit.clone());
            cursor = store
                .write(move |transaction| visit_next(transaction, &container, segment, &after, &visit))
                .await?;
        }
    }
    Ok(())
}

/// Visits the next documents after the key `after`: up to [`ENTRIES_PER_JOB_MAX`] documents that
/// together have about [`BYTES_PER_JOB_MAX`] bytes. Returns the key of the last visited document, or
/// `None` when there was no document.
fn visit_next(
    transaction: &mut Transaction<'_>,
    container: &Container,
    segment: SegmentId,
    after: &[u8],
    visit: &impl Visit,
) -> Result<Option<Vec<u8>>, Refusal> {
    let container = transaction.current(container)?;
    let prefix = keys::document_prefix(container.number(), segment);
    let key_range = OwnedKeyRange::prefix_after(&prefix, after);
    let entries = transaction.entries_within(&key_range, ENTRIES_PER_JOB_MAX, BYTES_PER_JOB_MAX)?;
    let last = entries.last().map(|(key, _)| key.clone());
    for (key, record) in entries {
        visit(transaction, &container, segment, key, record)?;
    }
    Ok(last)
}
