//! The planner against `query-plans.json`, the plans of the service's planner.

use perihelion_model::json::{Style, Value, to_text};
use perihelion_query::{
    DistanceFunction, Parameters, PartitionKeyFilter, PlanError, QueryPlan, VectorEmbedding, errors_to_json,
    parse, partition_keys, plan,
};

use crate::support::{ALL_FEATURES, conformance, json, text};

/// The parameters of the statements in the file.
const PARAMETERS: &str = r#"[{"name":"@TOPCOUNT","value":42},{"name":"@LIKEPATTERN","value":"%a%"}]"#;

/// The beginning of a plan in the error text of a client that refused the plan, because a number in it was
/// too large for the client. The file has only the beginning of the text.
const REFUSED_PLAN: &str = "ExpectedQueryPartitionProviderException : {\"queryInfo\":";

/// Cases for which our plan asks every partition and the file has narrower `ranges`:
/// description, reason.
const WIDER_RANGES: &[(&str, &str)] = &[
    ("BETWEEN and point", "range partitioning does not exist any more"),
    ("Number Range On Partition Key (MaxNumber)", "range partitioning does not exist any more"),
    ("String Range On Partition Key (MaxString)", "range partitioning does not exist any more"),
];

#[test]
fn every_plan_equals_the_plan_in_the_conformance_file() {
    let cases = conformance("query-plans.json");
    let parameters = Parameters::from_json(json(PARAMETERS)).expect("good parameters");
    let (mut passed, mut failures) = (0, Vec::new());
    for case in &cases {
        let (group, name) = (text(case, "group"), text(case, "description"));
        match compare(case, &on_container_of(name, parameters.clone())) {
            None => passed += 1,
            Some(difference) => failures.push(format!("{group} / {name}: {difference}")),
        }
    }
    let wider = WIDER_RANGES.len();
    println!("query-plans.json: {passed} of {} pass, {wider} of these with wider ranges", cases.len());
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

/// The parameters for the container of a case. The file does not have the container's vectors
/// and its kind of coordinates, but the description names the distance function and *Geometry*.
fn on_container_of(description: &str, parameters: Parameters) -> Parameters {
    let function = if description.starts_with("Euclidean") {
        DistanceFunction::Euclidean
    } else {
        DistanceFunction::Cosine
    };
    let is_planar = description.ends_with(" Geometry");
    parameters
        .with_embeddings(vec![VectorEmbedding::new("/embedding", function)])
        .with_planar_geometry(is_planar)
}

/// Plans the statement of a case and compares the outcome with the file. `None` when they are equal.
fn compare(case: &Value, parameters: &Parameters) -> Option<String> {
    let query = text(case, "query");
    let paths: Vec<&str> = case.get("partition_keys")?.as_array()?.iter().filter_map(Value::as_str).collect();
    let found = parse(query)
        .map_err(PlanError::Invalid)
        .and_then(|query| plan(&query, parameters, Some(ALL_FEATURES), &paths));
    match (found, case.get("error")) {
        (Ok(plan), None) => compare_info(case, &plan).or_else(|| compare_ranges(case, &plan)),
        (Err(error), Some(wanted)) => compare_error(&error, wanted, query),
        (Ok(plan), Some(Value::String(wanted))) if wanted.contains(REFUSED_PLAN) => {
            compare_refused_plan(&plan, wanted)
        }
        (Ok(_), Some(wanted)) => Some(format!("got a plan, wanted {}", to_text(wanted, Style::Query))),
        (Err(error), None) => Some(format!("refused: {error}")),
    }
}

/// Compares a plan with the beginning of the plan that the client of the recording refused.
fn compare_refused_plan(plan: &QueryPlan, wanted: &str) -> Option<String> {
    let (_, recorded) = wanted.split_once(REFUSED_PLAN)?;
    let (members, _) = recorded.rsplit_once(",\"").expect("a plan with two members at least");
    let recorded = json(&format!("{members}}}"));
    let body = plan.to_json();
    let info = body.get("queryInfo").expect("a plan has its info");
    let Value::Object(recorded) = &recorded else {
        return Some("the recorded plan is not an object".to_owned());
    };
    recorded.iter().find_map(|(name, value)| {
        (info.get(name) != Some(value))
            .then(|| format!("{name}: wanted {value:?}, found {:?}", info.get(name)))
    })
}

/// Compares a plan with the plan in the file. The file has PascalCase names, counts
/// as text, and null for empty lists.
fn compare_info(case: &Value, plan: &QueryPlan) -> Option<String> {
    let body = plan.to_json();
    let info = body.get("queryInfo").expect("a plan has its info");
    let wanted = case.get("info").expect("a plan case has its info");
    let differ = |what: &str, wanted: &str, found: &str| {
        (wanted != found).then(|| format!("{what}\n  wanted {wanted}\n  found  {found}"))
    };
    let plain = |value: Option<&Value>| match value {
        None | Some(Value::Null) => "null".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(items)) if items.is_empty() => "null".to_owned(),
        Some(other) => to_text(other, Style::Query),
    };
    for (name_in_file, name) in [
        ("DistinctType", "distinctType"),
        ("Top", "top"),
        ("Offset", "offset"),
        ("Limit", "limit"),
        ("GroupByExpressions", "groupByExpressions"),
        ("OrderBy", "orderBy"),
        ("OrderByExpressions", "orderByExpressions"),
        ("Aggregates", "aggregates"),
        ("GroupByAliases", "groupByAliases"),
    ] {
        let difference = differ(name, &plain(wanted.get(name_in_file)), &plain(info.get(name)));
        if difference.is_some() {
            return difference;
        }
    }
    let value = plain(info.get("hasSelectValue"));
    differ("hasSelectValue", &text(wanted, "HasSelectValue").to_lowercase(), &value)
        .or_else(|| differ("rewritten", text(case, "rewritten"), text(info, "rewrittenQuery")))
        .or_else(|| differ("aliases", &types_in_file(wanted), &types_in_plan(info)))
}

