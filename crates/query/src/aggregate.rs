//! The aggregate functions, one value at a time.
//!
//! Undefined is never counted. SUM and AVG are undefined as soon as they met
//! anything but a number, MIN and MAX as soon as they met an array or an
//! object; among primitives MIN and MAX follow the sort order. With nothing
//! to aggregate, COUNT and SUM are 0 and the others undefined.
//!
//! All of that is in the vendor's baseline (azure-cosmos-dotnet-v3,
//! `EmulatorTests/Query/AggregateQueryTests.AggregateMixedTypes_baseline.xml`,
//! whose `undefinedKey` cases are those of nothing at all; an older baseline
//! let a single array be its own MIN) and agrees with the documentation of
//! SUM, AVG, MIN and MAX. In GROUP BY undefined is a group like any other
//! (`CosmosUndefinedQueryTests.cs`, `GroupByUndefined`).
//!
//! A client merges [parts](AggregateState::add_part), one per partition and
//! page, in the form that `plan::rewrite` asks the partitions for.

use std::collections::HashSet;

use perihelion_model::json::{Number, Value};

use crate::node::AggregateFunction;
use crate::order::{as_query_number, canonical_key, compare_values};

#[derive(Debug)]
pub(crate) enum AggregateState {
    Count(i64),
    CountIf(i64),
    Sum(Total),
    Average(Total),
    /// The best value so far; `None` inside means that nothing can be best.
    Min(Extreme),
    Max(Extreme),
    List(Vec<Value>),
    Set {
        seen: HashSet<Vec<u8>>,
        values: Vec<Value>,
    },
}

#[derive(Debug, Default)]
pub(crate) struct Total {
    /// Exact while it fits.
    whole: i64,
    real: f64,
    count: i64,
    spoiled: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Extreme {
    best: Option<Value>,
    spoiled: bool,
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

    /// Takes one more value; returns how many bytes the state grew by.
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

    /// Takes what a partition found: `{"item": …}`, its members absent where
    /// they are undefined. Returns how many bytes the state grew by, or
    /// nothing when the part has another form.
    pub(crate) fn add_part(&mut self, part: &Value) -> Option<usize> {
        let item = part.as_object()?.get("item");
        match self {
            AggregateState::Count(count) | AggregateState::CountIf(count) => {
                *count = count.checked_add(item?.as_i64()?)?;
            }
            AggregateState::Sum(total) => total.add_part(item, 1),
            AggregateState::Average(total) => {
                let count = item?.get("count")?.as_i64()?;
                total.add_part(item?.get("sum"), count);
            }
            AggregateState::Min(extreme) => extreme.add_part(part, "min", std::cmp::Ordering::Less)?,
            AggregateState::Max(extreme) => extreme.add_part(part, "max", std::cmp::Ordering::Greater)?,
            AggregateState::List(_) | AggregateState::Set { .. } => {
                return Some(item?.as_array()?.iter().map(|value| self.add(Some(value))).sum());
            }
        }
        Some(0)
    }

    /// Takes in what another state of the same function collected.
    pub(crate) fn absorb(&mut self, other: AggregateState) -> usize {
        match (self, other) {
            (AggregateState::Count(count), AggregateState::Count(more))
            | (AggregateState::CountIf(count), AggregateState::CountIf(more)) => *count += more,
            (AggregateState::Sum(total), AggregateState::Sum(more))
            | (AggregateState::Average(total), AggregateState::Average(more)) => total.absorb(&more),
            (AggregateState::Min(extreme), AggregateState::Min(more)) => {
                extreme.absorb(&more, std::cmp::Ordering::Less);
            }
            (AggregateState::Max(extreme), AggregateState::Max(more)) => {
                extreme.absorb(&more, std::cmp::Ordering::Greater);
            }
            (state, AggregateState::List(values) | AggregateState::Set { values, .. }) => {
                return values.iter().map(|value| state.add(Some(value))).sum();
            }
            // States of two functions never meet: both come from one plan.
            _ => {}
        }
        0
    }

    pub(crate) fn finish(self) -> Option<Value> {
        match self {
            AggregateState::Count(count) | AggregateState::CountIf(count) => Some(count.into()),
            AggregateState::Sum(total) => total.sum(),
            AggregateState::Average(total) => total.average(),
            AggregateState::Min(extreme) | AggregateState::Max(extreme) => {
                extreme.best.filter(|_| !extreme.spoiled)
            }
            AggregateState::List(values) | AggregateState::Set { values, .. } => Some(Value::Array(values)),
        }
    }
}

impl Total {
    fn add(&mut self, value: &Value) {
        let Value::Number(number) = value else {
            self.spoiled = true;
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

    /// A sum of that many values; without one they were no numbers.
    fn add_part(&mut self, sum: Option<&Value>, count: i64) {
        match sum {
            _ if count == 0 => {}
            None => self.spoiled = true,
            Some(sum) => {
                self.add(sum);
                self.count += count - 1;
            }
        }
    }

    fn absorb(&mut self, other: &Total) {
        match self.whole.checked_add(other.whole) {
            Some(sum) => self.whole = sum,
            None => self.real += other.whole as f64,
        }
        self.real += other.real;
        self.count += other.count;
        self.spoiled |= other.spoiled;
    }

    fn sum(self) -> Option<Value> {
        if self.spoiled {
            return None;
        }
        let sum = if self.real == 0.0 {
            Number::Int(self.whole)
        } else {
            crate::eval::double(self.real + self.whole as f64)
        };
        Some(Value::Number(sum))
    }

    fn average(self) -> Option<Value> {
        if self.spoiled || self.count == 0 {
            return None;
        }
        let mean = (self.real + self.whole as f64) / self.count as f64;
        Some(Value::Number(crate::eval::double(mean)))
    }
}

impl Extreme {
    /// `item2` tells a partition without values, which has no say, from one
    /// whose values have no extreme; older plans have only `item`.
    fn add_part(&mut self, part: &Value, name: &str, wanted: std::cmp::Ordering) -> Option<()> {
        let (best, count) = match part.get("item2") {
            Some(detail) => (detail.get(name), detail.get("count")?.as_i64()?),
            None => (part.get("item"), i64::from(part.get("item").is_some())),
        };
        match best {
            _ if count == 0 => {}
            Some(best) => self.add(best, wanted),
            None => self.spoiled = true,
        }
        Some(())
    }

    fn absorb(&mut self, other: &Extreme, wanted: std::cmp::Ordering) {
        self.spoiled |= other.spoiled;
        if let Some(best) = &other.best {
            self.add(best, wanted);
        }
    }

    fn add(&mut self, value: &Value, wanted: std::cmp::Ordering) {
        if matches!(value, Value::Array(_) | Value::Object(_)) {
            self.spoiled = true;
        }
        let better = match &self.best {
            Some(best) => compare_values(Some(value), Some(best)) == wanted,
            None => true,
        };
        if better && !self.spoiled {
            self.best = Some(value.clone());
        }
    }
}
