//! The methods of a provider for tools: counts, queues, workers, locks, costs, sessions and trees. Every
//! method only reads, and the number of its requests is bounded, however many documents the container
//! has. Some methods send a few requests to each physical partition.

use std::time::Duration;

use duroxide::providers::ProviderError;
use perihelion_client::Client;

use crate::api::provider::CosmosDBProvider;
use crate::ops::admin::{
    census, cost, examine, locks, overdue, queues, recorded_start, sessions, tree, workers,
};
use crate::options::check::Check;
use crate::options::inspection::{
    InstanceCounts, LockOptions, LockPage, OverdueWork, QueueInfo, RecordedStart, SessionInfo, WorkerInfo,
    WorkflowCost, WorkflowTree,
};
use crate::options::listing::ListOptions;

impl CosmosDBProvider {
    /// Examines an account and a container with the checks that opening a provider makes. Also looks
    /// for settings that make a provider more expensive than necessary. Only reads: about nine
    /// requests, and one for each physical partition. Creates nothing. A container on which no
    /// provider can run is examined too.
    ///
    /// ```no_run
    /// # async fn example(client: perihelion_client::Client) {
    /// # use duroxide_cdb::{CheckResult, CosmosDBProvider};
    /// for check in CosmosDBProvider::examine(&client, "duroxide", "duroxide").await {
    ///     if check.result == CheckResult::Problem {
    ///         println!("{}: {}", check.subject, check.finding);
    ///     }
    /// }
    /// # }
    /// ```
    pub async fn examine(client: &Client, database: &str, container: &str) -> Vec<Check> {
        examine::run(client, database, container).await
    }

    /// Counts the instances that these options select, by status. The order and the page of the
    /// options do not matter. Reads at most 200 pages of counts of existing instances, and 10 pages
    /// of 1,000 pending instances each; if that is not enough, the result says so. For each 64 pending
    /// instances one more query finds out which of them have begun. A queued message whose text is
    /// stored in parts may be a start, so each such message is read too.
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

    /// The queues of the container, with their depth and the age of their oldest entry. Sends four
    /// queries to each physical partition. Each query returns at most 2,000 entries.
    pub async fn queues(&self) -> Result<Vec<QueueInfo>, ProviderError> {
        self.core.metrics.call("queues", queues::run(&self.core.store, &self.core.clock)).await
    }

    /// Work that no process has taken for at least `age`: entries of the queue of turns and of the
    /// queue of activities, at most 50 of each queue in each physical partition. In each queue, the
    /// entries that wait longest come first. The workers for these entries are missing or busy, or have
    /// not registered the orchestration or the activity. Sends two queries to each physical partition.
    /// Entries that cannot be read are left out. If some partitions do not answer, the result has the
    /// entries of the other partitions and says so. If no partition answers, this method fails.
    pub async fn overdue(&self, age: Duration) -> Result<OverdueWork, ProviderError> {
        self.core.metrics.call("overdue", overdue::run(&self.core.store, &self.core.clock, age)).await
    }

    /// The processes that serve the container, by their heartbeats: at most 2,000.
    /// [`locks`](Self::locks) has the work that they hold.
    pub async fn workers(&self) -> Result<Vec<WorkerInfo>, ProviderError> {
        self.core.metrics.call("workers", workers::run(&self.core.store, &self.core.clock)).await
    }

    /// The work that processes have locked: a page of activities, and with the first page the turns
    /// whose lock was written in the last minute, at most 100 of them. Sends a few queries for the
    /// activities, and one query to each physical partition for the turns. If only the locks of one
    /// process are wanted, a page may have few activities or none, although another page follows
    /// ([`LockPage::examined`]).
    ///
    /// Most turns are locked in the memory of their process only, and are not found. Locks of processes
    /// of earlier builds do not name their process.
    pub async fn locks(&self, options: &LockOptions) -> Result<LockPage, ProviderError> {
        self.core.metrics.call("locks", locks::run(&self.core.store, &self.core.clock, options)).await
    }

    /// The activity sessions of the container, at most 1,000 of each physical partition.
    pub async fn sessions(&self) -> Result<Vec<SessionInfo>, ProviderError> {
        self.core.metrics.call("sessions", sessions::run(&self.core.store)).await
    }

    /// What an instance has cost so far, in total and by turn. Sends one request. If the history of
    /// the instance has chunks, sends at most ten more requests, which read at most 1,000 chunks,
    /// those of the newest executions first. If there are more chunks, the result says so. Fails for
    /// an instance that has not run yet.
    pub async fn cost(&self, instance: &str) -> Result<WorkflowCost, ProviderError> {
        self.core.metrics.call("cost", cost::run(&self.core.store, instance)).await
    }

    /// The name, version and input with which the current execution of an instance began, to start the
    /// same work again. `None` for an instance that does not exist or has not begun. Reads the history
    /// of the execution.
    pub async fn recorded_start(&self, instance: &str) -> Result<Option<RecordedStart>, ProviderError> {
        self.core.metrics.call("read_history", recorded_start::run(&self.core.store, instance)).await
    }

    /// An instance and its descendants, including pending ones: at most 1,000 instances in 32 levels.
    /// If there are more, the result says so.
    pub async fn tree(&self, instance: &str) -> Result<WorkflowTree, ProviderError> {
        self.core.metrics.call("tree", tree::run(&self.core.store, instance)).await
    }
}
