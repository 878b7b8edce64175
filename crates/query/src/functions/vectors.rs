//! Functions on vectors: VectorDistance, and `_VectorScore`, which occurs only in statements of
//! query plans (`plan::hybrid`).
//!
//! A vector is an array of numbers. Both functions compare two vectors of the same length;
//! every other argument gives undefined. The binder replaces the optional arguments of a
//! call by the name of the distance function (`bind::search`), so the implementations
//! receive three arguments. Distances are computed from the documents, without an index.

use perihelion_model::json::Value;

use super::{Arg, Outcome, Signature, Treatment, array, function, text};
use crate::context::Context;
use crate::error::Evaluated;
use crate::number::computed_number;
use crate::parameters::DistanceFunction;

pub(super) const FUNCTIONS: &[Signature] = &[
    function("VectorDistance", 2, 4, distance).with_treatment(Treatment::Vectors),
    function("_VectorScore", 2, 4, score).with_treatment(Treatment::Vectors),
];

/// How many elements of a vector take about as long as one step.
const ELEMENTS_PER_STEP: usize = 8;

/// VectorDistance: the similarity (cosine, dot product) or the distance (Euclidean).
fn distance(arguments: &[Arg<'_>], context: &Context) -> Outcome {
    Ok(compare(arguments, context)?.map(|(_, value)| number(value)))
}

/// `_VectorScore`: higher is better, also for the Euclidean distance.
fn score(arguments: &[Arg<'_>], context: &Context) -> Outcome {
    Ok(compare(arguments, context)?.map(|(function, value)| match function {
        DistanceFunction::Cosine | DistanceFunction::DotProduct => number(value),
        DistanceFunction::Euclidean => number(-value),
    }))
}

fn number(value: f64) -> Value {
    Value::Number(computed_number(value))
}

/// The distance function of a call and its result; `None` when the result is undefined.
fn compare(arguments: &[Arg<'_>], context: &Context) -> Evaluated<Option<(DistanceFunction, f64)>> {
    let (Some(a), Some(b)) = (array(arguments, 0), array(arguments, 1)) else { return Ok(None) };
    if a.len() != b.len() || a.is_empty() {
        return Ok(None);
    }
    context.budget.spend_steps(1 + (a.len() / ELEMENTS_PER_STEP) as u64)?;
    let function = text(arguments, 2).and_then(DistanceFunction::by_name).unwrap_or_default();
    let value = match function {
        DistanceFunction::Cosine => cosine(a, b),
        DistanceFunction::DotProduct => sum(a, b, |x, y| x * y),
        DistanceFunction::Euclidean => sum(a, b, |x, y| (x - y) * (x - y)).map(f64::sqrt),
    };
    Ok(value.filter(|value| value.is_finite()).map(|value| (function, value)))
}

fn cosine(a: &[Value], b: &[Value]) -> Option<f64> {
    let product = sum(a, b, |x, y| x * y)?;
    let lengths = sum(a, a, |x, y| x * y)?.sqrt() * sum(b, b, |x, y| x * y)?.sqrt();
    Some(product / lengths)
}

/// The sum of a term for each pair of elements; `None` when an element is not a number.
fn sum(a: &[Value], b: &[Value], term: impl Fn(f64, f64) -> f64) -> Option<f64> {
    let mut total = 0.0;
    for (x, y) in a.iter().zip(b) {
        let (Value::Number(x), Value::Number(y)) = (x, y) else { return None };
        total += term(x.as_f64(), y.as_f64());
    }
    Some(total)
}
