//! Evaluation: the value of an expression for one row.
//!
//! An evaluated value is an [`Arg`]: borrowed or owned, and `None` when it is
//! undefined. An operator with an undefined operand has an undefined result, unless
//! the operator's rules say otherwise. Logic is three-valued, and only `true` passes
//! a filter. Values are borrowed from the document or the program where possible.
//! Rows, comparisons, copies of values, and text that is built are charged to the budget of the
//! [`Context`] before the work is done. The budget limits the time and memory of a statement.

mod groups;
mod operators;
mod select;

use std::borrow::Cow;

use perihelion_model::json::{Object, Value};

pub use groups::GroupWindow;
pub(crate) use groups::{GroupTable, group_rows};
pub(crate) use select::{JoinWalk, each_row, each_row_from, order_keys, output_of, values_of};

use crate::ast::{LogicalOperator, SubqueryKind, UnaryOperator};
use crate::context::{Budget, Context};
use crate::error::{Evaluated, EvaluationError};
use crate::functions::{Arg, Function};
use crate::like::LikePattern;
use crate::node::{InList, Node, Pattern, Step};
use crate::order::{compare_values, compare_within, equal_within, get_within, walk_steps};

/// True, false or undefined.
type Truth = Evaluated<Option<bool>>;

/// A linked list of the bindings in scope, innermost first.
#[derive(Clone, Copy)]
pub(crate) struct Frame<'e> {
    pub(crate) binding: Binding<'e>,
    pub(crate) outer: Option<&'e Frame<'e>>,
}

/// The document, the value of one source of FROM, or a group.
#[derive(Clone, Copy)]
pub(crate) enum Binding<'e> {
    Value(Option<&'e Value>),
    Group { keys: &'e [Option<Value>], aggregates: &'e [Option<Value>] },
}

impl<'e> Frame<'e> {
    pub(crate) fn root(document: Option<&'e Value>) -> Self {
        Frame { binding: Binding::Value(document), outer: None }
    }

    pub(crate) fn inner(binding: Binding<'e>, outer: &'e Frame<'e>) -> Self {
        Frame { binding, outer: Some(outer) }
    }

    /// The binding that is `hops` frames outwards.
    fn at(&self, hops: usize) -> Option<Binding<'e>> {
        let mut frame = *self;
        for _ in 0..hops {
            frame = *frame.outer?;
        }
        Some(frame.binding)
    }

    fn value(&self, hops: usize) -> Option<&'e Value> {
        match self.at(hops)? {
            Binding::Value(value) => value,
            Binding::Group { .. } => None,
        }
    }

    fn group_key(&self, hops: usize, index: usize) -> Option<&'e Value> {
        match self.at(hops)? {
            Binding::Group { keys, .. } => keys.get(index)?.as_ref(),
            Binding::Value(_) => None,
        }
    }

    fn aggregate(&self, hops: usize, index: usize) -> Option<&'e Value> {
        match self.at(hops)? {
            Binding::Group { aggregates, .. } => aggregates.get(index)?.as_ref(),
            Binding::Value(_) => None,
        }
    }
}

/// The value of the expression; `None` when it is undefined.
pub(crate) fn evaluate<'e>(node: &'e Node, frame: &Frame<'e>, context: &'e Context) -> Evaluated<Arg<'e>> {
    Ok(match node {
        Node::Constant(value) => value.as_ref().map(Cow::Borrowed),
        Node::Path { hops, steps } => {
            let Some(value) = frame.value(*hops) else { return Ok(None) };
            follow(value, steps, &context.budget)?.map(Cow::Borrowed)
        }
        Node::GroupKey { hops, index } => frame.group_key(*hops, *index).map(Cow::Borrowed),
        Node::Aggregate { hops, index } => frame.aggregate(*hops, *index).map(Cow::Borrowed),
        Node::Step(base, step) => match evaluate(base, frame, context)? {
            Some(base) => step_into(base, step, &context.budget)?,
            None => None,
        },
        Node::Index(base, index) => {
            let base = evaluate(base, frame, context)?;
            let index = evaluate(index, frame, context)?;
            match base.zip(index).and_then(|(base, index)| Some((base, as_step(&index)?))) {
                Some((base, step)) => step_into(base, &step, &context.budget)?,
                None => None,
            }
        }
        Node::Unary(UnaryOperator::Not, _)
        | Node::Logical(..)
        | Node::Between { .. }
        | Node::In { .. }
        | Node::Like { .. }
        | Node::Regex { .. } => truth(node, frame, context)?.map(|flag| Cow::Owned(Value::Bool(flag))),
        Node::Unary(operator, operand) => {
            let operand = evaluate(operand, frame, context)?;
            operand.and_then(|operand| operators::unary(*operator, &operand)).map(Cow::Owned)
        }
        Node::Binary(operator, left, right) => {
            return operators::binary(*operator, left, right, frame, context);
        }
        Node::Conditional(condition, consequent, alternative) => {
            let branch =
                if truth(condition, frame, context)? == Some(true) { consequent } else { alternative };
            return evaluate(branch, frame, context);
        }
        Node::Array(items) => Some(Cow::Owned(build_array(items, frame, context)?)),
        Node::Object(members) => Some(Cow::Owned(build_object(members, frame, context)?)),
        Node::Call(function, arguments) => return call_function(*function, arguments, frame, context),
        Node::Udf(name) => return Err(EvaluationError::UnknownUdf(name.clone())),
        Node::Subquery(kind, select) => return run_subquery(*kind, select, frame, context),
    })
}

