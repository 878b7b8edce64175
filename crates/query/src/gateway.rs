//! The behaviour of the service's gateway for a query without a partition key.
//!
//! The gateway runs a statement that each partition can answer on its own. For most
//! other statements it tells the client to fetch a query plan. It refuses some
//! aggregates (`docs/cosmos.md`, queries).

use crate::ast::{Select, Selection};
use crate::bind::{aggregate_call, contains_aggregate, subquery_to_run_first};

/// The gateway's response to a statement across partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatewayVerdict {
    /// The gateway runs the statement.
    Served,
    /// 400/1004: the client has to fetch the plan and merge the partitions'
    /// results.
    NeedsPlan,
    /// 400: "Cross partition query only supports `VALUE <AggregateFunc>` for
    /// aggregates." With GROUP BY, `VALUE <AggregateFunc>` gets this answer too.
    AggregateNotValue,
}

pub(crate) fn gateway_verdict(select: &Select) -> GatewayVerdict {
    let (has_aggregate, is_value_aggregate) = match &select.selection {
        Selection::Star(_) => (false, false),
        Selection::List(items) => (items.iter().any(|item| contains_aggregate(&item.expr)), false),
        Selection::Value(expr) => (contains_aggregate(expr), aggregate_call(expr).is_some()),
    };
    let has_group_by = select.group_by.is_some();
    if has_aggregate && (has_group_by || !is_value_aggregate) {
        return GatewayVerdict::AggregateNotValue;
    }
    let needs_plan = has_aggregate
        || has_group_by
        || select.distinct
        || select.top.is_some()
        || select.order_by.is_some()
        || select.window.is_some()
        // A subquery in FROM that has to run before this select. Either it needs the documents of all
        // partitions (for example because it has DISTINCT), or it has no FROM and reads no document.
        || subquery_to_run_first(select).is_some();
    if needs_plan { GatewayVerdict::NeedsPlan } else { GatewayVerdict::Served }
}
