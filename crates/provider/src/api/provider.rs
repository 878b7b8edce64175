//! `CosmosDBProvider`: the type that programs pass to duroxide. `runtime` and `admin`
//! implement duroxide's traits for it.

use std::sync::Arc;

use duroxide::providers::{DeleteInstanceResult, ProviderError};
use perihelion_client::{Client, Credential};

use crate::api::builder::CosmosDBProviderBuilder;
use crate::failure::Failure;
use crate::ops::core::Core;
pub use crate::options::config::CosmosDBProviderConfig;
use crate::options::config::OutboxFaultInjector;

/// duroxide's storage in a Cosmos DB container. Cheap to clone: clones share
/// connections, hints and locks.
#[derive(Clone)]
pub struct CosmosDBProvider {
    pub(crate) core: Arc<Core>,
}

impl CosmosDBProvider {
    /// Opens the container `duroxide` of a database. The database and the container are
    /// created if they are missing.
    pub async fn new(endpoint: &str, key: &str, database: &str) -> Result<Self, ProviderError> {
        let container = CosmosDBProviderConfig::default().container;
        Self::new_with_container(endpoint, key, database, &container).await
    }

    /// Opens a container of a database. The database and the container are created if they
    /// are missing.
    pub async fn new_with_container(
        endpoint: &str,
        key: &str,
        database: &str,
        container: &str,
    ) -> Result<Self, ProviderError> {
        Self::new_with_config(CosmosDBProviderConfig {
            endpoint: endpoint.to_owned(),
            key: key.to_owned(),
            database: database.to_owned(),
            container: container.to_owned(),
            ..CosmosDBProviderConfig::default()
        })
        .await
    }

    /// Opens the container of a configuration.
    pub async fn new_with_config(config: CosmosDBProviderConfig) -> Result<Self, ProviderError> {
        let credential =
            Credential::key(&config.key).map_err(|error| Failure::Storage(error).into_error("open"))?;
        Self::builder()
            .with_credential(&config.endpoint, credential)
            .with_database(config.database)
            .with_container(config.container)
            .with_reconciler(config.reconciler_interval, config.reconciler_age_threshold)
            .open()
            .await
    }

    /// Stores everything in this directory, created if missing, with the engine in this
    /// process. A directory belongs to one provider at a time: clone the provider to
    /// share it within a process, [`close`](Self::close) it before the directory is
    /// opened again, and start `perihelion server` to share data between processes.
    #[cfg(feature = "embedded")]
    pub async fn embedded(path: impl Into<std::path::PathBuf>) -> Result<Self, ProviderError> {
        let options = perihelion_server::EmbeddedOptions::default().with_data(path);
        Self::builder().with_embedded(options).open().await
    }

    /// Stores everything in memory, with the engine in this process, until the last clone
    /// is dropped. For tests.
    #[cfg(feature = "embedded")]
    pub async fn embedded_in_memory() -> Result<Self, ProviderError> {
        Self::builder().with_embedded(perihelion_server::EmbeddedOptions::default()).open().await
    }

    /// A builder, for connection strings, Entra ID, retention and commit tiers.
    pub fn builder() -> CosmosDBProviderBuilder {
        CosmosDBProviderBuilder::default()
    }

    pub(crate) fn from_core(core: Arc<Core>) -> Self {
        CosmosDBProvider { core }
    }

