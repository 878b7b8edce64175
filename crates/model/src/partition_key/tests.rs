//! Hashes of partition keys against the conformance files, and ranges of effective keys.

use super::*;
use crate::murmur;

fn conformance(file: &str) -> Value {
    json::parse_str(&perihelion_testkit::conformance::read(file)).unwrap()
}

fn case_value(value: &Value) -> KeyValue {
    let text = || value.get("value").and_then(Value::as_str).unwrap().to_owned();
    match value.get("type").and_then(Value::as_str).unwrap() {
        "string" => KeyValue::String(text()),
        "repeated_string" => {
            KeyValue::String(text().repeat(value.get("count").and_then(Value::as_i64).unwrap() as usize))
        }
        "null" => KeyValue::Null,
        "undefined" => KeyValue::Undefined,
        "bool" => KeyValue::Bool(value.get("value").and_then(Value::as_bool).unwrap()),
        "number" => KeyValue::Number(text().parse().unwrap()),
        other => panic!("unknown type {other}"),
    }
}

#[test]
fn effective_partition_keys_equal_those_of_the_conformance_file() {
    let cases = conformance("effective-partition-keys.json");
    let cases = cases.as_array().unwrap();
    assert!(cases.len() >= 42);
    for case in cases {
        let values: Vec<KeyValue> =
            case.get("values").unwrap().as_array().unwrap().iter().map(case_value).collect();
        let version = case.get("version").unwrap().as_i64().unwrap();
        let kind = case.get("kind").unwrap().as_str().unwrap();
        let definition = PartitionKeyDefinition {
            paths: values.iter().map(|_| KeyPath::parse("/x").unwrap()).collect(),
            kind: if kind == "hash" { KeyKind::Hash } else { KeyKind::MultiHash },
            version: if version == 1 { HashVersion::V1 } else { HashVersion::V2 },
        };
        let effective = definition.effective(&PartitionKey { values });
        assert_eq!(effective.to_hex(), case.get("expected_epk").unwrap().as_str().unwrap(), "{case:?}");
    }
}

#[test]
fn hashes_equal_those_of_the_conformance_file() {
    let cases = conformance("partition-key-hashes.json");
    let cases = cases.as_array().unwrap();
    assert!(cases.len() >= 29);
    for case in cases {
        let text = case.get("PartitionKeyValue").unwrap().as_str().unwrap();
        let values = match text {
            "UNDEFINED" => vec![KeyValue::Undefined],
            "-0" => vec![KeyValue::Number(-0.0)],
            // JSON does not have these numbers; the file writes them as strings.
            "\"NaN\"" => vec![KeyValue::Number(f64::from_bits(0xFFF8_0000_0000_0000))],
            "\"Infinity\"" => vec![KeyValue::Number(f64::INFINITY)],
            "\"-Infinity\"" => vec![KeyValue::Number(f64::NEG_INFINITY)],
            text => match json::parse_str(text).unwrap() {
                Value::Array(items) => items.iter().map(|item| KeyValue::from_json(item).unwrap()).collect(),
                value => vec![KeyValue::from_json(&value).unwrap()],
            },
        };
        let (mut hashes_v1, mut hashes_v2) = (Vec::new(), Vec::new());
        for value in &values {
            let mut bytes = Vec::new();
            value.truncated().write_for_hash(&mut bytes, None);
            // The file has 16 bytes for every hash, even for a hash of 32 bits.
            hashes_v1.extend_from_slice(&u128::from(murmur::hash_32(&bytes, 0)).to_be_bytes());
            let mut bytes = Vec::new();
            value.write_for_hash(&mut bytes, None);
            let (low, high) = murmur::hash_128(&bytes);
            hashes_v2.extend_from_slice(&high.to_be_bytes());
            hashes_v2.extend_from_slice(&low.to_be_bytes());
        }
        let dashed = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02X}")).collect::<Vec<_>>().join("-");
        assert_eq!(dashed(&hashes_v1), case.get("PartitionKeyHashV1").unwrap().as_str().unwrap(), "{text}");
        assert_eq!(dashed(&hashes_v2), case.get("PartitionKeyHashV2").unwrap().as_str().unwrap(), "{text}");
    }
}

