//! Items: the verbs on one document, and the requests to the feed of documents.

use std::sync::Arc;

use http::Method;
use perihelion_engine::{
    Bucket, Container, Engine, ITEM_BYTES_MAX, ItemOperation, ItemOutcome, NewBody, NewPatch, RangeId,
    Refusal, Target, charge,
};
use perihelion_model::partition_key::PartitionKey;
use perihelion_wire::patch::Patch;
use perihelion_wire::{headers, status};

use super::{RegionService, batches, change_feeds, method_not_allowed, queries};
use crate::answer::Answer;
use crate::call::Call;

pub(super) async fn serve_feed(service: &RegionService, call: &Call) -> Result<Answer, Refusal> {
    match call.method {
        Method::GET if call.headers.contains_key(&headers::A_IM) => change_feeds::serve(service, call).await,
        Method::GET => queries::read_feed(service, call).await,
        Method::POST if call.flag(&headers::IS_BATCH_REQUEST) => batches::serve(service, call).await,
        Method::POST if call.flag(&headers::IS_QUERY_PLAN_REQUEST) => queries::plan(service, call),
        Method::POST if call.is_query() => queries::serve(service, call).await,
        Method::POST => create(service, call).await,
        _ => Err(method_not_allowed(&call.method)),
    }
}

async fn create(service: &RegionService, call: &Call) -> Result<Answer, Refusal> {
    service.account.long_reads.note_short_request();
    let (database, container) = service.container(call)?;
    let key = call.required_partition_key()?;
    check_size(call)?;
    let body = NewBody::new(call.object()?, &container)?;
    let operation = if call.flag(&headers::IS_UPSERT) {
        ItemOperation::Upsert { body }
    } else {
        ItemOperation::Create { body }
    };
    let outcome = write(service, &container, key, operation, call).await?;
    Ok(Answer::item(outcome, call.wants_minimal()).with_content_path(&database, &container))
}

pub(super) async fn serve(service: &RegionService, call: &Call, id: &str) -> Result<Answer, Refusal> {
    service.account.long_reads.note_short_request();
    let (database, container) = service.container(call)?;
    let key = call.required_partition_key()?;
    let id = resolve_id(service, call, &container, &key, id)?;
    let operation = match call.method {
        Method::GET | Method::HEAD => return read(service, call, &database, &container, key, &id),
        Method::PUT => {
            check_size(call)?;
            ItemOperation::Replace { id, body: NewBody::new(call.object()?, &container)? }
        }
        Method::PATCH => {
            let body = call.json()?;
            let patch = Patch::parse(&body).map_err(|error| Refusal::bad_request(error.to_string()))?;
            ItemOperation::Patch { id, patch: NewPatch::new(patch, service.engine.clock().seconds()) }
        }
        Method::DELETE => ItemOperation::Delete { id },
        _ => return Err(method_not_allowed(&call.method)),
    };
    let outcome = write(service, &container, key, operation, call).await?;
    Ok(Answer::item(outcome, call.wants_minimal())
        .with_content_path(&database, &container)
        .with_content_location())
}

/// Whether the path of the request consists of `_rid`s.
pub(super) fn is_rid_path(service: &RegionService, call: &Call) -> bool {
    call.resource.database().is_some_and(|database| service.engine.catalog().is_rid_path(database))
}

/// The id of the document that a path addresses. A path of `_rid`s has the document's `_rid`. The
/// operations of the engine take an id, so the id is looked up first. In a path of names the text is
/// an id, even if it is also the `_rid` of a document.
fn resolve_id(
    service: &RegionService,
    call: &Call,
    container: &Arc<Container>,
    key: &PartitionKey,
    id: &str,
) -> Result<String, Refusal> {
    if !is_rid_path(service, call) {
        return Ok(id.to_owned());
    }
    let target = Target::resolve(container, key.clone())?;
    let bucket = service.engine.admit(container, target.range.id)?;
    let found = match container.parse_document_rid(id) {
        Some(rid) => service.engine.id_of(&target, rid)?,
        None => None,
    };
    if let Some(id) = found {
        return Ok(id);
    }
    let is_read = matches!(call.method, Method::GET | Method::HEAD);
    if is_read {
        service.engine.check_session(container, target.range.id, &call.session()?)?;
    }
    let position = service.engine.state(container)?.position(target.range.id);
    let charge = if is_read { charge::NOT_FOUND_READ } else { charge::NOT_FOUND_WRITE };
    service.engine.spend(bucket, charge);
    Err(Refusal::no_such_document().with_charge(charge).at(position))
}

fn read(
    service: &RegionService,
    call: &Call,
    database: &str,
    container: &Arc<Container>,
    key: PartitionKey,
    id: &str,
) -> Result<Answer, Refusal> {
    let target = Target::resolve(container, key)?;
    let bucket = service.engine.admit(container, target.range.id)?;
    let outcome = service.engine.read_item(&target, id, &call.precondition(), &call.session()?);
    spend(&service.engine, bucket, &outcome);
    Ok(Answer::item(outcome?, false).with_content_path(database, container).with_content_location())
}

/// Writes one item. With throttling, refuses the write while no request units are left,
/// and takes the charge of the write afterwards.
async fn write(
    service: &RegionService,
    container: &Arc<Container>,
    key: PartitionKey,
    operation: ItemOperation,
    call: &Call,
) -> Result<ItemOutcome, Refusal> {
    let range = Target::resolve(container, key.clone())?.range.id;
    check_session(service, call, container, range)?;
    let bucket = service.engine.admit(container, range)?;
    let (engine, container, precondition) =
        (Arc::clone(&service.engine), Arc::clone(container), call.precondition());
    let write = async move {
        let outcome = engine.write_item(&container, key, operation, precondition).await;
        spend(&engine, bucket, &outcome);
        outcome
    };
    service.account.long_reads.run_write(bucket.is_some(), write).await
}

/// Takes the charge of an admitted request from its bucket. A refusal has a charge, too.
fn spend(engine: &Engine, bucket: Option<Bucket>, outcome: &Result<ItemOutcome, Refusal>) {
    let charge = outcome.as_ref().map_or_else(|refusal| refusal.charge, |answer| answer.charge);
    engine.spend(bucket, charge);
}

/// When several regions take writes, refuses a write in a region that has not applied all
/// writes that the client's session has seen. Otherwise the older of two writes of one
/// session could win.
pub(super) fn check_session(
    service: &RegionService,
    call: &Call,
    container: &Container,
    range: RangeId,
) -> Result<(), Refusal> {
    if !service.account.regions.topology().is_multi_write {
        return Ok(());
    }
    service.engine.check_session(container, range, &call.session()?)
}

/// Deletes all items of a partition key.
pub(super) async fn delete_partition(service: &RegionService, call: &Call) -> Result<Answer, Refusal> {
    let (database, container) = service.container(call)?;
    if call.method != Method::POST {
        return Err(method_not_allowed(&call.method));
    }
    let key = call.required_partition_key()?;
    service.engine.delete_partition(&container, key).await?;
    let position = super::containers::position_of(service, &container)?;
    Ok(Answer::empty(status::OK).charged(1.0).at(position).with_content_path(&database, &container))
}

/// Refuses the body of a document or a batch that is larger than a document may be.
pub(super) fn check_size(call: &Call) -> Result<(), Refusal> {
    if call.body.len() > ITEM_BYTES_MAX { Err(Refusal::too_large()) } else { Ok(()) }
}
