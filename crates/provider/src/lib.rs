//! Durable workflows of [duroxide] on Azure Cosmos DB, on Perihelion's server, or on
//! Perihelion's engine inside this process. The *published crate* is `duroxide-cdb` 0.1.10 on
//! crates.io. This crate replaces it and keeps its public names.
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
//! Only the first line of `main` selects where workflows are stored:
//!
//! | where | how |
//! |---|---|
//! | a directory, with the engine in this process | [`CosmosDBProvider::embedded`] |
//! | memory, until the last clone of the provider is dropped | [`CosmosDBProvider::embedded_in_memory`] |
//! | an account of Azure or of `perihelion server`, with its key | [`CosmosDBProviderBuilder::with_connection_string`], or as in the published crate [`CosmosDBProvider::new`] |
//! | an account of Azure, with Entra ID | [`CosmosDBProviderBuilder::with_credential`], with the feature `azure-core` |
//!
//! The database and the container are created if they are missing. Programs that share a
//! container share its workflows.
//!
//! # Features
//!
//! - `embedded` (default): the engine in this process. Without it, the crate only connects to
//!   accounts.
//! - `azure-core`: `Credential::azure` takes a credential of `azure_identity`.
//! - `provider-test`: duroxide's validations, for tests.
//!
//! # Invariant
//!
//! An instance is one logical partition with one state document, `i`. Every turn is
//! committed by one atomic batch that replaces `i` under its etag, or creates `i` if it
//! does not exist. With [`CrossInstance::Transaction`] or [`CrossInstance::Auto`] the commit may be
//! a distributed transaction instead of a batch. It is conditional on the same etag. Locks, hints
//! and polls only decide which process tries to commit; the etag decides which process succeeds.
//! `docs/provider.md` describes the documents.

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
mod timing;

pub use api::builder::CosmosDBProviderBuilder;
pub use api::provider::CosmosDBProvider;
pub use api::{client, provider};
pub use migrate::{ContainerName, Migration, MigrationReport};
pub use options::check::{Check, CheckResult};
pub use options::config::{CommitTier, CosmosDBProviderConfig, OutboxFaultInjector};
pub use options::cross_instance::CrossInstance;
pub use options::filter::FilterError;
pub use options::inspection::{
    InstanceCounts, LockInfo, LockOptions, LockPage, OverdueInfo, OverdueWork, QueueInfo, QueueKind,
    RecordedStart, SessionInfo, TreeInstance, TurnCost, WorkerInfo, WorkflowCost, WorkflowTree,
};
pub use options::listing::{ListOptions, ListOrder, ListPage, ListedInstance};
pub use options::retention::RetentionOptions;
#[doc(hidden)]
pub use process::memory_size::MemorySize;
pub use process::metrics::{Latency, MethodMetrics, ProviderMetrics};
pub use store::container_properties;

// Types that the builder takes, so that programs need no other dependency.
pub use perihelion_client::{self, Credential};
#[cfg(feature = "embedded")]
pub use perihelion_server::{self, EmbeddedOptions};

/// The path of [`OutboxFaultInjector`] in the published crate.
pub mod outbox {
    pub use crate::options::config::OutboxFaultInjector;
}
