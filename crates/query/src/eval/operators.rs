//! The operators on numbers, bits and text, and comparison, by the service's
//! rules.
//!
//! A sum, difference, product or remainder of integers is an integer if it fits i64,
//! and else a double; the result of a division is always a double. The result of a bit
//! operator is an integer of 32 bits. A division or remainder by zero, and a result
//! outside the range of a double, is infinity or NaN. Infinity and NaN are refused only
//! if they reach the output.

use std::borrow::Cow;
use std::cmp::Ordering;

use perihelion_model::json::{Number, Value};

use super::{Frame, evaluate};
use crate::ast::{BinaryOperator, UnaryOperator};
use crate::context::Context;
use crate::error::Evaluated;
use crate::functions::Arg;
use crate::node::Node;
use crate::number::{as_query_number, computed_number};
use crate::order::{compare_within, equal_within};

pub(super) fn unary(operator: UnaryOperator, operand: &Value) -> Option<Value> {
    let Value::Number(number) = operand else { return None };
    let number = as_query_number(*number);
    Some(Value::Number(match operator {
        UnaryOperator::Plus => number,
        UnaryOperator::Minus => match number {
            Number::Int(whole) => {
                whole.checked_neg().map_or_else(|| Number::Double(-(whole as f64)), Number::Int)
            }
            other => computed_number(-other.as_f64()),
        },
        UnaryOperator::BitNot => Number::Int(i64::from(!bits(number))),
        // `NOT` is evaluated by `truth`.
        UnaryOperator::Not => return None,
    }))
}

pub(super) fn binary<'e>(
    operator: BinaryOperator,
    left: &'e Node,
    right: &'e Node,
    frame: &Frame<'e>,
    context: &'e Context,
) -> Evaluated<Arg<'e>> {
    let left = evaluate(left, frame, context)?;
    if operator == BinaryOperator::Coalesce {
        return if left.is_some() { Ok(left) } else { evaluate(right, frame, context) };
    }
    let right = evaluate(right, frame, context)?;
    let Some((left, right)) = left.zip(right) else { return Ok(None) };
    if operator == BinaryOperator::Concat {
        return concat(&left, &right, context);
    }
    Ok(apply(operator, &left, &right, context)?.map(Cow::Owned))
}

fn apply(
    operator: BinaryOperator,
    left: &Value,
    right: &Value,
    context: &Context,
) -> Evaluated<Option<Value>> {
    let budget = &context.budget;
    let related = |wanted: fn(Ordering) -> bool| -> Evaluated<Option<Value>> {
        Ok(compare_within(left, right, budget)?.map(|ordering| Value::Bool(wanted(ordering))))
    };
    Ok(match operator {
        BinaryOperator::Equal => Some(Value::Bool(equal_within(left, right, budget)?)),
        BinaryOperator::NotEqual => Some(Value::Bool(!equal_within(left, right, budget)?)),
        BinaryOperator::Less => related(Ordering::is_lt)?,
        BinaryOperator::LessEqual => related(Ordering::is_le)?,
        BinaryOperator::Greater => related(Ordering::is_gt)?,
        BinaryOperator::GreaterEqual => related(Ordering::is_ge)?,
        BinaryOperator::Add
        | BinaryOperator::Subtract
        | BinaryOperator::Multiply
        | BinaryOperator::Divide
        | BinaryOperator::Modulo
        | BinaryOperator::BitAnd
        | BinaryOperator::BitOr
        | BinaryOperator::BitXor
        | BinaryOperator::ShiftLeft
        | BinaryOperator::ShiftRight
        | BinaryOperator::ShiftRightZero => {
            let (Value::Number(left), Value::Number(right)) = (left, right) else { return Ok(None) };
            Some(Value::Number(arithmetic(operator, as_query_number(*left), as_query_number(*right))))
        }
        // `binary` evaluates these two itself.
        BinaryOperator::Coalesce | BinaryOperator::Concat => None,
    })
}

fn arithmetic(operator: BinaryOperator, a: Number, b: Number) -> Number {
    let whole = match (operator, a, b) {
        (BinaryOperator::Add, Number::Int(a), Number::Int(b)) => a.checked_add(b),
        (BinaryOperator::Subtract, Number::Int(a), Number::Int(b)) => a.checked_sub(b),
        (BinaryOperator::Multiply, Number::Int(a), Number::Int(b)) => a.checked_mul(b),
        (BinaryOperator::Modulo, Number::Int(a), Number::Int(b)) => a.checked_rem(b),
        (BinaryOperator::BitAnd, a, b) => Some(i64::from(bits(a) & bits(b))),
        (BinaryOperator::BitOr, a, b) => Some(i64::from(bits(a) | bits(b))),
        (BinaryOperator::BitXor, a, b) => Some(i64::from(bits(a) ^ bits(b))),
        // The wrapping shifts take the distance modulo 32.
        (BinaryOperator::ShiftLeft, a, b) => Some(i64::from(bits(a).wrapping_shl(bits(b) as u32))),
        (BinaryOperator::ShiftRight, a, b) => Some(i64::from(bits(a).wrapping_shr(bits(b) as u32))),
        (BinaryOperator::ShiftRightZero, a, b) => {
            Some(i64::from((bits(a) as u32).wrapping_shr(bits(b) as u32)))
        }
        _ => None,
    };
    if let Some(whole) = whole {
        return Number::Int(whole);
    }
    let (a, b) = (a.as_f64(), b.as_f64());
    computed_number(match operator {
        BinaryOperator::Add => a + b,
        BinaryOperator::Subtract => a - b,
        BinaryOperator::Multiply => a * b,
        BinaryOperator::Divide => a / b,
        _ => a % b,
    })
}

/// The operand of a bit operator: the low 32 bits of the integral part, signed, as in
/// JavaScript, and 0 for infinity and NaN. Unlike in JavaScript, a finite double beyond i64 counts
/// as the nearest i64.
fn bits(number: Number) -> i32 {
    match number {
        Number::Int(whole) => whole as i32,
        other if !other.as_f64().is_finite() => 0,
        other => other.as_f64() as i64 as i32,
    }
}

fn concat<'e>(left: &Value, right: &Value, context: &Context) -> Evaluated<Arg<'e>> {
    let (Value::String(left), Value::String(right)) = (left, right) else { return Ok(None) };
    context.budget.spend_bytes(left.len() + right.len())?;
    Ok(Some(Cow::Owned(Value::String(format!("{left}{right}")))))
}
