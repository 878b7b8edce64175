//! The request of a distributed transaction: parsing both of its forms.

use std::fmt;

use perihelion_model::json::{self, Object, Value};
use perihelion_model::partition_key::PartitionKey;

use super::{
    BODY_BYTES_MAX, OPERATIONS_MAX, READ_OPERATION_TYPE, TransactionKind, TransactionVerb,
    WRITE_OPERATION_TYPE,
};
use crate::status::{self, Status};

/// The longest id of a document, in bytes. A longer id cannot exist.
const ID_BYTES_MAX: usize = 1023;

/// The limits of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionLimits {
    /// The most operations.
    pub operations_max: usize,
    /// The most bytes of the body.
    pub body_bytes_max: usize,
}

impl Default for TransactionLimits {
    fn default() -> Self {
        TransactionLimits { operations_max: OPERATIONS_MAX, body_bytes_max: BODY_BYTES_MAX }
    }
}

/// A request that is not a valid transaction: the status of the answer, and the reason in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadTransaction {
    /// The status of the answer.
    pub status: Status,
    /// What is wrong, and what to send instead.
    pub reason: String,
}

impl fmt::Display for BadTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status, self.reason)
    }
}

impl std::error::Error for BadTransaction {}

/// A parsed transaction. It has at least one operation, and all operations are of its kind.
#[derive(Debug, Clone, PartialEq)]
pub struct TransactionRequest {
    /// Whether the transaction reads or writes.
    pub kind: TransactionKind,
    /// The operations, in order.
    pub operations: Vec<TransactionOperation>,
}

/// The container of an operation, as the request names it. The database and the container each
/// have a name, a `_rid`, or both.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContainerReference {
    /// The name of the database.
    pub database_name: Option<String>,
    /// The `_rid` of the database.
    pub database_rid: Option<String>,
    /// The name of the container.
    pub container_name: Option<String>,
    /// The `_rid` of the container.
    pub container_rid: Option<String>,
}

/// One operation of a transaction.
#[derive(Debug, Clone, PartialEq)]
pub struct TransactionOperation {
    /// The verb.
    pub verb: TransactionVerb,
    /// The container.
    pub container: ContainerReference,
    /// The partition key.
    pub partition_key: PartitionKey,
    /// The id of the document.
    pub id: String,
    /// The document, or the patch. `None` for a delete and a read.
    pub body: Option<Value>,
    /// The etag that the document must have.
    pub if_match: Option<String>,
    /// The etag that the document must not have.
    pub if_none_match: Option<String>,
    /// The session token, as sent.
    pub session_token: Option<String>,
}

/// The levels around a document: the object of its operation, the list of operations, and the object
/// of the whole body.
const LEVELS_AROUND_DOCUMENT: usize = 3;

impl TransactionRequest {
    /// Parses a request. `operation_type` is the header `x-ms-cosmos-operation-type`. The header
    /// decides the kind, else the `operationType` of the body, else the first operation.
    pub fn parse(
        operation_type: Option<&str>,
        body: &[u8],
        limits: TransactionLimits,
    ) -> Result<Self, BadTransaction> {
        if body.len() > limits.body_bytes_max {
            return Err(bad(
                status::TOO_LARGE,
                format!(
                    "The body has {} bytes; a transaction may have at most {}.",
                    body.len(),
                    limits.body_bytes_max
                ),
            ));
        }
        let value = json::parse_envelope(body, LEVELS_AROUND_DOCUMENT)
            .map_err(|error| not_parsed(format!("The body is not JSON: {error}.")))?;
        let Value::Object(mut envelope) = value else {
            return Err(not_parsed("The body must be a JSON object with the member 'operations'."));
        };
        let Some(Value::Array(list)) = envelope.remove("operations") else {
            return Err(not_parsed("The member 'operations' must be an array."));
        };
        if list.is_empty() {
            return Err(not_parsed("The transaction has no operations."));
        }
        if list.len() > limits.operations_max {
            return Err(bad(
                status::TRANSACTION_TOO_MANY_OPERATIONS,
                format!(
                    "The transaction has {} operations; it may have at most {}.",
                    list.len(),
                    limits.operations_max
                ),
            ));
        }
        let in_body = text(&envelope, &["operationType"], "the transaction")?;
        let operations = list
            .into_iter()
            .enumerate()
            .map(|(index, value)| TransactionOperation::parse(index, value))
            .collect::<Result<Vec<_>, _>>()?;
        let kind = kind(operation_type, in_body.as_deref(), operations[0].verb)?;
        match operations.iter().position(|operation| operation.verb.kind() != kind) {
            None => Ok(TransactionRequest { kind, operations }),
            Some(index) => Err(invalid(format!(
                "Operation {index} ({}) cannot be in a {} transaction. Send reads and writes as two transactions.",
                operations[index].verb.name(),
                if kind == TransactionKind::Read { "read" } else { "write" }
            ))),
        }
    }
}

