//! Tests binary JSON with the conformance vectors and with random bytes.
//!
//! Buffers are written in hexadecimal. `src/binary_json/decode.rs` has a table of the markers, such as
//! `E1` for an array with one item.

use perihelion_model::json::{self, Number, Style, Value};
use perihelion_testkit::Random;
use perihelion_wire::binary_json::{BINARY_DEPTH_MAX, decode, depth, encode, is_binary};

fn conformance() -> Value {
    json::parse_str(&perihelion_testkit::conformance::read("binary-json.json"))
        .expect("the conformance file is JSON")
}

fn list<'a>(file: &'a Value, name: &str) -> &'a [Value] {
    file.get(name).and_then(Value::as_array).unwrap_or_else(|| panic!("no {name}"))
}

fn text<'a>(case: &'a Value, name: &str) -> &'a str {
    case.get(name).and_then(Value::as_str).unwrap_or_else(|| panic!("no {name} in {case:?}"))
}

fn bytes_of(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// Whether two values are equal and have the same number types.
fn is_identical(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (*a, *b) {
            (Number::Int(a), Number::Int(b)) => a == b,
            (Number::Uint(a), Number::Uint(b)) => a == b,
            (Number::Double(a), Number::Double(b)) => a.to_bits() == b.to_bits(),
            _ => false,
        },
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_identical(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| is_identical(a, b)))
        }
        _ => a == b,
    }
}

#[test]
fn every_vector_decodes_to_its_value() {
    let file = conformance();
    let vectors = list(&file, "vectors");
    assert!(vectors.len() >= 151, "the file has shrunk to {} vectors", vectors.len());
    for case in vectors {
        let name = text(case, "name");
        let buffer = bytes_of(text(case, "hex"));
        assert!(is_binary(&buffer), "{name}");
        let value = decode(&buffer).unwrap_or_else(|error| panic!("{name}: {error}"));
        match case.get("json") {
            Some(expect) => assert!(is_identical(&value, expect), "{name}: {value:?} is not {expect:?}"),
            None => assert_eq!(json::to_text(&value, Style::Point), text(case, "text"), "{name}"),
        }
    }
}

/// The value of a vector, for the encoder. The value of one vector cannot be read from the file:
/// the SDK's encoder keeps the sign of minus zero, but our JSON parser drops it, as the service
/// does.
fn value_to_encode(case: &Value) -> Value {
    match text(case, "name") {
        "double_negative_zero" => Value::Number(Number::Double(-0.0)),
        _ => case.get("json").expect("a canonical vector has its value").clone(),
    }
}

/// The value with sorted members, as in the vectors; our encoder keeps the
/// order of members.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let mut members: Vec<_> =
                object.iter().map(|(name, member)| (name.to_owned(), sorted(member))).collect();
            members.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(json::Object::from_members(members))
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        _ => value.clone(),
    }
}

/// A vector is canonical if the SDK's own encoder writes exactly its bytes.
#[test]
fn canonical_vectors_encode_to_the_same_bytes() {
    let file = conformance();
    let mut canonical = 0;
    for case in list(&file, "vectors") {
        if case.get("canonical").and_then(Value::as_bool) != Some(true) {
            continue;
        }
        canonical += 1;
        let encoded = encode(&sorted(&value_to_encode(case)));
        assert_eq!(encoded, bytes_of(text(case, "hex")), "{}", text(case, "name"));
    }
    assert!(canonical >= 45, "only {canonical} canonical vectors");
}

#[test]
fn every_invalid_buffer_is_refused() {
    let file = conformance();
    let invalid = list(&file, "invalid");
    assert!(invalid.len() >= 90, "the file has shrunk to {} cases", invalid.len());
    for case in invalid {
        let outcome = decode(&bytes_of(text(case, "hex")));
        assert!(outcome.is_err(), "{} ({}): {outcome:?}", text(case, "name"), text(case, "why"));
    }
}

#[test]
fn an_array_at_the_greatest_depth_is_accepted_only_if_it_is_empty_or_uniform() {
    let nested = |innermost: &[u8]| {
        let mut buffer = vec![0x80];
        buffer.extend(std::iter::repeat_n(0xE1, BINARY_DEPTH_MAX));
        buffer.extend_from_slice(innermost);
        decode(&buffer).map(|value| depth(&value))
    };
    assert_eq!(nested(&[0x07]), Ok(BINARY_DEPTH_MAX));
    assert_eq!(nested(&[0xE0]), Ok(BINARY_DEPTH_MAX + 1));
    assert_eq!(nested(&[0xF0, 0xD7, 0x01, 0x05]), Ok(BINARY_DEPTH_MAX + 1));
    assert!(nested(&[0xE1, 0x07]).is_err());
    let mut endless = vec![0xE1; 1_000_000];
    endless[0] = 0x80;
    assert!(decode(&endless).is_err());
}

