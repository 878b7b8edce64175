//! `get_system_metrics` and `get_queue_depths`. The runtime asks for both when it starts and then
//! every minute. Each call costs a bounded number of request units, however large the container
//! is: instances are counted in steps, and the depths of queues up to a limit.
//! `process::count_cache` caches the results.

use std::future::Future;
use std::time::Duration;

use duroxide::providers::{QueueDepths, SystemMetrics};
use perihelion_client::Query;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::documents::{DocumentType, ExecutionStatus};
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::process::clock::HybridClock;
use crate::store::Store;

/// The most request units of one step of the scan that counts instances. The step ends with the
/// page that exceeds them.
const STEP_RU_MAX: f64 = 200.0;

/// The rows of one page of the scan.
const PAGE_ROWS: u32 = 500;

/// The most documents of each queue that are counted in one physical partition.
const DEPTH_MAX: usize = 2_000;

/// How long a caller waits for counts. The runtime asks when it starts, and must not wait for a
/// database that answers slowly.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// `get_system_metrics`. A small container is counted whole. Of a large container, each call counts
/// the next part, and returns the last count of the whole container. Until the whole container was
/// counted once, a call returns the count so far.
pub(crate) async fn system_metrics(core: &Core) -> Result<SystemMetrics, Failure> {
    let count = || async {
        let mut scan = core.instance_scan.lock().await;
        let charge = scan.step(&core.store, STEP_RU_MAX).await?;
        Ok((scan.result(), charge))
    };
    in_time(core.system_metrics.get(&core.metrics, core.membership.is_idle(), count)).await
}

pub(crate) async fn queue_depths(core: &Core) -> Result<QueueDepths, Failure> {
    in_time(
        core.queue_depths
            .get(&core.metrics, core.membership.is_idle(), || count_queues(&core.store, &core.clock)),
    )
    .await
}

async fn in_time<T>(count: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::time::timeout(ANSWER_TIMEOUT, count).await.unwrap_or_else(|_| {
        Err(Failure::Contended(format!("the counts took longer than {} s", ANSWER_TIMEOUT.as_secs())))
    })
}

/// The scan that counts instances, executions and events, step by step.
#[derive(Debug, Default)]
pub(crate) struct InstanceScan {
    /// The index of the filter in [`SCAN_FILTERS`] whose documents are counted now.
    filter_index: usize,
    /// Where the next page of this filter begins; `None` for its first page.
    continuation: Option<String>,
    /// The count of the documents that were read so far.
    partial: SystemMetrics,
    /// The last count of the whole container.
    whole: Option<SystemMetrics>,
}

/// The documents that are counted. There are two filters, because each is answered from an index.
/// The condition on the id leaves out the chunks of history, which have the same type as the state.
const SCAN_FILTERS: [&str; 2] =
    ["c.type = 'execution'", "c.id = 'i' AND c.type = 'history' AND c.created = true"];

impl InstanceScan {
    /// Counts the next documents, and stops with the page that exceeds `ru_max`. Returns the
    /// charge. After a transient failure the next step continues with the page that failed. After
    /// any other failure the next step counts the whole container anew, because the service may
    /// refuse the continuation for ever.
    pub(crate) async fn step(&mut self, store: &Store, ru_max: f64) -> Result<f64, Failure> {
        let counted = self.count_next(store, ru_max).await;
        if counted.as_ref().is_err_and(|failure| !failure.is_transient()) {
            (self.filter_index, self.continuation, self.partial) = (0, None, SystemMetrics::default());
        }
        counted
    }

