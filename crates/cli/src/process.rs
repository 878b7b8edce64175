//! Functions that the commands share: they run a future on a multi-threaded runtime, print to
//! standard output, tell a line on standard error, and wait for the signals that end the program.

use std::fmt::Display;
use std::future::Future;
use std::io::Write;
use std::time::Duration;

use crate::exit::Failure;

/// Runs a future to its end on a multi-threaded runtime.
pub(crate) fn block_on(future: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::runtime(format!("cannot start threads: {error}")))?;
    let outcome = runtime.block_on(future);
    runtime.shutdown_timeout(THREADS_END_MAX);
    outcome
}

/// How long threads may go on after the end of a command. The work of the command has ended by
/// then. Only the resolution of a host name may still run; it can take a minute, and its result is
/// not needed.
const THREADS_END_MAX: Duration = Duration::from_secs(1);

/// Prints to standard output and flushes it. If the reader has closed standard output, the program
/// ends quietly.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let outcome = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    outcome.map_err(|error| match error.kind() {
        std::io::ErrorKind::BrokenPipe => Failure::no_reader(),
        _ => Failure::runtime(format!("cannot write to standard output: {error}")),
    })
}

/// Writes a line to standard error. Errors are ignored: a command that may have changed something
/// already must go on even if standard error has no reader. `eprintln!` would panic.
pub(crate) fn tell(line: impl Display) {
    let _ = std::io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

/// The signals that ask the program to end. `next` waits for one and returns its name.
pub(crate) struct Signals {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    /// Registers the signals. On Unix, from now on the signals do not end the program by
    /// themselves. On other systems this begins with the first call of `next`.
    pub(crate) fn listen() -> Result<Signals, Failure> {
        Signals::register().map_err(|error| Failure::runtime(format!("cannot listen for signals: {error}")))
    }
}

#[cfg(unix)]
impl Signals {
    fn register() -> std::io::Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

#[cfg(not(unix))]
impl Signals {
    fn register() -> std::io::Result<Signals> {
        Ok(Signals {})
    }

    pub(crate) async fn next(&mut self) -> &'static str {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        "Ctrl-C"
    }
}
