//! A Cosmos DB driver as data-oriented pipelines.
//!
//! [`Driver::execute`] takes an [`Operation`] through the loop in `pipeline`:
//! take one snapshot of the topology, resolve a route, send, judge the answer,
//! apply the effects, act. Deciding is pure; what is decided is data; one
//! place performs it. Everything below that a reader may want to know stands
//! in a file of its own:
//!
//! - `pipeline`: the loop, its stages, hedging, and what becomes of a write
//!   whose answer was lost
//! - `routing`: the account's regions, partition key ranges, circuit breakers
//! - `transport`: HTTP/1.1 and HTTP/2 connections over TLS
//! - [`credential`], [`options`], [`diagnostics`]: what users see of it

#![warn(missing_docs)]

mod background;
mod clock;
mod connection_string;
mod core;
pub mod credential;
pub mod diagnostics;
mod driver;
mod error;
mod metadata;
pub mod observer;
pub mod operation;
pub mod options;
mod path;
mod pipeline;
mod random;
mod region;
mod response;
mod routing;
pub mod telemetry;
pub mod transport;

pub use connection_string::ConnectionString;
pub use credential::Credential;
pub use driver::{AccountView, Driver};
pub use error::{Error, ErrorKind};
pub use metadata::{Container, ContainerMetadata};
pub use operation::Operation;
pub use options::{DriverOptions, OperationOptions};
pub use perihelion_wire::status;
pub use region::Region;
pub use response::Response;
pub use status::Status;
