//! The parser against `parser.json`: normal forms and errors.

use crate::support::{conformance, text};
use perihelion_query::parse;

/// Cases of the file whose normal form differs from ours, with the reason.
const EXCEPTIONS: &[(&str, &str)] = &[
    (
        "Double quoted string literals with escape seqence",
        "the printer that wrote the file escapes an escape twice (\\b becomes \\\\b); ours keeps the value",
    ),
    (
        "Double quoted string literals special cases",
        "the printer that wrote the file escapes an escape twice",
    ),
];

/// Story of a bug: the normal form of `(-1)[0]` was `-1[0]`, which the parser refuses.
#[test]
fn a_printed_step_into_a_number_parses_to_the_same_statement() {
    for (text, normal) in [
        ("SELECT VALUE (-1)[0]", "SELECT VALUE (-1)[0]"),
        ("SELECT VALUE (1.5)[0].a", "SELECT VALUE (1.5)[0].a"),
        ("SELECT VALUE (-1).a", "SELECT VALUE (-1).a"),
        ("SELECT VALUE -(1)[0]", "SELECT VALUE (- (1)[0])"),
    ] {
        let printed = parse(text).expect(text).normal_form();
        assert_eq!(printed, normal);
        assert_eq!(parse(&printed).expect(&printed).normal_form(), normal);
    }
}

#[test]
fn every_statement_of_the_conformance_file_has_its_normal_form_or_is_refused() {
    let cases = conformance("parser.json");
    let mut failures = Vec::new();
    let mut passed = 0;
    for case in &cases {
        let query = text(case, "Query");
        let name = text(case, "Description");
        if EXCEPTIONS.iter().any(|(exception, _)| *exception == name) {
            assert!(parse(query).is_ok(), "{name} does not parse");
            continue;
        }
        let wanted = case.get("ParsedQuery").and_then(|value| value.as_str());
        let found = parse(query).ok().map(|query| query.normal_form());
        if found.as_deref() == wanted {
            passed += 1;
        } else {
            failures.push(format!("{name}: {query}\n  wanted {wanted:?}\n  found  {found:?}"));
        }
    }
    println!("parser.json: {passed} of {} pass, {} excepted", cases.len(), EXCEPTIONS.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(passed + EXCEPTIONS.len(), cases.len());
}
