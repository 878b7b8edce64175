//! Intervals of effective partition keys, and the ranges that hold them.
//!
//! A merge records its progress by interval and not by range, because ranges
//! may be split and merged while a query runs. Effective keys are hexadecimal
//! texts; the texts sort like the keys.

use super::MergeError;
use crate::plan::QueryRange;

/// A partition key range: its id and the effective keys it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    /// The id, for the request header.
    pub id: String,
    /// The lowest effective key (inclusive), in hexadecimal.
    pub min: String,
    /// The highest effective key (exclusive), in hexadecimal.
    pub max: String,
}

impl KeyRange {
    /// A range of these keys.
    pub fn new(id: impl Into<String>, min: impl Into<String>, max: impl Into<String>) -> Self {
        KeyRange { id: id.into(), min: min.into(), max: max.into() }
    }

    /// Whether this range and `wanted`, a range of keys in a query plan, have keys in
    /// common.
    pub fn overlaps(&self, wanted: &QueryRange) -> bool {
        let begins_before_end_of_wanted = match wanted.is_max_inclusive {
            true => self.min <= wanted.max,
            false => self.min < wanted.max,
        };
        begins_before_end_of_wanted && wanted.min < self.max
    }
}

/// The effective keys from `min` (inclusive) to `max` (exclusive).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Interval {
    pub(super) min: String,
    pub(super) max: String,
}

impl Interval {
    /// All effective keys.
    pub(super) fn all() -> Self {
        Interval { min: String::new(), max: "FF".to_owned() }
    }
}

/// An interval and the range that holds it now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RangeSlice {
    pub(super) interval: Interval,
    pub(super) range_id: String,
    /// Whether the range has more keys than the interval.
    pub(super) is_part: bool,
}

impl RangeSlice {
    pub(super) fn whole(range: &KeyRange) -> Self {
        RangeSlice {
            interval: Interval { min: range.min.clone(), max: range.max.clone() },
            range_id: range.id.clone(),
            is_part: false,
        }
    }
}

/// Divides an interval among the ranges that hold it now. Ranges outside the
/// interval are ignored. The other ranges must cover the interval without a gap.
/// A range whose keys all belong to the ranges before it is an error too, because
/// such a list of ranges is out of date.
pub(super) fn slice_interval(
    interval: &Interval,
    ranges: &[KeyRange],
) -> Result<Vec<RangeSlice>, MergeError> {
    let overlaps = |range: &&KeyRange| range.min < interval.max && interval.min < range.max;
    let mut overlapping: Vec<&KeyRange> = ranges.iter().filter(overlaps).collect();
    overlapping.sort_by(|a, b| a.min.cmp(&b.min));
    let mut covered_up_to = interval.min.as_str();
    let mut slices = Vec::with_capacity(overlapping.len());
    for range in overlapping {
        if range.min.as_str() > covered_up_to || range.max.as_str() <= covered_up_to {
            return Err(uncovered(interval));
        }
        let max = (&range.max).min(&interval.max);
        slices.push(RangeSlice {
            is_part: range.min != covered_up_to || range.max != *max,
            interval: Interval { min: covered_up_to.to_owned(), max: max.clone() },
            range_id: range.id.clone(),
        });
        covered_up_to = max;
    }
    if covered_up_to == interval.max && !slices.is_empty() { Ok(slices) } else { Err(uncovered(interval)) }
}

/// The error of a list of ranges that is out of date or wrong.
pub(super) fn uncovered(interval: &Interval) -> MergeError {
    MergeError::RangesDoNotCover { min: interval.min.clone(), max: interval.max.clone() }
}
