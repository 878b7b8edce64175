//! Queries: typed pages and streams over one partition, a part of the
//! container, or all of it.
//!
//! [`Query`] says what is asked, [`QueryFeed`] is the answer in the making. What
//! concerns one partition key, or needs no merging, the service answers alone
//! (`direct`); sorts, windows, DISTINCT, aggregates and groups over several
//! physical partitions are asked of each and put together here (`merged`),
//! after the service's own plan. `route` decides which it is.
//!
//! What always holds: nothing is sent before the first page is asked for, at
//! most `parallel_max` requests are under way, and none outlives the feed.

mod direct;
mod exchange;
mod merged;
mod page;
mod route;
mod statement;
mod streams;

use std::marker::PhantomData;

use serde::de::DeserializeOwned;

pub use page::Page;
pub use statement::Query;
pub use streams::{Pages, Rows};

use crate::container::Container;
use crate::{Error, FeedRange};
use direct::Direct;
use merged::Merged;

/// The answer to a query, page by page.
///
/// ```no_run
/// # #[derive(serde::Deserialize)] struct Order { total: f64 }
/// # use perihelion_client::Query;
/// # async fn example(orders: perihelion_client::Container) -> Result<(), perihelion_client::Error> {
/// let dear = Query::new("SELECT * FROM c WHERE c.total > @least ORDER BY c.total DESC")
///     .with_parameter("@least", 100);
/// let mut feed = orders.query::<Order>(dear);
/// while let Some(page) = feed.next_page().await? {
///     println!("{} orders for {} RU", page.items.len(), page.charge());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct QueryFeed<T> {
    container: Container,
    query: Query,
    stage: Stage,
    rows: PhantomData<fn() -> T>,
}

/// How far a query is.
#[derive(Debug)]
enum Stage {
    Unsent,
    Direct(Direct),
    Merged(Box<Merged>),
}

impl<T> QueryFeed<T> {
    pub(crate) fn new(container: &Container, query: Query) -> Self {
        QueryFeed { container: container.clone(), query, stage: Stage::Unsent, rows: PhantomData }
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
    /// The next page, which is never empty; `None` when there are no more. After
    /// a failed request it may be asked again and goes on where it was; a call
    /// that is given up (dropped) loses nothing either.
    pub async fn next_page(&mut self) -> Result<Option<Page<T>>, Error> {
        let QueryFeed { container, query, stage, .. } = self;
        loop {
            match stage {
                Stage::Unsent => *stage = route::route(container, query).await?,
                Stage::Direct(direct) => match direct.next_page(container, query).await {
                    Err(error) if direct.is_fresh() => {
                        *stage = route::reroute(container, query, error).await?;
                    }
                    outcome => return outcome,
                },
                Stage::Merged(merged) => return merged.next_page(container, query).await,
            }
        }
    }

    /// All rows. Mind how many there may be: they are all in memory.
    pub async fn collect(mut self) -> Result<Vec<T>, Error> {
        let mut rows = Vec::new();
        while let Some(page) = self.next_page().await? {
            rows.extend(page.items);
        }
        Ok(rows)
    }

    /// The first row, if there is one. Nothing after its page is asked for.
    pub async fn first(mut self) -> Result<Option<T>, Error> {
        Ok(self.next_page().await?.and_then(|page| page.items.into_iter().next()))
    }
}

/// One range for each physical partition that the container has now.
pub(crate) async fn feed_ranges(container: &Container) -> Result<Vec<FeedRange>, Error> {
    let metadata = container.driver().metadata(container.inner()).await?;
    Ok(metadata.ranges.iter().map(|range| FeedRange::of(&range.range)).collect())
}
