//! Numbers. Whole numbers stay whole where the function allows it.

use perihelion_model::json::{Number, Value};

use super::{Outcome, Signature, entry, integer, number};
use crate::eval::{Arg, Context, double};

pub(super) const FUNCTIONS: &[Signature] = &[
    entry("ABS", 1, 1, |a, _| whole_or(a, |n| n.checked_abs(), f64::abs)),
    entry("ACOS", 1, 1, |a, _| real(a, f64::acos)),
    entry("ASIN", 1, 1, |a, _| real(a, f64::asin)),
    entry("ATAN", 1, 1, |a, _| real(a, f64::atan)),
    entry("ATN2", 2, 2, |a, _| real2(a, f64::atan2)),
    entry("CEILING", 1, 1, |a, _| whole_or(a, Some, f64::ceil)),
    entry("COS", 1, 1, |a, _| real(a, f64::cos)),
    entry("COT", 1, 1, |a, _| real(a, |x| 1.0 / x.tan())),
    entry("DEGREES", 1, 1, |a, _| real(a, f64::to_degrees)),
    entry("EXP", 1, 1, |a, _| real(a, f64::exp)),
    entry("FLOOR", 1, 1, |a, _| whole_or(a, Some, f64::floor)),
    entry("LOG", 1, 2, log),
    entry("LOG10", 1, 1, |a, _| real(a, f64::log10)),
    entry("NumberBin", 1, 2, number_bin),
    entry("PI", 0, 0, |_, _| Ok(Some(Value::Number(double(std::f64::consts::PI))))),
    entry("POWER", 2, 2, power),
    entry("RADIANS", 1, 1, |a, _| real(a, f64::to_radians)),
    entry("ROUND", 1, 2, round),
    entry("SIGN", 1, 1, |a, _| whole_or(a, |n| Some(n.signum()), sign)),
    entry("SIN", 1, 1, |a, _| real(a, f64::sin)),
    entry("SQRT", 1, 1, |a, _| real(a, f64::sqrt)),
    entry("SQUARE", 1, 1, |a, _| whole_or(a, |n| n.checked_mul(n), |x| x * x)),
    entry("TAN", 1, 1, |a, _| real(a, f64::tan)),
    entry("TRUNC", 1, 1, |a, _| whole_or(a, Some, f64::trunc)),
    entry("IntAdd", 2, 2, |a, _| integers(a, i64::wrapping_add)),
    entry("IntSub", 2, 2, |a, _| integers(a, i64::wrapping_sub)),
    entry("IntMul", 2, 2, |a, _| integers(a, i64::wrapping_mul)),
    entry("IntDiv", 2, 2, |a, _| checked(a, i64::checked_div)),
    entry("IntMod", 2, 2, |a, _| checked(a, i64::checked_rem)),
    entry("IntBitAnd", 2, 2, |a, _| integers(a, |x, y| x & y)),
    entry("IntBitOr", 2, 2, |a, _| integers(a, |x, y| x | y)),
    entry("IntBitXor", 2, 2, |a, _| integers(a, |x, y| x ^ y)),
    entry("IntBitNot", 1, 1, |a, _| Ok(exact(a, 0).map(|x| (!x).into()))),
    entry("IntBitLeftShift", 2, 2, |a, _| checked(a, shift_left)),
    entry("IntBitRightShift", 2, 2, |a, _| checked(a, shift_right)),
];

/// The most digits that ROUND keeps apart; a double has no more.
const ROUND_DIGITS_MAX: i64 = 300;

fn answer(value: f64) -> Outcome {
    Ok(Some(Value::Number(double(value))))
}

fn real(arguments: &[Arg<'_>], function: fn(f64) -> f64) -> Outcome {
    number(arguments, 0).map_or(Ok(None), |x| answer(function(x.as_f64())))
}

fn real2(arguments: &[Arg<'_>], function: fn(f64, f64) -> f64) -> Outcome {
    match (number(arguments, 0), number(arguments, 1)) {
        (Some(x), Some(y)) => answer(function(x.as_f64(), y.as_f64())),
        _ => Ok(None),
    }
}

/// Whole numbers by the first function, the rest, and what overflows it, by
/// the second.
fn whole_or(arguments: &[Arg<'_>], whole: fn(i64) -> Option<i64>, real: fn(f64) -> f64) -> Outcome {
    match number(arguments, 0) {
        Some(Number::Int(n)) => match whole(n) {
            Some(n) => Ok(Some(n.into())),
            None => answer(real(n as f64)),
        },
        Some(other) => answer(real(other.as_f64())),
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
        return real(arguments, f64::ln);
    }
    real2(arguments, |x, base| x.ln() / base.ln())
}

fn power(arguments: &[Arg<'_>], _: &Context) -> Outcome {
    match (number(arguments, 0), number(arguments, 1)) {
        (Some(Number::Int(x)), Some(Number::Int(y))) => {
            match u32::try_from(y).ok().and_then(|y| x.checked_pow(y)) {
                Some(whole) => Ok(Some(whole.into())),
                None => answer((x as f64).powf(y as f64)),
            }
        }
        (Some(x), Some(y)) => answer(x.as_f64().powf(y.as_f64())),
        _ => Ok(None),
    }
}

/// Halves are rounded away from zero.
fn round(arguments: &[Arg<'_>], _: &Context) -> Outcome {
    if arguments.len() < 2 {
        return whole_or(arguments, Some, f64::round);
    }
    match (number(arguments, 0), integer(arguments, 1)) {
        (Some(x), Some(digits)) if digits.abs() <= ROUND_DIGITS_MAX => {
            let scale = 10_f64.powi(digits as i32);
            answer((x.as_f64() * scale).round() / scale)
        }
        _ => Ok(None),
    }
}

fn number_bin(arguments: &[Arg<'_>], _: &Context) -> Outcome {
    let size = if arguments.len() > 1 { number(arguments, 1) } else { Some(Number::Int(1)) };
    match (number(arguments, 0), size.map(Number::as_f64)) {
        (Some(x), Some(size)) if size > 0.0 => answer((x.as_f64() / size).floor() * size),
        _ => Ok(None),
    }
}

/// The Int functions take whole numbers only.
fn exact(arguments: &[Arg<'_>], place: usize) -> Option<i64> {
    number(arguments, place)?.as_i64()
}

fn integers(arguments: &[Arg<'_>], function: fn(i64, i64) -> i64) -> Outcome {
    Ok(exact(arguments, 0).zip(exact(arguments, 1)).map(|(x, y)| function(x, y).into()))
}

fn checked(arguments: &[Arg<'_>], function: fn(i64, i64) -> Option<i64>) -> Outcome {
    Ok(exact(arguments, 0).zip(exact(arguments, 1)).and_then(|(x, y)| function(x, y)).map(Value::from))
}

fn shift_left(x: i64, by: i64) -> Option<i64> {
    x.checked_shl(u32::try_from(by).ok()?)
}

fn shift_right(x: i64, by: i64) -> Option<i64> {
    x.checked_shr(u32::try_from(by).ok()?)
}
