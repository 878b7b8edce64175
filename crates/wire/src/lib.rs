//! The protocol between a client and the service: header names, statuses, resource paths, kinds of
//! request, signatures, dates, patches, distributed transactions, binary JSON, and the transport
//! trait. The client and the server share this crate. No I/O and no clock: apart from the transport
//! trait, everything here is a function of its arguments, so that every rule can be tested with
//! data.

#![warn(missing_docs)]

pub mod binary_json;
pub mod date;
pub mod headers;
pub mod operation;
pub mod patch;
pub mod path;
pub mod signature;
pub mod status;
pub mod transaction;
pub mod transport;
