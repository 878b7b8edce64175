//! The ranges (physical partitions) that a request is addressed to, for fault rules of
//! one range, for the counters of ranges, and for ranges whose writes another region takes.
//!
//! The headers name the ranges: by a partition key, the id of a range, or effective keys. A partition
//! key takes precedence over the other two, and the id of a range over effective keys. A query or a
//! feed without any of these headers reads all ranges. Operations that the gateway answers
//! by itself, such as query plans and the list of ranges, are addressed to no range.

use perihelion_engine::{Catalog, Container, PartitionRange, RangeId, Refusal};
use perihelion_model::partition_key::EffectiveRange;

use crate::call::Call;
use crate::operation::Operation;

/// The ids of the ranges that the request is addressed to, and of all ranges that these
/// were split from. Empty when the container does not exist, when one of the headers is
/// malformed, and when a header names a range that the container does not have (any
/// more): no range serves such a request. Also empty when the operation is addressed to no range.
pub(super) fn with_ancestors(catalog: &Catalog, call: &Call, operation: Operation) -> Vec<RangeId> {
    let container = call.resource.container().and_then(|(database, name)| catalog.container(database, name));
    let Some(container) = container else { return Vec::new() };
    let ranges = addressed(container, call, operation);
    ranges.into_iter().flat_map(|range| range.parents.iter().copied().chain([range.id])).collect()
}

/// The ids of the ranges that the request is addressed to, without the ranges that these were
/// split from.
pub(super) fn current(container: &Container, call: &Call, operation: Operation) -> Vec<RangeId> {
    addressed(container, call, operation).into_iter().map(|range| range.id).collect()
}

fn addressed<'a>(container: &'a Container, call: &Call, operation: Operation) -> Vec<&'a PartitionRange> {
    let Ok(Some(keys)) = addressed_keys(call, operation, container) else { return Vec::new() };
    container.ranges.iter().filter(|range| range.keys.overlaps(&keys)).collect()
}

/// The effective keys that the request is about; `None` when it is addressed to no range.
fn addressed_keys(
    call: &Call,
    operation: Operation,
    container: &Container,
) -> Result<Option<EffectiveRange>, Refusal> {
    match operation {
        Operation::CreateItem
        | Operation::UpsertItem
        | Operation::ReadItem
        | Operation::ReplaceItem
        | Operation::PatchItem
        | Operation::DeleteItem
        | Operation::DeletePartition
        | Operation::Batch => keys_in_headers(call, container),
        Operation::Query | Operation::ReadFeed | Operation::ChangeFeed => {
            Ok(Some(keys_in_headers(call, container)?.unwrap_or_else(EffectiveRange::whole)))
        }
        // The partitions of a transaction are named in its body, not in the headers.
        Operation::Transaction
        | Operation::QueryPlan
        | Operation::ReadRanges
        | Operation::ReadAccount
        | Operation::Database
        | Operation::Container
        | Operation::Offer
        | Operation::Other => Ok(None),
    }
}

fn keys_in_headers(call: &Call, container: &Container) -> Result<Option<EffectiveRange>, Refusal> {
    if let Some(key) = call.partition_key()? {
        return Ok(Some(container.partition_key.effective_range(&key)));
    }
    if let Some(id) = call.range(container)? {
        return Ok(container.range(id).map(|range| range.keys.clone()));
    }
    call.effective_keys()
}
