//! JSON values as the service keeps them.
//!
//! Documents need their own value type because the service is particular:
//! member order is kept, integers are exact to 64 bits, numbers have its own
//! spelling (see [`print`]), and a lone surrogate becomes U+FFFD
//! (`docs/cosmos.md`, numbers and text). There is no value for "undefined": a
//! missing value is `Option::None` wherever one can occur.
//!
//! ```
//! use perihelion_model::json::{Style, parse_str, to_text};
//!
//! let value = parse_str(r#"{"b":1.0,"a":18446744073709551615,"c":1e20}"#).unwrap();
//! assert_eq!(to_text(&value, Style::Point), r#"{"b":1,"a":18446744073709551615,"c":1e+020}"#);
//! assert_eq!(to_text(&value, Style::Query), r#"{"b":1,"a":1.8446744073709552e+19,"c":1e+20}"#);
//! ```

mod parse;
mod print;
mod scan;
mod serde_bridge;

pub use parse::{DEPTH_MAX, ParseError, parse, parse_str};
pub use print::{Style, print_into, print_number, print_string, to_text};

/// A JSON value. Objects keep their member order and have no duplicate names.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Number(Number),
    String(String),
    Array(Vec<Value>),
    Object(Object),
}

/// A finite number: integers exact to 64 bits, everything else a double.
///
/// `Uint` holds only what does not fit `Int`, so each integer has one form.
#[derive(Debug, Clone, Copy)]
pub enum Number {
    Int(i64),
    Uint(u64),
    Double(f64),
}

/// The members of an object, in order.
#[derive(Debug, Clone, Default)]
pub struct Object {
    members: Vec<(String, Value)>,
}

/// From how many members on a name is looked up by hash while parsing, so
/// that a hostile object cannot cost quadratic time.
const LINEAR_MEMBERS_MAX: usize = 16;

impl Value {
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_object(&self) -> Option<&Object> {
        match self {
            Value::Object(object) => Some(object),
            _ => None,
        }
    }

    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }

    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    /// The number as an integer, when it is one (also when spelled `3.0`).
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Value::Number(number) => number.as_i64(),
            _ => None,
        }
    }

    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Number(number) => Some(number.as_f64()),
            _ => None,
        }
    }

    /// The member of that name, when this is an object that has it.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.as_object()?.get(name)
    }
}

impl Number {
    pub fn from_u64(value: u64) -> Self {
        i64::try_from(value).map_or(Number::Uint(value), Number::Int)
    }

    /// A finite double; minus zero becomes zero, as the service stores it.
    pub fn from_f64(value: f64) -> Option<Self> {
        value.is_finite().then_some(Number::Double(if value == 0.0 { 0.0 } else { value }))
    }

    pub fn as_f64(self) -> f64 {
        match self {
            Number::Int(value) => value as f64,
            Number::Uint(value) => value as f64,
            Number::Double(value) => value,
        }
    }

    pub fn as_i64(self) -> Option<i64> {
        match self {
            Number::Int(value) => Some(value),
            Number::Uint(_) => None,
            Number::Double(value) => {
                let in_range = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&value);
                (in_range && value.fract() == 0.0).then_some(value as i64)
            }
        }
    }

    /// Orders by numeric value, exactly: an integer that no double can hold
    /// is not equal to the double beside it, so this is a total order.
    pub fn compare(self, other: Number) -> std::cmp::Ordering {
        match (self, other) {
            (Number::Int(a), Number::Int(b)) => a.cmp(&b),
            (Number::Uint(a), Number::Uint(b)) => a.cmp(&b),
            (Number::Int(_), Number::Uint(_)) => std::cmp::Ordering::Less,
            (Number::Uint(_), Number::Int(_)) => std::cmp::Ordering::Greater,
            (Number::Double(a), Number::Double(b)) => a.total_cmp(&b),
            (Number::Double(a), b) => b.compare_integer(a).reverse(),
            (a, Number::Double(b)) => a.compare_integer(b),
        }
    }

    /// An integer against a double: first as doubles, then, where these are
    /// equal, by what the integer lost on the way.
    fn compare_integer(self, double: f64) -> std::cmp::Ordering {
        let exact = |value: i128| value.cmp(&(double as i128));
        self.as_f64().total_cmp(&double).then_with(|| match self {
            Number::Int(value) => exact(i128::from(value)),
            Number::Uint(value) => exact(i128::from(value)),
            Number::Double(_) => std::cmp::Ordering::Equal,
        })
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.compare(*other).is_eq()
    }
}

