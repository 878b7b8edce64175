//! Tests of fault rules: when the ranges of a request are determined.

use std::cell::Cell;

use perihelion_model::json::parse_str;

use super::*;

fn rules(texts: &[&str]) -> FaultRules {
    let rules = FaultRules::default();
    for text in texts {
        let Ok(Value::Object(body)) = parse_str(text) else { panic!("{text}") };
        rules.add(&body, &RegionNames::default()).unwrap_or_else(|refusal| panic!("{}", refusal.message));
    }
    rules
}

/// Picks a fault for a query of the container `c` that is addressed to range 3, a child of
/// range 1. Returns whether a rule hits and how often the ranges were determined.
fn pick(rules: &FaultRules) -> (bool, u32) {
    let resource = Resource::Documents { database: "d".to_owned(), container: "c".to_owned() };
    let calls = Cell::new(0);
    let fault = rules.pick(Operation::Query, &resource, 0, || {
        calls.set(calls.get() + 1);
        vec![1, 3]
    });
    (fault.is_some(), calls.get())
}

#[test]
fn ranges_are_determined_only_if_the_rest_of_a_rule_with_a_range_matches() {
    assert_eq!(pick(&rules(&[])), (false, 0));
    assert_eq!(pick(&rules(&[r#"{"operation":"batch"}"#, r#"{"container":"c"}"#])), (true, 0));
    let other_requests = [
        r#"{"range":"3","operation":"batch"}"#,
        r#"{"range":"3","container":"e"}"#,
        r#"{"range":"3","database":"e"}"#,
        r#"{"range":"3","count":0}"#,
    ];
    assert_eq!(pick(&rules(&other_requests)), (false, 0));
    assert_eq!(pick(&rules(&[r#"{"container":"c"}"#, r#"{"range":"3"}"#])), (true, 0));
}

#[test]
fn ranges_are_determined_once_for_all_rules() {
    assert_eq!(pick(&rules(&[r#"{"range":"0"}"#, r#"{"range":"2"}"#, r#"{"range":"3"}"#])), (true, 1));
    assert_eq!(pick(&rules(&[r#"{"range":"0"}"#, r#"{"range":"2"}"#])), (false, 1));
    assert_eq!(pick(&rules(&[r#"{"range":1}"#])), (true, 1), "the rule of the parent");
}

#[test]
fn a_request_to_another_range_is_not_counted_as_a_hit() {
    let rules = rules(&[r#"{"range":"2","count":1}"#]);
    assert_eq!(pick(&rules), (false, 1));
    let report = parse_str(r#"{"faults":[{"id":1,"operation":"any","hits":0,"left":1}]}"#);
    assert_eq!(rules.report(), report.unwrap());
}
