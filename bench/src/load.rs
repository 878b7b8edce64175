//! The load client. It is small, because it shares the machine with the server it
//! measures: one thread, one HTTP/1.1 connection per client, signed requests.

mod connection;
mod run;
mod sign;

pub use connection::{Answer, Connection};
pub use run::{Clients, Limits, Workload};
pub use sign::Signer;
