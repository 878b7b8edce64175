//! The positions of gathered rows: bytes by which these rows are sorted, after the keys of ORDER BY.
//!
//! Rows of DISTINCT, of GROUP BY and of statements in stages do not belong to one document,
//! so a page cannot end at a document. It ends at a value: the rows are sorted by their
//! positions, and a continuation holds the position of the last row. A position depends on
//! the value alone, and is short however long the value is. Different values have different
//! positions. An outer stage without DISTINCT and groups makes the position of a row from that of
//! the inner stage's row ([`of_outer_row`]).

use perihelion_model::json::{Object, Value};
use perihelion_query::canonical_key;
use sha2::{Digest, Sha256};

use crate::index;

/// The most bytes of the encoded value in a position. By these bytes, positions sort
/// roughly as their values do; the rest of a position only tells values apart.
const PREFIX_BYTES_MAX: usize = 48;

/// The longest canonical key that is part of a position as it is. Longer keys are hashed. (Two values
/// have the same [`canonical_key`] exactly when they are equal.)
const KEY_BYTES_MAX: usize = 24;

/// The first byte of a hashed key. A canonical key begins with a smaller byte.
const HASHED: u8 = 0xFF;

/// The bytes of a hashed key: so many that two keys with the same hash cannot be found in practice.
const HASH_BYTES: usize = 20;

/// The position of a row.
pub(super) fn of_row(value: &Value) -> Vec<u8> {
    position(std::iter::once(Some(value)), &canonical_key(Some(value)))
}

/// The position of a group, from its GROUP BY values.
pub(super) fn of_group(keys: &[Option<&Value>]) -> Vec<u8> {
    let key: Vec<u8> = keys.iter().flat_map(|key| canonical_key(*key)).collect();
    position(keys.iter().copied(), &key)
}

/// The position of a row that an outer stage makes from a row of the inner stage: the position
/// of the inner row, and the number of this row among the rows made from the same inner row. The
/// number 0 is left out.
pub(super) fn of_outer_row(inner: &[u8], number: u32) -> Vec<u8> {
    let mut position = inner.to_vec();
    if number > 0 {
        position.extend_from_slice(&number.to_be_bytes());
    }
    if position.len() > POSITION_BYTES_MAX {
        let hash = Sha256::digest(&position);
        position.truncate(PREFIX_BYTES_MAX);
        position.push(HASHED);
        position.extend_from_slice(&hash[..HASH_BYTES]);
    }
    position
}

/// For rows that are objects with only the member `name`: the bytes in the position of a row before
/// the value of this member.
pub(super) fn lead_of_member(name: &str) -> Vec<u8> {
    let mut lead = Vec::new();
    index::encode(&mut lead, Some(&Value::Object(Object::new())), false);
    encode(&mut lead, Some(&Value::from(name)));
    lead
}

/// How many bytes of a position sort like the key of the value in an index. After a few more bytes a
/// position cuts a long string, at the beginning of a character; an index does not cut it there.
const INDEX_ORDER_BYTES: usize = 40;

/// The longest lead after which enough bytes of the value are left to tell values apart.
pub(super) const LEAD_BYTES_MAX: usize = 24;

/// The beginning of the value in a position, after this lead, as far as it sorts like the key of the
/// value in an index.
pub(super) fn index_order_of(position: &[u8], lead: &[u8]) -> Vec<u8> {
    match position.strip_prefix(lead) {
        Some(value) => cut_to_index_order(value.to_vec(), lead.len()),
        // The row is an object without the member: the value is undefined.
        None => index_order_of_value(None, lead.len()),
    }
}

/// The beginning of an encoded value: the bytes that [`index_order_of`] returns for a position with
/// this value after a lead of `lead_bytes` bytes.
pub(super) fn index_order_of_value(value: Option<&Value>, lead_bytes: usize) -> Vec<u8> {
    let mut order = Vec::new();
    encode(&mut order, value);
    cut_to_index_order(order, lead_bytes)
}

