//! Functions on strings. Lengths and indexes count characters (code points).

use perihelion_model::json::Value;

use super::{Arg, MANY, Outcome, Signature, Treatment, array, flag, function, integer, text, whole_number};
use crate::context::Context;
use crate::error::Evaluated;
use crate::regex;

pub(super) const FUNCTIONS: &[Signature] = &[
    function("CONCAT", 2, MANY, concat),
    function("CONTAINS", 2, 3, |a, c| compare_texts(a, c, |text, part| text.contains(part))),
    function("STARTSWITH", 2, 3, |a, c| compare_texts(a, c, |text, part| text.starts_with(part))),
    function("ENDSWITH", 2, 3, |a, c| compare_texts(a, c, |text, part| text.ends_with(part))),
    function("STRINGEQUALS", 2, 3, |a, c| compare_texts(a, c, |text, part| text == part)),
    function("INDEX_OF", 2, 3, index_of),
    function("LEFT", 2, 2, left),
    function("LENGTH", 1, 1, length),
    function("LOWER", 1, 1, |a, c| map_text(a, c, str::to_lowercase)),
    function("UPPER", 1, 1, |a, c| map_text(a, c, str::to_uppercase)),
    function("LTRIM", 1, 2, |a, c| trim(a, c, true, false)),
    function("RTRIM", 1, 2, |a, c| trim(a, c, false, true)),
    function("TRIM", 1, 2, |a, c| trim(a, c, true, true)),
    function("REPLACE", 3, 3, replace),
    function("REPLICATE", 2, 2, replicate),
    function("REVERSE", 1, 1, |a, c| map_text(a, c, |text| text.chars().rev().collect())),
    function("RIGHT", 2, 2, right),
    function("SUBSTRING", 3, 3, substring),
    function("StringJoin", 2, 2, join),
    function("StringSplit", 2, 2, split),
    function("RegexMatch", 2, 3, regex_match).with_treatment(Treatment::RegexMatch),
];

/// The longest result of REPLICATE in characters, by the service's documentation. A
/// longer result is undefined.
const REPLICATE_LENGTH_MAX: usize = 10_000;

/// The bytes of text whose search costs one step.
const TEXT_BYTES_PER_STEP: u64 = 16;

/// Charges for a text that is searched or searched for, or whose characters are counted.
fn spend_scan(text: &str, context: &Context) -> Evaluated<()> {
    context.budget.spend_steps(text.len() as u64 / TEXT_BYTES_PER_STEP)
}

fn string(text: impl Into<String>) -> Outcome {
    Ok(Some(Value::String(text.into())))
}

