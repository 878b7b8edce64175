//! The filter on merged rows: it applies DISTINCT, OFFSET, TOP and LIMIT, or
//! counts the rows that DISTINCT leaves.

use perihelion_model::json::{Object, Value};

use super::MergeError;
use super::plan::MergePlan;
use super::rows::EqualRows;
use crate::order::{canonical_key, equal};
use crate::plan::DistinctType;
use crate::program::DistinctValues;

/// The most bytes of values that a DISTINCT may remember; groups have the same limit.
const DISTINCT_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The longest value of an ordered DISTINCT that a token contains whole. For a longer value the
/// token contains the hash. The hash is enough, because the next value is only compared for
/// equality.
const LAST_VALUE_BYTES_MAX: usize = 1024;

/// The filter and its state after the rows that it has seen.
#[derive(Debug)]
pub(super) struct ResultFilter {
    distinct: Distinct,
    /// How many rows OFFSET still skips.
    pub(super) skip_left: u64,
    /// How many rows TOP or LIMIT still allows; `None` without either.
    pub(super) take_left: Option<u64>,
    counter: Option<DistinctCounter>,
}

/// How repeated values are recognized.
#[derive(Debug)]
enum Distinct {
    None,
    Unordered(DistinctValues),
    /// Nearly all equal values are neighbours.
    Ordered(OrderedValues),
}

/// The values that an ordered DISTINCT remembers.
#[derive(Debug, Default)]
struct OrderedValues {
    last: Option<LastValue>,
    /// The values of all [`EqualRows::Scattered`] rows since the last [`EqualRows::Adjacent`] row.
    /// `None` if there was no such row.
    scattered: Option<DistinctValues>,
}

impl OrderedValues {
    fn is_new(&mut self, row: &Value, equal_rows: EqualRows) -> bool {
        let differs = !self.last.as_ref().is_some_and(|last| last.is_equal(row));
        let is_new = match equal_rows {
            EqualRows::Adjacent => {
                self.scattered = None;
                differs
            }
            EqualRows::Scattered => self.scattered.get_or_insert_default().insert(row) && differs,
        };
        if is_new {
            self.last = Some(LastValue::Value(row.clone()));
        }
        is_new
    }

    fn bytes(&self) -> usize {
        self.scattered.as_ref().map_or(0, DistinctValues::bytes)
    }
}

/// The last value of an ordered DISTINCT.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum LastValue {
    Value(Value),
    /// The hash of a long value, from a token.
    Hash(u128),
}

impl LastValue {
    fn is_equal(&self, row: &Value) -> bool {
        match self {
            LastValue::Value(last) => equal(last, row),
            LastValue::Hash(hash) => *hash == hash_of(&canonical_key(Some(row))),
        }
    }

    /// The value as a token stores it: a long value is replaced by its hash.
    fn shortened(&self) -> LastValue {
        let LastValue::Value(value) = self else { return self.clone() };
        let key = canonical_key(Some(value));
        if key.len() > LAST_VALUE_BYTES_MAX { LastValue::Hash(hash_of(&key)) } else { self.clone() }
    }
}

/// The hash of a value's key (FNV-1a, 128 bits).
fn hash_of(key: &[u8]) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    key.iter().fold(OFFSET, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}

/// Counts the rows that DISTINCT leaves. These rows are not returned.
#[derive(Debug)]
struct DistinctCounter {
    /// The name of the count in the result; empty for SELECT VALUE.
    alias: String,
    rows: u64,
}

impl ResultFilter {
    pub(super) fn new(plan: &MergePlan) -> Self {
        ResultFilter {
            distinct: match plan.distinct {
                DistinctType::None => Distinct::None,
                DistinctType::Unordered => Distinct::Unordered(DistinctValues::default()),
                DistinctType::Ordered => Distinct::Ordered(OrderedValues::default()),
            },
            skip_left: plan.offset,
            take_left: plan.take,
            counter: plan.distinct_count_alias.clone().map(|alias| DistinctCounter { alias, rows: 0 }),
        }
    }

