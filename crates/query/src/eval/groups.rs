//! The table of groups, for GROUP BY and aggregates.
//!
//! A table holds all groups, or only those in a [`GroupWindow`]: the first groups, in the
//! order of their positions, after a given position. The size of a window is bounded,
//! however many groups there are. The next window begins after the last position of this one,
//! whichever groups were added or removed in the meantime.

use std::collections::{BTreeMap, HashMap};

use perihelion_model::json::Value;

use super::select::{KeyedRow, order_keys, output_of};
use super::{Binding, Frame, evaluate};
use crate::aggregate::{AggregateState, GROUP_BYTES, GROUP_BYTES_MAX};
use crate::context::Context;
use crate::error::{Evaluated, EvaluationError};
use crate::node::{Grouping, SelectNode};
use crate::order::{walk_steps, write_key};

/// Which groups a table keeps; see [`Program::groups_after`](crate::Program::groups_after).
#[derive(Debug, Clone)]
pub struct GroupWindow {
    /// The position of a group, from its GROUP BY values. Two groups have different
    /// positions.
    pub position_of: fn(&[Option<&Value>]) -> Vec<u8>,
    /// Only groups after this position are kept. Every group is after the empty position.
    pub after: Vec<u8>,
    /// The most groups that are kept; at least 1.
    pub groups_max: usize,
    /// The most bytes of the groups, by an estimate. A single group may take more.
    pub bytes_max: usize,
}

/// The groups of a select while its rows are read.
#[derive(Debug)]
pub(crate) struct GroupTable {
    /// From a group's key to its index in `groups`.
    indexes: HashMap<Vec<u8>, usize>,
    /// The groups, in order of appearance unless the window dropped one; `None` for a
    /// dropped group.
    groups: Vec<Option<GroupState>>,
    /// The indexes of dropped groups, which new groups take.
    free: Vec<usize>,
    /// An estimate of the bytes that the groups take; at most [`GROUP_BYTES_MAX`].
    bytes: usize,
    window: Option<OpenWindow>,
}

/// The keys and the aggregates of one group.
#[derive(Debug)]
struct GroupState {
    keys: Vec<Option<Value>>,
    states: Vec<AggregateState>,
    /// The key in `indexes`.
    key: Vec<u8>,
    /// The part of [`GroupTable::bytes`] that this group takes.
    bytes: usize,
}

/// A window while rows are added.
#[derive(Debug)]
struct OpenWindow {
    limits: GroupWindow,
    /// From the positions of the groups in the window to their indexes.
    positions: BTreeMap<Vec<u8>, usize>,
    /// Whether a group was left out because the window was full. The last position only
    /// moves down from then on, so a group that was left out is never let in again.
    is_full: bool,
}

impl GroupTable {
    pub(crate) fn new(grouping: &Grouping) -> Self {
        let (indexes, groups, free) = (HashMap::new(), Vec::new(), Vec::new());
        let mut table = GroupTable { indexes, groups, free, bytes: 0, window: None };
        // Aggregates without GROUP BY have one group, even without any row.
        if grouping.keys.is_empty() {
            table.push(Vec::new(), Vec::new(), grouping);
        }
        table
    }

    /// A table of the groups in a window. Aggregates without GROUP BY have one group and no
    /// window.
    pub(crate) fn within(grouping: &Grouping, window: GroupWindow) -> Self {
        let open = OpenWindow { limits: window, positions: BTreeMap::new(), is_full: false };
        GroupTable { window: Some(open).filter(|_| !grouping.keys.is_empty()), ..GroupTable::new(grouping) }
    }

    /// Adds a row to its group.
    pub(crate) fn add(&mut self, grouping: &Grouping, row: &Frame<'_>, context: &Context) -> Evaluated<()> {
        let Some(index) = self.index_of_group(grouping, row, context)? else { return Ok(()) };
        let Some(Some(group)) = self.groups.get_mut(index) else { return Ok(()) };
        for (aggregate, state) in grouping.aggregates.iter().zip(&mut group.states) {
            let value = evaluate(&aggregate.argument, row, context)?;
            if let (Some(value), true) = (value.as_deref(), state.reads_contents()) {
                context.budget.spend_steps(walk_steps(value))?;
            }
            let grown = state.add(value.as_deref());
            group.bytes += grown;
            self.bytes += grown;
        }
        self.keep_within_bytes()
    }

    /// Adds rows to the one group of a select without GROUP BY whose aggregates count rows.
    pub(crate) fn count_rows(&mut self, grouping: &Grouping, rows: i64) {
        let Some(Some(group)) = self.groups.first_mut() else { return };
        for (aggregate, state) in grouping.aggregates.iter().zip(&mut group.states) {
            // COUNT ignores undefined values.
            let is_defined = aggregate.argument.as_constant().is_none_or(Option::is_some);
            if let (AggregateState::Count(count), true) = (state, is_defined) {
                *count = count.saturating_add(rows);
            }
        }
    }

