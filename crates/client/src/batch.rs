//! Transactional batches: up to a hundred operations on one logical partition,
//! all applied or none.
//!
//! A [`Batch`] writes each operation into its request body when the operation is added.
//! The closing bracket is added when the batch is sent. A batch never holds more
//! operations or bytes than the service accepts: an operation that exceeds a limit is
//! refused when it is added, and the batch stays as it was.

mod execute;
mod guard;
mod results;
#[cfg(test)]
mod tests;

use perihelion_driver::OperationOptions;
use perihelion_driver::operation::{Idempotency, Witness};
use perihelion_model::partition_key::PartitionKey;
use serde::Serialize;

pub(crate) use execute::execute;
pub(crate) use results::parse;
pub use results::{BatchResult, BatchResults};

use crate::items::{Repeat, witness};
use crate::patch::Patch;
use crate::response::encode_error;
use crate::{Error, Etag};

/// Operations on one logical partition that are applied together or not at all.
///
/// ```no_run
/// # use perihelion_client::{Batch, Container, Error, Etag, Patch};
/// # async fn example(container: &Container, etag: &Etag) -> Result<(), Error> {
/// # let (order, receipt) = (serde_json::json!({}), serde_json::json!({}));
/// let mut batch = Batch::new("ada");
/// batch
///     .create(&receipt)?
///     .replace_if_match("order-1", &order, etag)?
///     .patch("cart", &Patch::new().increment("/orders", 1)?)?
///     .delete("draft-1")?;
/// match container.batch(batch).await {
///     Ok(results) => println!("{} RU", results.charge()),
///     Err(error) if error.is_precondition_failed() => {
///         println!("operation {:?} found another version; nothing was written", error.operation_index());
///     }
///     Err(error) => return Err(error),
/// }
/// # Ok(())
/// # }
/// ```
///
/// An operation sees the changes of the operations before it.
#[derive(Debug, Clone)]
pub struct Batch {
    key: PartitionKey,
    /// `[{...},{...}` without its closing bracket.
    body: Vec<u8>,
    operations: Vec<OperationName>,
    /// Whether a replace, a patch or a deletion has an etag. When the batch was applied and is
    /// sent again, the service refuses such an operation, and so the whole batch. Creates and
    /// upserts may guard a batch, too (`guard`).
    is_guarded: bool,
    /// Whether an upsert has an etag.
    has_upsert_with_etag: bool,
    /// Whether the batch can be applied twice: the second time it succeeds and changes
    /// nothing more.
    is_idempotent: bool,
    witness: Option<Witness>,
    repeat_policy: Repeat,
    options: OperationOptions,
}

/// The kind and id of an operation, for error messages.
#[derive(Debug, Clone)]
struct OperationName {
    kind: OperationKind,
    /// `None` for a create and an upsert, which have their id in the document.
    id: Option<String>,
}

/// The kind of an operation. The request body has these names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum OperationKind {
    Create,
    Upsert,
    Replace,
    Read,
    Delete,
    Patch,
}

/// One operation in the request body.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireOperation<'a, B> {
    operation_type: OperationKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    if_match: Option<&'a Etag>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_body: Option<B>,
}

/// The type of the body of operations that have no body.
type NoBody = ();

impl Batch {
    /// The service's limit on operations per batch.
    pub const OPERATIONS_MAX: usize = 100;

    /// The service's limit on the request body, 2 MiB.
    pub const BYTES_MAX: usize = 2 * 1024 * 1024;

    /// An empty batch on the logical partition of this key.
    pub fn new(key: impl Into<PartitionKey>) -> Self {
        Batch {
            key: key.into(),
            body: Vec::new(),
            operations: Vec::new(),
            is_guarded: false,
            has_upsert_with_etag: false,
            is_idempotent: true,
            witness: None,
            repeat_policy: Repeat::default(),
            options: OperationOptions::default(),
        }
    }

    /// Creates a document that must not exist.
    pub fn create<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<&mut Self, Error> {
        self.push(OperationKind::Create, None, Some(value), None)
    }

    /// Creates a document or replaces it.
    pub fn upsert<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<&mut Self, Error> {
        self.push(OperationKind::Upsert, None, Some(value), None)
    }

    /// Creates a document, or replaces it if it still has this etag.
    pub fn upsert_if_match<T: Serialize + ?Sized>(
        &mut self,
        value: &T,
        etag: &Etag,
    ) -> Result<&mut Self, Error> {
        self.push(OperationKind::Upsert, None, Some(value), Some(etag))
    }

    /// Replaces a document that must exist.
    pub fn replace<T: Serialize + ?Sized>(&mut self, id: &str, value: &T) -> Result<&mut Self, Error> {
        self.push(OperationKind::Replace, Some(id), Some(value), None)
    }

    /// Replaces a document if it still has this etag.
    pub fn replace_if_match<T: Serialize + ?Sized>(
        &mut self,
        id: &str,
        value: &T,
        etag: &Etag,
    ) -> Result<&mut Self, Error> {
        self.push(OperationKind::Replace, Some(id), Some(value), Some(etag))
    }

    /// Reads a document that must exist.
    pub fn read(&mut self, id: &str) -> Result<&mut Self, Error> {
        self.push(OperationKind::Read, Some(id), None::<&NoBody>, None)
    }

    /// Deletes a document that must exist.
    pub fn delete(&mut self, id: &str) -> Result<&mut Self, Error> {
        self.push(OperationKind::Delete, Some(id), None::<&NoBody>, None)
    }

