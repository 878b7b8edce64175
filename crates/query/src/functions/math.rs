//! Functions on numbers. Integers stay integers where the function allows it.

use perihelion_model::json::{Number, Value};

use super::{Arg, Outcome, Signature, Treatment, function, integer, number};
use crate::context::Context;
use crate::number::computed_number;

pub(super) const FUNCTIONS: &[Signature] = &[
    function("ABS", 1, 1, |a, _| of_integer_or_double(a, |n| n.checked_abs(), f64::abs)),
    function("ACOS", 1, 1, |a, _| of_double(a, f64::acos)),
    function("ASIN", 1, 1, |a, _| of_double(a, f64::asin)),
    function("ATAN", 1, 1, |a, _| of_double(a, f64::atan)),
    function("ATN2", 2, 2, |a, _| of_two_doubles(a, f64::atan2)),
    function("CEILING", 1, 1, |a, _| of_integer_or_double(a, Some, f64::ceil)),
    function("COS", 1, 1, |a, _| of_double(a, f64::cos)),
    function("COT", 1, 1, |a, _| of_double(a, |x| 1.0 / x.tan())),
    function("DEGREES", 1, 1, |a, _| of_double(a, f64::to_degrees)),
    function("EXP", 1, 1, |a, _| of_double(a, f64::exp)),
    function("FLOOR", 1, 1, |a, _| of_integer_or_double(a, Some, f64::floor)),
    function("LOG", 1, 2, log),
    function("LOG10", 1, 1, |a, _| of_double(a, f64::log10)),
    function("NumberBin", 1, 2, number_bin),
    function("PI", 0, 0, |_, _| double(std::f64::consts::PI)),
    function("POWER", 2, 2, power),
    function("RAND", 0, 0, |_, c| double(c.random())).with_treatment(Treatment::Random),
    function("RADIANS", 1, 1, |a, _| of_double(a, f64::to_radians)),
    function("ROUND", 1, 2, round),
    function("SIGN", 1, 1, |a, _| of_integer_or_double(a, |n| Some(n.signum()), sign)),
    function("SIN", 1, 1, |a, _| of_double(a, f64::sin)),
    function("SQRT", 1, 1, |a, _| of_double(a, f64::sqrt)),
    function("SQUARE", 1, 1, |a, _| of_integer_or_double(a, |n| n.checked_mul(n), |x| x * x)),
    function("TAN", 1, 1, |a, _| of_double(a, f64::tan)),
    function("TRUNC", 1, 1, |a, _| of_integer_or_double(a, Some, f64::trunc)),
    function("IntAdd", 2, 2, |a, _| of_two_integers(a, i64::wrapping_add)),
    function("IntSub", 2, 2, |a, _| of_two_integers(a, i64::wrapping_sub)),
    function("IntMul", 2, 2, |a, _| of_two_integers(a, i64::wrapping_mul)),
    function("IntDiv", 2, 2, |a, _| of_two_integers_if_defined(a, i64::checked_div)),
    function("IntMod", 2, 2, |a, _| of_two_integers_if_defined(a, i64::checked_rem)),
    function("IntBitAnd", 2, 2, |a, _| of_two_integers(a, |x, y| x & y)),
    function("IntBitOr", 2, 2, |a, _| of_two_integers(a, |x, y| x | y)),
    function("IntBitXor", 2, 2, |a, _| of_two_integers(a, |x, y| x ^ y)),
    function("IntBitNot", 1, 1, |a, _| Ok(exact_integer(a, 0).map(|x| (!x).into()))),
    function("IntBitLeftShift", 2, 2, |a, _| of_two_integers_if_defined(a, shift_left)),
    function("IntBitRightShift", 2, 2, |a, _| of_two_integers_if_defined(a, shift_right)),
];

/// The most digits that ROUND accepts, before or after the decimal point, so that the
/// power of ten is a finite double.
const ROUND_DIGITS_MAX: i64 = 300;

/// The result of a function that computed a double.
fn double(value: f64) -> Outcome {
    Ok(Some(Value::Number(computed_number(value))))
}

