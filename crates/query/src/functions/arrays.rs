//! Functions on arrays, sets and objects.

use std::collections::HashSet;

use perihelion_model::json::{Object, Value};

use super::{Arg, MANY, Outcome, Signature, array, flag, function, integer, text, value, whole_number};
use crate::context::{Budget, Context};
use crate::error::Evaluated;
use crate::order::{LINEAR_MEMBERS_MAX, canonical_key, equal_within, get_within, sort_steps};

pub(super) const FUNCTIONS: &[Signature] = &[
    function("ARRAY_CONCAT", 2, MANY, concat),
    function("ARRAY_CONTAINS", 2, 3, contains),
    // Not documented. A baseline of the service's planner calls it.
    function("_TRY_ARRAY_CONTAINS", 2, 3, contains),
    function("ARRAY_CONTAINS_ALL", 2, MANY, |a, c| contains_many(a, c, true)),
    function("ARRAY_CONTAINS_ANY", 2, MANY, |a, c| contains_many(a, c, false)),
    function("ARRAY_LENGTH", 1, 1, |a, _| Ok(array(a, 0).map(|items| (items.len() as i64).into()))),
    function("ARRAY_SLICE", 2, 3, slice),
    function("CHOOSE", 2, MANY, choose),
    function("IIF", 3, 3, iif),
    function("ObjectToArray", 1, 3, object_to_array),
    function("SetIntersect", 2, 2, |a, c| combine(a, c, true)),
    function("SetUnion", 2, 2, |a, c| combine(a, c, false)),
    function("SetDifference", 2, 2, difference),
    function("SetEqual", 2, 2, set_equal),
];

/// Copies a value and charges the copy to the budget.
fn copied(context: &Context, value: &Value) -> Evaluated<Value> {
    context.budget.spend_value(value)?;
    Ok(value.clone())
}

fn copied_all<'v>(context: &Context, values: impl Iterator<Item = &'v Value>) -> Outcome {
    let copies = values.map(|value| copied(context, value)).collect::<Evaluated<Vec<_>>>()?;
    Ok(Some(Value::Array(copies)))
}

