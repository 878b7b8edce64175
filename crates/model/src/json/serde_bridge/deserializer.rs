//! `Deserializer` for JSON values: turning a [`Value`] into a caller's type.

use serde::de::value::{Error, MapDeserializer, SeqDeserializer};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, Unexpected, VariantAccess,
    Visitor,
};
use serde::forward_to_deserialize_any;

use super::super::{Number, Object, Style, Value, to_text};
use super::map_key::MapKey;

/// The name by which `serde_json::value::RawValue` asks for the text of a value.
const RAW_VALUE: &str = "$serde_json::private::RawValue";

impl<'de> IntoDeserializer<'de> for Value {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Value {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Value::Null => visitor.visit_unit(),
            Value::Bool(flag) => visitor.visit_bool(flag),
            Value::Number(number) => match number.as_printed() {
                Number::Int(value) => visitor.visit_i64(value),
                Number::Uint(value) => visitor.visit_u64(value),
                Number::Double(value) => visitor.visit_f64(value),
            },
            Value::String(text) => visitor.visit_string(text),
            Value::Array(items) => visit_items(items, visitor),
            Value::Object(object) => visit_members(object, visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Value::Null => visitor.visit_none(),
            value => visitor.visit_some(value),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        if name == RAW_VALUE {
            let text = to_text(&self, Style::Point);
            return visitor.visit_map(MapDeserializer::new([(RAW_VALUE, text)].into_iter()));
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let (variant, value) = match self {
            Value::String(variant) => (variant, None),
            Value::Object(object) if object.len() == 1 => {
                let member = object.into_members().into_iter().next();
                member.map_or_else(Default::default, |(name, value)| (name, Some(value)))
            }
            other => {
                return Err(Error::invalid_type(
                    other.unexpected(),
                    &"a string or an object with one member",
                ));
            }
        };
        visitor.visit_enum(Variant { name: variant, value })
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit seq tuple
        tuple_struct map struct identifier
    }
}

/// Visits the items of an array. Every item must be read: a tuple of another length is
/// an error.
fn visit_items<'de, V: Visitor<'de>>(items: Vec<Value>, visitor: V) -> Result<V::Value, Error> {
    let mut sequence = SeqDeserializer::new(items.into_iter());
    let result = visitor.visit_seq(&mut sequence)?;
    sequence.end()?;
    Ok(result)
}

fn visit_members<'de, V: Visitor<'de>>(object: Object, visitor: V) -> Result<V::Value, Error> {
    let members = object.into_members().into_iter().map(|(name, value)| (MapKey(name), value));
    let mut map = MapDeserializer::new(members);
    let result = visitor.visit_map(&mut map)?;
    map.end()?;
    Ok(result)
}

impl Value {
    /// A description of this value for error messages.
    fn unexpected(&self) -> Unexpected<'_> {
        match self {
            Value::Null => Unexpected::Unit,
            Value::Bool(flag) => Unexpected::Bool(*flag),
            Value::Number(number) => match number.as_printed() {
                Number::Int(value) => Unexpected::Signed(value),
                Number::Uint(value) => Unexpected::Unsigned(value),
                Number::Double(value) => Unexpected::Float(value),
            },
            Value::String(text) => Unexpected::Str(text),
            Value::Array(_) => Unexpected::Seq,
            Value::Object(_) => Unexpected::Map,
        }
    }
}

/// An enum variant: `"Name"`, or `{"Name": value}`.
struct Variant {
    name: String,
    value: Option<Value>,
}

impl<'de> EnumAccess<'de> for Variant {
    type Error = Error;
    type Variant = VariantValue;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, VariantValue), Error> {
        let name = seed.deserialize(self.name.into_deserializer())?;
        Ok((name, VariantValue(self.value)))
    }
}

/// The value of an enum variant.
struct VariantValue(Option<Value>);

impl VariantValue {
    fn required(self, expected: &'static str) -> Result<Value, Error> {
        self.0.ok_or_else(|| Error::invalid_type(Unexpected::UnitVariant, &expected))
    }
}

impl<'de> VariantAccess<'de> for VariantValue {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        match self.0 {
            None | Some(Value::Null) => Ok(()),
            Some(value) => Err(Error::invalid_type(value.unexpected(), &"unit variant")),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self.required("newtype variant")?)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _length: usize, visitor: V) -> Result<V::Value, Error> {
        match self.required("tuple variant")? {
            Value::Array(items) => visit_items(items, visitor),
            value => Err(Error::invalid_type(value.unexpected(), &"tuple variant")),
        }
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.required("struct variant")?.deserialize_any(visitor)
    }
}
