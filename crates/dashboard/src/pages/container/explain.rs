//! The explanation of a query: the plan, the documents, the indexes and the charge.

use perihelion_client::{Container, Query, merge_steps};
use serde_json::Value;

use super::query::Answer;
use crate::html::{Html, tag};
use crate::pages::parts::{self, text};
use crate::text::{counted, cut};

/// The longest text of a plan that is shown.
const PLAN_CHARS_MAX: usize = 4_000;

/// The most characters of a list of indexes.
const INDEXES_CHARS_MAX: usize = 500;

pub(super) async fn section(container: &Container, query: Query, answer: &Answer) -> Html {
    // A query that has a result may have no plan: the service refuses a plan for some queries.
    let plan = container.query_plan(query).await.ok();
    let metrics = &answer.query_metrics;
    let milliseconds = metrics.total_time.as_secs_f64() * 1000.0;
    let facts = parts::facts(vec![
        (
            "Charge",
            text(format!("{:.2} RU in {}", answer.charge, counted(answer.requests as u64, "request"))),
        ),
        (
            "Read",
            text(format!("{} documents, {} bytes", metrics.retrieved_documents, metrics.retrieved_bytes)),
        ),
        ("Returned", text(format!("{} documents, {} bytes", metrics.output_documents, metrics.output_bytes))),
        ("Index hits", text(format!("{:.0} %", metrics.index_hit_ratio() * 100.0))),
        ("Service time", text(format!("{milliseconds:.2} ms"))),
        ("Merged in the client", text(merged(plan.as_ref()))),
        ("Indexes used", indexes(&answer.index_metrics.used())),
        ("Indexes missing", indexes(&answer.index_metrics.missing())),
    ]);
    let rewritten = plan.as_ref().and_then(|plan| plan["queryInfo"]["rewrittenQuery"].as_str());
    let rewritten = rewritten.filter(|text| !text.is_empty()).map(|text| {
        Html::default().add(tag("h3").add("Sent to each partition")).add(parts::code(
            "Query for each partition",
            text,
            PLAN_CHARS_MAX,
        ))
    });
    parts::section("explain", "What the service did", Html::default().add(facts).add(rewritten)).done()
}

fn indexes(specs: &[String]) -> Html {
    match specs.is_empty() {
        true => parts::nothing(),
        false => tag("code").add(cut(&specs.join("  "), INDEXES_CHARS_MAX)).done(),
    }
}

/// The steps in which the client merges the rows of the partitions, in words.
fn merged(plan: Option<&Value>) -> String {
    let Some(plan) = plan else { return "no plan: the service refuses one for this query".to_owned() };
    let steps = merge_steps(plan);
    if steps.is_empty() { "nothing".to_owned() } else { steps.join(", ") }
}