    /// Deletes a document if it still has this etag.
    pub fn delete_if_match(&mut self, id: &str, etag: &Etag) -> Result<&mut Self, Error> {
        self.push(OperationKind::Delete, Some(id), None::<&NoBody>, Some(etag))
    }

    /// Updates parts of a document that must exist.
    pub fn patch(&mut self, id: &str, patch: &Patch) -> Result<&mut Self, Error> {
        self.push_patch(id, patch, None)
    }

    /// Updates parts of a document if it still has this etag.
    pub fn patch_if_match(&mut self, id: &str, patch: &Patch, etag: &Etag) -> Result<&mut Self, Error> {
        self.push_patch(id, patch, Some(etag))
    }

    /// Sets how the client finds out whether the batch was applied when its
    /// response is lost: see
    /// [`ItemOptions::with_witness`](crate::ItemOptions::with_witness). All
    /// operations are applied or none, so one document is enough.
    pub fn with_witness(
        mut self,
        id: impl Into<String>,
        pointer: impl Into<String>,
        value: impl Into<serde_json::Value>,
    ) -> Self {
        self.witness = Some(witness(id, pointer, value));
        self
    }

    /// Sets whether the batch is sent again when its response was lost: see [`Repeat`]. By
    /// default the batch is sent again in two cases: a create or an etag makes the service
    /// refuse it the second time, or it changes nothing more the second time.
    pub fn with_repeat(mut self, repeat: Repeat) -> Self {
        self.repeat_policy = repeat;
        self
    }

    /// Sets timeouts, regions and the other options of the request.
    pub fn with_options(mut self, options: OperationOptions) -> Self {
        self.options = options;
        self
    }

    /// The number of operations.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether the batch has no operations. An empty batch cannot be sent.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Whether the batch has [`Batch::OPERATIONS_MAX`] operations.
    pub fn is_full(&self) -> bool {
        self.len() == Batch::OPERATIONS_MAX
    }

    /// The size of the request body in bytes.
    pub fn bytes(&self) -> usize {
        self.body.len() + 1
    }

    /// Whether the batch may be sent again when its response is lost. One guarded
    /// operation guards the whole batch, because all operations are applied or none.
    fn idempotency(&self) -> Idempotency {
        match (self.is_guarded || guard::has_lasting_document(self), self.is_idempotent) {
            (true, _) => Idempotency::Conditional,
            (false, true) => Idempotency::Idempotent,
            (false, false) => Idempotency::NotIdempotent,
        }
    }

    fn push_patch(&mut self, id: &str, patch: &Patch, etag: Option<&Etag>) -> Result<&mut Self, Error> {
        patch.check_not_empty()?;
        let idempotency = patch.idempotency();
        self.push(OperationKind::Patch, Some(id), Some(&patch.as_body()), etag)?;
        self.is_idempotent &= idempotency == Idempotency::Idempotent;
        Ok(self)
    }

    /// Adds an operation. When it is refused, the batch stays as it was.
    fn push<B: Serialize + ?Sized>(
        &mut self,
        kind: OperationKind,
        id: Option<&str>,
        body: Option<&B>,
        etag: Option<&Etag>,
    ) -> Result<&mut Self, Error> {
        if self.is_full() {
            let max = Batch::OPERATIONS_MAX;
            return Err(Error::input(format!(
                "a batch holds at most {max} operations: put the next operations into another batch"
            )));
        }
        if id.is_some_and(str::is_empty) {
            return Err(Error::input("the id of a document is empty"));
        }
        let length_before = self.body.len();
        let operation = WireOperation { operation_type: kind, id, if_match: etag, resource_body: body };
        if let Err(error) = self.append_to_body::<B>(&operation) {
            self.body.truncate(length_before);
            return Err(error);
        }
        self.operations.push(OperationName { kind, id: id.map(str::to_owned) });
        if etag.is_some_and(|etag| !etag.is_any()) {
            let is_upsert = kind == OperationKind::Upsert;
            self.is_guarded |= !is_upsert;
            self.has_upsert_with_etag |= is_upsert;
        }
        // When a batch is sent again, the service refuses a create, because its document
        // exists, and a deletion, because its document does not exist any more.
        self.is_idempotent &= matches!(
            kind,
            OperationKind::Upsert | OperationKind::Replace | OperationKind::Read | OperationKind::Patch
        );
        Ok(self)
    }

    /// Appends an operation to the body. `B` is the type of the operation's document; an
    /// error names it. After an error the caller must remove what was appended.
    fn append_to_body<B: ?Sized>(&mut self, operation: &impl Serialize) -> Result<(), Error> {
        self.body.push(if self.is_empty() { b'[' } else { b',' });
        serde_json::to_writer(&mut self.body, operation).map_err(|error| encode_error::<B>(&error))?;
        if self.bytes() > Batch::BYTES_MAX {
            let (bytes, max) = (self.bytes(), Batch::BYTES_MAX);
            return Err(Error::input(format!(
                "with this operation the batch has {bytes} bytes; the service accepts {max}. Send it in two batches"
            )));
        }
        Ok(())
    }
}

impl OperationKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            OperationKind::Create => "create",
            OperationKind::Upsert => "upsert",
            OperationKind::Replace => "replace",
            OperationKind::Read => "read",
            OperationKind::Delete => "delete",
            OperationKind::Patch => "patch",
        }
    }
}

impl std::fmt::Display for OperationName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.id {
            Some(id) => write!(f, "{} `{id}`", self.kind.name()),
            None => f.write_str(self.kind.name()),
        }
    }
}
