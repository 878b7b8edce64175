//! Batches and bulk requests: parses the list of operations and prints the list
//! of results.

use std::sync::Arc;

use perihelion_engine::{
    Batch, BatchOperation, BatchOutcome, BatchScope, Container, ItemOperation, ItemOutcome, Layer, NewBody,
    NewPatch, OPERATIONS_MAX, Precondition, Refusal, Target,
};
use perihelion_model::json::{self, Object, Style, Value};
use perihelion_model::partition_key::PartitionKey;
use perihelion_wire::headers;
use perihelion_wire::patch::Patch;
use perihelion_wire::status::{self, RESPONSE_FULL};

use super::{RegionService, items};
use crate::answer::Answer;
use crate::call::Call;

/// The levels of JSON around a document of a batch: the list of operations, and the object of one
/// operation.
const LEVELS_AROUND_DOCUMENT: usize = 2;

pub(super) async fn serve(service: &RegionService, call: &Call) -> Result<Answer, Refusal> {
    service.account.long_reads.note_short_request();
    let (database, container) = service.container(call)?;
    items::check_size(call)?;
    let scope = call.batch_scope(&container)?;
    let Value::Array(list) = call.envelope(LEVELS_AROUND_DOCUMENT)? else {
        return Err(Refusal::invalid_input());
    };
    let refused_size = match list.len() {
        0 => Some("Batch request has no operations."),
        size if size > OPERATIONS_MAX => Some("Batch request has more operations than what is supported."),
        _ => None,
    };
    if let Some(message) = refused_size {
        return Err(Refusal::new(status::BAD_REQUEST, Layer::BackendUncharged, message));
    }
    let now = service.engine.clock().seconds();
    let operations = list
        .into_iter()
        .map(|value| parse_operation(value, &container, now))
        .collect::<Result<Vec<_>, Refusal>>()?;
    let is_minimal = call.wants_minimal();
    let omits_body: Vec<bool> = operations
        .iter()
        .map(|operation| is_minimal && !matches!(operation.operation, Ok(ItemOperation::Read { .. })))
        .collect();
    let range = match &scope {
        BatchScope::Partition(key) => Target::resolve(&container, key.clone())?.range.id,
        BatchScope::Range(range) => *range,
    };
    items::check_session(service, call, &container, range)?;
    let batch = Batch {
        scope,
        operations,
        is_atomic: call.flag(&headers::BATCH_ATOMIC),
        continues_on_error: call.flag(&headers::BATCH_CONTINUE_ON_ERROR),
        returns_written: !is_minimal,
    };
    let bucket = service.engine.admit(&container, range)?;
    let (engine, batch_container) = (Arc::clone(&service.engine), Arc::clone(&container));
    let write = async move {
        let outcome = engine.batch(&batch_container, batch).await;
        engine
            .spend(bucket, outcome.as_ref().map_or_else(|refusal| refusal.charge, |outcome| outcome.charge));
        outcome
    };
    let outcome = service.account.long_reads.run_write(bucket.is_some(), write).await?;
    let mut answer = Answer::text(
        if outcome.has_failed() { status::MULTI_STATUS } else { status::OK },
        print_results(&outcome, &omits_body),
    )
    .charged(outcome.charge)
    .at(outcome.position.clone())
    .with_header(headers::ITEM_COUNT, outcome.results.len().to_string())
    .with_content_path(&database, &container)
    .with_usage(outcome.usage);
    if let Some(sub_status) = outcome.sub_status() {
        answer = answer.with_header(headers::SUBSTATUS, sub_status.to_string());
    }
    Ok(answer)
}

fn parse_operation(value: Value, container: &Container, now: u64) -> Result<BatchOperation, Refusal> {
    let Value::Object(mut operation) = value else { return Err(Refusal::invalid_input()) };
    let text =
        |operation: &Object, name: &str| operation.get(name).and_then(Value::as_str).map(str::to_owned);
    let precondition = Precondition {
        if_match: text(&operation, "ifMatch"),
        if_none_match: text(&operation, "ifNoneMatch"),
    };
    let partition_key = match operation.get("partitionKey") {
        None | Some(Value::Null) => None,
        Some(Value::String(key)) => Some(PartitionKey::from_header(key)),
        Some(key) => Some(PartitionKey::from_json(key)),
    };
    let partition_key = match partition_key {
        Some(None) => return Err(Refusal::bad_request("The partitionKey of a batch operation is invalid.")),
        Some(key) => key,
        None => None,
    };
    let operation_type = text(&operation, "operationType").unwrap_or_default();
    let id = text(&operation, "id");
    let body = operation.remove("resourceBody");
    let operation = parse_by_type(&operation_type, id, body, container, now)?;
    Ok(BatchOperation { operation, precondition, partition_key })
}