fn cut_to_index_order(mut order: Vec<u8>, lead_bytes: usize) -> Vec<u8> {
    let is_collection = |first: &u8| {
        [Value::Array(Vec::new()), Value::Object(Object::new())]
            .iter()
            .any(|of| index::type_byte(of) == *first)
    };
    // The key of an array or an object in an index holds only its type, not its contents.
    let is_only_a_type = order.first().is_some_and(is_collection);
    order.truncate(if is_only_a_type { 1 } else { INDEX_ORDER_BYTES.saturating_sub(lead_bytes) });
    order
}

/// The longest position.
const POSITION_BYTES_MAX: usize = 96;

fn position<'v>(values: impl Iterator<Item = Option<&'v Value>>, key: &[u8]) -> Vec<u8> {
    let mut position = Vec::with_capacity(PREFIX_BYTES_MAX + KEY_BYTES_MAX);
    values.for_each(|value| encode(&mut position, value));
    position.truncate(PREFIX_BYTES_MAX);
    append_key(&mut position, key);
    position
}

/// Appends a value like [`index::encode`], but with the contents of arrays and objects, and
/// only as far as there is room.
fn encode(out: &mut Vec<u8>, value: Option<&Value>) {
    if out.len() >= PREFIX_BYTES_MAX {
        return;
    }
    match value {
        Some(Value::String(text)) if text.len() > PREFIX_BYTES_MAX => {
            let start = Value::from(&text[..text.floor_char_boundary(PREFIX_BYTES_MAX)]);
            index::encode(out, Some(&start), false);
        }
        Some(Value::Array(items)) => {
            index::encode(out, value, false);
            items.iter().for_each(|item| encode(out, Some(item)));
            out.push(END);
        }
        Some(Value::Object(object)) => {
            index::encode(out, value, false);
            let mut members: Vec<(&str, &Value)> = object.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            for (name, member) in members {
                encode(out, Some(&Value::from(name)));
                encode(out, Some(member));
            }
            out.push(END);
        }
        value => index::encode(out, value, false),
    }
}

/// The byte after the contents of an array or object, smaller than the first byte of any
/// value.
const END: u8 = 0;

fn append_key(position: &mut Vec<u8>, key: &[u8]) {
    if key.len() <= KEY_BYTES_MAX {
        position.extend_from_slice(key);
    } else {
        position.push(HASHED);
        position.extend_from_slice(&Sha256::digest(key)[..HASH_BYTES]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perihelion_model::json::parse_str;

    #[test]
    fn a_position_is_short_and_tells_values_apart() {
        let long = "x".repeat(100_000);
        let values = [
            "null",
            "false",
            "0",
            "0.5",
            "9007199254740993",
            "\"\"",
            "\"a\"",
            "[]",
            "[1]",
            "[[1]]",
            "{}",
            r#"{"a":1}"#,
            r#"{"b":1}"#,
            r#"{"a":1,"b":1}"#,
            r#"{"a":"a"}"#,
            &format!("\"{long}\""),
            &format!("\"{long}y\""),
            &format!("[\"{long}\"]"),
            &format!(r#"{{"a":"{long}"}}"#),
        ];
        let positions: std::collections::BTreeSet<Vec<u8>> =
            values.iter().map(|text| of_row(&parse_str(text).expect(text))).collect();
        assert_eq!(positions.len(), values.len());
        assert!(positions.iter().all(|position| position.len() <= PREFIX_BYTES_MAX + KEY_BYTES_MAX));
    }

    #[test]
    fn equal_values_have_one_position() {
        let position = |text: &str| of_row(&parse_str(text).expect(text));
        assert_eq!(position("3"), position("3.0"));
        assert_eq!(position("[3]"), position("[3.0]"));
        assert_eq!(position(r#"{"a":1,"b":"x"}"#), position(r#"{"b":"x","a":1.0}"#));
    }
}
