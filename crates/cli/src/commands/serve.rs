//! Starts a server, says that it is ready, waits for a signal, drains.

use std::io::Write;
use std::time::{Duration, Instant};

use perihelion_server::Server;

use crate::banner::{Ready, banner};
use crate::exit::Failure;
use crate::logs;
use crate::settings::Settings;

/// How long requests in flight may take after a signal to end. Container
/// runtimes kill after ten seconds; this leaves room to close the store.
const DRAIN_GRACE: Duration = Duration::from_secs(8);

pub(crate) fn serve(settings: Settings, begun: Instant) -> Result<(), Failure> {
    logs::start(settings.log);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::runtime(format!("cannot start threads: {error}")))?;
    runtime.block_on(run(&settings, begun))
}

async fn run(settings: &Settings, begun: Instant) -> Result<(), Failure> {
    // Before anything is open, so that no signal can arrive unheard.
    let mut signals = Signals::listen().map_err(|error| Failure::runtime(format!("signals: {error}")))?;
    let server = Server::start(settings.options.clone()).await.map_err(|error| Failure::start(&error))?;
    let ready = Ready {
        address: server.local_addr(),
        regions: server.region_addrs(),
        ca_path: server.ca_path(),
        after: begun.elapsed(),
    };
    say(&banner(settings, &ready));
    tracing::info!(address = %ready.address, "serving");
    let signal = signals.next().await;
    tracing::info!(signal, "draining");
    tokio::select! {
        () = server.drain(DRAIN_GRACE) => Ok(()),
        signal = signals.next() => Err(Failure::runtime(format!("ended at once by a second {signal}"))),
    }
}

/// Nobody may be listening to standard output any more; that is no reason not
/// to serve.
fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// The signals that ask the program to end.
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
