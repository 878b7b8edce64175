//! The JSON parser: it accepts only valid JSON, of bounded depth.
//!
//! The grammar is that of RFC 8259, with three rules of the service: a number that is
//! too large for a double is refused (`1e400`), a surrogate escape without its partner
//! becomes U+FFFD, and of several members with one name the last value counts.

use super::scan::plain_length;
use super::{Number, Object, Value};

/// The most levels of nested arrays and objects, as the service documents it.
pub const DEPTH_MAX: usize = 128;

/// Why a text is not valid JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// The offset at which the parser stopped: the wrong byte, the end of the text, or the
    /// end of a number that is out of range.
    pub offset: usize,
    /// What is wrong.
    pub reason: &'static str,
}

impl std::fmt::Display for ParseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at byte {}", self.reason, self.offset)
    }
}

impl std::error::Error for ParseError {}

/// Parses one JSON value that must fill the whole input.
pub fn parse(bytes: &[u8]) -> Result<Value, ParseError> {
    parse_envelope(bytes, 0)
}

/// Parses one JSON value that must fill the whole input. The value contains documents, each inside
/// `levels` arrays and objects. These do not count for the depth of a document, so the value may be
/// nested `levels` deeper than [`DEPTH_MAX`].
pub fn parse_envelope(bytes: &[u8], levels: usize) -> Result<Value, ParseError> {
    match std::str::from_utf8(bytes) {
        Ok(text) => parse_within(text, DEPTH_MAX.saturating_add(levels)),
        Err(error) => Err(ParseError { offset: error.valid_up_to(), reason: "not UTF-8" }),
    }
}

/// Parses one JSON value that must fill the whole text.
pub fn parse_str(text: &str) -> Result<Value, ParseError> {
    parse_within(text, DEPTH_MAX)
}

fn parse_within(text: &str, depth_max: usize) -> Result<Value, ParseError> {
    let mut parser = Parser { text, bytes: text.as_bytes(), at: 0, depth_max };
    parser.skip_whitespace();
    let value = parser.value(0)?;
    parser.skip_whitespace();
    if parser.at != parser.bytes.len() {
        return parser.fail("text after the value");
    }
    Ok(value)
}

struct Parser<'a> {
    text: &'a str,
    bytes: &'a [u8],
    /// The offset of the next byte to read.
    at: usize,
    depth_max: usize,
}

type ParseResult<T> = Result<T, ParseError>;

