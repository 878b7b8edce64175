//! `get_system_metrics` and `get_queue_depths`: aggregate queries over the container.
//! `process::count_cache` caches their results.

use duroxide::providers::{QueueDepths, SystemMetrics};
use perihelion_client::Query;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::documents::{DocumentType, ExecutionStatus};
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::process::clock::HybridClock;
use crate::store::Store;

pub(crate) async fn system_metrics(core: &Core) -> Result<SystemMetrics, Failure> {
    core.system_metrics.get(&core.metrics, || count_instances(&core.store)).await
}

pub(crate) async fn queue_depths(core: &Core) -> Result<QueueDepths, Failure> {
    core.queue_depths.get(&core.metrics, || count_queues(&core.store, &core.clock)).await
}

/// A row of the query in `count_instances`: the documents of one type and status.
#[derive(Debug, Deserialize)]
struct CountRow {
    #[serde(rename = "type")]
    document_type: DocumentType,
    #[serde(default)]
    status: ExecutionStatus,
    #[serde(rename = "n")]
    document_count: u64,
    /// The number of events in the histories of these documents.
    #[serde(default)]
    events: u64,
}

/// Counts instances, executions and events. The state document of an instance (type `history`,
/// `created`) counts as the instance and as its current execution. Documents of type
/// `execution` are past executions. An instance counts as running, completed or failed;
/// instances with other statuses count only in the total. Returns the charge too, in request
/// units.
async fn count_instances(store: &Store) -> Result<(SystemMetrics, f64), Failure> {
    let members = "SELECT c.type, c.status, COUNT(1) AS n, SUM(c.events) AS events FROM c WHERE";
    // Two queries, because each is answered from an index. The id leaves out the chunks of
    // history, which have the type of a state.
    let filters = ["c.type = 'execution'", "c.id = 'i' AND c.type = 'history' AND c.created = true"];
    let (mut rows, mut charge) = (Vec::new(), 0.0);
    for filter in filters {
        let query = Query::new(format!("{members} {filter} GROUP BY c.type, c.status"));
        let (found, paid) = all_rows::<CountRow>(store, query).await?;
        rows.extend(found);
        charge += paid;
    }
    let mut metrics = SystemMetrics::default();
    for row in rows {
        metrics.total_executions += row.document_count;
        metrics.total_events += row.events;
        if row.document_type != DocumentType::History {
            continue;
        }
        metrics.total_instances += row.document_count;
        match row.status {
            ExecutionStatus::Running => metrics.running_instances += row.document_count,
            ExecutionStatus::Completed => metrics.completed_instances += row.document_count,
            ExecutionStatus::Failed => metrics.failed_instances += row.document_count,
            ExecutionStatus::None | ExecutionStatus::ContinuedAsNew | ExecutionStatus::Other(_) => {}
        }
    }
    Ok((metrics, charge))
}

/// The numbers of visible messages, of visible activities, and of messages that are not
/// visible yet (timers and delayed messages). Messages of a locked instance are visible,
/// locked activities are not. Bundles and outboxes are not counted. Returns the charge too,
/// in request units.
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
        // Each physical partition returns its own count.
        let query = Query::new(format!("SELECT VALUE COUNT(1) FROM c WHERE {filter}"))
            .with_parameter("@now", now.0)
            .without_plan();
        let (rows, query_charge) = all_rows::<usize>(store, query).await?;
        *count = rows.into_iter().sum();
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