/// A server's worker threads have 2 MiB of stack; decoding may use a quarter of
/// it, even without optimisation.
#[test]
fn the_deepest_value_is_decoded_and_encoded_on_a_small_stack() {
    let mut buffer = [0xE9, 0x2C, 0xE1].repeat(BINARY_DEPTH_MAX / 2);
    buffer.insert(0, 0x80);
    buffer.push(0x07);
    let thread = std::thread::Builder::new().stack_size(512 * 1024);
    let round_trip =
        thread.spawn(move || decode(&encode(&decode(&buffer).unwrap())).map(|value| depth(&value)));
    assert_eq!(round_trip.unwrap().join().unwrap(), Ok(BINARY_DEPTH_MAX));
}

#[test]
fn the_memory_of_a_decoded_buffer_is_bounded() {
    // Rows without items take no bytes: 7 bytes stand for 65,535 rows.
    let rows = [0xF3, 0xF1, 0xDA, 0x00, 0x00, 0xFF, 0xFF];
    let one = decode(&[&[0x80][..], &rows].concat()).unwrap();
    assert_eq!(one.as_array().map(<[Value]>::len), Some(65_535));
    let many = rows.repeat(10_000);
    let buffer = [&[0x80, 0xE4][..], &(many.len() as u32).to_le_bytes(), &many].concat();
    assert!(decode(&buffer).is_err());

    // 100 KiB of text with ten thousand references to it.
    let text = vec![b'x'; 100 * 1024];
    let mut items = [&[0xC2][..], &(text.len() as u32).to_le_bytes(), &text].concat();
    items.extend([0xC3, 0x06].repeat(10_000));
    let buffer = [&[0x80, 0xE4][..], &(items.len() as u32).to_le_bytes(), &items].concat();
    assert!(decode(&buffer).is_err());
    let mut few = [&[0xC2][..], &(text.len() as u32).to_le_bytes(), &text].concat();
    few.extend([0xC3, 0x06].repeat(10));
    let buffer = [&[0x80, 0xE4][..], &(few.len() as u32).to_le_bytes(), &few].concat();
    assert_eq!(decode(&buffer).unwrap().as_array().map(<[Value]>::len), Some(11));
}

/// Decodes random bytes and returns whether they are accepted. Fails when an accepted
/// value is not the same after encoding and decoding.
fn is_accepted_and_round_trips(buffer: &[u8], seed: u64) -> bool {
    let Ok(value) = decode(buffer) else { return false };
    let again = decode(&encode(&value));
    assert!(again.is_ok_and(|again| is_identical(&again, &value)), "seed {seed}: {buffer:02X?}");
    true
}

#[test]
fn mutated_vectors_never_panic_and_round_trip_when_accepted() {
    const ROUNDS: u64 = 60_000;
    let file = conformance();
    let corpus: Vec<Vec<u8>> = ["vectors", "invalid"]
        .iter()
        .flat_map(|name| list(&file, name))
        .map(|case| bytes_of(text(case, "hex")))
        .filter(|buffer| !buffer.is_empty())
        .collect();
    let (mut accepted, mut refused) = (0, 0);
    for seed in 1..=ROUNDS {
        let mut random = Random::new(seed);
        let mut buffer = corpus[random.index(corpus.len())].clone();
        for _ in 0..=random.below(4) {
            let at = random.index(buffer.len());
            match random.below(4) {
                0 => buffer[at] = random.bits() as u8,
                1 => buffer.insert(at, random.bits() as u8),
                2 => buffer.truncate(at.max(1)),
                _ => {
                    let other = &corpus[random.index(corpus.len())];
                    buffer.splice(at..at, other[1..].iter().copied());
                }
            }
        }
        buffer[0] = 0x80;
        match is_accepted_and_round_trips(&buffer, seed) {
            true => accepted += 1,
            false => refused += 1,
        }
    }
    assert!(accepted > 3_000 && refused > 3_000, "{accepted} accepted, {refused} refused");
}
