//! The size of a commit in operations and bytes: a plan that does not fit a batch is
//! never committed.

use serde::Serialize;

use super::TurnPlan;

/// The most operations of a batch: the service's limit.
pub(crate) const OPERATIONS_MAX: usize = 100;

/// The most bytes of a batch, as this crate counts them. The service allows 2 MiB, and may
/// count more bytes for the same batch than this crate.
pub(crate) const COMMIT_BYTES_MAX: usize = 1_800_000;

/// An estimate of the bytes of an operation without its document: its kind, id and etag.
const OPERATION_BYTES: usize = 160;

/// The most bytes of the state document: well below the 2 MiB that the service allows, so
/// that a lock can always be added.
const STATE_BYTES_MAX: usize = 1_200_000;

impl TurnPlan {
    /// Whether the plan fits one batch, and its state is small enough.
    pub(super) fn fits_batch(&self) -> bool {
        let state = document_bytes(&self.state);
        state <= STATE_BYTES_MAX
            && self.operation_count() <= OPERATIONS_MAX
            && state + self.bytes_without_state() <= COMMIT_BYTES_MAX
    }

    /// Whether the commit can be one distributed transaction that creates the messages to other
    /// instances in their partitions. That is the case if nothing is staged, if there are messages to
    /// other instances, if each of them fits one document, and if the transaction has at most
    /// [`OPERATIONS_MAX`] operations. The client checks the bytes.
    pub(crate) fn fits_transaction(&self) -> bool {
        let messages = || self.outboxes.iter().flat_map(|outbox| &outbox.messages);
        self.staging_id.is_none()
            && !self.outboxes.is_empty()
            && messages().all(|message| message.item.parts().is_none())
            && self.operation_count() - self.outboxes.len() + messages().count() <= OPERATIONS_MAX
    }

    /// The number of operations of the commit. A staged bundle or outbox needs an operation
    /// too: the commit makes it visible.
    pub(crate) fn operation_count(&self) -> usize {
        let chunks_and_parts = match &self.staging_id {
            // The commit deletes the garbage record of the staging.
            Some(_) => 1,
            None => self.chunks.len() + self.parts.len(),
        };
        1 + chunks_and_parts
            + self.activities.len()
            + self.messages.len()
            + usize::from(self.past.is_some())
            + self.bundles.len()
            + self.outboxes.len()
            + self.edited_bundles.len()
            + self.cancelled.len()
            + self.consumed.len()
            + usize::from(self.garbage.is_some())
    }

    /// Bytes of the commit without the state document. Staged documents do not count.
    fn bytes_without_state(&self) -> usize {
        let mut bytes = self.operation_count() * OPERATION_BYTES;
        bytes += total_document_bytes(&self.activities)
            + total_document_bytes(&self.messages)
            + total_document_bytes(&self.cancelled);
        bytes += self.past.as_ref().map_or(0, |past| document_bytes(&past.document));
        bytes += self.garbage.as_ref().map_or(0, document_bytes);
        bytes +=
            self.edited_bundles.iter().map(|bundle| total_document_bytes(&bundle.value.skip)).sum::<usize>();
        if self.staging_id.is_none() {
            bytes += total_document_bytes(&self.chunks)
                + total_document_bytes(&self.parts)
                + total_document_bytes(&self.bundles)
                + total_document_bytes(&self.outboxes);
        }
        bytes
    }
}

fn total_document_bytes<T: Serialize>(values: &[T]) -> usize {
    values.iter().map(document_bytes).sum()
}

/// Bytes of a document as JSON, without building the text.
fn document_bytes<T: Serialize>(value: &T) -> usize {
    struct ByteCounter(usize);
    impl std::io::Write for ByteCounter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut counter = ByteCounter(0);
    match serde_json::to_writer(&mut counter, value) {
        Ok(()) => counter.0,
        // The commit fails on a document that cannot be written.
        Err(_) => 0,
    }
}
