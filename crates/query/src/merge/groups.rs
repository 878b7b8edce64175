//! Groups, merged from the partial groups of the partitions.
//!
//! Each range has a table of its own, which is added to the merged table when the
//! range is at its end. If the range is split before that, its table is discarded and
//! the new ranges start from the beginning, because a continuation of groups is valid
//! only for the range that returned it.

use std::collections::HashMap;

use perihelion_model::json::{Object, Value};

use super::MergeError;
use super::plan::{GroupFormat, GroupSortKey, Projection};
use crate::aggregate::{AggregateState, GROUP_BYTES, GROUP_BYTES_MAX};
use crate::ast::Direction;
use crate::node::AggregateFunction;
use crate::order::{compare_order, write_key};

/// The error of a partial result that cannot be added.
const MALFORMED_PARTIAL: MergeError =
    MergeError::UnexpectedRow("the partial result of an aggregate is malformed");

/// A table of groups.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// From a group's key to its index in `groups`.
    indexes: HashMap<Vec<u8>, usize>,
    /// The values of each group, in the order in which the groups appeared.
    groups: Vec<Vec<GroupValue>>,
    /// For each group, the GROUP BY values by which the groups are sorted.
    sort_values: Vec<Vec<Option<Value>>>,
    /// About how many bytes the groups take; at most [`GROUP_BYTES_MAX`].
    bytes: usize,
}

/// One value of a group while it is merged.
#[derive(Debug)]
enum GroupValue {
    /// A value that all rows of the group share; `None` while no row had it.
    Shared(Option<Value>),
    Aggregate(AggregateState),
}

impl Groups {
    /// Adds a row of a partition's page.
    pub(super) fn add(&mut self, grouping: &GroupFormat, row: Value) -> Result<(), MergeError> {
        let (key, sort_values, mut payload) = split_row(grouping, row)?;
        let index = self.index_of_group(key, sort_values, grouping)?;
        let Groups { groups, bytes, .. } = self;
        let Some(values) = groups.get_mut(index) else { return Ok(()) };
        for (index, value) in values.iter_mut().enumerate() {
            *bytes += value.add(take_partial(&grouping.projection, index, &mut payload))?;
        }
        self.check_bytes()
    }

    /// Adds the groups of the next range.
    pub(super) fn merge(&mut self, grouping: &GroupFormat, other: Groups) -> Result<(), MergeError> {
        let mut keys: Vec<(Vec<u8>, usize)> = other.indexes.into_iter().collect();
        keys.sort_unstable_by_key(|(_, index)| *index);
        for (((key, _), more), sort_values) in keys.into_iter().zip(other.groups).zip(other.sort_values) {
            let index = self.index_of_group(key, sort_values, grouping)?;
            let Groups { groups, bytes, .. } = self;
            for (value, more) in groups.get_mut(index).into_iter().flatten().zip(more) {
                *bytes += value.merge(more)?;
            }
        }
        self.check_bytes()
    }

    fn index_of_group(
        &mut self,
        key: Vec<u8>,
        sort_values: Vec<Option<Value>>,
        grouping: &GroupFormat,
    ) -> Result<usize, MergeError> {
        if let Some(index) = self.indexes.get(&key) {
            return Ok(*index);
        }
        // The sort values are parts of the key, so they take at most about as many bytes as the key.
        let copies = if sort_values.is_empty() { 1 } else { 2 };
        self.bytes += copies * key.len() + GROUP_BYTES;
        self.check_bytes()?;
        let index = self.groups.len();
        self.indexes.insert(key, index);
        self.groups.push(empty_values(&grouping.projection));
        self.sort_values.push(sort_values);
        Ok(index)
    }

    fn check_bytes(&self) -> Result<(), MergeError> {
        if self.bytes > GROUP_BYTES_MAX { Err(MergeError::TooLarge("too many groups")) } else { Ok(()) }
    }

    /// One value per group, in the order of the statement, except for groups whose value is
    /// undefined.
    pub(super) fn finish(mut self, grouping: &GroupFormat) -> Vec<Value> {
        // Aggregates without GROUP BY have one group, even without any row.
        if !grouping.has_keys && self.groups.is_empty() {
            self.groups.push(empty_values(&grouping.projection));
            self.sort_values.push(Vec::new());
        }
        let (keys, directions): (Vec<GroupSortKey>, Vec<Direction>) = grouping.order.iter().copied().unzip();
        let groups = self.groups.into_iter().zip(self.sort_values).map(|(values, sort_values)| {
            let values: Vec<Option<Value>> = values.into_iter().map(GroupValue::finish).collect();
            let mut sort_values = sort_values.into_iter();
            let keys = keys.iter().map(|key| match key {
                GroupSortKey::GroupBy(_) => sort_values.next().flatten(),
                GroupSortKey::Selected(index) => values.get(*index).cloned().flatten(),
            });
            (keys.collect::<Vec<_>>(), values)
        });
        let mut groups: Vec<(Vec<_>, Vec<_>)> = groups.collect();
        // Without sort keys all groups are equal, and stay in the order in which they appeared.
        groups.sort_by(|(one, _), (other, _)| compare_order(one, other, &directions));
        groups.into_iter().filter_map(|(_, values)| project(&grouping.projection, values)).collect()
    }
}