    async fn count_next(&mut self, store: &Store, ru_max: f64) -> Result<f64, Failure> {
        let mut charge = 0.0;
        while charge < ru_max {
            let Some(filter) = SCAN_FILTERS.get(self.filter_index) else { break };
            let mut query = Query::new(format!("SELECT c.type, c.status, c.events FROM c WHERE {filter}"))
                .with_max_items(PAGE_ROWS);
            if let Some(continuation) = &self.continuation {
                query = query.with_continuation(continuation.clone());
            }
            let page = store.container.query::<CountRow>(query).next_page().await?;
            charge += page.as_ref().map_or(0.0, |page| page.charge());
            let continuation = page.as_ref().map_or(Ok(None), |page| page.continuation())?;
            self.continuation = continuation.map(ToOwned::to_owned);
            page.into_iter().flat_map(|page| page.items).for_each(|row| add_row(&mut self.partial, row));
            if self.continuation.is_none() {
                self.filter_index += 1;
            }
        }
        if self.filter_index >= SCAN_FILTERS.len() {
            self.whole = Some(std::mem::take(&mut self.partial));
            self.filter_index = 0;
        }
        Ok(charge)
    }

    /// The last count of the whole container. Until it was counted once: the count so far.
    pub(crate) fn result(&self) -> SystemMetrics {
        self.whole.clone().unwrap_or_else(|| self.partial.clone())
    }
}

/// A row of the scan: one document.
#[derive(Debug, Deserialize)]
struct CountRow {
    #[serde(rename = "type")]
    document_type: DocumentType,
    #[serde(default)]
    status: ExecutionStatus,
    /// The number of events in its history.
    #[serde(default)]
    events: u64,
}

/// Counts one document. The state document of an instance (type `history`, `created`) counts as
/// the instance and as its current execution. Documents of type `execution` are past executions.
/// An instance counts as running, completed or failed; instances with other statuses count only
/// in the total.
fn add_row(metrics: &mut SystemMetrics, row: CountRow) {
    metrics.total_executions += 1;
    metrics.total_events += row.events;
    if row.document_type != DocumentType::History {
        return;
    }
    metrics.total_instances += 1;
    match row.status {
        ExecutionStatus::Running => metrics.running_instances += 1,
        ExecutionStatus::Completed => metrics.completed_instances += 1,
        ExecutionStatus::Failed => metrics.failed_instances += 1,
        ExecutionStatus::None | ExecutionStatus::ContinuedAsNew | ExecutionStatus::Other(_) => {}
    }
}

/// The numbers of visible messages, of visible activities, and of messages that are not
/// visible yet (timers and delayed messages). Messages of a locked instance are visible,
/// locked activities are not. Bundles and outboxes are not counted. Each number counts at most
/// [`DEPTH_MAX`] documents of a physical partition, so that the cost is bounded. Returns the
/// charge too, in request units.
async fn count_queues(store: &Store, clock: &HybridClock) -> Result<(QueueDepths, f64), Failure> {
    let now = clock.now();
    let mut charge = 0.0;
    let mut counts = [0; 3];
    let filters = [
        "c.type = 'orch_queue' AND c.visibleAt <= @now",
        "c.type = 'worker_queue' AND c.visibleAt <= @now",
        "c.type = 'orch_queue' AND c.visibleAt > @now",
    ];
    for (filter, count) in filters.into_iter().zip(&mut counts) {
        // Without a query plan, the limit applies to each physical partition.
        let query = Query::new(format!("SELECT TOP {DEPTH_MAX} VALUE 1 FROM c WHERE {filter}"))
            .with_parameter("@now", now.0)
            .without_plan();
        let (rows, query_charge) = all_rows::<u8>(store, query).await?;
        *count = rows.len();
        charge += query_charge;
    }
    let [orchestrator_queue, worker_queue, timer_queue] = counts;
    Ok((QueueDepths { orchestrator_queue, worker_queue, timer_queue }, charge))
}

/// All rows of a query, and its charge in request units.
async fn all_rows<T: DeserializeOwned>(store: &Store, query: Query) -> Result<(Vec<T>, f64), Failure> {
    let mut feed = store.container.query::<T>(query);
    let (mut rows, mut charge) = (Vec::new(), 0.0);
    while let Some(page) = feed.next_page().await? {
        charge += page.charge();
        rows.extend(page.items);
    }
    Ok((rows, charge))
}

#[cfg(test)]
mod tests;
