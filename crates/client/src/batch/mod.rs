//! Batches: up to a hundred operations on one logical partition, all or none.
//!
//! A [`Batch`] is its own request body, grown by one operation at a time, so
//! that nothing is copied when it is sent. It cannot hold more operations or
//! bytes than the service takes: what would be too much is refused when it is
//! added, and leaves the batch as it was.

mod execute;
mod results;
#[cfg(test)]
mod tests;

use perihelion_driver::OperationOptions;
use perihelion_driver::operation::{Repeat, Witness};
use perihelion_model::partition_key::PartitionKey;
use serde::Serialize;

pub(crate) use execute::execute;
pub use results::{BatchResult, BatchResults};

use crate::answer::unwritable;
use crate::patch::Patch;
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
/// Later operations see what earlier ones did.
#[derive(Debug, Clone)]
pub struct Batch {
    key: PartitionKey,
    /// `[{...},{...}` without its closing bracket.
    body: Vec<u8>,
    /// What each operation is, for errors that name it.
    entries: Vec<Entry>,
    /// An operation that the service applies at most once makes the whole
    /// batch so.
    is_guarded: bool,
    /// Every operation gives the same when it is done twice.
    is_same_twice: bool,
    witness: Option<Witness>,
    options: OperationOptions,
}

/// One operation, by name.
#[derive(Debug, Clone)]
struct Entry {
    kind: Kind,
    id: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
enum Kind {
    Create,
    Upsert,
    Replace,
    Read,
    Delete,
    Patch,
}

/// One operation on the wire.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireOperation<'a, B> {
    operation_type: Kind,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    if_match: Option<&'a Etag>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_body: Option<B>,
}

/// The body of an operation that has none.
type NoBody = ();

impl Batch {
    /// The service's limit on operations.
    pub const OPERATIONS_MAX: usize = 100;

    /// The service's limit on the whole body, 2 MiB.
    pub const BYTES_MAX: usize = 2 * 1024 * 1024;

    /// A batch on the logical partition of that key, still empty.
    pub fn new(key: impl Into<PartitionKey>) -> Self {
        Batch {
            key: key.into(),
            body: Vec::new(),
            entries: Vec::new(),
            is_guarded: false,
            is_same_twice: true,
            witness: None,
            options: OperationOptions::default(),
        }
    }

    /// Creates a document that must not exist.
    pub fn create<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<&mut Self, Error> {
        self.push(Kind::Create, None, Some(value), None)
    }

    /// Creates a document or replaces it.
    pub fn upsert<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<&mut Self, Error> {
        self.push(Kind::Upsert, None, Some(value), None)
    }

    /// The same, only if the document is absent or still has that etag.
    pub fn upsert_if_match<T: Serialize + ?Sized>(
        &mut self,
        value: &T,
        etag: &Etag,
    ) -> Result<&mut Self, Error> {
        self.push(Kind::Upsert, None, Some(value), Some(etag))
    }

    /// Replaces a document that must exist.
    pub fn replace<T: Serialize + ?Sized>(&mut self, id: &str, value: &T) -> Result<&mut Self, Error> {
        self.push(Kind::Replace, Some(id), Some(value), None)
    }

    /// The same, only if it still has that etag.
    pub fn replace_if_match<T: Serialize + ?Sized>(
        &mut self,
        id: &str,
        value: &T,
        etag: &Etag,
    ) -> Result<&mut Self, Error> {
        self.push(Kind::Replace, Some(id), Some(value), Some(etag))
    }

    /// Reads a document that must exist.
    pub fn read(&mut self, id: &str) -> Result<&mut Self, Error> {
        self.push(Kind::Read, Some(id), None::<&NoBody>, None)
    }

    /// Deletes a document that must exist.
    pub fn delete(&mut self, id: &str) -> Result<&mut Self, Error> {
        self.push(Kind::Delete, Some(id), None::<&NoBody>, None)
    }

    /// The same, only if it still has that etag.
    pub fn delete_if_match(&mut self, id: &str, etag: &Etag) -> Result<&mut Self, Error> {
        self.push(Kind::Delete, Some(id), None::<&NoBody>, Some(etag))
    }

