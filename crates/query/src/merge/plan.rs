//! The query plan as a client reads it.
//!
//! The gateway's JSON says how to merge the partitions' rows. Absent and null
//! members count as the default, and unknown members are ignored. An unknown
//! aggregate, sort direction or kind of DISTINCT is refused, because the merged
//! result could be wrong.

use perihelion_model::json::{Value, parse_str};

use super::MergeError;
use crate::ast::{Direction, Expr, OrderItem, Selection};
use crate::bind::same_expr;
use crate::node::AggregateFunction;
use crate::plan::{DIRECTION_NAMES, DistinctType, FILTER_PLACEHOLDER, QueryRange, value_of};

/// How to merge the rows of several partitions; see [`MergePlan::parse`].
#[derive(Debug, Clone)]
pub struct MergePlan {
    pub(super) format: RowFormat,
    pub(super) distinct: DistinctType,
    pub(super) offset: u64,
    /// The smaller of TOP and LIMIT.
    pub(super) take: Option<u64>,
    /// The name of the member with the count of distinct values; empty for SELECT VALUE.
    /// `None` when the statement does not count distinct values.
    pub(super) distinct_count_alias: Option<String>,
    /// Empty when the partitions run the query unchanged.
    rewritten_query: String,
    /// The effective keys that can hold a result.
    ranges: Vec<QueryRange>,
}

/// The format of the partitions' rows.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum RowFormat {
    /// Rows of the result.
    Plain,
    /// Rows with their sort keys. With `is_streaming` each partition returns its rows
    /// sorted.
    Ordered { directions: Vec<Direction>, is_streaming: bool },
    /// Partial groups.
    Groups(GroupFormat),
}

/// The format of partial groups.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct GroupFormat {
    pub(super) has_keys: bool,
    pub(super) projection: Projection,
    /// The ORDER BY of the statement, which plans of groups do not contain.
    pub(super) order: Vec<(GroupSortKey, Direction)>,
}

/// A value by which groups are sorted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum GroupSortKey {
    /// The value of the GROUP BY expression with this index.
    GroupBy(usize),
    /// The value of the select list with this index.
    Selected(usize),
}

/// The ORDER BY of a statement with groups. Empty without ORDER BY. A statement that only the service
/// can parse is refused if its text contains the words ORDER BY. A sort key that is neither a GROUP BY
/// expression nor selected is refused, because the client does not know its value.
pub(super) fn group_order(query: &str) -> Result<Vec<(GroupSortKey, Direction)>, MergeError> {
    let Ok(query) = crate::parse(query) else {
        return match may_have_order_by(query) {
            true => Err(MergeError::Unsupported(
                "ORDER BY over groups in a statement that the client cannot parse".to_owned(),
            )),
            false => Ok(Vec::new()),
        };
    };
    let select = query.select;
    let selected: Vec<&Expr> = match &select.selection {
        Selection::Star(_) => Vec::new(),
        Selection::Value(expr) => vec![expr],
        Selection::List(items) => items.iter().map(|item| &item.expr).collect(),
    };
    let group_by = select.group_by.as_deref().unwrap_or_default();
    let sort_key = |item: &OrderItem| {
        let index = group_by.iter().position(|expr| same_expr(expr, &item.expr)).map(GroupSortKey::GroupBy);
        let index = index.or_else(|| {
            selected.iter().position(|expr| same_expr(expr, &item.expr)).map(GroupSortKey::Selected)
        });
        let unknown = || {
            MergeError::Unsupported("ORDER BY of a value that is neither selected nor in GROUP BY".to_owned())
        };
        Ok((index.ok_or_else(unknown)?, item.direction.unwrap_or(Direction::Ascending)))
    };
    select.order_by.iter().flat_map(|order_by| &order_by.items).map(sort_key).collect()
}

