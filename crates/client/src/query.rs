//! Queries over one partition, a feed range, or the whole container, with typed
//! pages and streams.
//!
//! [`Query`] is the statement with its options. [`QueryFeed`] runs a query page by
//! page. `route` decides between two ways to run a query. The service alone answers
//! queries of one whole partition key, and most queries over the whole container that
//! need no merging (`direct`). Any other query runs on each physical partition of its
//! scope, and the client merges the rows (`merged`). For ORDER BY, TOP, OFFSET LIMIT,
//! DISTINCT, aggregates and GROUP BY the client follows a query plan, its own or the service's
//! (`plan`). For ORDER BY RANK it runs several statements and fuses their ranks (`hybrid`).
//!
//! No request is sent before the caller asks for the first page. At most `parallel_max`
//! requests are under way at the same time. No request outlives the feed.

mod direct;
mod exchange;
mod hybrid;
mod merge_steps;
mod merged;
mod metrics;
mod page;
mod plan;
mod received;
mod refusal;
mod route;
mod statement;
mod streams;

use serde::de::DeserializeOwned;
use tokio::time::Instant;

pub use merge_steps::merge_steps;
pub use metrics::{CompositeIndexUtilization, IndexMetrics, QueryMetrics, SingleIndexUtilization};
pub use page::Page;
pub use refusal::{query_error_start, query_messages};
pub use statement::Query;
pub use streams::{Pages, Rows};

pub(crate) use plan::read_plan;

use crate::Error;
use crate::deadline;
use crate::handle::ContainerHandle;
use crate::page_stream::PageFeed;
use direct::Direct;
use hybrid::Hybrid;
use merged::Merged;
use page::PageCost;
use plan::Plan;
use received::ReceivedPage;
use route::Decision;

/// The result of a query, page by page.
///
/// ```no_run
/// # #[derive(serde::Deserialize)] struct Order { total: f64 }
/// # use perihelion_client::Query;
/// # async fn example(orders: perihelion_client::Container) -> Result<(), perihelion_client::Error> {
/// let large = Query::new("SELECT * FROM c WHERE c.total > @least ORDER BY c.total DESC")
///     .with_parameter("@least", 100);
/// let mut feed = orders.query::<Order>(large);
/// while let Some(page) = feed.next_page().await? {
///     println!("{} orders for {} RU", page.items.len(), page.charge());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct QueryFeed<T> {
    container: ContainerHandle,
    query: Query,
    execution: Execution,
    /// The client's own plan, until the first page is received. Until then the service may
    /// refuse the statement of this plan.
    own_plan: Option<Plan>,
    /// The rest of a page with a row that could not be parsed.
    received: Option<ReceivedPage<T>>,
    /// The cost of pages that were not returned because none of their rows could be parsed.
    skipped_cost: PageCost,
    /// Whether the last call failed because of a row that could not be parsed.
    is_row_skipped: bool,
    /// When the whole query must end; `None` before the first page, and without a limit.
    deadline: Option<Instant>,
}

/// How a query is run.
#[derive(Debug)]
enum Execution {
    /// Not decided yet: no page was requested.
    Unsent,
    /// By the service alone.
    Direct(Direct),
    /// On each physical partition, with a merge by the client.
    Merged(Box<Merged>),
    /// Several statements on each physical partition, whose ranks the client fuses.
    Hybrid(Box<Hybrid>),
}

impl<T> QueryFeed<T> {
    pub(crate) fn new(container: &ContainerHandle, query: Query) -> Self {
        QueryFeed {
            container: container.clone(),
            query,
            execution: Execution::Unsent,
            own_plan: None,
            received: None,
            skipped_cost: PageCost::default(),
            is_row_skipped: false,
            deadline: None,
        }
    }

    /// The cost of the responses since the last page that was returned, as a page without rows and
    /// without a continuation token. `None` if there was no response. When
    /// [`next_page`](Self::next_page) has returned `None`, a tool that shows what a query costs adds
    /// this page to the others, because pages of the service without rows have a charge too.
    pub fn rest(&mut self) -> Option<Page<T>> {
        let mut cost = std::mem::take(&mut self.skipped_cost);
        if let Some(received) = &mut self.received {
            cost.merge(received.take_cost());
        }
        cost.merge(match &mut self.execution {
            Execution::Unsent => PageCost::default(),
            Execution::Direct(direct) => direct.take_cost(),
            Execution::Merged(merged) => merged.take_cost(),
            Execution::Hybrid(hybrid) => hybrid.take_cost(),
        });
        cost.into_page()
    }

