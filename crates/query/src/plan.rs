//! The query plan, by which a client runs a statement on every partition and merges
//! the results.
//!
//! Plans have the members and texts of the service's plans, character by character,
//! because clients send the rewritten statement back and read the other members by
//! name. The list of partition keys may be longer than the service's. [`rewrite`] makes
//! the statement for one partition, [`features`] lists the features that the client
//! must support, [`keys`] finds the partition keys that can hold a result, [`for_container`] adds
//! the ranges of these keys, [`hybrid`] plans ORDER BY RANK.

mod distinct_count;
mod features;
mod for_container;
mod hybrid;
mod json;
mod keys;
mod rewrite;

pub use for_container::plan_for_container;
use hybrid::HybridPlan;
pub(crate) use hybrid::{DOCUMENT_COUNT_PLACEHOLDER, hit_counts_placeholder, word_count_placeholder};
pub use json::QueryRange;
pub use keys::PartitionKeyFilter;
pub use rewrite::FILTER_PLACEHOLDER;

use crate::ast::{Count, Direction, Expr, Select, Selection};
use crate::bind::{Bound, aggregate_call, bind, contains_aggregate, same_expr, select_names, sorts_by_score};
use crate::diagnostic::{Diagnostic, errors_to_json};
use crate::node::{AggregateFunction, SelectNode};
use crate::parameters::{Now, Parameters};
use crate::printer::expr_text;
use crate::statement::Query;
use perihelion_model::json::{Style, Value, object, to_text};

/// The result of a plan request; [`QueryPlan::to_json`] is the response body.
#[derive(Debug, Clone)]
pub struct QueryPlan {
    distinct: DistinctType,
    top: Option<u64>,
    offset: Option<u64>,
    limit: Option<u64>,
    /// Empty with aggregates or GROUP BY.
    order_by: Vec<Direction>,
    order_by_expressions: Vec<String>,
    group_by_expressions: Vec<String>,
    /// The names of a select list with aggregates or GROUP BY.
    group_by_aliases: Vec<String>,
    /// The function of `VALUE AGG(x)`. Empty for a select list, whose functions are in
    /// `alias_types`.
    aggregates: Vec<&'static str>,
    alias_types: AliasTypes,
    /// Empty when the statement needs no rewrite.
    rewritten_query: String,
    has_select_value: bool,
    /// Whether the partitions sort by a distance or a score.
    sorts_by_score: bool,
    /// The alias of the count of distinct rows (see [`distinct_count`]). `Some("")` for SELECT VALUE,
    /// `None` for a statement without such a count.
    distinct_count_alias: Option<String>,
    /// The plan of a statement with ORDER BY RANK, in place of everything above.
    hybrid: Option<HybridPlan>,
    partition_keys: PartitionKeyFilter,
}

/// How the rows of a SELECT DISTINCT are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DistinctType {
    /// There is no DISTINCT.
    None,
    /// Equal values may come in any order.
    Unordered,
    /// Equal values come one after the other.
    Ordered,
}