/// The truth of an expression, as a filter needs it. Values that are not
/// booleans count as undefined.
pub(crate) fn truth<'e>(node: &'e Node, frame: &Frame<'e>, context: &'e Context) -> Truth {
    match node {
        Node::Unary(UnaryOperator::Not, operand) => Ok(truth(operand, frame, context)?.map(|flag| !flag)),
        Node::Logical(operator, operands) => logical(*operator, operands, frame, context),
        Node::Between { value, low, high, negated } => {
            let value = evaluate(value, frame, context)?;
            let low = evaluate(low, frame, context)?;
            let high = evaluate(high, frame, context)?;
            Ok(between(value, low, high, &context.budget)?.map(|inside| inside != *negated))
        }
        Node::In { value, list, negated } => {
            let value = evaluate(value, frame, context)?;
            Ok(is_in_list(value, list, frame, context)?.map(|found| found != *negated))
        }
        Node::Like { value, pattern, negated } => {
            let value = evaluate(value, frame, context)?;
            Ok(like(value, pattern, frame, context)?.map(|matches| matches != *negated))
        }
        Node::Regex { value, pattern } => match (evaluate(value, frame, context)?.as_deref(), pattern) {
            (Some(Value::String(text)), Some(pattern)) => {
                crate::regex::matches(pattern, text, context).map(Some)
            }
            _ => Ok(None),
        },
        _ => Ok(match evaluate(node, frame, context)?.as_deref() {
            Some(Value::Bool(flag)) => Some(*flag),
            _ => None,
        }),
    }
}

/// Follows the steps of a path; `None` where a step does not exist.
pub(crate) fn follow<'e>(value: &'e Value, steps: &[Step], budget: &Budget) -> Evaluated<Option<&'e Value>> {
    let mut value = value;
    for step in steps {
        let found = match (step, value) {
            (Step::Name(name), Value::Object(object)) => get_within(object, name, budget)?,
            (Step::Item(index), Value::Array(items)) => items.get(*index),
            _ => None,
        };
        let Some(found) = found else { return Ok(None) };
        value = found;
    }
    Ok(Some(value))
}

/// Follows one step into a value; `None` when the step does not exist.
fn step_into<'e>(base: Cow<'e, Value>, step: &Step, budget: &Budget) -> Evaluated<Arg<'e>> {
    Ok(match base {
        Cow::Borrowed(base) => follow(base, std::slice::from_ref(step), budget)?.map(Cow::Borrowed),
        // The bytes of an owned value are charged already.
        Cow::Owned(base) => match (step, base) {
            (Step::Name(name), Value::Object(mut object)) => object.remove(name).map(Cow::Owned),
            (Step::Item(index), Value::Array(mut items)) => {
                (*index < items.len()).then(|| Cow::Owned(items.swap_remove(*index)))
            }
            _ => None,
        },
    })
}

/// The path step for the value of an index (`base[index]`). `None` unless the value is a
/// string or a non-negative integer.
pub(crate) fn as_step(index: &Value) -> Option<Step> {
    match index {
        Value::String(name) => Some(Step::Name(name.clone())),
        Value::Number(number) => usize::try_from(number.as_i64()?).ok().map(Step::Item),
        _ => None,
    }
}

/// `AND` is false if an operand is false. `OR` is true if an operand is true. Otherwise
/// an undefined operand makes the result undefined.
fn logical<'e>(
    operator: LogicalOperator,
    operands: &'e [Node],
    frame: &Frame<'e>,
    context: &'e Context,
) -> Truth {
    let decisive = operator == LogicalOperator::Or;
    let mut has_undefined = false;
    for operand in operands {
        match truth(operand, frame, context)? {
            Some(flag) if flag == decisive => return Ok(Some(decisive)),
            Some(_) => {}
            None => has_undefined = true,
        }
    }
    Ok((!has_undefined).then_some(!decisive))
}

/// Undefined when the value and a bound cannot be compared, unless the other bound
/// excludes the value.
fn between(value: Arg<'_>, low: Arg<'_>, high: Arg<'_>, budget: &Budget) -> Truth {
    let Some(value) = value else { return Ok(None) };
    let is_ordered = |smaller: Option<&Value>, larger: Option<&Value>| -> Truth {
        let Some((smaller, larger)) = smaller.zip(larger) else { return Ok(None) };
        Ok(compare_within(smaller, larger, budget)?.map(|ordering| ordering.is_le()))
    };
    let above = is_ordered(low.as_deref(), Some(&value))?;
    let below = is_ordered(Some(&value), high.as_deref())?;
    Ok(match (above, below) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    })
}

