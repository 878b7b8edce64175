//! The whole plan of a statement on one container: [`plan`](super::plan), with the ranges of
//! effective partition keys that can hold a result.
//!
//! Server and client use the same function, so that a client that plans by itself queries the
//! same ranges as one that asks the server for the plan.

use perihelion_model::json::Value;
use perihelion_model::partition_key::{EffectiveRange, PartitionKey, PartitionKeyDefinition};

use super::{PartitionKeyFilter, PlanError, QueryRange, partition_keys, plan};
use crate::parameters::Parameters;
use crate::statement::Query;

/// The body of the response to a plan request for a container with this partition key.
/// `supported_features` is the request header with the features that the client can merge.
pub fn plan_for_container(
    query: &Query,
    parameters: &Parameters,
    supported_features: Option<&str>,
    partition_key: &PartitionKeyDefinition,
) -> Result<Value, PlanError> {
    let paths: Vec<&str> = partition_key.paths.iter().map(|path| path.text.as_str()).collect();
    let plan = plan(query, parameters, supported_features, &paths)?;
    let keys = match plan.partition_keys() {
        PartitionKeyFilter::Keys(keys) => Some(keys.clone()),
        PartitionKeyFilter::All => key_prefixes(query, parameters, &paths),
        PartitionKeyFilter::Nothing => None,
    };
    Ok(match keys.and_then(|keys| key_ranges(partition_key, &keys)) {
        Some(ranges) => plan.to_json_with_ranges(&ranges),
        None => plan.to_json(),
    })
}

/// The longest prefixes of a hierarchical key that a filter names, if it names any.
fn key_prefixes(query: &Query, parameters: &Parameters, paths: &[&str]) -> Option<Vec<Vec<Value>>> {
    (1..paths.len()).rev().find_map(|levels| match partition_keys(query, parameters, &paths[..levels]) {
        Ok(PartitionKeyFilter::Keys(prefixes)) => Some(prefixes),
        Ok(PartitionKeyFilter::All | PartitionKeyFilter::Nothing) | Err(_) => None,
    })
}

/// The ranges of effective partition keys for these keys, in order. A whole key is one point. The
/// prefix of a hierarchical key is the range of all keys with this prefix. `None` when a value of
/// a key is not a scalar; then the plan is about all ranges.
fn key_ranges(definition: &PartitionKeyDefinition, keys: &[Vec<Value>]) -> Option<Vec<QueryRange>> {
    let ranges = keys.iter().map(|values| {
        let key = PartitionKey::from_json(&Value::Array(values.clone()))?;
        Some((definition.effective_range(&key), definition.is_prefix(&key)))
    });
    let mut ranges = ranges.collect::<Option<Vec<_>>>()?;
    ranges.sort_by(|(one, _), (other, _)| one.min.cmp(&other.min));
    ranges.dedup();
    let query_range = |(range, is_prefix): &(EffectiveRange, bool)| match is_prefix {
        true => QueryRange::between(&range.min.to_hex(), &range.max.to_hex()),
        false => QueryRange::point(&range.min.to_hex()),
    };
    Some(ranges.iter().map(query_range).collect())
}
