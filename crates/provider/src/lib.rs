//! Durable workflows of [duroxide] on Azure Cosmos DB, on Perihelion's server,
//! or on its engine inside this process.
//!
//! ```no_run
//! # async fn example() -> Result<(), duroxide::providers::ProviderError> {
//! use std::sync::Arc;
//! use duroxide_cdb::CosmosDBProvider;
//!
//! let store = Arc::new(CosmosDBProvider::embedded("./data").await?);
//! # let _: Arc<dyn duroxide::providers::Provider> = store;
//! # Ok(())
//! # }
//! ```
//!
//! What always holds: an instance is one logical partition with one state
//! document, `i`, and every turn is one atomic batch that replaces `i` under
//! its etag. Locks, hints and polls only decide who tries; the etag decides who
//! wins. `docs/provider.md` has the layout.

#![warn(missing_docs)]

mod admin;
mod builder;
mod cache;
mod chores;
pub mod client;
mod clock;
mod config;
mod consumed;
mod contract;
mod counted;
mod documents;
mod failure;
mod held;
mod hub;
mod inner;
mod listing;
mod manifest;
mod meter;
mod migrate;
mod nodes;
mod ops;
mod plan;
mod provider;
mod retention;
mod senders;
mod store;
mod text;
mod together;
mod token;

pub use builder::CosmosDBProviderBuilder;
pub use config::{CommitTier, CosmosDBProviderConfig, OutboxFaultInjector};
pub use listing::{ListOptions, ListOrder, ListPage, ListedInstance};
pub use meter::{Latency, MethodMetrics, ProviderMetrics};
pub use migrate::{ContainerName, Migration, MigrationReport};
pub use provider::CosmosDBProvider;
pub use retention::RetentionOptions;