/// Undefined only if the value is undefined. An undefined element of the list equals no value.
fn is_in_list<'e>(value: Arg<'e>, list: &'e InList, frame: &Frame<'e>, context: &'e Context) -> Truth {
    let Some(value) = value else { return Ok(None) };
    match list {
        InList::Sorted { values, array_or_object_steps_max } => {
            // A comparison with a primitive takes at most a walk through the compared value. A comparison
            // of two arrays or objects may walk through both, because it sorts the members of objects.
            let list_steps = match &*value {
                Value::Array(_) | Value::Object(_) => array_or_object_steps_max.unwrap_or(0),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
            };
            let steps = walk_steps(&value).saturating_add(list_steps);
            let comparisons = u64::from(values.len().max(1).ilog2()) + 1;
            context.budget.spend_steps(steps.saturating_mul(comparisons))?;
            let found = values.binary_search_by(|known| compare_values(Some(known), Some(&value)));
            Ok(Some(found.is_ok()))
        }
        InList::Nodes(nodes) => {
            for node in nodes {
                match evaluate(node, frame, context)? {
                    Some(other) if equal_within(&value, &other, &context.budget)? => return Ok(Some(true)),
                    Some(_) | None => {}
                }
            }
            Ok(Some(false))
        }
    }
}

fn like<'e>(value: Arg<'e>, pattern: &'e Pattern, frame: &Frame<'e>, context: &'e Context) -> Truth {
    let computed;
    let pattern = match pattern {
        Pattern::Fixed(pattern) => pattern,
        Pattern::Computed { pattern, escape } => match evaluate(pattern, frame, context)?.as_deref() {
            Some(Value::String(text)) => {
                context.budget.spend_steps(LikePattern::compile_steps(text))?;
                context.budget.spend_bytes(LikePattern::compile_bytes(text))?;
                computed = LikePattern::new(text, *escape);
                &computed
            }
            _ => return Ok(None),
        },
    };
    let Some(Value::String(text)) = value.as_deref() else { return Ok(None) };
    context.budget.spend_steps(pattern.steps(text))?;
    Ok(Some(pattern.matches(text)))
}

/// Builds an array. Undefined elements are left out, as in the service.
fn build_array<'e>(items: &'e [Node], frame: &Frame<'e>, context: &'e Context) -> Evaluated<Value> {
    let mut built = Vec::with_capacity(items.len());
    for item in items {
        if let Some(value) = evaluate(item, frame, context)? {
            built.push(context.own(value)?);
        }
    }
    Ok(Value::Array(built))
}

/// Builds an object. Undefined members are left out.
pub(crate) fn build_object<'e>(
    members: &'e [(String, Node)],
    frame: &Frame<'e>,
    context: &'e Context,
) -> Evaluated<Value> {
    let mut built = Vec::with_capacity(members.len());
    for (name, member) in members {
        if let Some(value) = evaluate(member, frame, context)? {
            built.push((name.clone(), context.own(value)?));
        }
    }
    Ok(Value::Object(Object::from_members(built)))
}

fn call_function<'e>(
    function: Function,
    arguments: &'e [Node],
    frame: &Frame<'e>,
    context: &'e Context,
) -> Evaluated<Arg<'e>> {
    let value = |node: &'e Node| evaluate(node, frame, context);
    // The usual numbers of arguments need no list on the heap.
    let outcome = match arguments {
        [] => function.run(&[], context),
        [a] => function.run(&[value(a)?], context),
        [a, b] => function.run(&[value(a)?, value(b)?], context),
        [a, b, c] => function.run(&[value(a)?, value(b)?, value(c)?], context),
        many => function.run(&many.iter().map(value).collect::<Result<Vec<_>, _>>()?, context),
    };
    Ok(outcome?.map(Cow::Owned))
}

fn run_subquery<'e>(
    kind: SubqueryKind,
    select: &'e crate::node::SelectNode,
    frame: &Frame<'e>,
    context: &'e Context,
) -> Evaluated<Arg<'e>> {
    // EXISTS needs one value, the other kinds need all values.
    let values_max = if kind == SubqueryKind::Exists { 1 } else { usize::MAX };
    let mut values = values_of(select, frame, context, values_max)?;
    let value = match kind {
        SubqueryKind::Scalar | SubqueryKind::First => (!values.is_empty()).then(|| values.swap_remove(0)),
        SubqueryKind::Last => values.pop(),
        SubqueryKind::Array => Some(Value::Array(values)),
        SubqueryKind::Exists => Some(Value::Bool(!values.is_empty())),
        SubqueryKind::All => Some(Value::Bool(values.iter().all(|value| *value == Value::Bool(true)))),
    };
    Ok(value.map(Cow::Owned))
}
