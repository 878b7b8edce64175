//! The order of values, equality, and the keys of DISTINCT and GROUP BY.
//!
//! Sorting and operators compare differently. *Sorting* orders any two values:
//! undefined, null, false, true, numbers, strings by code point, arrays,
//! objects. *Operators* are type-strict: values of different types are not
//! equal, and no value of one type is less than a value of another.
//!
//! So between two types `=` is false and `!=` is true; neither is undefined. The
//! documentation (learn.microsoft.com, "Equality and comparison operators") has a
//! table that says undefined. But in the evaluator of Microsoft's SDK
//! (azure-cosmos-dotnet-v3, `OfflineEngine/ScalarExpressionEvaluator.cs`) equality
//! is undefined only when an operand is undefined, and less and greater are undefined
//! whenever the types differ. Also, users of the service filter by `c.x <> null`
//! (azure-sdk-for-net issue 38590), which would otherwise match no document.

// Comparisons that spend steps of a query's budget.
mod charged;

use std::cmp::Ordering;

pub(crate) use charged::{compare_within, equal_within, get_within, sort_steps, walk_steps};

use perihelion_model::json::{Number, Object, Value};

use crate::ast::Direction;
use crate::number::{as_query_number, compare_numbers};

/// Compares two lists of sort keys, each key in its own direction. ORDER BY does not look into arrays
/// and objects: all arrays are equal, and so are all objects.
pub fn compare_order(a: &[Option<Value>], b: &[Option<Value>], directions: &[Direction]) -> Ordering {
    for ((a, b), direction) in a.iter().zip(b).zip(directions) {
        let ordering = match direction {
            Direction::Ascending => compare_keys(a.as_ref(), b.as_ref()),
            Direction::Descending => compare_keys(b.as_ref(), a.as_ref()),
        };
        if ordering.is_ne() {
            return ordering;
        }
    }
    Ordering::Equal
}

/// The order of two sort keys.
fn compare_keys(a: Option<&Value>, b: Option<&Value>) -> Ordering {
    match (a, b) {
        (Some(Value::Array(_)), Some(Value::Array(_))) | (Some(Value::Object(_)), Some(Value::Object(_))) => {
            Ordering::Equal
        }
        (a, b) => compare_values(a, b),
    }
}

/// The order of any two values, undefined (`None`) first.
pub fn compare_values(a: Option<&Value>, b: Option<&Value>) -> Ordering {
    match (a, b) {
        (Some(Value::Number(a)), Some(Value::Number(b))) => compare_numbers(*a, *b),
        (Some(Value::String(a)), Some(Value::String(b))) => a.cmp(b),
        (Some(Value::Array(a)), Some(Value::Array(b))) => compare_arrays(a, b),
        (Some(Value::Object(a)), Some(Value::Object(b))) => compare_objects(a, b),
        (a, b) => type_rank(a).cmp(&type_rank(b)),
    }
}

/// The rank of a value's type in the sort order.
fn type_rank(value: Option<&Value>) -> u8 {
    match value {
        None => 0,
        Some(Value::Null) => 1,
        Some(Value::Bool(false)) => 2,
        Some(Value::Bool(true)) => 3,
        Some(Value::Number(_)) => 4,
        Some(Value::String(_)) => 5,
        Some(Value::Array(_)) => 6,
        Some(Value::Object(_)) => 7,
    }
}

fn compare_arrays(a: &[Value], b: &[Value]) -> Ordering {
    a.iter()
        .zip(b)
        .map(|(a, b)| compare_values(Some(a), Some(b)))
        .find(|ordering| ordering.is_ne())
        .unwrap_or_else(|| a.len().cmp(&b.len()))
}

/// Compares objects member by member in the order of the names; the order in
/// which the members were written does not matter.
fn compare_objects(a: &Object, b: &Object) -> Ordering {
    let (a, b) = (sorted_members(a), sorted_members(b));
    a.iter()
        .zip(&b)
        .map(|(a, b)| a.0.cmp(b.0).then_with(|| compare_values(Some(a.1), Some(b.1))))
        .find(|ordering| ordering.is_ne())
        .unwrap_or_else(|| a.len().cmp(&b.len()))
}

fn sorted_members(object: &Object) -> Vec<(&str, &Value)> {
    let mut members: Vec<_> = object.iter().collect();
    members.sort_unstable_by_key(|(name, _)| *name);
    members
}

/// An object with at most this many members is searched name by name. The members of larger
/// objects are sorted or hashed first, so that a comparison cannot take quadratic
/// time.
pub(crate) const LINEAR_MEMBERS_MAX: usize = 16;

/// The equality of the `=` operator between two defined values.
pub fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) if a.len() <= LINEAR_MEMBERS_MAX => {
            a.len() == b.len()
                && a.iter().all(|(name, value)| b.get(name).is_some_and(|other| equal(value, other)))
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b)),
        (a, b) => compare_values(Some(a), Some(b)).is_eq(),
    }
}

/// The order for the operators `<`, `<=`, `>` and `>=`: `None` between values of
/// different types, and between arrays or objects.
pub(crate) fn compare_same_type(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Null, Value::Null)
        | (Value::Bool(_), Value::Bool(_))
        | (Value::Number(_), Value::Number(_))
        | (Value::String(_), Value::String(_)) => Some(compare_values(Some(a), Some(b))),
        _ => None,
    }
}

/// The key of a value for DISTINCT and GROUP BY: two values have the same
/// bytes exactly when they are equal. Undefined has a key of its own.
pub fn canonical_key(value: Option<&Value>) -> Vec<u8> {
    let mut key = Vec::new();
    write_key(&mut key, value);
    key
}

/// Appends the key of a value; see [`canonical_key`].
pub(crate) fn write_key(key: &mut Vec<u8>, value: Option<&Value>) {
    key.push(type_rank(value));
    match value {
        None | Some(Value::Null | Value::Bool(_)) => {}
        Some(Value::Number(number)) => write_number(key, *number),
        Some(Value::String(text)) => write_text(key, text),
        Some(Value::Array(items)) => {
            key.extend((items.len() as u64).to_be_bytes());
            items.iter().for_each(|item| write_key(key, Some(item)));
        }
        Some(Value::Object(object)) => {
            key.extend((object.len() as u64).to_be_bytes());
            for (name, member) in sorted_members(object) {
                write_text(key, name);
                write_key(key, Some(member));
            }
        }
    }
}

/// Writes a number; `3` and `3.0` have the same bytes.
fn write_number(key: &mut Vec<u8>, number: Number) {
    match as_query_number(number).as_i64() {
        Some(whole) => {
            key.push(0);
            key.extend(whole.to_be_bytes());
        }
        None => {
            key.push(1);
            key.extend(number.as_f64().to_bits().to_be_bytes());
        }
    }
}

fn write_text(key: &mut Vec<u8>, text: &str) {
    key.extend((text.len() as u64).to_be_bytes());
    key.extend(text.as_bytes());
}
