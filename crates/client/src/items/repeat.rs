//! Whether a write is sent again when its response was lost.

use perihelion_driver::operation::{Idempotency, Operation};

/// Whether a write is sent again when its response was lost. Such a write may have been
/// applied. Reads, and writes that were certainly not applied, are always sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Repeat {
    /// The write is sent again if its kind allows it (the default):
    ///
    /// - Upserts, replaces, deletes, and patches that only set or replace members are sent again.
    ///   The repeat may overwrite what another client has written after the first attempt.
    /// - Creates and writes with an etag are sent again. The service refuses the repeat if the
    ///   first attempt was applied; the result is then an error with
    ///   [`is_ambiguous`](crate::Error::is_ambiguous), unless there is a
    ///   [witness](crate::ItemOptions::with_witness). If another client has deleted the created
    ///   document before the repeat, the repeat creates it again.
    /// - Other patches, such as increments, are not sent again.
    #[default]
    ByKind,
    /// The write is not sent again. If its response was lost, the result is an error with
    /// [`is_ambiguous`](crate::Error::is_ambiguous), unless the witness shows that the write
    /// was applied. Use this for documents that other clients delete when they have processed
    /// them, such as the messages of a queue.
    Never,
    /// The write is sent again, because it does no harm if it is applied twice.
    Always,
}

impl Repeat {
    /// Applies the choice to a write. Reads are not affected.
    pub(crate) fn apply(self, operation: Operation) -> Operation {
        match self {
            Repeat::Never if !operation.verb.is_read() => {
                operation.with_idempotency(Idempotency::NotIdempotent)
            }
            Repeat::Always if !operation.verb.is_read() => {
                operation.with_idempotency(Idempotency::Idempotent)
            }
            Repeat::ByKind | Repeat::Never | Repeat::Always => operation,
        }
    }
}
