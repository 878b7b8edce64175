//! The plan as a client reads it.
//!
//! The gateway's JSON says how the partitions' answers become one. Members
//! that are absent or null have no say, unknown ones are skipped; what would
//! change the answer and is not understood is refused, because a wrong answer
//! is worse than none.

use perihelion_model::json::{Value, parse_str};

use super::MergeError;
use crate::ast::Direction;
use crate::node::AggregateFunction;
use crate::plan::{FILTER_PLACEHOLDER, QueryRange};

/// How to merge the answers of several partitions; see [`MergePlan::parse`].
#[derive(Debug, Clone)]
pub struct MergePlan {
    pub(super) shape: Shape,
    pub(super) distinct: DistinctType,
    pub(super) offset: u64,
    /// TOP and LIMIT, the smaller one.
    pub(super) take: Option<u64>,
    /// The name that a count of distinct values gets; empty for VALUE.
    pub(super) distinct_count: Option<String>,
    rewritten_query: String,
    ranges: Vec<QueryRange>,
}

/// What the partitions' rows are.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Shape {
    /// Rows of the answer.
    Plain,
    /// Rows with their sort keys. Where streaming, each partition's are sorted.
    Ordered { directions: Vec<Direction>, is_streaming: bool },
    /// Groups whose aggregates are still to be put together.
    Groups(Grouping),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Grouping {
    pub(super) has_keys: bool,
    pub(super) projection: Projection,
}

/// What becomes of a group.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Projection {
    /// `VALUE x`: an aggregate, or something that all of a group share.
    Value(Option<AggregateFunction>),
    /// A list, in the order of the names.
    List(Vec<(String, Option<AggregateFunction>)>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DistinctType {
    None,
    Unordered,
    Ordered,
}

impl MergePlan {
    /// Reads the body of a plan request, or the `additionalErrorInfo` of a
    /// refusal with sub-status 1004.
    pub fn parse(text: &str) -> Result<Self, MergeError> {
        let body = parse_str(text).map_err(|_| MergeError::InvalidPlan("it is no JSON"))?;
        MergePlan::from_json(&body)
    }

    /// The plan of a statement that each partition answers for itself: the
    /// answers follow one another.
    pub fn concatenation() -> Self {
        MergePlan {
            shape: Shape::Plain,
            distinct: DistinctType::None,
            offset: 0,
            take: None,
            distinct_count: None,
            rewritten_query: String::new(),
            ranges: vec![QueryRange::full()],
        }
    }

    pub fn from_json(body: &Value) -> Result<Self, MergeError> {
        if body.as_object().is_none() {
            return Err(MergeError::InvalidPlan("it is no object"));
        }
        if member(body, "hybridSearchQueryInfo").is_some() {
            return Err(MergeError::Unsupported("hybrid search".to_owned()));
        }
        let mut plan = MergePlan::concatenation();
        if let Some(ranges) = member(body, "queryRanges") {
            plan.ranges = read_ranges(ranges)?;
        }
        let Some(info) = member(body, "queryInfo") else { return Ok(plan) };
        plan.shape = read_shape(info)?;
        plan.distinct = read_distinct(info)?;
        plan.offset = read_count(info, "offset")?.unwrap_or(0);
        plan.take = match (read_count(info, "top")?, read_count(info, "limit")?) {
            (Some(top), Some(limit)) => Some(top.min(limit)),
            (top, limit) => top.or(limit),
        };
        plan.distinct_count = member(info, "dCountInfo")
            .map(|count| member(count, "dCountAlias").and_then(Value::as_str).unwrap_or("").to_owned());
        plan.rewritten_query =
            member(info, "rewrittenQuery").and_then(Value::as_str).unwrap_or("").to_owned();
        Ok(plan)
    }

    /// The effective partition keys that can hold a result.
    pub fn ranges(&self) -> &[QueryRange] {
        &self.ranges
    }

    /// Whether every partition must have answered before the first row; if not,
    /// the answers follow one another and asking ahead may be in vain.
    pub fn needs_every_partition(&self) -> bool {
        match self.shape {
            Shape::Plain => false,
            Shape::Ordered { .. } | Shape::Groups(_) => true,
        }
    }

    /// The statement for one partition.
    pub(super) fn statement(&self, query: &str) -> String {
        let text = if self.rewritten_query.is_empty() { query } else { &self.rewritten_query };
        text.replace(FILTER_PLACEHOLDER, "true")
    }
}

/// The member, unless it is null.
fn member<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    value.get(name).filter(|member| **member != Value::Null)
}