/// Applies a function to one argument.
fn of_double(arguments: &[Arg<'_>], function: fn(f64) -> f64) -> Outcome {
    number(arguments, 0).map_or(Ok(None), |x| double(function(x.as_f64())))
}

/// Applies a function to two arguments.
fn of_two_doubles(arguments: &[Arg<'_>], function: fn(f64, f64) -> f64) -> Outcome {
    match (number(arguments, 0), number(arguments, 1)) {
        (Some(x), Some(y)) => double(function(x.as_f64(), y.as_f64())),
        _ => Ok(None),
    }
}

/// Applies `whole` to an integer, and `real` to a double or when `whole`
/// overflows.
fn of_integer_or_double(
    arguments: &[Arg<'_>],
    whole: fn(i64) -> Option<i64>,
    real: fn(f64) -> f64,
) -> Outcome {
    match number(arguments, 0) {
        Some(Number::Int(n)) => match whole(n) {
            Some(n) => Ok(Some(n.into())),
            None => double(real(n as f64)),
        },
        Some(other) => double(real(other.as_f64())),
        None => Ok(None),
    }
}

fn sign(x: f64) -> f64 {
    if x > 0.0 {
        1.0
    } else if x < 0.0 {
        -1.0
    } else {
        x
    }
}

fn log(arguments: &[Arg<'_>], _: &Context) -> Outcome {
    if arguments.len() < 2 {
        return of_double(arguments, f64::ln);
    }
    // A quotient of logarithms is not exact in the last digit. The service's LOG(x, 10) is.
    of_two_doubles(arguments, |x, base| if base == 10.0 { x.log10() } else { x.ln() / base.ln() })
}

fn power(arguments: &[Arg<'_>], _: &Context) -> Outcome {
    match (number(arguments, 0), number(arguments, 1)) {
        (Some(Number::Int(x)), Some(Number::Int(y))) => {
            match u32::try_from(y).ok().and_then(|y| x.checked_pow(y)) {
                Some(whole) => Ok(Some(whole.into())),
                None => double((x as f64).powf(y as f64)),
            }
        }
        (Some(x), Some(y)) => double(x.as_f64().powf(y.as_f64())),
        _ => Ok(None),
    }
}

/// ROUND. Halves are rounded away from zero. The optional second argument is the number
/// of digits after the decimal point; a negative number rounds digits before the point.
fn round(arguments: &[Arg<'_>], _: &Context) -> Outcome {
    if arguments.len() < 2 {
        return of_integer_or_double(arguments, Some, f64::round);
    }
    match (number(arguments, 0), integer(arguments, 1)) {
        (Some(x), Some(digits)) if (-ROUND_DIGITS_MAX..=ROUND_DIGITS_MAX).contains(&digits) => {
            let scale = 10_f64.powi(digits as i32);
            let scaled = x.as_f64() * scale;
            // An integer, or a number so large that the product is infinite, has no such digits.
            if digits >= 0 && (x.as_i64().is_some() || scaled.is_infinite()) {
                return Ok(Some(Value::Number(x)));
            }
            double(scaled.round() / scale)
        }
        _ => Ok(None),
    }
}

/// NumberBin: the nearest multiple of the size that is not above the number. For a negative size:
/// the nearest multiple that is not below the number. Undefined for the size 0.
fn number_bin(arguments: &[Arg<'_>], _: &Context) -> Outcome {
    let size = if arguments.len() > 1 { number(arguments, 1) } else { Some(Number::Int(1)) };
    match (number(arguments, 0), size.map(Number::as_f64)) {
        (Some(x), Some(size)) if size != 0.0 => double((x.as_f64() / size).floor() * size),
        _ => Ok(None),
    }
}

/// The argument at the index of an `Int…` function; `None` when it is not an integer.
fn exact_integer(arguments: &[Arg<'_>], index: usize) -> Option<i64> {
    number(arguments, index)?.as_i64()
}

/// Applies a function to two integers.
fn of_two_integers(arguments: &[Arg<'_>], function: fn(i64, i64) -> i64) -> Outcome {
    Ok(exact_integer(arguments, 0).zip(exact_integer(arguments, 1)).map(|(x, y)| function(x, y).into()))
}

/// Applies a function to two integers; undefined where the function has no result.
fn of_two_integers_if_defined(arguments: &[Arg<'_>], function: fn(i64, i64) -> Option<i64>) -> Outcome {
    Ok(exact_integer(arguments, 0)
        .zip(exact_integer(arguments, 1))
        .and_then(|(x, y)| function(x, y))
        .map(Value::from))
}

/// `None` when the distance is negative or at least 64.
fn shift_left(x: i64, by: i64) -> Option<i64> {
    x.checked_shl(u32::try_from(by).ok()?)
}

/// `None` when the distance is negative or at least 64.
fn shift_right(x: i64, by: i64) -> Option<i64> {
    x.checked_shr(u32::try_from(by).ok()?)
}