/// Parses one operation. The outer refusal is for a malformed request. The inner refusal
/// is for a document that the service would also refuse outside a batch. `now` is in seconds
/// since 1970. The operations of a distributed transaction are parsed here too.
pub(super) fn parse_by_type(
    operation_type: &str,
    id: Option<String>,
    body: Option<Value>,
    container: &Container,
    now: u64,
) -> Result<Result<ItemOperation, Refusal>, Refusal> {
    let required_id = || {
        id.ok_or_else(|| {
            Refusal::bad_request(format!("A batch operation of type {operation_type} needs an id."))
        })
    };
    let new_body = |body: Option<Value>| match body {
        Some(Value::Object(object)) => Ok(NewBody::new(object, container)),
        _ => Err(Refusal::invalid_input()),
    };
    Ok(match operation_type {
        "Create" => new_body(body)?.map(|body| ItemOperation::Create { body }),
        "Upsert" => new_body(body)?.map(|body| ItemOperation::Upsert { body }),
        "Replace" => {
            let id = required_id()?;
            new_body(body)?.map(|body| ItemOperation::Replace { id, body })
        }
        "Delete" => Ok(ItemOperation::Delete { id: required_id()? }),
        "Read" => Ok(ItemOperation::Read { id: required_id()? }),
        "Patch" => {
            let patch = Patch::parse(&body.unwrap_or(Value::Null))
                .map_err(|error| Refusal::bad_request(error.to_string()))?;
            Ok(ItemOperation::Patch { id: required_id()?, patch: NewPatch::new(patch, now) })
        }
        _ => {
            return Err(Refusal::bad_request(format!(
                "The operationType '{operation_type}' of a batch operation is not one of Create, Upsert, Read, Replace, Patch, Delete."
            )));
        }
    })
}

/// Prints `[{"statusCode","requestCharge","eTag","resourceBody"}]`. A failed operation
/// has only the first two of these members. It also has `subStatusCode` if its result did not fit into
/// the response: clients send such an operation again. A success has the other two members if the
/// engine returns an etag and a body. `omits_body` says, for each result, whether `resourceBody` is
/// left out: it is left out of writes when the client asks for minimal answers.
fn print_results(outcome: &BatchOutcome, omits_body: &[bool]) -> String {
    let mut out = String::from("[");
    for (index, (result, omits_body)) in outcome.results.iter().zip(omits_body).enumerate() {
        if index > 0 {
            out.push(',');
        }
        match result {
            Ok(item) => print_success(&mut out, item, *omits_body),
            Err(refusal) => {
                print_head(&mut out, refusal.status, refusal.charge);
                if (refusal.status, refusal.sub_status) == (RESPONSE_FULL.code, Some(RESPONSE_FULL.sub)) {
                    out.push_str(&format!(",\"subStatusCode\":{}", RESPONSE_FULL.sub));
                }
            }
        }
        out.push('}');
    }
    out.push(']');
    out
}

/// Prints the members that every result has, without the closing brace.
fn print_head(out: &mut String, status: u16, charge: f64) {
    out.push_str("{\"statusCode\":");
    out.push_str(&status.to_string());
    out.push_str(",\"requestCharge\":");
    out.push_str(&perihelion_engine::charge::print(charge));
}

fn print_success(out: &mut String, item: &ItemOutcome, omits_body: bool) {
    print_head(out, item.status, item.charge);
    if let Some(etag) = &item.etag {
        out.push_str(",\"eTag\":");
        json::print_into(out, &Value::String(etag.clone()), Style::Point);
    }
    if let Ok(body) = std::str::from_utf8(&item.body)
        && !body.is_empty()
        && !omits_body
    {
        out.push_str(",\"resourceBody\":");
        out.push_str(body);
    }
}
