//! A query with ORDER BY RANK over several partitions. It has three steps: a query for statistics
//! if the plan needs them, one component query for each score, and the fusion of the ranks.
//!
//! [`perihelion_query::merge::HybridSearch`] decides what to run and fuses the rows. Every
//! statement runs on each physical partition of its scope, like a merged query. The first page
//! waits for all statements. If the first page fails, or its future is dropped, the next call
//! runs all statements again.

use std::collections::VecDeque;
use std::sync::Arc;

use perihelion_driver::ContainerMetadata;
use perihelion_model::json::Value;
use perihelion_query::merge::{HybridSearch, MergeError, MergePlan};

use super::merged::{Merged, PAGE_ROWS, client_error};
use super::page::{Continuation, PageCost};
use super::received::ReceivedPage;
use super::statement::Query;
use crate::handle::ContainerHandle;
use crate::{Error, FeedRange};

/// A hybrid query, while its pages are read.
#[derive(Debug)]
pub(super) struct Hybrid {
    search: HybridSearch,
    range: FeedRange,
    metadata: Arc<ContainerMetadata>,
    /// The rows that were not returned yet; `None` before they are fused.
    rows: Option<VecDeque<Value>>,
    cost: PageCost,
}

impl Hybrid {
    pub(super) fn new(
        query: &Query,
        search: HybridSearch,
        range: FeedRange,
        metadata: Arc<ContainerMetadata>,
    ) -> Result<Self, MergeError> {
        if query.continuation.is_some() {
            return Err(MergeError::InvalidToken(
                "a query with ORDER BY RANK cannot be continued; run it from its beginning",
            ));
        }
        Ok(Hybrid { search, range, metadata, rows: None, cost: PageCost::default() })
    }

    /// The cost of the responses since the last page that was returned. It is zero afterwards.
    pub(super) fn take_cost(&mut self) -> PageCost {
        std::mem::take(&mut self.cost)
    }

    /// The next page; `None` after the last page.
    pub(super) async fn next_page<T>(
        &mut self,
        container: &ContainerHandle,
        query: &Query,
    ) -> Result<Option<ReceivedPage<T>>, Error> {
        let rows = match &mut self.rows {
            Some(rows) => rows,
            None => {
                let rows = self.fused(container, query).await?;
                self.rows.insert(rows.into())
            }
        };
        let count = query.max_items.map_or(PAGE_ROWS, |rows| rows as usize).min(rows.len());
        if count == 0 {
            return Ok(None);
        }
        let page = rows.drain(..count).collect();
        let continuation = if rows.is_empty() { Continuation::End } else { Continuation::Unavailable };
        Ok(Some(ReceivedPage::new(page, continuation, std::mem::take(&mut self.cost))))
    }

    /// Runs all statements of the plan, and returns the fused rows.
    async fn fused(&mut self, container: &ContainerHandle, query: &Query) -> Result<Vec<Value>, Error> {
        let mut statistics = Vec::new();
        if let Some(text) = self.search.statistics_query() {
            // The statistics are about the whole container, even if the query reads only a part of it.
            let (text, whole) = (text.to_owned(), FeedRange::whole());
            statistics = self.rows_of(container, query, &text, MergePlan::concatenation(), &whole).await?;
        }
        let queries = self.search.component_queries(&statistics).map_err(client_error)?;
        let mut rows = Vec::new();
        for text in queries {
            // `self.range` is the part of the container that the query asks for. Of the partitions of
            // this part, those are read that can hold a result by the ranges of the plan.
            let plan = MergePlan::concatenation_of(self.search.ranges());
            let range = self.range.clone();
            rows.extend(self.rows_of(container, query, &text, plan, &range).await?);
        }
        self.search.fuse(rows).map_err(client_error)
    }

    /// All rows of one statement.
    async fn rows_of(
        &mut self,
        container: &ContainerHandle,
        query: &Query,
        text: &str,
        plan: MergePlan,
        range: &FeedRange,
    ) -> Result<Vec<Value>, Error> {
        let statement = Query { text: text.into(), max_items: Some(ROWS_PER_REQUEST), ..query.clone() };
        let mut merged = Merged::new(&statement, plan, range.ends(), &self.metadata).map_err(client_error)?;
        let mut rows = Vec::new();
        while let Some(page) = merged.next_page::<Value>(container, &statement).await? {
            let (more, cost) = page.into_parts();
            self.cost.merge(cost);
            rows.extend(more);
        }
        self.cost.merge(merged.take_cost());
        Ok(rows)
    }
}

/// The rows per request: as many as a page of the service has by default.
const ROWS_PER_REQUEST: u32 = 1000;
