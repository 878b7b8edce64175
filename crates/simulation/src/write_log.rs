//! The write log: every write of a run that the server applied, in the order in which it
//! applied them. The checkers read it.

use std::collections::HashMap;

use http::Method;
use serde_json::Value;

use crate::network::ServedRequest;
use crate::request_kind::TRANSACTION_PATH;
use crate::stored::ACTIVITY_PREFIX;

/// The kind of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteKind {
    Create,
    Upsert,
    Replace,
    Patch,
    Delete,
}

/// One document that was written.
#[derive(Debug)]
pub struct LoggedWrite {
    /// The name of the process.
    pub sender: String,
    /// When the server answered: milliseconds since the start of the run.
    pub at_ms: u64,
    /// The partition key, as in the header: `["order-1"]`, or `[7]` for a system document.
    pub partition: String,
    pub id: String,
    pub kind: WriteKind,
    /// The new document, or the body of a patch; null for a delete. For a patch of an activity,
    /// the whole activity after the patch.
    pub body: Value,
    /// Whether the write itself has a condition: an etag, or a predicate of a patch.
    pub is_conditional: bool,
    /// The number of the request. All writes of a batch or a transaction have the same number.
    pub request: usize,
    /// Whether the request of this write has a fence: one of its writes has a condition or creates a
    /// document, or the request is a batch that needs a garbage record. The fence protects all
    /// writes of the request, because either all of them are applied or none.
    pub is_fenced: bool,
}

impl LoggedWrite {
    /// The instance that the document belongs to; `None` for a system document, whose
    /// partition key is a number.
    pub fn instance(&self) -> Option<String> {
        let key: Value = serde_json::from_str(&self.partition).ok()?;
        key.get(0)?.as_str().map(str::to_owned)
    }

    /// Whether the write leaves a document, and the body is that document.
    pub fn has_document(&self) -> bool {
        matches!(self.kind, WriteKind::Create | WriteKind::Upsert | WriteKind::Replace)
    }
}

/// All writes of these requests. A request whose body cannot be read is an error.
pub fn writes(served: &[ServedRequest]) -> Result<Vec<LoggedWrite>, String> {
    let mut writes = Vec::new();
    for (number, request) in served.iter().enumerate() {
        // 207 is the status of a batch that was refused: nothing was written.
        let is_applied = (200..300).contains(&request.status) && request.status != 207;
        let is_of_documents = request.target.contains("/docs") || is_transaction(request);
        if !is_applied || !request.kind.is_write(&request.method) || !is_of_documents {
            continue;
        }
        let body = match request.body.is_empty() {
            true => Value::Null,
            false => serde_json::from_slice(&request.body)
                .map_err(|error| format!("the body of {} {}: {error}", request.method, request.target))?,
        };
        let first = writes.len();
        let is_record_needed = body.as_array().is_some_and(|operations| needs_garbage_record(operations));
        match body {
            Value::Object(mut body) if is_transaction(request) => {
                let operations = body.get_mut("operations").map(Value::take).unwrap_or_default();
                let operations = operations.as_array().cloned().unwrap_or_default().into_iter();
                writes.extend(operations.filter_map(|operation| of_transaction(request, number, operation)));
            }
            Value::Array(operations) => {
                writes.extend(
                    operations.into_iter().filter_map(|operation| of_operation(request, number, operation)),
                );
            }
            body => writes.extend(of_request(request, number, body)),
        }
        let is_fence = |write: &LoggedWrite| write.is_conditional || write.kind == WriteKind::Create;
        let is_fenced = is_record_needed || writes[first..].iter().any(is_fence);
        writes[first..].iter_mut().for_each(|write| write.is_fenced = is_fenced);
    }
    apply_patches(&mut writes);
    Ok(writes)
}

/// Whether a batch of several operations reads or deletes a garbage record. Such a batch is refused
/// if the record does not exist, and the id of a record is never used again.
fn needs_garbage_record(operations: &[Value]) -> bool {
    let uses_record = |operation: &Value| {
        let id = operation["id"].as_str().unwrap_or_default();
        matches!(operation["operationType"].as_str(), Some("Read" | "Delete")) && id.starts_with("g:")
    };
    operations.len() > 1 && operations.iter().any(uses_record)
}

