//! Conversions of Rust values to partition keys, so that a caller writes
//! `"ada"` or `("eu", 7)`.
//!
//! Numbers are doubles, as in the service: integers beyond 2^53 are rounded, both in
//! this key and in the key of a stored document.

use super::{KeyValue, PartitionKey};

impl PartitionKey {
    /// The key of documents that do not have the partition key member. (`null` is
    /// another key: `PartitionKey::from(())`.)
    pub fn undefined() -> Self {
        KeyValue::Undefined.into()
    }
}

impl From<KeyValue> for PartitionKey {
    fn from(value: KeyValue) -> Self {
        PartitionKey { values: vec![value] }
    }
}

impl From<&PartitionKey> for PartitionKey {
    fn from(key: &PartitionKey) -> Self {
        key.clone()
    }
}

impl From<()> for KeyValue {
    fn from((): ()) -> Self {
        KeyValue::Null
    }
}

impl From<&str> for KeyValue {
    fn from(text: &str) -> Self {
        KeyValue::String(text.to_owned())
    }
}

impl From<&String> for KeyValue {
    fn from(text: &String) -> Self {
        KeyValue::String(text.clone())
    }
}

impl From<String> for KeyValue {
    fn from(text: String) -> Self {
        KeyValue::String(text)
    }
}

impl From<bool> for KeyValue {
    fn from(flag: bool) -> Self {
        KeyValue::Bool(flag)
    }
}

/// `None` is `null`, as serde serializes it.
impl<T: Into<KeyValue>> From<Option<T>> for KeyValue {
    fn from(value: Option<T>) -> Self {
        value.map_or(KeyValue::Null, Into::into)
    }
}

macro_rules! numbers {
    ($($number:ty)*) => {
        $(impl From<$number> for KeyValue {
            fn from(number: $number) -> Self {
                KeyValue::Number(number as f64)
            }
        })*
    };
}

numbers! { i8 i16 i32 i64 isize u8 u16 u32 u64 usize f32 f64 }

/// Converts one value to a key of one level.
macro_rules! keys {
    ($($value:ty)*) => {
        $(impl From<$value> for PartitionKey {
            fn from(value: $value) -> Self {
                KeyValue::from(value).into()
            }
        })*
    };
}

keys! { () &str &String String bool i8 i16 i32 i64 isize u8 u16 u32 u64 usize f32 f64 }

impl<T: Into<KeyValue>> From<Option<T>> for PartitionKey {
    fn from(value: Option<T>) -> Self {
        KeyValue::from(value).into()
    }
}

impl<A: Into<KeyValue>, B: Into<KeyValue>> From<(A, B)> for PartitionKey {
    fn from((first, second): (A, B)) -> Self {
        PartitionKey { values: vec![first.into(), second.into()] }
    }
}

impl<A: Into<KeyValue>, B: Into<KeyValue>, C: Into<KeyValue>> From<(A, B, C)> for PartitionKey {
    fn from((first, second, third): (A, B, C)) -> Self {
        PartitionKey { values: vec![first.into(), second.into(), third.into()] }
    }
}

macro_rules! arrays {
    ($($levels:literal)*) => {
        $(impl<T: Into<KeyValue>> From<[T; $levels]> for PartitionKey {
            fn from(values: [T; $levels]) -> Self {
                PartitionKey { values: values.into_iter().map(Into::into).collect() }
            }
        })*
    };
}

arrays! { 1 2 3 }

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{Style, to_text};

    fn check(key: impl Into<PartitionKey>, header: &str) {
        let key = key.into();
        assert_eq!(to_text(&key.to_json(), Style::Point), header);
        assert_eq!(key.to_header(), header);
    }

    #[test]
    fn rust_values_convert_to_keys() {
        check("ada", r#"["ada"]"#);
        check(String::from("ada"), r#"["ada"]"#);
        check(7, "[7]");
        check(7.5, "[7.5]");
        check(-1_i64, "[-1]");
        check(true, "[true]");
        check((), "[null]");
        check(None::<&str>, "[null]");
        check(Some(3_u8), "[3]");
        check(PartitionKey::undefined(), "[{}]");
    }

    #[test]
    fn tuples_and_arrays_are_hierarchical_keys() {
        check(("eu", 7), r#"["eu",7]"#);
        check(("eu", 7, true), r#"["eu",7,true]"#);
        check(["a", "b", "c"], r#"["a","b","c"]"#);
        check(["a"], r#"["a"]"#);
    }
}
