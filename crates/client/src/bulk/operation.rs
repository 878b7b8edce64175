//! `BulkOperation`: one operation of a bulk, already written in the form of the request
//! body. It knows whether it may be sent again when its response is lost.

use perihelion_driver::operation::Idempotency;
use perihelion_model::json::{self, Style};
use perihelion_model::partition_key::PartitionKey;
use serde::Serialize;

use crate::batch::OperationKind;
use crate::patch::Patch;
use crate::response::encode_error;
use crate::{Batch, Error, Etag};

/// One operation of a [bulk](crate::Container::bulk): a partition key and what to do.
///
/// The constructors return an error when the operation cannot be sent, for example when the
/// document cannot be written as JSON. A bulk accepts these `Result`s as they are, and reports
/// such an error as the result of that operation.
#[derive(Debug, Clone)]
pub struct BulkOperation {
    key: PartitionKey,
    kind: OperationKind,
    /// `None` for a create and an upsert, which have their id in the document.
    id: Option<String>,
    /// The operation as a JSON object, without its closing brace. An etag can be added.
    body: Vec<u8>,
    /// The length of `body` without an etag.
    bytes_without_etag: usize,
    idempotency: Idempotency,
    is_repeat_allowed: bool,
}

/// One operation in the request body.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireOperation<'a, B> {
    operation_type: OperationKind,
    /// The text of the header of a partition key: `["ada"]`.
    partition_key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_body: Option<B>,
}

/// The type argument of [`WireOperation`] for operations without a body.
type NoBody = ();

impl BulkOperation {
    /// Creates a document that must not exist.
    pub fn create<T: Serialize + ?Sized>(key: impl Into<PartitionKey>, value: &T) -> Result<Self, Error> {
        BulkOperation::with_document(key.into(), OperationKind::Create, None, value)
    }

    /// Creates a document or replaces it.
    pub fn upsert<T: Serialize + ?Sized>(key: impl Into<PartitionKey>, value: &T) -> Result<Self, Error> {
        BulkOperation::with_document(key.into(), OperationKind::Upsert, None, value)
    }

    /// Replaces a document that must exist.
    pub fn replace<T: Serialize + ?Sized>(
        key: impl Into<PartitionKey>,
        id: &str,
        value: &T,
    ) -> Result<Self, Error> {
        BulkOperation::with_document(key.into(), OperationKind::Replace, Some(id), value)
    }

    /// Reads a document that must exist.
    pub fn read(key: impl Into<PartitionKey>, id: &str) -> Result<Self, Error> {
        BulkOperation::new(
            key.into(),
            OperationKind::Read,
            Some(id),
            None::<&NoBody>,
            Idempotency::Idempotent,
        )
    }

    /// Deletes a document that must exist.
    pub fn delete(key: impl Into<PartitionKey>, id: &str) -> Result<Self, Error> {
        BulkOperation::new(
            key.into(),
            OperationKind::Delete,
            Some(id),
            None::<&NoBody>,
            Idempotency::Idempotent,
        )
    }

    /// Updates parts of a document that must exist.
    pub fn patch(key: impl Into<PartitionKey>, id: &str, patch: &Patch) -> Result<Self, Error> {
        patch.check_not_empty()?;
        let idempotency = patch.idempotency();
        BulkOperation::new(key.into(), OperationKind::Patch, Some(id), Some(&patch.as_body()), idempotency)
    }

    /// Applies the operation only if the document still has this etag. Otherwise the
    /// operation is refused with 412. A create ignores the etag. The etag of the last call counts.
    pub fn with_if_match(mut self, etag: &Etag) -> Self {
        self.body.truncate(self.bytes_without_etag);
        self.body.extend_from_slice(b",\"ifMatch\":");
        let text = json::to_text(&json::Value::String(etag.as_str().to_owned()), Style::Point);
        self.body.extend_from_slice(text.as_bytes());
        if self.idempotency == Idempotency::Idempotent && self.kind != OperationKind::Read {
            self.idempotency = Idempotency::Conditional;
        }
        self
    }

