//! The load client: one thread, one HTTP/1.1 connection per client, signed requests. It is
//! small, because it shares the machine with the server that it measures.

mod connection;
mod run;
mod sign;

pub use connection::{Answer, Connection};
pub use run::{Clients, Limits, Workload};
pub use sign::Signer;
