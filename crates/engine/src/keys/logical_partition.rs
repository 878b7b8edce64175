//! The name of a logical partition: its partition key, level by level, in an exact encoding.
//!
//! A hash would be shorter, but the service's hash (MurmurHash3) is not made to resist an attacker:
//! two keys with the same hash are found in a moment, and the documents of one tenant would then be
//! mixed with those of another. No two keys have the same name, and the name of a level is never
//! the beginning of the name of another level. So the name of a partition begins with the name of
//! some levels exactly when the hierarchical key of the partition begins with these levels.

use perihelion_model::partition_key::{KeyValue, PartitionKey};

/// The name of a logical partition, or of the first levels of a hierarchical key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LogicalPartition(pub Vec<u8>);

/// The first byte of the name of a level. The numbers are stored: never change one. A string
/// of up to [`SHORT_STRING_BYTES_MAX`] bytes begins with `SHORT_STRING` plus its length.
const UNDEFINED: u8 = 0;
const NULL: u8 = 1;
const FALSE: u8 = 2;
const TRUE: u8 = 3;
const NUMBER: u8 = 5;
const SHORT_STRING: u8 = 0x10;
/// Most keys are not longer than this, so their names are only one byte longer than their texts.
const SHORT_STRING_BYTES_MAX: usize = 127;
/// A longer string: four bytes with its length follow.
const LONG_STRING: u8 = 0xF0;

impl LogicalPartition {
    pub(crate) fn of(key: &PartitionKey) -> Self {
        let mut name = Vec::with_capacity(40);
        for value in &key.values {
            write_level(&mut name, value);
        }
        LogicalPartition(name)
    }
}

fn write_level(name: &mut Vec<u8>, value: &KeyValue) {
    match value {
        KeyValue::Undefined => name.push(UNDEFINED),
        KeyValue::Null => name.push(NULL),
        KeyValue::Bool(false) => name.push(FALSE),
        KeyValue::Bool(true) => name.push(TRUE),
        KeyValue::Number(number) => {
            name.push(NUMBER);
            name.extend_from_slice(&number.to_bits().to_be_bytes());
        }
        KeyValue::String(text) => {
            if text.len() <= SHORT_STRING_BYTES_MAX {
                name.push(SHORT_STRING + text.len() as u8);
            } else {
                name.push(LONG_STRING);
                name.extend_from_slice(&(text.len() as u32).to_be_bytes());
            }
            name.extend_from_slice(text.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(header: &str) -> Vec<u8> {
        LogicalPartition::of(&PartitionKey::from_header(header).unwrap()).0
    }

    #[test]
    fn no_name_of_a_key_begins_with_the_name_of_another_key() {
        let long = |length: usize| format!("[\"{}\"]", "k".repeat(length));
        let mut keys: Vec<String> =
            ["[{}]", "[null]", "[false]", "[true]", "[0]", "[1]", "[-1]", "[0.5]", "[\"\"]", "[\"1\"]"]
                .map(str::to_owned)
                .to_vec();
        keys.extend([1, 2, 126, 127, 128, 129, 255, 256, 2048].map(long));
        for (index, one) in keys.iter().enumerate() {
            for (other_index, other) in keys.iter().enumerate() {
                assert!(index == other_index || !name(one).starts_with(&name(other)), "{one} {other}");
            }
        }
    }

    #[test]
    fn the_name_of_a_hierarchical_key_begins_with_the_names_of_its_first_levels() {
        assert!(name(r#"["a","b",1]"#).starts_with(&name(r#"["a","b"]"#)));
        assert!(!name(r#"["ab","c"]"#).starts_with(&name(r#"["a"]"#)));
        assert_ne!(name(r#"["a","bc"]"#), name(r#"["ab","c"]"#));
    }
}