fn types_in_file(info: &Value) -> String {
    let types = info.get("GroupByAliasToAggregateType").and_then(Value::as_array).unwrap_or(&[]);
    let mut types: Vec<String> = types
        .iter()
        .map(|item| format!("{}={}", text(item, "Alias"), text(item, "AggregateOperator")))
        .collect();
    types.sort();
    types.join(",")
}

fn types_in_plan(info: &Value) -> String {
    let types = info.get("groupByAliasToAggregateType").and_then(Value::as_object).expect("always there");
    let mut types: Vec<String> =
        types.iter().map(|(alias, name)| format!("{alias}={}", name.as_str().unwrap_or("null"))).collect();
    types.sort();
    types.join(",")
}

/// Compares the ranges. When a plan has several ranges, the file has only the last one.
/// So our list must contain the range of the file.
fn compare_ranges(case: &Value, plan: &QueryPlan) -> Option<String> {
    let name = text(case, "description");
    if WIDER_RANGES.iter().any(|(wider, _)| *wider == name) {
        return (*plan.partition_keys() != PartitionKeyFilter::All).then(|| "not every partition".to_owned());
    }
    let wanted = case.get("ranges")?.as_array()?.first()?.as_str()?;
    let fits = match plan.partition_keys() {
        PartitionKeyFilter::All => wanted == r#"[[],"Infinity")"#,
        PartitionKeyFilter::Nothing => wanted == "[[],[]]",
        // Whole numbers end in `.0` in the file.
        PartitionKeyFilter::Keys(keys) => keys.iter().any(|key| range_text(key) == wanted.replace(".0", "")),
    };
    (!fits).then(|| format!("ranges: wanted {wanted}, found {:?}", plan.partition_keys()))
}

fn range_text(key: &[Value]) -> String {
    let point = to_text(&Value::Array(key.to_vec()), Style::Query);
    format!("[{point},{point}]")
}

/// Compares errors. The service planned indented statements. Most statements in the file
/// have lost their indentation, and then all locations in the file's error are higher than
/// ours by the same number.
fn compare_error(error: &PlanError, wanted: &Value, query: &str) -> Option<String> {
    let found = match error {
        PlanError::Invalid(diagnostics) => {
            let mut shifted = diagnostics.clone();
            let first = wanted.get("errors").and_then(Value::as_array).and_then(<[Value]>::first);
            let start = first.and_then(|error| error.get("location")?.get("start")?.as_i64()).unwrap_or(0);
            let shift = usize::try_from(start).unwrap_or(0).saturating_sub(shifted[0].start);
            let shift = if query.starts_with(char::is_whitespace) { 0 } else { shift };
            for diagnostic in &mut shifted {
                diagnostic.start += shift;
                diagnostic.end += shift;
            }
            errors_to_json(&shifted)
        }
        other => json(&other.message()),
    };
    let (wanted, found) = (to_text(wanted, Style::Query), to_text(&found, Style::Query));
    (wanted != found).then(|| format!("error\n  wanted {wanted}\n  found  {found}"))
}

