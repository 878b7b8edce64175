//! The results of statements, with tables of small cases.

use crate::support::{Failure, check, check_all, check_refused, check_value, json, run};
use perihelion_query::EvaluationError;

#[test]
fn projections_keep_the_order_of_members_and_drop_undefined_values() {
    let document = r#"{"id":"ord1","zeta":1,"alpha":2,"nu":null,"obj":{"a":{"b":1}},"arr":[1,"a",null,[2]]}"#;
    check("SELECT c.alpha, c.nu, c.nope, c.zeta FROM c", document, r#"[{"alpha":2,"nu":null,"zeta":1}]"#);
    check("SELECT VALUE c.alpha FROM c", document, "[2]");
    check("SELECT VALUE c.nope FROM c", document, "[]");
    check("SELECT VALUE [c.alpha, c.nope, c.nu] FROM c", document, "[[2,null]]");
    check(r#"SELECT VALUE {"z": c.zeta, "a": c.alpha, "n": c.nope} FROM c"#, document, r#"[{"z":1,"a":2}]"#);
    check("SELECT c.obj.a.b AS ab, c['obj']['a'] FROM c", document, r#"[{"ab":1,"a":{"b":1}}]"#);
    check("SELECT c.arr[1], c.arr[9], c.arr[0] + 1 FROM c", document, r#"[{"$1":"a","$3":2}]"#);
    check("SELECT c FROM c WHERE c.id = 'ord1'", document, &format!(r#"[{{"c":{document}}}]"#));
    check("SELECT * FROM c", document, &format!("[{document}]"));
    check("SELECT * FROM c.obj.a", document, r#"[{"b":1}]"#);
    check("SELECT VALUE a.b FROM c.obj.a", document, "[1]");
    check("SELECT * FROM c.nope", document, "[]");
    check("SELECT VALUE x FROM x IN c.arr", document, r#"[1,"a",null,[2]]"#);
}

#[test]
fn constants_need_no_document() {
    check_all(
        "SELECT 1 AS x, 'a' AS y, null AS z, true AS t",
        "[]",
        r#"[{"x":1,"y":"a","z":null,"t":true}]"#,
    );
    check_all("SELECT 1", "[]", r#"[{"$1":1}]"#);
    check_all(
        "SELECT 1.0 AS a, 1e2 AS b, 12345678901234567890 AS c, -0.0 AS d, 0.1 + 0.2 AS e",
        "[]",
        r#"[{"a":1,"b":100,"c":1.2345678901234567e+19,"d":0,"e":0.30000000000000004}]"#,
    );
    check_all("SELECT\n\t1 AS a -- comment\n", "[]", r#"[{"a":1}]"#);
}

#[test]
fn arithmetic_is_exact_for_integers_and_a_quotient_is_a_double() {
    check_value("9007199254740993 + 1", "9007199254740994");
    check_value("9223372036854775807 + 1", "9.2233720368547758e+18");
    check_value("-9223372036854775808", "-9223372036854775808");
    check_value("1 / 3", "0.33333333333333331");
    check_value("6 / 3", "2");
    check_value("7 % 3", "1");
    check_value("7.5 % 2", "1.5");
    check_value("2 * 3 - -1", "7");
    check_value("5 & 3", "1");
    check_value("5 | 3", "7");
    check_value("5 ^ 3", "6");
    check_value("~5", "-6");
    check_value("100 >> 2", "25");
    check_value("100 << 2", "400");
    check_value("-1 >>> 0", "4294967295");
    check_value("100 & 1000", "96");
    check_value("4294967297 | 0", "1");
    check_value("1 << 1 + 1", "4");
    check_value("+5", "5");
    check_value("1 + 'a'", "undefined");
    check_value("1 + null", "undefined");
    check_value("'a' || 'b'", r#""ab""#);
    check_value("'a' || 1", "undefined");
}

#[test]
fn numbers_that_json_cannot_represent_are_refused_in_the_output_only() {
    for expression in ["1 / 0", "-1 / 0", "0 / 0", "1 % 0", "SQRT(-1)", "LOG(0)", "[1, {'a': 1 / 0}]"] {
        let failure = run(&format!("SELECT VALUE {expression}"), "[]", &[]).expect_err(expression);
        assert_eq!(failure, Failure::Evaluation(EvaluationError::NotRepresentable), "{expression}");
    }
    check_value("1 / 0 > 5", "true");
    check_value("IS_DEFINED(1 / 0)", "true");
    assert!(EvaluationError::NotRepresentable.to_json().get("errors").is_some());
}

#[test]
fn comparison_is_type_strict() {
    check_value("1 = 1.0", "true");
    check_value("1 = '1'", "false");
    check_value("1 != '1'", "true");
    check_value("null = null", "true");
    check_value("1 != null", "true");
    check_value("undefined = undefined", "undefined");
    check_value("1 < '2'", "undefined");
    check_value("null < 1", "undefined");
    check_value("false < true", "true");
    check_value("'a' < 'b'", "true");
    check_value("'Z' < 'a'", "true");
    check_value("'2026-10-10T12:00:00Z' < '2027'", "true");
    check_value("[1, {'a': 2, 'b': 3}] = [1.0, {'b': 3, 'a': 2}]", "true");
    check_value("[1] < [2]", "undefined");
    let members = |order: &mut dyn Iterator<Item = usize>| {
        order.map(|n| format!("'m{n}': {n}")).collect::<Vec<_>>().join(", ")
    };
    let (up, down) = (members(&mut (0..40)), members(&mut (0..40).rev()));
    check_value(&format!("{{{up}}} = {{{down}}}"), "true");
    check_value(&format!("{{{up}}} = {{{}}}", members(&mut (1..41))), "false");
    check_value(&format!("ARRAY_CONTAINS([{{{up}}}], {{{}}}, true)", members(&mut (5..35))), "true");
    check_value(&format!("ARRAY_CONTAINS([{{{up}}}], {{{}}}, true)", members(&mut (5..45))), "false");
    check_value("{'a': 1} = {'a': 1, 'b': 2}", "false");
    check_value("9007199254740993 = 9007199254740992", "false");
    check_value("9007199254740993 > 9007199254740992.0", "true");
    check_value("18446744073709551615 = 18446744073709551616", "true");
}

#[test]
fn logic_is_three_valued() {
    check_value("true AND undefined", "undefined");
    check_value("false AND undefined", "false");
    check_value("undefined AND false", "false");
    check_value("true OR undefined", "true");
    check_value("undefined OR true", "true");
    check_value("false OR undefined", "undefined");
    check_value("NOT undefined", "undefined");
    check_value("NOT true", "false");
    check_value("NOT 1", "undefined");
    check_value("NOT 1 = 1", "undefined");
    check_value("NOT (1 = 1)", "false");
    check_value("NOT false = true AND NOT false", "true");
    check_value("1 AND true", "undefined");
    check_value("true OR 1", "true");
    check_value("1 = 1 OR 2 = 3 AND false", "true");
    check_value("true ? 'y' : 'n'", r#""y""#);
    check_value("undefined ? 'y' : 'n'", r#""n""#);
    check_value("1 ? 'y' : 'n'", r#""n""#);
    check_value("undefined ?? 1", "1");
    check_value("null ?? 1", "null");
    check_value("undefined ?? undefined ?? 3", "3");
}

#[test]
fn in_between_and_like_are_three_valued() {
    check_value("2 IN (1, 2, 3)", "true");
    check_value("'2' IN (1, 2, 3)", "false");
    check_value("2 NOT IN (1, 3)", "true");
    check_value("undefined IN (1)", "undefined");
    check_value("1 IN (1, undefined)", "true");
    check_value("2 IN (1, undefined)", "false");
    check_value("{'a': 1} IN ({}, {'a': 1.0})", "true");
    check_value("5 BETWEEN 1 AND 5", "true");
    check_value("6 BETWEEN 1 AND 5", "false");
    check_value("6 NOT BETWEEN 1 AND 5", "true");
    check_value("'5' BETWEEN 1 AND 5", "undefined");
    check_value("5 BETWEEN 1 AND 6 AND true", "true");
    check_value("'abc' LIKE 'a%'", "true");
    check_value("'abc' LIKE 'A%'", "false");
    check_value("'abc' LIKE '_b_'", "true");
    check_value("'abc' LIKE '%b'", "false");
    check_value("'aXbXc' LIKE '%X%X%'", "true");
    check_value("'a' LIKE '%%%%a%%%%'", "true");
    check_value("'' LIKE '%'", "true");
    check_value("'' LIKE '_'", "false");
    check_value("'50%' LIKE '50!%' ESCAPE '!'", "true");
    check_value("'500' LIKE '50!%' ESCAPE '!'", "false");
    check_value("'b' LIKE '[a-c]'", "true");
    check_value("'d' LIKE '[^a-c]'", "true");
    check_value("']d[b' LIKE ']_[b'", "true");
    check_value("'abc' NOT LIKE 'x%'", "true");
    check_value("1 LIKE '1'", "undefined");
    check_value("'é' LIKE '_'", "true");
}

#[test]
fn only_true_passes_a_filter() {
    let documents = r#"[{"id":1,"a":true},{"id":2,"a":1},{"id":3},{"id":4,"a":false},{"id":5,"a":null}]"#;
    check_all("SELECT VALUE c.id FROM c WHERE c.a", documents, "[1]");
    check_all("SELECT VALUE c.id FROM c WHERE NOT c.a", documents, "[4]");
    check_all("SELECT VALUE c.id FROM c WHERE NOT IS_DEFINED(c.a)", documents, "[3]");
    check_all("SELECT VALUE c.id FROM c WHERE c.a = null", documents, "[5]");
    check_all("SELECT VALUE c.id FROM c WHERE c.a != null", documents, "[1,2,4]");
    check_all("SELECT VALUE c.id FROM c WHERE c.id > 1 AND c.id <= 3", documents, "[2,3]");
    check_all("SELECT VALUE c.id FROM c WHERE false", documents, "[]");
    check_all("SELECT VALUE c.id FROM c WHERE (true)", documents, "[1,2,3,4,5]");
}

#[test]
fn a_parameter_is_a_value_a_member_name_or_a_count_and_is_undefined_if_missing() {
    let documents = [json(r#"{"id":"d1","k":"v"}"#), json(r#"{"id":"d2"}"#)];
    let result = |query: &str, parameters: &str| {
        let values = run(query, parameters, &documents).expect(query);
        perihelion_model::json::to_text(&values.into(), perihelion_model::json::Style::Query)
    };
    assert_eq!(result("SELECT @p AS v, IS_DEFINED(@p) AS d", r#"[{"name":"@p"}]"#), r#"[{"d":false}]"#);
    assert_eq!(result("SELECT @p AS v", "[]"), "[{}]");
    assert_eq!(
        result("SELECT @p AS v, IS_NULL(@p) AS n", r#"[{"name":"@p","value":null}]"#),
        r#"[{"v":null,"n":true}]"#
    );
    let ids = r#"[{"name":"@ids","value":["d1","ord1"]},{"name":"@k","value":"k"},{"name":"@n","value":1}]"#;
    assert_eq!(result("SELECT VALUE c.id FROM c WHERE ARRAY_CONTAINS(@ids, c.id)", ids), r#"["d1"]"#);
    assert_eq!(result("SELECT VALUE c[@k] FROM c", ids), r#"["v"]"#);
    assert_eq!(result("SELECT TOP @n VALUE c.id FROM c", ids), r#"["d1"]"#);
    assert_eq!(result("SELECT VALUE c.id FROM c OFFSET @n LIMIT @n", ids), r#"["d2"]"#);
    // Without FROM there is one row.
    assert_eq!(result("SELECT TOP 3 1 AS one", ids), r#"[{"one":1}]"#);
    assert_eq!(result("SELECT TOP @n VALUE @k", ids), r#"["k"]"#);
    assert_eq!(result("SELECT TOP 0 VALUE 1", ids), "[]");
    assert_eq!(
        result("SELECT VALUE @p", r#"[{"name":"@p","value":9007199254740993}]"#),
        "[9007199254740993]"
    );
}

#[test]
fn rows_sort_by_type_and_value() {
    let documents = r#"[{"v":{"a":1}},{"v":[1]},{"v":"b"},{"v":"a"},{"v":2.5},{"v":-1},{"v":true},{"v":false},{"v":null},{}]"#;
    check_all(
        "SELECT c.v FROM c ORDER BY c.v",
        documents,
        r#"[{},{"v":null},{"v":false},{"v":true},{"v":-1},{"v":2.5},{"v":"a"},{"v":"b"},{"v":[1]},{"v":{"a":1}}]"#,
    );
    check_all("SELECT VALUE c.v FROM c ORDER BY c.v DESC OFFSET 2 LIMIT 2", documents, r#"["b","a"]"#);
    let pairs = r#"[{"a":1,"b":1},{"a":2,"b":1},{"a":1,"b":2}]"#;
    check_all("SELECT VALUE [c.a, c.b] FROM c ORDER BY c.a DESC, c.b", pairs, "[[2,1],[1,1],[1,2]]");
    check_all("SELECT TOP 1 VALUE c.b FROM c ORDER BY c.a, c.b DESC", pairs, "[2]");
    let texts = r#"[{"s":"z"},{"s":"é"},{"s":"𝄞"},{"s":"\uffee"},{"s":"Z"}]"#;
    check_all("SELECT VALUE c.s FROM c ORDER BY c.s", texts, r#"["Z","z","é","￮","𝄞"]"#);
}

#[test]
fn distinct_ignores_number_types_and_member_order() {
    let documents = r#"[{"v":1},{"v":1.0},{"v":"1"},{"v":{"a":1,"b":2}},{"v":{"b":2,"a":1}},{},{}]"#;
    check_all("SELECT DISTINCT VALUE c.v FROM c", documents, r#"[1,"1",{"a":1,"b":2}]"#);
    check_all("SELECT DISTINCT c.v FROM c", documents, r#"[{"v":1},{"v":"1"},{"v":{"a":1,"b":2}},{}]"#);
    check_all("SELECT DISTINCT TOP 1 VALUE c.v FROM c ORDER BY c.v DESC", documents, r#"[{"a":1,"b":2}]"#);
}

#[test]
fn joins_multiply_rows_and_subqueries_read_the_current_row() {
    let document =
        r#"{"id":"f","kids":[{"n":"a","pets":["x","y"]},{"n":"b","pets":[]},{"n":"c"}],"t":[1,2,3]}"#;
    check(
        "SELECT k.n, p FROM c JOIN k IN c.kids JOIN p IN k.pets",
        document,
        r#"[{"n":"a","p":"x"},{"n":"a","p":"y"}]"#,
    );
    check("SELECT VALUE k.n FROM c JOIN k IN c.kids WHERE ARRAY_LENGTH(k.pets) = 0", document, r#"["b"]"#);
    check(
        "SELECT VALUE [x, y] FROM c JOIN x IN c.t JOIN y IN c.t WHERE x + y = 4",
        document,
        "[[1,3],[2,2],[3,1]]",
    );
    check(
        "SELECT VALUE c.id FROM c WHERE EXISTS(SELECT VALUE k FROM k IN c.kids WHERE k.n = 'b')",
        document,
        r#"["f"]"#,
    );
    check("SELECT VALUE EXISTS(SELECT VALUE k FROM k IN c.kids WHERE k.n = 'z') FROM c", document, "[false]");
    check("SELECT VALUE ARRAY(SELECT VALUE x * 2 FROM x IN c.t WHERE x > 1) FROM c", document, "[[4,6]]");
    check(
        "SELECT c.id, (SELECT VALUE COUNT(1) FROM x IN c.t) AS n FROM c",
        document,
        r#"[{"id":"f","n":3}]"#,
    );
    check("SELECT VALUE (SELECT VALUE SUM(x) FROM x IN c.t WHERE x > 1) FROM c", document, "[5]");
    check(
        "SELECT VALUE (SELECT VALUE x FROM x IN c.t ORDER BY x DESC OFFSET 1 LIMIT 1) FROM c",
        document,
        "[2]",
    );
    check("SELECT VALUE t FROM c JOIN (SELECT VALUE x FROM x IN c.t WHERE x < 3) AS t", document, "[1,2]");
    check("SELECT VALUE t.n FROM c JOIN (SELECT k.n FROM k IN c.kids) t", document, r#"["a","b","c"]"#);
    check("SELECT VALUE FIRST(SELECT VALUE x FROM x IN c.t) FROM c", document, "[1]");
    check("SELECT VALUE LAST(SELECT VALUE x FROM x IN c.t) FROM c", document, "[3]");
    check("SELECT VALUE s.m FROM (SELECT c.id AS m FROM c) AS s", document, r#"["f"]"#);
    check("SELECT VALUE ARRAY(SELECT DISTINCT VALUE x % 2 FROM x IN c.t) FROM c", document, "[[1,0]]");
    check(
        "SELECT s.k, s.n FROM c JOIN (SELECT x % 2 AS k, COUNT(1) AS n FROM x IN c.t GROUP BY x % 2) s",
        document,
        r#"[{"k":1,"n":2},{"k":0,"n":1}]"#,
    );
}

#[test]
fn in_with_a_subquery_iterates_the_elements_of_its_rows() {
    let document = r#"{"id":"f","u":"g","n":8,"t":[1,2,3],"kids":[{"n":"a"},{"n":"b"}]}"#;
    for (query, expect) in [
        ("SELECT VALUE m FROM c JOIN m IN (SELECT VALUE [1, 2, 3])", "[1,2,3]"),
        // A join with constants of the statement, an example of the service's documentation.
        (
            "SELECT c.id, m.name FROM c JOIN m IN (SELECT VALUE [{unit: 'g', name: 'gram'}, \
             {unit: 'kg', name: 'kilogram'}]) WHERE m.unit = c.u",
            r#"[{"id":"f","name":"gram"}]"#,
        ),
        (
            "SELECT VALUE (SELECT VALUE COUNT(1) FROM a IN (SELECT VALUE [2, 999]) WHERE a > c.n) FROM c",
            "[1]",
        ),
        ("SELECT VALUE (SELECT VALUE MIN(a) FROM a IN (SELECT VALUE [30, c.n])) FROM c", "[8]"),
        ("SELECT VALUE i FROM c JOIN i IN (SELECT VALUE ARRAY_SLICE(c.t, 1))", "[2,3]"),
        // The subquery is the first source of FROM.
        ("SELECT VALUE i FROM i IN (SELECT VALUE [4, 5])", "[4,5]"),
        (
            "SELECT VALUE i + j FROM i IN (SELECT VALUE [10, 20]) JOIN j IN (SELECT VALUE [1, 2])",
            "[11,12,21,22]",
        ),
        ("SELECT * FROM i IN (SELECT VALUE [4, 5])", "[4,5]"),
        ("SELECT VALUE t FROM t IN (SELECT VALUE c.t FROM c)", "[1,2,3]"),
        // Rows that are not arrays have no elements.
        ("SELECT VALUE t FROM c JOIN t IN (SELECT k.n FROM k IN c.kids)", "[]"),
        ("SELECT VALUE i FROM i IN (SELECT VALUE 1)", "[]"),
    ] {
        check(query, document, expect);
    }
}

#[test]
fn a_subquery_that_needs_all_documents_runs_first() {
    let documents: Vec<String> =
        (0..12).map(|n| format!(r#"{{"i":{n},"g":{},"t":[{},9]}}"#, n % 3, n % 2)).collect();
    let documents = format!("[{}]", documents.join(","));
    for (query, expect) in [
        ("SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.g FROM c)", "[3]"),
        ("SELECT COUNT(1) AS n FROM (SELECT DISTINCT c.g, c.t FROM c) AS x", r#"[{"n":6}]"#),
        (
            "SELECT g.k FROM (SELECT c.g, COUNT(1) AS k FROM c GROUP BY c.g) AS g",
            r#"[{"k":4},{"k":4},{"k":4}]"#,
        ),
        ("SELECT VALUE MAX(s.n) FROM (SELECT SUM(c.i) AS n FROM c GROUP BY c.g) s WHERE s.n < 26", "[22]"),
        ("SELECT VALUE x + 1 FROM (SELECT VALUE COUNT(1) FROM c) x", "[13]"),
        ("SELECT VALUE x FROM (SELECT TOP 2 VALUE c.i FROM c) x", "[0,1]"),
        ("SELECT VALUE x FROM x IN (SELECT TOP 2 VALUE c.t FROM c)", "[0,9,1,9]"),
        ("SELECT VALUE x FROM x IN (SELECT TOP 2 VALUE c.i FROM c)", "[]"),
        ("SELECT VALUE x FROM (SELECT VALUE c.i FROM c OFFSET 9 LIMIT 2) x", "[9,10]"),
        ("SELECT TOP 2 VALUE x FROM (SELECT TOP 3 VALUE c.i FROM c ORDER BY c.i DESC) x", "[11,10]"),
        ("SELECT * FROM (SELECT VALUE c.i FROM c WHERE c.i > 8 ORDER BY c.i DESC)", "[11,10,9]"),
        ("SELECT VALUE SUM(x) FROM (SELECT TOP 4 VALUE c.i FROM c ORDER BY c.i DESC) x", "[38]"),
        ("SELECT DISTINCT VALUE t FROM (SELECT DISTINCT c.t FROM c) x JOIN t IN x.t", "[0,9,1]"),
        // Several stages, and a plain subquery between two of them.
        (
            "SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE g.k FROM \
             (SELECT c.g, COUNT(1) AS k FROM c GROUP BY c.g) AS g)",
            "[1]",
        ),
        ("SELECT VALUE COUNT(1) FROM (SELECT VALUE x FROM (SELECT DISTINCT VALUE c.g FROM c) x)", "[3]"),
        // A subquery over one document at a time is not a stage.
        ("SELECT VALUE COUNT(1) FROM (SELECT VALUE c.g FROM c WHERE c.i < 5)", "[5]"),
        ("SELECT VALUE COUNT(1) FROM (SELECT VALUE t FROM t IN c.t)", "[24]"),
        // A constant is read once and not once per document.
        ("SELECT * FROM (SELECT VALUE 7)", "[7]"),
        ("SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.nope FROM c)", "[0]"),
        ("SELECT VALUE x.a > 1 FROM (SELECT DISTINCT 1 / 0 AS a FROM c) x", "[true]"),
    ] {
        check_all(query, &documents, expect);
    }
    check_refused(
        "SELECT y.a FROM (SELECT DISTINCT VALUE d.a FROM c) x",
        "SC2001 39..40 Identifier 'd' could not be resolved.\nSC2001 7..8 Identifier 'y' could not be resolved.",
    );
    let infinite = run("SELECT * FROM (SELECT DISTINCT 1 / 0 AS a FROM c)", "[]", &[json("{}")]);
    assert_eq!(infinite, Err(Failure::Evaluation(EvaluationError::NotRepresentable)));
}

/// Undefined values are ignored. SUM and AVG are undefined if a value is not a number, MIN and MAX if a
/// value is an array or an object. Among other values, MIN and MAX use the order of ORDER BY.
#[test]
fn aggregates_follow_the_mixed_type_rules() {
    let mixed = r#"[{"n":3},{"n":1},{},{"n":"a"},{"n":null}]"#;
    check_all("SELECT VALUE COUNT(1) FROM c", mixed, "[5]");
    check_all("SELECT VALUE COUNT(c.n) FROM c", mixed, "[4]");
    check_all("SELECT VALUE SUM(c.n) FROM c", mixed, "[]");
    check_all("SELECT VALUE AVG(c.n) FROM c", mixed, "[]");
    check_all("SELECT VALUE MIN(c.n) FROM c", mixed, "[null]");
    check_all("SELECT VALUE MAX(c.n) FROM c", mixed, r#"["a"]"#);
    check_all("SELECT VALUE MAX(c.n) FROM c", r#"[{"n":1},{"n":[1]}]"#, "[]");
    check_all("SELECT VALUE MIN(c.n) FROM c", r#"[{"n":[]}]"#, "[]");
    check_all("SELECT VALUE MAX(c.n) FROM c", r#"[{"n":{}}]"#, "[]");
    check_all("SELECT VALUE MIN(c.n) FROM c", r#"[{"n":false},{"n":true},{"n":0}]"#, "[false]");
    check_all("SELECT VALUE SUM(c.n) FROM c", "[{}]", "[0]");
    for function in ["AVG", "MIN", "MAX"] {
        check_all(&format!("SELECT VALUE {function}(c.n) FROM c"), "[{}]", "[]");
    }
    check_all("SELECT COUNT(1), SUM(c.n) AS s, AVG(c.n) AS a FROM c", "[]", r#"[{"$1":0,"s":0}]"#);
    let numbers = r#"[{"n":3},{"n":1},{},{"n":2.5}]"#;
    check_all("SELECT SUM(c.n) AS s, AVG(c.n) AS a FROM c", numbers, r#"[{"s":6.5,"a":2.1666666666666665}]"#);
    check_all("SELECT VALUE SUM(c.n) FROM c", r#"[{"n":9007199254740993},{"n":1}]"#, "[9007199254740994]");
    check_all("SELECT VALUE COUNTIF(c.n > 2) FROM c", numbers, "[2]");
    check_all("SELECT VALUE MAKELIST(c.n) FROM c", numbers, "[[3,1,2.5]]");
    check_all("SELECT VALUE MAKESET(c.n) FROM c", r#"[{"n":1},{"n":1.0},{"n":2}]"#, "[[1,2]]");
    check_all("SELECT VALUE {'n': COUNT(1) + 1, 'l': [MAX(c.n)]} FROM c", numbers, r#"[{"n":5,"l":[3]}]"#);
    check_all("SELECT VALUE COUNT(1) FROM c JOIN x IN c.l", r#"[{"l":[1,2]},{"l":[3]}]"#, "[3]");
    check_all("SELECT VALUE COUNT(1) FROM c WHERE c.n > 1", numbers, "[2]");
    check_all("SELECT TOP 0 VALUE COUNT(1) FROM c", numbers, "[]");
    check_all("SELECT VALUE COUNT(1)", numbers, "[1]");
}

#[test]
fn a_group_has_the_values_of_its_keys() {
    let documents = r#"[{"g":"a","n":1},{"g":"b","n":2},{"g":"a","n":3},{"n":4}]"#;
    check_all(
        "SELECT c.g, COUNT(1) AS k, AVG(c.n) AS m FROM c GROUP BY c.g",
        documents,
        r#"[{"g":"a","k":2,"m":2},{"g":"b","k":1,"m":2},{"k":1,"m":4}]"#,
    );
    check_all("SELECT VALUE c.g FROM c GROUP BY c.g ORDER BY c.g DESC", documents, r#"["b","a"]"#);
    check_all(
        "SELECT c['g'], UPPER(c.g) AS u FROM c GROUP BY c.g",
        documents,
        r#"[{"g":"a","u":"A"},{"g":"b","u":"B"},{}]"#,
    );
    check_all("SELECT VALUE SUM(c.n) FROM c GROUP BY c.n > 2", documents, "[3,7]");
    check_all(
        "SELECT VALUE {'age': c.g} FROM c GROUP BY {'age': c.g}",
        documents,
        r#"[{"age":"a"},{"age":"b"},{}]"#,
    );
    check_all("SELECT c.g, COUNT(1) AS k FROM c GROUP BY c.g", "[]", "[]");
    check_all("SELECT c.g FROM c GROUP BY c.g ORDER BY c.g OFFSET 1 LIMIT 1", documents, r#"[{"g":"a"}]"#);
}

#[test]
fn the_rewritten_statements_that_clients_send_can_be_run() {
    let documents = r#"[{"_rid":"r1","id":"x","n":2,"g":"a"},{"_rid":"r2","id":"y","n":1,"g":"b"}]"#;
    check_all(
        "SELECT c._rid, [{\"item\": c.n}] AS orderByItems, {\"id\": c.id} AS payload\nFROM c\nWHERE (true)\nORDER BY c.n",
        documents,
        r#"[{"_rid":"r2","orderByItems":[{"item":1}],"payload":{"id":"y"}},{"_rid":"r1","orderByItems":[{"item":2}],"payload":{"id":"x"}}]"#,
    );
    check_all("SELECT VALUE [{\"item\": COUNT(1)}] FROM c", documents, r#"[[{"item":2}]]"#);
    check_all(
        r#"SELECT VALUE [{"item": {"sum": SUM(c.n), "count": COUNT(c.n)}}] FROM c"#,
        documents,
        r#"[[{"item":{"sum":3,"count":2}}]]"#,
    );
    check_all(
        r#"SELECT [{"item": c.g}] AS groupByItems, {"g": c.g, "k": {"item": COUNT(1)}} AS payload FROM c GROUP BY c.g"#,
        documents,
        r#"[{"groupByItems":[{"item":"a"}],"payload":{"g":"a","k":{"item":1}}},{"groupByItems":[{"item":"b"}],"payload":{"g":"b","k":{"item":1}}}]"#,
    );
    check_all(
        r#"SELECT VALUE {"_rid": c._rid, "orderByItems": [{"item": c.n}], "payload": c.id} FROM c WHERE c.n > 1 ORDER BY c.n"#,
        documents,
        r#"[{"_rid":"r1","orderByItems":[{"item":2}],"payload":"x"}]"#,
    );
}

#[test]
fn the_poll_query_of_the_published_provider_finds_due_messages() {
    let documents = r#"[
        {"id":"due","type":"q","visibleAt":5,"dispatchSlot":3,"instanceId":"i1"},
        {"id":"later","type":"q","visibleAt":50,"dispatchSlot":3,"instanceId":"i1"},
        {"id":"locked","type":"q","visibleAt":5,"dispatchSlot":3,"lockedUntil":99,"instanceId":"i1"},
        {"id":"expired","type":"q","visibleAt":5,"dispatchSlot":3,"lockedUntil":7,"instanceId":"i1"},
        {"id":"free","type":"q","visibleAt":5,"dispatchSlot":3,"lockedUntil":null,"instanceId":"i1"},
        {"id":"slot","type":"q","visibleAt":5,"dispatchSlot":9,"instanceId":"i1"},
        {"id":"excluded","type":"q","visibleAt":5,"dispatchSlot":3,"instanceId":"i2"},
        {"id":"other","type":"w","visibleAt":5,"dispatchSlot":3,"instanceId":"i1"}]"#;
    check_all(
        "SELECT VALUE c.id FROM c WHERE c.type = 'q' AND c.visibleAt <= 10 AND (NOT IS_DEFINED(c.lockedUntil) \
         OR c.lockedUntil = null OR c.lockedUntil <= 10) AND c.dispatchSlot IN (1, 2, 3) AND c.instanceId != 'i2'",
        documents,
        r#"["due","expired","free"]"#,
    );
}
