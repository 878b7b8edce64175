//! Comparisons and lookups that are charged to the budget, because a document decides how long
//! they take. A comparison of two numbers is free: their row has cost a step already.

use std::cmp::Ordering;

use perihelion_model::json::{Object, Value};

use super::{LINEAR_MEMBERS_MAX, compare_same_type, compare_values, sorted_members};
use crate::context::Budget;
use crate::error::Evaluated;

/// The bytes of text whose comparison costs one step.
const TEXT_BYTES_PER_STEP: usize = 16;

/// The steps for each member when the members of an object are sorted or hashed.
const STEPS_PER_SORTED_MEMBER: u64 = 2;

/// A step pays for the search of this many members with short names.
const SEARCHED_MEMBERS_PER_STEP: u64 = 32;

/// The equality of the `=` operator between two defined values, with the result of
/// [`super::equal`].
pub(crate) fn equal_within(a: &Value, b: &Value, budget: &Budget) -> Evaluated<bool> {
    match (a, b) {
        (Value::String(a), Value::String(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            budget.spend_steps(text_steps(a))?;
            Ok(a == b)
        }
        (Value::Array(a), Value::Array(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            for (a, b) in a.iter().zip(b) {
                budget.spend_steps(1)?;
                if !equal_within(a, b, budget)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Value::Object(a), Value::Object(b)) => Ok(a.len() == b.len() && equal_objects(a, b, budget)?),
        (a, b) => Ok(compare_values(Some(a), Some(b)).is_eq()),
    }
}

/// The equality of two objects with the same number of members.
fn equal_objects(a: &Object, b: &Object, budget: &Budget) -> Evaluated<bool> {
    if a.len() <= LINEAR_MEMBERS_MAX {
        for (name, value) in a.iter() {
            budget.spend_steps(1 + text_steps(name))?;
            let Some(other) = get_within(b, name, budget)? else { return Ok(false) };
            if !equal_within(value, other, budget)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    budget.spend_steps(sort_steps(a) + sort_steps(b))?;
    for ((a_name, a), (b_name, b)) in sorted_members(a).into_iter().zip(sorted_members(b)) {
        if a_name != b_name || !equal_within(a, b, budget)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The order for the operators `<`, `<=`, `>` and `>=`, with the result of
/// [`compare_same_type`].
pub(crate) fn compare_within(a: &Value, b: &Value, budget: &Budget) -> Evaluated<Option<Ordering>> {
    if let (Value::String(a), Value::String(b)) = (a, b) {
        budget.spend_steps(text_steps(a).min(text_steps(b)))?;
    }
    Ok(compare_same_type(a, b))
}

/// The member of an object, with the result of [`Object::get`], which searches name by name.
pub(crate) fn get_within<'v>(
    object: &'v Object,
    name: &str,
    budget: &Budget,
) -> Evaluated<Option<&'v Value>> {
    // Most objects are small, and then the search is free.
    let steps = object.len() as u64 * (1 + text_steps(name)) / SEARCHED_MEMBERS_PER_STEP;
    if steps > 0 {
        budget.spend_steps(steps)?;
    }
    Ok(object.get(name))
}

/// The steps for sorting or hashing the members of an object.
pub(crate) fn sort_steps(object: &Object) -> u64 {
    object.iter().map(|(name, _)| STEPS_PER_SORTED_MEMBER + text_steps(name)).sum()
}

/// The steps for a walk through a whole value; 0 for null, a boolean or a number.
pub(crate) fn walk_steps(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text_steps(text),
        Value::Array(items) => items.iter().map(|item| 1 + walk_steps(item)).sum(),
        Value::Object(object) => {
            sort_steps(object) + object.iter().map(|(_, member)| walk_steps(member)).sum::<u64>()
        }
    }
}

fn text_steps(text: &str) -> u64 {
    (text.len() / TEXT_BYTES_PER_STEP) as u64
}
