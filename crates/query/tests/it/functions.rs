//! The built-in functions, with tables of small cases.

use crate::support::{Failure, NOW_MILLISECONDS, check, check_refused, check_value, json, run};
use perihelion_query::EvaluationError;

#[track_caller]
fn check_table(cases: &[(&str, &str)]) {
    for (expression, expect) in cases {
        check_value(expression, expect);
    }
}

#[test]
fn type_tests_are_never_undefined() {
    check_table(&[
        ("IS_DEFINED(undefined)", "false"),
        ("IS_DEFINED(null)", "true"),
        ("is_null(null)", "true"),
        ("IS_NULL(undefined)", "false"),
        ("IS_ARRAY([])", "true"),
        ("IS_OBJECT({})", "true"),
        ("IS_STRING('')", "true"),
        ("IS_BOOL(false)", "true"),
        ("IS_NUMBER(1.5)", "true"),
        ("IS_NUMBER('1')", "false"),
        ("IS_PRIMITIVE(null)", "true"),
        ("IS_PRIMITIVE([])", "false"),
        ("IS_PRIMITIVE(undefined)", "false"),
        ("IS_INTEGER(3.0)", "true"),
        ("IS_INTEGER(3.5)", "false"),
        ("IS_FINITE_NUMBER(1 / 0)", "false"),
        ("IS_FINITE_NUMBER(1)", "true"),
    ]);
}

