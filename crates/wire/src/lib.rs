//! What travels between a client and the service: header names, resource
//! paths, signatures, dates, patches, the binary form of JSON, and the transport
//! trait over which both sides meet. No I/O, no
//! clock: everything here is a function of its arguments, so that client and
//! server can share it and every rule can be tested as data.

pub mod binary_json;
pub mod date;
pub mod headers;
pub mod patch;
pub mod path;
pub mod signature;
pub mod status;
pub mod transport;