    /// Sends the operation again when its response was lost, whatever the operation is.
    ///
    /// Without this call, reads, upserts, replaces, deletes and patches that only set or
    /// replace members are sent again. Creates, writes with an etag, patches with a condition
    /// and other patches are reported as
    /// [ambiguous](crate::BulkError::is_ambiguous), because the service may
    /// apply both attempts. For example, it applies a create twice if the document of the
    /// first attempt was deleted meanwhile. When the service refuses the repeated operation,
    /// the operation is ambiguous too: the first attempt may be the reason for the refusal.
    pub fn repeat_if_lost(mut self) -> Self {
        self.is_repeat_allowed = true;
        self
    }

    /// The partition key.
    pub fn key(&self) -> &PartitionKey {
        &self.key
    }

    /// The size in the request body, in bytes, with the comma that follows.
    pub(super) fn bytes(&self) -> usize {
        self.body.len() + 2
    }

    /// Appends the operation to a request body.
    pub(super) fn append_to(&self, body: &mut Vec<u8>) {
        body.extend_from_slice(&self.body);
        body.push(b'}');
    }

    /// Whether the operation is sent again when its response was lost.
    pub(super) fn may_be_repeated(&self) -> bool {
        self.is_repeat_allowed || self.idempotency == Idempotency::Idempotent
    }

    pub(super) fn is_read(&self) -> bool {
        self.kind == OperationKind::Read
    }

    /// Whether a repeated attempt that finds no document means that the first attempt was
    /// applied.
    pub(super) fn is_plain_delete(&self) -> bool {
        self.kind == OperationKind::Delete && self.idempotency == Idempotency::Idempotent
    }

    /// A short description of the operation, for error messages.
    pub(super) fn name(&self) -> String {
        match &self.id {
            Some(id) => format!("{} `{id}`", self.kind.name()),
            None => self.kind.name().to_owned(),
        }
    }

    fn with_document<T: Serialize + ?Sized>(
        key: PartitionKey,
        kind: OperationKind,
        id: Option<&str>,
        value: &T,
    ) -> Result<Self, Error> {
        let idempotency = match kind {
            OperationKind::Create => Idempotency::Conditional,
            OperationKind::Upsert
            | OperationKind::Replace
            | OperationKind::Read
            | OperationKind::Delete
            | OperationKind::Patch => Idempotency::Idempotent,
        };
        BulkOperation::new(key, kind, id, Some(value), idempotency)
    }

    fn new<B: Serialize + ?Sized>(
        key: PartitionKey,
        kind: OperationKind,
        id: Option<&str>,
        document: Option<&B>,
        idempotency: Idempotency,
    ) -> Result<Self, Error> {
        if id.is_some_and(str::is_empty) {
            return Err(Error::input("the id of a document is empty"));
        }
        let key_text = key.to_header();
        let wire =
            WireOperation { operation_type: kind, partition_key: &key_text, id, resource_body: document };
        let mut body = serde_json::to_vec(&wire).map_err(|error| encode_error::<B>(&error))?;
        if body.len() > Batch::BYTES_MAX {
            return Err(Error::input(format!(
                "the {} has {} bytes, and a request holds at most {}. Make the document smaller",
                kind.name(),
                body.len(),
                Batch::BYTES_MAX
            )));
        }
        body.pop(); // The closing brace, which `append_to` writes.
        Ok(BulkOperation {
            key,
            kind,
            id: id.map(str::to_owned),
            bytes_without_etag: body.len(),
            body,
            idempotency,
            is_repeat_allowed: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_etag_counts() {
        let etag = |text| Etag::parse(text).unwrap();
        let operation = BulkOperation::delete("ada", "1").unwrap();
        let operation = operation.with_if_match(&etag("\"1\"")).with_if_match(&etag("\"2\""));
        let mut body = Vec::new();
        operation.append_to(&mut body);
        let text = String::from_utf8(body).unwrap();
        assert_eq!(text.matches("ifMatch").count(), 1, "{text}");
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["ifMatch"], "\"2\"");
    }
}
