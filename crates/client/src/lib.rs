//! A typed, thin client for Azure Cosmos DB and for Perihelion's own engine.

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
    Change, ChangeFeed, ChangeFeedOptions, ChangeKind, ChangeMetadata, ChangePage, Changes,
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
