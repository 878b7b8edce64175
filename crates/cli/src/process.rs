//! Functions that the commands share: run a future on a multi-threaded runtime, and print to
//! standard output.

use std::future::Future;
use std::io::Write;

use crate::exit::Failure;

/// Runs a future to its end on a multi-threaded runtime.
pub(crate) fn block_on(future: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::runtime(format!("cannot start threads: {error}")))?;
    runtime.block_on(future)
}

/// Prints to standard output and flushes it.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let outcome = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    outcome.map_err(|error| Failure::runtime(format!("cannot write to standard output: {error}")))
}
