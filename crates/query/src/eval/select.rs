//! Evaluation of a whole select over the bindings in scope: its rows, groups
//! and values.
//!
//! The statement itself (one document at a time) and every subquery run
//! through this code. The sources of FROM nest by recursion, one frame each.
//! The binder numbers the frames, so the order of frames must be the same
//! here and in the binder.

use perihelion_model::json::Value;

use super::groups::{GroupTable, group_rows};
use super::{Binding, Frame, build_object, evaluate, truth};
use crate::ast::Direction;
use crate::context::Context;
use crate::error::Evaluated;
use crate::node::{Node, OrderNode, Output, SelectNode, SourceNode};
use crate::order::{canonical_key, compare_order};

/// A callback for each row. It returns `false` to skip the remaining rows.
type Visit<'v> = dyn FnMut(&Frame<'_>) -> Evaluated<bool> + 'v;

/// A callback for each row and its place (see [`JoinWalk`]). It returns `false` to end the walk at
/// this row.
type VisitPlace<'v> = dyn FnMut(&Frame<'_>, &[u32]) -> Evaluated<bool> + 'v;

/// Calls `visit` for every row of FROM that passes WHERE. Returns `false` if `visit`
/// skipped the remaining rows.
pub(crate) fn each_row(
    select: &SelectNode,
    frame: &Frame<'_>,
    context: &Context,
    visit: &mut Visit<'_>,
) -> Evaluated<bool> {
    each_row_from(select, frame, context, &mut JoinWalk::default(), &mut |row, _| visit(row))
}

/// Calls `visit` like [`each_row`], but begins at the place of the walk. If `visit` returns `false`,
/// or if the budget is spent, the walk stays at that row, and a later walk can begin with it.
pub(crate) fn each_row_from(
    select: &SelectNode,
    frame: &Frame<'_>,
    context: &Context,
    walk: &mut JoinWalk,
    visit: &mut VisitPlace<'_>,
) -> Evaluated<bool> {
    join(&select.sources, select.filter.as_ref(), frame, context, walk, visit)
}

/// A walk over the rows of FROM, and the place that it has reached. The place of a row has one number
/// for each array or subquery of FROM, outermost first: the index of the element that is bound in
/// this row.
#[derive(Debug, Default)]
pub(crate) struct JoinWalk {
    /// The elements that are bound now.
    elements: Vec<u32>,
    /// Where the walk begins; empty once the first row was reached.
    start: Vec<u32>,
}

impl JoinWalk {
    pub(crate) fn from(start: Vec<u32>) -> Self {
        JoinWalk { elements: Vec::new(), start }
    }

    /// The elements that are bound now. After an early end: those of the row at which the walk ended.
    pub(crate) fn elements(&self) -> &[u32] {
        &self.elements
    }

    /// The element at which the next source begins.
    fn first_element(&self) -> usize {
        self.start.get(self.elements.len()).map_or(0, |element| *element as usize)
    }
}

/// Binds the first source to each of its values, one after the other. Each value has a
/// frame of its own, within which the remaining sources are bound. When no sources
/// remain, the frame is a row.
fn join(
    sources: &[SourceNode],
    filter: Option<&Node>,
    frame: &Frame<'_>,
    context: &Context,
    walk: &mut JoinWalk,
    visit: &mut VisitPlace<'_>,
) -> Evaluated<bool> {
    let Some((source, rest)) = sources.split_first() else {
        walk.start.clear();
        context.budget.spend_steps(1)?;
        return match filter {
            Some(filter) if truth(filter, frame, context)? != Some(true) => Ok(true),
            _ => visit(frame, &walk.elements),
        };
    };
    let mut bind = |value: &Value, walk: &mut JoinWalk| {
        let inner = Frame::inner(Binding::Value(Some(value)), frame);
        join(rest, filter, &inner, context, walk, visit)
    };
    match source {
        SourceNode::Value(node) => match evaluate(node, frame, context)? {
            Some(value) => bind(&value, walk),
            None => Ok(true),
        },
        SourceNode::Elements(node) => match evaluate(node, frame, context)?.as_deref() {
            Some(Value::Array(items)) => bind_each(items, context, walk, &mut bind),
            _ => Ok(true),
        },
        SourceNode::Rows(select) => {
            let values = values_of(select, frame, context, usize::MAX)?;
            bind_each(&values, context, walk, &mut bind)
        }
        SourceNode::ElementsOfRows(select) => {
            let rows = values_of(select, frame, context, usize::MAX)?;
            let arrays = rows.into_iter().filter_map(|row| match row {
                Value::Array(items) => Some(items),
                _ => None,
            });
            bind_each(&arrays.flatten().collect::<Vec<_>>(), context, walk, &mut bind)
        }
    }
}

