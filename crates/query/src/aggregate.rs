//! The aggregate functions, fed one value at a time.
//!
//! Undefined values are ignored. SUM and AVG become undefined once they see a
//! value that is not a number. MIN and MAX become undefined once they see an array
//! or an object; among primitives they follow the sort order. Without any value
//! COUNT, COUNTIF and SUM are 0, MAKELIST and MAKESET are empty arrays, and AVG, MIN
//! and MAX are undefined.
//!
//! These rules are in a test baseline of Microsoft's SDK (azure-cosmos-dotnet-v3,
//! `EmulatorTests/Query/AggregateQueryTests.AggregateMixedTypes_baseline.xml`; its
//! `undefinedKey` cases are the cases without any value). They agree with the
//! documentation of SUM, AVG, MIN and MAX. In an older baseline the MIN of a single
//! array was that array. The rows whose GROUP BY value is undefined form a group like
//! any other (`CosmosUndefinedQueryTests.cs`, `GroupByUndefined`).
//!
//! A client merges [partial results](AggregateState::add_partial), one per
//! partition and page. A partition returns them in this form because the client sends
//! it the statement that `plan::rewrite` makes.

use std::collections::HashSet;

use perihelion_model::json::{Number, Value};

use crate::node::AggregateFunction;
use crate::number::{as_query_number, computed_number};
use crate::order::{canonical_key, compare_values};

/// The most bytes, by an estimate, that a table of groups may hold, collected lists included.
/// The results of MIN and MAX are not counted.
pub(crate) const GROUP_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The bytes of a group without its key: the map entry and the states.
pub(crate) const GROUP_BYTES: usize = 256;

/// The state of an aggregate function after the values that it has seen.
#[derive(Debug)]
pub(crate) enum AggregateState {
    Count(i64),
    CountIf(i64),
    Sum(Total),
    Average(Total),
    Min(Extreme),
    Max(Extreme),
    List(Vec<Value>),
    Set { seen: HashSet<Vec<u8>>, values: Vec<Value> },
}

/// A sum and how many numbers are in it.
#[derive(Debug, Default)]
pub(crate) struct Total {
    /// The sum of the integers. An integer that would overflow this sum is added to `real`.
    whole: i64,
    /// The sum of the doubles, and of the integers that are not in `whole`.
    real: f64,
    count: i64,
    /// Whether a value was not a number.
    is_undefined: bool,
}

/// The smallest or largest value.
#[derive(Debug, Default)]
pub(crate) struct Extreme {
    best: Option<Value>,
    /// Whether a value was an array or an object.
    is_undefined: bool,
}

impl AggregateState {
    pub(crate) fn new(function: AggregateFunction) -> Self {
        match function {
            AggregateFunction::Count => AggregateState::Count(0),
            AggregateFunction::CountIf => AggregateState::CountIf(0),
            AggregateFunction::Sum => AggregateState::Sum(Total::default()),
            AggregateFunction::Average => AggregateState::Average(Total::default()),
            AggregateFunction::Min => AggregateState::Min(Extreme::default()),
            AggregateFunction::Max => AggregateState::Max(Extreme::default()),
            AggregateFunction::MakeList => AggregateState::List(Vec::new()),
            AggregateFunction::MakeSet => AggregateState::Set { seen: HashSet::new(), values: Vec::new() },
        }
    }

    /// Whether adding a value takes longer for a larger value.
    pub(crate) fn reads_contents(&self) -> bool {
        match self {
            AggregateState::Count(_)
            | AggregateState::CountIf(_)
            | AggregateState::Sum(_)
            | AggregateState::Average(_) => false,
            AggregateState::Min(_)
            | AggregateState::Max(_)
            | AggregateState::List(_)
            | AggregateState::Set { .. } => true,
        }
    }

    /// Adds one value. Returns an estimate of the bytes by which the collected list or set
    /// grew, and 0 for functions that collect nothing.
    pub(crate) fn add(&mut self, value: Option<&Value>) -> usize {
        let Some(value) = value else { return 0 };
        match self {
            AggregateState::Count(count) => *count += 1,
            AggregateState::CountIf(count) => *count += i64::from(*value == Value::Bool(true)),
            AggregateState::Sum(total) | AggregateState::Average(total) => total.add(value),
            AggregateState::Min(extreme) => extreme.add(value, std::cmp::Ordering::Less),
            AggregateState::Max(extreme) => extreme.add(value, std::cmp::Ordering::Greater),
            AggregateState::List(values) => {
                values.push(value.clone());
                return canonical_key(Some(value)).len() + size_of::<Value>();
            }
            AggregateState::Set { seen, values } => {
                let key = canonical_key(Some(value));
                let bytes = key.len() * 2 + size_of::<Value>();
                if seen.insert(key) {
                    values.push(value.clone());
                    return bytes;
                }
            }
        }
        0
    }

    /// Adds the partial result of a partition: `{"item": …}`, for MIN and MAX usually with an
    /// `item2` as well (see [`Extreme::add_partial`]). A member whose value is undefined is
    /// absent. Returns how many bytes the state grew by, or `None` when the partial result is
    /// malformed.
    pub(crate) fn add_partial(&mut self, partial: &Value) -> Option<usize> {
        let item = partial.as_object()?.get("item");
        match self {
            AggregateState::Count(count) | AggregateState::CountIf(count) => {
                *count = count.checked_add(item?.as_i64()?)?;
            }
            // Any positive count will do: the result of SUM does not depend on it.
            AggregateState::Sum(total) => total.add_partial(item, 1)?,
            AggregateState::Average(total) => {
                let count = item?.get("count")?.as_i64()?;
                total.add_partial(item?.get("sum"), count)?;
            }
            AggregateState::Min(extreme) => extreme.add_partial(partial, "min", std::cmp::Ordering::Less)?,
            AggregateState::Max(extreme) => {
                extreme.add_partial(partial, "max", std::cmp::Ordering::Greater)?
            }
            AggregateState::List(_) | AggregateState::Set { .. } => {
                return Some(item?.as_array()?.iter().map(|value| self.add(Some(value))).sum());
            }
        }
        Some(0)
    }

