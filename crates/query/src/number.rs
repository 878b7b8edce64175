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
        (a, b) => compare_doubles(a.as_f64(), b.as_f64()),
    }
}

/// NaN equals NaN and is greater than every other number, whatever its sign (0 divided by 0 is a
/// negative NaN on some processors). Minus zero equals zero.
fn compare_doubles(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
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
    // `total_cmp` tells minus zero from zero; `+ 0.0` makes a minus zero a zero.
    a.cmp(&(whole as i64)).then_with(|| 0.0_f64.total_cmp(&(b - whole + 0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Story of a bug: `0/0` is a negative NaN on x86-64. It was less than every double and greater
    /// than every integer, so the comparison was not a total order, and `c.x IN (0/0, 1, 2.5)` with some
    /// dozens of values panicked in the sort of its list.
    #[test]
    fn the_order_of_numbers_is_total_with_nan_of_both_signs_and_minus_zero() {
        let doubles =
            [f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 2.5, -2.5, 9.3e18, -9.3e18];
        let integers = [0, 1, 3, -3, i64::MAX, i64::MIN];
        let numbers: Vec<Number> =
            doubles.map(Number::Double).into_iter().chain(integers.map(Number::Int)).collect();
        for &a in &numbers {
            for &b in &numbers {
                let ordering = compare_numbers(a, b);
                assert_eq!(ordering, compare_numbers(b, a).reverse(), "{a:?} and {b:?}");
                for &c in numbers.iter().filter(|&&c| compare_numbers(b, c).is_le()) {
                    assert!(ordering.is_gt() || compare_numbers(a, c).is_le(), "{a:?}, {b:?} and {c:?}");
                }
            }
        }
        assert_eq!(compare_numbers(Number::Double(-f64::NAN), Number::Int(i64::MAX)), Ordering::Greater);
        assert_eq!(compare_numbers(Number::Double(-0.0), Number::Double(0.0)), Ordering::Equal);
    }
}
