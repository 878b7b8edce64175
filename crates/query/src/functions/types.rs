//! What kind of value is it?

use perihelion_model::json::{Number, Value};

use super::{Outcome, Signature, entry, number, value};
use crate::eval::{Arg, Context};

pub(super) const FUNCTIONS: &[Signature] = &[
    entry("IS_ARRAY", 1, 1, |a, _| is(a, |v| matches!(v, Value::Array(_)))),
    entry("IS_BOOL", 1, 1, |a, _| is(a, |v| matches!(v, Value::Bool(_)))),
    entry("IS_DEFINED", 1, 1, |a, _| is(a, |_| true)),
    entry("IS_NULL", 1, 1, |a, _| is(a, |v| matches!(v, Value::Null))),
    entry("IS_NUMBER", 1, 1, |a, _| is(a, |v| matches!(v, Value::Number(_)))),
    entry("IS_OBJECT", 1, 1, |a, _| is(a, |v| matches!(v, Value::Object(_)))),
    entry("IS_STRING", 1, 1, |a, _| is(a, |v| matches!(v, Value::String(_)))),
    entry("IS_PRIMITIVE", 1, 1, |a, _| is(a, |v| !matches!(v, Value::Array(_) | Value::Object(_)))),
    entry("IS_INTEGER", 1, 1, |a, _| is(a, |v| v.as_i64().is_some())),
    entry("IS_FINITE_NUMBER", 1, 1, is_finite),
];

/// Undefined is of no kind, and that is `false`, not undefined.
fn is(arguments: &[Arg<'_>], kind: fn(&Value) -> bool) -> Outcome {
    Ok(Some(Value::Bool(value(arguments, 0).is_some_and(kind))))
}

fn is_finite(arguments: &[Arg<'_>], _: &Context) -> Outcome {
    let finite = match number(arguments, 0) {
        Some(Number::Double(value)) => value.is_finite(),
        other => other.is_some(),
    };
    Ok(Some(Value::Bool(finite)))
}
