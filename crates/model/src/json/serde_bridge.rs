//! The bridge between JSON values and serde. A [`Value`] is a `Deserializer`, so that
//! it becomes a caller's type without being printed and parsed again. A [`Value`] also
//! implements `Serialize` and `Deserialize`, so that other formats can write and
//! build it.
//!
//! The result is the same as if the value were printed in
//! [`Style::Point`](super::Style) and parsed again: integers are exact to 64 bits, and
//! a double becomes an integer if the service prints it as one (`2.0` is `2`).
//! `RawValue` of `serde_json` works too; it receives the text as the service prints
//! it.

mod deserialize;
mod deserializer;
mod map_key;

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::print::printed_integer;
use super::{Number, Object, Value};

impl Number {
    /// The number as the service prints it: a double that is printed without fraction and
    /// exponent becomes an integer.
    fn as_printed(self) -> Number {
        match self {
            Number::Double(value) => printed_integer(value).map_or(self, Number::Int),
            Number::Int(_) | Number::Uint(_) => self,
        }
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.as_printed() {
            Number::Int(value) => serializer.serialize_i64(value),
            Number::Uint(value) => serializer.serialize_u64(value),
            Number::Double(value) => serializer.serialize_f64(value),
        }
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len()))?;
        for (name, member) in self.iter() {
            map.serialize_entry(name, member)?;
        }
        map.end()
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(flag) => serializer.serialize_bool(*flag),
            Value::Number(number) => number.serialize(serializer),
            Value::String(text) => serializer.serialize_str(text),
            Value::Array(items) => items.serialize(serializer),
            Value::Object(object) => object.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests;
