//! The JSON form of a plan. As in the service, every member is always present.

use perihelion_model::json::{Number, Object, Value, object};

use super::{DIRECTION_NAMES, DistinctType, PartitionKeyFilter, QueryPlan, name_of};

/// A range of effective partition keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryRange {
    /// The lower bound, in hexadecimal.
    pub min: String,
    /// The upper bound, in hexadecimal.
    pub max: String,
    /// Whether the range includes `min`.
    pub is_min_inclusive: bool,
    /// Whether the range includes `max`.
    pub is_max_inclusive: bool,
}

impl QueryRange {
    /// The range of all keys.
    pub fn full() -> Self {
        QueryRange {
            min: String::new(),
            max: "FF".to_owned(),
            is_min_inclusive: true,
            is_max_inclusive: false,
        }
    }

    /// The range of the keys from `min` to before `max`.
    pub fn between(min: &str, max: &str) -> Self {
        QueryRange {
            min: min.to_owned(),
            max: max.to_owned(),
            is_min_inclusive: true,
            is_max_inclusive: false,
        }
    }

    /// The range of one key.
    pub fn point(key: &str) -> Self {
        QueryRange {
            min: key.to_owned(),
            max: key.to_owned(),
            is_min_inclusive: true,
            is_max_inclusive: true,
        }
    }
}

impl QueryPlan {
    /// The response body for all partitions. A statement that reads no document, or that
    /// no document can match, is for the first partition only.
    pub fn to_json(&self) -> Value {
        let range = match self.partition_keys {
            PartitionKeyFilter::Nothing => QueryRange::point(""),
            PartitionKeyFilter::All | PartitionKeyFilter::Keys(_) => QueryRange::full(),
        };
        self.to_json_with_ranges(&[range])
    }

    /// The response body with ranges that the caller computed from
    /// [`QueryPlan::partition_keys`].
    pub fn to_json_with_ranges(&self, ranges: &[QueryRange]) -> Value {
        let version = ("partitionedQueryExecutionInfoVersion", 2_i64.into());
        let ranges = ("queryRanges", Value::Array(ranges.iter().map(range).collect()));
        match &self.hybrid {
            Some(hybrid) => object([version, ("hybridSearchQueryInfo", hybrid.to_json()), ranges]),
            None => object([
                version,
                ("queryInfo", self.query_info()),
                ranges,
                ("hybridSearchQueryInfo", Value::Null),
            ]),
        }
    }

    /// The member `queryInfo`.
    pub(super) fn query_info(&self) -> Value {
        let distinct_count = self.distinct_count_alias.as_ref();
        let distinct_count =
            distinct_count.map_or(Value::Null, |alias| object([("dCountAlias", alias.as_str().into())]));
        let distinct = name_of(&DistinctType::NAMES, &self.distinct);
        let directions = self.order_by.iter().map(|direction| name_of(&DIRECTION_NAMES, direction).into());
        let types = self
            .alias_types
            .iter()
            .map(|(alias, kind)| (alias.clone(), kind.map_or(Value::Null, Value::from)))
            .collect();
        object([
            ("distinctType", distinct.into()),
            ("top", count(self.top)),
            ("offset", count(self.offset)),
            ("limit", count(self.limit)),
            ("orderBy", Value::Array(directions.collect())),
            ("orderByExpressions", texts(&self.order_by_expressions)),
            ("groupByExpressions", texts(&self.group_by_expressions)),
            ("groupByAliases", texts(&self.group_by_aliases)),
            ("aggregates", Value::Array(self.aggregates.iter().map(|name| Value::from(*name)).collect())),
            ("groupByAliasToAggregateType", Value::Object(Object::from_members(types))),
            ("rewrittenQuery", self.rewritten_query.as_str().into()),
            ("hasSelectValue", self.has_select_value.into()),
            ("dCountInfo", distinct_count),
            ("hasNonStreamingOrderBy", self.sorts_by_score.into()),
        ])
    }
}

pub(super) fn count(count: Option<u64>) -> Value {
    count.map_or(Value::Null, |count| Value::Number(Number::from_u64(count)))
}

fn texts(items: &[String]) -> Value {
    Value::Array(items.iter().map(|item| item.as_str().into()).collect())
}

fn range(range: &QueryRange) -> Value {
    object([
        ("min", range.min.as_str().into()),
        ("max", range.max.as_str().into()),
        ("isMinInclusive", range.is_min_inclusive.into()),
        ("isMaxInclusive", range.is_max_inclusive.into()),
    ])
}
