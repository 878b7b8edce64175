//! Parsing number and string literals.

use perihelion_model::json::{Number, Value};

use super::{Parse, Parser};
use crate::diagnostic::{Diagnostic, Span};

impl Parser<'_> {
    /// Parses the current number token. `is_negative` when a minus is directly before the
    /// token. An integer that fits i64 is exact, every other number is a double, as in
    /// the service's queries.
    pub(super) fn number(&mut self, is_negative: bool) -> Parse<Value> {
        let span = self.advance().span;
        let digits = span.text(self.text);
        if let Some(digits) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
            return hexadecimal(digits, is_negative).ok_or_else(|| self.invalid_number(span));
        }
        if digits.bytes().all(|byte| byte.is_ascii_digit()) {
            let sign = if is_negative { "-" } else { "" };
            if let Ok(whole) = format!("{sign}{digits}").parse::<i64>() {
                return Ok(Value::Number(Number::Int(whole)));
            }
        }
        let magnitude: f64 = digits.parse().map_err(|_| self.invalid_number(span))?;
        Number::from_f64(if is_negative { -magnitude } else { magnitude })
            .map(Value::Number)
            .ok_or_else(|| self.invalid_number(span))
    }

    fn invalid_number(&self, span: Span) -> Diagnostic {
        let message = format!("Syntax error, invalid numeric literal token '{}'.", span.text(self.text));
        Diagnostic::new("SC1011", message, self.text, span)
    }

    /// Parses the current string token and resolves its escapes.
    pub(super) fn string(&mut self) -> Parse<String> {
        let span = self.advance().span;
        let quoted = span.text(self.text);
        let inner = &quoted[1..quoted.len() - 1];
        if !inner.contains('\\') {
            return Ok(inner.to_owned());
        }
        unescape(inner).ok_or_else(|| {
            let message = format!("Syntax error, invalid string literal token '{quoted}'.");
            Diagnostic::new("SC1012", message, self.text, span)
        })
    }
}

/// The value of hexadecimal digits; `None` when there are no digits or too many of them.
fn hexadecimal(digits: &str, is_negative: bool) -> Option<Value> {
    let magnitude = i128::from_str_radix(digits, 16).ok()?;
    let number = if is_negative { -magnitude } else { magnitude };
    Some(Value::Number(i64::try_from(number).map_or(Number::Double(number as f64), Number::Int)))
}

/// Resolves escapes; `None` when an escape is unknown or incomplete. Half of a surrogate pair
/// becomes U+FFFD, as in documents.
fn unescape(inner: &str) -> Option<String> {
    let mut out = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(backslash) = rest.find('\\') {
        out.push_str(&rest[..backslash]);
        rest = &rest[backslash + 1..];
        let escape = rest.chars().next()?;
        rest = &rest[escape.len_utf8()..];
        match escape {
            '"' | '\'' | '\\' | '/' => out.push(escape),
            'b' => out.push('\u{8}'),
            'f' => out.push('\u{c}'),
            'n' => out.push('\n'),
            'r' => out.push('\r'),
            't' => out.push('\t'),
            'u' => rest = unicode(rest, &mut out)?,
            _ => return None,
        }
    }
    out.push_str(rest);
    Some(out)
}

/// Parses the four digits after `\u`. When these are the first half of a surrogate pair and
/// the second half follows, parses the second half too. Appends the character to `out` and
/// returns the rest of the text.
fn unicode<'a>(rest: &'a str, out: &mut String) -> Option<&'a str> {
    let (unit, rest) = four_hex_digits(rest)?;
    let pair = match rest.strip_prefix("\\u").and_then(four_hex_digits) {
        Some((low, after)) if (0xD800..0xDC00).contains(&unit) && (0xDC00..0xE000).contains(&low) => {
            Some((0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00), after))
        }
        _ => None,
    };
    let (code, rest) = pair.unwrap_or((unit, rest));
    out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
    Some(rest)
}

fn four_hex_digits(text: &str) -> Option<(u32, &str)> {
    let digits = text.get(..4)?;
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    Some((u32::from_str_radix(digits, 16).ok()?, &text[4..]))
}
