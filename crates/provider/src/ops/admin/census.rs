//! `CosmosDBProvider::count`: how many instances a filter selects, by status. The server counts.
//! Each page of its answer has the counts of some of the documents. The number of pages is limited,
//! so that the cost is bounded.

use perihelion_client::Query;
use serde::Deserialize;

use crate::failure::Failure;
use crate::ops::admin::{page, pending};
use crate::options::inspection::InstanceCounts;
use crate::options::listing::{ListOptions, PENDING};
use crate::store::Store;

/// The most pages of counts. Each is one request, and counts at least some thousand documents.
const COUNT_PAGES_MAX: usize = 200;

/// The most pages of pending instances, which are counted one by one.
const PENDING_PAGES_MAX: usize = 10;

/// The rows of a page of pending instances.
const PENDING_PAGE_ROWS: u32 = 1000;

/// A row of the count: some instances with the same status.
#[derive(Debug, Deserialize)]
struct StatusCount {
    status: String,
    count: u64,
}

pub(crate) async fn run(store: &Store, options: &ListOptions) -> Result<InstanceCounts, Failure> {
    let mut counts = InstanceCounts { is_complete: true, ..InstanceCounts::default() };
    let is_pending_only = options.status.as_deref() == Some(PENDING);
    if !is_pending_only {
        count_existing(store, options, &mut counts).await?;
    }
    if is_pending_only || options.status.is_none() {
        count_pending(store, options, &mut counts).await?;
    }
    counts.by_status.retain(|_, count| *count > 0);
    Ok(counts)
}

async fn count_existing(
    store: &Store,
    options: &ListOptions,
    counts: &mut InstanceCounts,
) -> Result<(), Failure> {
    // Each physical partition groups its own documents. This function adds up the groups.
    let query: Query =
        page::select("SELECT c.status AS status, COUNT(1) AS count", options, " GROUP BY c.status")
            .without_plan();
    let mut feed = store.container.query::<StatusCount>(query);
    for _ in 0..COUNT_PAGES_MAX {
        let Some(page) = feed.next_page().await? else { return Ok(()) };
        counts.request_units += page.charge();
        for row in page.items {
            *counts.by_status.entry(row.status).or_default() += row.count;
        }
    }
    counts.is_complete = false;
    Ok(())
}

async fn count_pending(
    store: &Store,
    options: &ListOptions,
    counts: &mut InstanceCounts,
) -> Result<(), Failure> {
    let mut continuation = None;
    for _ in 0..PENDING_PAGES_MAX {
        let page = pending::page(store, options, continuation.take(), PENDING_PAGE_ROWS).await?;
        *counts.by_status.entry(PENDING.to_owned()).or_default() += page.instances.len() as u64;
        let Some(next) = page.continuation else { return Ok(()) };
        continuation = Some(next);
    }
    counts.is_complete = false;
    Ok(())
}
