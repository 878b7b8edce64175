//! Conjuncts: the conditions of WHERE in a form that an index can use.
//!
//! A conjunct compares a fixed path of the document with a constant. It is the whole
//! WHERE clause, or one of the conditions that AND joins at its top. A BETWEEN becomes at
//! most two conjuncts. A path alone means `= true`. A condition of another form is not a
//! conjunct. An engine may ignore conjuncts, because the whole WHERE clause is evaluated on
//! every document that it reads.

use perihelion_model::json::Value;

use crate::ast::{BinaryOperator, LogicalOperator};
use crate::node::{InList, Node, Step};
use crate::order::compare_values;

/// A condition that every document in the result satisfies.
#[derive(Debug, Clone, PartialEq)]
pub struct Conjunct {
    /// The path of the value in the document; never empty.
    pub path: Vec<Step>,
    /// The condition on the value.
    pub condition: Condition,
}

/// A comparison with a constant. Less and greater are true only between values of
/// one type: `Less(5)` means a number below 5.
#[derive(Debug, Clone, PartialEq)]
pub enum Condition {
    /// `= value`
    Equal(Value),
    /// `< value`
    Less(Value),
    /// `<= value`
    LessOrEqual(Value),
    /// `> value`
    Greater(Value),
    /// `>= value`
    GreaterOrEqual(Value),
    /// `IN (values)`; the values are sorted. If the list is empty, no document matches.
    In(Vec<Value>),
}

/// The conjuncts of a filter. Each source of FROM binds its value in a frame of its own,
/// and the last source has the innermost frame. `document_hops` is the number of frames
/// from the innermost frame outwards to the frame of the document: 0 without a JOIN.
pub(crate) fn conjuncts(filter: &Node, document_hops: usize) -> Vec<Conjunct> {
    let mut found = Vec::new();
    collect(filter, document_hops, &mut found);
    found
}

fn collect(node: &Node, hops: usize, found: &mut Vec<Conjunct>) {
    match node {
        Node::Logical(LogicalOperator::And, operands) => {
            operands.iter().for_each(|operand| collect(operand, hops, found));
        }
        Node::Path { .. } => add(found, path_of(node, hops), Condition::Equal(Value::Bool(true))),
        Node::Binary(operator, left, right) => add_comparison(*operator, left, right, hops, found),
        Node::Between { value, low, high, negated: false } => {
            add_comparison(BinaryOperator::GreaterEqual, value, low, hops, found);
            add_comparison(BinaryOperator::LessEqual, value, high, hops, found);
        }
        Node::In { value, list: InList::Sorted { values, .. }, negated: false } => {
            add(found, path_of(value, hops), Condition::In(values.clone()));
        }
        // `ARRAY_CONTAINS(constant, path)` is an IN with the items of the constant. A call with
        // a third argument is not an IN, because it may also accept an item with more members.
        Node::Call(function, arguments) if function.is_array_contains() => {
            if let Some((items, wanted)) = constant_list(arguments) {
                add(found, path_of(wanted, hops), Condition::In(sorted_set(items)));
            }
        }
        _ => {}
    }
}

/// The items and the second argument of a call of ARRAY_CONTAINS with two arguments, if its first
/// argument is a constant.
pub(crate) fn constant_list(arguments: &[Node]) -> Option<(&[Value], &Node)> {
    match arguments {
        [items, wanted] => match items.as_constant() {
            Some(Some(Value::Array(items))) => Some((items, wanted)),
            _ => None,
        },
        _ => None,
    }
}

/// The values in their order, each once.
pub(crate) fn sorted_set(values: &[Value]) -> Vec<Value> {
    let mut values: Vec<Value> = values.to_vec();
    values.sort_by(|a, b| compare_values(Some(a), Some(b)));
    values.dedup_by(|a, b| compare_values(Some(a), Some(b)).is_eq());
    values
}

/// Adds the conjunct of a comparison, if it compares a path with a defined constant.
fn add_comparison(
    operator: BinaryOperator,
    left: &Node,
    right: &Node,
    hops: usize,
    found: &mut Vec<Conjunct>,
) {
    let (path, constant, operator) = match (left.as_constant(), right.as_constant()) {
        (None, Some(constant)) => (path_of(left, hops), constant, Some(operator)),
        (Some(constant), None) => (path_of(right, hops), constant, mirrored(operator)),
        _ => return,
    };
    let (Some(operator), Some(value)) = (operator, constant.clone()) else { return };
    let condition = match operator {
        BinaryOperator::Equal => Condition::Equal(value),
        BinaryOperator::Less => Condition::Less(value),
        BinaryOperator::LessEqual => Condition::LessOrEqual(value),
        BinaryOperator::Greater => Condition::Greater(value),
        BinaryOperator::GreaterEqual => Condition::GreaterOrEqual(value),
        _ => return,
    };
    add(found, path, condition);
}

fn add(found: &mut Vec<Conjunct>, path: Option<&[Step]>, condition: Condition) {
    if let Some(path) = path {
        found.push(Conjunct { path: path.to_vec(), condition });
    }
}

/// The operator of the same comparison with its sides exchanged; `None` for operators
/// that make no conjunct.
fn mirrored(operator: BinaryOperator) -> Option<BinaryOperator> {
    match operator {
        BinaryOperator::Equal => Some(BinaryOperator::Equal),
        BinaryOperator::Less => Some(BinaryOperator::Greater),
        BinaryOperator::LessEqual => Some(BinaryOperator::GreaterEqual),
        BinaryOperator::Greater => Some(BinaryOperator::Less),
        BinaryOperator::GreaterEqual => Some(BinaryOperator::LessEqual),
        _ => None,
    }
}

/// The steps of a path that starts at the document; `None` for any other node, and for
/// the document itself.
pub(crate) fn path_of(node: &Node, document_hops: usize) -> Option<&[Step]> {
    match node {
        Node::Path { hops, steps } if *hops == document_hops && !steps.is_empty() => Some(steps),
        _ => None,
    }
}
