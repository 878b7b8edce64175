//! The explanation of a query: the plan, the documents, the indexes and the charge.

use perihelion_client::{Container, Query};

use crate::explain::{QueryAnswer, QueryFacts};
use crate::failure::Failure;
use crate::html::{Html, tag};
use crate::pages::parts::{self, text};
use crate::text::cut;

/// The most characters of the query for each partition.
const PARTITION_QUERY_CHARS_MAX: usize = 4_000;

/// The most characters of a list of indexes.
const INDEXES_CHARS_MAX: usize = 500;

pub(super) async fn section(container: &Container, query: Query, answer: &QueryAnswer) -> Html {
    let section = |content| parts::section("explain", "What the service did", content).done();
    let plan = match QueryFacts::read_plan(container, query).await {
        Ok(plan) => plan,
        Err(error) => {
            let failure = Failure::request("The plan of the query cannot be read", &error);
            return section(parts::note(failure.message));
        }
    };
    let query_facts = answer.facts(plan.as_ref());
    let lines = query_facts.lines();
    let names: Vec<String> = lines.iter().map(|(name, _)| with_capital(name)).collect();
    let mut rows: Vec<(&str, Html)> =
        names.iter().zip(lines).map(|(name, (_, value))| (name.as_str(), text(value))).collect();
    rows.push(("Indexes used", indexes(&answer.index_metrics.used())));
    rows.push(("Indexes missing", indexes(&answer.index_metrics.missing())));
    let facts = parts::facts(rows);
    let rewritten = query_facts.query_of_partitions();
    let rewritten = rewritten.filter(|text| !text.is_empty()).map(|text| {
        Html::default().add(tag("h3").add("Sent to each partition")).add(parts::code(
            "Query for each partition",
            text,
            PARTITION_QUERY_CHARS_MAX,
        ))
    });
    section(Html::default().add(facts).add(rewritten))
}

/// The name of a fact as the pages write names.
fn with_capital(name: &str) -> String {
    let mut chars = name.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

fn indexes(specs: &[String]) -> Html {
    match specs.is_empty() {
        true => parts::nothing(),
        false => tag("code").add(cut(&specs.join("  "), INDEXES_CHARS_MAX)).done(),
    }
}
