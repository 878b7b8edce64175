//! A typed, thin client for Azure Cosmos DB, and for Perihelion's own engine
//! behind a socket or in this process.
//!
//! ```no_run
//! use perihelion_client::{Client, ContainerProperties, Error, Patch};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Order { id: String, customer: String, total: f64 }
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Error> {
//! let client = Client::connect(&std::env::var("AZURE_COSMOS_CONNECTION_STRING").unwrap()).await?;
//! let shop = client.create_database_if_missing("shop").await?;
//! let orders = shop.create_container_if_missing(&ContainerProperties::new("orders", "/customer")).await?;
//! orders.upsert("ada", &Order { id: "1".into(), customer: "ada".into(), total: 12.5 }).await?;
//! orders.patch("ada", "1", &Patch::new().increment("/total", 2)?).await?;
//! let order = orders.read::<Order>("ada", "1").await?;
//! println!("{} for {} RU", order.value.total, order.charge());
//! let mut dear = orders.query::<Order>("SELECT * FROM c WHERE c.total > 10 ORDER BY c.total").into_stream();
//! while let Some(order) = dear.next().await {
//!     println!("{}", order?.id);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What is where
//!
//! - [`Client`]: one account. Connection strings, credentials, regions:
//!   [`Client::builder`]. Cheap to clone; make one per process.
//! - [`Database`] and [`Container`]: names. Making one sends nothing; creating,
//!   listing, changing and deleting what they name are methods of theirs.
//! - Items: [`Container::create`], [`read`](Container::read),
//!   [`find`](Container::find), [`replace`](Container::replace),
//!   [`upsert`](Container::upsert), [`delete`](Container::delete),
//!   [`patch`](Container::patch), each with a `_with` twin for [`ItemOptions`].
//! - Many at once: [`Container::read_many`], [`Container::batch`] (all or none),
//!   [`Container::query`], [`Container::read_all`].
//! - What changed: [`Container::change_feed`] and [`Container::all_changes`].
//! - What it costs: every answer has its charge, every answer and every error
//!   its [`diagnostics`]; [`Container::throughput`] is what is provisioned.
//!
//! # When an answer is lost
//!
//! A write whose answer never came may have been applied. What may be repeated
//! is repeated; what may not, and was not refused, fails with
//! [`Error::is_ambiguous`], never as a plain failure. A write that leaves
//! something behind that no other write leaves can be found out:
//! [`ItemOptions::with_witness`], [`Batch::with_witness`].
//!
//! # Keys
//!
//! Partition keys are whatever is at hand: `"ada"`, `7`, `true`, `()` for null,
//! [`PartitionKey::undefined`] for documents without the member, tuples or
//! arrays for hierarchical keys: `("eu", 7)`.

#![warn(missing_docs)]

mod answer;
mod batch;
mod builder;
mod change_feed;
mod client;
mod container;
mod database;
mod etag;
mod feed;
mod feed_range;
mod items;
mod manage;
mod patch;
mod properties;
mod query;
mod read_many;
mod throughput;

pub use answer::{Item, Receipt, Written};
pub use batch::{Batch, BatchResult, BatchResults};
pub use builder::ClientBuilder;
pub use change_feed::{
    Change, ChangeFeed, ChangeFeedOptions, ChangeKind, ChangeMetadata, ChangePage, ChangePages,
};
pub use client::Client;
pub use container::Container;
pub use database::Database;
pub use etag::Etag;
pub use feed_range::FeedRange;
pub use items::ItemOptions;
pub use patch::{Amount, Patch};
pub use perihelion_driver::credential::{self, Credential};
pub use perihelion_driver::diagnostics;
pub use perihelion_driver::observer;
pub use perihelion_driver::operation::Witness;
pub use perihelion_driver::options;
pub use perihelion_driver::transport::HttpOptions;
pub use perihelion_driver::{
    AccountView, Driver, DriverOptions, Error, ErrorKind, OperationOptions, Region, Status,
};
pub use perihelion_model::partition_key::{KeyValue, PartitionKey};
pub use perihelion_wire::transport::{Endpoint, Transport};
pub use properties::{
    CompositePath, ContainerProperties, DatabaseProperties, IndexPath, IndexingMode, IndexingPolicy,
    PartitionKeyPaths, SortOrder, TimeToLive, UniqueKey, UniqueKeyPolicy,
};
pub use query::{Page, Pages, Query, QueryFeed, Rows};
pub use read_many::ManyItems;
pub use throughput::{ProvisionedThroughput, Throughput};
