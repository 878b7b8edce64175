//! Starts a server, prints the banner, waits for a signal and drains the server.
//! The commands `dev` and `server` use this module.

use std::time::{Duration, Instant};

use perihelion_server::Server;

use crate::banner::{StartedServer, banner};
use crate::exit::Failure;
use crate::logs;
use crate::process::{block_on, print};
use crate::settings::Settings;

/// How long requests in flight may take after the first signal. Docker kills a container
/// after ten seconds by default. So two seconds are left to close the store.
const DRAIN_GRACE: Duration = Duration::from_secs(8);

/// Starts logging and runs a server until a signal. The program began at `started_at`.
pub(crate) fn serve(settings: Settings, started_at: Instant) -> Result<(), Failure> {
    logs::start(settings.log);
    block_on(run(&settings, started_at))
}

async fn run(settings: &Settings, started_at: Instant) -> Result<(), Failure> {
    // The handlers are registered before the server starts, so that no signal is missed.
    let mut signals =
        Signals::listen().map_err(|error| Failure::runtime(format!("cannot listen for signals: {error}")))?;
    let server = Server::start(settings.options.clone()).await.map_err(|error| Failure::start(&error))?;
    let started = StartedServer {
        address: server.local_addr(),
        regions: server.region_addrs(),
        ca_path: server.ca_path(),
        start_time: started_at.elapsed(),
    };
    // A failure is ignored: the server works even if its output cannot be written.
    let _ = print(&banner(settings, &started));
    tracing::info!(address = %started.address, "serving");
    let signal = signals.next().await;
    tracing::info!(signal, "draining");
    tokio::select! {
        () = server.drain(DRAIN_GRACE) => Ok(()),
        signal = signals.next() => Err(Failure::runtime(format!("ended at once by a second signal ({signal})"))),
    }
}

/// The signals that ask the program to end. `next` waits for one and returns its name.
struct Signals {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn listen() -> std::io::Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

#[cfg(not(unix))]
impl Signals {
    fn listen() -> std::io::Result<Signals> {
        Ok(Signals {})
    }

    async fn next(&mut self) -> &'static str {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        "Ctrl-C"
    }
}
