//! The rewritten statement, which a client sends to each partition.
//!
//! With this statement, a partition returns aggregates as partial results (`AVG` as sum and
//! count), and sorted rows and groups with their keys. TOP, OFFSET and LIMIT apply to the
//! merged rows. With DISTINCT, aggregates or GROUP BY the rewritten statement has
//! no TOP, OFFSET and LIMIT. Otherwise TOP stays, and OFFSET and LIMIT are widened
//! (`OFFSET 1 LIMIT 2` becomes `OFFSET 0 LIMIT 3`). The text is empty when the statement
//! needs no rewrite.

use perihelion_model::json::print_string;

use super::{Counts, ListItem, ProjectionShape};
use crate::ast::{Count, Expr, OrderBy, Select, Selection, Window};
use crate::bind::{select_names, source_name};
use crate::node::AggregateFunction;
use crate::printer::{Layout, expr_text, print_expr, print_from, print_order_by, print_select};

/// The text in a rewritten statement that the client replaces by its filter for the next page, or
/// by `true`.
pub const FILTER_PLACEHOLDER: &str = "{documentdb-formattableorderbyquery-filter}";

pub(super) fn rewrite(select: &Select, shape: &ProjectionShape<'_>, counts: Counts) -> String {
    match (shape, &select.order_by) {
        (ProjectionShape::Plain, Some(order_by)) => rewrite_ordered(select, order_by, counts),
        (ProjectionShape::Plain, None) => rewrite_plain(select, counts),
        (ProjectionShape::Value { .. } | ProjectionShape::List(_), _) => rewrite_grouped(select, shape),
    }
}

/// Rewrites a statement without ORDER BY and without groups. Only OFFSET, and TOP with
/// DISTINCT, need a rewrite.
fn rewrite_plain(select: &Select, counts: Counts) -> String {
    if select.window.is_none() && !(select.distinct && select.top.is_some()) {
        return String::new();
    }
    let mut statement = select.clone();
    statement.window = widened_window(counts).filter(|_| !select.distinct);
    if select.distinct {
        statement.top = None;
    }
    let mut out = String::new();
    print_select(&mut out, &statement, Layout::Plan);
    out
}

/// The OFFSET and LIMIT for one partition. A partition cannot know which rows to skip,
/// so it returns all rows that may be needed.
fn widened_window(counts: Counts) -> Option<Window> {
    let (offset, limit) = (counts.offset?, counts.limit?);
    Some(Window { offset: Count::literal(0), limit: Count::literal(offset.saturating_add(limit)) })
}

fn rewrite_ordered(select: &Select, order_by: &OrderBy, counts: Counts) -> String {
    let mut out = "SELECT ".to_owned();
    // Duplicates are removed after the merge, so a partition must return all rows.
    if let Some(top) = counts.top.filter(|_| !select.distinct) {
        out.push_str(&format!("TOP {top} "));
    }
    let root = root_name(select);
    out.push_str(&format!(
        "{root}._rid, [{}] AS orderByItems, ",
        items(order_by.items.iter().map(|item| &item.expr))
    ));
    out.push_str(&payload(select, root));
    out.push_str(" AS payload");
    push_from(&mut out, select);
    out.push_str("\nWHERE ");
    out.push_str(&ordered_filter(select));
    out.push('\n');
    print_order_by(&mut out, order_by, Layout::Plan);
    if let Some(window) = widened_window(counts).filter(|_| !select.distinct) {
        push_window(&mut out, &window);
    }
    out
}

/// The name of the document in the statement.
pub(super) fn root_name(select: &Select) -> &str {
    select.from.as_ref().and_then(|from| source_name(&from.first)).unwrap_or("root")
}

fn push_window(out: &mut String, window: &Window) {
    if let (Count::Literal { value: offset }, Count::Literal { value: limit }) =
        (&window.offset, &window.limit)
    {
        out.push_str(&format!("\nOFFSET {offset} LIMIT {limit}"));
    }
}

/// The expression for the row of the result, which the partition returns as `payload`.
pub(super) fn payload(select: &Select, root: &str) -> String {
    match &select.selection {
        Selection::Star(_) => root.to_owned(),
        Selection::Value(expr) => expr_text(expr),
        Selection::List(items) => {
            let names = select_names(items);
            members(names.iter().zip(items).map(|(name, item)| (name.as_str(), expr_text(&item.expr))))
        }
    }
}

