//! The load client: lean on purpose, because it shares the machine with the
//! server it measures. One thread, one HTTP/1.1 connection per client, requests
//! signed as the service asks.

mod connection;
mod run;
mod sign;

pub use connection::{Answer, Connection};
pub use run::{Clients, Limits, Workload};
pub use sign::Signer;
