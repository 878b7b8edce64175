//! What tools ask a provider: counts, queues, workers, sessions and trees. Every method reads
//! only, and sends a bounded number of requests, however large the container is.

use duroxide::providers::ProviderError;

use crate::api::provider::CosmosDBProvider;
use crate::ops::admin::{census, queues, sessions, tree, workers};
use crate::options::inspection::{InstanceCounts, QueueInfo, SessionInfo, WorkerInfo, WorkflowTree};
use crate::options::listing::ListOptions;

impl CosmosDBProvider {
    /// Counts the instances that these options select, by status. The order and the page of the
    /// options do not matter. At most 200 requests for existing instances and 10 for pending ones;
    /// if that is not enough, the result says so.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use duroxide_cdb::{CosmosDBProvider, ListOptions};
    /// # let store = CosmosDBProvider::embedded_in_memory().await?;
    /// let failed = store.count(&ListOptions::from_filter("status=failed", 0)?).await?;
    /// assert_eq!(failed.total(), 0);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn count(&self, options: &ListOptions) -> Result<InstanceCounts, ProviderError> {
        self.core.metrics.call("count", census::run(&self.core.store, options)).await
    }

    /// The queues of the container, with their depth and the age of their oldest entry. Four
    /// queries of each physical partition, each of at most 2,000 entries.
    pub async fn queues(&self) -> Result<Vec<QueueInfo>, ProviderError> {
        self.core.metrics.call("queues", queues::run(&self.core.store, &self.core.clock)).await
    }

    /// The processes that serve the container, by their heartbeats: at most 2,000. Activities and
    /// turns that a process holds are not among its data, because locks do not name their process.
    pub async fn workers(&self) -> Result<Vec<WorkerInfo>, ProviderError> {
        self.core.metrics.call("workers", workers::run(&self.core.store)).await
    }

    /// The activity sessions of the container, at most 1,000 of each physical partition.
    pub async fn sessions(&self) -> Result<Vec<SessionInfo>, ProviderError> {
        self.core.metrics.call("sessions", sessions::run(&self.core.store)).await
    }

    /// An instance and its descendants, with pending ones: at most 1,000 instances in 32 levels.
    /// If there are more, the result says so.
    pub async fn tree(&self, instance: &str) -> Result<WorkflowTree, ProviderError> {
        self.core.metrics.call("tree", tree::run(&self.core.store, instance)).await
    }
}
