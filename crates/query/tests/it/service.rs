//! The cases of `service-cases.json` that depend only on the query language:
//! statements over the documents of their setup, errors and plans.

use perihelion_model::json::{Style, Value, to_text};
use perihelion_query::{GatewayVerdict, Parameters, compile, errors_to_json, parse, plan};

use crate::support::{Failure, conformance, now, run, text};

/// Cases that this test skips because they need more than the query language, with
/// the reason.
const SKIPPED: &[(&str, &str)] = &[
    ("query-select-star", "the engine writes system properties"),
    ("query-star-keeps-stored-order", "the engine writes system properties"),
    ("qerr-cross-disabled", "the result depends on headers"),
    ("qerr-cross-disabled-aggregate", "the result depends on headers"),
    ("refuse-count-application-sql", "the body is not JSON"),
    ("udf-in-query", "user-defined functions are not supported yet"),
];

fn is_about_queries(id: &str) -> bool {
    let families = ["query-", "qerr-", "refuse-", "plan-", "num-query", "num-literals", "num-param", "udf-"];
    families.iter().any(|family| id.starts_with(family))
}

#[test]
fn statements_have_the_recorded_results() {
    let cases = conformance("service-cases.json");
    let (mut passed, mut failures) = (0, Vec::new());
    let query_cases: Vec<&Value> = cases.iter().filter(|case| is_about_queries(text(case, "id"))).collect();
    for case in &query_cases {
        let id = text(case, "id");
        if SKIPPED.iter().any(|(skipped, _)| *skipped == id) {
            continue;
        }
        match difference(case) {
            None => passed += 1,
            Some(difference) => failures.push(format!("{id}: {difference}")),
        }
    }
    println!("service-cases.json: {passed} of {} pass, {} skipped", query_cases.len(), SKIPPED.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(passed + SKIPPED.len(), query_cases.len());
}

/// Runs a case and compares the outcome with the recorded one. `None` when they are equal.
fn difference(case: &Value) -> Option<String> {
    let body = case.get("request").and_then(|request| request.get("body")).expect("a statement");
    let query = text(body, "query");
    let parameters = body.get("parameters").cloned().unwrap_or(Value::Null);
    let expect = case.get("expect").and_then(|expect| expect.get("body")).expect("an expected body");
    let (wanted, found) = if let Some(error) = expect.get("error") {
        refusal(case, error, query, parameters)
    } else if let Some(exact) = expect.get("exact") {
        (to_text(exact, Style::Query), plan_text(case, query))
    } else {
        let documents = expect.get("shape").and_then(|shape| shape.get("Documents")).expect("documents");
        let found = match run(query, &to_text(&parameters, Style::Query), &setup_documents(case)) {
            Ok(rows) => to_text(&Value::Array(rows), Style::Query),
            Err(failure) => format!("{failure:?}"),
        };
        (to_text(documents, Style::Query), found)
    };
    (wanted != found).then(|| format!("\n  wanted {wanted}\n  found  {found}"))
}

/// The documents of the case's setup. If the setup seeds partitions with documents, returns the same
/// number of empty documents. They are enough, because the only such case counts documents.
fn setup_documents(case: &Value) -> Vec<Value> {
    let steps = case.get("setup").and_then(Value::as_array).unwrap_or(&[]);
    let count = |step: &Value, member| step.get(member).and_then(Value::as_i64).unwrap_or(0);
    let seeded: i64 = steps.iter().map(|step| count(step, "partitions") * count(step, "per_partition")).sum();
    if seeded > 0 {
        return vec![Value::Object(Default::default()); seeded as usize];
    }
    let created = steps.iter().filter(|step| text(step, "op") == "create_doc");
    created
        .map(|step| match step.get("body_raw").and_then(Value::as_str) {
            Some(raw) => crate::support::json(raw),
            None => step.get("body").cloned().expect("a document"),
        })
        .collect()
}

/// Our plan for the statement, or the error, as text.
fn plan_text(case: &Value, query: &str) -> String {
    let headers = case.get("request").and_then(|request| request.get("headers"));
    let features = headers.and_then(|headers| headers.get("x-ms-cosmos-supported-query-features"));
    let query = parse(query).expect("a good statement");
    match plan(&query, &Parameters::none(), features.and_then(Value::as_str), &["/pk"]) {
        Ok(plan) => to_text(&plan.to_json(), Style::Query),
        Err(error) => error.to_string(),
    }
}

/// The recorded refusal of a statement and our refusal, as texts. They are equal if the case passes.
/// If only phrases of a message were recorded and our text has all of them, our text is returned for
/// both. For a refusal that carries a plan, the recorded plan and our plan are returned.
fn refusal(case: &Value, error: &Value, query: &str, parameters: Value) -> (String, String) {
    if let Some(embedded) = error.get("embedded_errors") {
        let wanted = format!(r#"{{"errors":{}}}"#, to_text(embedded, Style::Query));
        return match run(query, "[]", &[]) {
            Err(Failure::Invalid(diagnostics)) => {
                (wanted, to_text(&errors_to_json(&diagnostics), Style::Query))
            }
            other => (wanted, format!("{other:?}")),
        };
    }
    let contains = error.get("message_contains").and_then(Value::as_array).unwrap_or(&[]);
    let phrases: Vec<&str> = contains.iter().filter_map(Value::as_str).collect();
    if let Some(plan) = error.get("additionalErrorInfo_json") {
        assert_eq!(verdict(query), GatewayVerdict::NeedsPlan, "{query}");
        let query = parse(query).expect("a good statement");
        let features = "Aggregate,Distinct,MultipleOrderBy,OffsetAndLimit,OrderBy,Top";
        let found =
            perihelion_query::plan(&query, &Parameters::none(), Some(features), &["/pk"]).expect("a plan");
        return (to_text(plan, Style::Query), to_text(&found.to_json(), Style::Query));
    }
    let found = match Parameters::from_json(parameters) {
        Err(error) => error.to_string(),
        Ok(_) if text(case, "id").starts_with("plan-") => plan_text(case, query),
        Ok(_) => match verdict(query) {
            GatewayVerdict::AggregateNotValue => {
                r#"{"Errors":["Cross partition query only supports 'VALUE <AggregateFunc>' for aggregates."]}"#.to_owned()
            }
            other => format!("{other:?}"),
        },
    };
    let has_all_phrases = phrases.iter().all(|phrase| found.contains(phrase));
    (if has_all_phrases { found.clone() } else { phrases.join(" … ") }, found)
}

fn verdict(query: &str) -> GatewayVerdict {
    let query = parse(query).expect("a good statement");
    compile(&query, &Parameters::none(), now()).expect("a good statement").gateway_verdict()
}
