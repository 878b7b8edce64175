//! A Cosmos DB driver.
//!
//! [`Driver::execute`] runs an [`Operation`] in the loop in `pipeline`: take one
//! snapshot of the topology, resolve a route, send, judge the answer, apply the
//! effects, act on the verdict. Decisions are pure functions that return data; other
//! code carries them out.
//!
//! - `driver`, `core`, `background`, `shared_tasks`: the entry point, the state that
//!   operations share, the task that keeps this state up to date, and tasks that read
//!   metadata for several operations
//! - `pipeline`: the loop and its stages, retries, hedging, and writes whose answer
//!   was lost
//! - `metadata`: the account, containers and their sessions
//! - `routing`: regions, partition key ranges, circuit breakers, latencies
//! - [`transaction`]: distributed transactions
//! - [`transport`]: HTTP/1.1 and HTTP/2 connections
//! - `pulse`: whether the runtime of a task still makes progress
//! - `variable`: environment variables
//! - `telemetry`: metrics and events of the operations that callers run
//! - [`operation`], [`options`], [`credential`], [`diagnostics`], [`observer`]: the
//!   types that callers use

#![warn(missing_docs)]

mod background;
mod clock;
mod connection_string;
mod core;
pub mod credential;
pub mod diagnostics;
mod driver;
mod error;
#[cfg(feature = "fault-injection")]
pub mod fault_injection;
mod metadata;
pub mod observer;
pub mod operation;
pub mod options;
mod path;
mod pipeline;
mod pulse;
mod random;
mod region;
mod response;
mod routing;
mod shared_tasks;
mod telemetry;
pub mod transaction;
pub mod transport;
mod variable;

pub use connection_string::ConnectionString;
pub use credential::Credential;
pub use driver::{AccountView, Driver, DriverRuntime, DriverStatistics};
pub use error::{Error, ErrorKind};
pub use metadata::{Container, ContainerMetadata, VectorPath};
pub use operation::Operation;
pub use options::{DriverOptions, OperationOptions};
pub use perihelion_wire::status;
pub use region::Region;
pub use response::Response;
pub use routing::ranges::{Range, RangeMap};
pub use status::Status;
