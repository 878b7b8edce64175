//! The embedded database behind the Perihelion server: databases, containers,
//! documents, change feed, queries, indexes, request charges, replication.
//!
//! [`Engine`] is the entry point. A read takes one snapshot of the store and
//! one of the catalog. A write is a job for the group-commit writer.
//! Maintenance runs only when the engine's owner calls [`Engine::maintain`].
//!
//! The engine takes and returns JSON values, typed requests and [`Refusal`]s.
//! It speaks no HTTP: no sockets, no headers, no request parsing. But a refusal
//! carries the service's HTTP status and sub-status, because they are part of
//! the service's answer.
//!
//! ```
//! use perihelion_engine::storage::MemoryStore;
//! use perihelion_engine::{Engine, EngineOptions};
//! use perihelion_model::json::{Value, parse_str};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let engine = Engine::open(MemoryStore::new(), EngineOptions::default())?;
//! let Value::Object(body) = parse_str(r#"{"id":"shop"}"#)? else { unreachable!() };
//! let shop = engine.create_database(body, None).await.expect("a new database");
//! assert_eq!(shop.name, "shop");
//! assert!(engine.catalog().database("shop").is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```

#![warn(missing_docs)]

mod admin;
pub mod blocking;
mod catalog;
pub mod charge;
mod check;
mod clock;
mod distributed;
mod documents;
mod engine;
mod index;
mod keys;
mod layout;
mod ledger;
mod maintenance;
mod pace;
mod page_memory;
mod prepared;
mod query;
mod refusal;
mod region;
mod replication;
mod session;
mod state;
pub mod storage;
mod throttle;
mod transaction;
mod writer;

pub use admin::{AccessFeed, AccessWrite, ScriptKind, StoredPermission};
pub use catalog::{
    ApiVersion, Catalog, Container, Database, Offer, ParsedDefinition, PartitionRange, Throughput,
};
pub use check::{CheckReport, check};
pub use clock::Clock;
pub use distributed::{
    CONDITION_WORK_MAX, ConditionWork, DOCUMENT_BYTES_MAX, DistributedAnswer, DistributedOperation,
    DistributedOutcome, DistributedRead, DistributedWrite, READ_BYTES_MAX,
};
pub use documents::{
    Applied, Batch, BatchOperation, BatchOutcome, BatchScope, FeedMode, FeedPage, FeedRequest, FeedStart,
    ITEM_BYTES_MAX, ItemOperation, ItemOutcome, NewBody, NewPatch, OPERATIONS_MAX, Precondition, Target,
    Usage,
};
pub use engine::{Engine, EngineOptions, Health};
pub use index::{Column, IndexScope, IndexShape};
pub use keys::{ContainerNumber, RangeId};
pub use ledger::{LedgerLimits, LedgerUse, RecordedAnswer};
pub use pace::{CheckpointResult, PAGE_BYTES_MAX, PageEnd, PageLimits};
pub use page_memory::PageMemory;
pub use query::{Paging, QueryPage, QueryRequest, QueryScope, ResumeFilter, now_of_continuation};
pub use refusal::{Layer, Refusal};
pub use region::{REGIONS_MAX, RegionId, Replica};
pub use replication::{OutboxEntry, RangeKey, Role};
pub use state::{ContainerState, Position, RangeState};
pub use throttle::Bucket;
