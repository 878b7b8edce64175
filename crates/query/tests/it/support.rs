//! Helpers of the tests: the conformance files, and functions that check the result or
//! the errors of a statement.

use perihelion_model::json::{Style, Value, parse_str, to_text};
use perihelion_query::{Diagnostic, EvaluationError, Now, Parameters, compile, parse};

/// 2020-09-13T12:26:40Z, so that the date functions have fixed results.
pub(crate) const NOW_MILLISECONDS: i64 = 1_600_000_000_000;

/// The header of a plan request in which the client lists every feature.
pub(crate) const ALL_FEATURES: &str = "Aggregate, CompositeAggregate, CountIf, Distinct, GroupBy, \
    MultipleOrderBy, MultipleAggregates, OffsetAndLimit, OrderBy, Top, NonValueAggregate, DCount, \
    ListAndSetAggregate, NonStreamingOrderBy";

/// Reads one file of `conformance/`, which is a list of cases.
pub(crate) fn conformance(file: &str) -> Vec<Value> {
    match parse_str(&perihelion_testkit::conformance::read(file)) {
        Ok(Value::Array(cases)) => cases,
        other => panic!("{file} is not a list: {other:?}"),
    }
}

pub(crate) fn text<'a>(case: &'a Value, member: &str) -> &'a str {
    case.get(member).and_then(Value::as_str).unwrap_or("")
}

pub(crate) fn json(text: &str) -> Value {
    parse_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

pub(crate) fn now() -> Now {
    Now::from_unix_milliseconds(NOW_MILLISECONDS)
}

/// Why a statement has no result.
#[derive(Debug, PartialEq)]
pub(crate) enum Failure {
    Invalid(Vec<Diagnostic>),
    Evaluation(EvaluationError),
}

/// Runs a statement over documents in memory.
pub(crate) fn run(query: &str, parameters: &str, documents: &[Value]) -> Result<Vec<Value>, Failure> {
    let parameters = Parameters::from_json(json(parameters)).expect("good parameters");
    let program =
        parse(query).and_then(|query| compile(&query, &parameters, now())).map_err(Failure::Invalid)?;
    program.run(documents).map_err(Failure::Evaluation)
}

/// Checks the result of a statement over the documents of a JSON array.
#[track_caller]
pub(crate) fn check_all(query: &str, documents: &str, expect: &str) {
    let Value::Array(documents) = json(documents) else { panic!("documents are a list") };
    match run(query, "[]", &documents) {
        Ok(rows) => assert_eq!(to_text(&Value::Array(rows), Style::Query), expect, "{query}"),
        Err(failure) => panic!("{query}: {failure:?}"),
    }
}

/// Checks the result of a statement over one document.
#[track_caller]
pub(crate) fn check(query: &str, document: &str, expect: &str) {
    check_all(query, &format!("[{document}]"), expect);
}

/// Checks the value of an expression that reads no document; it may be
/// `undefined`.
#[track_caller]
pub(crate) fn check_value(expression: &str, expect: &str) {
    let query = format!("SELECT VALUE {expression}");
    match run(&query, "[]", &[]) {
        Ok(rows) => {
            let found = rows.first().map_or("undefined".to_owned(), |value| to_text(value, Style::Query));
            assert_eq!(found, expect, "{expression}");
        }
        Err(failure) => panic!("{expression}: {failure:?}"),
    }
}

/// Checks the errors of a statement, each as `code start..end message`.
#[track_caller]
pub(crate) fn check_refused(query: &str, expect: &str) {
    match run(query, "[]", &[]) {
        Err(Failure::Invalid(diagnostics)) => {
            let found: Vec<String> = diagnostics
                .iter()
                .map(|d| format!("{} {}..{} {}", d.code, d.start, d.end, d.message))
                .collect();
            assert_eq!(found.join("\n"), expect, "{query}");
        }
        other => panic!("{query} is not refused: {other:?}"),
    }
}
