//! The encoding of JSON values as index keys: bytes that sort as the service
//! sorts values.

use std::borrow::Cow;

use perihelion_model::json::{Number, Value};

/// Appends a value so that bytes sort as the service sorts: undefined (`None`), null,
/// false, true, numbers, strings, arrays, objects. All arrays are equal, and so are all
/// objects. `is_descending` reverses the order.
pub(crate) fn encode(out: &mut Vec<u8>, value: Option<&Value>, is_descending: bool) {
    let start = out.len();
    match value {
        None => out.push(0x01),
        Some(Value::Null) => out.push(0x02),
        Some(Value::Bool(false)) => out.push(0x03),
        Some(Value::Bool(true)) => out.push(0x04),
        Some(Value::Number(number)) => encode_number(out, *number),
        Some(Value::String(text)) => encode_string(out, text),
        Some(Value::Array(_)) => out.push(0x0A),
        Some(Value::Object(_)) => out.push(0x0B),
    }
    if is_descending {
        for byte in &mut out[start..] {
            *byte = !*byte;
        }
    }
}

/// The most bytes of a string in an index key. A document of 2 MB would otherwise have keys of 2 MB
/// in each of its indexes, and every search of the index would compare them.
pub(crate) const STRING_BYTES_MAX: usize = 1024;