    /// A stream of pages.
    pub fn pages(self) -> Pages<T> {
        Pages::new(self)
    }

    /// A stream of rows.
    pub fn into_stream(self) -> Rows<T> {
        Rows::new(self)
    }
}

impl<T: DeserializeOwned> QueryFeed<T> {
    /// The next page, which is never empty; `None` after the last page. After a failed
    /// request the next call continues at the same row. When a row cannot be parsed as
    /// `T`, the call fails and that row is skipped: the next call returns the other rows of its
    /// page, with the page's continuation token and charge. The charge of a page without other rows is
    /// part of the next page, or of [`rest`](Self::rest). Dropping the future of
    /// a call loses no rows.
    pub async fn next_page(&mut self) -> Result<Option<Page<T>>, Error> {
        if self.deadline.is_none() {
            self.deadline = deadline::from_now(self.query.total_timeout);
        }
        self.is_row_skipped = false;
        // The future is large, and the future of `within` would have room for it twice. So it is boxed.
        let deadline = self.deadline;
        deadline::within(deadline, "the query", Box::pin(self.parsed_page())).await
    }

    async fn parsed_page(&mut self) -> Result<Option<Page<T>>, Error> {
        loop {
            if self.received.is_none() {
                self.received = self.request_page().await?;
            }
            let Some(received) = &mut self.received else { return Ok(None) };
            received.parse().inspect_err(|_| self.is_row_skipped = true)?;
            let Some(mut received) = self.received.take() else { return Ok(None) };
            self.skipped_cost.merge(received.take_cost());
            // A page whose only row was skipped is not returned. Its cost is part of the next page.
            if let Some(page) = received.into_page(&mut self.skipped_cost) {
                return Ok(Some(page));
            }
        }
    }

    async fn request_page(&mut self) -> Result<Option<ReceivedPage<T>>, Error> {
        let QueryFeed { container, query, execution, own_plan, .. } = self;
        loop {
            let outcome = match execution {
                Execution::Unsent => {
                    Decision { execution: *execution, own_plan: *own_plan } =
                        route::decide(container, query).await?;
                    continue;
                }
                Execution::Direct(direct) => direct.next_page(container, query).await,
                Execution::Merged(merged) => merged.next_page(container, query).await,
                Execution::Hybrid(hybrid) => hybrid.next_page(container, query).await,
            };
            let error = match outcome {
                Ok(page) => {
                    *own_plan = None;
                    return Ok(page);
                }
                Err(error) => error,
            };
            let is_first_direct_page =
                matches!(execution, Execution::Direct(direct) if direct.is_at_first_page());
            let decision = match own_plan {
                _ if is_first_direct_page => route::decide_after_refusal(container, query, error).await?,
                Some(plan) => route::decide_after_refused_plan(container, query, plan, error).await?,
                None => return Err(error),
            };
            Decision { execution: *execution, own_plan: *own_plan } = decision;
        }
    }

    /// Reads all rows into memory.
    pub async fn collect(mut self) -> Result<Vec<T>, Error> {
        let mut rows = Vec::new();
        while let Some(page) = self.next_page().await? {
            rows.extend(page.items);
        }
        Ok(rows)
    }

    /// The first row, if there is one. Reads no further page.
    pub async fn first(mut self) -> Result<Option<T>, Error> {
        Ok(self.next_page().await?.and_then(|page| page.items.into_iter().next()))
    }
}

impl<T: DeserializeOwned + Send + 'static> PageFeed<Page<T>> for QueryFeed<T> {
    const IS_KEPT_AT_END: bool = false;

    fn goes_on_after_error(&self) -> bool {
        self.is_row_skipped
    }

    fn next_page(&mut self) -> impl Future<Output = Result<Option<Page<T>>, Error>> + Send {
        QueryFeed::next_page(self)
    }
}