    /// Updates parts of a document that must exist.
    pub fn patch(&mut self, id: &str, patch: &Patch) -> Result<&mut Self, Error> {
        self.push_patch(id, patch, None)
    }

    /// The same, only if it still has that etag.
    pub fn patch_if_match(&mut self, id: &str, patch: &Patch, etag: &Etag) -> Result<&mut Self, Error> {
        self.push_patch(id, patch, Some(etag))
    }

    /// How to find out whether the batch was applied when its answer is lost:
    /// see [`ItemOptions::with_witness`](crate::ItemOptions::with_witness). A
    /// batch is all or none, so one document speaks for all of it.
    pub fn with_witness(
        mut self,
        id: impl Into<String>,
        pointer: impl Into<String>,
        value: impl Into<serde_json::Value>,
    ) -> Self {
        self.witness = Some(Witness { id: id.into(), pointer: pointer.into(), value: value.into() });
        self
    }

    /// Timeouts and regions.
    pub fn with_options(mut self, options: OperationOptions) -> Self {
        self.options = options;
        self
    }

    /// How many operations it has.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it has none, and so cannot be sent.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether it has as many operations as it can.
    pub fn is_full(&self) -> bool {
        self.len() == Batch::OPERATIONS_MAX
    }

    /// How large its body is.
    pub fn bytes(&self) -> usize {
        self.body.len() + 1
    }

    /// What becomes of it when an answer is lost. One guarded operation guards
    /// all, because all are applied or none.
    fn repeat(&self) -> Repeat {
        match (self.is_guarded, self.is_same_twice) {
            (true, _) => Repeat::Guarded,
            (false, true) => Repeat::Freely,
            (false, false) => Repeat::Never,
        }
    }

    fn push_patch(&mut self, id: &str, patch: &Patch, etag: Option<&Etag>) -> Result<&mut Self, Error> {
        patch.check()?;
        let repeat = patch.repeat();
        self.push(Kind::Patch, Some(id), Some(&patch.as_body()), etag)?;
        self.is_same_twice &= repeat == Repeat::Freely;
        Ok(self)
    }

    fn push<B: Serialize + ?Sized>(
        &mut self,
        kind: Kind,
        id: Option<&str>,
        body: Option<&B>,
        etag: Option<&Etag>,
    ) -> Result<&mut Self, Error> {
        if self.is_full() {
            let max = Batch::OPERATIONS_MAX;
            return Err(Error::input(format!("a batch holds at most {max} operations: begin another one")));
        }
        if id.is_some_and(str::is_empty) {
            return Err(Error::input("the id of a document is empty"));
        }
        let before = self.body.len();
        let operation = WireOperation { operation_type: kind, id, if_match: etag, resource_body: body };
        let added = self.write::<B>(&operation);
        if added.is_err() {
            self.body.truncate(before);
            return added.map(|()| self);
        }
        self.entries.push(Entry { kind, id: id.map(str::to_owned) });
        self.is_guarded |= kind == Kind::Create || etag.is_some();
        // A second deletion finds nothing and is refused, and the batch with it.
        self.is_same_twice &= matches!(kind, Kind::Upsert | Kind::Replace | Kind::Read | Kind::Patch);
        Ok(self)
    }

    fn write<B: ?Sized>(&mut self, operation: &impl Serialize) -> Result<(), Error> {
        self.body.push(if self.is_empty() { b'[' } else { b',' });
        serde_json::to_writer(&mut self.body, operation).map_err(|error| unwritable::<B>(&error))?;
        if self.bytes() > Batch::BYTES_MAX {
            let (bytes, max) = (self.bytes(), Batch::BYTES_MAX);
            return Err(Error::input(format!(
                "with this operation the batch would have {bytes} bytes; the service takes {max}"
            )));
        }
        Ok(())
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Create => "create",
            Kind::Upsert => "upsert",
            Kind::Replace => "replace",
            Kind::Read => "read",
            Kind::Delete => "delete",
            Kind::Patch => "patch",
        }
    }
}

impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.id {
            Some(id) => write!(f, "{} `{id}`", self.kind.name()),
            None => f.write_str(self.kind.name()),
        }
    }
}