/// Appends a value like [`encode`], but only the first [`STRING_BYTES_MAX`] bytes of a string. Longer
/// strings with the same first bytes are encoded alike. They sort after the string that consists of
/// only these bytes. Returns whether a string was cut.
pub(crate) fn encode_cut(out: &mut Vec<u8>, value: Option<&Value>, is_descending: bool) -> bool {
    let start = match value {
        // The bytes of a string sort as its characters do, so a cut within a character is allowed.
        Some(Value::String(text)) => {
            text.as_bytes().get(..STRING_BYTES_MAX).filter(|start| start.len() < text.len())
        }
        _ => None,
    };
    let Some(start) = start else {
        encode(out, value, is_descending);
        return false;
    };
    let key_start = out.len();
    out.push(STRING);
    append_escaped(out, start);
    out.extend_from_slice(&CUT);
    if is_descending {
        out[key_start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
    true
}

/// Cuts the order keys of a row as its index key cuts them. `order` has the order keys as [`encode`]
/// appends them. Returns the beginning of the index key, after its prefix: `order` up to the first
/// string that is too long for an index key, with that string cut. Also returns whether there is such
/// a string. If so, rows with different order keys may have the same beginning, and the index does not
/// sort them by their order keys. The bytes may come from a continuation token, so they may be anything.
pub(crate) fn cut_order(order: &[u8]) -> (Cow<'_, [u8]>, bool) {
    let mut at = 0;
    while let Some(first) = order.get(at) {
        // The bytes of a value in descending order are inverted.
        let mask = if *first >= 0x80 { 0xFF } else { 0 };
        at += match first ^ mask {
            STRING => match string_in_order(&order[at + 1..], mask) {
                StringInOrder::Whole(length) => 1 + length,
                StringInOrder::Longer(length) => {
                    let mut cut = order[..at + 1 + length].to_vec();
                    cut.extend(CUT.map(|byte| byte ^ mask));
                    return (Cow::Owned(cut), true);
                }
                StringInOrder::Unfinished => break,
            },
            NUMBER => NUMBER_BYTES,
            _ => 1,
        };
    }
    (Cow::Borrowed(order), false)
}

/// A string at the beginning of encoded order keys, after its type byte.
enum StringInOrder {
    /// The string and its end have this many bytes.
    Whole(usize),
    /// The string is longer than an index key holds. The part that the key holds has this many bytes
    /// in the order keys.
    Longer(usize),
    /// The order keys end within the string: they are only the beginning of a row's order keys.
    Unfinished,
}

fn string_in_order(bytes: &[u8], mask: u8) -> StringInOrder {
    let (mut at, mut count) = (0, 0);
    loop {
        match (bytes.get(at).map(|byte| byte ^ mask), bytes.get(at + 1).map(|byte| byte ^ mask)) {
            (None, _) | (Some(0), None) => return StringInOrder::Unfinished,
            (Some(0), Some(0)) => return StringInOrder::Whole(at + 2),
            _ if count == STRING_BYTES_MAX => return StringInOrder::Longer(at),
            (Some(0), Some(_)) => at += 2,
            (Some(_), _) => at += 1,
        }
        count += 1;
    }
}

/// Appends a value so that different values have different bytes, and the bytes of a value are
/// never a prefix of the bytes of another value. Arrays and objects are encoded with their
/// contents, and the order of an object's members does not matter.
pub(crate) fn encode_whole(out: &mut Vec<u8>, value: &Value) {
    encode(out, Some(value), false);
    match value {
        Value::Array(items) => {
            items.iter().for_each(|item| encode_whole(out, item));
            out.push(END);
        }
        Value::Object(members) => {
            let mut members: Vec<(&str, &Value)> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            for (name, value) in members {
                encode_string(out, name);
                encode_whole(out, value);
            }
            out.push(END);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The byte after the contents of an array or object. No value begins with it.
const END: u8 = 0x00;
/// The first byte of a number.
const NUMBER: u8 = 0x05;
/// The bytes of a number: the first byte, a double and a difference.
const NUMBER_BYTES: usize = 11;
/// The first byte of a string.
const STRING: u8 = 0x08;
/// The bytes after a whole string.
const WHOLE: [u8; 2] = [0, 0];
/// The bytes after a string that was cut. They sort after [`WHOLE`], and before all other bytes that
/// can follow.
const CUT: [u8; 2] = [0, 1];

/// The first byte of a value that is encoded in ascending order. The byte stands for the
/// type (`false` and `true` have one each), and serves as a bound of all values of one type.
pub(crate) fn type_byte(value: &Value) -> u8 {
    match value {
        Value::Null => 0x02,
        Value::Bool(false) => 0x03,
        Value::Bool(true) => 0x04,
        Value::Number(_) => NUMBER,
        Value::String(_) => STRING,
        Value::Array(_) => 0x0A,
        Value::Object(_) => 0x0B,
    }
}

/// Appends a number: the nearest double, in bits that sort as the doubles do, then the
/// difference between an integer and that double. The difference is at most 512, because
/// doubles of the size of an i64 are at most 1024 apart. For integers of 2^63 and above
/// the difference is left out: two of them with the same nearest double are encoded the
/// same.
fn encode_number(out: &mut Vec<u8>, number: Number) {
    const SIGN: u64 = 1 << 63;
    out.push(NUMBER);
    let double = number.as_f64();
    let bits = double.to_bits();
    let ordered = if bits & SIGN == 0 { bits | SIGN } else { !bits };
    out.extend_from_slice(&ordered.to_be_bytes());
    let distance = match number {
        Number::Int(value) => (i128::from(value) - double as i128) as i16,
        Number::Uint(_) | Number::Double(_) => 0,
    };
    out.extend_from_slice(&((distance as u16) ^ 0x8000).to_be_bytes());
}

/// Appends a string: UTF-8 with zero bytes escaped, then two zero bytes, so that a
/// prefix of a string sorts before the string.
fn encode_string(out: &mut Vec<u8>, text: &str) {
    out.push(STRING);
    append_escaped(out, text.as_bytes());
    out.extend_from_slice(&WHOLE);
}

fn append_escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        out.push(*byte);
        if *byte == 0 {
            out.push(0xFF);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perihelion_model::json::parse_str;

    #[test]
    fn keys_sort_as_values_do() {
        let ascending = [
            "null",
            "false",
            "true",
            "-1e300",
            "-5",
            "-1.5",
            "0",
            "1e-300",
            "1",
            "1.5",
            "2",
            "9007199254740992",
            "9007199254740993",
            "9223372036854775807",
            "1e300",
            "\"\"",
            "\"\\u0000\"",
            "\"a\"",
            "\"a\\u0000\"",
            "\"ab\"",
            "\"b\"",
            "\"é\"",
            "[]",
            "{}",
        ];
        let encode_text = |text: &str, is_descending| {
            let mut key = Vec::new();
            encode(&mut key, Some(&parse_str(text).unwrap()), is_descending);
            key
        };
        let mut undefined = Vec::new();
        encode(&mut undefined, None, false);
        assert!(undefined < encode_text("null", false));
        for pair in ascending.windows(2) {
            assert!(encode_text(pair[0], false) < encode_text(pair[1], false), "{pair:?}");
            assert!(encode_text(pair[0], true) > encode_text(pair[1], true), "{pair:?} descending");
        }
        assert_eq!(encode_text("1", false), encode_text("1.0", false));
    }

    #[test]
    fn whole_values_are_encoded_alike_only_if_they_are_equal() {
        let encode_text = |text: &str| {
            let mut key = Vec::new();
            encode_whole(&mut key, &parse_str(text).unwrap());
            key
        };
        let different =
            ["[]", "[1]", "[2]", "[1,2]", "[[1],2]", "[[1,2]]", "{}", r#"{"a":1}"#, r#"{"a":[1]}"#];
        for (index, one) in different.iter().enumerate() {
            for other in &different[index + 1..] {
                let (one, other) = (encode_text(one), encode_text(other));
                assert!(!one.starts_with(&other) && !other.starts_with(&one));
            }
        }
        assert_eq!(encode_text(r#"{"a":1,"b":[2]}"#), encode_text(r#"{"b":[2],"a":1.0}"#));
    }

    /// Strings around the length at which index keys cut them, in their order.
    fn long_strings() -> Vec<Value> {
        let most = STRING_BYTES_MAX;
        let mut texts = vec![
            "x".repeat(most - 1),
            "x".repeat(most),
            format!("{}\u{0}", "x".repeat(most)),
            format!("{}a", "x".repeat(most)),
            "x".repeat(most + 1),
            "x".repeat(2 * most),
            // Cut within the character.
            format!("{}é", "x".repeat(most - 1)),
            format!("{}éa", "x".repeat(most - 1)),
            format!("{}a", "\u{0}".repeat(most)),
        ];
        texts.sort();
        texts.into_iter().map(Value::from).collect()
    }

    #[test]
    fn keys_of_long_strings_are_bounded_and_never_reverse_the_order_of_the_strings() {
        for is_descending in [false, true] {
            let cut = |value: &Value| {
                let mut key = Vec::new();
                let is_cut = encode_cut(&mut key, Some(value), is_descending);
                (key, is_cut)
            };
            let mut ties = 0;
            for pair in long_strings().windows(2) {
                let ((one, one_is_cut), (other, other_is_cut)) = (cut(&pair[0]), cut(&pair[1]));
                let (one, other) = if is_descending { (other, one) } else { (one, other) };
                assert!(one <= other);
                ties += usize::from(one == other);
                // Only two cut strings tie.
                assert!(one != other || (one_is_cut && other_is_cut));
                assert!(one.len() <= 2 * STRING_BYTES_MAX + 3);
            }
            // Four strings begin with STRING_BYTES_MAX times `x` and are longer. They have one key. The
            // two strings that are cut within `é` have one key too.
            assert_eq!(ties, 4);
        }
    }

    /// The order keys hold whole strings. `cut_order` makes them equal to the index key, up to and
    /// including the first cut string.
    #[test]
    fn cut_order_keys_are_the_beginning_of_the_index_key() {
        let others = ["null", "true", "1.5", "\"a\\u0000\"", "[]", "{}"];
        for text in long_strings() {
            for (index, other) in others.into_iter().enumerate() {
                let is_descending = index % 2 == 1;
                let other = parse_str(other).unwrap();
                let (mut order, mut key) = (Vec::new(), Vec::new());
                encode(&mut order, Some(&other), !is_descending);
                encode_cut(&mut key, Some(&other), !is_descending);
                encode(&mut order, Some(&text), is_descending);
                let expects_cut = encode_cut(&mut key, Some(&text), is_descending);
                encode(&mut order, Some(&other), is_descending);
                if !expects_cut {
                    encode(&mut key, Some(&other), is_descending);
                }
                let (cut, is_cut) = cut_order(&order);
                assert!((cut.as_ref(), is_cut) == (key.as_slice(), expects_cut), "{other:?}");
                // A token may hold only the beginning of the order keys. A scan that starts there must
                // not start after the entry of the row.
                for length in 0..order.len() {
                    let (cut, is_cut) = cut_order(&order[..length]);
                    assert!(if is_cut { *cut == key } else { *cut == order[..length] });
                }
            }
        }
    }

    #[test]
    fn no_key_is_a_prefix_of_another() {
        for (short, long) in [("\"a\"", "\"ab\""), ("\"a\"", "\"a\\u0000\""), ("1", "1.5")] {
            for is_descending in [false, true] {
                let (mut first, mut second) = (Vec::new(), Vec::new());
                encode(&mut first, Some(&parse_str(short).unwrap()), is_descending);
                encode(&mut second, Some(&parse_str(long).unwrap()), is_descending);
                assert!(!second.starts_with(&first), "{short} {long}");
            }
        }
    }
}
