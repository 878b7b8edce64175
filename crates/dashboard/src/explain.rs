//! `QueryAnswer` has the rows of a query and what they cost. `QueryFacts` says what the service did for the
//! query, as names and texts. A page of the dashboard and `perihelion query` show the same facts.

use perihelion_client::{Container, Error, IndexMetrics, Page, Query, QueryMetrics, merge_steps};
use perihelion_model::json;
use serde_json::Value;

use crate::text::counted;

/// The rows of a query, and what they cost.
#[derive(Debug, Clone, Default)]
pub struct QueryAnswer {
    /// The rows.
    pub rows: Vec<json::Value>,
    /// Whether there are more rows, or there may be.
    pub is_cut: bool,
    /// The request units of all requests.
    pub charge: f64,
    /// The number of requests.
    pub requests: usize,
    /// The metrics of all requests.
    pub query_metrics: QueryMetrics,
    /// The indexes that the requests used, and those that would have helped.
    pub index_metrics: IndexMetrics,
}

impl QueryAnswer {
    /// Adds a page of the result.
    pub fn add(&mut self, page: Page<json::Value>) {
        self.charge += page.charge();
        self.requests += page.requests();
        if let Some(metrics) = page.query_metrics() {
            self.query_metrics += metrics;
        }
        if let Some(metrics) = page.index_metrics() {
            self.index_metrics.merge(metrics.clone());
        }
        self.rows.extend(page.items);
    }

    /// The facts of the query, with the service's plan.
    pub fn facts<'a>(&'a self, plan: Option<&'a Value>) -> QueryFacts<'a> {
        QueryFacts { plan, charge: self.charge, requests: self.requests, metrics: &self.query_metrics }
    }
}

/// What the service did for a query that has run.
#[derive(Debug, Clone, Copy)]
pub struct QueryFacts<'a> {
    /// The service's plan; `None` if it has none for this query.
    pub plan: Option<&'a Value>,
    /// The request units of all requests.
    pub charge: f64,
    /// The number of requests.
    pub requests: usize,
    /// The metrics of all requests.
    pub metrics: &'a QueryMetrics,
}

impl<'a> QueryFacts<'a> {
    /// Reads the service's plan for a query. A query that has a result may have no plan: the service
    /// refuses a plan for some queries, with the status 400.
    pub async fn read_plan(container: &Container, query: Query) -> Result<Option<Value>, Error> {
        match container.query_plan(query).await {
            Err(error) if error.status().is_some_and(|status| status.code == 400) => Ok(None),
            plan => plan.map(Some),
        }
    }

    /// The facts, each with its name.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let QueryMetrics { retrieved_documents, retrieved_bytes, output_documents, output_bytes, .. } =
            self.metrics;
        vec![
            ("charge", format!("{:.2} RU in {}", self.charge, counted(self.requests as u64, "request"))),
            ("read", format!("{retrieved_documents} documents, {retrieved_bytes} bytes")),
            ("returned", format!("{output_documents} documents, {output_bytes} bytes")),
            ("index hits", format!("{:.0} %", self.metrics.index_hit_ratio() * 100.0)),
            ("service time", format!("{:.2} ms", self.service_ms())),
            ("merged in the client", self.merged()),
        ]
    }

    /// How long the service took for all requests, in milliseconds.
    pub fn service_ms(&self) -> f64 {
        self.metrics.total_time.as_secs_f64() * 1000.0
    }

    /// The query that is sent to each partition. The text is empty if the query is sent as it was written.
    /// `None` without a plan.
    pub fn query_of_partitions(&self) -> Option<&'a str> {
        self.plan?["queryInfo"]["rewrittenQuery"].as_str()
    }

    /// The steps by which the client merges the rows of the partitions, in words.
    fn merged(&self) -> String {
        let Some(plan) = self.plan else {
            return "no plan: the service refuses one for this query".to_owned();
        };
        let steps = merge_steps(plan);
        if steps.is_empty() { "nothing".to_owned() } else { steps.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_query_is_explained_with_and_without_a_plan() {
        let metrics = QueryMetrics::default();
        let facts = |plan| QueryFacts { plan, charge: 2.5, requests: 1, metrics: &metrics };
        let merged = |plan| facts(plan).lines().pop().unwrap().1;
        assert_eq!(merged(None), "no plan: the service refuses one for this query");
        assert_eq!(facts(None).query_of_partitions(), None);
        let plan = json!({"queryInfo": {"rewrittenQuery": "SELECT 1", "orderBy": ["Ascending"]}});
        assert_eq!(merged(Some(&plan)), "ORDER BY");
        assert_eq!(facts(Some(&plan)).query_of_partitions(), Some("SELECT 1"));
        assert_eq!(facts(None).lines()[0], ("charge", "2.50 RU in 1 request".to_owned()));
    }
}
