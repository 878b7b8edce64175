//! Durable workflows of [duroxide] on Azure Cosmos DB, on Perihelion's server,
//! or on its engine inside this process.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use duroxide::runtime::registry::ActivityRegistry;
//! use duroxide::runtime::{OrchestrationStatus, Runtime};
//! use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry};
//! use duroxide_cdb::CosmosDBProvider;
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let store = Arc::new(CosmosDBProvider::embedded_in_memory().await?);
//!     let activities = ActivityRegistry::builder()
//!         .register("charge", |_: ActivityContext, order: String| async move {
//!             Ok(format!("order {order} is paid"))
//!         })
//!         .build();
//!     let orchestrations = OrchestrationRegistry::builder()
//!         .register("order", |context: OrchestrationContext, order: String| async move {
//!             context.schedule_activity("charge", order).await
//!         })
//!         .build();
//!     let runtime = Runtime::start_with_store(store.clone(), activities, orchestrations).await;
//!     let client = Client::new(store);
//!     client.start_orchestration("order-1", "order", "1").await?;
//!     let status = client.wait_for_orchestration("order-1", Duration::from_secs(30)).await?;
//!     assert!(matches!(status, OrchestrationStatus::Completed { output, .. } if output == "order 1 is paid"));
//!     runtime.shutdown(None).await;
//!     Ok(())
//! }
//! ```
//!
//! Only the first line of `main` says where workflows are kept:
//!
//! | where | how |
//! |---|---|
//! | in a directory, by the engine in this process | [`CosmosDBProvider::embedded`] |
//! | in memory, gone with the provider | [`CosmosDBProvider::embedded_in_memory`] |
//! | an account of Azure or of `perihelion server`, by its key | [`CosmosDBProviderBuilder::with_connection_string`], or as in the published crate [`CosmosDBProvider::new`] |
//! | an account of Azure, by Entra ID | [`CosmosDBProviderBuilder::with_credential`], with the feature `azure-core` |
//!
//! Database and container are made if they are missing. Programs that share a
//! container share its workflows.
//!
//! # Features
//!
//! - `embedded` (default): the engine in this process. Without it the crate is
//!   a client only.
//! - `azure-core`: `Credential::azure` takes whatever `azure_identity` makes.
//! - `provider-test`: duroxide's validations, for tests.
//!
//! What always holds: an instance is one logical partition with one state
//! document, `i`, and every turn is one atomic batch that replaces `i` under
//! its etag. Locks, hints and polls only decide who tries; the etag decides who
//! wins. `docs/provider.md` has the layout.

#![warn(missing_docs)]

mod api;
mod documents;
mod failure;
mod migrate;
mod ops;
mod options;
mod plan;
mod process;
mod store;
mod sync;

pub use api::builder::CosmosDBProviderBuilder;
pub use api::provider::CosmosDBProvider;
pub use api::{client, provider};
pub use migrate::{ContainerName, Migration, MigrationReport};
pub use options::config::{CommitTier, CosmosDBProviderConfig, OutboxFaultInjector};
pub use options::listing::{ListOptions, ListOrder, ListPage, ListedInstance};
pub use options::retention::RetentionOptions;
pub use process::metrics::{Latency, MethodMetrics, ProviderMetrics};

// What the builder takes: a program needs no second dependency to name it.
pub use perihelion_client::{self, Credential};
#[cfg(feature = "embedded")]
pub use perihelion_server::{self, EmbeddedOptions};

/// Where the published crate has its [`OutboxFaultInjector`].
pub mod outbox {
    pub use crate::options::config::OutboxFaultInjector;
}
