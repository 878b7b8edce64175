//! Code that the interop suites in Rust share: our server as a child process, and requests to
//! its management interface.

mod management;
mod server;

pub use management::manage;
pub use server::{Server, ca_file};

/// The error with which a suite or a check ends.
pub type Problem = Box<dyn std::error::Error + Send + Sync>;