impl DistinctType {
    /// Every type with its name in plans.
    pub(crate) const NAMES: [(DistinctType, &'static str); 3] = [
        (DistinctType::None, "None"),
        (DistinctType::Unordered, "Unordered"),
        (DistinctType::Ordered, "Ordered"),
    ];
}

/// The directions of a sort with their names in plans.
pub(crate) const DIRECTION_NAMES: [(Direction, &str); 2] =
    [(Direction::Ascending, "Ascending"), (Direction::Descending, "Descending")];

/// The name of a value in a table of names.
fn name_of<T: PartialEq>(names: &[(T, &'static str)], value: &T) -> &'static str {
    names.iter().find(|(known, _)| known == value).map_or("", |(_, name)| name)
}

/// The value of a name in a table of names.
pub(crate) fn value_of<T: Copy>(names: &[(T, &'static str)], name: &str) -> Option<T> {
    names.iter().find(|(_, known)| *known == name).map(|(value, _)| *value)
}

/// Why a statement has no plan. The response is a 400.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanError {
    /// The statement does not compile; the body is [`errors_to_json`].
    Invalid(Vec<Diagnostic>),
    /// An aggregate inside another expression cannot be merged.
    Composition,
    /// A subquery in FROM needs the rows of all partitions together, so the results of the
    /// partitions cannot be merged.
    StageOverPartitions,
    /// The client did not list these features as supported.
    UnsupportedFeatures(Vec<&'static str>),
}

/// Plans a statement. `supported_features` is the request header with the features that
/// the client can merge. `partition_key_paths` are the paths of the container's
/// partition key, such as `/a/b`.
pub fn plan(
    query: &Query,
    parameters: &Parameters,
    supported_features: Option<&str>,
    partition_key_paths: &[&str],
) -> Result<QueryPlan, PlanError> {
    let select = &query.select;
    // A plan does not depend on the time: `possible_keys` excludes no key if the statement reads the
    // clock.
    let bound = bind(&query.text, select, parameters, Now::from_unix_ticks(0)).map_err(PlanError::Invalid)?;
    let shape = ProjectionShape::of(select)?;
    let supported = features::Supported::new(supported_features);
    let partition_keys = keys::possible_keys(&bound, partition_key_paths, reads_clock(query));
    if let Some(plan) = distinct_count::plan(select, &bound, &supported, &partition_keys)? {
        return Ok(plan);
    }
    if bound.inner.as_deref().is_some_and(needs_all_documents) {
        return Err(PlanError::StageOverPartitions);
    }
    supported.check(select, &shape)?;
    let hybrid = hybrid::plan(query, parameters, &bound.select, &supported)?;
    Ok(QueryPlan { hybrid, ..QueryPlan::new(select, &bound.select, &shape, partition_keys) })
}

/// Whether a statement depends on the time. The names of all functions that read the clock begin
/// with `GetCurrent`. A statement that has this text elsewhere counts too.
fn reads_clock(query: &Query) -> bool {
    query.text.to_ascii_lowercase().contains("getcurrent")
}

/// Whether the rows of a stage depend on the documents of all partitions, so that the stages of the
/// partitions cannot be merged.
fn needs_all_documents(stage: &Bound) -> bool {
    let select = &stage.select;
    let is_cut = select.top.is_some() || select.offset.is_some() || select.limit.is_some();
    select.distinct
        || select.grouping.is_some()
        || is_cut
        || stage.inner.as_deref().is_some_and(needs_all_documents)
}

/// The partition keys that can hold a result of a statement, whether or not the statement
/// has a plan. `partition_key_paths` are the paths of the container's partition key.
pub fn partition_keys(
    query: &Query,
    parameters: &Parameters,
    partition_key_paths: &[&str],
) -> Result<PartitionKeyFilter, Vec<Diagnostic>> {
    let bound = bind(&query.text, &query.select, parameters, Now::from_unix_ticks(0))?;
    Ok(keys::possible_keys(&bound, partition_key_paths, reads_clock(query)))
}

/// How the select list combines aggregates and group keys.
enum ProjectionShape<'q> {
    /// No aggregates and no groups.
    Plain,
    /// `VALUE AGG(x)`, or `VALUE x` with GROUP BY.
    Value { expr: &'q Expr, aggregate: Option<(AggregateFunction, &'q Expr)> },
    /// A list with aggregates or GROUP BY.
    List(Vec<ListItem<'q>>),
}

/// One item of a select list with aggregates or GROUP BY.
struct ListItem<'q> {
    name: String,
    expr: &'q Expr,
    aggregate: Option<(AggregateFunction, &'q Expr)>,
}

impl<'q> ProjectionShape<'q> {
    fn of(select: &'q Select) -> Result<Self, PlanError> {
        match &select.selection {
            Selection::Star(_) => Ok(ProjectionShape::Plain),
            Selection::Value(expr) => {
                let aggregate = simple_aggregate(expr)?;
                if aggregate.is_none() && select.group_by.is_none() {
                    return Ok(ProjectionShape::Plain);
                }
                Ok(ProjectionShape::Value { expr, aggregate })
            }
            Selection::List(items) => {
                let mut list = Vec::with_capacity(items.len());
                for (item, name) in items.iter().zip(select_names(items)) {
                    list.push(ListItem { name, expr: &item.expr, aggregate: simple_aggregate(&item.expr)? });
                }
                let plain = select.group_by.is_none() && list.iter().all(|item| item.aggregate.is_none());
                Ok(if plain { ProjectionShape::Plain } else { ProjectionShape::List(list) })
            }
        }
    }
}

/// The function and the argument, when the expression is an aggregate call. An
/// aggregate inside another expression is an error.
fn simple_aggregate(expr: &Expr) -> Result<Option<(AggregateFunction, &Expr)>, PlanError> {
    match aggregate_call(expr) {
        Some((function, [argument])) => Ok(Some((function, argument))),
        _ if contains_aggregate(expr) => Err(PlanError::Composition),
        _ => Ok(None),
    }
}

impl QueryPlan {
    fn new(
        select: &Select,
        bound: &SelectNode,
        shape: &ProjectionShape<'_>,
        partition_keys: PartitionKeyFilter,
    ) -> Self {
        let is_plain = matches!(shape, ProjectionShape::Plain);
        let order = select.order_by.as_ref().filter(|_| is_plain).map_or(&[][..], |order_by| &order_by.items);
        let counts = Counts { top: bound.top, offset: bound.offset, limit: bound.limit };
        let (aliases, types) = aliases(shape);
        QueryPlan {
            distinct: distinct_type(select),
            top: counts.top,
            offset: counts.offset,
            limit: counts.limit,
            order_by: bound.order.iter().map(|key| key.direction).take(order.len()).collect(),
            order_by_expressions: order.iter().map(|item| expr_text(&item.expr)).collect(),
            group_by_expressions: select.group_by.iter().flatten().map(expr_text).collect(),
            group_by_aliases: aliases,
            aggregates: match shape {
                ProjectionShape::Value { aggregate: Some((function, _)), .. } => vec![function.plan_name()],
                ProjectionShape::Value { .. } | ProjectionShape::List(_) | ProjectionShape::Plain => {
                    Vec::new()
                }
            },
            alias_types: types,
            rewritten_query: rewrite::rewrite(select, shape, counts),
            has_select_value: matches!(select.selection, Selection::Value(_)),
            sorts_by_score: select
                .order_by
                .as_ref()
                .is_some_and(|order_by| is_plain && sorts_by_score(order_by)),
            distinct_count_alias: None,
            hybrid: None,
            partition_keys,
        }
    }

    /// The statement to send to each partition; empty when the original statement is sent.
    pub fn rewritten_query(&self) -> &str {
        &self.rewritten_query
    }

    /// The partition keys that can hold a result.
    pub fn partition_keys(&self) -> &PartitionKeyFilter {
        &self.partition_keys
    }
}

/// The counts of TOP, OFFSET and LIMIT, with the values of parameters.
#[derive(Clone, Copy)]
struct Counts {
    top: Option<u64>,
    offset: Option<u64>,
    limit: Option<u64>,
}

/// The names of the select list, each with the plan's name of its aggregate function.
/// `None` for an item that is not an aggregate.
type AliasTypes = Vec<(String, Option<&'static str>)>;

/// The names of a select list with aggregates or GROUP BY, in two forms: without and with their
/// aggregate functions. Empty for other statements.
fn aliases(shape: &ProjectionShape<'_>) -> (Vec<String>, AliasTypes) {
    let ProjectionShape::List(items) = shape else { return (Vec::new(), Vec::new()) };
    let types = items
        .iter()
        .map(|item| (item.name.clone(), item.aggregate.map(|(function, _)| function.plan_name())))
        .collect();
    (items.iter().map(|item| item.name.clone()).collect(), types)
}

/// The type is `Ordered` when the rows are sorted by the distinct value and by nothing
/// else: then equal values are neighbours.
fn distinct_type(select: &Select) -> DistinctType {
    if !select.distinct {
        return DistinctType::None;
    }
    match (&select.selection, &select.order_by) {
        (Selection::Value(expr), Some(order_by)) if matches!(order_by.items.as_slice(), [key] if same_expr(&key.expr, expr)) => {
            DistinctType::Ordered
        }
        _ => DistinctType::Unordered,
    }
}

impl PlanError {
    /// The part of the service's message that says what is wrong.
    pub fn message(&self) -> String {
        match self {
            PlanError::Invalid(diagnostics) => body_text(errors_to_json(diagnostics)),
            PlanError::StageOverPartitions => errors_text(
                "A subquery in FROM with DISTINCT, GROUP BY, an aggregate, TOP or OFFSET LIMIT cannot be merged across partitions. Query one partition key, or select without the subquery.",
            ),
            PlanError::Composition => {
                errors_text("Compositions of aggregates and other expressions are not allowed.")
            }
            PlanError::UnsupportedFeatures(missing) => features::message(missing),
        }
    }
}

fn errors_text(text: &str) -> String {
    body_text(object([("Errors", Value::Array(vec![text.into()]))]))
}

fn body_text(value: Value) -> String {
    to_text(&value, Style::Query)
}

impl std::fmt::Display for PlanError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message())
    }
}

impl std::error::Error for PlanError {}

impl Count {
    fn literal(value: u64) -> Count {
        Count::Literal { value }
    }
}