/// The kind of a transaction: by the header, then by the body, then by the first operation.
fn kind(
    header: Option<&str>,
    in_body: Option<&str>,
    first: TransactionVerb,
) -> Result<TransactionKind, BadTransaction> {
    match header.or(in_body) {
        None => Ok(first.kind()),
        Some(READ_OPERATION_TYPE) => Ok(TransactionKind::Read),
        Some(WRITE_OPERATION_TYPE | "Write") => Ok(TransactionKind::Write),
        Some(other) => Err(invalid(format!(
            "The operation type '{}' is not one of {WRITE_OPERATION_TYPE}, Write, {READ_OPERATION_TYPE}.",
            shortened(other)
        ))),
    }
}

impl TransactionOperation {
    fn parse(index: usize, value: Value) -> Result<Self, BadTransaction> {
        let place = format!("operation {index}");
        let Value::Object(mut members) = value else {
            return Err(not_parsed(format!("The {place} must be a JSON object.")));
        };
        let verb = parse_verb(&members, &place)?;
        check_index_resource_and_triggers(&members, index, &place)?;
        let container = parse_container(&members, &place)?;
        let partition_key = match members.get("partitionKey") {
            Some(Value::String(key)) => PartitionKey::from_header(key),
            Some(key) => PartitionKey::from_json(key),
            None => None,
        };
        let partition_key = partition_key.filter(|key| !key.values.is_empty()).ok_or_else(|| {
            not_parsed(format!(
                "The {place} needs a 'partitionKey': a JSON array of scalars, or a string with such an array."
            ))
        })?;
        let (id, if_match, if_none_match, session_token) = (
            text(&members, &["id"], &place)?,
            text(&members, &["ifMatch", "ifMatchEtag"], &place)?,
            text(&members, &["ifNoneMatch", "ifNoneMatchEtag"], &place)?,
            text(&members, &["sessionToken"], &place)?,
        );
        let body = members.remove("resourceBody").filter(|body| *body != Value::Null);
        let id = check_body_and_id(verb, id, body.as_ref(), &place)?;
        Ok(TransactionOperation {
            verb,
            container,
            partition_key,
            id,
            body,
            if_match,
            if_none_match,
            session_token,
        })
    }
}

fn parse_verb(members: &Object, place: &str) -> Result<TransactionVerb, BadTransaction> {
    let name = text(members, &["operationType"], place)?
        .ok_or_else(|| not_parsed(format!("The {place} needs an 'operationType'.")))?;
    TransactionVerb::parse(&name).ok_or_else(|| {
        invalid(format!(
            "The operationType '{}' of {place} is not one of Create, Replace, Upsert, Delete, Patch, Read.",
            shortened(&name)
        ))
    })
}

/// Checks the members that only repeat known facts: the index of the operation, and that its
/// resource is a document. Triggers are refused, because they are not run.
fn check_index_resource_and_triggers(
    members: &Object,
    index: usize,
    place: &str,
) -> Result<(), BadTransaction> {
    match members.get("index") {
        None | Some(Value::Null) => {}
        Some(value) if value.as_i64() == i64::try_from(index).ok() => {}
        Some(_) => return Err(invalid(format!("The 'index' of {place} must be its place in the list."))),
    }
    if text(members, &["resourceType"], place)?.is_some_and(|kind| kind != "Document") {
        return Err(invalid(format!(
            "The 'resourceType' of {place} must be Document: a transaction cannot run scripts or change containers."
        )));
    }
    let triggers = ["preTriggers", "postTriggers", "preTriggerInclude", "postTriggerInclude"];
    match triggers.iter().find(|name| members.get(name).is_some_and(|value| *value != Value::Null)) {
        None => Ok(()),
        Some(name) => Err(invalid(format!("The {place} has '{name}', but a transaction runs no triggers."))),
    }
}