/// Some rows of the table of rewritten queries in `docs/cosmos.md`, and DISTINCT with
/// OFFSET LIMIT, which is not in the table.
#[test]
fn rewritten_statements_are_as_recorded() {
    let rewritten = |query: &str| {
        let query = parse(query).expect("a good statement");
        let plan = plan(&query, &Parameters::none(), Some(ALL_FEATURES), &["/pk"]).expect("a plan");
        (plan.rewritten_query().to_owned(), to_text(&plan.to_json(), Style::Query))
    };
    for (query, statement, part) in [
        ("SELECT c.id FROM c", "", r#""distinctType":"None","top":null"#),
        ("SELECT TOP 5 c.id FROM c", "", r#""top":5"#),
        ("SELECT DISTINCT TOP 3 c.grp FROM c", "SELECT DISTINCT c.grp\nFROM c", r#""top":3"#),
        (
            "SELECT DISTINCT c.grp FROM c OFFSET 1 LIMIT 2",
            "SELECT DISTINCT c.grp\nFROM c",
            r#""offset":1,"limit":2"#,
        ),
        (
            "SELECT DISTINCT VALUE c.blah FROM c ORDER BY c.blah",
            "SELECT c._rid, [{\"item\": c.blah}] AS orderByItems, c.blah AS payload\nFROM c\nWHERE \
             (({documentdb-formattableorderbyquery-filter}) AND IS_DEFINED(c.blah))\nORDER BY c.blah",
            r#""distinctType":"Ordered""#,
        ),
        (
            "SELECT c.grp, COUNT(1) AS n FROM c GROUP BY c.grp ORDER BY c.grp",
            "SELECT [{\"item\": c.grp}] AS groupByItems, {\"grp\": c.grp, \"n\": {\"item\": COUNT(1)}} AS payload\n\
             FROM c\nGROUP BY c.grp\nORDER BY c.grp",
            r#""orderBy":[],"orderByExpressions":[],"groupByExpressions":["c.grp"],"groupByAliases":["grp","n"],"aggregates":[],"groupByAliasToAggregateType":{"grp":null,"n":"Count"}"#,
        ),
    ] {
        let (found, body) = rewritten(query);
        assert_eq!(found, statement, "{query}");
        assert!(body.contains(part), "{query}: {body}");
        // The statement that clients send must parse.
        let sent = found.replace("{documentdb-formattableorderbyquery-filter}", "true");
        assert!(sent.is_empty() || parse(&sent).is_ok(), "{sent}");
    }
}

#[test]
fn a_client_that_lacks_a_needed_feature_gets_no_plan() {
    let refused = |query: &str, features: Option<&str>| {
        let query = parse(query).expect("a good statement");
        plan(&query, &Parameters::none(), features, &[]).map(|_| ()).expect_err("no plan").to_string()
    };
    assert_eq!(
        refused("SELECT VALUE COUNT(1) FROM c", None),
        "Query contains 1 or more unsupported features. Upgrade your SDK to a version that does support the requested \
         features:\r\nQuery contained Aggregate, which the calling client does not support."
    );
    let grouped = refused("SELECT c.g, COUNT(1) AS n FROM c GROUP BY c.g", Some("Aggregate,OrderBy"));
    assert!(
        grouped.ends_with("Query contained GroupBy, which the calling client does not support."),
        "{grouped}"
    );
}

#[test]
fn distinct_rows_are_counted_by_the_client() {
    let planned = |query: &str, features: &str| {
        let query = parse(query).expect("a good statement");
        plan(&query, &Parameters::none(), Some(features), &["/pk"])
            .map(|plan| to_text(&plan.to_json(), Style::Query))
            .map_err(|error| error.to_string())
    };
    for (query, part) in [
        (
            "SELECT COUNT(1) AS n FROM (SELECT DISTINCT c.a FROM c WHERE c.b > 1)",
            r#""rewrittenQuery":"SELECT DISTINCT c.a\nFROM c\nWHERE (c.b > 1)","hasSelectValue":false,"dCountInfo":{"dCountAlias":"n"}"#,
        ),
        (
            "SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.a FROM c)",
            r#""rewrittenQuery":"SELECT DISTINCT VALUE c.a\nFROM c","hasSelectValue":true,"dCountInfo":{"dCountAlias":""}"#,
        ),
        ("SELECT COUNT(1) FROM (SELECT DISTINCT c.a FROM c)", r#"{"dCountAlias":"$1"}"#),
    ] {
        let body = planned(query, ALL_FEATURES).expect(query);
        assert!(body.contains(part), "{query}: {body}");
        assert!(
            body.contains(r#""distinctType":"Unordered""#) && body.contains(r#""aggregates":[]"#),
            "{body}"
        );
        let refused = planned(query, "Aggregate,Distinct,NonValueAggregate").expect_err(query);
        assert!(
            refused.ends_with("Query contained DCount, which the calling client does not support."),
            "{refused}"
        );
    }
}

/// The text of a plan, or of its refusal, with the parameters of this file.
fn planned(query: &str, features: &str) -> Result<String, String> {
    let parameters = r#"[{"name":"@skip","value":3},{"name":"@take","value":4},{"name":"@n","value":5}]"#;
    let parameters = Parameters::from_json(json(parameters)).expect("good parameters");
    plan(&parse(query).expect(query), &parameters, Some(features), &["/pk"])
        .map(|plan| to_text(&plan.to_json(), Style::Query))
        .map_err(|error| error.to_string())
}

#[test]
fn lists_sets_and_conditional_counts_are_planned_for_clients_that_merge_them() {
    for (function, plan_name, feature) in [
        ("MAKELIST(c.a)", "MakeList", "ListAndSetAggregate"),
        ("MAKESET(c.a)", "MakeSet", "ListAndSetAggregate"),
        ("COUNTIF(c.a)", "CountIf", "CountIf"),
    ] {
        let query = format!("SELECT VALUE {function} FROM c");
        let body = planned(&query, ALL_FEATURES).expect(&query);
        assert!(body.contains(&format!(r#""aggregates":["{plan_name}"]"#)), "{body}");
        let rewritten = format!(r#"SELECT VALUE [{{\"item\": {function}}}]\nFROM c"#);
        assert!(body.contains(&rewritten), "{body}");
        let grouped = planned(&format!("SELECT c.g, {function} AS x FROM c GROUP BY c.g"), ALL_FEATURES);
        assert!(grouped.expect("a plan").contains(&format!(r#"{{"g":null,"x":"{plan_name}"}}"#)));
        let refused = planned(&query, "Aggregate, Distinct, GroupBy, NonValueAggregate").expect_err(&query);
        assert!(refused.contains(&format!("Query contained {feature}, which")), "{refused}");
    }
}

#[test]
fn counts_that_are_parameters_are_numbers_in_a_plan() {
    let body = planned("SELECT c.a FROM c ORDER BY c.a OFFSET @skip LIMIT @take", ALL_FEATURES).unwrap();
    assert!(body.contains(r#""offset":3,"limit":4"#) && body.contains("OFFSET 0 LIMIT 7"), "{body}");
    let body = planned("SELECT TOP @n c.a FROM c ORDER BY c.a", ALL_FEATURES).unwrap();
    assert!(body.contains(r#""top":5"#) && body.contains("SELECT TOP 5 c._rid"), "{body}");
    // Without FROM one partition answers.
    for query in ["SELECT TOP 2 1 AS one", "SELECT TOP @n VALUE 1"] {
        let body = planned(query, ALL_FEATURES).expect(query);
        assert!(body.contains(r#""queryRanges":[{"min":"","max":"","#), "{query}: {body}");
    }
}

#[test]
fn groups_of_joined_items_are_planned() {
    let query = "SELECT t.name, COUNT(1) AS n, MAX(c.total) AS most FROM c JOIN t IN c.tags WHERE t.size > 1 GROUP BY t.name";
    let body = planned(query, ALL_FEATURES).expect(query);
    for part in [
        r#""groupByExpressions":["t.name"]"#,
        r#""groupByAliases":["name","n","most"]"#,
        r#""groupByAliasToAggregateType":{"name":null,"n":"Count","most":"Max"}"#,
        r#"SELECT [{\"item\": t.name}] AS groupByItems, {\"name\": t.name, \"n\": {\"item\": COUNT(1)}, "#,
        r#"\nFROM c\nJOIN t IN c.tags\nWHERE (t.size > 1)\nGROUP BY t.name"#,
    ] {
        assert!(body.contains(part), "{part}\n{body}");
    }
}

#[test]
fn lists_and_absolute_values_narrow_the_partitions() {
    for (condition, wanted) in [
        ("ABS(c.pk) = 1", "[[-1],[1]]"),
        ("1.5 = ABS(c.pk)", "[[-1.5],[1.5]]"),
        ("ABS(c.pk) = 0", "[[0]]"),
        ("ABS(c.pk) = -1", "nothing"),
        ("ABS(c.pk) = '1'", "all"),
        ("ABS(c.other) = 1", "all"),
        ("ARRAY_CONTAINS(['b', 'a', 'b'], c.pk)", r#"[["a"],["b"]]"#),
        ("ARRAY_CONTAINS([], c.pk)", "nothing"),
        ("ARRAY_CONTAINS(['a'], c.pk, true)", "all"),
        ("ARRAY_CONTAINS(c.pk, 'a')", "all"),
        ("NOT ARRAY_CONTAINS(['a'], c.pk)", "all"),
        ("ARRAY_CONTAINS(['a', 'b'], c.pk) AND c.pk != 'b'", r#"[["a"],["b"]]"#),
    ] {
        let query = parse(&format!("SELECT * FROM c WHERE {condition}")).expect(condition);
        let plan = plan(&query, &Parameters::none(), Some(ALL_FEATURES), &["/pk"]).expect(condition);
        let found = match plan.partition_keys() {
            PartitionKeyFilter::All => "all".to_owned(),
            PartitionKeyFilter::Nothing => "nothing".to_owned(),
            PartitionKeyFilter::Keys(keys) => {
                let keys = keys.iter().cloned().map(Value::Array).collect();
                to_text(&Value::Array(keys), Style::Query)
            }
        };
        assert_eq!(found, wanted, "{condition}");
    }
}

/// A plan is made at another time than the query runs, and a client may plan for a service whose clock
/// differs. So a condition on the time narrows nothing.
#[test]
fn functions_that_read_the_clock_narrow_no_partitions() {
    for text in [
        "SELECT VALUE COUNT(1) FROM c WHERE GetCurrentTimestamp() > 5",
        "SELECT * FROM c WHERE c.pk IN (LEFT(GetCurrentDateTime(), 10), '2026-11-16') ORDER BY c.n",
        "SELECT * FROM c WHERE c.pk = 'a' OR getcurrentticks() > 5",
    ] {
        let query = parse(text).expect("a good statement");
        let keys = partition_keys(&query, &Parameters::none(), &["/pk"]).expect("a good statement");
        assert_eq!(keys, PartitionKeyFilter::All, "{text}");
        let plan = plan(&query, &Parameters::none(), Some(ALL_FEATURES), &["/pk"]).expect(text);
        assert_eq!(*plan.partition_keys(), PartitionKeyFilter::All, "{text}");
    }
}

/// Each partition would answer such a subquery for its own documents only.
#[test]
fn a_subquery_in_from_that_needs_all_partitions_has_no_plan() {
    for (text, has_plan) in [
        ("SELECT * FROM (SELECT DISTINCT c.x FROM c) d", false),
        ("SELECT VALUE COUNT(1) FROM (SELECT TOP 5 * FROM c)", false),
        ("SELECT VALUE COUNT(1) FROM (SELECT c.x FROM c GROUP BY c.x)", false),
        ("SELECT VALUE d FROM (SELECT VALUE COUNT(1) FROM c) d", false),
        ("SELECT * FROM (SELECT * FROM c OFFSET 1 LIMIT 2) d", false),
        ("SELECT VALUE COUNT(1) FROM (SELECT c.x FROM c WHERE c.x > 1)", true),
        ("SELECT VALUE COUNT(1) FROM (SELECT DISTINCT c.x FROM c)", true),
    ] {
        let query = parse(text).expect("a good statement");
        let planned = plan(&query, &Parameters::none(), Some(ALL_FEATURES), &["/pk"]);
        match planned {
            Ok(_) => assert!(has_plan, "{text}"),
            Err(error) => {
                assert!(!has_plan && error.to_string().contains("across partitions"), "{text}: {error}")
            }
        }
    }
}
