//! Runs every case of `service-cases.json` against a server over a socket.
//!
//! The cases run on one server with a strict gateway and one range, as they were
//! recorded. Only the case about throttling has another server, which throttles. The
//! report has one line for each failing case. `PERIHELION_CASE=text` runs only the
//! cases whose name contains the text.

use std::sync::Arc;

use perihelion_model::json::{self, Value};
use perihelion_server::ServerOptions;
use perihelion_testkit::TestServer;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::case::Case;
use super::runner;

/// Cases that the server does not support yet, with the reason.
const OUT_OF_SCOPE: [(&str, &str); 1] = [("udf-in-query", "user defined functions need a JavaScript engine")];

/// Cases that run at the same time: more than there are threads, because slow cases mostly
/// wait.
const CASES_AT_ONCE: usize = 8;

/// The throughput, in RU/s, of containers without an offer on the server that throttles. It
/// switches throttling on. The containers of the case about throttling share the offer of their
/// database, which has 400 RU/s. The set-up of the case costs 17,600 RU, so it is throttled. The
/// request of the case comes before enough request units have accrued again.
const THROUGHPUT: u32 = 4000;

/// How many differences of one case are shown.
const SHOWN_DIFFERENCES: usize = 4;

fn cases() -> Vec<Case> {
    let text = perihelion_testkit::conformance::read("service-cases.json");
    let file = json::parse_str(&text).expect("the conformance file is JSON");
    let cases = file.as_array().expect("the conformance file is a list");
    assert!(cases.len() >= 108, "the file has shrunk to {} cases", cases.len());
    cases.iter().map(|case| Case::read(case).unwrap_or_else(|error| panic!("{error}"))).collect()
}

fn is_out_of_scope(case: &Case) -> bool {
    OUT_OF_SCOPE.iter().any(|(id, _)| *id == case.id)
}

#[test]
fn the_runner_understands_every_case() {
    let cases = cases();
    for (id, _) in OUT_OF_SCOPE {
        assert!(cases.iter().any(|case| case.id == id), "there is no case {id}");
    }
    for pattern in cases.iter().flat_map(patterns) {
        assert!(regex_lite::Regex::new(&pattern).is_ok(), "{pattern}");
    }
}

/// Every `re:` pattern of a case's expectation, with its variables filled.
fn patterns(case: &Case) -> Vec<String> {
    fn collect(value: &Value, patterns: &mut Vec<String>) {
        match value {
            Value::String(text) => patterns.extend(text.strip_prefix("re:").map(str::to_owned)),
            Value::Array(items) => items.iter().for_each(|item| collect(item, patterns)),
            Value::Object(object) => object.iter().for_each(|(_, member)| collect(member, patterns)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    let mut patterns: Vec<String> = case
        .expect
        .headers
        .iter()
        .filter_map(|(_, value)| value.strip_prefix("re:"))
        .map(str::to_owned)
        .collect();
    collect(&Value::Object(case.expect.body.clone()), &mut patterns);
    patterns.iter().map(|pattern| pattern.replace("{db}", "db").replace("{coll}", "coll")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_answers_as_the_service_does() {
    let name_part = std::env::var("PERIHELION_CASE").unwrap_or_default();
    let (throttled, plain): (Vec<Case>, Vec<Case>) = cases()
        .into_iter()
        .filter(|case| !is_out_of_scope(case) && case.id.contains(&name_part))
        .partition(|case| case.has_tag("needs-throttling"));
    let total = throttled.len() + plain.len();
    let mut strict = ServerOptions::default();
    strict.account.strict_gateway = true;
    let mut throttling = strict.clone();
    throttling.account.throughput = Some(THROUGHPUT);
    let (first, second) = tokio::join!(run_all(plain, strict), run_all(throttled, throttling));
    let failures = [first, second].concat();
    for failure in &failures {
        eprintln!("{failure}");
    }
    let skipped = OUT_OF_SCOPE.len();
    assert!(failures.is_empty(), "{} of {total} cases fail ({skipped} out of scope)", failures.len());
}

/// Runs cases on one server. Returns a line for each case that fails, in the order of
/// the file.
async fn run_all(cases: Vec<Case>, options: ServerOptions) -> Vec<String> {
    let server = Arc::new(TestServer::on_socket(options).await);
    let slots = Arc::new(Semaphore::new(CASES_AT_ONCE));
    let mut running = JoinSet::new();
    for (index, case) in cases.into_iter().enumerate() {
        let (server, slots) = (server.clone(), slots.clone());
        running.spawn(async move {
            let _slot = slots.acquire_owned().await;
            let differences = runner::run(&case, &server).await;
            (index, case.id, differences)
        });
    }
    let mut failed: Vec<_> =
        running.join_all().await.into_iter().filter(|(_, _, differences)| !differences.is_empty()).collect();
    failed.sort();
    if let Some(server) = Arc::into_inner(server) {
        server.stop().await;
    }
    failed.iter().map(|(_, id, differences)| report_line(id, differences)).collect()
}

fn report_line(id: &str, differences: &[String]) -> String {
    let shown = differences[..differences.len().min(SHOWN_DIFFERENCES)].join("; ");
    match differences.len().checked_sub(SHOWN_DIFFERENCES) {
        Some(more @ 1..) => format!("FAIL {id}: {shown}; and {more} more"),
        _ => format!("FAIL {id}: {shown}"),
    }
}
