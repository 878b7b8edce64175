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
//! let mut large = orders.query::<Order>("SELECT * FROM c WHERE c.total > 10 ORDER BY c.total").into_stream();
//! while let Some(order) = large.next().await {
//!     println!("{}", order?.id);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What is where
//!
//! - [`Client`]: one account. [`Client::builder`] takes connection strings,
//!   credentials and regions. A client is cheap to clone; create one per process.
//! - [`Database`] and [`Container`]: handles. Getting one sends no request; its
//!   methods read, change and delete the resource, and create and list what is in it.
//! - Items: [`Container::create`], [`read`](Container::read),
//!   [`find`](Container::find), [`replace`](Container::replace),
//!   [`upsert`](Container::upsert), [`delete`](Container::delete),
//!   [`patch`](Container::patch), each with a `_with` variant that takes
//!   [`ItemOptions`].
//! - Several items: [`Container::read_many`], [`Container::batch`] (all operations
//!   or none), [`Container::bulk`] (any number of operations, each with its own result),
//!   [`Container::query`], [`Container::read_all`].
//! - Several partitions and containers: [`Client::write_transaction`] (all writes or none) and
//!   [`Client::read_transaction`] (one snapshot).
//! - Changes: [`Container::change_feed`] and [`Container::all_changes`]. A
//!   [`ChangeFeedProcessor`] shares the changes among processes and remembers positions.
//! - Cost: the results of operations on items, of queries and of change feeds have
//!   their request charge. All errors, and all these results except [`ManyItems`], have
//!   their [`diagnostics`]. [`Container::throughput`] reads the provisioned throughput.
//!
//! # When a response is lost
//!
//! When the response to a write is lost, the write may have been applied. The
//! client repeats the write when repeating is safe. When repeating is not safe, the
//! write fails with [`Error::is_ambiguous`]. The write fails with the same error when
//! the service refuses the repeat, and the first attempt may be the reason.
//! With [`ItemOptions::with_witness`] or [`Batch::with_witness`] the client reads back
//! whether the write was applied.
//!
//! # Keys
//!
//! A partition key is anything that converts to [`PartitionKey`]: `"ada"`, `7`,
//! `true`, `()` for null, [`PartitionKey::undefined`] for documents without the
//! member, and tuples or arrays for hierarchical keys, such as `("eu", 7)`.

#![warn(missing_docs)]

mod batch;
mod bulk;
mod change_feed;
mod client;
mod container;
mod database;
mod deadline;
mod etag;
mod feed;
mod feed_range;
mod handle;
mod items;
mod key_space;
mod manage;
mod page_stream;
mod patch;
mod processor;
mod properties;
mod query;
mod read_many;
mod response;
mod throughput;
mod transaction;

pub use batch::{Batch, BatchResult, BatchResults};
pub use bulk::{Bulk, BulkError, BulkOperation, BulkOptions, BulkResult, BulkTotals};
pub use change_feed::{
    Change, ChangeFeed, ChangeFeedOptions, ChangeKind, ChangeMetadata, ChangePage, ChangePages,
};
pub use client::{Client, ClientBuilder};
pub use container::Container;
pub use database::Database;
pub use etag::Etag;
pub use feed_range::FeedRange;
pub use items::{ItemOptions, Repeat};
pub use key_space::KeySpace;
pub use patch::{Amount, Patch};
pub use perihelion_driver::credential::{self, Credential};
pub use perihelion_driver::diagnostics;
#[cfg(feature = "fault-injection")]
pub use perihelion_driver::fault_injection;
pub use perihelion_driver::observer;
pub use perihelion_driver::operation::Witness;
pub use perihelion_driver::options;
pub use perihelion_driver::options::Priority;
pub use perihelion_driver::transaction::{IdempotencyToken, ResponseMode, TransactionConsistency};
#[cfg(feature = "azure-core")]
pub use perihelion_driver::transport::AzureHttpTransport;
pub use perihelion_driver::transport::{ClientCertificate, HttpOptions, Proxy, ProxyChoice};
pub use perihelion_driver::{
    AccountView, Driver, DriverOptions, DriverRuntime, DriverStatistics, Error, ErrorKind, OperationOptions,
    Region, Status,
};
pub use perihelion_model::partition_key::{KeyValue, PartitionKey};
pub use perihelion_wire::transport::{Endpoint, Transport};
pub use processor::{
    ChangeFeedProcessor, ChangeHandler, Changes, HandlerError, HandlerFn, PoisonDocument, ProcessorEvent,
    ProcessorOptions, RangeLag, ReleaseReason, handler_fn,
};
pub use properties::{
    CompositePath, ContainerProperties, DatabaseProperties, IndexPath, IndexingMode, IndexingPolicy,
    PartitionKeyPaths, SortOrder, TimeToLive, UniqueKey, UniqueKeyPolicy,
};
pub use query::{
    CompositeIndexUtilization, IndexMetrics, Page, Pages, Query, QueryFeed, QueryMetrics, Rows,
    SingleIndexUtilization, merge_steps, query_error_start, query_messages,
};
pub use read_many::ManyItems;
pub use response::{Item, Receipt, Written};
pub use throughput::{ProvisionedThroughput, Throughput};
pub use transaction::{
    AbortedTransaction, DistributedReadTransaction, DistributedWriteTransaction, TransactionError,
    TransactionResult, TransactionResults, UnknownOutcome,
};
