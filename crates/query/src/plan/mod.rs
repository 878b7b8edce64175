//! The plan of a statement: what a client needs to run it on every partition
//! and merge the answers.
//!
//! The planner of the service is matched to the letter, because clients send
//! the rewritten statement back and read the rest by name: [`rewrite`] writes
//! the statement for one partition, [`features`] says what the client must be
//! able to merge, [`keys`] which partition keys can hold a result.

mod features;
mod json;
mod keys;
mod rewrite;

pub use json::QueryRange;
pub use keys::PartitionKeyFilter;
pub(crate) use rewrite::FILTER_PLACEHOLDER;

use crate::ast::{Count, Direction, Expr, Select, Selection};
use crate::bind::{aggregate_call, bind, contains_aggregate, same, select_names};
use crate::diagnostic::{Diagnostic, errors_to_json};
use crate::node::AggregateFunction;
use crate::parameters::{Now, Parameters};
use crate::printer::expr_text;
use crate::{Query, node::SelectNode};
use perihelion_model::json::{Value, object};

/// The answer to a plan request; [`QueryPlan::to_json`] is its body.
#[derive(Debug, Clone)]
pub struct QueryPlan {
    distinct: DistinctType,
    top: Option<u64>,
    offset: Option<u64>,
    limit: Option<u64>,
    order_by: Vec<Direction>,
    order_by_expressions: Vec<String>,
    group_by_expressions: Vec<String>,
    group_by_aliases: Vec<String>,
    aggregates: Vec<&'static str>,
    alias_types: Vec<(String, Option<&'static str>)>,
    rewritten_query: String,
    has_select_value: bool,
    partition_keys: PartitionKeyFilter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DistinctType {
    None,
    /// Equal values may come in any order.
    Unordered,
    /// Equal values come one after the other.
    Ordered,
}

/// Why there is no plan. All of them are answered 400.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanError {
    /// The statement is wrong; the body is [`errors_to_json`].
    Invalid(Vec<Diagnostic>),
    /// An aggregate inside another expression cannot be merged.
    Composition,
    /// The client did not list these features as supported.
    UnsupportedFeatures(Vec<&'static str>),
}

/// Plans a statement. `supported_features` is the header of that name, the
/// paths are those of the container's partition key (`/a/b`).
pub fn plan(
    query: &Query,
    parameters: &Parameters,
    supported_features: Option<&str>,
    partition_key_paths: &[&str],
) -> Result<QueryPlan, PlanError> {
    let select = &query.select;
    // The time decides nothing about a plan.
    let bound = bind(&query.text, select, parameters, Now::from_unix_ticks(0)).map_err(PlanError::Invalid)?;
    let shape = Shape::of(select)?;
    features::check(select, &shape, supported_features)?;
    let partition_keys = keys::filter(&bound, partition_key_paths);
    Ok(QueryPlan::new(select, &bound.select, &shape, partition_keys))
}

/// Which partition keys can hold a result of a statement, be there a plan for
/// it or not. The paths are those of the container's partition key.
pub fn partition_keys(
    query: &Query,
    parameters: &Parameters,
    partition_key_paths: &[&str],
) -> Result<PartitionKeyFilter, Vec<Diagnostic>> {
    let bound = bind(&query.text, &query.select, parameters, Now::from_unix_ticks(0))?;
    Ok(keys::filter(&bound, partition_key_paths))
}

/// What the select list is made of.
enum Shape<'q> {
    /// No aggregates and no groups.
    Plain,
    /// `VALUE AGG(x)`, or `VALUE x` with GROUP BY.
    Value { expr: &'q Expr, aggregate: Option<(AggregateFunction, &'q Expr)> },
    /// A list, of aggregates or with GROUP BY.
    List(Vec<ListItem<'q>>),
}

struct ListItem<'q> {
    name: String,
    expr: &'q Expr,
    aggregate: Option<(AggregateFunction, &'q Expr)>,
}

impl<'q> Shape<'q> {
    fn of(select: &'q Select) -> Result<Self, PlanError> {
        match &select.selection {
            Selection::Star(_) => Ok(Shape::Plain),
            Selection::Value(expr) => {
                let aggregate = simple_aggregate(expr)?;
                if aggregate.is_none() && select.group_by.is_none() {
                    return Ok(Shape::Plain);
                }
                Ok(Shape::Value { expr, aggregate })
            }
            Selection::List(items) => {
                let mut list = Vec::with_capacity(items.len());
                for (item, name) in items.iter().zip(select_names(items)) {
                    list.push(ListItem { name, expr: &item.expr, aggregate: simple_aggregate(&item.expr)? });
                }
                let plain = select.group_by.is_none() && list.iter().all(|item| item.aggregate.is_none());
                Ok(if plain { Shape::Plain } else { Shape::List(list) })
            }
        }
    }
}

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
        shape: &Shape<'_>,
        partition_keys: PartitionKeyFilter,
    ) -> Self {
        let merged = matches!(shape, Shape::Plain);
        let order = select.order_by.as_ref().filter(|_| merged).map_or(&[][..], |order_by| &order_by.items);
        let counts = Counts { top: bound.top, offset: bound.offset, limit: bound.limit };
        let (aliases, types) = aliases(shape);
        QueryPlan {
            distinct: distinct_type(select),
            top: counts.top,
            offset: counts.offset,
            limit: counts.limit,
            order_by: order.iter().map(|item| item.direction.unwrap_or(Direction::Ascending)).collect(),
            order_by_expressions: order.iter().map(|item| expr_text(&item.expr)).collect(),
            group_by_expressions: select.group_by.iter().flatten().map(expr_text).collect(),
            group_by_aliases: aliases,
            aggregates: match shape {
                Shape::Value { aggregate: Some((function, _)), .. } => vec![function.plan_name()],
                Shape::Value { .. } | Shape::List(_) | Shape::Plain => Vec::new(),
            },
            alias_types: types,
            rewritten_query: rewrite::rewrite(select, shape, counts),
            has_select_value: matches!(select.selection, Selection::Value(_)),
            partition_keys,
        }
    }

    /// The statement to send to each partition; empty: the one at hand.
    pub fn rewritten_query(&self) -> &str {
        &self.rewritten_query
    }

    /// Which partition keys can hold a result.
    pub fn partition_keys(&self) -> &PartitionKeyFilter {
        &self.partition_keys
    }
}

