//! Hostile input is refused, or evaluated within the limits of time and memory.

use perihelion_model::json::Value;
use perihelion_query::{
    ComputedProperties, EvaluationError, Parameters, PatchCondition, Row, RowPlace, compile, compile_with,
    parse, partition_keys, plan,
};
use perihelion_testkit::Random;

use crate::support::{Failure, json, now, run};

/// Runs `work` with a stack of 1 MB, half the stack of a worker thread. In a server the other
/// half is for the callers of this crate.
fn on_a_small_stack(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(1024 * 1024).spawn(work).expect("a thread");
    thread.join().expect("no overflow and no panic");
}

#[test]
fn deep_nesting_is_refused_before_the_stack_overflows() {
    on_a_small_stack(|| {
        let deep = 50_000;
        for (open, middle, close) in [
            ("(", "1", ")"),
            ("[", "1", "]"),
            ("{'a':", "1", "}"),
            ("NOT ", "true", ""),
            ("- ", "1", ""),
            ("ABS(", "1", ")"),
            ("(SELECT VALUE ", "1", ")"),
            ("1 ? 2 : ", "3", ""),
            ("1 + ", "1", ""),
            ("c.x[", "1", "]"),
            ("", "1", " + 1"),
            ("", "c", ".a"),
            ("", "c", "[0]"),
            ("1 ?? ", "1", ""),
            ("ARRAY(SELECT VALUE x FROM x IN (SELECT VALUE ", "1", "))"),
            ("(SELECT VALUE COUNT(1) FROM (SELECT VALUE ", "1", ") AS x)"),
            ("EXISTS(SELECT VALUE 1 WHERE [{'a': ", "c", "}] = 1 OR true)"),
            ("'a' LIKE (1 BETWEEN 0 AND (2 IN (", "1", ")))"),
        ] {
            for depth in [10, 90, 150, deep] {
                let query =
                    format!("SELECT VALUE {}{middle}{} FROM c", open.repeat(depth), close.repeat(depth));
                // A statement may be refused. An accepted statement is printed, planned and
                // run, which must not overflow the stack.
                if let Ok(query) = parse(&query) {
                    let _ = query.normal_form();
                    let _ = plan(&query, &Parameters::none(), None, &["/pk"]);
                    if let Ok(program) = compile(&query, &Parameters::none(), now()) {
                        let _ = program.rows(&json("{}"), &mut Vec::new());
                    }
                } else {
                    assert!(depth >= 90, "refused: {open}{middle}{close} {depth} times");
                }
            }
        }
        assert!(parse(&format!("SELECT VALUE {}1{}", "(".repeat(60), ")".repeat(60))).is_ok());
        assert!(parse(&format!("SELECT VALUE 1{}", " + 1".repeat(100))).is_ok());
    });
}