fn concat(arguments: &[Arg<'_>], context: &Context) -> Outcome {
    let arrays: Option<Vec<&[Value]>> = (0..arguments.len()).map(|index| array(arguments, index)).collect();
    let Some(arrays) = arrays else { return Ok(None) };
    copied_all(context, arrays.into_iter().flatten())
}

/// ARRAY_CONTAINS. The third argument is optional: with `true` an object may have more
/// members than the wanted object. The members themselves must be equal.
fn contains(arguments: &[Arg<'_>], context: &Context) -> Outcome {
    let (Some(items), Some(wanted), Some(is_partial)) =
        (array(arguments, 0), value(arguments, 1), flag(arguments, 2))
    else {
        return Ok(None);
    };
    let is_wanted: fn(&Value, &Value, &Budget) -> Evaluated<bool> =
        if is_partial { covers } else { equal_within };
    let found = has_item(items, |item| is_wanted(item, wanted, &context.budget), context)?;
    Ok(Some(Value::Bool(found)))
}

/// Whether one of the items is wanted.
fn has_item(
    items: &[Value],
    is_wanted: impl Fn(&Value) -> Evaluated<bool>,
    context: &Context,
) -> Evaluated<bool> {
    context.budget.spend_steps(items.len() as u64)?;
    for item in items {
        if is_wanted(item)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the item equals the wanted value, or is an object that has all members of the
/// wanted object, with equal values.
fn covers(item: &Value, wanted: &Value, budget: &Budget) -> Evaluated<bool> {
    let (Value::Object(item), Value::Object(wanted)) = (item, wanted) else {
        return equal_within(item, wanted, budget);
    };
    let is_large = wanted.len() > LINEAR_MEMBERS_MAX;
    let mut members = std::collections::HashMap::new();
    budget.spend_steps(sort_steps(wanted))?;
    if is_large {
        budget.spend_steps(sort_steps(item))?;
        members.extend(item.iter());
    }
    for (name, value) in wanted.iter() {
        let member = if is_large { members.get(name).copied() } else { get_within(item, name, budget)? };
        let Some(member) = member else { return Ok(false) };
        if !equal_within(member, value, budget)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// ARRAY_CONTAINS_ALL (if `needs_all`) and ARRAY_CONTAINS_ANY. An undefined value makes the
/// result undefined, unless another value decides it, as with AND and OR.
fn contains_many(arguments: &[Arg<'_>], context: &Context, needs_all: bool) -> Outcome {
    let Some(items) = array(arguments, 0) else { return Ok(None) };
    let mut has_undefined = false;
    for index in 1..arguments.len() {
        let Some(wanted) = value(arguments, index) else {
            has_undefined = true;
            continue;
        };
        let has = has_item(items, |item| equal_within(item, wanted, &context.budget), context)?;
        if has != needs_all {
            return Ok(Some(Value::Bool(has)));
        }
    }
    Ok((!has_undefined).then_some(Value::Bool(needs_all)))
}

/// ARRAY_SLICE. A negative start counts from the end. Without a third argument the slice
/// has all further elements.
fn slice(arguments: &[Arg<'_>], context: &Context) -> Outcome {
    let (Some(items), Some(start)) = (array(arguments, 0), whole_number(arguments, 1)) else {
        return Ok(None);
    };
    let count = if arguments.len() > 2 { whole_number(arguments, 2) } else { Some(i64::MAX) };
    let Some(count) = count else { return Ok(None) };
    let length = items.len() as i64;
    let start = if start < 0 { length.saturating_add(start).max(0) } else { start.min(length) };
    let end = start.saturating_add(count.max(0)).min(length);
    copied_all(context, items.get(start as usize..end as usize).unwrap_or(&[]).iter())
}

/// CHOOSE. The first choice has number 1. For a number without a choice the result is
/// undefined.
fn choose(arguments: &[Arg<'_>], context: &Context) -> Outcome {
    let Some(number) = integer(arguments, 0) else { return Ok(None) };
    let Ok(index) = usize::try_from(number) else { return Ok(None) };
    if index == 0 {
        return Ok(None);
    }
    value(arguments, index).map(|chosen| copied(context, chosen)).transpose()
}

/// IIF: the second argument if the first is `true`, otherwise the third.
fn iif(arguments: &[Arg<'_>], context: &Context) -> Outcome {
    let index = if value(arguments, 0) == Some(&Value::Bool(true)) { 1 } else { 2 };
    value(arguments, index).map(|chosen| copied(context, chosen)).transpose()
}

/// ObjectToArray: one object per member, with its name and its value. The optional
/// arguments name these two members; the defaults are `k` and `v`.
fn object_to_array(arguments: &[Arg<'_>], context: &Context) -> Outcome {
    let Some(object) = value(arguments, 0).and_then(Value::as_object) else { return Ok(None) };
    let named = |index: usize, default: &'static str| match arguments.get(index) {
        None => Some(default),
        Some(_) => text(arguments, index),
    };
    let (Some(key), Some(content)) = (named(1, "k"), named(2, "v")) else { return Ok(None) };
    let mut items = Vec::with_capacity(object.len());
    for (name, member) in object.iter() {
        context.budget.spend_bytes(name.len() + key.len() + content.len())?;
        items.push(Value::Object(Object::from_members(vec![
            (key.to_owned(), name.into()),
            (content.to_owned(), copied(context, member)?),
        ])));
    }
    Ok(Some(Value::Array(items)))
}

/// The intersection (if `only_common`) or the union of two arrays, without duplicates.
fn combine(arguments: &[Arg<'_>], context: &Context, only_common: bool) -> Outcome {
    let (Some(a), Some(b)) = (array(arguments, 0), array(arguments, 1)) else { return Ok(None) };
    let keys_of_b = canonical_keys(b, context)?;
    spend_keys(a, context)?;
    let rest = if only_common { &[] } else { b };
    let mut seen = HashSet::new();
    let combined =
        a.iter().filter(|item| !only_common || keys_of_b.contains(&canonical_key(Some(item)))).chain(rest);
    copied_all(context, combined.filter(|item| seen.insert(canonical_key(Some(item)))))
}

fn difference(arguments: &[Arg<'_>], context: &Context) -> Outcome {
    let (Some(a), Some(b)) = (array(arguments, 0), array(arguments, 1)) else { return Ok(None) };
    let mut seen = canonical_keys(b, context)?;
    spend_keys(a, context)?;
    copied_all(context, a.iter().filter(|item| seen.insert(canonical_key(Some(item)))))
}

fn set_equal(arguments: &[Arg<'_>], context: &Context) -> Outcome {
    let (Some(a), Some(b)) = (array(arguments, 0), array(arguments, 1)) else { return Ok(None) };
    Ok(Some(Value::Bool(canonical_keys(a, context)? == canonical_keys(b, context)?)))
}

/// The steps for making the key of an item and looking it up.
const STEPS_PER_KEY: u64 = 2;

/// Charges for the keys of the items.
fn spend_keys(items: &[Value], context: &Context) -> Evaluated<()> {
    context.budget.spend_steps(items.len() as u64 * STEPS_PER_KEY)?;
    items.iter().try_for_each(|item| context.budget.spend_value(item))
}

/// The canonical keys of the items. Equal items have the same key.
fn canonical_keys(items: &[Value], context: &Context) -> Evaluated<HashSet<Vec<u8>>> {
    spend_keys(items, context)?;
    Ok(items.iter().map(|item| canonical_key(Some(item))).collect())
}
