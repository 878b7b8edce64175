//! Serves the engine as a Cosmos DB account: over HTTP ([`Server`]) and inside a
//! process, without a socket ([`Embedded`]).
//!
//! Each of the two opens an account of its own, with the same code. [`Server`] adds
//! listeners, TLS and ports. [`InProcess`] sends requests to an `Embedded` account: it
//! implements the transport trait of `wire`, so that the driver can use it in place of
//! HTTP. A request goes from the listener (`net`) or from `InProcess` to `dispatch`, and
//! from there to `routes` or `management`. `dispatch` picks the region that answers.

#![warn(missing_docs)]

mod activity_id;
mod addresses;
mod answer;
mod auth;
mod call;
pub mod certificates;
pub mod check;
mod counters;
mod dispatch;
mod embedded;
mod error;
mod faults;
mod long_reads;
mod management;
mod memory;
mod net;
mod operation;
mod options;
mod pause;
mod regions;
mod resource_token;
mod routes;
mod runtime;
mod server;

pub use perihelion_engine::{Clock, LedgerLimits};
pub use perihelion_wire::signature::{EMULATOR_KEY, MasterKey};
pub use perihelion_wire::transaction::TransactionLimits;

pub use crate::embedded::{Embedded, InProcess};
pub use crate::error::{StartError, StartErrorKind};
pub use crate::net::Limits;
pub use crate::options::{
    AccountOptions, AuthMode, EmbeddedOptions, Keys, ServerOptions, TransactionOptions,
};
pub use crate::regions::{BadRegions, RegionNames};
pub use crate::server::Server;
