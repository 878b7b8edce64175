//! Partial updates: up to ten operations on one document, applied in order,
//! all or none.
//!
//! A [`Patch`] cannot hold more than the service takes, and it knows whether
//! sending it twice is the same as once: that is what decides what becomes of
//! it when an answer is lost.

#[cfg(test)]
mod tests;

use bytes::Bytes;
use perihelion_driver::operation::Repeat;
use perihelion_wire::patch::OPERATIONS_MAX;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::Error;
use crate::answer::{encode, unwritable};

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

/// What is added to a number: an integer or a float.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Amount {
    /// Keeps an integer an integer.
    Integer(i64),
    /// Makes the sum a float.
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
    /// How many operations a patch can hold.
    pub const OPERATIONS_MAX: usize = OPERATIONS_MAX;

    /// A patch without operations. It needs at least one to be sent.
    pub fn new() -> Self {
        Patch::default()
    }

    /// Sets a member, whether it exists or not; an array's element must exist,
    /// or be the one after its last.
    pub fn set(self, path: &str, value: impl Serialize) -> Result<Self, Error> {
        let (path, value) = (pointer(path)?, raw(value)?);
        self.push(PatchOperation::Set { path, value })
    }

    /// Adds a member, or inserts an element before the one at that index;
    /// `/-` appends to an array.
    pub fn add(self, path: &str, value: impl Serialize) -> Result<Self, Error> {
        let (path, value) = (pointer(path)?, raw(value)?);
        self.push(PatchOperation::Add { path, value })
    }

    /// Replaces what must be there.
    pub fn replace(self, path: &str, value: impl Serialize) -> Result<Self, Error> {
        let (path, value) = (pointer(path)?, raw(value)?);
        self.push(PatchOperation::Replace { path, value })
    }

    /// Removes what must be there.
    pub fn remove(self, path: &str) -> Result<Self, Error> {
        let path = pointer(path)?;
        self.push(PatchOperation::Remove { path })
    }

    /// Adds to a number, or makes one.
    pub fn increment(self, path: &str, by: impl Into<Amount>) -> Result<Self, Error> {
        let (path, value) = (pointer(path)?, by.into());
        if matches!(value, Amount::Float(amount) if !amount.is_finite()) {
            return Err(Error::input(format!("{path} cannot be incremented by what JSON cannot hold")));
        }
        self.push(PatchOperation::Incr { path, value })
    }

    /// Moves what must be there.
    pub fn move_to(self, from: &str, path: &str) -> Result<Self, Error> {
        let (from, path) = (pointer(from)?, pointer(path)?);
        self.push(PatchOperation::Move { from, path })
    }

    /// Only if the document answers this predicate, `FROM c WHERE ...`;
    /// otherwise it fails with 412.
    pub fn with_condition(mut self, predicate: impl Into<String>) -> Self {
        self.condition = Some(predicate.into());
        self
    }

    /// How many operations it has.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether it has none, and so cannot be sent.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// What becomes of it when an answer is lost. Setting a place to a value
    /// twice is the same as once; everything else depends on what it finds.
    pub(crate) fn repeat(&self) -> Repeat {
        let is_same_twice = |operation: &PatchOperation| match operation {
            PatchOperation::Set { path, .. } | PatchOperation::Replace { path, .. } => !path.ends_with("/-"),
            PatchOperation::Add { .. }
            | PatchOperation::Remove { .. }
            | PatchOperation::Incr { .. }
            | PatchOperation::Move { .. } => false,
        };
        match (self.operations.iter().all(is_same_twice), &self.condition) {
            (true, None) => Repeat::Freely,
            // Twice does no harm, but the condition may speak of what the patch
            // itself changes: the refusal of the second does not tell.
            (true, Some(_)) => Repeat::Guarded,
            (false, _) => Repeat::Never,
        }
    }

    /// The body of a request.
    pub(crate) fn body(&self) -> Result<Bytes, Error> {
        self.check()?;
        encode(&self.as_body())
    }

    /// The same as part of another body.
    pub(crate) fn as_body(&self) -> impl Serialize + '_ {
        #[derive(Serialize)]
        struct Body<'a> {
            operations: &'a [PatchOperation],
            #[serde(skip_serializing_if = "Option::is_none")]
            condition: Option<&'a str>,
        }
        Body { operations: &self.operations, condition: self.condition.as_deref() }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
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

fn pointer(path: &str) -> Result<String, Error> {
    if path.len() > 1 && path.starts_with('/') {
        Ok(path.to_owned())
    } else {
        Err(Error::input(format!("`{path}` is not a path into a document: write it as /member or /list/0")))
    }
}

fn raw<T: Serialize>(value: T) -> Result<Box<RawValue>, Error> {
    serde_json::value::to_raw_value(&value).map_err(|error| unwritable::<T>(&error))
}
