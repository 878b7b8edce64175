//! Queries with ORDER BY RANK that this server runs itself. With the option `strict_gateway`, the
//! server refuses what the service's gateway refuses, and runs only queries of a part of the container,
//! such as one partition (the service answers those of one partition without a plan). Without the
//! option it runs every query with ORDER BY RANK.
//!
//! The server follows the plan that it gives to clients: statistics of the scope, one query per
//! score, fusion. The whole result is one page.

use std::sync::Arc;

use perihelion_engine::{Container, Paging, QueryPage, QueryRequest, QueryScope, Refusal};
use perihelion_model::json::{self, Style, Value};
use perihelion_query::merge::{HybridSearch, MergeError};

use super::{ALL_FEATURES, Statement, compile, compile_refusal, plan_of, run, statement_scope};
use crate::call::Call;
use crate::long_reads::HeldMemory;
use crate::routes::RegionService;

/// The most rows in a page of a component query: as many as may be fused.
const PAGE_ROWS_MAX: usize = 50_000;

/// The most bytes of the rows of all component queries of a search. A search with more cannot be ranked in
/// memory.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// The rows of one search may take the server's memory divided by this number: a quarter. All queries
/// together may take half of the memory, so the other quarter is left for the state of the component query
/// that runs. A search with more rows is refused with 400. Without this limit it would get 429 at every try,
/// even from an idle server.
const MEMORY_PART: usize = 4;

/// The most pages of one component query. A page has up to 4 MB, and less if other reads wait.
const PAGES_MAX: usize = 1000;

pub(super) async fn serve(
    service: &RegionService,
    container: &Arc<Container>,
    statement: &Statement,
    call: &Call,
) -> Result<QueryPage, Refusal> {
    let plan = plan_of(container, statement, Some(ALL_FEATURES))
        .map_err(|error| Refusal::bad_request(error.to_string()))?;
    let refuse = |error: MergeError| Refusal::bad_request(error.to_string());
    let search = HybridSearch::from_json(&plan).map_err(refuse)?;
    let search = search.ok_or_else(|| Refusal::bad_request("ORDER BY RANK needs a plan."))?;
    let reads = &service.account.long_reads;
    let (held, bytes_max) = (reads.hold_rows(), BYTES_MAX.min(reads.memory_bytes() / MEMORY_PART));
    let mut runner = Runner { service, container, statement, call, held, bytes_max, page: None };
    let statistics = match search.statistics_query() {
        Some(query) => Some(runner.rows(query).await?),
        None => None,
    };
    let mut rows = Vec::new();
    for query in search.component_queries(&statistics.unwrap_or_default()).map_err(refuse)? {
        rows.extend(runner.rows(&query).await?);
    }
    let rows = search.fuse(rows).map_err(refuse)?;
    let text: Vec<String> = rows.iter().map(|row| json::to_text(row, Style::Query)).collect();
    let page = runner.page.ok_or_else(|| Refusal::bad_request("ORDER BY RANK has no scoring function."))?;
    Ok(QueryPage { rows_text: text.join(","), rows: rows.len(), continuation: None, ..page })
}

/// Runs the statements of the plan in the scope of the request.
struct Runner<'a> {
    service: &'a RegionService,
    /// The container as it was when the search began.
    container: &'a Arc<Container>,
    statement: &'a Statement,
    call: &'a Call,
    /// The memory of the rows of all statements.
    held: HeldMemory,
    /// The most bytes that `held` may have.
    bytes_max: usize,
    /// The last page, with the work and the charge of all pages.
    page: Option<QueryPage>,
}

impl Runner<'_> {
    /// All rows of a statement.
    async fn rows(&mut self, text: &str) -> Result<Vec<Value>, Refusal> {
        let query = perihelion_query::parse(text).map_err(|errors| compile_refusal(&errors))?;
        let statement = Statement { query, parameters: self.statement.parameters.clone(), resume: None };
        let mut rows = Vec::new();
        let mut continuation = None;
        for _ in 0..PAGES_MAX {
            let container = self.current_container()?;
            let scope = statement_scope(self.call, &container, self.statement)?;
            let request = Arc::new(QueryRequest {
                program: compile(self.service, &statement, &container.computed)?,
                scope: scope.unwrap_or(QueryScope::All),
                rows_max: PAGE_ROWS_MAX,
                continuation,
                resume: None,
                paging: Paging::Whole,
            });
            let page = run(self.service, &container, &request, self.call).await?;
            self.hold(page.rows_text.len())?;
            match json::parse_str(&format!("[{}]", page.rows_text)) {
                Ok(Value::Array(more)) => rows.extend(more),
                _ => {
                    return Err(Refusal::bad_request(
                        "A component of ORDER BY RANK returned rows that are not valid JSON.",
                    ));
                }
            }
            continuation = page.continuation.clone();
            self.add(page);
            if continuation.is_none() {
                return Ok(rows);
            }
        }
        Err(Refusal::bad_request(format!(
            "ORDER BY RANK needs more than {PAGES_MAX} pages of rows for one of its scores. Narrow the filter, or try again when the server has less to do."
        )))
    }

    /// Takes memory for rows. A search that needs more than `bytes_max` is refused with 400, because it
    /// could never succeed. If other requests hold the memory, the search is refused with 429.
    fn hold(&mut self, bytes: usize) -> Result<(), Refusal> {
        if self.held.bytes().saturating_add(bytes) > self.bytes_max {
            return Err(Refusal::bad_request(format!(
                "ORDER BY RANK has to compare more than {} KiB of rows, counted for all of its scores. Select fewer properties, use a lower TOP or fewer scores, or narrow the filter.",
                self.bytes_max / 1024
            )));
        }
        self.held.add(bytes)
    }

    /// The container as it is now. Each page needs it, because an index may be dropped and a physical
    /// partition may be split while a search runs.
    fn current_container(&self) -> Result<Arc<Container>, Refusal> {
        let catalog = self.service.engine.catalog();
        let container = catalog.container_by_rid(self.container.rid.database, &self.container.rid_text);
        container.cloned().ok_or_else(Refusal::no_such_resource)
    }

    /// Keeps a page as the last page. Adds the work and the charge of the pages before it.
    fn add(&mut self, mut page: QueryPage) {
        if let Some(before) = &self.page {
            page.charge += before.charge;
            page.work.documents += before.work.documents;
            page.work.bytes += before.work.bytes;
        }
        self.page = Some(page);
    }
}
