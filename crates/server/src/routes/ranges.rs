//! Partition key ranges: a feed with an etag. A client reads the feed until the server
//! answers 304 Not Modified (`docs/cosmos.md`, partition keys and ranges).

use http::Method;
use perihelion_engine::{Container, ContainerState, PartitionRange, Refusal};
use perihelion_model::json::{Value, object};
use perihelion_model::resource_id::ChildKind;
use perihelion_wire::status;

use super::{RegionService, containers, method_not_allowed};
use crate::answer::Answer;
use crate::call::Call;

pub(super) fn serve(service: &RegionService, call: &Call) -> Result<Answer, Refusal> {
    if call.method != Method::GET {
        return Err(method_not_allowed(&call.method));
    }
    let (database, container) = service.container(call)?;
    let position = containers::position_of(service, &container)?;
    let etag = etag(&container);
    if call.precondition().if_none_match.as_deref() == Some(etag.as_str()) {
        return Ok(Answer::empty(status::NOT_MODIFIED).at(position).with_etag(etag));
    }
    let state = service.engine.state(&container)?;
    let ranges: Vec<Value> = container.ranges.iter().map(|range| body(&container, &state, range)).collect();
    Ok(Answer::feed(&container.rid_text, "PartitionKeyRanges", &ranges)
        .at(position)
        .with_etag(etag)
        .with_content_path(&database, &container))
}

/// The etag of the feed. It changes with every split.
fn etag(container: &Container) -> String {
    format!("\"{}\"", container.range_next)
}

fn body(container: &Container, state: &ContainerState, range: &PartitionRange) -> Value {
    // In a `_rid`, range 0 has the number 1.
    let rid = container.rid.child(ChildKind::PartitionKeyRange, u64::from(range.id) + 1);
    object([
        ("_rid", rid.as_str().into()),
        ("id", range.id.to_string().into()),
        ("_etag", container.etag.as_str().into()),
        ("minInclusive", range.keys.min.to_hex().into()),
        ("maxExclusive", range.keys.max.to_hex().into()),
        ("ridPrefix", u64::from(range.id).into()),
        ("_self", format!("{}pkranges/{rid}/", container.self_link).into()),
        ("throughputFraction", throughput_fraction(container.ranges.len())),
        ("status", "online".into()),
        ("parents", Value::Array(range.parents.iter().map(|id| id.to_string().into()).collect())),
        ("ownedArchivalPKRangeIds", Value::Array(Vec::new())),
        ("_ts", container.timestamp.into()),
        ("lsn", state.lsn(range.id).into()),
    ])
}

fn throughput_fraction(ranges: usize) -> Value {
    let share = 1.0 / ranges.max(1) as f64;
    perihelion_model::json::Number::from_f64(share).map_or(Value::Null, Value::Number)
}
