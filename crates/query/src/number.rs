//! Numbers in queries: an integer that fits i64 is exact, every other number is a
//! double. Comparisons are exact, also between an integer and a double, so the order
//! of numbers is total.

use std::cmp::Ordering;

use perihelion_model::json::Number;

/// Orders two numbers by value.
pub fn compare_numbers(a: Number, b: Number) -> Ordering {
    match (as_query_number(a), as_query_number(b)) {
        (Number::Int(a), Number::Int(b)) => a.cmp(&b),
        (Number::Int(a), Number::Double(b)) => compare_integer_to_double(a, b),
        (Number::Double(a), Number::Int(b)) => compare_integer_to_double(b, a).reverse(),
        (a, b) => a.as_f64().total_cmp(&b.as_f64()),
    }
}

/// Turns integers beyond i64 into doubles, as the service's queries do.
pub(crate) fn as_query_number(number: Number) -> Number {
    match number {
        Number::Uint(value) => Number::Double(value as f64),
        Number::Int(_) | Number::Double(_) => number,
    }
}

/// The number for the result of an operator or function. Minus zero becomes zero, as
/// in the service. The value may be infinite or NaN; it is refused only if it reaches
/// the output of the statement.
pub(crate) fn computed_number(value: f64) -> Number {
    Number::Double(if value == 0.0 { 0.0 } else { value })
}

/// 2 to the power 63, the first double above every i64.
const INTEGERS_END: f64 = 9_223_372_036_854_775_808.0;

fn compare_integer_to_double(a: i64, b: f64) -> Ordering {
    if b.is_nan() || b >= INTEGERS_END {
        return Ordering::Less;
    }
    if b < -INTEGERS_END {
        return Ordering::Greater;
    }
    let whole = b.trunc();
    a.cmp(&(whole as i64)).then_with(|| 0.0_f64.total_cmp(&(b - whole + 0.0)))
}
