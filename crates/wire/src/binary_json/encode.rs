//! Encodes binary JSON as the official SDK does. The encoder uses no system strings,
//! references or packed text. Containers always have a length and a count, in the
//! narrowest fields that fit.
//!
//! The length of a container is written before its items, so the value is measured
//! first and written second. Both passes visit its parts in the same order.

use perihelion_model::json::{Number, Value};

use super::marker;

/// Encodes a value as a whole buffer with the format byte.
pub fn encode(value: &Value) -> Vec<u8> {
    let mut lengths = Vec::new();
    let length = measure(value, &mut lengths);
    let mut out = Vec::with_capacity(1 + length);
    out.push(marker::FORMAT);
    write(value, &mut lengths.into_iter(), &mut out);
    debug_assert_eq!(out.len(), 1 + length, "both passes agree on the length");
    out
}

/// The number of bytes of the value. Appends to `lengths` the length of the contents of
/// each container, in the order in which both passes visit the containers.
fn measure(value: &Value, lengths: &mut Vec<usize>) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 1,
        Value::Number(number) => measure_number(*number),
        Value::String(text) => measure_string(text),
        Value::Array(items) => {
            measure_container(lengths, |lengths| items.iter().map(|item| measure(item, lengths)).sum())
        }
        Value::Object(object) => measure_container(lengths, |lengths| {
            object.iter().map(|(name, member)| measure_string(name) + measure(member, lengths)).sum()
        }),
    }
}

fn measure_container(
    lengths: &mut Vec<usize>,
    measure_contents: impl FnOnce(&mut Vec<usize>) -> usize,
) -> usize {
    let index = lengths.len();
    lengths.push(0);
    let length = measure_contents(lengths);
    lengths[index] = length;
    1 + 2 * field_bytes(length) + length
}

fn measure_number(number: Number) -> usize {
    match number {
        Number::Int(value) if fits_in_marker(value) => 1,
        Number::Int(_) | Number::Uint(_) | Number::Double(_) => 9,
    }
}

fn measure_string(text: &str) -> usize {
    match text.len() {
        length @ 0..=marker::SHORT_STRING_BYTES_MAX => 1 + length,
        length => 1 + field_bytes(length) + length,
    }
}

/// The number of bytes of the narrowest field for a length. The count of a container has
/// a field of the same size, because a count is never larger than the length.
fn field_bytes(length: usize) -> usize {
    match length {
        0..=0xFF => 1,
        0x100..=0xFFFF => 2,
        _ => 4,
    }
}

fn fits_in_marker(value: i64) -> bool {
    (0..=i64::from(marker::INTEGER_LAST)).contains(&value)
}

fn write(value: &Value, lengths: &mut impl Iterator<Item = usize>, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(marker::NULL),
        Value::Bool(false) => out.push(marker::FALSE),
        Value::Bool(true) => out.push(marker::TRUE),
        Value::Number(number) => write_number(*number, out),
        Value::String(text) => write_string(text, out),
        Value::Array(items) => {
            write_header(marker::ARRAY_COUNTED_1, lengths.next().unwrap_or(0), items.len(), out);
            for item in items {
                write(item, lengths, out);
            }
        }
        Value::Object(object) => {
            write_header(marker::OBJECT_COUNTED_1, lengths.next().unwrap_or(0), object.len(), out);
            for (name, member) in object.iter() {
                write_string(name, out);
                write(member, lengths, out);
            }
        }
    }
}

fn write_number(number: Number, out: &mut Vec<u8>) {
    let (marker, payload) = match number {
        Number::Int(value) if fits_in_marker(value) => return out.push(value as u8),
        Number::Int(value) => (marker::I64, value.to_le_bytes()),
        Number::Uint(value) => (marker::U64, value.to_le_bytes()),
        Number::Double(value) => (marker::DOUBLE, value.to_le_bytes()),
    };
    out.push(marker);
    out.extend_from_slice(&payload);
}

fn write_string(text: &str, out: &mut Vec<u8>) {
    let length = text.len();
    match field_bytes(length) {
        _ if length <= marker::SHORT_STRING_BYTES_MAX => out.push(marker::SHORT_STRING_FIRST + length as u8),
        1 => out.push(marker::STRING_1),
        2 => out.push(marker::STRING_2),
        _ => out.push(marker::STRING_4),
    }
    if length > marker::SHORT_STRING_BYTES_MAX {
        write_field(length, field_bytes(length), out);
    }
    out.extend_from_slice(text.as_bytes());
}

/// Writes marker, length and count of a container. `narrowest_marker` is the marker for
/// fields of 1 byte.
fn write_header(narrowest_marker: u8, length: usize, count: usize, out: &mut Vec<u8>) {
    let bytes = field_bytes(length);
    out.push(match bytes {
        1 => narrowest_marker,
        2 => narrowest_marker + 1,
        _ => narrowest_marker + 2,
    });
    write_field(length, bytes, out);
    write_field(count, bytes, out);
}

/// Writes a length or a count in a field of 1, 2 or 4 bytes. Documents are far smaller than 4 GiB,
/// so four bytes hold any length.
fn write_field(value: usize, bytes: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&(value as u32).to_le_bytes()[..bytes]);
}