/// The parts of a row: the key of its group, the GROUP BY values by which groups are sorted, and the
/// payload.
type RowParts = (Vec<u8>, Vec<Option<Value>>, Option<Value>);

/// Divides a row into its parts.
fn split_row(grouping: &GroupFormat, row: Value) -> Result<RowParts, MergeError> {
    let is_only_payload = matches!(grouping.projection, Projection::Value(_)) && !grouping.has_keys;
    if is_only_payload {
        return Ok((Vec::new(), Vec::new(), Some(row)));
    }
    let Value::Object(mut row) = row else {
        return Err(MergeError::UnexpectedRow("a group is not an object"));
    };
    let (mut key, mut sort_values) = (Vec::new(), Vec::new());
    if grouping.has_keys {
        let Some(Value::Array(items)) = row.get("groupByItems") else {
            return Err(MergeError::UnexpectedRow("a group has no groupByItems"));
        };
        items.iter().for_each(|item| write_key(&mut key, item.get("item")));
        for (sort_key, _) in &grouping.order {
            if let GroupSortKey::GroupBy(index) = sort_key {
                sort_values.push(items.get(*index).and_then(|item| item.get("item")).cloned());
            }
        }
    }
    Ok((key, sort_values, row.remove("payload")))
}

/// Takes the partial result for one value of the group from a row's payload. `index` is the place of
/// the value in the projection. For `VALUE AGG(x)` the payload is a list of one partial result.
fn take_partial(projection: &Projection, index: usize, payload: &mut Option<Value>) -> Option<Value> {
    match (projection, payload) {
        (Projection::Value(Some(_)), Some(Value::Array(parts))) => parts.pop(),
        (Projection::Value(_), payload) => payload.take(),
        (Projection::List(items), Some(Value::Object(members))) => members.remove(&items.get(index)?.0),
        (Projection::List(_), _) => None,
    }
}

/// The values of a group without rows.
fn empty_values(projection: &Projection) -> Vec<GroupValue> {
    let value = |function: &Option<AggregateFunction>| match function {
        Some(function) => GroupValue::Aggregate(AggregateState::new(*function)),
        None => GroupValue::Shared(None),
    };
    match projection {
        Projection::Value(function) => vec![value(function)],
        Projection::List(items) => items.iter().map(|(_, function)| value(function)).collect(),
    }
}

impl GroupValue {
    /// Adds the partial result of one row. Returns about how many bytes the value grew by.
    fn add(&mut self, partial: Option<Value>) -> Result<usize, MergeError> {
        match self {
            GroupValue::Shared(Some(_)) => Ok(0),
            GroupValue::Shared(shared) => {
                *shared = partial;
                Ok(0)
            }
            GroupValue::Aggregate(state) => {
                partial.and_then(|partial| state.add_partial(&partial)).ok_or(MALFORMED_PARTIAL)
            }
        }
    }

    /// Adds the value of the same group in another range. Returns about how many bytes the
    /// value grew by.
    fn merge(&mut self, more: GroupValue) -> Result<usize, MergeError> {
        match (self, more) {
            (GroupValue::Aggregate(state), GroupValue::Aggregate(more)) => {
                state.merge(more).ok_or(MALFORMED_PARTIAL)
            }
            (GroupValue::Shared(shared), GroupValue::Shared(more)) => {
                if shared.is_none() {
                    *shared = more;
                }
                Ok(0)
            }
            // Both tables have the same projection.
            (GroupValue::Aggregate(_), GroupValue::Shared(_))
            | (GroupValue::Shared(_), GroupValue::Aggregate(_)) => Ok(0),
        }
    }

    fn finish(self) -> Option<Value> {
        match self {
            GroupValue::Shared(value) => value,
            GroupValue::Aggregate(state) => state.finish(),
        }
    }
}

/// The row of the result for a group; `None` when it is undefined.
fn project(projection: &Projection, values: Vec<Option<Value>>) -> Option<Value> {
    let mut values = values.into_iter();
    match projection {
        Projection::Value(_) => values.next().flatten(),
        Projection::List(items) => {
            let members = items.iter().zip(values);
            let defined = members.filter_map(|((name, _), value)| Some((name.clone(), value?)));
            Some(Value::Object(Object::from_members(defined.collect())))
        }
    }
}
