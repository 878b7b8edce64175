//! The properties of a program by which an engine plans its scan.

use perihelion_model::json::{Style, to_text};
use perihelion_query::{
    Condition, Direction, GatewayVerdict, Parameters, Program, Step, compile, evaluate_condition, parse,
};

use crate::support::{json, now};

fn program(query: &str) -> Program {
    let parameters = Parameters::from_json(json(r#"[{"name":"@now","value":10},{"name":"@t","value":"q"}]"#))
        .expect("good");
    compile(&parse(query).expect(query), &parameters, now()).expect(query)
}

#[track_caller]
fn check_conjuncts(filter: &str, expect: &[&str]) {
    let program = program(&format!("SELECT * FROM c WHERE {filter}"));
    let found: Vec<String> = program
        .conjuncts()
        .iter()
        .map(|conjunct| {
            let path: String = conjunct
                .path
                .iter()
                .map(|step| match step {
                    Step::Name(name) => format!(".{name}"),
                    Step::Item(index) => format!("[{index}]"),
                })
                .collect();
            let text = |value| to_text(value, Style::Query);
            match &conjunct.condition {
                Condition::Equal(value) => format!("{path} = {}", text(value)),
                Condition::Less(value) => format!("{path} < {}", text(value)),
                Condition::LessOrEqual(value) => format!("{path} <= {}", text(value)),
                Condition::Greater(value) => format!("{path} > {}", text(value)),
                Condition::GreaterOrEqual(value) => format!("{path} >= {}", text(value)),
                Condition::In(values) => format!("{path} in {}", text(&values.clone().into())),
            }
        })
        .collect();
    assert_eq!(found, expect, "{filter}");
}

#[test]
fn conjuncts_are_conditions_that_every_result_satisfies() {
    check_conjuncts("c.type = @t AND c.visibleAt <= @now", &[r#".type = "q""#, ".visibleAt <= 10"]);
    check_conjuncts("'q' = c.type AND 10 >= c.visibleAt", &[r#".type = "q""#, ".visibleAt <= 10"]);
    check_conjuncts("(c.a = 1 AND c.b > 2) AND c.d[0].e < 3", &[".a = 1", ".b > 2", ".d[0].e < 3"]);
    check_conjuncts("c.k IN (3, 1, 2)", &[".k in [1,2,3]"]);
    check_conjuncts("ARRAY_CONTAINS([3, 1, 3], c.k)", &[".k in [1,3]"]);
    check_conjuncts("ARRAY_CONTAINS([1], c.k, true)", &[]);
    check_conjuncts("ARRAY_CONTAINS(c.list, 1)", &[]);
    check_conjuncts("c.k BETWEEN 1 AND 5", &[".k >= 1", ".k <= 5"]);
    check_conjuncts("c.flag", &[".flag = true"]);
    check_conjuncts("c.x = 1 + 2 * 3", &[".x = 7"]);
    check_conjuncts("c.x < DateTimeToTimestamp('1970-01-01T00:00:01Z')", &[".x < 1000"]);
    check_conjuncts("c.a = 1 OR c.b = 2", &[]);
    check_conjuncts("NOT (c.a = 1)", &[]);
    check_conjuncts("c.a != 1 AND c.a NOT IN (1)", &[]);
    check_conjuncts("c.a = c.b AND c.a + 1 = 2", &[]);
    check_conjuncts("c.a = @missing", &[]);
}

#[test]
fn a_program_reports_its_clauses() {
    let ordered = program("SELECT TOP 5 c.id FROM c ORDER BY c.a.b DESC, c.list[c.i]");
    assert_eq!(ordered.top(), Some(5));
    assert_eq!(ordered.directions(), [Direction::Descending, Direction::Ascending]);
    assert_eq!(ordered.order()[0].path, Some(vec![Step::Name("a".into()), Step::Name("b".into())]));
    assert_eq!(ordered.order()[1].path, None);
    let window = program("SELECT DISTINCT VALUE c.x FROM c OFFSET 3 LIMIT 4");
    assert_eq!((window.offset(), window.limit(), window.is_distinct()), (Some(3), Some(4), true));
    assert!(program("SELECT * FROM c WHERE c.a = 1").selects_whole_document());
    assert!(program("SELECT VALUE r FROM root r").selects_whole_document());
    assert!(program("SELECT * FROM c").selects_every_document());
    for query in ["SELECT * FROM c WHERE c.a = 1", "SELECT * FROM c ORDER BY c.a", "SELECT c.a FROM c"] {
        assert!(!program(query).selects_every_document(), "{query}");
    }
    for query in [
        "SELECT c FROM c",
        "SELECT VALUE c.a FROM c",
        "SELECT VALUE c FROM c JOIN x IN c.x",
        "SELECT * FROM c.a",
    ] {
        assert!(!program(query).selects_whole_document(), "{query}");
    }
    assert!(program("SELECT 1").reads_no_document());
    assert!(!program("SELECT 1 FROM c").reads_no_document());
    let grouped = program("SELECT c.g, COUNT(1) AS n FROM c GROUP BY c.g");
    assert!(grouped.is_grouped() && grouped.has_aggregates() && grouped.has_group_by());
    assert!(!program("SELECT VALUE COUNT(1) FROM c").has_group_by());
    assert!(program("SELECT * FROM c WHERE 1 = 2").matches_nothing());
    assert!(!program("SELECT * FROM c WHERE true").matches_nothing());
    // `@missing` is not a condition on a path, so it is not among the conjuncts.
    assert_eq!(program("SELECT * FROM c WHERE c.x = 1 AND @missing").conjuncts().len(), 1);
}

#[test]
fn only_the_first_stage_narrows_the_scan() {
    let staged = program(
        "SELECT * FROM (SELECT DISTINCT c.a, c.b FROM c WHERE c.type = @t) AS x WHERE x.a = 1 ORDER BY x.b",
    );
    assert!(staged.conjuncts().is_empty() && staged.order()[0].path.is_none());
    assert!(!staged.selects_whole_document() && !staged.reads_no_document());
    let inner = staged.inner().expect("a stage");
    assert!(inner.is_distinct() && inner.inner().is_none());
    assert_eq!(inner.conjuncts(), program("SELECT * FROM c WHERE c.type = @t").conjuncts());
    assert_eq!(staged.innermost().conjuncts(), inner.conjuncts());
    assert!(program("SELECT * FROM (SELECT VALUE c.a FROM c) AS x").inner().is_none());
    assert!(program("SELECT * FROM (SELECT VALUE 1)").reads_no_document());
}

#[test]
fn a_patch_condition_with_an_inner_stage_reads_one_document() {
    for (condition, expected) in [
        ("FROM (SELECT DISTINCT c.a FROM c) x WHERE x.a = 1", true),
        ("FROM (SELECT DISTINCT c.a FROM c) x WHERE x.a = 2", false),
        ("FROM (SELECT COUNT(1) AS n FROM c WHERE c.a > 1) x WHERE x.n = 0", true),
    ] {
        assert_eq!(evaluate_condition(condition, &json(r#"{"a":1}"#), now()), Ok(expected), "{condition}");
    }
}

#[test]
fn a_program_of_whole_documents_returns_their_sort_keys() {
    let program = program("SELECT * FROM c WHERE c.a > 1 ORDER BY c.b");
    assert_eq!(program.document_keys(&json(r#"{"a":2,"b":7}"#)), Ok(Some(vec![Some(7_i64.into())])));
    assert_eq!(program.document_keys(&json(r#"{"a":2}"#)), Ok(Some(vec![None])));
    assert_eq!(program.document_keys(&json(r#"{"a":1}"#)), Ok(None));
    assert_eq!(program.matches(&json(r#"{"a":2}"#)), Ok(true));
    assert_eq!(program.matches(&json(r#"{"a":1}"#)), Ok(false));
}

#[test]
fn the_verdict_of_the_gateway_is_as_recorded() {
    for (query, verdict) in [
        ("SELECT * FROM c", GatewayVerdict::Served),
        ("SELECT t FROM c JOIN t IN c.arr WHERE c.id LIKE 'a%'", GatewayVerdict::Served),
        ("SELECT c.id, (SELECT VALUE COUNT(1) FROM t IN c.arr) AS n FROM c", GatewayVerdict::Served),
        ("SELECT 1 AS x", GatewayVerdict::Served),
        ("SELECT VALUE COUNT(1) FROM c", GatewayVerdict::NeedsPlan),
        ("SELECT TOP 2 c.id FROM c ORDER BY c.id", GatewayVerdict::NeedsPlan),
        ("SELECT c.id FROM c ORDER BY c.id OFFSET 1 LIMIT 2", GatewayVerdict::NeedsPlan),
        ("SELECT DISTINCT c.grp FROM c", GatewayVerdict::NeedsPlan),
        ("SELECT c.id FROM c ORDER BY c.pk, c.id", GatewayVerdict::NeedsPlan),
        ("SELECT * FROM (SELECT VALUE c.x FROM c)", GatewayVerdict::Served),
        ("SELECT * FROM (SELECT DISTINCT VALUE c.x FROM c)", GatewayVerdict::NeedsPlan),
        ("SELECT x.n FROM (SELECT COUNT(1) AS n FROM c GROUP BY c.g) AS x", GatewayVerdict::NeedsPlan),
        ("SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.x FROM c)", GatewayVerdict::NeedsPlan),
        ("SELECT COUNT(1) AS n FROM c", GatewayVerdict::AggregateNotValue),
        ("SELECT c.pk, COUNT(1) AS n FROM c GROUP BY c.pk", GatewayVerdict::AggregateNotValue),
    ] {
        assert_eq!(program(query).gateway_verdict(), verdict, "{query}");
    }
}
