//! Compares an answer with the expectation of a case.
//!
//! Every function adds its differences as short texts. An answer without differences
//! matches. The last section of `conformance/README.md` explains the forms of an
//! expected body. An unknown form is a difference too.

use perihelion_model::json::{self, Object, Style, Value};
use perihelion_testkit::http_client::HttpResponse;
use regex_lite::Regex;

use super::case::{Expect, refuse_unknown_members};
use super::variables::Variables;

/// How many characters of a value a difference shows.
const SHOWN_CHARACTERS: usize = 110;

/// All differences between the answer and the expectation.
pub(super) fn differences(expect: &Expect, variables: &Variables, answer: &HttpResponse) -> Vec<String> {
    let mut differences = Vec::new();
    if answer.status != expect.status {
        differences.push(format!(
            "status {}, not {}: {}",
            answer.status,
            expect.status,
            short_line(&answer.text())
        ));
    }
    if let Some(substatus) = expect.substatus {
        compare_header("x-ms-substatus", &substatus.to_string(), answer, &mut differences);
    }
    for (name, value) in &expect.headers {
        compare_header(name, &variables.fill(value), answer, &mut differences);
    }
    let Value::Object(forms) = variables.fill_value(&Value::Object(expect.body.clone())) else {
        return differences;
    };
    // With another status the body is not worth comparing.
    if answer.status == expect.status {
        compare_body(&forms, answer, &mut differences);
    }
    differences
}

fn compare_header(name: &str, expect: &str, answer: &HttpResponse, differences: &mut Vec<String>) {
    let actual = answer.header(name);
    let is_match = match (expect, actual) {
        ("absent", actual) => actual.is_none(),
        ("present", actual) => actual.is_some(),
        (_, None) => false,
        (expect, Some(actual)) => match expect.strip_prefix("re:") {
            Some(pattern) => matches_pattern(pattern, actual),
            None => actual == expect,
        },
    };
    if !is_match {
        differences.push(format!(
            "{name} {}, not {}",
            short_line(actual.unwrap_or("absent")),
            short_line(expect)
        ));
    }
}