/// Replaces the body of each patch of an activity by the activity after the patch.
fn apply_patches(writes: &mut [LoggedWrite]) {
    let mut activities = HashMap::<(String, String), Value>::new();
    for write in writes.iter_mut().filter(|write| write.id.starts_with(ACTIVITY_PREFIX)) {
        let key = (write.partition.clone(), write.id.clone());
        if write.kind == WriteKind::Patch
            && let Some(mut activity) = activities.get(&key).cloned()
        {
            for operation in write.body["operations"].as_array().into_iter().flatten() {
                let name = operation["path"].as_str().unwrap_or_default().trim_start_matches('/');
                match operation["op"] == "remove" {
                    true => drop(activity.as_object_mut().and_then(|activity| activity.remove(name))),
                    false => activity[name] = operation["value"].clone(),
                }
            }
            write.body = activity;
        }
        activities.insert(key, write.body.clone());
    }
}

/// The write of a request that is not a batch.
fn of_request(request: &ServedRequest, number: usize, body: Value) -> Option<LoggedWrite> {
    let id_in_path = request.target.rsplit('/').next().unwrap_or_default();
    let id_in_body = body["id"].as_str().unwrap_or_default().to_owned();
    let (kind, id) = match request.method {
        Method::POST if request.kind.is_upsert => (WriteKind::Upsert, id_in_body),
        Method::POST => (WriteKind::Create, id_in_body),
        Method::PUT => (WriteKind::Replace, id_in_path.to_owned()),
        Method::PATCH => (WriteKind::Patch, id_in_path.to_owned()),
        Method::DELETE => (WriteKind::Delete, id_in_path.to_owned()),
        _ => return None,
    };
    let is_conditional =
        request.kind.has_if_match || body["condition"].is_string() && kind == WriteKind::Patch;
    Some(logged(request, number, kind, id, body, is_conditional))
}

/// Whether the request is a distributed transaction.
pub fn is_transaction(request: &ServedRequest) -> bool {
    request.target == TRANSACTION_PATH
}

/// The write of one operation of a distributed transaction; `None` for a read. Each operation names
/// its own partition.
fn of_transaction(request: &ServedRequest, number: usize, operation: Value) -> Option<LoggedWrite> {
    let partition = operation["partitionKey"].to_string();
    Some(LoggedWrite { partition, ..of_operation(request, number, operation)? })
}

/// The write of one operation of a batch or a transaction; `None` for a read.
fn of_operation(request: &ServedRequest, number: usize, mut operation: Value) -> Option<LoggedWrite> {
    let body = operation.get_mut("resourceBody").map(Value::take).unwrap_or_default();
    let kind = match operation["operationType"].as_str()? {
        "Create" => WriteKind::Create,
        "Upsert" => WriteKind::Upsert,
        "Replace" => WriteKind::Replace,
        "Patch" => WriteKind::Patch,
        "Delete" => WriteKind::Delete,
        _ => return None,
    };
    let id = operation["id"].as_str().or(body["id"].as_str()).unwrap_or_default().to_owned();
    let is_conditional =
        operation["ifMatch"].is_string() || body["condition"].is_string() && kind == WriteKind::Patch;
    Some(logged(request, number, kind, id, body, is_conditional))
}

fn logged(
    request: &ServedRequest,
    number: usize,
    kind: WriteKind,
    id: String,
    body: Value,
    is_conditional: bool,
) -> LoggedWrite {
    LoggedWrite {
        sender: request.sender.clone(),
        at_ms: u64::try_from(request.at_ms).unwrap_or(u64::MAX),
        partition: request.partition.clone(),
        id: percent_decoded(&id),
        kind,
        body,
        is_conditional,
        request: number,
        is_fenced: false,
    }
}

/// The id in a path may have its colons escaped.
fn percent_decoded(id: &str) -> String {
    id.replace("%3A", ":").replace("%3a", ":")
}