    /// Adds what another state of the same function collected. Returns how many bytes
    /// the state grew by, or `None` when the counts of the partial results are malformed.
    pub(crate) fn merge(&mut self, other: AggregateState) -> Option<usize> {
        match (self, other) {
            (AggregateState::Count(count), AggregateState::Count(more))
            | (AggregateState::CountIf(count), AggregateState::CountIf(more)) => {
                *count = count.checked_add(more)?;
            }
            (AggregateState::Sum(total), AggregateState::Sum(more))
            | (AggregateState::Average(total), AggregateState::Average(more)) => total.merge(&more)?,
            (AggregateState::Min(extreme), AggregateState::Min(more)) => {
                extreme.merge(&more, std::cmp::Ordering::Less);
            }
            (AggregateState::Max(extreme), AggregateState::Max(more)) => {
                extreme.merge(&more, std::cmp::Ordering::Greater);
            }
            (state, AggregateState::List(values) | AggregateState::Set { values, .. }) => {
                return Some(values.iter().map(|value| state.add(Some(value))).sum());
            }
            // Both states come from one plan, so their functions are the same.
            _ => {}
        }
        Some(0)
    }

    /// The result; `None` when it is undefined.
    pub(crate) fn finish(self) -> Option<Value> {
        match self {
            AggregateState::Count(count) | AggregateState::CountIf(count) => Some(count.into()),
            AggregateState::Sum(total) => total.sum(),
            AggregateState::Average(total) => total.average(),
            AggregateState::Min(extreme) | AggregateState::Max(extreme) => {
                extreme.best.filter(|_| !extreme.is_undefined)
            }
            AggregateState::List(values) | AggregateState::Set { values, .. } => Some(Value::Array(values)),
        }
    }
}

impl Total {
    fn add(&mut self, value: &Value) {
        let Value::Number(number) = value else {
            self.is_undefined = true;
            return;
        };
        self.count += 1;
        match as_query_number(*number) {
            Number::Int(whole) => match self.whole.checked_add(whole) {
                Some(sum) => self.whole = sum,
                None => self.real += whole as f64,
            },
            other => self.real += other.as_f64(),
        }
    }

    /// Adds the sum of `count` values. A sum of no values is ignored. The sum is `None`
    /// when one of the values was not a number. Returns `None` when the count is malformed.
    fn add_partial(&mut self, sum: Option<&Value>, count: i64) -> Option<()> {
        let count_after = self.count.checked_add(count).filter(|_| count >= 0)?;
        match sum {
            _ if count == 0 => {}
            None => self.is_undefined = true,
            Some(sum) => {
                self.add(sum);
                self.count = count_after;
            }
        }
        Some(())
    }

    /// Adds the sum and the count of `other`. Returns `None` when the count overflows.
    fn merge(&mut self, other: &Total) -> Option<()> {
        self.count = self.count.checked_add(other.count)?;
        match self.whole.checked_add(other.whole) {
            Some(sum) => self.whole = sum,
            None => self.real += other.whole as f64,
        }
        self.real += other.real;
        self.is_undefined |= other.is_undefined;
        Some(())
    }

    fn sum(self) -> Option<Value> {
        if self.is_undefined {
            return None;
        }
        let sum = if self.real == 0.0 {
            Number::Int(self.whole)
        } else {
            computed_number(self.real + self.whole as f64)
        };
        Some(Value::Number(sum))
    }

    fn average(self) -> Option<Value> {
        if self.is_undefined || self.count == 0 {
            return None;
        }
        let mean = (self.real + self.whole as f64) / self.count as f64;
        Some(Value::Number(computed_number(mean)))
    }
}

impl Extreme {
    /// Adds the smallest or largest value of a partition. A partition without values is
    /// ignored. A partition with values whose result is undefined makes the result
    /// undefined. The count in `item2` distinguishes the two cases. Older plans have
    /// only `item`.
    fn add_partial(&mut self, partial: &Value, name: &str, wanted: std::cmp::Ordering) -> Option<()> {
        let (best, count) = match partial.get("item2") {
            Some(detail) => (detail.get(name), detail.get("count")?.as_i64()?),
            None => (partial.get("item"), i64::from(partial.get("item").is_some())),
        };
        match best {
            _ if count == 0 => {}
            Some(best) => self.add(best, wanted),
            None => self.is_undefined = true,
        }
        Some(())
    }

    fn merge(&mut self, other: &Extreme, wanted: std::cmp::Ordering) {
        self.is_undefined |= other.is_undefined;
        if let Some(best) = &other.best {
            self.add(best, wanted);
        }
    }

    /// Adds one value. `wanted` is how a better value compares with the best one so far:
    /// `Less` for MIN, `Greater` for MAX.
    fn add(&mut self, value: &Value, wanted: std::cmp::Ordering) {
        if matches!(value, Value::Array(_) | Value::Object(_)) {
            self.is_undefined = true;
        }
        let is_better = match &self.best {
            Some(best) => compare_values(Some(value), Some(best)) == wanted,
            None => true,
        };
        if is_better && !self.is_undefined {
            self.best = Some(value.clone());
        }
    }
}
