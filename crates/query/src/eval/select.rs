//! Evaluation of a whole select over the bindings in scope: its rows, groups
//! and values.
//!
//! The statement itself (one document at a time) and every subquery run
//! through this code. The sources of FROM nest by recursion, one frame each.
//! The binder numbers the frames, so the order of frames must be the same
//! here and in the binder.

use std::collections::HashMap;

use perihelion_model::json::Value;

use super::{Binding, Frame, build_object, evaluate, truth};
use crate::aggregate::{AggregateState, GROUP_BYTES, GROUP_BYTES_MAX};
use crate::ast::Direction;
use crate::context::Context;
use crate::error::{Evaluated, EvaluationError};
use crate::node::{Grouping, Node, OrderNode, Output, SelectNode, SourceNode};
use crate::order::{canonical_key, compare_order, walk_steps, write_key};

/// A callback for each row. It returns `false` to skip the remaining rows.
type Visit<'v> = dyn FnMut(&Frame<'_>) -> Evaluated<bool> + 'v;

/// Calls `visit` for every row of FROM that passes WHERE. Returns `false` if `visit`
/// skipped the remaining rows.
pub(crate) fn each_row(
    select: &SelectNode,
    frame: &Frame<'_>,
    context: &Context,
    visit: &mut Visit<'_>,
) -> Evaluated<bool> {
    join(&select.sources, select.filter.as_ref(), frame, context, visit)
}

/// Binds the first source to each of its values, one after the other. Each value has a
/// frame of its own, within which the remaining sources are bound. When no sources
/// remain, the frame is a row.
fn join(
    sources: &[SourceNode],
    filter: Option<&Node>,
    frame: &Frame<'_>,
    context: &Context,
    visit: &mut Visit<'_>,
) -> Evaluated<bool> {
    let Some((source, rest)) = sources.split_first() else {
        context.budget.spend_steps(1)?;
        return match filter {
            Some(filter) if truth(filter, frame, context)? != Some(true) => Ok(true),
            _ => visit(frame),
        };
    };
    let mut bind = |value: &Value| {
        let inner = Frame::inner(Binding::Value(Some(value)), frame);
        join(rest, filter, &inner, context, visit)
    };
    match source {
        SourceNode::Value(node) => match evaluate(node, frame, context)? {
            Some(value) => bind(&value),
            None => Ok(true),
        },
        SourceNode::Elements(node) => match evaluate(node, frame, context)?.as_deref() {
            Some(Value::Array(items)) => bind_each(items, context, &mut bind),
            _ => Ok(true),
        },
        SourceNode::Rows(select) => {
            let values = values_of(select, frame, context, usize::MAX)?;
            bind_each(&values, context, &mut bind)
        }
    }
}

fn bind_each(
    items: &[Value],
    context: &Context,
    bind: &mut dyn FnMut(&Value) -> Evaluated<bool>,
) -> Evaluated<bool> {
    for item in items {
        context.budget.spend_steps(1)?;
        if !bind(item)? {
            return Ok(false);
        }
    }
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

/// The groups of a select while its rows are read, in order of appearance.
#[derive(Debug)]
pub(crate) struct GroupTable {
    /// From a group's key to its index in `groups`.
    indexes: HashMap<Vec<u8>, usize>,
    groups: Vec<GroupState>,
    /// About how many bytes the groups take; at most [`GROUP_BYTES_MAX`].
    bytes: usize,
}

/// The keys and the aggregates of one group.
#[derive(Debug)]
struct GroupState {
    keys: Vec<Option<Value>>,
    states: Vec<AggregateState>,
}

impl GroupTable {
    pub(crate) fn new(grouping: &Grouping) -> Self {
        let mut table = GroupTable { indexes: HashMap::new(), groups: Vec::new(), bytes: 0 };
        // Aggregates without GROUP BY have one group, even without any row.
        if grouping.keys.is_empty() {
            table.indexes.insert(Vec::new(), 0);
            table.groups.push(GroupState { keys: Vec::new(), states: new_states(grouping) });
        }
        table
    }

    /// Adds a row to its group.
    pub(crate) fn add(&mut self, grouping: &Grouping, row: &Frame<'_>, context: &Context) -> Evaluated<()> {
        let index = self.index_of_group(grouping, row, context)?;
        let states = self.groups.get_mut(index).map_or(&mut [][..], |group| &mut group.states);
        for (aggregate, state) in grouping.aggregates.iter().zip(states) {
            let value = evaluate(&aggregate.argument, row, context)?;
            if let (Some(value), true) = (value.as_deref(), state.reads_contents()) {
                context.budget.spend_steps(walk_steps(value))?;
            }
            self.bytes += state.add(value.as_deref());
        }
        self.check_bytes()
    }

    fn index_of_group(
        &mut self,
        grouping: &Grouping,
        row: &Frame<'_>,
        context: &Context,
    ) -> Evaluated<usize> {
        if grouping.keys.is_empty() {
            return Ok(0);
        }
        let mut keys = Vec::with_capacity(grouping.keys.len());
        let mut key = Vec::new();
        for node in &grouping.keys {
            let value = evaluate(node, row, context)?;
            context.budget.spend_steps(value.as_deref().map_or(0, walk_steps))?;
            write_key(&mut key, value.as_deref());
            keys.push(value);
        }
        if let Some(index) = self.indexes.get(&key) {
            return Ok(*index);
        }
        self.bytes += key.len() * 2 + GROUP_BYTES;
        let index = self.groups.len();
        let keys = keys.into_iter().map(|key| key.map(|key| context.own(key)).transpose());
        self.groups.push(GroupState { keys: keys.collect::<Evaluated<_>>()?, states: new_states(grouping) });
        self.indexes.insert(key, index);
        Ok(index)
    }

    fn check_bytes(&self) -> Evaluated<()> {
        if self.bytes > GROUP_BYTES_MAX { Err(EvaluationError::TooMuchWork) } else { Ok(()) }
    }
}

fn new_states(grouping: &Grouping) -> Vec<AggregateState> {
    grouping.aggregates.iter().map(|aggregate| AggregateState::new(aggregate.function)).collect()
}

/// One row per group.
pub(crate) fn group_rows(
    table: GroupTable,
    select: &SelectNode,
    frame: &Frame<'_>,
    context: &Context,
) -> Evaluated<Vec<KeyedRow>> {
    let mut rows = Vec::with_capacity(table.groups.len());
    for group in table.groups {
        let results: Vec<_> = group.states.into_iter().map(AggregateState::finish).collect();
        let binding = Binding::Group { keys: &group.keys, aggregates: &results };
        let inner = Frame::inner(binding, frame);
        rows.push((output_of(&select.output, &inner, context)?, order_keys(&select.order, &inner, context)?));
    }
    Ok(rows)
}
