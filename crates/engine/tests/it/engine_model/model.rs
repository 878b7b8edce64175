//! The model: a map of documents, and for each operation the status that the
//! engine must return.
//!
//! The model makes no LSNs and no etags. It takes both from the outcomes of the
//! engine and compares later outcomes with them.

use std::collections::BTreeMap;

use perihelion_engine::{
    Batch, BatchOperation, BatchScope, Container, ItemOperation, ItemOutcome, NewBody, NewPatch,
    Precondition, Refusal,
};
use perihelion_model::json::{self, Number, Object, Value, object};
use perihelion_model::partition_key::{KeyValue, PartitionKey};
use perihelion_wire::patch::Patch;
use perihelion_wire::status;

/// The key of a document: its partition key and its id.
pub(crate) type Key = (String, String);

/// A document that exists.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Document {
    /// The body without system members.
    pub(crate) body: Object,
    /// The etag from the outcome of the last write; `None` before that outcome is known.
    pub(crate) etag: Option<String>,
    /// The LSN of the last write; 0 before its outcome is known.
    pub(crate) lsn: u64,
}

/// One item of the full-fidelity feed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    /// `create`, `replace` or `delete`.
    pub(crate) kind: &'static str,
    pub(crate) key: Key,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) documents: BTreeMap<Key, Document>,
    pub(crate) events: Vec<Event>,
    /// Whether `/u` must differ within a partition.
    pub(crate) has_unique_key: bool,
}

/// One operation of the test.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) verb: Verb,
    pub(crate) key: Key,
    pub(crate) precondition: Precondition,
}

/// The verb of an operation. The condition of a patch is the value that the member `b` of
/// the document must have.
#[derive(Clone, Debug)]
pub(crate) enum Verb {
    Create(Object),
    Upsert(Object),
    Replace(Object),
    Patch { steps: Vec<Step>, condition: Option<i64> },
    Delete,
    Read,
}

/// One step of a patch, on a member of the document itself.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) op: &'static str,
    pub(crate) member: &'static str,
    pub(crate) value: Value,
}

/// The status of an operation that was undone, or not tried, because another operation
/// failed.
const FAILED_DEPENDENCY: u16 = status::FAILED_DEPENDENCY.code;

impl Model {
    /// Performs one operation. Returns its status.
    pub(crate) fn perform(&mut self, operation: &Operation) -> u16 {
        let Operation { verb, key, .. } = operation;
        let old = self.documents.get(key);
        let refusal_status = match (verb, old) {
            (Verb::Create(_), Some(_)) => Some(409),
            (Verb::Create(_), None) | (Verb::Upsert(_), None) => None,
            (_, None) => Some(404),
            (Verb::Read, Some(old)) => return read_status(&operation.precondition, old),
            (_, Some(old)) => (!may_write(&operation.precondition, old)).then_some(412),
        };
        if let Some(status) = refusal_status {
            return status;
        }
        let is_new = old.is_none();
        let body = match verb {
            Verb::Create(body) | Verb::Upsert(body) | Verb::Replace(body) => body.clone(),
            Verb::Patch { steps, condition } => match body_after_patch(old, steps, *condition) {
                Ok(body) => body,
                Err(status) => return status,
            },
            // A read has returned above.
            Verb::Delete | Verb::Read => {
                self.documents.remove(key);
                self.events.push(Event { kind: "delete", key: key.clone() });
                return 204;
            }
        };
        if self.has_unique_key && self.has_conflicting_unique_value(key, &body) {
            return 409;
        }
        self.documents.insert(key.clone(), Document { body, etag: None, lsn: 0 });
        let kind = if is_new { "create" } else { "replace" };
        self.events.push(Event { kind, key: key.clone() });
        if is_new { 201 } else { 200 }
    }

    /// Performs a batch. Returns the status of each operation. `continues` says whether a
    /// batch that is not atomic continues after a failure.
    pub(crate) fn perform_batch(
        &mut self,
        operations: &[Operation],
        is_atomic: bool,
        continues: bool,
    ) -> Vec<u16> {
        let before = self.clone();
        let mut statuses = Vec::new();
        let mut has_stopped = false;
        for operation in operations {
            let status = if has_stopped { FAILED_DEPENDENCY } else { self.perform(operation) };
            has_stopped |= status >= 400 && (is_atomic || !continues);
            statuses.push(status);
        }
        if is_atomic && has_stopped {
            *self = before;
            for status in statuses.iter_mut().filter(|status| **status < 400) {
                *status = FAILED_DEPENDENCY;
            }
        }
        statuses
    }

    /// Stores the etag and LSN of an outcome with the document that was written. Does nothing
    /// after a delete.
    pub(crate) fn set_etag_and_lsn(&mut self, key: &Key, outcome: &ItemOutcome) {
        if let Some(document) = self.documents.get_mut(key) {
            document.etag.clone_from(&outcome.etag);
            document.lsn = outcome.position.lsn;
        }
    }