    /// Whether TOP or LIMIT is reached.
    pub(super) fn is_full(&self) -> bool {
        self.take_left == Some(0)
    }

    /// How many more merged rows are needed. `None` when the number is not known: without
    /// TOP and LIMIT, or with DISTINCT.
    pub(super) fn rows_wanted(&self) -> Option<u64> {
        let is_distinct = !matches!(self.distinct, Distinct::None);
        self.take_left.filter(|_| !is_distinct).map(|take| take.saturating_add(self.skip_left))
    }

    /// Whether a token can hold the state of the filter.
    pub(super) fn is_resumable(&self) -> bool {
        let is_small = match &self.distinct {
            Distinct::None => true,
            Distinct::Unordered(_) => false,
            Distinct::Ordered(values) => values.scattered.is_none(),
        };
        self.counter.is_none() && is_small
    }

    /// Whether a row that is read twice is returned once.
    pub(super) fn drops_repeated_rows(&self) -> bool {
        matches!(self.distinct, Distinct::Unordered(_))
    }

    /// The last value of an ordered DISTINCT, for the token.
    pub(super) fn last_value(&self) -> Option<LastValue> {
        match &self.distinct {
            Distinct::Ordered(values) => values.last.as_ref().map(LastValue::shortened),
            Distinct::None | Distinct::Unordered(_) => None,
        }
    }

    /// Whether this filter, which has seen no row yet, could reach the state in a token.
    pub(super) fn can_reach(&self, skip_left: u64, take_left: Option<u64>, last: Option<&LastValue>) -> bool {
        let take_fits = match (self.take_left, take_left) {
            (None, None) => true,
            (Some(all), Some(left)) => left <= all,
            (None, Some(_)) | (Some(_), None) => false,
        };
        let last_fits = last.is_none() || matches!(self.distinct, Distinct::Ordered(_));
        self.is_resumable() && skip_left <= self.skip_left && take_fits && last_fits
    }

    /// Restores the state from a token.
    pub(super) fn restore(&mut self, skip_left: u64, take_left: Option<u64>, last: Option<LastValue>) {
        self.skip_left = skip_left;
        self.take_left = take_left;
        if let Distinct::Ordered(values) = &mut self.distinct {
            values.last = last;
        }
    }

    /// Returns the merged row if it is a row of the result. If the statement counts
    /// distinct rows, the row is counted and not returned.
    pub(super) fn accept(&mut self, row: Value, equal_rows: EqualRows) -> Result<Option<Value>, MergeError> {
        if self.is_full() || !self.is_new(&row, equal_rows)? {
            return Ok(None);
        }
        if let Some(counter) = &mut self.counter {
            counter.rows += 1;
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

    fn is_new(&mut self, row: &Value, equal_rows: EqualRows) -> Result<bool, MergeError> {
        let (is_new, bytes) = match &mut self.distinct {
            Distinct::None => (true, 0),
            Distinct::Unordered(seen) => (seen.insert(row), seen.bytes()),
            Distinct::Ordered(values) => (values.is_new(row, equal_rows), values.bytes()),
        };
        match bytes > DISTINCT_BYTES_MAX {
            true => Err(MergeError::TooLarge("too many distinct values")),
            false => Ok(is_new),
        }
    }

    /// The row with the count, after the last merged row. `None` when rows are not
    /// counted, or when OFFSET, TOP or LIMIT drops the row.
    pub(super) fn finish(&mut self) -> Option<Value> {
        let counter = self.counter.take()?;
        if self.is_full() || self.skip_left > 0 {
            return None;
        }
        let rows = Value::from(counter.rows);
        match counter.alias.is_empty() {
            true => Some(rows),
            false => Some(Value::Object(Object::from_members(vec![(counter.alias, rows)]))),
        }
    }
}