fn compare_body(forms: &Object, answer: &HttpResponse, differences: &mut Vec<String>) {
    if forms.contains("empty") {
        if !answer.body.is_empty() {
            differences.push(format!("body {}, not empty", short_line(&answer.text())));
        }
        return;
    }
    let body = match answer.json() {
        Ok(body) => body,
        Err(_) if forms.contains("any") => Value::Null,
        Err(error) => {
            return differences.push(format!("body is not JSON: {error}: {}", short_line(&answer.text())));
        }
    };
    for (form, expect) in forms.iter() {
        match form {
            "any" => {}
            "exact" if *expect == body => {}
            "exact" => push_difference("", expect, &body, differences),
            "shape" => compare_values("", expect, &body, Strictness::Whole, differences),
            "contains" => compare_values("", expect, &body, Strictness::Part, differences),
            "error" => compare_error(expect, &body, differences),
            "count" => compare_counts(expect, &body, differences),
            "first_documents" => compare_first_documents(expect, &body, differences),
            "key_order" => compare_member_order("", expect, &body, differences),
            "doc_key_order" => compare_member_order_of_documents(expect, &body, differences),
            "text_contains" => compare_text(expect, &answer.text(), differences),
            "etag_header_equals_body" => {
                let etag = answer.header("etag").map(Value::from).unwrap_or(Value::Null);
                compare_values(
                    " etag header",
                    body.get("_etag").unwrap_or(&Value::Null),
                    &etag,
                    Strictness::Whole,
                    differences,
                );
            }
            "etag_differs_from" => {
                if body.get("_etag") == Some(expect) {
                    differences.push(format!("the etag is still {}", short_json(expect)));
                }
            }
            "etag_ts_hex" => compare_etag_time(&body, differences),
            _ => differences.push(format!("the runner does not know the body form {form}")),
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Strictness {
    /// Objects have exactly these members (unless `*` permits others), arrays
    /// exactly these items.
    Whole,
    /// Objects have at least these members, arrays at least these items, in any order.
    Part,
}

/// Compares a value with an expectation that may hold matchers. `at` is the path of the
/// value in the body.
fn compare_values(
    at: &str,
    expect: &Value,
    actual: &Value,
    strictness: Strictness,
    differences: &mut Vec<String>,
) {
    match (expect, actual) {
        (Value::String(matcher), _) if is_matcher(matcher) => {
            if !satisfies_matcher(matcher, actual) {
                push_difference(at, expect, actual, differences);
            }
        }
        (Value::Object(expect), Value::Object(actual)) => {
            compare_objects(at, expect, actual, strictness, differences);
        }
        (Value::Array(expect), Value::Array(actual)) if strictness == Strictness::Part => {
            for item in expect {
                let is_match = |actual: &Value| {
                    let mut differences = Vec::new();
                    compare_values("", item, actual, strictness, &mut differences);
                    differences.is_empty()
                };
                if !actual.iter().any(is_match) {
                    differences.push(format!("{at} has no item like {}", short_json(item)));
                }
            }
        }
        (Value::Array(items), Value::Array(actual_items)) if items.len() == actual_items.len() => {
            for (index, (item, actual_item)) in items.iter().zip(actual_items).enumerate() {
                compare_values(&format!("{at}[{index}]"), item, actual_item, strictness, differences);
            }
        }
        _ if expect == actual => {}
        _ => push_difference(at, expect, actual, differences),
    }
}

fn compare_objects(
    at: &str,
    expect: &Object,
    actual: &Object,
    strictness: Strictness,
    differences: &mut Vec<String>,
) {
    for (name, member) in expect.iter().filter(|(name, _)| *name != "*") {
        match actual.get(name) {
            Some(actual) => compare_values(&format!("{at}.{name}"), member, actual, strictness, differences),
            None => differences.push(format!("{at}.{name} is missing")),
        }
    }
    if strictness == Strictness::Whole && !expect.contains("*") {
        for (name, member) in actual.iter().filter(|(name, _)| !expect.contains(name)) {
            differences.push(format!("{at}.{name} is not expected: {}", short_json(member)));
        }
    }
}

fn is_matcher(text: &str) -> bool {
    text == "any" || text.starts_with("re:") || text.starts_with("type:")
}

fn satisfies_matcher(matcher: &str, actual: &Value) -> bool {
    match (matcher.split_once(':'), actual) {
        (None, _) => true,
        (Some(("re", pattern)), Value::String(text)) => matches_pattern(pattern, text),
        (Some(("type", "int")), actual) => match actual {
            Value::Number(number) => !matches!(number, json::Number::Double(_)),
            _ => false,
        },
        (Some(("type", "number")), actual) => matches!(actual, Value::Number(_)),
        (Some(("type", "string")), actual) => matches!(actual, Value::String(_)),
        (Some(_), _) => false,
    }
}

fn matches_pattern(pattern: &str, text: &str) -> bool {
    Regex::new(pattern).is_ok_and(|regex| regex.is_match(text))
}

fn compare_error(expect: &Value, body: &Value, differences: &mut Vec<String>) {
    let known =
        ["code", "message_contains", "embedded_errors", "additionalErrorInfo_json", "additionalErrorInfo"];
    if let Err(error) = refuse_unknown_members(expect, &known) {
        return differences.push(error);
    }
    let message = body.get("message").and_then(Value::as_str).unwrap_or_default();
    for (form, expect) in expect.as_object().into_iter().flat_map(Object::iter) {
        match form {
            "code" => compare_values(
                ".code",
                expect,
                body.get("code").unwrap_or(&Value::Null),
                Strictness::Whole,
                differences,
            ),
            "message_contains" => compare_text(expect, message, differences),
            "embedded_errors" => {
                let errors = embedded_errors(message).unwrap_or(Value::Null);
                compare_values(".message errors", expect, &errors, Strictness::Whole, differences);
            }
            "additionalErrorInfo_json" => {
                let info = body.get("additionalErrorInfo").and_then(Value::as_str);
                let info = info.and_then(|text| json::parse_str(text).ok()).unwrap_or(Value::Null);
                compare_values(".additionalErrorInfo", expect, &info, Strictness::Whole, differences);
            }
            // The form `additionalErrorInfo` has one value, `absent`.
            _ => {
                if body.get("additionalErrorInfo").is_some() {
                    differences.push("additionalErrorInfo is not expected".to_owned());
                }
            }
        }
    }
}

/// The list in `Message: {"errors":[...]}\r\nActivityId: ...`.
fn embedded_errors(message: &str) -> Option<Value> {
    let text = message.strip_prefix("Message: ")?;
    let text = text.split("\r\n").next()?;
    json::parse_str(text).ok()?.get("errors").cloned()
}

fn compare_counts(expect: &Value, body: &Value, differences: &mut Vec<String>) {
    let Some(counts) = expect.as_object() else {
        return differences.push(format!("the expected counts are not an object: {}", short_json(expect)));
    };
    for (name, count) in counts.iter() {
        let actual = match body.get(name) {
            Some(Value::Array(items)) => Value::from(items.len() as u64),
            Some(value) => value.clone(),
            None => Value::Null,
        };
        compare_values(&format!(" count of {name}"), count, &actual, Strictness::Whole, differences);
    }
}

fn compare_first_documents(expect: &Value, body: &Value, differences: &mut Vec<String>) {
    let (Some(expect), Some(documents)) =
        (expect.as_array(), body.get("Documents").and_then(Value::as_array))
    else {
        return differences.push("no Documents".to_owned());
    };
    for (index, expect) in expect.iter().enumerate() {
        let at = format!(".Documents[{index}]");
        compare_values(
            &at,
            expect,
            documents.get(index).unwrap_or(&Value::Null),
            Strictness::Whole,
            differences,
        );
    }
}

fn compare_member_order(at: &str, expect: &Value, actual: &Value, differences: &mut Vec<String>) {
    let names: Vec<Value> = match actual.as_object() {
        Some(object) => object.iter().map(|(name, _)| Value::from(name)).collect(),
        None => Vec::new(),
    };
    if *expect != Value::Array(names.clone()) {
        differences.push(format!(
            "{at} order {}, not {}",
            short_json(&Value::Array(names)),
            short_json(expect)
        ));
    }
}

fn compare_member_order_of_documents(expect: &Value, body: &Value, differences: &mut Vec<String>) {
    let Some(orders) = expect.as_array() else {
        return differences.push(format!("the expected orders are not an array: {}", short_json(expect)));
    };
    let documents = body.get("Documents").and_then(Value::as_array).unwrap_or_default();
    for (index, order) in orders.iter().enumerate() {
        let document = documents.get(index).unwrap_or(&Value::Null);
        compare_member_order(&format!(".Documents[{index}]"), order, document, differences);
    }
}

fn compare_text(expect: &Value, text: &str, differences: &mut Vec<String>) {
    let parts: Option<Vec<&str>> =
        expect.as_array().and_then(|parts| parts.iter().map(Value::as_str).collect());
    let Some(parts) = parts else {
        return differences
            .push(format!("the expected texts are not an array of texts: {}", short_json(expect)));
    };
    for part in parts {
        if !text.contains(part) {
            differences.push(format!("text {} lacks {}", short_line(text), short_line(part)));
        }
    }
}

/// Checks that the last group of the etag is the document's time (`_ts`) in hexadecimal,
/// followed by four zeros.
fn compare_etag_time(body: &Value, differences: &mut Vec<String>) {
    let time = body.get("_ts").and_then(Value::as_i64).unwrap_or_default();
    let etag = body.get("_etag").and_then(Value::as_str).unwrap_or_default();
    let group = etag.trim_matches('"').rsplit('-').next().unwrap_or_default();
    if group != format!("{time:08x}0000") {
        differences.push(format!("the etag {etag} does not end with the time {time:x}"));
    }
}

fn push_difference(at: &str, expect: &Value, actual: &Value, differences: &mut Vec<String>) {
    differences.push(format!("body{at} {}, not {}", short_json(actual), short_json(expect)));
}

fn short_json(value: &Value) -> String {
    short_line(&json::to_text(value, Style::Point))
}

/// The text as one line, shortened.
fn short_line(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match line.char_indices().nth(SHOWN_CHARACTERS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http::{HeaderMap, HeaderValue};

    const ETAG: &str = "\"6201c25e-0000-0100-0000-6ac9ff4d0000\"";

    fn answer(body: &str) -> HttpResponse {
        let mut headers = HeaderMap::new();
        headers.insert("etag", HeaderValue::from_static(ETAG));
        headers.insert("x-ms-substatus", HeaderValue::from_static("1001"));
        HttpResponse { status: 200, headers, body: Bytes::copy_from_slice(body.as_bytes()) }
    }

    /// Compares a body with its forms and expects these differences, in order.
    fn check(forms: &str, body: &str, expected: &[&str]) {
        let Value::Object(forms) = json::parse_str(forms).unwrap() else { panic!("{forms}") };
        let expect = Expect { status: 200, substatus: None, headers: Vec::new(), body: forms };
        assert_eq!(differences(&expect, &Variables::default(), &answer(body)), expected, "{body}");
    }

    #[test]
    fn a_shape_has_exactly_its_members_and_may_hold_matchers() {
        let forms = r#"{"shape":{"id":"a","n":"type:int","r":"re:^x+$","o":{"*":"any"},"l":[1,"any"]}}"#;
        check(forms, r#"{"l":[1,null],"o":{"z":1},"r":"xx","n":3,"id":"a"}"#, &[]);
        check(
            forms,
            r#"{"id":"b","n":3.5,"r":"y","o":[],"l":[1],"more":1}"#,
            &[
                "body.id \"b\", not \"a\"",
                "body.n 3.5, not \"type:int\"",
                "body.r \"y\", not \"re:^x+$\"",
                "body.o [], not {\"*\":\"any\"}",
                "body.l [1], not [1,\"any\"]",
                ".more is not expected: 1",
            ],
        );
        check(r#"{"shape":{"a":{"b":1}}}"#, r#"{"a":{}}"#, &[".a.b is missing"]);
    }

    #[test]
    fn integers_are_compared_without_loss() {
        check(r#"{"shape":{"n":9007199254740993}}"#, r#"{"n":9007199254740993}"#, &[]);
        check(
            r#"{"shape":{"n":9007199254740993}}"#,
            r#"{"n":9007199254740992}"#,
            &["body.n 9007199254740992, not 9007199254740993"],
        );
        check(r#"{"shape":{"n":1.8446744073709552e+19}}"#, r#"{"n":1.8446744073709552e+019}"#, &[]);
    }

    #[test]
    fn contained_items_are_found_among_others() {
        let forms = r#"{"contains":{"Offers":[{"id":"b"}]}}"#;
        check(forms, r#"{"_rid":"","Offers":[{"id":"a"},{"id":"b","n":1}]}"#, &[]);
        check(forms, r#"{"Offers":[{"id":"a"}]}"#, &[".Offers has no item like {\"id\":\"b\"}"]);
    }

    #[test]
    fn the_order_of_members_is_compared_and_so_are_counts_texts_and_etags() {
        check(r#"{"key_order":["a","b"]}"#, r#"{"a":1,"b":2}"#, &[]);
        check(r#"{"key_order":["a","b"]}"#, r#"{"b":1,"a":2}"#, &[" order [\"b\",\"a\"], not [\"a\",\"b\"]"]);
        check(
            r#"{"doc_key_order":[["a"]],"count":{"Documents":1,"_count":2},"first_documents":[{"a":1}]}"#,
            r#"{"Documents":[{"a":1}],"_count":2}"#,
            &[],
        );
        check(r#"{"count":{"Documents":2}}"#, r#"{"Documents":[1]}"#, &["body count of Documents 1, not 2"]);
        check(
            r#"{"first_documents":[{"a":1}]}"#,
            r#"{"Documents":[]}"#,
            &["body.Documents[0] null, not {\"a\":1}"],
        );
        check(r#"{"text_contains":["\"n\":1"]}"#, r#"{"n": 1}"#, &["text {\"n\": 1} lacks \"n\":1"]);
        let timed =
            format!(r#"{{"_etag":{},"_ts":1791622989}}"#, json::to_text(&Value::from(ETAG), Style::Point));
        check(r#"{"etag_ts_hex":true,"etag_header_equals_body":true,"etag_differs_from":"x"}"#, &timed, &[]);
        check(
            r#"{"etag_header_equals_body":true}"#,
            r#"{"_etag":"x"}"#,
            &["body etag header \"\\\"6201c25e-0000-0100-0000-6ac9ff4d0000\\\"\", not \"x\""],
        );
        check(r#"{"etag_differs_from":"x"}"#, r#"{"_etag":"x"}"#, &["the etag is still \"x\""]);
    }

    #[test]
    fn errors_are_compared_with_their_embedded_list() {
        let forms = r#"{"error":{"code":"BadRequest","message_contains":["near"],
            "embedded_errors":[{"code":"SC1001"}],"additionalErrorInfo_json":{"v":2}}}"#;
        let body = r#"{"code":"BadRequest","message":"Message: {\"errors\":[{\"code\":\"SC1001\"}]}\r\nActivityId: 1, near","additionalErrorInfo":"{\"v\":2}"}"#;
        check(forms, body, &[]);
        check(
            forms,
            r#"{"code":"Conflict","message":"no"}"#,
            &[
                "body.code \"Conflict\", not \"BadRequest\"",
                "text no lacks near",
                "body.message errors null, not [{\"code\":\"SC1001\"}]",
                "body.additionalErrorInfo null, not {\"v\":2}",
            ],
        );
        check(
            r#"{"error":{"additionalErrorInfo":"absent"}}"#,
            r#"{"additionalErrorInfo":"{}"}"#,
            &["additionalErrorInfo is not expected"],
        );
    }

    #[test]
    fn status_and_headers_are_compared() {
        let expect = Expect {
            status: 201,
            substatus: Some(1002),
            headers: vec![
                ("etag".to_owned(), "re:^\"[0-9a-f]{8}-".to_owned()),
                ("x-ms-substatus".to_owned(), "absent".to_owned()),
                ("lsn".to_owned(), "present".to_owned()),
            ],
            body: Object::new(),
        };
        assert_eq!(
            differences(&expect, &Variables::default(), &answer("{}")),
            [
                "status 200, not 201: {}",
                "x-ms-substatus 1001, not 1002",
                "x-ms-substatus 1001, not absent",
                "lsn absent, not present",
            ]
        );
    }

    #[test]
    fn unknown_forms_and_invalid_bodies_are_differences() {
        check(r#"{"unordered":true}"#, "{}", &["the runner does not know the body form unordered"]);
        check(r#"{"shape":{}}"#, "{", &["body is not JSON: expected a member name at byte 1: {"]);
        check(r#"{"empty":true}"#, "x", &["body x, not empty"]);
        check(r#"{"empty":true}"#, "", &[]);
        check(r#"{"any":true}"#, "not JSON", &[]);
    }

    #[test]
    fn expectations_of_the_wrong_type_are_differences() {
        for (forms, difference) in [
            (r#"{"count":2}"#, "the expected counts are not an object: 2"),
            (r#"{"doc_key_order":{"a":1}}"#, "the expected orders are not an array: {\"a\":1}"),
            (r#"{"text_contains":"x"}"#, "the expected texts are not an array of texts: \"x\""),
            (r#"{"text_contains":[1]}"#, "the expected texts are not an array of texts: [1]"),
            (r#"{"error":{"message_contains":"x"}}"#, "the expected texts are not an array of texts: \"x\""),
        ] {
            check(forms, "{}", &[difference]);
        }
    }
}