/// Whether a statement that cannot be parsed may have an ORDER BY: whether it contains these words,
/// even in a string literal.
fn may_have_order_by(query: &str) -> bool {
    let query = query.to_ascii_lowercase();
    let mut words = query.split_whitespace().peekable();
    while let Some(word) = words.next() {
        if word.ends_with("order") && words.peek().is_some_and(|next| next.starts_with("by")) {
            return true;
        }
    }
    false
}

/// How a group becomes a row of the result.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Projection {
    /// `VALUE x`: an aggregate, or a value that all rows of the group share.
    Value(Option<AggregateFunction>),
    /// An object with these members: aggregates, or values that all rows of the
    /// group share.
    List(Vec<(String, Option<AggregateFunction>)>),
}

impl MergePlan {
    /// Parses the response body of a plan request, or the `additionalErrorInfo` of a
    /// 400/1004 response, with which the gateway refuses a query that the client must merge.
    pub fn parse(text: &str) -> Result<Self, MergeError> {
        let body = parse_str(text).map_err(|_| MergeError::InvalidPlan("it is not valid JSON"))?;
        MergePlan::from_json(&body)
    }

    /// The plan that concatenates the partitions' rows, for a statement that
    /// needs no merging.
    pub fn concatenation() -> Self {
        MergePlan {
            format: RowFormat::Plain,
            distinct: DistinctType::None,
            offset: 0,
            take: None,
            distinct_count_alias: None,
            rewritten_query: String::new(),
            ranges: vec![QueryRange::full()],
        }
    }

    /// The plan that concatenates the rows of the partitions with keys in these ranges.
    pub fn concatenation_of(ranges: &[QueryRange]) -> Self {
        MergePlan { ranges: ranges.to_vec(), ..MergePlan::concatenation() }
    }

    /// Reads a plan from its JSON. The plan of an ORDER BY RANK is refused; see
    /// [`HybridSearch`](super::HybridSearch).
    pub fn from_json(body: &Value) -> Result<Self, MergeError> {
        if body.as_object().is_none() {
            return Err(MergeError::InvalidPlan("it is not an object"));
        }
        if member(body, "hybridSearchQueryInfo").is_some() {
            return Err(MergeError::Unsupported("hybrid search".to_owned()));
        }
        let mut plan = MergePlan::concatenation();
        if let Some(ranges) = member(body, "queryRanges") {
            plan.ranges = read_ranges(ranges)?;
        }
        let Some(info) = member(body, "queryInfo") else { return Ok(plan) };
        plan.format = read_format(info)?;
        plan.distinct = read_distinct(info)?;
        plan.offset = read_count(info, "offset")?.unwrap_or(0);
        plan.take = match (read_count(info, "top")?, read_count(info, "limit")?) {
            (Some(top), Some(limit)) => Some(top.min(limit)),
            (top, limit) => top.or(limit),
        };
        plan.distinct_count_alias = member(info, "dCountInfo")
            .map(|count| member(count, "dCountAlias").and_then(Value::as_str).unwrap_or("").to_owned());
        plan.rewritten_query =
            member(info, "rewrittenQuery").and_then(Value::as_str).unwrap_or("").to_owned();
        Ok(plan)
    }

    /// The effective partition keys that can hold a result.
    pub fn ranges(&self) -> &[QueryRange] {
        &self.ranges
    }

    /// Whether the first row needs a page of every partition. If not, the rows are
    /// concatenated, and pages that are fetched ahead may be unnecessary.
    pub fn needs_every_partition(&self) -> bool {
        match self.format {
            RowFormat::Plain => false,
            RowFormat::Ordered { .. } | RowFormat::Groups(_) => true,
        }
    }

    /// The statement for one partition: the rewritten one, or the query when the plan
    /// has none. The placeholder for a filter becomes `true`.
    pub fn statement(&self, query: &str) -> String {
        let text = if self.rewritten_query.is_empty() { query } else { &self.rewritten_query };
        text.replace(FILTER_PLACEHOLDER, "true")
    }
}

/// The member, unless it is null.
pub(super) fn member<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    value.get(name).filter(|member| **member != Value::Null)
}

