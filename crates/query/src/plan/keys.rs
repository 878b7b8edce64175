//! The partition keys that can hold a result, derived from WHERE.
//!
//! The derivation is conservative: a condition of an unknown form excludes no
//! key.

use std::borrow::Borrow;

use perihelion_model::json::{Number, Value};
use perihelion_model::partition_key::KeyPath;

use crate::ast::{BinaryOperator, LogicalOperator};
use crate::bind::Bound;
use crate::conjunct::{constant_list, sorted_set};
use crate::node::{InList, Node, Step};
use crate::order::compare_values;

/// The most keys to list. With more, querying every partition is cheaper than
/// building the list.
const KEYS_MAX: usize = 1024;

/// The partition keys that a plan addresses.
#[derive(Debug, Clone, PartialEq)]
pub enum PartitionKeyFilter {
    /// Every partition.
    All,
    /// No partition: the statement reads no document, or no document can match.
    Nothing,
    /// These keys, one value per path.
    Keys(Vec<Vec<Value>>),
}

/// The partition keys that can hold a result of a statement. `paths` are the paths of the
/// container's partition key. `reads_clock` tells whether the statement depends on the time. The
/// plan is made with another time than the statement runs with, so the constants of such a
/// statement exclude no key.
pub(super) fn possible_keys(bound: &Bound, paths: &[&str], reads_clock: bool) -> PartitionKeyFilter {
    // Only the innermost stage reads documents. The other stages read rows, which have no
    // partition key.
    let bound = bound.innermost();
    if bound.select.sources.is_empty() {
        return PartitionKeyFilter::Nothing;
    }
    if reads_clock {
        return PartitionKeyFilter::All;
    }
    let Some(condition) = &bound.select.filter else { return PartitionKeyFilter::All };
    if matches!(condition, Node::Constant(value) if *value != Some(Value::Bool(true))) {
        return PartitionKeyFilter::Nothing;
    }
    let Some(hops) = bound.document_hops else { return PartitionKeyFilter::All };
    let mut keys: Vec<Vec<Value>> = vec![Vec::new()];
    for path in paths {
        let Some(values) = allowed_values(condition, hops, &steps(path)) else {
            return PartitionKeyFilter::All;
        };
        if values.len().saturating_mul(keys.len()) > KEYS_MAX {
            return PartitionKeyFilter::All;
        }
        keys = keys
            .iter()
            .flat_map(|key| values.iter().map(|value| key.iter().chain([value]).cloned().collect()))
            .collect();
    }
    match keys.as_slice() {
        [] => PartitionKeyFilter::Nothing,
        [key] if key.is_empty() => PartitionKeyFilter::All,
        _ => PartitionKeyFilter::Keys(keys),
    }
}

/// The steps of a path such as `/a/"b c"/d`; none for a text that is not a path.
fn steps(path: &str) -> Vec<Step> {
    KeyPath::parse(path).map_or_else(Vec::new, |path| path.steps.into_iter().map(Step::Name).collect())
}

/// The values at the path with which the condition can be true; `None` when every value is possible.
/// Arrays and objects are not compared, because that can take long. So OR keeps all arrays and
/// objects, and AND intersects only the lists without arrays and objects. If every list has some, AND
/// keeps the first list.
fn allowed_values(node: &Node, hops: usize, path: &[Step]) -> Option<Vec<Value>> {
    let is_path = |node: &Node| matches!(node, Node::Path { hops: h, steps } if *h == hops && steps == path);
    match node {
        Node::Logical(LogicalOperator::And, operands) => {
            let mut sets = operands.iter().filter_map(|operand| allowed_values(operand, hops, path));
            let first = sets.next()?;
            Some(sets.fold(first, |mut common, set| match (has_only_keys(&common), has_only_keys(&set)) {
                (_, false) => common,
                (false, true) => set,
                (true, true) => {
                    let set = sorted(&set);
                    common.retain(|value| place_of(&set, value).is_ok());
                    common
                }
            }))
        }
        Node::Logical(LogicalOperator::Or, operands) => {
            let (mut keys, mut others): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
            for operand in operands {
                for value in allowed_values(operand, hops, path)? {
                    if keys.len() + others.len() >= KEYS_MAX {
                        return None;
                    }
                    if !is_key(&value) {
                        others.push(value);
                    } else if let Err(place) = place_of(&keys, &value) {
                        keys.insert(place, value);
                    }
                }
            }
            keys.append(&mut others);
            Some(keys)
        }
        Node::Binary(BinaryOperator::Equal, a, b) => match (a.as_ref(), b.as_ref()) {
            (a, Node::Constant(Some(value))) | (Node::Constant(Some(value)), a) if is_path(a) => {
                Some(vec![value.clone()])
            }
            (Node::Call(function, arguments), Node::Constant(Some(Value::Number(number))))
            | (Node::Constant(Some(Value::Number(number))), Node::Call(function, arguments))
                if function.is_absolute_value() && arguments.first().is_some_and(is_path) =>
            {
                numbers_with_absolute_value(*number)
            }
            _ => None,
        },
        Node::In { value, list: InList::Sorted { values, .. }, negated: false } if is_path(value) => {
            (values.len() <= KEYS_MAX).then(|| values.clone())
        }
        Node::Call(function, arguments) if function.is_array_contains() => match constant_list(arguments) {
            Some((items, wanted)) if is_path(wanted) && items.len() <= KEYS_MAX => Some(sorted_set(items)),
            _ => None,
        },
        Node::Call(function, arguments) if function.is_null_test() => match arguments.as_slice() {
            [argument] if is_path(argument) => Some(vec![Value::Null]),
            _ => None,
        },
        Node::Constant(value) if *value != Some(Value::Bool(true)) => Some(Vec::new()),
        node if is_path(node) => Some(vec![Value::Bool(true)]),
        _ => None,
    }
}

/// The numbers whose absolute value is this number; `None` when one of them cannot be computed.
fn numbers_with_absolute_value(number: Number) -> Option<Vec<Value>> {
    let opposite = match number {
        Number::Int(value) => Number::Int(value.checked_neg()?),
        Number::Uint(_) => return None,
        Number::Double(value) => Number::Double(-value),
    };
    let is_negative = number.as_f64() < 0.0;
    Some(if is_negative { Vec::new() } else { sorted_set(&[Value::Number(number), Value::Number(opposite)]) })
}

/// Whether the value can be a part of a partition key.
fn is_key(value: &Value) -> bool {
    !matches!(value, Value::Array(_) | Value::Object(_))
}

fn has_only_keys(values: &[Value]) -> bool {
    values.iter().all(is_key)
}

/// The values in their order, for a binary search. A search of the whole list would be slow, because
/// a statement can combine hundreds of lists of [`KEYS_MAX`] values.
fn sorted(values: &[Value]) -> Vec<&Value> {
    let mut sorted: Vec<&Value> = values.iter().collect();
    sorted.sort_by(|a, b| compare_values(Some(a), Some(b)));
    sorted
}

/// The place of a value in a sorted list; the error is the place where it belongs.
fn place_of(sorted: &[impl Borrow<Value>], value: &Value) -> Result<usize, usize> {
    sorted.binary_search_by(|known| compare_values(Some(known.borrow()), Some(value)))
}
