//! `perihelion query --explain`: shows what the service did for a query, that is the plan, the
//! documents, the indexes and the charge.

use perihelion_client::{Container, IndexMetrics, Query};
use perihelion_dashboard::{QueryAnswer, QueryFacts};
use serde::Serialize;
use serde_json::Value;

use crate::context::Context;
use crate::exit::Failure;
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
    answer: &QueryAnswer,
) -> Result<(), Failure> {
    let plan = QueryFacts::read_plan(container, query).await;
    let plan = plan.map_err(|error| context.request_failed("cannot read the plan of the query", &error))?;
    let metrics = &answer.query_metrics;
    let facts = answer.facts(plan.as_ref());
    let (lines, service_ms) = (lines(&facts, answer), facts.service_ms());
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
        service_ms,
        indexes: &answer.index_metrics,
    };
    print(&context.form.single(&explanation, &lines)?)
}

fn lines(facts: &QueryFacts<'_>, answer: &QueryAnswer) -> Vec<(&'static str, String)> {
    let more = if answer.is_cut { " (more follow)" } else { "" };
    let mut lines = vec![("rows", format!("{}{more}", answer.rows.len()))];
    lines.extend(facts.lines());
    if let Some(text) = facts.query_of_partitions() {
        let text = if text.is_empty() { "the query as it is".to_owned() } else { text.replace('\n', " ") };
        lines.push(("each partition", text));
    }
    lines.extend(answer.index_metrics.used().into_iter().map(|index| ("index used", index)));
    lines.extend(answer.index_metrics.missing().into_iter().map(|index| ("index missing", index)));
    lines
}
