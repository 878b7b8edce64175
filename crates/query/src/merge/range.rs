//! Intervals of effective partition keys, and the ranges that hold them.
//!
//! A merge remembers how far it got by interval, not by range: ranges are
//! split and merged while a query is under way, intervals stay what they are.
//! Effective keys are hexadecimal text whose order is that of the keys.

use super::MergeError;
use crate::plan::QueryRange;

/// A physical partition: where it is asked for, and the keys it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    pub id: String,
    /// The first effective key, in hexadecimal.
    pub min: String,
    /// The first effective key beyond.
    pub max: String,
}

impl KeyRange {
    pub fn new(id: impl Into<String>, min: impl Into<String>, max: impl Into<String>) -> Self {
        KeyRange { id: id.into(), min: min.into(), max: max.into() }
    }

    /// Whether it can hold a result of a plan with that range.
    pub fn holds(&self, wanted: &QueryRange) -> bool {
        let begins_before = match wanted.is_max_inclusive {
            true => self.min <= wanted.max,
            false => self.min < wanted.max,
        };
        begins_before && wanted.min < self.max
    }
}

/// Effective keys from `min` up to, not including, `max`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Interval {
    pub(super) min: String,
    pub(super) max: String,
}

/// An interval and the range that holds it now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Home {
    pub(super) interval: Interval,
    pub(super) range_id: String,
    /// The range holds more than the interval.
    pub(super) is_part: bool,
}

impl Home {
    pub(super) fn whole(range: &KeyRange) -> Self {
        Home {
            interval: Interval { min: range.min.clone(), max: range.max.clone() },
            range_id: range.id.clone(),
            is_part: false,
        }
    }
}

/// Cuts an interval along the ranges that hold it now. Ranges that do not
/// touch it are passed over; together the others must leave no gap.
pub(super) fn homes(interval: &Interval, ranges: &[KeyRange]) -> Result<Vec<Home>, MergeError> {
    let touches = |range: &&KeyRange| range.min < interval.max && interval.min < range.max;
    let mut touching: Vec<&KeyRange> = ranges.iter().filter(touches).collect();
    touching.sort_by(|a, b| a.min.cmp(&b.min));
    let mut reached = interval.min.as_str();
    let mut homes = Vec::with_capacity(touching.len());
    for range in touching {
        if range.min.as_str() > reached || range.max.as_str() <= reached {
            return Err(uncovered(interval));
        }
        let max = (&range.max).min(&interval.max);
        homes.push(Home {
            is_part: range.min != reached || range.max != *max,
            interval: Interval { min: reached.to_owned(), max: max.clone() },
            range_id: range.id.clone(),
        });
        reached = max;
    }
    if reached == interval.max && !homes.is_empty() { Ok(homes) } else { Err(uncovered(interval)) }
}

fn uncovered(interval: &Interval) -> MergeError {
    MergeError::RangesDoNotCover { min: interval.min.clone(), max: interval.max.clone() }
}
