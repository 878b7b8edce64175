//! Partial updates: up to ten operations on one document, applied in order, all
//! or none.
//!
//! A [`Patch`] never holds more operations than the service accepts, and it knows
//! whether it may be sent again when its response is lost.

#[cfg(test)]
mod tests;

use bytes::Bytes;
use perihelion_driver::operation::Idempotency;
use perihelion_wire::patch::OPERATIONS_MAX;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::Error;
use crate::response::{encode, encode_error};

/// A partial update of a document.
///
/// ```
/// # use perihelion_client::{Error, Patch};
/// # fn example() -> Result<(), Error> {
/// let patch = Patch::new()
///     .set("/status", "paid")?
///     .increment("/revision", 1)?
///     .remove("/draft")?
///     .with_condition("FROM c WHERE c.status = 'open'");
/// # Ok(())
/// # }
/// ```
///
/// Paths are JSON pointers: `/lines/0/price`; a `/` or `~` within a name is
/// written `~1` or `~0`.
#[derive(Debug, Clone, Default)]
pub struct Patch {
    operations: Vec<PatchOperation>,
    condition: Option<String>,
}

/// One operation, in the form of the request body.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
enum PatchOperation {
    Add { path: String, value: Box<RawValue> },
    Set { path: String, value: Box<RawValue> },
    Replace { path: String, value: Box<RawValue> },
    Remove { path: String },
    Incr { path: String, value: Amount },
    Move { from: String, path: String },
}

/// The amount of an increment: an integer or a float.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Amount {
    /// An integer. The sum of two integers is an integer.
    Integer(i64),
    /// A float. The sum is a float.
    Float(f64),
}

impl From<i32> for Amount {
    fn from(amount: i32) -> Self {
        Amount::Integer(amount.into())
    }
}

impl From<i64> for Amount {
    fn from(amount: i64) -> Self {
        Amount::Integer(amount)
    }
}

impl From<u32> for Amount {
    fn from(amount: u32) -> Self {
        Amount::Integer(amount.into())
    }
}

impl From<f64> for Amount {
    fn from(amount: f64) -> Self {
        Amount::Float(amount)
    }
}

impl Patch {
    /// The service's limit on operations per patch.
    pub const OPERATIONS_MAX: usize = OPERATIONS_MAX;

    /// An empty patch. A patch needs at least one operation before it can be sent.
    pub fn new() -> Self {
        Patch::default()
    }

    /// Sets a member, whether it exists or not. At an index of an array, sets the
    /// element, which must exist; `/-` appends to the array.
    pub fn set(self, path: &str, value: impl Serialize) -> Result<Self, Error> {
        let (path, value) = (checked_pointer(path)?, to_raw(value)?);
        self.push(PatchOperation::Set { path, value })
    }

    /// Adds a member, or inserts an element before the array element at that index;
    /// `/-` appends to an array.
    pub fn add(self, path: &str, value: impl Serialize) -> Result<Self, Error> {
        let (path, value) = (checked_pointer(path)?, to_raw(value)?);
        self.push(PatchOperation::Add { path, value })
    }

    /// Replaces a member or element that must exist.
    pub fn replace(self, path: &str, value: impl Serialize) -> Result<Self, Error> {
        let (path, value) = (checked_pointer(path)?, to_raw(value)?);
        self.push(PatchOperation::Replace { path, value })
    }

    /// Removes a member or element that must exist.
    pub fn remove(self, path: &str) -> Result<Self, Error> {
        let path = checked_pointer(path)?;
        self.push(PatchOperation::Remove { path })
    }

    /// Adds to a number; creates the member when it does not exist.
    pub fn increment(self, path: &str, by: impl Into<Amount>) -> Result<Self, Error> {
        let (path, value) = (checked_pointer(path)?, by.into());
        if matches!(value, Amount::Float(amount) if !amount.is_finite()) {
            return Err(Error::input(format!("{path} cannot be incremented by a number that is not finite")));
        }
        self.push(PatchOperation::Incr { path, value })
    }

    /// Moves a member or element that must exist.
    pub fn move_to(self, from: &str, path: &str) -> Result<Self, Error> {
        let (from, path) = (checked_pointer(from)?, checked_pointer(path)?);
        self.push(PatchOperation::Move { from, path })
    }

    /// Applies the patch only if the document matches this predicate,
    /// `FROM c WHERE ...`; otherwise the patch fails with 412.
    pub fn with_condition(mut self, predicate: impl Into<String>) -> Self {
        self.condition = Some(predicate.into());
        self
    }

    /// The number of operations.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether the patch has no operations. An empty patch cannot be sent.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Whether the patch may be sent again when its response is lost. Setting or
    /// replacing a member twice has the same effect as doing it once, except at `/-`,
    /// which may append. The effect of the other operations depends on the document,
    /// which the first attempt may have changed.
    pub(crate) fn idempotency(&self) -> Idempotency {
        let is_idempotent = |operation: &PatchOperation| match operation {
            PatchOperation::Set { path, .. } | PatchOperation::Replace { path, .. } => !path.ends_with("/-"),
            PatchOperation::Add { .. }
            | PatchOperation::Remove { .. }
            | PatchOperation::Incr { .. }
            | PatchOperation::Move { .. } => false,
        };
        match (self.operations.iter().all(is_idempotent), &self.condition) {
            (true, None) => Idempotency::Idempotent,
            // Sending the patch twice is harmless. But the patch may change a member
            // that its condition tests. So when a second attempt is refused, the first
            // may have been applied.
            (true, Some(_)) => Idempotency::Conditional,
            (false, _) => Idempotency::NotIdempotent,
        }
    }

    /// The body of a request.
    pub(crate) fn body(&self) -> Result<Bytes, Error> {
        self.check_not_empty()?;
        encode(&self.as_body())
    }

    /// The request body as a value that can be serialized, also into the body of a
    /// batch.
    pub(crate) fn as_body(&self) -> impl Serialize + '_ {
        #[derive(Serialize)]
        struct Body<'a> {
            operations: &'a [PatchOperation],
            #[serde(skip_serializing_if = "Option::is_none")]
            condition: Option<&'a str>,
        }
        Body { operations: &self.operations, condition: self.condition.as_deref() }
    }

    /// Checks that the patch has an operation.
    pub(crate) fn check_not_empty(&self) -> Result<(), Error> {
        if self.is_empty() { Err(Error::input("a patch needs at least one operation")) } else { Ok(()) }
    }

    fn push(mut self, operation: PatchOperation) -> Result<Self, Error> {
        if self.operations.len() == OPERATIONS_MAX {
            return Err(Error::input(format!("a patch holds at most {OPERATIONS_MAX} operations")));
        }
        self.operations.push(operation);
        Ok(self)
    }
}

/// Checks that the path begins with `/` and has more characters. The service checks the
/// rest of the path.
fn checked_pointer(path: &str) -> Result<String, Error> {
    if path.len() > 1 && path.starts_with('/') {
        Ok(path.to_owned())
    } else {
        Err(Error::input(format!("`{path}` is not a path into a document: write it as /member or /list/0")))
    }
}

fn to_raw<T: Serialize>(value: T) -> Result<Box<RawValue>, Error> {
    serde_json::value::to_raw_value(&value).map_err(|error| encode_error::<T>(&error))
}
