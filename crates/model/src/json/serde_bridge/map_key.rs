//! Member names as map keys. JSON names are strings; a map with numbers or
//! booleans as keys reads them from these strings, as `serde_json` does.

use serde::de::value::Error;
use serde::de::{Deserializer, Error as _, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;

use crate::json::{Value, parse_str};

/// The name of a member, read as a key.
pub(super) struct MapKey(pub(super) String);

impl<'de> IntoDeserializer<'de> for MapKey {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// Whether a name is a JSON number, or `true` or `false`. Rust also parses numbers that JSON does
/// not allow: `+5`, `05`, `inf`.
fn is_json_scalar(name: &str) -> bool {
    matches!(parse_str(name), Ok(Value::Number(_) | Value::Bool(_)))
}

/// Reads the name as a number or boolean, when the key type is one.
macro_rules! parsed_keys {
    ($($deserialize:ident $visit:ident $what:literal)*) => {
        $(fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            match self.0.parse() {
                Ok(key) if is_json_scalar(&self.0) => visitor.$visit(key),
                _ => Err(Error::invalid_value(Unexpected::Str(&self.0), &$what)),
            }
        })*
    };
}

impl<'de> Deserializer<'de> for MapKey {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(self.0)
    }

    parsed_keys! {
        deserialize_bool visit_bool "a boolean"
        deserialize_i8 visit_i8 "a number"
        deserialize_i16 visit_i16 "a number"
        deserialize_i32 visit_i32 "a number"
        deserialize_i64 visit_i64 "a number"
        deserialize_i128 visit_i128 "a number"
        deserialize_u8 visit_u8 "a number"
        deserialize_u16 visit_u16 "a number"
        deserialize_u32 visit_u32 "a number"
        deserialize_u64 visit_u64 "a number"
        deserialize_u128 visit_u128 "a number"
        deserialize_f32 visit_f32 "a number"
        deserialize_f64 visit_f64 "a number"
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.into_deserializer().deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier
        ignored_any
    }
}