fn parse_container(members: &Object, place: &str) -> Result<ContainerReference, BadTransaction> {
    // A client that has not resolved a `_rid` leaves it out, or sends an empty text.
    let rid = |names: &[&str]| text(members, names, place).map(|rid| rid.filter(|rid| !rid.is_empty()));
    let container = ContainerReference {
        database_name: text(members, &["databaseName"], place)?,
        database_rid: rid(&["databaseResourceId", "databaseRid"])?,
        container_name: text(members, &["collectionName"], place)?,
        container_rid: rid(&["collectionResourceId", "containerRid"])?,
    };
    let has_database = container.database_name.is_some() || container.database_rid.is_some();
    let has_container = container.container_name.is_some() || container.container_rid.is_some();
    if has_database && has_container {
        return Ok(container);
    }
    Err(not_parsed(format!(
        "The {place} must name its database and its container: 'databaseName' and 'collectionName', or 'databaseRid' and 'containerRid'."
    )))
}

/// Checks that a body is there exactly when the verb needs one, and returns the id. The body of
/// a create or upsert may hold the only copy of the id.
fn check_body_and_id(
    verb: TransactionVerb,
    id: Option<String>,
    body: Option<&Value>,
    place: &str,
) -> Result<String, BadTransaction> {
    let (needs_body, is_document) = match verb {
        TransactionVerb::Create | TransactionVerb::Replace | TransactionVerb::Upsert => (true, true),
        TransactionVerb::Patch => (true, false),
        TransactionVerb::Delete | TransactionVerb::Read => (false, false),
    };
    match body {
        Some(_) if !needs_body => {
            return Err(invalid(format!("The {place} ({}) cannot have a 'resourceBody'.", verb.name())));
        }
        Some(Value::Object(_)) => {}
        // The JavaScript SDK sends a patch as a bare array.
        Some(Value::Array(_)) if !is_document => {}
        None if !needs_body => {}
        Some(_) | None => {
            return Err(not_parsed(format!(
                "The {place} ({}) needs a 'resourceBody': a JSON object.",
                verb.name()
            )));
        }
    }
    let in_body = body.filter(|_| is_document).and_then(|body| body.get("id")).and_then(Value::as_str);
    let id = match (id, in_body) {
        (Some(id), Some(in_body)) if id != in_body => {
            return Err(invalid(format!("The 'id' of {place} differs from the id in its 'resourceBody'.")));
        }
        (Some(id), _) => id,
        (None, Some(in_body)) if verb != TransactionVerb::Replace => in_body.to_owned(),
        (None, _) => return Err(not_parsed(format!("The {place} needs an 'id'."))),
    };
    if id.is_empty() || id.len() > ID_BYTES_MAX {
        return Err(invalid(format!("The 'id' of {place} must have 1 to {ID_BYTES_MAX} bytes.")));
    }
    Ok(id)
}

/// The text of the first of these members that exists. If several exist, their texts must be equal.
fn text(members: &Object, names: &[&str], place: &str) -> Result<Option<String>, BadTransaction> {
    let mut found: Option<&str> = None;
    for name in names {
        match (members.get(name), found) {
            (None | Some(Value::Null), _) => {}
            (Some(Value::String(text)), None) => found = Some(text),
            (Some(Value::String(text)), Some(other)) if text == other => {}
            (Some(Value::String(_)), Some(_)) => {
                return Err(invalid(format!("The members {} of {place} differ.", names.join(" and "))));
            }
            (Some(_), _) => {
                return Err(not_parsed(format!("The member '{name}' of {place} must be a string.")));
            }
        }
    }
    Ok(found.map(str::to_owned))
}

/// The most characters of a client's text in a reason.
const SHOWN_CHARACTERS_MAX: usize = 40;

fn shortened(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(SHOWN_CHARACTERS_MAX).collect()
}

fn bad(status: Status, reason: impl Into<String>) -> BadTransaction {
    BadTransaction { status, reason: reason.into() }
}

fn not_parsed(reason: impl Into<String>) -> BadTransaction {
    bad(status::TRANSACTION_NOT_PARSED, reason)
}

fn invalid(reason: impl Into<String>) -> BadTransaction {
    bad(status::TRANSACTION_INVALID_OPERATION, reason)
}
