//! Vector, full-text and hybrid search: functions, order, refusals and plans.

use perihelion_model::json::{Style, Value, to_text};
use perihelion_query::{DistanceFunction, Parameters, VectorEmbedding, compile, parse, plan};

use crate::support::{ALL_FEATURES, Failure, check_all, check_refused, check_value, json, now, run};

#[test]
fn vectors_are_compared_by_cosine_dot_product_or_distance() {
    for (expression, expect) in [
        ("VectorDistance([1, 0], [0, 2])", "0"),
        ("VectorDistance([3, 4], [6, 8])", "1"),
        ("VectorDistance([1, 2], [3, 4], true, {'distanceFunction': 'dotproduct'})", "11"),
        ("VectorDistance([1, 2], [4, 6], false, {'distanceFunction': 'Euclidean'})", "5"),
        ("_VectorScore([1, 2], [4, 6], false, {'distanceFunction': 'euclidean'})", "-5"),
        ("VectorDistance([1, 2], [1, 2, 3])", "undefined"),
        ("VectorDistance([1, 'a'], [1, 2])", "undefined"),
        ("VectorDistance([0, 0], [1, 2])", "undefined"),
        ("VectorDistance([], [])", "undefined"),
        ("VectorDistance('a', [1])", "undefined"),
    ] {
        check_value(expression, expect);
    }
}

/// Story of a bug: a misspelled distance function was ignored, and the rows had the order of another
/// function.
#[test]
fn an_unknown_distance_function_is_refused() {
    let message = |name: &str| {
        format!(
            "The distance function {name} is not known. Use 'cosine', 'dotproduct' or 'euclidean' as distanceFunction."
        )
    };
    check_refused(
        "SELECT VALUE VectorDistance(c.v, [1], false, {'distanceFunction': 'manhattan'}) FROM c",
        &format!("SC2231 13..79 {}", message("\"manhattan\"")),
    );
    check_refused(
        "SELECT c.id FROM c ORDER BY VectorDistance(c.v, [1], false, {'distanceFunction': 7})",
        &format!("SC2231 28..84 {}", message("7")),
    );
}

const POINTS: &str = r#"[{"id":"a","v":[1,0]},{"id":"b","v":[10,1]},{"id":"c","v":[0,1]},{"id":"d"}]"#;

/// Runs a statement on [`POINTS`] in a container whose policy has this function for `/v`.
fn ids_by(query: &str, function: DistanceFunction) -> String {
    let parameters = Parameters::none().with_embeddings(vec![VectorEmbedding::new("/v", function)]);
    let program = compile(&parse(query).expect(query), &parameters, now()).expect(query);
    let Value::Array(documents) = json(POINTS) else { panic!("a list") };
    to_text(&Value::Array(program.run(&documents).expect(query)), Style::Query)
}

