//! The errors of statements: codes, locations and messages.

use crate::support::{Failure, check_refused, json, run};
use perihelion_query::{ConditionError, EvaluationError, Parameters, PatchCondition, evaluate_condition};

#[test]
fn syntax_errors_name_the_token() {
    check_refused("INSERT INTO c VALUES (1)", "SC1001 0..6 Syntax error, incorrect syntax near 'INSERT'.");
    check_refused("DELETE FROM c", "SC1001 0..6 Syntax error, incorrect syntax near 'DELETE'.");
    check_refused("SELECT c.id FROM c;", "SC1010 18..19 Syntax error, invalid token ';'.");
    check_refused("SELECT 1 AS a; SELECT 2 AS b", "SC1010 13..14 Syntax error, invalid token ';'.");
    check_refused("SELECT 1 AS a /* comment */", "SC1001 14..15 Syntax error, incorrect syntax near '/'.");
    check_refused("", "SC1002 0..0 Syntax error, unexpected end-of-file.");
    check_refused("SELECT * FROM c WHERE", "SC1002 21..21 Syntax error, unexpected end-of-file.");
    check_refused(
        "SELECT c.id as value FROM c",
        "SC1001 15..20 Syntax error, incorrect syntax near 'value'.",
    );
    check_refused("SELECT 'é' FROM c;", "SC1010 17..18 Syntax error, invalid token ';'.");
    check_refused("SELECT c.order FROM c", "SC1001 9..14 Syntax error, incorrect syntax near 'order'.");
    check_refused("SELECT * FROM social-data a", "SC1001 20..21 Syntax error, incorrect syntax near '-'.");
    check_refused("SELECT * FROM c WHERE c.a == 1", "SC1001 27..28 Syntax error, incorrect syntax near '='.");
}

#[test]
fn semantic_errors_name_the_expression() {
    check_refused(
        "SELECT ABC(1) AS x FROM c",
        "SC2005 7..10 'ABC' is not a recognized built-in function name.",
    );
    check_refused("SELECT x.id FROM c", "SC2001 7..8 Identifier 'x' could not be resolved.");
    check_refused("SELECT c.id FROM c JOIN t IN x.y", "SC2001 29..30 Identifier 'x' could not be resolved.");
    check_refused(
        "SELECT Families.id FROM Families f",
        "SC2001 7..15 Identifier 'Families' could not be resolved.",
    );
    check_refused(
        "SELECT VALUE EXISTS (SELECT 1 FROM root c)",
        "SC2001 35..39 Identifier 'root' could not be resolved.",
    );
    check_refused(
        "SELECT VALUE c FROM c ORDER BY _score",
        "SC2001 31..37 Identifier '_score' could not be resolved.",
    );
    check_refused(
        "SELECT VALUE LENGTH() FROM c",
        "SC2050 13..21 The LENGTH function requires 1 argument(s).",
    );
    check_refused(
        "SELECT VALUE MAX(MIN(r)) From r",
        "SC2101 13..24 Cannot perform an aggregate function on an expression containing an aggregate or a subquery.",
    );
    check_refused(
        "SELECT COUNT(1), c.id FROM c",
        "SC2102 17..21 Property reference 'c.id' is invalid in the select list because it is not contained in \
         either an aggregate function or the GROUP BY clause.",
    );
    for (query, code) in [
        ("SELECT 1 AS a, 2 AS a", "SC2022"),
        ("SELECT c.a, c.b.a FROM c", "SC2022"),
        ("SELECT * FROM c GROUP BY c.a", "SC2041"),
        ("SELECT * FROM c JOIN t IN c.x", "SC2040"),
        ("SELECT *", "SC2039"),
        ("SELECT c FROM c JOIN c IN c.x", "SC2011"),
    ] {
        match run(query, "[]", &[]) {
            Err(Failure::Invalid(diagnostics)) => assert_eq!(diagnostics[0].code, code, "{query}"),
            other => panic!("{query}: {other:?}"),
        }
    }
}