/// Binds a source to each of its elements. After an early end the walk keeps the elements of
/// the row at which it ended.
fn bind_each(
    items: &[Value],
    context: &Context,
    walk: &mut JoinWalk,
    bind: &mut dyn FnMut(&Value, &mut JoinWalk) -> Evaluated<bool>,
) -> Evaluated<bool> {
    let first = walk.first_element();
    for (number, item) in items.iter().enumerate().skip(first) {
        if number > first {
            walk.start.clear();
        }
        walk.elements.push(u32::try_from(number).unwrap_or(u32::MAX));
        context.budget.spend_steps(1)?;
        if !bind(item, walk)? {
            return Ok(false);
        }
        walk.elements.pop();
    }
    walk.start.clear();
    Ok(true)
}

/// The projection of one row; `None` when the projected value is undefined.
pub(crate) fn output_of(output: &Output, frame: &Frame<'_>, context: &Context) -> Evaluated<Option<Value>> {
    match output {
        Output::Value(node) => evaluate(node, frame, context)?.map(|value| context.own(value)).transpose(),
        Output::Object(members) => build_object(members, frame, context).map(Some),
    }
}

/// The values of the ORDER BY keys for one row.
pub(crate) fn order_keys(
    order: &[OrderNode],
    frame: &Frame<'_>,
    context: &Context,
) -> Evaluated<Vec<Option<Value>>> {
    order
        .iter()
        .map(|key| evaluate(&key.node, frame, context)?.map(|value| context.own(value)).transpose())
        .collect()
}

/// A projected row and its sort keys.
pub(crate) type KeyedRow = (Option<Value>, Vec<Option<Value>>);

/// At most `values_max` values of a select, after DISTINCT, ORDER BY, OFFSET, LIMIT and
/// TOP. A select without ORDER BY and without groups reads only as many rows as it needs.
pub(crate) fn values_of(
    select: &SelectNode,
    frame: &Frame<'_>,
    context: &Context,
    values_max: usize,
) -> Evaluated<Vec<Value>> {
    let rows_needed = rows_needed(select, values_max);
    let mut seen = std::collections::HashSet::new();
    let mut rows: Vec<KeyedRow> = Vec::new();
    // Adds a row if it is defined and, for DISTINCT, new; returns the number of rows.
    let mut add = |row: KeyedRow| {
        let Some(value) = &row.0 else { return rows.len() };
        if !select.distinct || seen.insert(canonical_key(Some(value))) {
            rows.push(row);
        }
        rows.len()
    };
    if let Some(grouping) = &select.grouping {
        let mut table = GroupTable::new(grouping);
        each_row(select, frame, context, &mut |row| table.add(grouping, row, context).map(|()| true))?;
        for row in group_rows(table, select, frame, context)? {
            add(row);
        }
    } else {
        each_row(select, frame, context, &mut |row| {
            let value = output_of(&select.output, row, context)?;
            let keys = order_keys(&select.order, row, context)?;
            Ok(add((value, keys)) < rows_needed)
        })?;
    }
    sort_rows(&mut rows, &select.order);
    Ok(apply_window(select, rows.into_iter().filter_map(|(value, _)| value)).take(values_max).collect())
}

/// How many rows, after DISTINCT, are needed for the result. A sort needs all rows.
fn rows_needed(select: &SelectNode, values_max: usize) -> usize {
    if !select.order.is_empty() {
        return usize::MAX;
    }
    let offset = select.offset.unwrap_or(0);
    let count = select.limit.unwrap_or(u64::MAX).min(select.top.unwrap_or(u64::MAX)).min(values_max as u64);
    usize::try_from(offset.saturating_add(count)).unwrap_or(usize::MAX)
}

pub(crate) fn sort_rows(rows: &mut [KeyedRow], order: &[OrderNode]) {
    if order.is_empty() {
        return;
    }
    let directions: Vec<Direction> = order.iter().map(|key| key.direction).collect();
    rows.sort_by(|a, b| compare_order(&a.1, &b.1, &directions));
}

/// Applies OFFSET, LIMIT and TOP.
fn apply_window(select: &SelectNode, values: impl Iterator<Item = Value>) -> impl Iterator<Item = Value> {
    let size = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    values
        .skip(size(select.offset.unwrap_or(0)))
        .take(size(select.limit.unwrap_or(u64::MAX)))
        .take(size(select.top.unwrap_or(u64::MAX)))
}
