//! The JSON printer: it prints numbers as the service does.
//!
//! A double is printed with 15 significant digits if these parse to the same value,
//! otherwise with 17, in both cases without zeros at the end of a fraction. An exponent
//! has at least three digits in responses to point operations and at least two in query
//! results (`docs/cosmos.md`, numbers and text). Only quotes, backslashes and control
//! characters are escaped; everything else is raw UTF-8.

use super::scan::plain_length;
use super::{Number, Value};

/// The two ways in which the service prints numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Point reads and writes: integers exact to u64, `1e+019`.
    Point,
    /// Query results: integers exact to i64, larger ones as doubles, `1e+19`.
    Query,
}

/// The value as JSON text.
pub fn to_text(value: &Value, style: Style) -> String {
    let mut out = String::new();
    print_into(&mut out, value, style);
    out
}

/// Appends the value as JSON text.
pub fn print_into(out: &mut String, value: &Value, style: Style) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => print_number(out, *number, style),
        Value::String(text) => print_string(out, text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                print_into(out, item, style);
            }
            out.push(']');
        }
        Value::Object(object) => {
            out.push('{');
            for (index, (name, member)) in object.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                print_string(out, name);
                out.push(':');
                print_into(out, member, style);
            }
            out.push('}');
        }
    }
}

/// Appends a quoted, escaped string.
pub fn print_string(out: &mut String, text: &str) {
    out.push('"');
    let mut rest = text;
    loop {
        let plain = plain_length(rest.as_bytes());
        out.push_str(&rest[..plain]);
        let Some(byte) = rest.as_bytes().get(plain) else { break };
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            0x08 => out.push_str("\\b"),
            0x0C => out.push_str("\\f"),
            byte => out.push_str(&format!("\\u{byte:04x}")),
        }
        rest = &rest[plain + 1..];
    }
    out.push('"');
}

/// Appends a number.
pub fn print_number(out: &mut String, number: Number, style: Style) {
    use std::fmt::Write;
    // Writing to a String cannot fail.
    let _ = match (number, style) {
        (Number::Int(value), _) => write!(out, "{value}"),
        (Number::Uint(value), Style::Point) => write!(out, "{value}"),
        (Number::Uint(value), Style::Query) => {
            print_double(out, value as f64, style);
            Ok(())
        }
        (Number::Double(value), _) => {
            print_double(out, value, style);
            Ok(())
        }
    };
}

/// Integral doubles whose magnitude is below this have at most 15 digits and are printed
/// as integers.
const INTEGER_FORM_BELOW: f64 = 1e15;

/// Integral doubles whose magnitude is below this are printed as integers too, if 15
/// digits do not suffice for them.
const LONG_INTEGER_FORM_BELOW: f64 = 1e17;

/// The integer that is printed for a double; `None` when the double is printed with a
/// fraction or an exponent.
pub(super) fn printed_integer(value: f64) -> Option<i64> {
    let is_integer = value.fract() == 0.0
        && (value.abs() < INTEGER_FORM_BELOW
            || (value.abs() < LONG_INTEGER_FORM_BELOW && with_15_digits(value).is_none()));
    is_integer.then_some(value as i64)
}

/// A double in scientific form with 15 significant digits; `None` when these do not parse
/// to the same double.
fn with_15_digits(value: f64) -> Option<String> {
    let text = format!("{value:.14e}");
    (text.parse() == Ok(value)).then_some(text)
}

fn print_double(out: &mut String, value: f64, style: Style) {
    if let Some(integer) = printed_integer(value) {
        out.push_str(&integer.to_string());
    } else if let Some(short) = with_15_digits(value) {
        print_general(out, &short, 15, style);
    } else {
        print_general(out, &format!("{value:.16e}"), 17, style);
    }
}

/// Appends a number as C's `%g` prints it with `digits_max` significant digits. `scientific` is the
/// number as Rust prints it with `{:e}`, such as `1.5e-7`.
fn print_general(out: &mut String, scientific: &str, digits_max: i32, style: Style) {
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let digits = match digits.trim_end_matches('0') {
        "" => "0",
        trimmed => trimmed,
    };
    out.push_str(sign);
    if exponent < -4 || exponent >= digits_max {
        out.push_str(&digits[..1]);
        if digits.len() > 1 {
            out.push('.');
            out.push_str(&digits[1..]);
        }
        let width = if style == Style::Point { 3 } else { 2 };
        out.push_str(&format!("e{}{:0width$}", if exponent < 0 { '-' } else { '+' }, exponent.abs()));
    } else if exponent < 0 {
        out.push_str("0.");
        out.push_str(&"0".repeat((-exponent - 1) as usize));
        out.push_str(digits);
    } else {
        let whole = (exponent + 1) as usize;
        if digits.len() <= whole {
            out.push_str(digits);
            out.push_str(&"0".repeat(whole - digits.len()));
        } else {
            out.push_str(&digits[..whole]);
            out.push('.');
            out.push_str(&digits[whole..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: f64, point: &str, query: &str) {
        let value = Value::Number(Number::from_f64(value).unwrap());
        assert_eq!(to_text(&value, Style::Point), point);
        assert_eq!(to_text(&value, Style::Query), query);
    }

    #[test]
    fn doubles_are_printed_as_the_service_prints_them() {
        check(0.1, "0.1", "0.1");
        check(0.1 + 0.2, "0.30000000000000004", "0.30000000000000004");
        check(1.0 / 3.0, "0.33333333333333331", "0.33333333333333331");
        check(5e-324, "4.94065645841247e-324", "4.94065645841247e-324");
        check(18446744073709551616.0, "1.8446744073709552e+019", "1.8446744073709552e+19");
        check(100.0, "100", "100");
        check(-2.5, "-2.5", "-2.5");
        check(1e15, "1e+015", "1e+15");
        check(0.00001, "1e-005", "1e-05");
        check(0.0001, "0.0001", "0.0001");
        check(123456.75, "123456.75", "123456.75");
    }

    #[test]
    fn large_unsigned_integers_are_doubles_in_queries_only() {
        let value = Value::Number(Number::Uint(u64::MAX));
        assert_eq!(to_text(&value, Style::Point), "18446744073709551615");
        assert_eq!(to_text(&value, Style::Query), "1.8446744073709552e+19");
    }
}