/// The filter of an ordered statement: its WHERE, the client's filter, and for
/// SELECT VALUE the condition that the value is defined.
pub(super) fn ordered_filter(select: &Select) -> String {
    let mut filter = match &select.filter {
        Some(condition) => format!("({} AND ({FILTER_PLACEHOLDER}))", expr_text(condition)),
        None => format!("({FILTER_PLACEHOLDER})"),
    };
    if let Selection::Value(expr) = &select.selection {
        filter = format!("({filter} AND IS_DEFINED({}))", expr_text(expr));
    }
    filter
}

fn rewrite_grouped(select: &Select, shape: &ProjectionShape<'_>) -> String {
    let mut out = "SELECT ".to_owned();
    if let Some(keys) = &select.group_by {
        out.push_str(&format!("[{}] AS groupByItems, ", items(keys.iter())));
    }
    out.push_str(&match shape {
        ProjectionShape::Value { aggregate: Some((function, argument)), .. } if select.group_by.is_none() => {
            format!("VALUE [{}]", partial_result(*function, argument))
        }
        ProjectionShape::Value { aggregate: Some((function, argument)), .. } => {
            format!("[{}] AS payload", partial_result(*function, argument))
        }
        ProjectionShape::Value { expr, aggregate: None } => format!("{} AS payload", expr_text(expr)),
        ProjectionShape::List(list) => format!("{} AS payload", list_payload(list)),
        ProjectionShape::Plain => String::new(),
    });
    push_from(&mut out, select);
    if let Some(filter) = &select.filter {
        out.push_str("\nWHERE ");
        print_expr(&mut out, filter);
    }
    if let Some(keys) = &select.group_by {
        let keys: Vec<String> = keys.iter().map(expr_text).collect();
        out.push_str(&format!("\nGROUP BY {}", keys.join(", ")));
    }
    if let Some(order_by) = &select.order_by {
        out.push('\n');
        print_order_by(&mut out, order_by, Layout::Plan);
    }
    out
}

fn list_payload(list: &[ListItem<'_>]) -> String {
    members(list.iter().map(|item| {
        let value = match item.aggregate {
            Some((function, argument)) => partial_result(function, argument),
            None => expr_text(item.expr),
        };
        (item.name.as_str(), value)
    }))
}

/// The expression for the partial result of an aggregate.
fn partial_result(function: AggregateFunction, argument: &Expr) -> String {
    let x = expr_text(argument);
    match function {
        AggregateFunction::Count => format!(r#"{{"item": COUNT({x})}}"#),
        AggregateFunction::CountIf => format!(r#"{{"item": COUNTIF({x})}}"#),
        AggregateFunction::Sum => format!(r#"{{"item": SUM({x})}}"#),
        AggregateFunction::MakeList => format!(r#"{{"item": MAKELIST({x})}}"#),
        AggregateFunction::MakeSet => format!(r#"{{"item": MAKESET({x})}}"#),
        AggregateFunction::Average => {
            format!(r#"{{"item": {{"sum": SUM({x}), "count": COUNT({x})}}}}"#)
        }
        AggregateFunction::Min => {
            format!(r#"{{"item": MIN({x}), "item2": {{"min": MIN({x}), "count": COUNT({x})}}}}"#)
        }
        AggregateFunction::Max => {
            format!(r#"{{"item": MAX({x}), "item2": {{"max": MAX({x}), "count": COUNT({x})}}}}"#)
        }
    }
}

/// The expressions for sort keys or group keys: `{"item": a}, {"item": b}`.
fn items<'q>(exprs: impl Iterator<Item = &'q Expr>) -> String {
    let items: Vec<String> = exprs.map(|expr| format!(r#"{{"item": {}}}"#, expr_text(expr))).collect();
    items.join(", ")
}

/// The expression for an object with these members.
fn members<'a>(members: impl Iterator<Item = (&'a str, String)>) -> String {
    let members: Vec<String> = members
        .map(|(name, value)| {
            let mut out = String::new();
            print_string(&mut out, name);
            format!("{out}: {value}")
        })
        .collect();
    format!("{{{}}}", members.join(", "))
}

pub(super) fn push_from(out: &mut String, select: &Select) {
    if let Some(from) = &select.from {
        out.push('\n');
        print_from(out, from, "\n");
    }
}
