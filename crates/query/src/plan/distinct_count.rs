//! Plans that count distinct values: `SELECT COUNT(1) FROM (SELECT DISTINCT …)`.
//!
//! The partitions cannot count, because the same value can be in several partitions. The plan is
//! the plan of the subquery, and its `dCountInfo` says that the client counts the merged rows.

use super::features::Supported;
use super::{PartitionKeyFilter, PlanError, ProjectionShape, QueryPlan};
use crate::ast::{Collection, Expr, ExprKind, Select, Selection, Source};
use crate::bind::{Bound, aggregate_call, select_names};
use crate::node::AggregateFunction;
use crate::printer::{Layout, print_select};

/// Plans a statement that counts the rows of a SELECT DISTINCT; `None` for other statements.
pub(super) fn plan(
    select: &Select,
    bound: &Bound,
    supported: &Supported<'_>,
    partition_keys: &PartitionKeyFilter,
) -> Result<Option<QueryPlan>, PlanError> {
    let (Some(inner), Some(alias), Some(bound)) = (distinct_rows(select), count_alias(select), &bound.inner)
    else {
        return Ok(None);
    };
    supported.check_all(vec!["DCount"])?;
    let mut rewritten_query = String::new();
    print_select(&mut rewritten_query, inner, Layout::Plan);
    let plan = QueryPlan::new(inner, &bound.select, &ProjectionShape::Plain, partition_keys.clone());
    let has_select_value = matches!(select.selection, Selection::Value(_));
    Ok(Some(QueryPlan { rewritten_query, has_select_value, distinct_count_alias: Some(alias), ..plan }))
}

/// The subquery in FROM, if it is a plain SELECT DISTINCT and the statement reads all its rows and
/// nothing else.
fn distinct_rows(select: &Select) -> Option<&Select> {
    let from = select.from.as_ref()?;
    let Source::Aliased { collection: Collection::Subquery { select: inner, .. }, .. } = &from.first else {
        return None;
    };
    let reads_all = select.filter.is_none()
        && select.group_by.is_none()
        && select.order_by.is_none()
        && select.top.is_none()
        && select.window.is_none()
        && !select.distinct
        && from.joins.is_empty();
    let is_plain = inner.distinct
        && inner.group_by.is_none()
        && inner.order_by.is_none()
        && inner.top.is_none()
        && inner.window.is_none()
        && matches!(ProjectionShape::of(inner), Ok(ProjectionShape::Plain));
    (reads_all && is_plain).then_some(inner)
}

/// The name of the count; empty for SELECT VALUE. `None` if the statement selects anything other
/// than one count of rows.
fn count_alias(select: &Select) -> Option<String> {
    match &select.selection {
        Selection::Value(expr) => counts_rows(expr).then(String::new),
        Selection::List(items) => match items.as_slice() {
            [item] if counts_rows(&item.expr) => select_names(items).pop(),
            _ => None,
        },
        Selection::Star(_) => None,
    }
}

/// Whether the expression is COUNT of a constant.
fn counts_rows(expr: &Expr) -> bool {
    match aggregate_call(expr) {
        Some((AggregateFunction::Count, [argument])) => {
            matches!(argument.kind, ExprKind::Literal(Some(_)))
        }
        _ => false,
    }
}
