//! What happens to a row after it was merged: duplicates go, OFFSET skips,
//! TOP and LIMIT end it, and a count of distinct values only counts.

use perihelion_model::json::{Object, Value};

use super::MergeError;
use super::plan::{DistinctType, MergePlan};
use crate::order::equal;
use crate::program::DistinctValues;

/// Bytes of values that an unordered DISTINCT may remember, as many as groups.
const DISTINCT_BYTES_MAX: usize = 256 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct Tail {
    distinct: Distinct,
    pub(super) skip_left: u64,
    pub(super) take_left: Option<u64>,
    count: Option<Count>,
}

#[derive(Debug)]
enum Distinct {
    None,
    Unordered(DistinctValues),
    /// Equal values are neighbours: the last one is enough.
    Ordered(Option<Value>),
}

/// A count of the rows in their place.
#[derive(Debug)]
struct Count {
    name: String,
    rows: u64,
}

impl Tail {
    pub(super) fn new(plan: &MergePlan) -> Self {
        Tail {
            distinct: match plan.distinct {
                DistinctType::None => Distinct::None,
                DistinctType::Unordered => Distinct::Unordered(DistinctValues::default()),
                DistinctType::Ordered => Distinct::Ordered(None),
            },
            skip_left: plan.offset,
            take_left: plan.take,
            count: plan.distinct_count.clone().map(|name| Count { name, rows: 0 }),
        }
    }

    /// The answer is complete, whatever may come.
    pub(super) fn is_full(&self) -> bool {
        self.take_left == Some(0)
    }

    /// How many rows can still matter; `None`: all.
    pub(super) fn rows_wanted(&self) -> Option<u64> {
        let is_distinct = !matches!(self.distinct, Distinct::None);
        self.take_left.filter(|_| !is_distinct).map(|take| take.saturating_add(self.skip_left))
    }

    /// The state can be written down between two rows.
    pub(super) fn is_portable(&self) -> bool {
        self.count.is_none() && !matches!(self.distinct, Distinct::Unordered(_))
    }

    pub(super) fn forgets_repeated_rows(&self) -> bool {
        matches!(self.distinct, Distinct::Unordered(_))
    }

    pub(super) fn last_value(&self) -> Option<&Value> {
        match &self.distinct {
            Distinct::Ordered(last) => last.as_ref(),
            Distinct::None | Distinct::Unordered(_) => None,
        }
    }

    /// Goes on from a token.
    pub(super) fn restore(&mut self, skip_left: u64, take_left: Option<u64>, last: Option<Value>) {
        self.skip_left = skip_left;
        self.take_left = take_left;
        if let Distinct::Ordered(known) = &mut self.distinct {
            *known = last;
        }
    }

    /// A merged row in, a row of the answer out, if it is one.
    pub(super) fn pass(&mut self, row: Value) -> Result<Option<Value>, MergeError> {
        if self.is_full() || !self.is_new(&row)? {
            return Ok(None);
        }
        if let Some(count) = &mut self.count {
            count.rows += 1;
            return Ok(None);
        }
        if self.skip_left > 0 {
            self.skip_left -= 1;
            return Ok(None);
        }
        if let Some(take) = &mut self.take_left {
            *take -= 1;
        }
        Ok(Some(row))
    }

    fn is_new(&mut self, row: &Value) -> Result<bool, MergeError> {
        match &mut self.distinct {
            Distinct::None => Ok(true),
            Distinct::Unordered(seen) => {
                let is_new = seen.insert(row);
                match seen.bytes() > DISTINCT_BYTES_MAX {
                    true => Err(MergeError::TooLarge("too many distinct values")),
                    false => Ok(is_new),
                }
            }
            Distinct::Ordered(last) => {
                let is_new = !last.as_ref().is_some_and(|last| equal(last, row));
                if is_new {
                    *last = Some(row.clone());
                }
                Ok(is_new)
            }
        }
    }

    /// The row that stands for all, once they came through.
    pub(super) fn finish(&mut self) -> Option<Value> {
        let count = self.count.take()?;
        if self.is_full() || self.skip_left > 0 {
            return None;
        }
        let rows = Value::from(count.rows);
        match count.name.is_empty() {
            true => Some(rows),
            false => Some(Value::Object(Object::from_members(vec![(count.name, rows)]))),
        }
    }
}
