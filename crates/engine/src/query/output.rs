//! The text of a row.
//!
//! A row that is a whole document has its text already, as point reads return it. A
//! query prints a few numbers in another form, so a document that may contain one of
//! them is printed again.

use bytes::Bytes;
use perihelion_model::json::{self, Style, Value};

use crate::documents::StoredDocument;

/// A row that can be printed.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Output {
    /// A document as it is stored; always UTF-8.
    Text(Bytes),
    /// Any other row.
    Value(Value),
}

impl Output {
    /// The row of a whole document. `value` returns the parsed document. It is called only if
    /// the document must be printed again.
    pub(super) fn of(document: &StoredDocument, value: impl FnOnce() -> Value) -> Self {
        if prints_same_in_queries(&document.text) && std::str::from_utf8(&document.text).is_ok() {
            Output::Text(document.text.clone())
        } else {
            Output::Value(value())
        }
    }

    pub(super) fn print_into(&self, out: &mut String) {
        match self {
            Output::Text(text) => out.push_str(std::str::from_utf8(text).unwrap_or("null")),
            Output::Value(value) => json::print_into(out, value, Style::Query),
        }
    }

    /// The approximate length of the row as text.
    pub(super) fn approximate_length(&self) -> usize {
        match self {
            Output::Text(text) => text.len(),
            Output::Value(value) => approximate_length(value),
        }
    }

    /// The number of members of a row, for the charge. An object with a member `_self` is
    /// taken for a whole document and counts as two members. A row that is not an object
    /// counts as one member.
    pub(super) fn members(&self) -> u64 {
        match self {
            Output::Text(_) => 2,
            Output::Value(Value::Object(object)) if object.contains("_self") => 2,
            Output::Value(Value::Object(object)) => object.len() as u64,
            Output::Value(_) => 1,
        }
    }
}

/// The approximate length of a row as text.
pub(super) fn approximate_length(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => 12,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|item| approximate_length(item) + 1).sum::<usize>(),
        Value::Object(object) => {
            2 + object.iter().map(|(name, value)| name.len() + 4 + approximate_length(value)).sum::<usize>()
        }
    }
}

/// Whether a query is sure to print a document exactly as it is stored. A query prints a
/// number in another form if the number is stored with an exponent of three digits that
/// begins with a zero (`1e+019`), or if it is an integer beyond i64. To be fast, the check
/// takes any 19 digits in a row for such an integer, and does not distinguish strings from
/// numbers.
fn prints_same_in_queries(text: &[u8]) -> bool {
    let mut digits = 0;
    for (at, byte) in text.iter().enumerate() {
        if byte.is_ascii_digit() {
            digits += 1;
            if digits >= LONG_INTEGER_DIGITS {
                return false;
            }
            continue;
        }
        if *byte == b'e' && digits > 0 && is_padded_exponent(&text[at + 1..]) {
            return false;
        }
        digits = 0;
    }
    true
}

/// Integers with fewer digits fit i64.
const LONG_INTEGER_DIGITS: usize = 19;

/// Whether the text begins with an exponent such as `+019` or `-005`, and the number ends
/// there.
fn is_padded_exponent(rest: &[u8]) -> bool {
    match rest {
        [b'+' | b'-', b'0', tens, ones, after @ ..] => {
            tens.is_ascii_digit()
                && ones.is_ascii_digit()
                && matches!(after.first(), None | Some(b',' | b'}' | b']'))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that `prints_same_in_queries` returns `is_copied` for the text of a point read. If it
    /// returns true, this text must be the text that queries print.
    #[track_caller]
    fn check(text: &str, is_copied: bool) {
        let value = json::parse_str(text).expect(text);
        let point = json::to_text(&value, Style::Point);
        assert_eq!(prints_same_in_queries(point.as_bytes()), is_copied, "{point}");
        if is_copied {
            assert_eq!(point, json::to_text(&value, Style::Query));
        }
    }

    #[test]
    fn a_stored_text_is_copied_only_if_a_query_prints_it_the_same() {
        for text in [
            r#"{"id":"a","n":1,"f":-2.5,"l":[0.1,true,null,1e300,5e-324,3e-100]}"#,
            r#"{"n":999999999999999999,"m":-999999999999999999,"d":0.33333333333333331}"#,
            r#"{"_etag":"\"0500e-000-0000-0000e-01200e-0123\"","id":"7e-012\"","x":"e+019,"}"#,
            r#"{"2e":"1e+19","e":1}"#,
            "{}",
        ] {
            check(text, true);
        }
        for text in [
            r#"{"n":1e19}"#,
            r#"{"n":[1.5e15]}"#,
            r#"{"n":0.00001}"#,
            r#"{"n":[1,-1.25e-7,2]}"#,
            r#"{"n":18446744073709551615}"#,
            r#"{"n":9223372036854775808}"#,
            // These would be printed the same, but the check does not see it.
            r#"{"n":9223372036854775807}"#,
            r#"{"n":"1234567890123456789"}"#,
            r#"{"n":"1e+019,"}"#,
        ] {
            check(text, false);
        }
    }

    #[test]
    fn a_document_with_any_power_of_ten_is_copied_only_if_a_query_prints_it_the_same() {
        for exponent in -320..=290 {
            for mantissa in ["1", "-1", "1.5", "9007199254740993", "0.1"] {
                let text = format!(r#"{{"a":[{mantissa}e{exponent}],"b":{mantissa}e{exponent}}}"#);
                let value = json::parse_str(&text).expect("good JSON");
                let point = json::to_text(&value, Style::Point);
                let query = json::to_text(&value, Style::Query);
                assert!(point == query || !prints_same_in_queries(point.as_bytes()), "{point}");
            }
        }
    }
}