fn read_count(info: &Value, name: &'static str) -> Result<Option<u64>, MergeError> {
    let Some(count) = member(info, name) else { return Ok(None) };
    let count = count.as_i64().and_then(|count| u64::try_from(count).ok());
    count.map(Some).ok_or(MergeError::InvalidPlan("top, offset or limit is no count"))
}

fn read_distinct(info: &Value) -> Result<DistinctType, MergeError> {
    match member(info, "distinctType").map(|kind| kind.as_str().unwrap_or("")) {
        None | Some("None") => Ok(DistinctType::None),
        Some("Unordered") => Ok(DistinctType::Unordered),
        Some("Ordered") => Ok(DistinctType::Ordered),
        Some(other) => Err(MergeError::Unsupported(format!("DISTINCT of the kind '{other}'"))),
    }
}

fn read_shape(info: &Value) -> Result<Shape, MergeError> {
    let directions = list(info, "orderBy")?.iter().map(read_direction).collect::<Result<Vec<_>, _>>()?;
    match (read_grouping(info)?, directions.is_empty()) {
        (Some(_), false) => Err(MergeError::Unsupported("ORDER BY over aggregates".to_owned())),
        (Some(grouping), true) => Ok(Shape::Groups(grouping)),
        (None, true) => Ok(Shape::Plain),
        (None, false) => {
            let non_streaming = member(info, "hasNonStreamingOrderBy").and_then(Value::as_bool);
            Ok(Shape::Ordered { directions, is_streaming: non_streaming != Some(true) })
        }
    }
}

fn read_direction(direction: &Value) -> Result<Direction, MergeError> {
    match direction.as_str() {
        Some("Ascending") => Ok(Direction::Ascending),
        Some("Descending") => Ok(Direction::Descending),
        _ => Err(MergeError::InvalidPlan("orderBy holds something else than a direction")),
    }
}

fn read_grouping(info: &Value) -> Result<Option<Grouping>, MergeError> {
    let has_keys = !list(info, "groupByExpressions")?.is_empty();
    let aggregates = list(info, "aggregates")?.iter().map(read_function).collect::<Result<Vec<_>, _>>()?;
    let names = list(info, "groupByAliases")?;
    if !names.is_empty() {
        let types = member(info, "groupByAliasToAggregateType");
        let item = |name: &Value| {
            let name = name.as_str().ok_or(MergeError::InvalidPlan("groupByAliases holds no names"))?;
            let function = types.and_then(|types| member(types, name)).map(read_function).transpose()?;
            Ok((name.to_owned(), function))
        };
        let items = names.iter().map(item).collect::<Result<_, MergeError>>()?;
        return Ok(Some(Grouping { has_keys, projection: Projection::List(items) }));
    }
    match aggregates.as_slice() {
        [] if !has_keys => Ok(None),
        [] => Ok(Some(Grouping { has_keys, projection: Projection::Value(None) })),
        [function] => Ok(Some(Grouping { has_keys, projection: Projection::Value(Some(*function)) })),
        _ => Err(MergeError::Unsupported("several aggregates in one value".to_owned())),
    }
}

fn read_function(name: &Value) -> Result<AggregateFunction, MergeError> {
    let name = name.as_str().ok_or(MergeError::InvalidPlan("an aggregate has no name"))?;
    AggregateFunction::by_plan_name(name)
        .ok_or_else(|| MergeError::Unsupported(format!("the aggregate '{name}'")))
}

fn list<'v>(info: &'v Value, name: &str) -> Result<&'v [Value], MergeError> {
    match member(info, name) {
        None => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(_) => Err(MergeError::InvalidPlan("a list is something else")),
    }
}

fn read_ranges(ranges: &Value) -> Result<Vec<QueryRange>, MergeError> {
    let read = |range: &Value| {
        let end = |name: &str| member(range, name)?.as_str().map(str::to_owned);
        let flag = |name: &str, absent: bool| member(range, name).map_or(Some(absent), Value::as_bool);
        Some(QueryRange {
            min: end("min")?,
            max: end("max")?,
            is_min_inclusive: flag("isMinInclusive", true)?,
            is_max_inclusive: flag("isMaxInclusive", false)?,
        })
    };
    let ranges = ranges.as_array().ok_or(MergeError::InvalidPlan("queryRanges is no list"))?;
    ranges.iter().map(read).collect::<Option<_>>().ok_or(MergeError::InvalidPlan("a range has no ends"))
}