#[test]
fn counts_must_be_non_negative_integers_in_range() {
    check_refused("SELECT TOP -1 * FROM c", "SC1001 11..12 Syntax error, incorrect syntax near '-'.");
    check_refused(
        "SELECT TOP 1.5 * FROM c",
        "SC2060 11..14 The count value provided for a TOP clause must be an integer.",
    );
    check_refused(
        "SELECT * FROM c OFFSET 4294967296 LIMIT 1",
        "SC2062 23..33 The OFFSET count value exceeds the maximum allowed value.",
    );
    check_refused(
        "SELECT * FROM c OFFSET 1 LIMIT 4294967296",
        "SC2061 31..41 The LIMIT count value exceeds the maximum allowed value.",
    );
}

#[test]
fn malformed_parameter_lists_are_refused() {
    let refused = |list: &str| Parameters::from_json(json(list)).expect_err(list).to_string();
    assert_eq!(
        refused(r#"[{"name":"p","value":1}]"#),
        "Invalid query. Specified parameter name 'p' is invalid. Parameter names should be in the format of symbol \
         '@' followed by a valid identifier. E.g. @param1"
    );
    assert_eq!(
        refused(r#"[{"name":"@p","value":1},{"name":"@p","value":2}]"#),
        "Invalid query. Specified duplicate parameter name '@p'."
    );
    for list in [r#"{"a":1}"#, r#"["@p"]"#, r#"[{"value":1}]"#, r#"[{"name":1}]"#] {
        assert!(Parameters::from_json(json(list)).is_err(), "{list}");
    }
    // The last of the 40 names is the first one again.
    let many: Vec<String> = (0..40).map(|n| format!(r#"{{"name":"@p{}"}}"#, n % 39)).collect();
    assert!(refused(&format!("[{}]", many.join(","))).contains("duplicate parameter name '@p0'"));
    assert!(Parameters::from_json(json("null")).expect("absent").is_empty());
}

#[test]
fn a_patch_condition_is_a_statement_without_projection() {
    let document = json(r#"{"id":"a","x":1}"#);
    let now = crate::support::now();
    assert_eq!(evaluate_condition("from c where c.x = 1", &document, now), Ok(true));
    assert_eq!(evaluate_condition("FROM c WHERE c.x > 1", &document, now), Ok(false));
    match evaluate_condition("from c where d.x = 1", &document, now) {
        Err(ConditionError::Invalid(diagnostics)) => {
            assert_eq!((diagnostics[0].code, diagnostics[0].start, diagnostics[0].end), ("SC2001", 13, 14));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn conditions_share_a_bound_of_work_and_are_refused_beyond_it() {
    let items = vec!["1"; 100].join(",");
    let document = json(&format!(r#"{{"id":"a","x":1,"items":[{items}]}}"#));
    let compile = |text: &str| PatchCondition::compile(text, crate::support::now()).expect("it compiles");
    let mut work_left = 1_000;
    assert_eq!(compile("from c where c.x = 1").matches_within(&document, &mut work_left), Ok(true));
    assert!((900..1_000).contains(&work_left), "{work_left}");
    // The join visits 10,000 rows.
    let join =
        compile("from c where exists(select value 1 from a in c.items join b in c.items where a + b = 3)");
    assert_eq!(join.matches(&document), Ok(false));
    assert_eq!(join.matches_within(&document, &mut work_left), Err(EvaluationError::TooMuchWork));
    // The work of a refused evaluation is taken from the bound too.
    assert!(work_left < 100, "{work_left}");
    let mut enough = 1_000_000;
    assert_eq!(join.matches_within(&document, &mut enough), Ok(false));
    let mut none = 0;
    let plain = compile("from c where c.x = 1");
    assert_eq!(plain.matches_within(&document, &mut none), Err(EvaluationError::TooMuchWork));
}