impl Object {
    pub fn new() -> Self {
        Object::default()
    }

    pub fn with_capacity(members: usize) -> Self {
        Object { members: Vec::with_capacity(members) }
    }

    /// Builds an object from members that may repeat a name: the last value
    /// wins and stays at the place of the first.
    pub fn from_members(members: Vec<(String, Value)>) -> Self {
        if members.len() <= LINEAR_MEMBERS_MAX {
            let mut object = Object::with_capacity(members.len());
            for (name, value) in members {
                object.set(name, value);
            }
            return object;
        }
        let mut places = std::collections::HashMap::with_capacity(members.len());
        let mut kept: Vec<(String, Value)> = Vec::with_capacity(members.len());
        for (name, value) in members {
            match places.get(&name) {
                Some(&place) => {
                    let slot: &mut (String, Value) = &mut kept[place];
                    slot.1 = value;
                }
                None => {
                    places.insert(name.clone(), kept.len());
                    kept.push((name, value));
                }
            }
        }
        Object { members: kept }
    }

    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        self.members.iter().find(|(member, _)| member == name).map(|(_, value)| value)
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        self.members.iter_mut().find(|(member, _)| member == name).map(|(_, value)| value)
    }

    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Replaces the member where it stands, or appends it.
    pub fn set(&mut self, name: impl Into<String>, value: Value) {
        let name = name.into();
        match self.get_mut(&name) {
            Some(slot) => *slot = value,
            None => self.members.push((name, value)),
        }
    }

    /// Inserts or moves a member so that it stands right before `before`,
    /// or at the end when there is no such member.
    pub fn insert_before(&mut self, before: &str, name: impl Into<String>, value: Value) {
        let name = name.into();
        let place =
            self.members.iter().position(|(member, _)| member == before).unwrap_or(self.members.len());
        self.members.insert(place, (name, value));
    }

    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let place = self.members.iter().position(|(member, _)| member == name)?;
        Some(self.members.remove(place).1)
    }

    /// Keeps the members that `keep` approves of.
    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.members.retain(|(name, _)| keep(name));
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.members.iter().map(|(name, value)| (name.as_str(), value))
    }

    pub fn into_members(self) -> Vec<(String, Value)> {
        self.members
    }
}

/// Objects are equal when they have the same members, in any order.
impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().all(|(name, value)| other.get(name) == Some(value))
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

/// `object([("id", "a".into())])`: an object literal for bodies we build.
pub fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value::Object(Object::from_members(
        members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_a_total_order() {
        let ascending = [
            Number::Double(-1e300),
            Number::Int(i64::MIN),
            Number::Int(-1),
            Number::Double(-0.5),
            Number::Int(0),
            Number::Double(0.5),
            Number::Double(9_007_199_254_740_992.0),
            Number::Int(9_007_199_254_740_993),
            Number::Int(i64::MAX),
            Number::Uint(u64::MAX - 1),
            Number::Uint(u64::MAX),
            Number::Double(1e300),
        ];
        for (place, one) in ascending.iter().enumerate() {
            for (other_place, other) in ascending.iter().enumerate() {
                assert_eq!(one.compare(*other), place.cmp(&other_place), "{one:?} {other:?}");
            }
        }
        assert_eq!(Number::Int(2), Number::Double(2.0));
    }
}