/// The counts of a statement, parameters resolved.
#[derive(Clone, Copy)]
struct Counts {
    top: Option<u64>,
    offset: Option<u64>,
    limit: Option<u64>,
}

type AliasTypes = Vec<(String, Option<&'static str>)>;

fn aliases(shape: &Shape<'_>) -> (Vec<String>, AliasTypes) {
    let Shape::List(items) = shape else { return (Vec::new(), Vec::new()) };
    let types = items
        .iter()
        .map(|item| (item.name.clone(), item.aggregate.map(|(function, _)| function.plan_name())))
        .collect();
    (items.iter().map(|item| item.name.clone()).collect(), types)
}

/// Sorted by the very value that is to be distinct, duplicates are neighbours.
fn distinct_type(select: &Select) -> DistinctType {
    if !select.distinct {
        return DistinctType::None;
    }
    match (&select.selection, &select.order_by) {
        (Selection::Value(expr), Some(order_by)) if matches!(order_by.items.as_slice(), [key] if same(&key.expr, expr)) => {
            DistinctType::Ordered
        }
        _ => DistinctType::Unordered,
    }
}

impl PlanError {
    /// The part of the service's message that says what is wrong.
    pub fn message(&self) -> String {
        match self {
            PlanError::Invalid(diagnostics) => body(errors_to_json(diagnostics)),
            PlanError::Composition => {
                errors("Compositions of aggregates and other expressions are not allowed.")
            }
            PlanError::UnsupportedFeatures(missing) => features::message(missing),
        }
    }
}

fn errors(text: &str) -> String {
    body(object([("Errors", Value::Array(vec![text.into()]))]))
}

fn body(value: Value) -> String {
    perihelion_model::json::to_text(&value, perihelion_model::json::Style::Query)
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