    /// The index of the row's group, which is created if it is new; `None` if the group is
    /// not in the window.
    fn index_of_group(
        &mut self,
        grouping: &Grouping,
        row: &Frame<'_>,
        context: &Context,
    ) -> Evaluated<Option<usize>> {
        if grouping.keys.is_empty() {
            return Ok(Some(0));
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
            return Ok(Some(*index));
        }
        // Groups outside the window are not copied: there may be one for every row of a join.
        let position = match &mut self.window {
            Some(window) => {
                let borrowed: Vec<Option<&Value>> = keys.iter().map(Option::as_deref).collect();
                let position = (window.limits.position_of)(&borrowed);
                if !window.admits(&position) {
                    return Ok(None);
                }
                Some(position)
            }
            None => None,
        };
        let keys = keys.into_iter().map(|key| key.map(|key| context.own(key)).transpose());
        let index = self.push(key, keys.collect::<Evaluated<Vec<_>>>()?, grouping);
        if let (Some(window), Some(position)) = (&mut self.window, position) {
            window.positions.insert(position, index);
        }
        if self.window.as_ref().is_some_and(|window| window.positions.len() > window.limits.groups_max) {
            self.drop_last();
        }
        Ok(Some(index))
    }

    /// Adds a group; returns its index.
    fn push(&mut self, key: Vec<u8>, keys: Vec<Option<Value>>, grouping: &Grouping) -> usize {
        let bytes = key.len() * 2 + GROUP_BYTES;
        self.bytes += bytes;
        let states = grouping.aggregates.iter().map(|aggregate| AggregateState::new(aggregate.function));
        let group = GroupState { keys, states: states.collect(), key: key.clone(), bytes };
        let index = self.free.pop().unwrap_or(self.groups.len());
        match self.groups.get_mut(index) {
            Some(slot) => *slot = Some(group),
            None => self.groups.push(Some(group)),
        }
        self.indexes.insert(key, index);
        index
    }

    /// Drops the group with the last position of the window.
    fn drop_last(&mut self) {
        let Some(window) = &mut self.window else { return };
        let Some((_, index)) = window.positions.pop_last() else { return };
        window.is_full = true;
        if let Some(group) = self.groups.get_mut(index).and_then(Option::take) {
            self.indexes.remove(&group.key);
            self.bytes -= group.bytes;
            self.free.push(index);
        }
    }

    /// Drops groups from the end of the window until the rest fits. Without a window, or
    /// with one group, nothing can be dropped.
    fn keep_within_bytes(&mut self) -> Evaluated<()> {
        let is_too_large = |table: &GroupTable| {
            let window = table.window.as_ref();
            window.is_some_and(|open| table.bytes > open.limits.bytes_max && open.positions.len() > 1)
        };
        while is_too_large(self) {
            self.drop_last();
        }
        if self.bytes > GROUP_BYTES_MAX { Err(EvaluationError::TooMuchWork) } else { Ok(()) }
    }

    /// An estimate of the bytes that the groups take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The last position of the window, if the window has no room for groups after it.
    pub(crate) fn window_end(&self) -> Option<&[u8]> {
        let window = self.window.as_ref()?;
        let is_full = window.is_full || window.positions.len() >= window.limits.groups_max;
        window.positions.last_key_value().filter(|_| is_full).map(|(last, _)| last.as_slice())
    }

    /// Whether no group was left out because the window was full.
    pub(crate) fn is_whole(&self) -> bool {
        self.window.as_ref().is_none_or(|window| !window.is_full)
    }

    /// The positions of the groups, in the order of [`group_rows`].
    pub(crate) fn positions(&self) -> Vec<Vec<u8>> {
        let Some(window) = &self.window else { return vec![Vec::new(); self.indexes.len()] };
        let mut positions: Vec<_> = window.positions.iter().collect();
        positions.sort_unstable_by_key(|(_, index)| **index);
        positions.into_iter().map(|(position, _)| position.clone()).collect()
    }
}

impl OpenWindow {
    /// Whether a new group at this position belongs to the window.
    fn admits(&mut self, position: &[u8]) -> bool {
        if position <= self.limits.after.as_slice() {
            return false;
        }
        let has_room = self.positions.len() < self.limits.groups_max && !self.is_full;
        let is_before_last = self.positions.last_key_value().is_some_and(|(last, _)| position < last);
        self.is_full |= !has_room && !is_before_last;
        has_room || is_before_last
    }
}

/// One row per group, in the order in which the groups appeared unless the window dropped
/// one.
pub(crate) fn group_rows(
    table: GroupTable,
    select: &SelectNode,
    frame: &Frame<'_>,
    context: &Context,
) -> Evaluated<Vec<KeyedRow>> {
    let mut rows = Vec::with_capacity(table.indexes.len());
    for group in table.groups.into_iter().flatten() {
        let results: Vec<_> = group.states.into_iter().map(AggregateState::finish).collect();
        let binding = Binding::Group { keys: &group.keys, aggregates: &results };
        let inner = Frame::inner(binding, frame);
        rows.push((output_of(&select.output, &inner, context)?, order_keys(&select.order, &inner, context)?));
    }
    Ok(rows)
}
