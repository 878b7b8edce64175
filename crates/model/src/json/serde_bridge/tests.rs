//! Compares the bridge with printing and parsing: both must give the same result.

use std::collections::BTreeMap;
use std::fmt::Debug;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::super::{DEPTH_MAX, Number, Style, Value, parse_str, to_text};

/// Reads a value directly and through its printed text. Returns both results, printed
/// with `Debug`.
fn both_ways<T: DeserializeOwned + Debug>(text: &str) -> (Result<String, ()>, Result<String, ()>) {
    let value = parse_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let printed = to_text(&value, Style::Point);
    let show = |value: T| format!("{value:?}");
    (
        T::deserialize(value).map(show).map_err(drop),
        serde_json::from_str::<T>(&printed).map(show).map_err(drop),
    )
}

#[track_caller]
fn check<T: DeserializeOwned + Debug>(text: &str) {
    let (direct, by_text) = both_ways::<T>(text);
    assert!(by_text.is_ok(), "{text} is not a {}", std::any::type_name::<T>());
    assert_eq!(direct, by_text, "{text}");
}

#[track_caller]
fn check_refused<T: DeserializeOwned + Debug>(text: &str) {
    assert_eq!(both_ways::<T>(text), (Err(()), Err(())), "{text}");
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "the tests compare what Debug shows")]
struct Order {
    id: String,
    total: f64,
    count: u64,
    #[serde(default)]
    note: Option<String>,
    tags: Vec<String>,
    #[serde(rename = "_ts")]
    time: i64,
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "the tests compare what Debug shows")]
enum Shape {
    Empty,
    Circle(f64),
    Line(i32, i32),
    Box { width: u8, height: u8 },
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type")]
#[expect(dead_code, reason = "the tests compare what Debug shows")]
enum Tagged {
    Note { text: String },
    Count { n: u64 },
}

#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "the tests compare what Debug shows")]
struct Flattened {
    id: String,
    #[serde(flatten)]
    rest: BTreeMap<String, serde_json::Value>,
}

#[derive(Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Meters(u32);

#[test]
fn structs_are_read_directly_as_they_are_read_from_text() {
    check::<Order>(r#"{"id":"1","total":12.5,"count":2,"tags":["a","b"],"_ts":5,"unknown":{"a":[1]}}"#);
    check::<Order>(r#"{"id":"1","total":3,"count":2.0,"note":null,"tags":[],"_ts":-5}"#);
    check::<Order>(r#"["1",3,2,"n",["x"],7]"#);
    check::<Flattened>(r#"{"id":"1","a":1,"b":[true,null],"c":18446744073709551615}"#);
    for bad in [
        r#"{"id":1,"total":12.5,"count":2,"tags":[],"_ts":5}"#,
        r#"{"id":"1","total":"x","count":2,"tags":[],"_ts":5}"#,
        r#"{"id":"1","total":1,"count":-2,"tags":[],"_ts":5}"#,
        r#"{"id":"1","total":1,"count":2.5,"tags":[],"_ts":5}"#,
        r#"{"id":"1","total":1,"count":2,"tags":[]}"#,
        "[1]",
        "null",
    ] {
        check_refused::<Order>(bad);
    }
}

#[test]
fn numbers_are_exact_and_integers_where_the_service_prints_integers() {
    for text in ["0", "-1", "9007199254740993", "9223372036854775807", "-9223372036854775808", "2.0", "1e14"]
    {
        check::<i64>(text);
        check::<f64>(text);
        check::<i128>(text);
        check::<serde_json::Value>(text);
    }
    check::<u64>("18446744073709551615");
    check::<u8>("255");
    check::<f32>("0.5");
    for text in ["0.1", "0.30000000000000004", "5e-324", "1e15", "1e300", "-2.5"] {
        check::<f64>(text);
        check_refused::<i64>(text);
    }
    check_refused::<u8>("256");
    check_refused::<i64>("18446744073709551615");
}

#[test]
fn enums_are_read_directly_as_they_are_read_from_text() {
    for text in [
        r#""Empty""#,
        r#"{"Empty":null}"#,
        r#"{"Circle":1}"#,
        r#"{"Line":[1,2]}"#,
        r#"{"Box":{"width":1,"height":2}}"#,
    ] {
        check::<Shape>(text);
    }
    for text in
        [r#""Circle""#, r#""Other""#, "{}", r#"{"Line":[1]}"#, r#"{"Line":[1,2,3]}"#, r#"{"Line":1}"#, "1"]
    {
        check_refused::<Shape>(text);
    }
    check_refused::<Shape>(r#"{"Empty":null,"Circle":1}"#);
    check::<Tagged>(r#"{"type":"Note","text":"a"}"#);
    check::<Tagged>(r#"{"n":18446744073709551615,"type":"Count"}"#);
}

#[test]
fn collections_and_keys_are_read_directly_as_they_are_read_from_text() {
    check::<Vec<Option<bool>>>("[true,null,false]");
    check::<(String, i32)>(r#"["a",1]"#);
    check_refused::<(String, i32)>(r#"["a",1,2]"#);
    check::<BTreeMap<String, Value>>(r#"{"b":1,"a":{"x":[]}}"#);
    check::<BTreeMap<u64, bool>>(r#"{"18446744073709551615":true,"3":false}"#);
    check::<BTreeMap<Meters, bool>>(r#"{"7":true}"#);
    check::<BTreeMap<bool, i32>>(r#"{"true":1}"#);
    check_refused::<BTreeMap<u8, bool>>(r#"{"x":true}"#);
    check_refused::<BTreeMap<u8, bool>>(r#"{"256":true}"#);
    check::<()>("null");
    check::<char>(r#""é""#);
    check::<Meters>("7");
    check::<serde::de::IgnoredAny>(r#"{"a":[1,2]}"#);
}

#[test]
fn a_raw_value_is_the_text_as_the_service_prints_it() {
    let (direct, by_text) = both_ways::<Box<RawValue>>(r#"{"b":[1.0,1e20],"a":"é\n"}"#);
    assert_eq!(direct, by_text);
    check::<Vec<Box<RawValue>>>(r#"[1,{"a":2}]"#);
}

#[test]
fn numbers_as_keys_are_json_numbers() {
    for text in [r#"{"05":1}"#, r#"{"+5":1}"#, r#"{" 5":1}"#] {
        assert!(BTreeMap::<u64, u8>::deserialize(parse_str(text).unwrap()).is_err(), "{text}");
        assert!(serde_json::from_str::<BTreeMap<u64, u8>>(text).is_err(), "{text}");
    }
    let keys = BTreeMap::<i64, u8>::deserialize(parse_str(r#"{"-5":1,"0":2}"#).unwrap()).unwrap();
    assert_eq!(keys, BTreeMap::from([(-5, 1), (0, 2)]));
}

/// These doubles need more than 15 digits, so the service prints them in full.
#[test]
fn a_double_that_is_printed_as_an_integer_is_read_as_one() {
    for (double, integer) in
        [(9007199254740992.0, 9007199254740992), (-12345678901234568.0, -12345678901234568)]
    {
        let value = Value::Number(Number::Double(double));
        assert_eq!(to_text(&value, Style::Point), integer.to_string());
        assert_eq!(i64::deserialize(value).unwrap(), integer);
    }
    let exponent = Value::Number(Number::Double(1e15));
    assert_eq!(to_text(&exponent, Style::Point), "1e+015");
    assert!(i64::deserialize(exponent).is_err());
}

#[test]
fn values_round_trip_through_serde_json() {
    for text in [
        "null",
        "true",
        r#""text""#,
        "[]",
        "{}",
        r#"{"b":1,"a":18446744073709551615,"c":[-9223372036854775808,0.1,1e300,null,{"d":""}]}"#,
    ] {
        let value = parse_str(text).unwrap();
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), value, "{text}");
        let foreign: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_value(&value).unwrap(), foreign, "{text}");
        assert_eq!(Value::deserialize(foreign).unwrap(), value, "{text}");
        assert_eq!(Value::deserialize(value.clone()).unwrap(), value, "{text}");
    }
    let doubles = Value::Array(vec![Value::Number(Number::Double(2.0)), Value::Number(Number::Double(1e20))]);
    assert_eq!(serde_json::to_string(&doubles).unwrap(), "[2,1e+20]");
}

#[test]
fn the_depth_of_a_value_is_bounded() {
    let nested = |depth: usize| (0..depth).fold(serde_json::Value::Null, |inner, _| vec![inner].into());
    assert!(Value::deserialize(nested(DEPTH_MAX)).is_ok());
    assert!(Value::deserialize(nested(DEPTH_MAX + 1)).is_err());
}
