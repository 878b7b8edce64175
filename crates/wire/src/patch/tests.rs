//! The effect of each patch operation on a document, and the patches that are refused.

use super::*;
use perihelion_model::json::{Style, parse_str, to_text};

/// Applies the operations to the document. The expected text is the patched
/// document, or "400 " and the error message.
fn check(document: &str, operations: &str, expect: &str) {
    let Value::Object(mut object) = parse_str(document).unwrap() else { panic!("{document}") };
    let outcome = Patch::parse(&parse_str(operations).unwrap()).and_then(|patch| patch.apply(&mut object));
    let text = match outcome {
        Ok(()) => to_text(&Value::Object(object), Style::Point),
        Err(error) => format!("400 {error}"),
    };
    assert_eq!(text, expect, "{operations} on {document}");
}

#[test]
fn the_documented_example_gives_the_documented_result() {
    check(
        r#"{"id":"e","name":"R-410","price":455.95,"inventory":{"quantity":15},"used":false,"categoryId":"road","tags":["r-series"]}"#,
        r#"[{"op":"add","path":"/color","value":"silver"},{"op":"remove","path":"/used"},
            {"op":"set","path":"/price","value":355.45},{"op":"incr","path":"/inventory/quantity","value":10},
            {"op":"add","path":"/tags/-","value":"featured"},{"op":"move","from":"/color","path":"/inventory/color"}]"#,
        r#"{"id":"e","name":"R-410","price":355.45,"inventory":{"quantity":25,"color":"silver"},"categoryId":"road","tags":["r-series","featured"]}"#,
    );
}

#[test]
fn added_members_are_inserted_before_the_time_stamp() {
    check(
        r#"{"id":"d1","n":5,"_rid":"r","_self":"s","_etag":"e","_attachments":"a","_ts":1}"#,
        r#"{"operations":[{"op":"set","path":"/n","value":7},{"op":"incr","path":"/n","value":3},{"op":"add","path":"/new","value":"v"}]}"#,
        r#"{"id":"d1","n":10,"_rid":"r","_self":"s","_etag":"e","_attachments":"a","new":"v","_ts":1}"#,
    );
}

