//! JSON values as the service stores them.
//!
//! Documents need their own value type because of the service's rules: members keep
//! their order, integers are exact to 64 bits, numbers are printed in the service's
//! own form (see [`Style`]), and a lone surrogate becomes U+FFFD (`docs/cosmos.md`,
//! numbers and text). There is no value for "undefined": a missing value is
//! `Option::None`.
//!
//! ```
//! use perihelion_model::json::{Style, parse_str, to_text};
//!
//! let value = parse_str(r#"{"b":1.0,"a":18446744073709551615,"c":1e20}"#).unwrap();
//! assert_eq!(to_text(&value, Style::Point), r#"{"b":1,"a":18446744073709551615,"c":1e+020}"#);
//! assert_eq!(to_text(&value, Style::Query), r#"{"b":1,"a":1.8446744073709552e+19,"c":1e+20}"#);
//! ```

mod number;
mod object;
mod parse;
mod print;
mod scan;
mod serde_bridge;

pub use number::Number;
pub use object::{Object, object};
pub use parse::{DEPTH_MAX, ParseError, parse, parse_envelope, parse_str};
pub use print::{Style, print_into, print_number, print_string, to_text};

/// A JSON value. Objects keep their member order and have no duplicate names.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number.
    Number(Number),
    /// A string.
    String(String),
    /// An array.
    Array(Vec<Value>),
    /// An object.
    Object(Object),
}

impl Value {
    /// The text, when this is a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The members, when this is an object.
    pub fn as_object(&self) -> Option<&Object> {
        match self {
            Value::Object(object) => Some(object),
            _ => None,
        }
    }

    /// The items, when this is an array.
    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }

    /// The boolean, when this is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    /// The integer, when this is a number without a fraction (`3.0` included) that fits
    /// an i64.
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Value::Number(number) => number.as_i64(),
            _ => None,
        }
    }

    /// The number as a double, when this is a number.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Number(number) => Some(number.as_f64()),
            _ => None,
        }
    }

    /// The member of that name, when this is an object with such a member.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.as_object()?.get(name)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::String(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::String(text)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Value::Bool(flag)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Value::Number(Number::Int(value))
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Value::Number(Number::from_u64(value))
    }
}

impl From<Vec<Value>> for Value {
    fn from(items: Vec<Value>) -> Self {
        Value::Array(items)
    }
}

impl From<Object> for Value {
    fn from(object: Object) -> Self {
        Value::Object(object)
    }
}