    /// Whether another document of the partition has this unique value; a missing
    /// value counts as null.
    fn has_conflicting_unique_value(&self, key: &Key, body: &Object) -> bool {
        let value = |body: &Object| body.get("u").cloned().unwrap_or(Value::Null);
        self.documents.iter().any(|(other, document)| {
            other.0 == key.0 && other.1 != key.1 && value(&document.body) == value(body)
        })
    }
}

fn matches_etag(condition: &str, document: &Document) -> bool {
    condition == "*" || document.etag.as_deref() == Some(condition)
}

fn may_write(precondition: &Precondition, old: &Document) -> bool {
    precondition.if_match.as_deref().is_none_or(|condition| matches_etag(condition, old))
        && !precondition.if_none_match.as_deref().is_some_and(|condition| matches_etag(condition, old))
}

fn read_status(precondition: &Precondition, document: &Document) -> u16 {
    if precondition.if_match.as_deref().is_some_and(|condition| !matches_etag(condition, document)) {
        return 412;
    }
    let is_unchanged =
        precondition.if_none_match.as_deref().is_some_and(|condition| matches_etag(condition, document));
    if is_unchanged { 304 } else { 200 }
}

/// The body of a document after a patch, or the status of the refusal.
fn body_after_patch(old: Option<&Document>, steps: &[Step], condition: Option<i64>) -> Result<Object, u16> {
    let mut body = old.ok_or(404u16)?.body.clone();
    if let Some(wanted) = condition
        && body.get("b").and_then(Value::as_i64) != Some(wanted)
    {
        return Err(412);
    }
    for Step { op, member, value } in steps {
        match (*op, body.get(member)) {
            ("add" | "set", _) | ("replace", Some(_)) | ("incr", None) => body.set(*member, value.clone()),
            ("remove", Some(_)) => drop(body.remove(member)),
            ("incr", Some(Value::Number(number))) => {
                let sum = add(*number, value.as_i64().unwrap_or_default());
                body.set(*member, Value::Number(sum));
            }
            _ => return Err(400),
        }
    }
    Ok(body)
}

/// Adds to a number. The integers that tests increment are far from the limits of an i64, and the
/// doubles are small, so the sum neither overflows nor becomes infinite.
fn add(number: Number, by: i64) -> Number {
    match number {
        Number::Int(value) => Number::Int(value + by),
        other => Number::from_f64(other.as_f64() + by as f64).expect("a finite sum"),
    }
}

impl Operation {
    /// The operation as a request to the engine.
    pub(crate) fn to_engine(&self, container: &Container) -> Result<ItemOperation, Refusal> {
        let id = self.key.1.clone();
        let checked = |body: &Object| NewBody::new(body.clone(), container);
        Ok(match &self.verb {
            Verb::Create(body) => ItemOperation::Create { body: checked(body)? },
            Verb::Upsert(body) => ItemOperation::Upsert { body: checked(body)? },
            Verb::Replace(body) => ItemOperation::Replace { id, body: checked(body)? },
            Verb::Patch { steps, condition } => {
                ItemOperation::Patch { id, patch: NewPatch::new(to_patch(steps, *condition), 0) }
            }
            Verb::Delete => ItemOperation::Delete { id },
            Verb::Read => ItemOperation::Read { id },
        })
    }

    pub(crate) fn is_write(&self) -> bool {
        !matches!(self.verb, Verb::Read)
    }
}

fn to_patch(steps: &[Step], condition: Option<i64>) -> Patch {
    let operations = steps.iter().map(|step| {
        let mut operation = object([("op", step.op.into()), ("path", format!("/{}", step.member).into())]);
        if let (Value::Object(operation), true) = (&mut operation, step.op != "remove") {
            operation.set("value", step.value.clone());
        }
        operation
    });
    let mut body = object([("operations", Value::Array(operations.collect()))]);
    if let (Value::Object(body), Some(wanted)) = (&mut body, condition) {
        body.set("condition", format!("from c where c.b = {wanted}").into());
    }
    Patch::parse(&body).expect("a patch")
}

/// A batch as a request to the engine: of one partition, or of a range, where each
/// operation has its own key.
pub(crate) fn to_batch(
    container: &Container,
    scope: BatchScope,
    operations: &[Operation],
    is_atomic: bool,
    continues: bool,
) -> Batch {
    let has_own_keys = matches!(scope, BatchScope::Range(_));
    let operations = operations.iter().map(|operation| BatchOperation {
        operation: operation.to_engine(container),
        precondition: operation.precondition.clone(),
        partition_key: has_own_keys.then(|| partition_key(&operation.key.0)),
    });
    Batch {
        scope,
        operations: operations.collect(),
        is_atomic,
        continues_on_error: continues,
        returns_written: true,
    }
}

pub(crate) fn partition_key(value: &str) -> PartitionKey {
    PartitionKey { values: vec![KeyValue::String(value.to_owned())] }
}

/// The members of a stored document, without system members.
pub(crate) fn own_members(text: &[u8]) -> Result<Object, String> {
    match json::parse(text) {
        Ok(Value::Object(body)) => {
            let mut members = body.into_members();
            members.retain(|(name, _)| !name.starts_with('_'));
            Ok(Object::from_members(members))
        }
        _ => Err(format!("not a document: {}", String::from_utf8_lossy(text))),
    }
}
