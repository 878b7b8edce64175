//! JSON, binary JSON, patches, and the bodies of distributed transactions.

use perihelion_model::json::{self, Object, Style, Value};
use perihelion_query::{Now, PatchCondition};
use perihelion_wire::binary_json::{decode, encode};
use perihelion_wire::patch::Patch;
use perihelion_wire::transaction::{TransactionLimits, TransactionRequest, request_fingerprint};

use super::bytes_of;

pub(super) const WORDS: &[&str] = &[
    "null",
    "true",
    "{}",
    "[]",
    "\"a\":",
    ",",
    "1e400",
    "-0",
    "0.1",
    "9007199254740993",
    "\"\\u0000\"",
    "\"\\ud83d\"",
    "\"op\":\"add\"",
    "\"op\":\"move\"",
    "\"op\":\"incr\"",
    "\"path\":\"/a/-\"",
    "\"path\":\"/list/0\"",
    "\"from\":\"/a\"",
    "\"value\":[{}]",
    "\"condition\":\"from c where c.a = 1\"",
    "\"operations\":[",
    "\"sessionToken\":\"0:-1#1\"",
    "\"operationType\":\"Patch\"",
    "\"resourceBody\":{",
    "\"partitionKey\":[",
    "\"id\":\"1\"",
];

pub(super) fn json_examples() -> Vec<Vec<u8>> {
    bytes_of(&[
        r#"{"id":"1","n":-12.5e-3,"list":[1,2,[3,{"a":null}]],"text":"é\n\u00e9\ud83d\ude00","t":true}"#,
        "[]",
        "\"text\"",
        "-0.0",
        "18446744073709551615",
        "[1e308,-1e-308,0.1,123456789012345678901234567890]",
        " { \"a\" : [ ] , \"b\" : { } } ",
    ])
}

pub(super) fn run_json(input: &[u8]) {
    let Ok(value) = json::parse(input) else { return };
    for style in [Style::Point, Style::Query] {
        let text = json::to_text(&value, style);
        let again = json::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(json::to_text(&again, style), text, "the text changes when it is parsed and printed");
    }
    check_binary(&value);
}

fn check_binary(value: &Value) {
    let buffer = encode(value);
    let again =
        decode(&buffer).unwrap_or_else(|error| panic!("encoded binary JSON does not decode: {error}"));
    assert_eq!(json::to_text(&again, Style::Point), json::to_text(value, Style::Point));
}

pub(super) fn binary_examples() -> Vec<Vec<u8>> {
    let file = json::parse_str(&perihelion_testkit::conformance::read("binary-json.json")).expect("JSON");
    let vectors = file.get("vectors").and_then(Value::as_array).expect("vectors");
    let buffers = vectors.iter().filter_map(|vector| vector.get("hex").and_then(Value::as_str)).map(from_hex);
    let buffers: Vec<_> = buffers.collect();
    assert!(buffers.len() > 100, "the recorded buffers are missing");
    buffers
}

fn from_hex(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks_exact(2).filter_map(|pair| std::str::from_utf8(pair).ok());
    digits.filter_map(|pair| u8::from_str_radix(pair, 16).ok()).collect()
}

pub(super) fn run_binary(input: &[u8]) {
    if let Ok(value) = decode(input) {
        check_binary(&value);
    }
}

pub(super) fn patch_examples() -> Vec<Vec<u8>> {
    bytes_of(&[
        r#"{"operations":[{"op":"add","path":"/a/b","value":1},{"op":"remove","path":"/list/0"}],"condition":"from c where c.n > 1 and c.s like 'a%'"}"#,
        r#"[{"op":"incr","path":"/n","value":-2.5},{"op":"set","path":"/list/-","value":{"x":[1]}}]"#,
        r#"{"operations":[{"op":"move","from":"/a","path":"/o/c"},{"op":"replace","path":"/s~1x~0","value":null}]}"#,
    ])
}

pub(super) fn run_patch(input: &[u8]) {
    let Ok(body) = json::parse(input) else { return };
    let Ok(patch) = Patch::parse(&body) else { return };
    let document = r#"{"id":"1","n":1,"s":"a","list":[1,[2]],"a":{"b":{"c":1}},"o":{}}"#;
    let Ok(Value::Object(mut document)) = json::parse_str(document) else { return };
    if let Some(condition) = patch.condition()
        && let Ok(condition) = PatchCondition::compile(condition, Now::from_unix_milliseconds(0))
    {
        let _ = condition.matches(&Value::Object(document.clone()));
    }
    let before = json::to_text(&Value::Object(document.clone()), Style::Point).len();
    if patch.apply(&mut document).is_ok() {
        let after = json::to_text(&Value::Object(document), Style::Point).len();
        // The work of a transaction is limited by this bound on the bytes that a patch adds.
        assert!(
            after <= before + patch.added_bytes_max(),
            "{after} > {before} + {}",
            patch.added_bytes_max()
        );
    }
}

pub(super) fn transaction_examples() -> Vec<Vec<u8>> {
    bytes_of(&[
        r#"{"operations":[{"operationType":"Create","resourceType":"Document","databaseName":"d","collectionName":"c","partitionKey":["a"],"id":"1","resourceBody":{"id":"1","pk":"a"},"sessionToken":"0:-1#5"},{"operationType":"Delete","databaseName":"d","collectionName":"c","partitionKey":"[null]","id":"2","ifMatch":"x"}]}"#,
        r#"{"operationType":"Write","operations":[{"index":0,"operationType":"Patch","databaseRid":"AAAAAA==","containerRid":"AAAAAAAAAAA=","partitionKey":[{}],"id":"3","resourceBody":{"operations":[{"op":"set","path":"/n","value":1}]}}]}"#,
        r#"{"operations":[{"operationType":"Read","databaseName":"d","collectionName":"c","partitionKey":[1.5,true],"id":"1"}]}"#,
    ])
}

pub(super) fn run_transaction(input: &[u8]) {
    let _ = TransactionRequest::parse(None, input, TransactionLimits::default());
    let _ = TransactionRequest::parse(Some("Read"), input, TransactionLimits::default());
    if let Ok(Value::Object(body)) = json::parse(input) {
        check_fingerprint(&body);
    }
}

/// Checks that the session tokens of operations do not change the fingerprint of a body.
fn check_fingerprint(body: &Object) {
    let mut without_tokens = body.clone();
    for (name, member) in body.iter() {
        let Value::Array(mut list) = member.clone() else { continue };
        for operation in &mut list {
            if let Value::Object(operation) = operation
                && matches!(operation.get("sessionToken"), Some(Value::String(_) | Value::Null))
            {
                operation.remove("sessionToken");
            }
        }
        without_tokens.set(name, Value::Array(list));
    }
    let [with, without] =
        [body.clone(), without_tokens].map(|body| json::to_text(&Value::Object(body), Style::Point));
    assert_eq!(request_fingerprint(with.as_bytes()), request_fingerprint(without.as_bytes()), "{with}");
}