#[test]
fn order_by_distance_puts_the_most_similar_document_first() {
    let query = "SELECT VALUE c.id FROM c ORDER BY VectorDistance(c.v, [1, 0])";
    assert_eq!(ids_by(query, DistanceFunction::Cosine), r#"["a","b","c","d"]"#);
    assert_eq!(ids_by(query, DistanceFunction::DotProduct), r#"["b","a","c","d"]"#);
    // A lower Euclidean distance is better, so the order is ascending. A document without a vector
    // would come first, so it is left out.
    assert_eq!(ids_by(query, DistanceFunction::Euclidean), r#"["a","c","b"]"#);
    // The option of the call is stronger than the policy.
    let query = "SELECT VALUE c.id FROM c ORDER BY VectorDistance(c.v, [1, 0], false, {'distanceFunction': 'dotproduct'})";
    assert_eq!(ids_by(query, DistanceFunction::Euclidean), r#"["b","a","c","d"]"#);
}

#[test]
fn full_text_functions_find_words_and_phrases() {
    for (expression, expect) in [
        ("FullTextContains('Red bicycles, and a HELMET', 'bicycle')", "true"),
        ("FullTextContains('Red bicycles, and a HELMET', 'helmets')", "true"),
        ("FullTextContains('steelworks', 'steel')", "false"),
        ("FullTextContains('born in the United States', 'united states')", "true"),
        ("FullTextContains('states that united', 'United States')", "false"),
        ("FullTextContains('the glass is here', 'glass')", "true"),
        ("FullTextContains('mountain', {'term': 'montain', 'distance': 1})", "true"),
        ("FullTextContains('mountain', {'term': 'monten', 'distance': 1})", "false"),
        ("FullTextContainsAll('a b c', 'a', 'c')", "true"),
        ("FullTextContainsAll('a b c', 'a', 'd')", "false"),
        ("FullTextContainsAny('a b c', 'd', 'c')", "true"),
        ("FullTextContainsAny('a b c', 'd')", "false"),
        ("FullTextContains('a', 1)", "undefined"),
        ("FullTextContains(1, 'a')", "undefined"),
        ("_FullTextWordCount('One, two; three-four')", "4"),
        ("_FullTextWordCount(4)", "undefined"),
        ("_FullTextScore('lake', ['river'], 10, 100, [1])", "0"),
        ("_FullTextScore(3, ['river'], 10, 100, [1])", "undefined"),
        // A rare word counts more than a frequent one, a short text more than a long one, and two
        // occurrences more than one.
        ("_FullTextScore('a b', ['a'], 9, 18, [1]) > _FullTextScore('a b', ['a'], 9, 18, [5])", "true"),
        ("_FullTextScore('a b', ['a'], 9, 18, [1]) > _FullTextScore('a b c d', ['a'], 9, 18, [1])", "true"),
        ("_FullTextScore('a a', ['a'], 9, 18, [1]) > _FullTextScore('a b', ['a'], 9, 18, [1])", "true"),
    ] {
        check_value(expression, expect);
    }
}

#[test]
fn the_statistics_of_a_partition_are_one_row() {
    check_all(
        "SELECT COUNT(1) AS documentCount, [{\"totalWordCount\": SUM(_FullTextWordCount(c.t)), \"hitCounts\": \
         [COUNTIF(FullTextContains(c.t, \"lake\"))]}] AS fullTextStatistics FROM c",
        r#"[{"t":"a lake"},{"t":"one two three"},{}]"#,
        r#"[{"documentCount":3,"fullTextStatistics":[{"totalWordCount":5,"hitCounts":[1]}]}]"#,
    );
}

#[test]
fn wrong_uses_of_scores_and_ranks_are_refused() {
    check_refused(
        "SELECT FullTextScore(c.t, 'a') AS s FROM c",
        "SC2240 7..30 The FullTextScore function is only allowed in the ORDER BY RANK clause.",
    );
    check_refused(
        "SELECT * FROM c ORDER BY RANK FullTextScore(c.t, 'a') DESC",
        "SC2242 30..53 Specifying a sort order (ASC or DESC) in the ORDER BY RANK clause is not allowed.",
    );
    check_refused(
        "SELECT * FROM c ORDER BY VectorDistance(c.v, [1]) ASC",
        "SC2230 25..49 Specifying a sorting order (ASC or DESC) with VectorDistance function is not supported.",
    );
    check_refused(
        "SELECT * FROM c ORDER BY RANK RRF(RRF(FullTextScore(c.t, 'a'), FullTextScore(c.t, 'b')), FullTextScore(c.t, 'a'))",
        "SC2005 34..87 'RRF' is not a recognized built-in function name.",
    );
    check_refused(
        "SELECT * FROM c ORDER BY RANK FullTextScore(d.t, 'a')",
        "SC2001 44..45 Identifier 'd' could not be resolved.",
    );
    check_refused(
        "SELECT VALUE (SELECT VALUE 1 FROM c ORDER BY RANK FullTextScore(c.t, 'a')) FROM c",
        "SC2246 50..73 ORDER BY RANK is not allowed in a subquery.",
    );
    check_refused(
        "SELECT VALUE r FROM (SELECT VALUE c.t FROM c ORDER BY RANK FullTextScore(c.t, 'a')) AS r",
        "SC2246 59..82 ORDER BY RANK is not allowed in a subquery.",
    );
}

/// The plan of a statement, as text.
fn plan_text(query: &str, features: &str) -> String {
    let parameters =
        Parameters::from_json(json(r#"[{"name":"@words","value":["lake","sea"]}]"#)).expect("good");
    let plan = plan(&parse(query).expect(query), &parameters, Some(features), &["/pk"]).expect(query);
    to_text(&plan.to_json(), Style::Query)
}

const SEARCH_FEATURES: &str = "HybridSearch,WeightedRankFusion";

/// The score of `c.t` for two keywords, with the placeholders that clients replace.
const SCORE: &str = "_FullTextScore(c.t, [\\\"lake\\\", \\\"sea\\\"], \
    {documentdb-formattablehybridsearchquery-totaldocumentcount}, \
    {documentdb-formattablehybridsearchquery-totalwordcount-0}, \
    {documentdb-formattablehybridsearchquery-hitcountsarray-0})";

#[track_caller]
fn assert_contains(text: &str, part: &str) {
    assert!(text.contains(part), "no\n  {part}\nin\n  {text}");
}

/// A component query asks each partition for at least 120 rows, even if the statement needs only 10.
#[test]
fn a_plan_for_rank_has_statistics_and_one_query_per_score() {
    for words in ["'lake', 'sea'", "['lake', 'sea']", "'lake-sea'", "@words"] {
        let query =
            format!("SELECT TOP 10 c.id FROM c WHERE c.n > 1 ORDER BY RANK FullTextScore(c.t, {words})");
        let text = plan_text(&query, SEARCH_FEATURES);
        assert_contains(
            &text,
            r#""globalStatisticsQuery":"SELECT COUNT(1) AS documentCount, [{\"totalWordCount\": SUM(_FullTextWordCount(c.t)), \"hitCounts\": [COUNTIF(FullTextContains(c.t, \"lake\")), COUNTIF(FullTextContains(c.t, \"sea\"))]}] AS fullTextStatistics\nFROM c""#,
        );
        assert_contains(
            &text,
            &format!(
                r#""rewrittenQuery":"SELECT TOP 120 c._rid, [{{\"item\": {SCORE}}}] AS orderByItems, {{\"payload\": {{\"id\": c.id}}, \"componentScores\": [({SCORE} ?? -1)]}} AS payload\nFROM c\nWHERE ((c.n > 1) AND ({{documentdb-formattableorderbyquery-filter}}))\nORDER BY {SCORE} DESC""#
            ),
        );
        assert_contains(
            &text,
            r#""componentWithoutPayloadQueryInfos":[],"projectionQueryInfo":null,"componentWeights":[],"skip":null,"take":10,"requiresGlobalStatistics":true}"#,
        );
        assert!(!text.contains(r#""queryInfo""#), "{text}");
    }
}

#[test]
fn a_plan_for_rank_fusion_has_a_weight_and_a_direction_per_score() {
    let query = "SELECT * FROM c ORDER BY RANK RRF(VectorDistance(c.v, [0.5, 2]), FullTextScore(c.t, 'lake', 'sea'), [1, -0.3]) OFFSET 5 LIMIT 200";
    let text = plan_text(query, SEARCH_FEATURES);
    let scores = format!("[(_VectorScore(c.v, [0.5, 2]) ?? -1.79769e+308), ({SCORE} ?? 1.79769e+308)]");
    assert_contains(
        &text,
        &format!(
            r#"SELECT TOP 205 c._rid, [{{\"item\": {SCORE}}}] AS orderByItems, {{\"payload\": c, \"componentScores\": {scores}}}"#
        ),
    );
    assert_contains(&text, r#"\nORDER BY _VectorScore(c.v, [0.5, 2])""#);
    assert_contains(&text, &format!(r#"\nORDER BY {SCORE} ASC""#));
    assert_contains(
        &text,
        r#""orderBy":["Descending"],"orderByExpressions":["_VectorScore(c.v, [0.5, 2])"]"#,
    );
    assert_contains(&text, r#""orderBy":["Ascending"]"#);
    assert_contains(
        &text,
        r#""componentWeights":[1,0.3],"skip":5,"take":200,"requiresGlobalStatistics":true"#,
    );
}

#[test]
fn a_client_can_ask_for_component_queries_without_sort_keys() {
    let query = "SELECT TOP 10 c.id FROM c WHERE c.n > 1 ORDER BY RANK RRF(VectorDistance(c.v, [1]), VectorDistance(c.w, [2]), [1, -2])";
    let text = plan_text(query, "HybridSearch, WeightedRankFusion, HybridSearchSkipOrderByRewrite");
    assert_contains(
        &text,
        r#""rewrittenQuery":"SELECT TOP 120 c._rid, {\"id\": c.id} AS payload, [(_VectorScore(c.v, [1]) ?? -1.79769e+308), (-1 * (_VectorScore(c.w, [2]) ?? 1.79769e+308))] AS componentScores\nFROM c\nWHERE (c.n > 1)\nORDER BY _VectorScore(c.w, [2]) ASC""#,
    );
    assert_contains(&text, r#""requiresGlobalStatistics":false"#);
    // The query of a single score keeps its sort keys. The client takes the sort key as the score.
    let query = "SELECT TOP 10 * FROM c ORDER BY RANK FullTextScore(c.t, 'lake', 'sea')";
    let text = plan_text(query, "HybridSearch, HybridSearchSkipOrderByRewrite");
    assert_contains(&text, r#"{\"payload\": c, \"componentScores\": []} AS payload"#);
}

#[test]
fn a_client_that_does_not_list_the_features_of_search_gets_no_plan() {
    let refused = |query: &str, features: &str| {
        let query = parse(query).expect(query);
        plan(&query, &Parameters::none(), Some(features), &[]).map(|_| ()).expect_err("no plan").to_string()
    };
    let rank =
        "SELECT TOP 1 * FROM c ORDER BY RANK RRF(FullTextScore(c.t, 'a'), FullTextScore(c.t, 'b'), [1, 2])";
    assert_contains(&refused(rank, "OrderBy,Top"), "contained HybridSearch, which");
    assert_contains(&refused(rank, "HybridSearch"), "contained WeightedRankFusion, which");
    let vectors = "SELECT TOP 1 * FROM c ORDER BY VectorDistance(c.v, [1])";
    assert_contains(&refused(vectors, "OrderBy,Top"), "contained NonStreamingOrderBy, which");
    let query = parse(vectors).expect(vectors);
    let plan = plan(&query, &Parameters::none(), Some(ALL_FEATURES), &[]).expect("a plan");
    let text = to_text(&plan.to_json(), Style::Query);
    assert_contains(&text, r#""orderBy":["Descending"],"#);
    assert_contains(&text, r#""hasNonStreamingOrderBy":true"#);
}

#[test]
fn order_by_sorts_by_paths_and_not_by_computed_values() {
    check_refused(
        "SELECT * FROM c ORDER BY UPPER(c.name)",
        "SC2206 25..38 Unsupported ORDER BY clause. ORDER BY item expression could not be mapped to a document path.",
    );
    check_refused(
        "SELECT * FROM c ORDER BY c.a + 1",
        "SC2206 25..32 Unsupported ORDER BY clause. ORDER BY item expression could not be mapped to a document path.",
    );
    // Constants are refused too, as EF Core's tests of `ORDER BY true` and `ORDER BY 3` show.
    for constant in ["true", "3", "'a'", "1 + 1", "undefined"] {
        let query = format!("SELECT * FROM c ORDER BY {constant}");
        let end = 25 + constant.len();
        let message =
            "Unsupported ORDER BY clause. ORDER BY item expression could not be mapped to a document path.";
        check_refused(&query, &format!("SC2206 25..{end} {message}"));
    }
    let parameter = run("SELECT * FROM c ORDER BY @p", r#"[{"name":"@p","value":5}]"#, &[]);
    assert!(matches!(parameter, Err(Failure::Invalid(errors)) if errors[0].code == "SC2206"));
    // A distance between points is the exception.
    check_all(
        "SELECT VALUE c.id FROM c ORDER BY ST_DISTANCE(c.p, {'type':'Point','coordinates':[0,0]})",
        r#"[{"id":1,"p":{"type":"Point","coordinates":[2,0]}},{"id":2,"p":{"type":"Point","coordinates":[1,0]}}]"#,
        "[2,1]",
    );
}
