//! Shared by the interop suites in Rust: our server as a child process, and
//! requests to its management interface.

mod management;
mod server;

pub use management::manage;
pub use server::{Server, ca_file};

/// Why a suite cannot go on.
pub type Problem = Box<dyn std::error::Error + Send + Sync>;
