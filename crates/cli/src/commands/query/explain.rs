//! `perihelion query --explain`: shows what the service did for a query, that is the plan, the
//! documents, the indexes and the charge.

use perihelion_client::{Container, IndexMetrics, Query, QueryMetrics, merge_steps};
use serde::Serialize;
use serde_json::Value;

use super::Answer;
use crate::context::Context;
use crate::exit::Failure;
use crate::output::text::counted;
use crate::process::print;

/// The explanation, as JSON shows it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Explanation<'a> {
    rows: usize,
    is_cut: bool,
    request_units: f64,
    requests: usize,
    /// The service's plan; `null` if it has none for this query.
    plan: Option<Value>,
    read_documents: u64,
    read_bytes: u64,
    returned_documents: u64,
    returned_bytes: u64,
    index_hit_ratio: f64,
    service_ms: f64,
    /// The indexes, as the service names them.
    indexes: &'a IndexMetrics,
}

pub(super) async fn print_explained(
    context: &Context,
    container: &Container,
    query: Query,
    answer: &Answer,
) -> Result<(), Failure> {
    let plan = container.query_plan(query).await.ok();
    let lines = lines(plan.as_ref(), answer);
    let metrics = &answer.query_metrics;
    let explanation = Explanation {
        rows: answer.rows.len(),
        is_cut: answer.is_cut,
        request_units: answer.charge,
        requests: answer.requests,
        plan,
        read_documents: metrics.retrieved_documents,
        read_bytes: metrics.retrieved_bytes,
        returned_documents: metrics.output_documents,
        returned_bytes: metrics.output_bytes,
        index_hit_ratio: metrics.index_hit_ratio(),
        service_ms: milliseconds(metrics),
        indexes: &answer.index_metrics,
    };
    print(&context.form.single(&explanation, &lines)?)
}

fn milliseconds(metrics: &QueryMetrics) -> f64 {
    metrics.total_time.as_secs_f64() * 1000.0
}

fn lines(plan: Option<&Value>, answer: &Answer) -> Vec<(&'static str, String)> {
    let metrics = &answer.query_metrics;
    let more = if answer.is_cut { " (more follow)" } else { "" };
    let mut lines = vec![
        ("rows", format!("{}{more}", answer.rows.len())),
        ("charge", format!("{:.2} RU in {}", answer.charge, counted(answer.requests as u64, "request"))),
        ("read", format!("{} documents, {} bytes", metrics.retrieved_documents, metrics.retrieved_bytes)),
        ("returned", format!("{} documents, {} bytes", metrics.output_documents, metrics.output_bytes)),
        ("index hits", format!("{:.0} %", metrics.index_hit_ratio() * 100.0)),
        ("service time", format!("{:.2} ms", milliseconds(metrics))),
        ("merged here", merged(plan)),
    ];
    if let Some(text) = plan.and_then(|plan| plan["queryInfo"]["rewrittenQuery"].as_str()) {
        lines.push((
            "each partition",
            if text.is_empty() { "the query as it is".to_owned() } else { text.replace('\n', " ") },
        ));
    }
    lines.extend(answer.index_metrics.used().into_iter().map(|index| ("index used", index)));
    lines.extend(answer.index_metrics.missing().into_iter().map(|index| ("index missing", index)));
    lines
}

/// The steps by which the client merges the rows of the partitions, in words.
fn merged(plan: Option<&Value>) -> String {
    let Some(plan) = plan else { return "no plan: the service refuses one for this query".to_owned() };
    let steps = merge_steps(plan);
    if steps.is_empty() { "nothing".to_owned() } else { steps.join(", ") }
}
