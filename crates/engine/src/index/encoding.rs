//! The encoding of JSON values as index keys: bytes that sort as the service
//! sorts values.

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

/// The first byte of a value that is encoded in ascending order. The byte stands for the
/// type (booleans have two bytes), and serves as a bound of all values of one type.
pub(crate) fn type_byte(value: &Value) -> u8 {
    match value {
        Value::Null => 0x02,
        Value::Bool(false) => 0x03,
        Value::Bool(true) => 0x04,
        Value::Number(_) => 0x05,
        Value::String(_) => 0x08,
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
    out.push(0x05);
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
    out.push(0x08);
    for byte in text.bytes() {
        out.push(byte);
        if byte == 0 {
            out.push(0xFF);
        }
    }
    out.extend_from_slice(&[0, 0]);
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