#[test]
fn text_functions_count_characters() {
    check_table(&[
        ("CONCAT('a', 'b', 'c')", r#""abc""#),
        ("CONCAT('a', 1)", "undefined"),
        ("CONTAINS('abc', 'bc')", "true"),
        ("CONTAINS('aBc', 'bC')", "false"),
        ("CONTAINS('aBc', 'bC', true)", "true"),
        ("CONTAINS('abc', 1)", "undefined"),
        ("STARTSWITH('abc', 'ab')", "true"),
        ("STARTSWITH('ABC', 'ab', true)", "true"),
        ("ENDSWITH('abc', 'bc')", "true"),
        ("StringEquals('a', 'A', true)", "true"),
        ("INDEX_OF('héllo', 'l')", "2"),
        ("INDEX_OF('hello', 'l', 3)", "3"),
        ("INDEX_OF('hello', 'z')", "-1"),
        ("LEFT('héllo', 2)", r#""hé""#),
        ("LEFT('ab', 9)", r#""ab""#),
        ("LEFT('ab', -1)", r#""""#),
        ("RIGHT('héllo', 4)", r#""éllo""#),
        ("LENGTH('héllo')", "5"),
        ("LENGTH(5)", "undefined"),
        ("LOWER('ÀB')", r#""àb""#),
        ("UPPER('àb')", r#""ÀB""#),
        ("LTRIM('  a ')", r#""a ""#),
        ("RTRIM('  a ')", r#""  a""#),
        ("TRIM('  a ')", r#""a""#),
        ("TRIM('xxaxx', 'x')", r#""a""#),
        ("REPLACE('aXbX', 'X', '--')", r#""a--b--""#),
        ("REPLACE('abc', '', 'x')", "undefined"),
        ("REPLICATE('ab', 3)", r#""ababab""#),
        // A result of more than 10,000 characters is undefined.
        ("REPLICATE('ab', 5001)", "undefined"),
        ("REVERSE('abc')", r#""cba""#),
        ("SUBSTRING('héllo', 1, 3)", r#""éll""#),
        ("SUBSTRING('hello', 3, 99)", r#""lo""#),
        ("StringSplit('a,b,,c', ',')", r#"["a","b","","c"]"#),
        ("StringJoin(['a', 'b'], '-')", r#""a-b""#),
        ("RegexMatch('abcd', 'a.*d')", "true"),
        ("RegexMatch('ABCD', '^abcd$')", "false"),
        ("RegexMatch('ABCD', '^abcd$', 'i')", "true"),
        ("RegexMatch('a', '(')", "undefined"),
        ("RegexMatch('a', 'a', 'q')", "undefined"),
        // Patterns of PCRE.
        ("RegexMatch('É', 'é', 'i')", "true"),
        ("RegexMatch('É', 'é')", "false"),
        ("RegexMatch('xÀy', '[à-ü]', 'i')", "true"),
        (r"RegexMatch('abc\n', 'abc$')", "true"),
        (r"RegexMatch('abc\n', 'abc\\Z')", "true"),
        (r"RegexMatch('abc\n', 'abc\\z')", "false"),
        (r"RegexMatch('abc\nd', 'abc$')", "false"),
        (r"RegexMatch('a.b', '^\\Qa.b\\E$')", "true"),
        (r"RegexMatch('axb', '^\\Qa.b\\E$')", "false"),
        (r"RegexMatch('a\tb', 'a\\hb')", "true"),
        ("RegexMatch('x{abc}', '{abc}')", "true"),
        ("RegexMatch('a{,3}', 'a{,3}')", "true"),
        ("RegexMatch('aa', '^a{2}$')", "true"),
        ("RegexMatch('a-]', '^[]a-]+$')", "true"),
    ]);
}

#[test]
fn patterns_with_unsupported_features_are_refused() {
    for pattern in [r"\\p{L}", "a++", "(?R)", r"(a)\\1", "(?=a)"] {
        let Err(Failure::Invalid(errors)) =
            run(&format!("SELECT VALUE RegexMatch('a', '{pattern}')"), "[]", &[])
        else {
            panic!("{pattern} is not refused");
        };
        assert_eq!(errors[0].code, "SC2070", "{pattern}");
    }
    // A pattern in a document is refused when the statement runs.
    let in_document = run(r"SELECT VALUE RegexMatch('a', c.p) FROM c", "[]", &[json(r#"{"p":"\\p{L}"}"#)]);
    assert_eq!(
        in_document,
        Err(Failure::Evaluation(EvaluationError::UnsupportedPattern(r"\p{L}".to_owned())))
    );
}

/// Story of a bug: a statement of half a megabyte made the binder compile 19,000 patterns. A statement
/// may have 500 constant patterns, in all its stages together.
#[test]
fn a_statement_with_too_many_constant_patterns_is_refused_with_one_error() {
    let calls = |count: usize| vec!["RegexMatch(c.s, 'a')"; count].join(" OR ");
    let statement = |inner: usize, outer: usize| {
        let inner = format!("SELECT DISTINCT c.s FROM c WHERE {}", calls(inner));
        format!("SELECT VALUE c.s FROM ({inner}) AS c WHERE {}", calls(outer))
    };
    let document = json(r#"{"s":"a"}"#);
    assert_eq!(run(&statement(250, 250), "[]", std::slice::from_ref(&document)), Ok(vec!["a".into()]));
    for refused in [statement(1, 500), statement(600, 1)] {
        let Err(Failure::Invalid(errors)) = run(&refused, "[]", &[]) else { panic!("it is not refused") };
        assert_eq!(errors.iter().map(|error| error.code).collect::<Vec<_>>(), ["SC3000"]);
    }
}

#[test]
fn array_functions_compare_deeply() {
    check_table(&[
        ("ARRAY_CONCAT([1], [2, 3], [])", "[1,2,3]"),
        ("ARRAY_CONCAT([1], 2)", "undefined"),
        ("ARRAY_CONTAINS([1, 'a'], 'a')", "true"),
        ("ARRAY_CONTAINS([{'a': 1, 'b': 2}], {'a': 1})", "false"),
        ("ARRAY_CONTAINS([{'a': 1, 'b': 2}], {'a': 1}, true)", "true"),
        ("ARRAY_CONTAINS('a', 'a')", "undefined"),
        ("ARRAY_CONTAINS_ALL([1, 2, 3], 1, 3)", "true"),
        ("ARRAY_CONTAINS_ANY([1, 2, 3], 4, 3)", "true"),
        ("ARRAY_LENGTH([1, 2])", "2"),
        ("ARRAY_SLICE([1, 2, 3, 4], 1)", "[2,3,4]"),
        ("ARRAY_SLICE([1, 2, 3, 4], 1, 2)", "[2,3]"),
        ("ARRAY_SLICE([1, 2, 3, 4], -2)", "[3,4]"),
        ("ARRAY_SLICE([1, 2], 9, 9)", "[]"),
        ("CHOOSE(2, 'a', 'b')", r#""b""#),
        ("CHOOSE(0, 'a')", "undefined"),
        ("IIF(1 < 2, 'y', 'n')", r#""y""#),
        ("ObjectToArray({'a': 1})", r#"[{"k":"a","v":1}]"#),
        ("ObjectToArray({'a': 1}, 'name', 'value')", r#"[{"name":"a","value":1}]"#),
        ("SetIntersect([1, 2, 2, 3], [2, 3, 4])", "[2,3]"),
        ("SetUnion([1, 2], [2, 3])", "[1,2,3]"),
        ("SetDifference([1, 2, 3], [2])", "[1,3]"),
        ("SetEqual([1, 2], [2, 1, 1])", "true"),
    ]);
}

#[test]
fn math_functions_return_integers_where_they_can() {
    check_table(&[
        ("ABS(-5)", "5"),
        ("ABS(-2.5)", "2.5"),
        ("ABS('a')", "undefined"),
        ("CEILING(1.2)", "2"),
        ("FLOOR(-1.2)", "-2"),
        ("ROUND(2.5)", "3"),
        ("ROUND(-2.5)", "-3"),
        ("ROUND(2.345, 2)", "2.35"),
        ("ROUND(1e10, 300)", "10000000000"),
        ("ROUND(9007199254740993, 2)", "9007199254740993"),
        ("ROUND(1250, -2)", "1300"),
        ("ROUND(2.5, -1e30)", "undefined"),
        ("ROUND(2.5, 301)", "undefined"),
        ("TRUNC(-2.7)", "-2"),
        ("SIGN(-3)", "-1"),
        ("SIGN(0)", "0"),
        ("SQRT(16)", "4"),
        ("SQUARE(3)", "9"),
        ("POWER(2, 10)", "1024"),
        ("POWER(2, 0.5)", "1.4142135623730951"),
        ("EXP(0)", "1"),
        ("LOG(8, 2)", "3"),
        ("LOG10(1000)", "3"),
        ("PI()", "3.1415926535897931"),
        ("DEGREES(PI())", "180"),
        ("RADIANS(180)", "3.1415926535897931"),
        ("SIN(0)", "0"),
        ("COS(0)", "1"),
        ("ATN2(1, 1)", "0.78539816339744828"),
        ("NumberBin(37, 10)", "30"),
        ("IntAdd(20, 10)", "30"),
        ("IntDiv(7, 2)", "3"),
        ("IntDiv(7, 0)", "undefined"),
        ("IntMod(7, 4)", "3"),
        ("IntBitAnd(12, 10)", "8"),
        ("IntBitLeftShift(1, 4)", "16"),
        ("IntBitLeftShift(1, 99)", "undefined"),
        ("ABS(-9223372036854775808)", "9.2233720368547758e+18"),
    ]);
}

#[test]
fn conversions_are_undefined_for_the_wrong_type() {
    check_table(&[
        ("ToString(1.5)", r#""1.5""#),
        ("ToString('a')", r#""a""#),
        ("ToString(true)", r#""true""#),
        ("ToString(undefined)", "undefined"),
        ("ToString({'a': [1]})", r#""{\"a\":[1]}""#),
        ("ToString(1 / 0)", r#""Infinity""#),
        ("StringToArray('[1, \"a\"]')", r#"[1,"a"]"#),
        ("StringToArray('{}')", "undefined"),
        ("StringToBoolean(' true ')", "true"),
        ("StringToBoolean('TRUE')", "undefined"),
        ("StringToNull('null')", "null"),
        ("StringToNumber('1e2')", "100"),
        ("StringToNumber('x')", "undefined"),
        ("StringToObject('{\"a\":1}')", r#"{"a":1}"#),
    ]);
}

#[test]
fn dates_follow_the_calendar() {
    check_table(&[
        ("GetCurrentDateTime()", r#""2020-09-13T12:26:40.0000000Z""#),
        ("GetCurrentTimestamp()", &NOW_MILLISECONDS.to_string()),
        ("GetCurrentTicks()", "16000000000000000"),
        ("DateTimeAdd('mm', 1, '2020-07-09T23:20:13.4575530Z')", r#""2020-08-09T23:20:13.4575530Z""#),
        ("DateTimeAdd('mm', 1, '2020-01-31T00:00:00Z')", r#""2020-02-29T00:00:00.0000000Z""#),
        ("DateTimeAdd('yyyy', -1, '2020-02-29')", r#""2019-02-28T00:00:00.0000000Z""#),
        ("DateTimeAdd('hh', 25, '2020-12-31T23:00:00Z')", r#""2021-01-02T00:00:00.0000000Z""#),
        ("DateTimeAdd('xx', 1, '2020-12-31')", "undefined"),
        ("DateTimeDiff('day', '2018-11-05T23:59:59Z', '2018-11-06T00:00:00Z')", "1"),
        ("DateTimeDiff('yyyy', '2017-12-31', '2020-01-01')", "3"),
        ("DateTimeDiff('mm', '2020-01-31', '2020-03-01')", "2"),
        ("DateTimeFromParts(2020, 9, 4)", r#""2020-09-04T00:00:00.0000000Z""#),
        ("DateTimeFromParts(2020, 9, 4, 10, 52, 12, 3456789)", r#""2020-09-04T10:52:12.3456789Z""#),
        ("DateTimeFromParts(2021, 2, 29)", "undefined"),
        ("DateTimePart('mm', '2020-05-29T08:30:00.1301617Z')", "5"),
        ("DateTimePart('ms', '2020-05-29T08:30:00.1301617Z')", "130"),
        ("DateTimeToTicks('2020-01-02T03:04:05.6789123Z')", "15779342456789123"),
        ("DateTimeToTimestamp('2020-07-09T23:20:13.4575530Z')", "1594336813457"),
        ("TicksToDateTime(15943368134575530)", r#""2020-07-09T23:20:13.4575530Z""#),
        ("TimestampToDateTime(1594227912345)", r#""2020-07-08T17:05:12.3450000Z""#),
        ("TimestampToDateTime(9223372036854775807)", "undefined"),
        ("DateTimeBin('2021-06-28T17:24:29.2991234Z', 'day')", r#""2021-06-28T00:00:00.0000000Z""#),
        ("DateTimeBin('2021-06-28T17:24:29.2991234Z', 'hh', 5)", r#""2021-06-28T16:00:00.0000000Z""#),
        ("DateTimeBin('2021-06-28', 'dd', 9223372036854775807)", "undefined"),
        ("DateTimeBin('2020-02-10', 'mm', 1, '2020-01-15')", r#""2020-01-15T00:00:00.0000000Z""#),
        ("DateTimeBin('2020-02-15', 'mm', 1, '2020-01-15')", r#""2020-02-15T00:00:00.0000000Z""#),
        ("DateTimeBin('2021-06-28T17:24:29.2991234Z', 'ns', 1000000)", r#""2021-06-28T17:24:29.2990000Z""#),
        ("DateTimeBin('2021-06-28T17:24:29.2991234Z', 'ns')", r#""2021-06-28T17:24:29.2991234Z""#),
        ("DateTimeToTicks('0001-01-01')", "-621355968000000000"),
        ("DateTimeToTicks('2020-13-01')", "undefined"),
        ("DateTimeToTicks('not a date')", "undefined"),
    ]);
}

#[test]
fn the_document_id_is_the_counter_in_the_rid() {
    // The example of the service's documentation.
    let product = r#"{"id":"5741047452","_rid":"36ZyAPW+uN8NAAAAAAAAAA=="}"#;
    check(
        "SELECT p.id, DOCUMENTID(p) AS documentId FROM p",
        product,
        r#"[{"id":"5741047452","documentId":13}]"#,
    );
    check(
        "SELECT VALUE p.id FROM p WHERE DOCUMENTID(p) >= 5 AND DOCUMENTID(p) <= 15",
        product,
        r#"["5741047452"]"#,
    );
    check("SELECT VALUE p.id FROM p WHERE DOCUMENTID(p) > 15", product, "[]");
    check_table(&[
        ("DOCUMENTID({'_rid': '36ZyAPW+uN8='})", "undefined"),
        ("DOCUMENTID({'_rid': 1})", "undefined"),
        ("DOCUMENTID({})", "undefined"),
        ("DOCUMENTID('36ZyAPW+uN8NAAAAAAAAAA==')", "undefined"),
    ]);
}

#[test]
fn an_undefined_value_matters_only_if_the_other_values_do_not_decide() {
    check_table(&[
        ("ARRAY_CONTAINS_ANY([1, 2, 3, 4], 1, undefined)", "true"),
        ("ARRAY_CONTAINS_ANY([1, 2, 3, 4], undefined, 1)", "true"),
        ("ARRAY_CONTAINS_ANY([1, 2, 3, 4], 5, undefined)", "undefined"),
        ("ARRAY_CONTAINS_ALL([1, 2, 3, 4], 5, undefined)", "false"),
        ("ARRAY_CONTAINS_ALL([1, 2, 3, 4], undefined, 5)", "false"),
        ("ARRAY_CONTAINS_ALL([1, 2, 3, 4], 1, undefined)", "undefined"),
        // In the list of IN, an undefined value equals nothing.
        ("1 IN (1, undefined)", "true"),
        ("1 NOT IN (2, undefined)", "true"),
        ("1 IN (2, undefined)", "false"),
        ("undefined NOT IN (2)", "undefined"),
    ]);
}

#[test]
fn positions_and_counts_must_be_whole_numbers() {
    check_table(&[
        ("SUBSTRING('hello', 1.5, 1)", "undefined"),
        ("SUBSTRING('hello', 1, 1.5)", "undefined"),
        ("SUBSTRING('hello', 1.0, 1)", r#""e""#),
        ("LEFT('hello', 1.5)", "undefined"),
        ("LEFT('hello', 2.0)", r#""he""#),
        ("LEFT('hello', 1e300)", r#""hello""#),
        ("RIGHT('hello', 1.5)", "undefined"),
        ("RIGHT('hello', 1 / 0)", "undefined"),
        ("ARRAY_SLICE([1, 2, 3], 1.5)", "undefined"),
        ("ARRAY_SLICE([1, 2, 3], 1, 1.5)", "undefined"),
        ("ARRAY_SLICE([1, 2, 3], 1.0, 1.0)", "[2]"),
        ("DateTimeAdd('dd', 1.5, '2020-09-13')", "undefined"),
        ("DateTimeAdd('dd', 1.0, '2020-09-13')", r#""2020-09-14T00:00:00.0000000Z""#),
        ("DateTimeBin('2020-09-13', 'dd', 1.5)", "undefined"),
        // REPLICATE drops the fraction.
        ("REPLICATE('a', 1.5)", r#""a""#),
    ]);
}

#[test]
fn arguments_at_the_edges_have_the_results_of_the_service() {
    check_table(&[
        ("SUBSTRING('hello', -2, 3)", r#""""#),
        ("NumberBin(37.752, -100)", "100"),
        ("NumberBin(37.752, 0)", "undefined"),
        ("DateTimeBin('2021-06-28', 'dd', 1, '1600-12-31')", "undefined"),
        ("DateTimeBin('2021-06-28', 'dd', 1, '1601-01-01')", r#""2021-06-28T00:00:00.0000000Z""#),
        ("ARRAY_CONTAINS([{'a': {'b': 1, 'c': 2}}], {'a': {'b': 1}}, true)", "false"),
        ("ARRAY_CONTAINS([{'a': {'b': 1}, 'd': 2}], {'a': {'b': 1}}, true)", "true"),
        ("LOG(2, 10)", "0.3010299956639812"),
        ("5 & (1 / 0)", "0"),
        ("5 | (0 / 0)", "5"),
    ]);
}

#[test]
fn numbers_can_be_hexadecimal_infinite_or_not_a_number() {
    check_table(&[
        ("0x10", "16"),
        ("0xFF + 0Xa", "265"),
        ("-0x10", "-16"),
        ("0x7FFFFFFFFFFFFFFF", "9223372036854775807"),
        ("0x10000000000000000", "1.8446744073709552e+19"),
        ("ToString(NaN)", r#""NaN""#),
        ("ToString(Infinity)", r#""Infinity""#),
        ("ToString(-Infinity)", r#""-Infinity""#),
        ("StringToNumber(NaN)", "undefined"),
        ("IS_FINITE_NUMBER(Infinity)", "false"),
        ("1 < Infinity", "true"),
    ]);
    // A source may have the name of a constant.
    check("SELECT VALUE Infinity.a FROM Infinity", r#"{"a":1}"#, "[1]");
    check_refused("SELECT VALUE nan", "SC2001 13..16 Identifier 'nan' could not be resolved.");
    check_refused("SELECT VALUE 0x", "SC1011 13..15 Syntax error, invalid numeric literal token '0x'.");
    let infinite = run("SELECT VALUE Infinity", "[]", &[]);
    assert_eq!(infinite, Err(Failure::Evaluation(EvaluationError::NotRepresentable)));
}

#[test]
fn spatial_functions_measure_on_the_ellipsoid() {
    const SQUARE: &str = "{'type':'Polygon','coordinates':[[[0,0],[10,0],[10,10],[0,10],[0,0]]]}";
    const HOLED: &str = "{'type':'Polygon','coordinates':[[[0,0],[10,0],[10,10],[0,10],[0,0]],[[4,4],[4,6],[6,6],[6,4],[4,4]]]}";
    const LINE: &str = "{'type':'LineString','coordinates':[[-5,5],[15,5]]}";
    const U: &str =
        "{'type':'Polygon','coordinates':[[[0,0],[4,0],[4,4],[3,4],[3,1],[1,1],[1,4],[0,4],[0,0]]]}";
    let line = |positions: &str| format!("{{'type':'LineString','coordinates':[{positions}]}}");
    let point = |x: f64, y: f64| format!("{{'type':'Point','coordinates':[{x},{y}]}}");
    let rounded = |call: String| format!("ROUND({call})");
    for (expression, expect) in [
        // One degree of longitude on the equator, and of latitude at the pole.
        (rounded(format!("ST_DISTANCE({}, {})", point(0.0, 0.0), point(1.0, 0.0))), "111319"),
        (rounded(format!("ST_DISTANCE({}, {})", point(0.0, 89.0), point(0.0, 90.0))), "111694"),
        // Nearly opposite points.
        (format!("ST_DISTANCE({}, {}) > 19900000", point(0.0, 0.0), point(179.9, 0.1)), "true"),
        (rounded(format!("ST_DISTANCE({}, {SQUARE})", point(11.0, 0.0))), "111319"),
        (format!("ST_DISTANCE({}, {SQUARE})", point(5.0, 5.0)), "0"),
        (format!("ST_WITHIN({}, {SQUARE})", point(5.0, 5.0)), "true"),
        (format!("ST_WITHIN({}, {HOLED})", point(5.0, 5.0)), "false"),
        (format!("ST_WITHIN({}, {SQUARE})", point(50.0, 5.0)), "false"),
        (format!("ST_WITHIN({LINE}, {SQUARE})"), "false"),
        (format!("ST_INTERSECTS({LINE}, {SQUARE})"), "true"),
        (format!("ST_INTERSECTS({}, {SQUARE})", point(20.0, 20.0)), "false"),
        (format!("ST_AREA({SQUARE}) BETWEEN 1.2e12 AND 1.25e12"), "true"),
        (format!("ST_AREA({HOLED}) < ST_AREA({SQUARE})"), "true"),
        (format!("ST_ISVALID({SQUARE})"), "true"),
        // A polygon around a hole does not lie in the polygon with the hole.
        (format!("ST_WITHIN({SQUARE}, {HOLED})"), "false"),
        (format!("ST_WITHIN({HOLED}, {SQUARE})"), "true"),
        (format!("ST_WITHIN({SQUARE}, {SQUARE})"), "true"),
        // In a polygon with the form of a U: a line across the opening, and lines along the outline.
        (format!("ST_WITHIN({}, {U})", line("[1,4],[3,4]")), "false"),
        (format!("ST_WITHIN({}, {U})", line("[0,4],[4,4]")), "false"),
        (format!("ST_WITHIN({}, {U})", line("[0,4],[1,4],[1,1],[3,1],[3,3]")), "true"),
        (format!("ST_WITHIN({}, {U})", line("[0,1],[4,1]")), "true"),
        (format!("ST_WITHIN({}, {U})", line("[0,2],[1,1],[2,0.5]")), "true"),
        (format!("ST_WITHIN({}, {U})", line("[0,2],[2,2]")), "false"),
        (format!("ST_ISVALID({})", point(0.0, 91.0)), "false"),
        (
            format!("ST_ISVALIDDETAILED({})", point(0.0, 91.0)),
            r#"{"valid":false,"reason":"Latitude values must be between -90 and 90 degrees."}"#,
        ),
        ("ST_ISVALID(42)".to_owned(), "false"),
        ("ST_DISTANCE(42, 1337)".to_owned(), "undefined"),
        ("ST_WITHIN({'type':'Point','coordinates':[[]]}, 1)".to_owned(), "undefined"),
        ("ST_ISVALID({'type':'Polygon','coordinates':[[[0,0],[1,0],[1,1],[0,1]]]})".to_owned(), "false"),
    ] {
        check_value(&expression, expect);
    }
}

#[test]
fn a_clockwise_polygon_is_the_earth_outside_of_it() {
    const SQUARE: &str = "{'type':'Polygon','coordinates':[[[0,0],[10,0],[10,10],[0,10],[0,0]]]}";
    const INVERSE: &str = "{'type':'Polygon','coordinates':[[[0,0],[0,10],[10,10],[10,0],[0,0]]]}";
    const SMALL: &str = "{'type':'Polygon','coordinates':[[[4,4],[6,4],[6,6],[4,6],[4,4]]]}";
    const LARGE: &str = "{'type':'Polygon','coordinates':[[[-9,-9],[20,-9],[20,20],[-9,20],[-9,-9]]]}";
    let point = |x: f64, y: f64| format!("{{'type':'Point','coordinates':[{x},{y}]}}");
    for (expression, expect) in [
        (format!("ST_WITHIN({}, {INVERSE})", point(5.0, 5.0)), "false"),
        (format!("ST_WITHIN({}, {INVERSE})", point(50.0, 5.0)), "true"),
        (format!("ST_WITHIN({SMALL}, {INVERSE})"), "false"),
        (format!("ST_WITHIN({LARGE}, {INVERSE})"), "false"),
        (format!("ST_WITHIN({INVERSE}, {LARGE})"), "false"),
        (format!("ST_WITHIN({INVERSE}, {INVERSE})"), "true"),
        (format!("ST_INTERSECTS({SMALL}, {INVERSE})"), "false"),
        (format!("ST_INTERSECTS({LARGE}, {INVERSE})"), "true"),
        (format!("ST_DISTANCE({}, {INVERSE})", point(50.0, 5.0)), "0"),
        (format!("ST_DISTANCE({}, {INVERSE}) > 500000", point(5.0, 5.0)), "true"),
        // Together both areas are the surface of the earth: 510,066 billion square meters.
        (format!("ROUND((ST_AREA({SQUARE}) + ST_AREA({INVERSE})) / 1e9)"), "510066"),
        // The examples of the service's documentation. The area there differs from ours in the tenth digit.
        (
            "ST_AREA({'type':'Polygon','coordinates':[[[31.8,-5],[32,-5],[32,-4.7],[31.8,-4.7],[31.8,-5]]]}) \
             BETWEEN 735970283 AND 735970284"
                .to_owned(),
            "true",
        ),
        (
            "ST_ISVALIDDETAILED({'type':'Polygon','coordinates':[[[31.8,-5],[31.8,-4.7],[32,-4.7],[32,-5]]]})"
                .to_owned(),
            "{\"valid\":false,\"reason\":\"The Polygon input is not valid because the start and end points of the \
             ring number 1 are not the same. Each ring of a polygon must have the same start and end points.\"}",
        ),
    ] {
        check_value(&expression, expect);
    }
}

#[test]
fn random_numbers_differ_from_row_to_row() {
    let documents: Vec<_> = (0..20).map(|n| json(&n.to_string())).collect();
    let numbers = run("SELECT DISTINCT VALUE RAND() FROM c", "[]", &documents).expect("it runs");
    assert_eq!(numbers.len(), 20);
    check_value("RAND() >= 0 AND RAND() < 1", "true");
}
