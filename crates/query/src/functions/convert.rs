//! From one type to another.

use perihelion_model::json::{Number, Style, Value, parse_str, to_text};

use super::{Outcome, Signature, entry, text, value};
use crate::eval::{Arg, Context};

pub(super) const FUNCTIONS: &[Signature] = &[
    entry("ToString", 1, 1, to_string),
    entry("StringToArray", 1, 1, |a, c| parsed(a, c, |v| matches!(v, Value::Array(_)))),
    entry("StringToBoolean", 1, 1, |a, c| parsed(a, c, |v| matches!(v, Value::Bool(_)))),
    entry("StringToNull", 1, 1, |a, c| parsed(a, c, |v| matches!(v, Value::Null))),
    entry("StringToNumber", 1, 1, |a, c| parsed(a, c, |v| matches!(v, Value::Number(_)))),
    entry("StringToObject", 1, 1, |a, c| parsed(a, c, |v| matches!(v, Value::Object(_)))),
];

/// How many bytes a value may take for each byte of its text, for the budget:
/// `[[],[],…]` is the densest.
const BYTES_PER_TEXT_BYTE: usize = 16;

/// Undefined stays undefined; a string is itself.
fn to_string(arguments: &[Arg<'_>], context: &Context) -> Outcome {
    let Some(value) = value(arguments, 0) else { return Ok(None) };
    context.budget.spend_value(value)?;
    Ok(Some(Value::String(match value {
        Value::String(text) => text.clone(),
        Value::Number(Number::Double(number)) if number.is_nan() => "NaN".to_owned(),
        Value::Number(Number::Double(number)) if number.is_infinite() => {
            if *number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
        }
        other => to_text(other, Style::Query),
    })))
}

/// Reads JSON text, white space around it allowed; undefined if it is not of
/// the wanted type.
fn parsed(arguments: &[Arg<'_>], context: &Context, wanted: fn(&Value) -> bool) -> Outcome {
    let Some(text) = text(arguments, 0) else { return Ok(None) };
    context.budget.spend_bytes(text.len().saturating_mul(BYTES_PER_TEXT_BYTE))?;
    Ok(parse_str(text.trim()).ok().filter(wanted))
}