impl Parser<'_> {
    fn fail<T>(&self, reason: &'static str) -> ParseResult<T> {
        Err(ParseError { offset: self.at, reason })
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_whitespace(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn value(&mut self, depth: usize) -> ParseResult<Value> {
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number().map(Value::Number),
            Some(b't') => self.literal("true", Value::Bool(true)),
            Some(b'f') => self.literal("false", Value::Bool(false)),
            Some(b'n') => self.literal("null", Value::Null),
            Some(_) => self.fail("not a value"),
            None => self.fail("the text ends where a value should be"),
        }
    }

    fn literal(&mut self, word: &str, value: Value) -> ParseResult<Value> {
        if !self.bytes[self.at..].starts_with(word.as_bytes()) {
            return self.fail("not a value");
        }
        self.at += word.len();
        Ok(value)
    }

    fn array(&mut self, depth: usize) -> ParseResult<Value> {
        if depth == self.depth_max {
            return self.fail("nested too deep");
        }
        self.at += 1;
        let mut items = Vec::new();
        self.skip_whitespace();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::Array(items));
        }
        loop {
            self.skip_whitespace();
            items.push(self.value(depth + 1)?);
            self.skip_whitespace();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Value::Array(items));
                }
                _ => return self.fail("expected ',' or ']'"),
            }
        }
    }

    fn object(&mut self, depth: usize) -> ParseResult<Value> {
        if depth == self.depth_max {
            return self.fail("nested too deep");
        }
        self.at += 1;
        let mut members = Vec::new();
        self.skip_whitespace();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Object(Object::new()));
        }
        loop {
            self.skip_whitespace();
            if self.peek() != Some(b'"') {
                return self.fail("expected a member name");
            }
            let name = self.string()?;
            self.skip_whitespace();
            if self.peek() != Some(b':') {
                return self.fail("expected ':'");
            }
            self.at += 1;
            self.skip_whitespace();
            members.push((name, self.value(depth + 1)?));
            self.skip_whitespace();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Value::Object(Object::from_members(members)));
                }
                _ => return self.fail("expected ',' or '}'"),
            }
        }
    }

    /// Reads a string. Most strings have no escapes and are copied at once.
    fn string(&mut self) -> ParseResult<String> {
        self.at += 1;
        let start = self.at;
        self.at += plain_length(&self.bytes[start..]);
        match self.peek() {
            Some(b'"') => {
                let text = self.text[start..self.at].to_owned();
                self.at += 1;
                Ok(text)
            }
            Some(b'\\') => self.escaped_string(start),
            Some(_) => self.fail("a control character in a string"),
            None => self.fail("the text ends inside a string"),
        }
    }

    fn escaped_string(&mut self, start: usize) -> ParseResult<String> {
        let mut out = self.text[start..self.at].to_owned();
        let mut plain_start = self.at;
        loop {
            self.at += plain_length(&self.bytes[self.at..]);
            out.push_str(&self.text[plain_start..self.at]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.at += 1;
                    out.push(self.escape()?);
                    plain_start = self.at;
                }
                Some(_) => return self.fail("a control character in a string"),
                None => return self.fail("the text ends inside a string"),
            }
        }
    }

    fn escape(&mut self) -> ParseResult<char> {
        let letter = self.peek();
        self.at += 1;
        Ok(match letter {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{C}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            _ => {
                self.at -= 1;
                return self.fail("an unknown escape");
            }
        })
    }

    fn unicode_escape(&mut self) -> ParseResult<char> {
        let first = self.four_hex_digits()?;
        if !(0xD800..=0xDBFF).contains(&first) {
            return Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        if !self.bytes[self.at..].starts_with(b"\\u") {
            return Ok(char::REPLACEMENT_CHARACTER);
        }
        let after_first = self.at;
        self.at += 2;
        let second = self.four_hex_digits()?;
        if !(0xDC00..=0xDFFF).contains(&second) {
            self.at = after_first;
            return Ok(char::REPLACEMENT_CHARACTER);
        }
        let code = 0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00);
        Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn four_hex_digits(&mut self) -> ParseResult<u32> {
        let mut code = 0;
        for _ in 0..4 {
            let Some(digit) = self.peek().and_then(|byte| (byte as char).to_digit(16)) else {
                return self.fail("expected four hexadecimal digits");
            };
            code = code * 16 + digit;
            self.at += 1;
        }
        Ok(code)
    }

    fn skip_digits(&mut self) -> ParseResult<()> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return self.fail("expected a digit");
        }
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> ParseResult<Number> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
            if matches!(self.peek(), Some(b'0'..=b'9')) {
                return self.fail("a number with a leading zero");
            }
        } else {
            self.skip_digits()?;
        }
        let mut is_integer = true;
        if self.peek() == Some(b'.') {
            is_integer = false;
            self.at += 1;
            self.skip_digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            is_integer = false;
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.skip_digits()?;
        }
        let text = &self.text[start..self.at];
        if is_integer {
            if let Ok(value) = text.parse::<i64>() {
                return Ok(Number::Int(value));
            }
            if let Ok(value) = text.parse::<u64>() {
                return Ok(Number::from_u64(value));
            }
        }
        match text.parse::<f64>().ok().and_then(Number::from_f64) {
            Some(number) => Ok(number),
            None => self.fail("a number beyond the range of a double"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{Style, to_text};

    fn check(text: &str, expect: &str) {
        let value = parse_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(to_text(&value, Style::Point), expect, "{text}");
    }

    #[test]
    fn values_are_printed_again_as_the_service_prints_them() {
        check(
            " {\"b\" : [1, 2.50,-0.0 ,true,null] , \"a\":\"x\\u00e9\\n\" } ",
            "{\"b\":[1,2.5,0,true,null],\"a\":\"xé\\n\"}",
        );
        check("\"\\ud83d\\ude80 \\ud800 \\udc00 \\ud800x\"", "\"🚀 \u{FFFD} \u{FFFD} \u{FFFD}x\"");
        check("18446744073709551615", "18446744073709551615");
        check("1e-400", "0");
        check("{\"a\":1,\"b\":2,\"a\":3}", "{\"a\":3,\"b\":2}");
    }

    #[test]
    fn malformed_text_is_refused() {
        for text in [
            "",
            "{",
            "[1,]",
            "{\"a\"}",
            "{\"a\":1,}",
            "01",
            "1.",
            "1e",
            "+1",
            "nul",
            "\"\\x\"",
            "\"\\u12\"",
            "\"a",
            "1 2",
            "1e400",
            "-",
            "NaN",
            "'a'",
            "{a:1}",
            "[1 2]",
            "\"\u{1}\"",
            "/*c*/1",
        ] {
            assert!(parse_str(text).is_err(), "{text}");
        }
        assert_eq!(parse(b"\"\xff\"").unwrap_err().reason, "not UTF-8");
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse_str(&nested(DEPTH_MAX)).is_ok());
        assert_eq!(parse_str(&nested(DEPTH_MAX + 1)).unwrap_err().reason, "nested too deep");
        assert!(parse_str(&"[".repeat(1_000_000)).is_err());
    }
}