#[test]
fn long_chains_and_lists_run_on_a_small_stack() {
    on_a_small_stack(|| {
        let chain: Vec<String> = (0..20_000).map(|n| format!("c.a = {n}")).collect();
        let document = json(r#"{"a":19999}"#);
        // GROUP BY may have 64 expressions.
        let groups =
            |count: usize| format!("SELECT VALUE 1 FROM c GROUP BY c.a{}", ", c.a".repeat(count - 1));
        assert!(parse(&groups(64)).is_ok());
        assert!(parse(&groups(65)).is_err());
        for query in [
            format!("SELECT VALUE 1 FROM c WHERE {}", chain.join(" OR ")),
            format!("SELECT VALUE 1 FROM c WHERE NOT ({})", chain[..19_000].join(" OR ")),
            format!(
                "SELECT VALUE 1 FROM c WHERE c.a IN ({})",
                (0..60_000).map(|n| n.to_string()).collect::<Vec<_>>().join(",")
            ),
        ] {
            assert_eq!(run(&query, "[]", std::slice::from_ref(&document)).expect("runs").len(), 1);
            // The normal form begins with thousands of parentheses.
            let normal = parse(&query).expect("parses").normal_form();
            assert!(normal.len() > query.len());
            assert_eq!(parse(&normal).expect("parses again").normal_form(), normal);
        }
    });
}

/// A statement may have 512 KB and 10 joins.
#[test]
fn statements_that_are_too_long_or_malformed_or_have_too_many_joins_are_refused() {
    let long = format!("SELECT VALUE '{}'", "x".repeat(512 * 1024));
    assert_eq!(parse(&long).expect_err("too long")[0].code, "SC3000");
    let joins = |count: usize| format!("SELECT VALUE 1 FROM c{}", " JOIN x IN c.x".repeat(count));
    assert!(parse(&joins(10)).is_ok());
    assert!(parse(&joins(11)).is_err());
    for query in [
        "SELECT 'abc",
        "SELECT \"abc\\",
        "SELECT VALUE 'a\\q'",
        "SELECT VALUE '\\u12'",
        "SELECT 1e999",
        "SELECT @",
        "\u{0}",
        "SELECT \u{feff}1",
        "é",
    ] {
        assert!(parse(query).is_err(), "{query}");
    }
}

#[test]
fn statements_that_multiply_rows_or_text_run_out_of_budget() {
    let wide = json(&format!(r#"{{"a":[{}]}}"#, vec!["1"; 200].join(",")));
    let product =
        format!("SELECT VALUE 1 FROM c{}", (0..6).map(|n| format!(" JOIN x{n} IN c.a")).collect::<String>());
    let count = format!(
        "SELECT VALUE (SELECT VALUE COUNT(1) FROM x IN c.a{}) FROM c",
        (0..5).map(|n| format!(" JOIN x{n} IN c.a")).collect::<String>()
    );
    let mut doubling = "SELECT VALUE [c.a, c.a] FROM c".to_owned();
    for _ in 0..20 {
        doubling = format!("SELECT VALUE [x, x] FROM ({doubling}) x");
    }
    let replace = "SELECT VALUE REPLACE(REPLACE(REPLICATE('a', 10000), 'a', REPLICATE('b', 10000)), 'b', REPLICATE('c', 10000))".to_owned();
    let mut concat = "REPLICATE('a', 10000)".to_owned();
    for _ in 0..20 {
        concat = format!("(SELECT VALUE CONCAT(x, x) FROM (SELECT VALUE {concat}) x)");
    }
    for query in [product, count, doubling, replace, format!("SELECT VALUE {concat}")] {
        match run(&query, "[]", std::slice::from_ref(&wide)) {
            Err(Failure::Evaluation(EvaluationError::TooMuchWork)) => {}
            other => panic!("{}: {:?}", &query[..query.len().min(80)], other.map(|rows| rows.len())),
        }
    }
}

#[test]
fn comparisons_and_lookups_for_every_row_run_out_of_budget() {
    let zeros = vec!["0"; 300_000].join(",");
    let empty = vec![r#""""#; 300_000].join(",");
    let members = (0..20_000).map(|n| format!(r#""m{n:05}":{n}"#)).collect::<Vec<_>>().join(",");
    let long = "x".repeat(1_000_000);
    // Every value has an equal one, so that a comparison cannot end early.
    let document = json(&format!(
        r#"{{"l":[{zeros}],"a":[{zeros}],"b":[{zeros}],"e":[{empty}],"s":"{long}","t":"{long}","o":{{{members}}},"p":{{{members}}}}}"#
    ));
    for filter in [
        "c.a != c.b",
        "c.s != c.t",
        "c.s < c.t",
        "c.s NOT BETWEEN c.t AND c.t",
        "c.s NOT IN (c.t)",
        "c.o != c.p",
        "c.o.m19999 != 19999",
        "c.o['m19999'] != 19999",
        "NOT ARRAY_CONTAINS([c.a], c.b)",
        "NOT ARRAY_CONTAINS([c.o], c.p, true)",
        "NOT ARRAY_CONTAINS_ALL([c.a], c.b)",
        "SetEqual(SetIntersect(c.a, []), [1])",
        "SetEqual(SetDifference(c.a, []), [1])",
        "LENGTH(c.s) = 0",
        "TRIM(c.s, c.t) != ''",
        "TRIM('', c.t) != ''",
        "INDEX_OF('x', c.s) != -1",
        "REPLACE('x', c.s, '') != 'x'",
        "ARRAY_LENGTH(StringSplit('x', c.s)) != 1",
        "StringJoin(c.e, '') != ''",
        "'x' LIKE c.s",
        "(SELECT VALUE MIN(y) FROM y IN (SELECT VALUE [c.s])) = ''",
        "(SELECT VALUE MAX(c.s) FROM y IN c.l) = ''",
        "(SELECT VALUE COUNT(1) FROM y IN c.l GROUP BY c.s) = 0",
    ] {
        let started = std::time::Instant::now();
        let condition = PatchCondition::compile(
            &format!("from c where exists(select value 1 from x in c.l where {filter})"),
            now(),
        )
        .unwrap_or_else(|diagnostics| panic!("{filter}: {diagnostics:?}"));
        let mut work_left = 1_000_000;
        let outcome = condition.matches_within(&document, &mut work_left);
        assert_eq!(outcome, Err(EvaluationError::TooMuchWork), "{filter}");
        // If comparisons were not charged to the budget, this would take minutes.
        assert!(started.elapsed() < std::time::Duration::from_secs(20), "{filter}: {:?}", started.elapsed());
        // A single evaluation of the filter is within the budget, except for the filters that read a
        // list in a subquery or trim a million characters.
        let statement = format!("SELECT VALUE 1 FROM c WHERE NOT ({filter})");
        if !filter.contains("y IN") && !filter.contains("TRIM(c.s") {
            let rows = run(&statement, "[]", std::slice::from_ref(&document));
            assert_eq!(rows.map(|rows| rows.len()), Ok(1), "{filter}");
        }
    }
}

/// Story of a bug: long sets of LIKE, long values in a list of IN, and long texts of dates were charged
/// like short ones, and each of these statements took minutes for one document.
#[test]
fn filters_with_long_sets_lists_and_texts_end_within_the_limits() {
    let zeros = vec!["0"; 300_000].join(",");
    let long = "x".repeat(1_000_000);
    let document = json(&format!(r#"{{"l":[{zeros}],"o":{{}},"x":"x","s":"{long}"}}"#));
    let members = (0..5000).map(|n| format!("'m{n}':{n}")).collect::<Vec<_>>().join(",");
    let set = "a".repeat(10_000);
    for (filter, is_too_much) in [
        (format!("c.x LIKE '[{set}]'"), true),
        (format!("c.o IN ({{{members}}})"), true),
        (format!("c.x IN ({{{members}}})"), false),
        ("DateTimeToTicks(c.s) = 0".to_owned(), false),
        ("DateTimePart(c.s, '2020-01-01') = 0".to_owned(), false),
    ] {
        let started = std::time::Instant::now();
        let query =
            format!("SELECT VALUE 1 FROM c WHERE EXISTS(SELECT VALUE 1 FROM x IN c.l WHERE {filter})");
        let outcome = run(&query, "[]", std::slice::from_ref(&document));
        let expected =
            if is_too_much { Err(Failure::Evaluation(EvaluationError::TooMuchWork)) } else { Ok(vec![]) };
        assert_eq!(outcome, expected, "{filter:.40}");
        let elapsed = started.elapsed();
        assert!(elapsed < std::time::Duration::from_secs(20), "{filter:.40}: {elapsed:?}");
    }
}

/// Each use of a parameter is a copy of its value. A statement of 512 KB can name a parameter a hundred
/// thousand times.
#[test]
fn a_statement_that_uses_a_large_parameter_very_often_is_refused() {
    let parameters = format!(r#"[{{"name":"@p","value":"{}"}}]"#, "x".repeat(1_000_000));
    let select = |uses: usize| format!("SELECT VALUE ARRAY_LENGTH([{}])", vec!["@p"; uses].join(","));
    assert_eq!(run(&select(20), &parameters, &[]), Ok(vec![json("20")]));
    let Err(Failure::Invalid(diagnostics)) = run(&select(100_000), &parameters, &[]) else {
        panic!("100 GB of copies are refused")
    };
    assert_eq!(diagnostics.len(), 1, "{diagnostics:?}");
    assert!(diagnostics[0].message.contains("more than the maximum of 64 MB"), "{diagnostics:?}");
}

/// A constant pattern takes 36 bytes for each of its characters: these would take 2 GB.
#[test]
fn a_statement_with_very_many_long_patterns_of_like_is_refused() {
    let parameters = format!(r#"[{{"name":"@p","value":"{}"}}]"#, "x".repeat(16_384));
    let select =
        |uses: usize| format!("SELECT VALUE 1 FROM c WHERE {}", vec!["c.a LIKE @p"; uses].join(" OR "));
    assert_eq!(run(&select(50), &parameters, &[]), Ok(vec![]));
    let Err(Failure::Invalid(diagnostics)) = run(&select(4_000), &parameters, &[]) else {
        panic!("2 GB of patterns are refused")
    };
    assert_eq!(diagnostics.len(), 1, "{diagnostics:?}");
}

/// Each use of a computed property is a copy of its expression, with its constants.
#[test]
fn a_statement_that_uses_a_large_computed_property_very_often_is_refused() {
    let long = format!("SELECT VALUE CONCAT(c.a, '{}') FROM c", "x".repeat(400_000));
    let wide = format!("SELECT VALUE [{}] FROM c", vec!["c.a"; 50_000].join(","));
    for property in [long.as_str(), wide.as_str()] {
        let computed = ComputedProperties::parse(&[("p", property)]).expect("a computed property");
        let compile = |uses: usize| {
            let statement = format!("SELECT VALUE [{}] FROM c", vec!["c.p"; uses].join(","));
            compile_with(&parse(&statement).expect("parses"), &Parameters::none(), &computed, now())
        };
        assert!(compile(5).is_ok(), "{property:.40}");
        let diagnostics = compile(10_000).expect_err("gigabytes of copies are refused");
        assert_eq!(diagnostics.len(), 1, "{diagnostics:?}");
    }
}

/// No budget bounds the derivation of a statement's partition keys, so it must be quick for every
/// statement.
#[test]
fn partition_keys_of_very_many_long_lists_are_derived_quickly() {
    let names: Vec<String> = (0..1000).map(|n| format!("@p{n:03}")).collect();
    let members = (0..15).map(|n| format!(r#""member{n:02}":1"#)).collect::<Vec<_>>().join(",");
    for value in [
        |n: usize, _: &str| format!(r#""key{n}""#),
        |n: usize, members: &str| format!(r#"{{{members},"member15":{n}}}"#),
    ] {
        let list: Vec<String> = names
            .iter()
            .enumerate()
            .map(|(n, name)| format!(r#"{{"name":"{name}","value":{}}}"#, value(n, &members)))
            .collect();
        let parameters = Parameters::from_json(json(&format!("[{}]", list.join(",")))).expect("parameters");
        let condition = format!("c.pk IN ({})", names.join(","));
        let statement = format!("SELECT * FROM c WHERE {}", vec![condition; 40].join(" AND "));
        let query = parse(&statement).expect("parses");
        let started = std::time::Instant::now();
        partition_keys(&query, &parameters, &["/pk"]).expect("keys");
        let elapsed = started.elapsed();
        assert!(elapsed < std::time::Duration::from_secs(10), "{elapsed:?}");
    }
}

/// Story of a bug: the condition of a patch could have 500 patterns like a statement, and a batch has up
/// to a hundred conditions. Now a condition may have 10 patterns.
#[test]
fn a_patch_condition_with_too_many_patterns_is_refused() {
    let condition =
        |calls: usize| format!("from c where {}", vec!["RegexMatch(c.s, 'a')"; calls].join(" OR "));
    assert!(PatchCondition::compile(&condition(10), now()).is_ok());
    let diagnostics = PatchCondition::compile(&condition(11), now()).expect_err("too many patterns");
    assert_eq!(diagnostics.iter().map(|found| found.code).collect::<Vec<_>>(), ["SC3000"]);
}

/// Story of a bug: a `[` without `]` stands for itself, but each `[` searched the whole rest of the pattern
/// for its `]`.
#[test]
fn a_pattern_of_many_open_brackets_takes_linear_time() {
    let open = "[".repeat(500_000);
    let started = std::time::Instant::now();
    let query = format!("SELECT VALUE 'x' LIKE '[]]{open}'");
    assert_eq!(run(&query, "[]", &[]), Ok(vec![false.into()]));
    assert!(started.elapsed() < std::time::Duration::from_secs(20), "{:?}", started.elapsed());
}

#[test]
fn patterns_with_many_ways_to_match_take_bounded_time() {
    let text = "a".repeat(100_000);
    let like = format!("SELECT VALUE '{text}' LIKE '{}b'", "%a".repeat(50));
    let regex = format!("SELECT VALUE RegexMatch('{text}', '(a*)*(a*)*b')");
    let started = std::time::Instant::now();
    for query in [like, regex] {
        let _ = run(&query, "[]", &[]);
    }
    assert!(started.elapsed() < std::time::Duration::from_secs(20), "{:?}", started.elapsed());
}

/// Words for random statements.
const WORDS: &[&str] = &[
    "SELECT",
    "VALUE",
    "*",
    "DISTINCT",
    "TOP",
    "1",
    "2.5",
    "1e3",
    "FROM",
    "c",
    "c.a",
    "x",
    "IN",
    "JOIN",
    "WHERE",
    "AND",
    "OR",
    "NOT",
    "BETWEEN",
    "LIKE",
    "ESCAPE",
    "'a'",
    "\"b\"",
    "'%'",
    "@p",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ":",
    ",",
    ".",
    "?",
    "??",
    "||",
    "+",
    "-",
    "/",
    "%",
    "&",
    "|",
    "^",
    "~",
    "=",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "GROUP",
    "BY",
    "ORDER",
    "ASC",
    "DESC",
    "OFFSET",
    "LIMIT",
    "RANK",
    "EXISTS",
    "ARRAY",
    "ALL",
    "udf",
    "COUNT",
    "SUM",
    "AVG",
    "MIN",
    "MAX",
    "ABS",
    "CONCAT",
    "SUBSTRING",
    "DateTimeAdd",
    "null",
    "true",
    "undefined",
    "AS",
    "é",
    ";",
    "\\",
    "'",
    "\"",
    "-9223372036854775808",
    "c[0]",
    "(SELECT VALUE 1)",
    "COUNT(1)",
    "c.a = 1",
    "FROM c",
    "SELECT VALUE",
    "LOWER(c.s)",
    "REPLICATE('a', 99)",
];

/// Parses, plans and runs a text; returns whether it compiles.
fn exercise(text: &str) -> bool {
    let Ok(query) = parse(text) else { return false };
    let normal = query.normal_form();
    assert!(parse(&normal).is_ok(), "the normal form of {text} is refused: {normal}");
    let parameters = Parameters::from_json(json(r#"[{"name":"@p","value":3}]"#)).expect("good");
    let _ = plan(&query, &parameters, Some("Aggregate"), &["/a"]).map(|plan| plan.to_json());
    let Ok(program) = compile(&query, &parameters, now()) else { return false };
    let document = json(r#"{"a":[1,{"b":2},"x"],"s":"Text","n":-1}"#);
    let mut rows = Vec::new();
    let _ = program.rows(&document, &mut rows);
    let _ = program.matches(&document);
    let mut accumulator = program.accumulator();
    let _ = accumulator.add(&document);
    if let Ok(groups) = accumulator.finish() {
        rows.extend(groups);
    }
    program.arrange(rows);
    true
}

#[test]
fn random_words_never_panic() {
    on_a_small_stack(|| {
        let mut accepted = 0;
        for seed in 0..30_000 {
            let mut random = Random::new(seed);
            let length = 1 + random.index(14);
            let mut words = vec!["SELECT"];
            words.extend((0..length).map(|_| WORDS[random.index(WORDS.len())]));
            if seed % 4 == 0 {
                words.remove(0);
            }
            accepted += usize::from(exercise(&words.join(" ")));
        }
        assert!(accepted > 100, "only {accepted} statements compile");
    });
}

#[test]
fn random_bytes_never_panic() {
    on_a_small_stack(|| {
        let valid = "SELECT TOP 3 c.a, [1, {'x': @p}] AS y FROM c JOIN t IN c.a WHERE c.n BETWEEN -1 AND 2 ORDER BY c.s DESC";
        for seed in 0..20_000 {
            let mut random = Random::new(seed);
            let mut bytes = valid.as_bytes().to_vec();
            for _ in 0..=random.index(6) {
                let position = random.index(bytes.len());
                match random.index(3) {
                    0 => bytes[position] = random.index(256) as u8,
                    1 => {
                        bytes.remove(position);
                    }
                    _ => bytes.insert(position, b"'\"\\()[]{}.,@-+*/%"[random.index(17)]),
                }
            }
            exercise(&String::from_utf8_lossy(&bytes));
        }
    });
}

/// Story of a bug: these functions were charged almost nothing, and each of these statements took
/// minutes or hours for one document.
#[test]
fn full_text_and_spatial_functions_end_within_the_limits() {
    let words = |word: &str, count: usize| vec![word; count].join(" ");
    let text = json(&format!(r#"{{"t":"{}"}}"#, words("a", 500_000)));
    let phrase = format!(r#"[{{"name":"@k","value":"{} b"}}]"#, words("a", 100_000));
    let long = "x".repeat(1 << 20);
    let fuzzy = format!(r#"[{{"name":"@k","value":{{"term":"{long}","distance":1}}}}]"#);
    let points: Vec<String> = (0..100_000).map(|n| format!("[{}.5,1]", n % 90)).collect();
    let list = vec!["0"; 1000].join(",");
    let line = json(&format!(
        r#"{{"x":[{list}],"g":{{"type":"LineString","coordinates":[{}]}}}}"#,
        points.join(",")
    ));
    let started_at = std::time::Instant::now();
    for (query, parameters, document, is_refused) in [
        ("SELECT VALUE FullTextContains(c.t, @k) FROM c", phrase.as_str(), &text, true),
        ("SELECT VALUE FullTextContains(c.t, @k) FROM c", fuzzy.as_str(), &text, false),
        ("SELECT VALUE COUNT(1) FROM c JOIN a IN c.x JOIN b IN c.x WHERE ST_ISVALID(c.g)", "[]", &line, true),
        ("SELECT VALUE ST_DISTANCE(c.g, c.g) FROM c", "[]", &line, true),
    ] {
        let outcome = run(query, parameters, std::slice::from_ref(document));
        let is_too_much = matches!(outcome, Err(Failure::Evaluation(EvaluationError::TooMuchWork)));
        assert_eq!(is_too_much, is_refused, "{query}: {outcome:?}");
    }
    assert!(started_at.elapsed().as_secs() < 60, "{:?}", started_at.elapsed());
}

/// The plan of a fusion has a statement for each score, and each statement computes all scores. So
/// the size of the plan grows with the square of their number.
#[test]
fn a_fusion_of_many_scores_or_long_keywords_is_refused() {
    let fusion = |scores: usize, keyword: &str| {
        let score = format!("FullTextScore(c.a, '{keyword}')");
        format!("SELECT TOP 1 * FROM c ORDER BY RANK RRF({})", vec![score; scores].join(", "))
    };
    assert!(run(&fusion(32, "x"), "[]", &[]).is_ok());
    for query in [fusion(33, "x"), fusion(2, &"x".repeat(5000))] {
        assert!(matches!(run(&query, "[]", &[]), Err(Failure::Invalid(_))));
    }
}

/// The rows of a document, read in parts of at most `part` rows.
fn rows_in_parts(program: &perihelion_query::Program, document: &Value, part: u64) -> Vec<(u64, Row)> {
    let mut rows = Vec::new();
    let mut start = Some(RowPlace::default());
    while let Some(place) = start {
        let mut left = part;
        start = program
            .rows_from(document, &place, &mut |number, _, row| {
                let is_taken = left > 0;
                if is_taken {
                    left -= 1;
                    rows.push((number, row));
                }
                is_taken
            })
            .expect("it runs");
    }
    rows
}

#[test]
fn reading_the_rows_of_a_document_in_parts_returns_the_same_rows() {
    let document = json(r#"{"a":[1,[2,3],[],{"b":[4,5]},[6]],"n":[7,8,9]}"#);
    for text in [
        "SELECT VALUE x FROM x IN c.a",
        "SELECT x, y FROM c JOIN x IN c.a JOIN y IN c.n",
        "SELECT x, y FROM c JOIN x IN c.a JOIN y IN x",
        "SELECT x, y, z FROM c JOIN x IN c.a JOIN y IN x.b JOIN z IN c.n WHERE z != 8",
        "SELECT VALUE [x, s] FROM c JOIN x IN c.n JOIN (SELECT VALUE y FROM y IN c.n WHERE y > x) AS s",
        "SELECT VALUE x.b FROM c JOIN x IN c.a",
        "SELECT * FROM c",
        "SELECT VALUE x FROM x IN c.nothing",
    ] {
        let program = compile(&parse(text).expect(text), &Parameters::none(), now()).expect(text);
        let mut whole = Vec::new();
        program.rows(&document, &mut whole).expect(text);
        for part in 1..5 {
            let parts = rows_in_parts(&program, &document, part);
            assert!(parts.iter().map(|(number, _)| *number).eq(0..whole.len() as u64), "{text}");
            assert!(parts.iter().map(|(_, row)| row).eq(&whole), "{text}");
        }
    }
}

#[test]
fn reading_from_a_place_that_is_gone_continues_with_the_next_row() {
    let document = json(r#"{"a":[[1,2],[3]]}"#);
    let text = "SELECT VALUE y FROM c JOIN x IN c.a JOIN y IN x";
    let program = compile(&parse(text).expect(text), &Parameters::none(), now()).expect(text);
    for (elements, expected) in [
        (vec![0, 7], vec![3]),
        (vec![0, 1, 9, 9], vec![2, 3]),
        (vec![1], vec![3]),
        (vec![2], vec![]),
        (vec![u32::MAX, u32::MAX], vec![]),
    ] {
        let mut values = Vec::new();
        let start = RowPlace { row: 0, elements };
        let end = program.rows_from(&document, &start, &mut |_, _, row| {
            values.push(row.output.and_then(|value| value.as_i64()).expect("a number"));
            true
        });
        assert_eq!((end, values), (Ok(None), expected), "{start:?}");
    }
}

#[test]
fn a_single_row_that_needs_too_much_work_is_an_error() {
    let items: Vec<String> = (0..4000).map(|n| n.to_string()).collect();
    let document = json(&format!(r#"{{"items":[{}]}}"#, items.join(",")));
    let text = "SELECT VALUE (SELECT VALUE COUNT(1) FROM x IN c.items JOIN y IN c.items) FROM c";
    let program = compile(&parse(text).expect(text), &Parameters::none(), now()).expect(text);
    let outcome = program.rows_from(&document, &RowPlace::default(), &mut |_, _, _| true);
    assert_eq!(outcome, Err(EvaluationError::TooMuchWork));
}