pub(super) fn read_count(info: &Value, name: &'static str) -> Result<Option<u64>, MergeError> {
    let Some(count) = member(info, name) else { return Ok(None) };
    let count = count.as_i64().and_then(|count| u64::try_from(count).ok());
    count.map(Some).ok_or(MergeError::InvalidPlan("top, offset or limit is not a count"))
}

fn read_distinct(info: &Value) -> Result<DistinctType, MergeError> {
    let Some(name) = member(info, "distinctType") else { return Ok(DistinctType::None) };
    let name = name.as_str().unwrap_or("");
    value_of(&DistinctType::NAMES, name)
        .ok_or_else(|| MergeError::Unsupported(format!("DISTINCT of the kind '{name}'")))
}

fn read_format(info: &Value) -> Result<RowFormat, MergeError> {
    let directions = read_list(info, "orderBy")?.iter().map(read_direction).collect::<Result<Vec<_>, _>>()?;
    match (read_grouping(info)?, directions.is_empty()) {
        (Some(_), false) => Err(MergeError::Unsupported("ORDER BY over aggregates".to_owned())),
        (Some(grouping), true) => Ok(RowFormat::Groups(grouping)),
        (None, true) => Ok(RowFormat::Plain),
        (None, false) => {
            let non_streaming = member(info, "hasNonStreamingOrderBy").and_then(Value::as_bool);
            Ok(RowFormat::Ordered { directions, is_streaming: non_streaming != Some(true) })
        }
    }
}

pub(super) fn read_direction(direction: &Value) -> Result<Direction, MergeError> {
    let direction = direction.as_str().and_then(|name| value_of(&DIRECTION_NAMES, name));
    direction.ok_or(MergeError::InvalidPlan("orderBy holds an unknown direction"))
}

fn read_grouping(info: &Value) -> Result<Option<GroupFormat>, MergeError> {
    let has_keys = !read_list(info, "groupByExpressions")?.is_empty();
    let aggregates =
        read_list(info, "aggregates")?.iter().map(read_function).collect::<Result<Vec<_>, _>>()?;
    let names = read_list(info, "groupByAliases")?;
    if !names.is_empty() {
        let types = member(info, "groupByAliasToAggregateType");
        let item = |name: &Value| {
            let name =
                name.as_str().ok_or(MergeError::InvalidPlan("a member of groupByAliases is not a string"))?;
            let function = types.and_then(|types| member(types, name)).map(read_function).transpose()?;
            Ok((name.to_owned(), function))
        };
        let items = names.iter().map(item).collect::<Result<_, MergeError>>()?;
        return Ok(Some(GroupFormat { has_keys, projection: Projection::List(items), order: Vec::new() }));
    }
    let single_value = |function| {
        Ok(Some(GroupFormat { has_keys, projection: Projection::Value(function), order: Vec::new() }))
    };
    match aggregates.as_slice() {
        [] if !has_keys => Ok(None),
        [] => single_value(None),
        [function] => single_value(Some(*function)),
        _ => Err(MergeError::Unsupported("several aggregates in one value".to_owned())),
    }
}

fn read_function(name: &Value) -> Result<AggregateFunction, MergeError> {
    let name = name.as_str().ok_or(MergeError::InvalidPlan("the name of an aggregate is not a string"))?;
    AggregateFunction::by_plan_name(name)
        .ok_or_else(|| MergeError::Unsupported(format!("the aggregate '{name}'")))
}

pub(super) fn read_list<'v>(info: &'v Value, name: &str) -> Result<&'v [Value], MergeError> {
    match member(info, name) {
        None => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(_) => Err(MergeError::InvalidPlan("a member that should be a list is not one")),
    }
}

pub(super) fn read_ranges(ranges: &Value) -> Result<Vec<QueryRange>, MergeError> {
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
    let ranges = ranges.as_array().ok_or(MergeError::InvalidPlan("queryRanges is not a list"))?;
    ranges
        .iter()
        .map(read)
        .collect::<Option<_>>()
        .ok_or(MergeError::InvalidPlan("a range lacks its min or max"))
}
