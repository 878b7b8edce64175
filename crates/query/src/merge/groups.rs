//! Groups put together from what the partitions found of them.
//!
//! Every range collects in a table of its own, which counts only once the
//! range was read to its end: should it be split before, what it gave so far
//! is thrown away and its halves start afresh. A continuation over groups
//! means something to the very range that gave it, and to no other.

use std::collections::HashMap;

use perihelion_model::json::{Object, Value};

use super::MergeError;
use super::plan::{Grouping, Projection};
use crate::aggregate::AggregateState;
use crate::node::AggregateFunction;
use crate::order::write_key;

/// Bytes that the groups of one table may hold; the engine's limit too.
const GROUP_BYTES_MAX: usize = 256 * 1024 * 1024;

/// What a group costs besides its key: map entry and states.
const GROUP_BYTES: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Groups {
    places: HashMap<Vec<u8>, usize>,
    /// In order of appearance.
    groups: Vec<Vec<Cell>>,
    bytes: usize,
}

/// One value of a group in the making.
#[derive(Debug)]
enum Cell {
    /// What all rows of the group share.
    Shared(Option<Value>),
    Aggregate(AggregateState),
}

impl Groups {
    /// Takes a row of a partition's answer.
    pub(super) fn add(&mut self, grouping: &Grouping, row: Value) -> Result<(), MergeError> {
        let (key, mut payload) = open(grouping, row)?;
        let place = self.place(key, grouping)?;
        let Groups { groups, bytes, .. } = self;
        let Some(cells) = groups.get_mut(place) else { return Ok(()) };
        for (index, cell) in cells.iter_mut().enumerate() {
            *bytes += cell.add(part_of(&grouping.projection, index, &mut payload))?;
        }
        self.check()
    }

    /// Takes in the groups of a range that comes after.
    pub(super) fn absorb(&mut self, grouping: &Grouping, other: Groups) -> Result<(), MergeError> {
        let mut keys: Vec<(Vec<u8>, usize)> = other.places.into_iter().collect();
        keys.sort_unstable_by_key(|(_, place)| *place);
        for ((key, _), more) in keys.into_iter().zip(other.groups) {
            let place = self.place(key, grouping)?;
            let Groups { groups, bytes, .. } = self;
            for (cell, more) in groups.get_mut(place).into_iter().flatten().zip(more) {
                *bytes += cell.absorb(more);
            }
        }
        self.check()
    }

    fn place(&mut self, key: Vec<u8>, grouping: &Grouping) -> Result<usize, MergeError> {
        if let Some(place) = self.places.get(&key) {
            return Ok(*place);
        }
        self.bytes += key.len() + GROUP_BYTES;
        self.check()?;
        let place = self.groups.len();
        self.places.insert(key, place);
        self.groups.push(cells(&grouping.projection));
        Ok(place)
    }

    fn check(&self) -> Result<(), MergeError> {
        if self.bytes > GROUP_BYTES_MAX { Err(MergeError::TooLarge("too many groups")) } else { Ok(()) }
    }

    /// One value per group; undefined ones are left out.
    pub(super) fn finish(mut self, grouping: &Grouping) -> Vec<Value> {
        // Aggregates without GROUP BY have one group, rows or not.
        if !grouping.has_keys && self.groups.is_empty() {
            self.groups.push(cells(&grouping.projection));
        }
        self.groups.into_iter().filter_map(|cells| project(&grouping.projection, cells)).collect()
    }
}

/// The key of a row's group, and the rest of the row.
fn open(grouping: &Grouping, row: Value) -> Result<(Vec<u8>, Option<Value>), MergeError> {
    let is_bare = matches!(grouping.projection, Projection::Value(_)) && !grouping.has_keys;
    if is_bare {
        return Ok((Vec::new(), Some(row)));
    }
    let Value::Object(mut row) = row else { return Err(MergeError::UnexpectedRow("a group is an object")) };
    let mut key = Vec::new();
    if grouping.has_keys {
        let Some(Value::Array(items)) = row.get("groupByItems") else {
            return Err(MergeError::UnexpectedRow("a group has groupByItems"));
        };
        items.iter().for_each(|item| write_key(&mut key, item.get("item")));
    }
    Ok((key, row.remove("payload")))
}

/// What a row says about one value of its group.
fn part_of(projection: &Projection, index: usize, payload: &mut Option<Value>) -> Option<Value> {
    match (projection, payload) {
        (Projection::Value(Some(_)), Some(Value::Array(parts))) => parts.pop(),
        (Projection::Value(_), payload) => payload.take(),
        (Projection::List(items), Some(Value::Object(members))) => members.remove(&items.get(index)?.0),
        (Projection::List(_), _) => None,
    }
}

fn cells(projection: &Projection) -> Vec<Cell> {
    let cell = |function: &Option<AggregateFunction>| match function {
        Some(function) => Cell::Aggregate(AggregateState::new(*function)),
        None => Cell::Shared(None),
    };
    match projection {
        Projection::Value(function) => vec![cell(function)],
        Projection::List(items) => items.iter().map(|(_, function)| cell(function)).collect(),
    }
}

impl Cell {
    fn add(&mut self, part: Option<Value>) -> Result<usize, MergeError> {
        match self {
            Cell::Shared(Some(_)) => Ok(0),
            Cell::Shared(shared) => {
                *shared = part;
                Ok(0)
            }
            Cell::Aggregate(state) => part
                .and_then(|part| state.add_part(&part))
                .ok_or(MergeError::UnexpectedRow("an aggregate has its parts")),
        }
    }

    fn absorb(&mut self, more: Cell) -> usize {
        match (self, more) {
            (Cell::Aggregate(state), Cell::Aggregate(more)) => state.absorb(more),
            (Cell::Shared(shared), Cell::Shared(more)) => {
                if shared.is_none() {
                    *shared = more;
                }
                0
            }
            // Both tables come from one projection.
            (Cell::Aggregate(_), Cell::Shared(_)) | (Cell::Shared(_), Cell::Aggregate(_)) => 0,
        }
    }

    fn finish(self) -> Option<Value> {
        match self {
            Cell::Shared(value) => value,
            Cell::Aggregate(state) => state.finish(),
        }
    }
}

fn project(projection: &Projection, cells: Vec<Cell>) -> Option<Value> {
    let mut values = cells.into_iter().map(Cell::finish);
    match projection {
        Projection::Value(_) => values.next().flatten(),
        Projection::List(items) => {
            let members = items.iter().zip(values);
            let defined = members.filter_map(|((name, _), value)| Some((name.clone(), value?)));
            Some(Value::Object(Object::from_members(defined.collect())))
        }
    }
}