fn concat(arguments: &[Arg<'_>], context: &Context) -> Outcome {
    let parts: Option<Vec<&str>> = (0..arguments.len()).map(|index| text(arguments, index)).collect();
    let Some(parts) = parts else { return Ok(None) };
    context.budget.spend_bytes(parts.iter().map(|part| part.len()).sum())?;
    string(parts.concat())
}

/// Applies `matches` to the first two arguments. The third argument is optional: with
/// `true` letter case is ignored.
fn compare_texts(arguments: &[Arg<'_>], context: &Context, matches: fn(&str, &str) -> bool) -> Outcome {
    let (Some(whole), Some(part), Some(ignore_case)) =
        (text(arguments, 0), text(arguments, 1), flag(arguments, 2))
    else {
        return Ok(None);
    };
    context.budget.spend_steps(1 + whole.len() as u64 / TEXT_BYTES_PER_STEP)?;
    let is_match = if ignore_case {
        context.budget.spend_bytes(whole.len() + part.len())?;
        matches(&whole.to_lowercase(), &part.to_lowercase())
    } else {
        matches(whole, part)
    };
    Ok(Some(Value::Bool(is_match)))
}

/// INDEX_OF: the index of the first occurrence, -1 if there is none. The search starts
/// at the index in the optional third argument. With a negative index the result is
/// undefined.
fn index_of(arguments: &[Arg<'_>], context: &Context) -> Outcome {
    let (Some(whole), Some(part)) = (text(arguments, 0), text(arguments, 1)) else { return Ok(None) };
    let start = if arguments.len() > 2 { integer(arguments, 2) } else { Some(0) };
    let Some(Ok(start)) = start.map(usize::try_from) else { return Ok(None) };
    context.budget.spend_steps(1 + whole.len() as u64 / TEXT_BYTES_PER_STEP)?;
    spend_scan(part, context)?;
    let from = byte_of(whole, start);
    let index = match whole[from..].find(part) {
        Some(byte) => whole[..from + byte].chars().count() as i64,
        None => -1,
    };
    Ok(Some(index.into()))
}

/// The byte offset of a character; the length of the text when it has fewer
/// characters.
fn byte_of(text: &str, character: usize) -> usize {
    text.char_indices().nth(character).map_or(text.len(), |(byte, _)| byte)
}

fn left(arguments: &[Arg<'_>], context: &Context) -> Outcome {
    let (Some(whole), Some(count)) = (text(arguments, 0), whole_number(arguments, 1)) else {
        return Ok(None);
    };
    spend_scan(whole, context)?;
    let end = byte_of(whole, usize::try_from(count).unwrap_or(0));
    context.budget.spend_bytes(end)?;
    string(&whole[..end])
}

fn right(arguments: &[Arg<'_>], context: &Context) -> Outcome {
    let (Some(whole), Some(count)) = (text(arguments, 0), whole_number(arguments, 1)) else {
        return Ok(None);
    };
    let count = usize::try_from(count).unwrap_or(0);
    spend_scan(whole, context)?;
    let start = byte_of(whole, whole.chars().count().saturating_sub(count));
    context.budget.spend_bytes(whole.len() - start)?;
    string(&whole[start..])
}

fn length(arguments: &[Arg<'_>], context: &Context) -> Outcome {
    let Some(text) = text(arguments, 0) else { return Ok(None) };
    spend_scan(text, context)?;
    Ok(Some((text.chars().count() as i64).into()))
}

fn map_text(arguments: &[Arg<'_>], context: &Context, change: fn(&str) -> String) -> Outcome {
    let Some(text) = text(arguments, 0) else { return Ok(None) };
    context.budget.spend_bytes(text.len())?;
    string(change(text))
}

/// Removes white space, or the characters of the second argument, from the start of
/// the text (if `at_start`) and from its end (if `at_end`).
fn trim(arguments: &[Arg<'_>], context: &Context, at_start: bool, at_end: bool) -> Outcome {
    let Some(mut rest) = text(arguments, 0) else { return Ok(None) };
    let set: Option<Vec<char>> = match arguments.len() {
        0 | 1 => None,
        _ => match text(arguments, 1) {
            Some(set) => {
                spend_scan(set, context)?;
                Some(set.chars().collect())
            }
            None => return Ok(None),
        },
    };
    let characters = set.as_ref().map_or(1, |set| 1 + set.len() as u64);
    context.budget.spend_steps((rest.len() as u64).saturating_mul(characters) / TEXT_BYTES_PER_STEP)?;
    let is_trimmed = |c: char| set.as_ref().map_or(c.is_whitespace(), |set| set.contains(&c));
    if at_start {
        rest = rest.trim_start_matches(is_trimmed);
    }
    if at_end {
        rest = rest.trim_end_matches(is_trimmed);
    }
    context.budget.spend_bytes(rest.len())?;
    string(rest)
}

/// REPLACE. Undefined when the text to find is empty.
fn replace(arguments: &[Arg<'_>], context: &Context) -> Outcome {
    let (Some(whole), Some(from), Some(to)) = (text(arguments, 0), text(arguments, 1), text(arguments, 2))
    else {
        return Ok(None);
    };
    if from.is_empty() {
        return Ok(None);
    }
    spend_scan(whole, context)?;
    spend_scan(from, context)?;
    let count = whole.matches(from).count();
    context.budget.spend_bytes(whole.len().saturating_add(count.saturating_mul(to.len())))?;
    string(whole.replace(from, to))
}

/// REPLICATE. A fraction of the count is dropped. In LEFT, RIGHT and SUBSTRING a number with a fraction
/// makes the result undefined.
fn replicate(arguments: &[Arg<'_>], context: &Context) -> Outcome {
    let (Some(part), Some(count)) = (text(arguments, 0), integer(arguments, 1)) else { return Ok(None) };
    let Ok(count) = usize::try_from(count) else { return Ok(None) };
    spend_scan(part, context)?;
    if part.chars().count().saturating_mul(count) > REPLICATE_LENGTH_MAX {
        return Ok(None);
    }
    context.budget.spend_bytes(part.len() * count)?;
    string(part.repeat(count))
}

fn substring(arguments: &[Arg<'_>], context: &Context) -> Outcome {
    let (Some(whole), Some(start), Some(count)) =
        (text(arguments, 0), whole_number(arguments, 1), whole_number(arguments, 2))
    else {
        return Ok(None);
    };
    spend_scan(whole, context)?;
    // A negative start gives an empty text, and so does a negative length.
    let from = byte_of(whole, usize::try_from(start).unwrap_or(usize::MAX));
    let rest = &whole[from..];
    let end = byte_of(rest, usize::try_from(count).unwrap_or(0));
    context.budget.spend_bytes(end)?;
    string(&rest[..end])
}

fn join(arguments: &[Arg<'_>], context: &Context) -> Outcome {
    let (Some(items), Some(separator)) = (array(arguments, 0), text(arguments, 1)) else {
        return Ok(None);
    };
    context.budget.spend_steps(items.len() as u64)?;
    let Some(parts) = items.iter().map(Value::as_str).collect::<Option<Vec<&str>>>() else { return Ok(None) };
    context.budget.spend_bytes(parts.iter().map(|part| part.len() + separator.len()).sum())?;
    string(parts.join(separator))
}

/// StringSplit. With an empty separator the result has the whole text as one element.
fn split(arguments: &[Arg<'_>], context: &Context) -> Outcome {
    let (Some(whole), Some(separator)) = (text(arguments, 0), text(arguments, 1)) else { return Ok(None) };
    spend_scan(separator, context)?;
    let count = if separator.is_empty() { 1 } else { whole.matches(separator).count() + 1 };
    context.budget.spend_bytes(whole.len() + count * size_of::<Value>())?;
    if separator.is_empty() {
        return Ok(Some(Value::Array(vec![whole.into()])));
    }
    Ok(Some(Value::Array(whole.split(separator).map(Value::from).collect())))
}

/// RegexMatch with a pattern or modifiers that are not constant. When both are
/// constant, the binder compiles the pattern.
fn regex_match(arguments: &[Arg<'_>], context: &Context) -> Outcome {
    let modifiers = if arguments.len() > 2 { text(arguments, 2) } else { Some("") };
    let (Some(whole), Some(pattern), Some(modifiers)) = (text(arguments, 0), text(arguments, 1), modifiers)
    else {
        return Ok(None);
    };
    context.budget.spend_steps(regex::COMPILE_STEPS)?;
    spend_scan(modifiers, context)?;
    match regex::compile(pattern, modifiers) {
        Some(compiled) => regex::matches(&compiled, whole, context).map(|found| Some(Value::Bool(found))),
        None => regex::unsupported(pattern, modifiers).map_or(Ok(None), Err),
    }
}