#[test]
fn add_inserts_an_array_element_and_set_replaces_an_array_element() {
    let array = r#"{"a":[1,2]}"#;
    check(array, r#"[{"op":"add","path":"/a/0","value":9}]"#, r#"{"a":[9,1,2]}"#);
    check(array, r#"[{"op":"add","path":"/a/2","value":9}]"#, r#"{"a":[1,2,9]}"#);
    check(array, r#"[{"op":"add","path":"/a/-","value":9}]"#, r#"{"a":[1,2,9]}"#);
    check(array, r#"[{"op":"set","path":"/a/0","value":9}]"#, r#"{"a":[9,2]}"#);
    check(array, r#"[{"op":"set","path":"/a/-","value":9}]"#, r#"{"a":[1,2,9]}"#);
    check(array, r#"[{"op":"replace","path":"/a/1","value":9}]"#, r#"{"a":[1,9]}"#);
    check(array, r#"[{"op":"remove","path":"/a/0"}]"#, r#"{"a":[2]}"#);
    check(array, r#"[{"op":"incr","path":"/a/1","value":5}]"#, r#"{"a":[1,7]}"#);
    let out_of_bounds =
        |token: &str| format!("400 For Operation(1): Index({token}) to operate on is out of array bounds.");
    check(array, r#"[{"op":"add","path":"/a/3","value":9}]"#, &out_of_bounds("3"));
    check(array, r#"[{"op":"add","path":"/a/01","value":9}]"#, &out_of_bounds("01"));
    check(array, r#"[{"op":"add","path":"/a/x","value":9}]"#, &out_of_bounds("x"));
    check(
        array,
        r#"[{"op":"add","path":"/a/99999999999999999999","value":9}]"#,
        &out_of_bounds("99999999999999999999"),
    );
    check(array, r#"[{"op":"set","path":"/a/2","value":9}]"#, &out_of_bounds("2"));
    check(array, r#"[{"op":"replace","path":"/a/2","value":9}]"#, &out_of_bounds("2"));
    check(array, r#"[{"op":"remove","path":"/a/-"}]"#, &out_of_bounds("-"));
}

#[test]
fn only_the_leaf_may_be_missing() {
    check(r#"{"o":{}}"#, r#"[{"op":"set","path":"/o/x","value":1}]"#, r#"{"o":{"x":1}}"#);
    check(r#"{"o":{}}"#, r#"[{"op":"add","path":"/o/x","value":null}]"#, r#"{"o":{"x":null}}"#);
    check(r#"{"o":{"x":1}}"#, r#"[{"op":"add","path":"/o/x","value":2}]"#, r#"{"o":{"x":2}}"#);
    let tail = "Operation can only create a child object of an existing node(array or object) and cannot \
                create path recursively, no path found beyond:";
    let no_parent = |word: &str, beyond: &str| format!("400 For Operation(1): {word} {tail} '{beyond}'.");
    check(r#"{"o":{}}"#, r#"[{"op":"add","path":"/nope/x","value":1}]"#, &no_parent("Add", "nope"));
    check(r#"{"o":1}"#, r#"[{"op":"set","path":"/o/x","value":1}]"#, &no_parent("Given", "o"));
    check(r#"{"o":{}}"#, r#"[{"op":"replace","path":"/o/x/y","value":1}]"#, &no_parent("Given", "x"));
    check(r#"{"o":{}}"#, r#"[{"op":"incr","path":"/o/x/y","value":1}]"#, &no_parent("Given", "x"));
}

#[test]
fn replace_and_remove_need_an_existing_node() {
    check(
        r#"{"a":1}"#,
        r#"[{"op":"set","path":"/a","value":2},{"op":"replace","path":"/b","value":1}]"#,
        "400 For Operation(2): Node(/b) to be replaced is absent.",
    );
    let absent = |path: &str| {
        format!(
            "400 For Operation(1): Node({path}) to be removed is absent. Note: it may also have been \
             removed earlier in the transaction."
        )
    };
    check(r#"{"a":1}"#, r#"[{"op":"remove","path":"/b"}]"#, &absent("/b"));
    check(r#"{"a":1}"#, r#"[{"op":"remove","path":"/b/c"}]"#, &absent("/b/c"));
    check(r#"{"a":1}"#, r#"[{"op":"move","from":"/b","path":"/a"}]"#, &absent("/b"));
    check(r#"{"a":1}"#, r#"[{"op":"move","from":"/b","path":"/b"}]"#, &absent("/b"));
}

#[test]
fn increments_are_exact_within_64_bit_integers_and_create_missing_members() {
    check(r#"{"_ts":1}"#, r#"[{"op":"incr","path":"/n","value":-2.5}]"#, r#"{"n":-2.5,"_ts":1}"#);
    check(
        r#"{"n":9007199254740993}"#,
        r#"[{"op":"incr","path":"/n","value":1}]"#,
        r#"{"n":9007199254740994}"#,
    );
    check(
        r#"{"n":9223372036854775807}"#,
        r#"[{"op":"incr","path":"/n","value":1}]"#,
        r#"{"n":9223372036854775808}"#,
    );
    check(
        r#"{"n":18446744073709551615}"#,
        r#"[{"op":"incr","path":"/n","value":-1}]"#,
        r#"{"n":18446744073709551614}"#,
    );
    check(
        r#"{"n":18446744073709551615}"#,
        r#"[{"op":"incr","path":"/n","value":1}]"#,
        r#"{"n":1.8446744073709552e+019}"#,
    );
    check(r#"{"n":1.5}"#, r#"[{"op":"incr","path":"/n","value":0.5}]"#, r#"{"n":2}"#);
    let not_a_number = "400 For Operation(1): Node(/n) is not a number.";
    check(r#"{"n":"5"}"#, r#"[{"op":"incr","path":"/n","value":1}]"#, not_a_number);
    check(r#"{"n":null}"#, r#"[{"op":"incr","path":"/n","value":1}]"#, not_a_number);
    check(r#"{"n":1.7e308}"#, r#"[{"op":"incr","path":"/n","value":1.7e308}]"#, not_a_number);
}

#[test]
fn a_move_removes_the_value_from_its_old_path_and_adds_it_at_the_new_path() {
    check(r#"{"a":{"x":[1]},"b":2}"#, r#"[{"op":"move","from":"/a/x","path":"/b"}]"#, r#"{"a":{},"b":[1]}"#);
    check(r#"{"a":[1,2,3]}"#, r#"[{"op":"move","from":"/a/0","path":"/a/2"}]"#, r#"{"a":[2,3,1]}"#);
    check(r#"{"a":1,"b":2}"#, r#"[{"op":"move","from":"/a","path":"/a"}]"#, r#"{"a":1,"b":2}"#);
    check(
        r#"{"a":{"b":1}}"#,
        r#"[{"op":"move","from":"/a","path":"/a/b"}]"#,
        "400 For Operation(1): The path of a move operation cannot be a child of its from path.",
    );
}

#[test]
fn paths_are_unescaped() {
    check(r#"{"a/b":{"~":1}}"#, r#"[{"op":"set","path":"/a~1b/~0","value":2}]"#, r#"{"a/b":{"~":2}}"#);
    check(r#"{"~1":1}"#, r#"[{"op":"set","path":"/~01","value":2}]"#, r#"{"~1":2}"#);
    check(r#"{"é":1}"#, r#"[{"op":"set","path":"/é","value":2}]"#, r#"{"é":2}"#);
}

#[test]
fn malformed_patches_are_refused() {
    let syntax = "400 Invalid patch request: check syntax of patch specification.";
    for body in [
        "1",
        "{}",
        "[]",
        r#"{"operations":{}}"#,
        r#"{"operations":[]}"#,
        r#"{"operations":[{"op":"remove","path":"/a"}],"condition":1}"#,
        "[1]",
        r#"[{"op":"remove"}]"#,
        r#"[{"path":"/a"}]"#,
        r#"[{"op":"remove","path":"a"}]"#,
        r#"[{"op":"remove","path":""}]"#,
        r#"[{"op":"remove","path":"/~2"}]"#,
        r#"[{"op":"remove","path":"/a~"}]"#,
        r#"[{"op":"remove","path":"/~é"}]"#,
        r#"[{"op":"add","path":"/a"}]"#,
        r#"[{"op":"incr","path":"/a","value":"1"}]"#,
        r#"[{"op":"move","path":"/a"}]"#,
        r#"[{"op":"copy","path":"/a","from":"/b"}]"#,
        r#"[{"op":"Add","path":"/a","value":1}]"#,
    ] {
        check(r#"{"a":1}"#, body, syntax);
    }
    let eleven = format!("[{}]", [r#"{"op":"set","path":"/a","value":1}"#; 11].join(","));
    check("{}", &eleven, "400 The number of patch operations cannot exceed '10'.");
    for name in SYSTEM_PROPERTIES {
        let refusal = format!("400 Invalid patch request: Cannot patch system property {name}.");
        check("{}", &format!(r#"[{{"op":"set","path":"/{name}","value":1}}]"#), &refusal);
        check("{}", &format!(r#"[{{"op":"move","from":"/{name}/x","path":"/a"}}]"#), &refusal);
    }
}

#[test]
fn a_patch_cannot_nest_a_document_too_deep() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    let deep = format!(r#"{{"a":{}}}"#, nested(DEPTH_MAX - 1));
    let bottom = format!("/a{}/-", "/0".repeat(DEPTH_MAX - 2));
    let grow = |value: &str| format!(r#"[{{"op":"add","path":"{bottom}","value":{value}}}]"#);
    let too_deep = "400 For Operation(1): The document would nest deeper than 128 levels.";
    check(&deep, &grow("[]"), too_deep);
    check(&deep, &grow("1"), &deep.replace("[]", "[1]"));
    let wide = format!(r#"{{"a":{},"b":{}}}"#, nested(2), nested(DEPTH_MAX - 2));
    check(&wide, r#"[{"op":"move","from":"/b","path":"/a/0/-"}]"#, too_deep);
}

#[test]
fn a_patch_reports_its_condition_and_the_paths_it_touches() {
    let body = r#"{"condition":"from c where c.n = 1","operations":[{"op":"set","path":"/a/b","value":1},{"op":"move","from":"/x","path":"/y"}]}"#;
    let patch = Patch::parse(&parse_str(body).unwrap()).unwrap();
    assert_eq!(patch.condition(), Some("from c where c.n = 1"));
    assert_eq!(patch.operation_count(), 2);
    for (path, touched) in [
        (vec!["a", "b"], true),
        (vec!["a"], true),
        (vec!["a", "b", "c"], true),
        (vec!["a", "c"], false),
        (vec!["x"], true),
        (vec!["y", "z"], true),
        (vec!["pk"], false),
    ] {
        assert_eq!(patch.touches(&path), touched, "{path:?}");
    }
}