    /// Lists instances page by page, for tools.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), duroxide::providers::ProviderError> {
    /// # use duroxide_cdb::{CosmosDBProvider, ListOptions};
    /// # let store = CosmosDBProvider::embedded_in_memory().await?;
    /// let mut failed = ListOptions::new().with_status("Failed");
    /// loop {
    ///     let page = store.list(&failed).await?;
    ///     for instance in page.instances {
    ///         println!("{} of {}", instance.instance_id, instance.name);
    ///     }
    ///     let Some(next) = page.continuation else { break };
    ///     failed = failed.with_continuation(next);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn list(&self, options: &crate::ListOptions) -> Result<crate::ListPage, ProviderError> {
        self.core.metrics.call("list", crate::ops::admin::page::run(&self.core.store, options)).await
    }

    /// Deletes an instance and all its descendants, for tools. Unlike duroxide's
    /// `delete_instance`, this method also deletes an instance that was started and has not run
    /// yet (`Pending` in a listing). An instance that runs is deleted only if `is_forced`. A child
    /// is refused: it is deleted with its root.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use duroxide_cdb::{CosmosDBProvider, ListOptions};
    /// # let store = CosmosDBProvider::embedded_in_memory().await?;
    /// # let client = duroxide::Client::new(std::sync::Arc::new(store.clone()));
    /// client.start_orchestration("order-7", "Order", "").await?;
    /// let pending = store.list(&ListOptions::new().with_status("Pending")).await?;
    /// assert_eq!(pending.instances[0].instance_id, "order-7");
    /// assert_eq!(store.delete("order-7", false).await?.instances_deleted, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn delete(
        &self,
        instance: &str,
        is_forced: bool,
    ) -> Result<DeleteInstanceResult, ProviderError> {
        let deletion = crate::ops::admin::pending::delete_tree(&self.core, instance, is_forced);
        self.core.metrics.call("delete", deletion).await
    }

    /// The metrics of this provider since it was opened: requests, request units and
    /// latency by method; polls, conflicts, retries, steals (expired locks of other
    /// processes that were taken over) and more. Sends no request.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), duroxide::providers::ProviderError> {
    /// # use duroxide_cdb::CosmosDBProvider;
    /// let store = CosmosDBProvider::embedded_in_memory().await?;
    /// let metrics = store.metrics();
    /// println!("{} requests, {:.1} RU so far", metrics.requests, metrics.request_units);
    /// # Ok(())
    /// # }
    /// ```
    pub fn metrics(&self) -> crate::ProviderMetrics {
        self.core.metrics.snapshot(&self.core.clock)
    }

    /// [`CosmosDBProvider::metrics`] in the text format of Prometheus. An application can return
    /// this text for `GET /metrics`. Sends no request.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), duroxide::providers::ProviderError> {
    /// # use duroxide_cdb::CosmosDBProvider;
    /// let store = CosmosDBProvider::embedded_in_memory().await?;
    /// assert!(store.prometheus_text().contains("duroxide_cdb_requests_total"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn prometheus_text(&self) -> String {
        self.metrics().prometheus_text()
    }

    /// How much this provider has in its memory, structure by structure. Simulations read it.
    #[doc(hidden)]
    pub fn memory_sizes(&self) -> Vec<crate::MemorySize> {
        crate::ops::memory_sizes::of(&self.core)
    }

    /// The client that this provider was opened with. Requests that a program sends with it
    /// are not in the metrics.
    pub fn client(&self) -> &Client {
        &self.core.client
    }

    /// For tests: makes deliveries of messages to other instances fail. Only the deliveries
    /// right after a commit fail. The reconciler delivers the messages later.
    pub fn set_outbox_fault_injector(&mut self, injector: OutboxFaultInjector) {
        self.core.set_fault_injector(injector);
    }

    /// Stops the background tasks and deletes the container with everything in it, if it
    /// exists. For tests.
    pub async fn cleanup(&self) -> Result<(), ProviderError> {
        self.core.stop_tasks().await;
        match self.core.store.container.delete_container().await {
            Err(error) if !error.is_not_found() => Err(Failure::Storage(error).into_error("cleanup")),
            _ => Ok(()),
        }
    }

    /// Stops the background tasks, waits up to 20 seconds for deletions that have begun,
    /// removes the heartbeat of this provider and closes an embedded engine. All clones of
    /// the provider are closed with it and should not be used afterwards.
    ///
    /// Dropping the last clone stops the tasks and, inside a tokio runtime, closes the
    /// engine. Dropping does not wait for deletions, and the heartbeat stays until it expires.
    pub async fn close(self) {
        self.core.close().await;
    }
}

impl std::fmt::Debug for CosmosDBProvider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CosmosDBProvider({:?})", self.core.store.container)
    }
}
