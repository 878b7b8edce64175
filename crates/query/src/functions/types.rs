//! Functions that test the type of a value.

use perihelion_model::json::{Number, Value};

use super::{Arg, Outcome, Signature, Treatment, function, number, value};
use crate::context::Context;

pub(super) const FUNCTIONS: &[Signature] = &[
    function("IS_ARRAY", 1, 1, |a, _| test(a, |v| matches!(v, Value::Array(_)))),
    function("IS_BOOL", 1, 1, |a, _| test(a, |v| matches!(v, Value::Bool(_)))),
    function("IS_DEFINED", 1, 1, |a, _| test(a, |_| true)),
    function("IS_NULL", 1, 1, |a, _| test(a, |v| matches!(v, Value::Null)))
        .with_treatment(Treatment::NullTest),
    function("IS_NUMBER", 1, 1, |a, _| test(a, |v| matches!(v, Value::Number(_)))),
    function("IS_OBJECT", 1, 1, |a, _| test(a, |v| matches!(v, Value::Object(_)))),
    function("IS_STRING", 1, 1, |a, _| test(a, |v| matches!(v, Value::String(_)))),
    function("IS_PRIMITIVE", 1, 1, |a, _| test(a, |v| !matches!(v, Value::Array(_) | Value::Object(_)))),
    function("IS_INTEGER", 1, 1, |a, _| test(a, |v| v.as_i64().is_some())),
    function("IS_FINITE_NUMBER", 1, 1, is_finite),
];

/// Tests the argument; the result is `false` when the argument is undefined.
fn test(arguments: &[Arg<'_>], predicate: fn(&Value) -> bool) -> Outcome {
    Ok(Some(Value::Bool(value(arguments, 0).is_some_and(predicate))))
}

fn is_finite(arguments: &[Arg<'_>], _: &Context) -> Outcome {
    let finite = match number(arguments, 0) {
        Some(Number::Double(value)) => value.is_finite(),
        other => other.is_some(),
    };
    Ok(Some(Value::Bool(finite)))
}