#[test]
fn equal_parts_of_the_whole_range_leave_no_gap() {
    for version in [HashVersion::V1, HashVersion::V2] {
        let ranges = EffectiveRange::whole().split_evenly(5, version);
        assert_eq!(ranges.len(), 5);
        assert_eq!(ranges[0].min, EffectiveKey::default());
        assert_eq!(ranges[4].max, EffectiveKey::max());
        assert!(ranges.windows(2).all(|pair| pair[0].max == pair[1].min && pair[0].min < pair[0].max));
        let middle = ranges[2].middle(version).unwrap();
        assert!(ranges[2].contains(&middle));
    }
}

#[test]
fn only_pairs_of_hexadecimal_digits_are_an_effective_key() {
    assert_eq!(EffectiveKey::from_hex("05c1DF"), Some(EffectiveKey(vec![0x05, 0xC1, 0xDF])));
    assert_eq!(EffectiveKey::from_hex(""), Some(EffectiveKey::default()));
    for bad in ["F", "+F", "-0", " 1", "0x", "0G", "é"] {
        assert_eq!(EffectiveKey::from_hex(bad), None, "{bad}");
    }
}

/// Fixtures of the official SDKs have recorded these bounds of new containers.
#[test]
fn the_ranges_of_a_new_container_have_the_services_bounds() {
    let bounds = |parts, version| -> Vec<String> {
        let ranges = EffectiveRange::whole().split_evenly(parts, version);
        ranges[1..].iter().map(|range| range.min.to_hex()).collect()
    };
    assert_eq!(bounds(2, HashVersion::V2), ["1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF"]);
    assert_eq!(
        bounds(4, HashVersion::V2),
        [
            "0FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF",
            "1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFE",
            "2FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFD",
        ]
    );
    assert_eq!(bounds(2, HashVersion::V1), ["05C1DFFFFFFFFC"]);
    assert_eq!(bounds(4, HashVersion::V1)[0], "05C1CFFFFFFFF8");
}

#[test]
fn an_array_or_an_object_at_a_key_path_is_an_undefined_key() {
    let paths = vec![KeyPath::parse("/a").unwrap(), KeyPath::parse("/b/c").unwrap()];
    let definition = PartitionKeyDefinition { paths, kind: KeyKind::MultiHash, version: HashVersion::V2 };
    for document in [r#"{"a":{"x":1},"b":{"c":[1]}}"#, r#"{"a":[],"b":"text"}"#, "{}"] {
        let Ok(crate::json::Value::Object(document)) = crate::json::parse_str(document) else { panic!() };
        assert_eq!(definition.extract(&document).values, [KeyValue::Undefined, KeyValue::Undefined]);
    }
}

#[test]
fn keys_are_spread_evenly_over_equal_ranges() {
    for version in [HashVersion::V1, HashVersion::V2] {
        let paths = vec![KeyPath::parse("/pk").unwrap()];
        let definition = PartitionKeyDefinition { paths, kind: KeyKind::Hash, version };
        let ranges = EffectiveRange::whole().split_evenly(4, version);
        let mut counts = [0; 4];
        for number in 0..1000 {
            let key = PartitionKey { values: vec![KeyValue::String(format!("key-{number}"))] };
            let effective = definition.effective(&key);
            counts[ranges.iter().position(|range| range.contains(&effective)).unwrap()] += 1;
        }
        assert!(counts.iter().all(|count| (150..350).contains(count)), "{version:?} {counts:?}");
    }
}

#[test]
fn a_path_may_have_quoted_and_plain_steps() {
    assert_eq!(KeyPath::parse("/a/b").unwrap().steps, ["a", "b"]);
    assert_eq!(KeyPath::parse("/\"a/b\"/c").unwrap().steps, ["a/b", "c"]);
    assert_eq!(KeyPath::parse("/'a\" 1*()'/'b/c'").unwrap().steps, ["a\" 1*()", "b/c"]);
    assert_eq!(KeyPath::parse("/\"a' \\\" b\"/c").unwrap().steps, ["a' \\\" b", "c"]);
    for bad in ["", "a", "/", "/a/", "//a", "/\"a", "/\"a\"b", "/'a", "/'a\"", "/'a\\'", "/''"] {
        assert_eq!(KeyPath::parse(bad), None, "{bad}");
    }
}

#[test]
fn a_stored_path_with_one_quote_is_still_a_path() {
    assert_eq!(KeyPath::parse_stored("/'abc").unwrap().steps, ["'abc"]);
    assert_eq!(KeyPath::parse_stored("/a/b").unwrap().steps, ["a", "b"]);
    for bad in ["", "a", "/", "/a/", "//a"] {
        assert_eq!(KeyPath::parse_stored(bad), None, "{bad}");
    }
}
