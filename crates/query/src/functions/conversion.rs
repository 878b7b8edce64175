//! Functions that convert a value to another type, and DOCUMENTID.

use perihelion_model::json::{Number, Style, Value, parse_str, to_text};
use perihelion_model::resource_id::document_counter;

use super::{Arg, Outcome, Signature, function, text, value};
use crate::context::Context;
use crate::order::get_within;

pub(super) const FUNCTIONS: &[Signature] = &[
    function("DOCUMENTID", 1, 1, document_id),
    function("ToString", 1, 1, to_string),
    function("StringToArray", 1, 1, |a, c| parse_json(a, c, |v| matches!(v, Value::Array(_)))),
    function("StringToBoolean", 1, 1, |a, c| parse_json(a, c, |v| matches!(v, Value::Bool(_)))),
    function("StringToNull", 1, 1, |a, c| parse_json(a, c, |v| matches!(v, Value::Null))),
    function("StringToNumber", 1, 1, |a, c| parse_json(a, c, |v| matches!(v, Value::Number(_)))),
    function("StringToObject", 1, 1, |a, c| parse_json(a, c, |v| matches!(v, Value::Object(_)))),
];

/// How many bytes of memory the budget charges per byte of JSON text. It is an upper estimate:
/// long arrays of very short elements, such as `[0,0,…]`, take the most memory.
const BYTES_PER_TEXT_BYTE: usize = 16;

/// DOCUMENTID: the counter in the `_rid` of a document. Undefined for any other value.
fn document_id(arguments: &[Arg<'_>], context: &Context) -> Outcome {
    let Some(Value::Object(document)) = value(arguments, 0) else { return Ok(None) };
    let rid = get_within(document, "_rid", &context.budget)?.and_then(Value::as_str);
    let counter = rid.and_then(document_counter).and_then(|counter| i64::try_from(counter).ok());
    Ok(counter.map(Value::from))
}

/// ToString. A string is returned as it is.
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

/// Parses JSON text, which may have white space around it. Undefined if the text is not
/// JSON or the value does not have the wanted type.
fn parse_json(arguments: &[Arg<'_>], context: &Context, wanted: fn(&Value) -> bool) -> Outcome {
    let Some(text) = text(arguments, 0) else { return Ok(None) };
    context.budget.spend_bytes(text.len().saturating_mul(BYTES_PER_TEXT_BYTE))?;
    Ok(parse_str(text.trim()).ok().filter(wanted))
}
