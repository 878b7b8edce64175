//! The plan as the service spells it: every member always present.

use perihelion_model::json::{Number, Value, object};

use super::{DistinctType, PartitionKeyFilter, QueryPlan};
use crate::ast::Direction;

/// A range of effective partition keys, both ends in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryRange {
    pub min: String,
    pub max: String,
    pub is_min_inclusive: bool,
    pub is_max_inclusive: bool,
}

impl QueryRange {
    /// Everything.
    pub fn full() -> Self {
        QueryRange {
            min: String::new(),
            max: "FF".to_owned(),
            is_min_inclusive: true,
            is_max_inclusive: false,
        }
    }

    /// One effective partition key.
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
    /// The body for all partitions; a statement that reads no document is
    /// sent to the first one only.
    pub fn to_json(&self) -> Value {
        let range = match self.partition_keys {
            PartitionKeyFilter::Nothing => QueryRange::point(""),
            PartitionKeyFilter::All | PartitionKeyFilter::Keys(_) => QueryRange::full(),
        };
        self.to_json_with_ranges(&[range])
    }

    /// The body with ranges that the caller worked out from
    /// [`QueryPlan::partition_keys`].
    pub fn to_json_with_ranges(&self, ranges: &[QueryRange]) -> Value {
        object([
            ("partitionedQueryExecutionInfoVersion", 2_i64.into()),
            ("queryInfo", self.query_info()),
            ("queryRanges", Value::Array(ranges.iter().map(range).collect())),
            ("hybridSearchQueryInfo", Value::Null),
        ])
    }

    /// The member `queryInfo`.
    fn query_info(&self) -> Value {
        let distinct = match self.distinct {
            DistinctType::None => "None",
            DistinctType::Unordered => "Unordered",
            DistinctType::Ordered => "Ordered",
        };
        let directions = self.order_by.iter().map(|direction| match direction {
            Direction::Ascending => "Ascending".into(),
            Direction::Descending => "Descending".into(),
        });
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
            (
                "groupByAliasToAggregateType",
                Value::Object(perihelion_model::json::Object::from_members(types)),
            ),
            ("rewrittenQuery", self.rewritten_query.as_str().into()),
            ("hasSelectValue", self.has_select_value.into()),
            ("dCountInfo", Value::Null),
            ("hasNonStreamingOrderBy", false.into()),
        ])
    }
}

fn count(count: Option<u64>) -> Value {
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
