//! Options of one operation on a document.

use std::sync::Arc;
use std::time::Duration;

use perihelion_driver::OperationOptions;
use perihelion_driver::operation::{Operation, Witness};
use perihelion_driver::options::Priority;

use super::repeat::Repeat;
use crate::{Error, Etag};

/// Options of one operation on a document.
///
/// ```
/// # use perihelion_client::{Etag, ItemOptions};
/// # use std::time::Duration;
/// # fn example(etag: &Etag) {
/// let only_if_unchanged = ItemOptions::new().with_if_match(etag).with_timeout(Duration::from_secs(2));
/// # }
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ItemOptions {
    /// The etag that the document must have. If it has another etag, the operation fails
    /// with 412,
    /// [`Error::is_precondition_failed`](crate::Error::is_precondition_failed).
    pub if_match: Option<Etag>,
    /// A value that only this write stores: see [`ItemOptions::with_witness`].
    pub witness: Option<Witness>,
    /// Whether a write is sent again when its response was lost.
    pub repeat: Repeat,
    /// Timeouts, regions, hedging, consistency.
    pub operation: OperationOptions,
}

impl ItemOptions {
    /// The defaults.
    pub fn new() -> Self {
        ItemOptions::default()
    }

    /// Performs the operation only if the document still has this etag.
    pub fn with_if_match(mut self, etag: &Etag) -> Self {
        self.if_match = Some(etag.clone());
        self
    }

    /// Sets how the client finds out whether this write was applied when its
    /// response is lost. A write that was applied leaves `value` at `pointer` (RFC 6901)
    /// in the document `id` of the same partition. No other write may store this value
    /// there, so use a random token, for example. Later writes must keep the value, and must
    /// not delete the document.
    ///
    /// The client reads the document `id` before it sends a create or a write with an etag
    /// again, and before it fails with [`Error::is_ambiguous`](crate::Error::is_ambiguous).
    /// If the document has the value, the write has succeeded, and the result is the
    /// response to this read.
    pub fn with_witness(
        mut self,
        id: impl Into<String>,
        pointer: impl Into<String>,
        value: impl Into<serde_json::Value>,
    ) -> Self {
        self.witness = Some(witness(id, pointer, value));
        self
    }

    /// Sets whether a write is sent again when its response was lost.
    ///
    /// ```
    /// # use perihelion_client::{ItemOptions, Repeat};
    /// // A consumer deletes this message, so the client must not create it twice.
    /// let message = ItemOptions::new().with_repeat(Repeat::Never);
    /// ```
    pub fn with_repeat(mut self, repeat: Repeat) -> Self {
        self.repeat = repeat;
        self
    }

    /// Sets the time limit of the operation, retries included.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.operation.timeout = Some(timeout);
        self
    }

    /// Makes a read return at least the writes that this session token covers. The token
    /// is a [`Receipt::session_token`](crate::Receipt::session_token), usually of another
    /// process.
    pub fn with_session_token(mut self, token: impl Into<Arc<str>>) -> Self {
        self.operation.session_token = Some(token.into());
        self
    }

    /// Sets whether the response to a write contains the document. Without the
    /// document the response is shorter, and
    /// [`Written::into_item`](crate::Written::into_item) fails.
    pub fn with_content_on_write(mut self, is_wanted: bool) -> Self {
        self.operation.content_on_write = Some(is_wanted);
        self
    }

    /// Sets the priority of the operation. Under load, the service throttles requests of low
    /// priority first.
    pub fn with_priority(mut self, priority: Priority) -> Self {
        self.operation.priority = Some(priority);
        self
    }

    /// Sets the throughput bucket of the operation, 1 to 5.
    pub fn with_throughput_bucket(mut self, bucket: u8) -> Self {
        self.operation.throughput_bucket = Some(bucket);
        self
    }

    /// Sets the maximum age of an answer that a read may take from the cache of a dedicated
    /// gateway.
    pub fn with_dedicated_gateway_staleness_max(mut self, staleness: Duration) -> Self {
        self.operation.dedicated_gateway_staleness_max = Some(staleness);
        self
    }

    /// Sets whether a read bypasses the cache of a dedicated gateway.
    pub fn with_dedicated_gateway_bypass(mut self, is_bypassed: bool) -> Self {
        self.operation.dedicated_gateway_bypass = Some(is_bypassed);
        self
    }

    /// Adds a header of the caller's own. Headers that the client sets itself are refused.
    pub fn with_header(mut self, name: &str, value: &str) -> Result<Self, Error> {
        self.operation = self.operation.with_header(name, value)?;
        Ok(self)
    }

    /// Sets timeouts, regions, hedging and consistency. An option that `options` does not set
    /// keeps its value, for example that of [`with_timeout`](ItemOptions::with_timeout).
    pub fn with_operation(mut self, options: OperationOptions) -> Self {
        self.operation = options.or(self.operation);
        self
    }

    /// Adds the etag, the choice of repeats and the witness to an operation.
    pub(crate) fn apply(&self, mut operation: Operation) -> Operation {
        if let Some(etag) = &self.if_match {
            operation = operation.with_if_match(etag.header());
        }
        if let Some(witness) = &self.witness {
            operation = operation.with_witness(witness.clone());
        }
        self.repeat.apply(operation)
    }
}

/// The witness of a write.
pub(crate) fn witness(
    id: impl Into<String>,
    pointer: impl Into<String>,
    value: impl Into<serde_json::Value>,
) -> Witness {
    Witness { id: id.into(), pointer: pointer.into(), value: value.into() }
}
