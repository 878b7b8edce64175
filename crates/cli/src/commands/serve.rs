//! Starts a server, prints the banner, waits for a signal and drains the server.
//! The commands `dev` and `server` use this module. `beside` runs the dashboard and the demo shop in
//! the same process, and `otlp` exports metrics.

mod beside;
mod otlp;

use std::time::{Duration, Instant};

use perihelion_dashboard::Dashboard;
use perihelion_server::Server;

use self::beside::Beside;
use self::otlp::Exporter;
use crate::banner::{StartedServer, banner};
use crate::exit::Failure;
use crate::logs;
use crate::process::{Signals, block_on, print};
use crate::settings::Settings;

/// How long requests in flight may take after the first signal. Docker kills a container
/// after ten seconds by default. So four seconds are left to close the dashboard, to stop the demo and
/// to export metrics for the last time, which take about one second each at most, and to close the store.
const DRAIN_GRACE: Duration = Duration::from_secs(6);

/// The parts to run beside the server in the same process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extras {
    pub(super) dashboard: bool,
    pub(super) demo: bool,
}

/// Starts logging and runs a server until a signal. The program began at `started_at`.
pub(super) fn serve(settings: Settings, extras: Extras, started_at: Instant) -> Result<(), Failure> {
    logs::start(settings.log);
    block_on(run(&settings, extras, started_at))
}

async fn run(settings: &Settings, extras: Extras, started_at: Instant) -> Result<(), Failure> {
    // The handlers are registered before the server starts, so that no signal is missed.
    let mut signals = Signals::listen()?;
    let mut exporter = settings.otlp_endpoint.as_deref().map(Exporter::new).transpose()?;
    let server = Server::start(settings.options.clone()).await.map_err(|error| Failure::start(&error))?;
    let start_time = started_at.elapsed();
    let beside = Beside::start(settings, extras, &server).await;
    let started = StartedServer {
        address: server.local_addr(),
        regions: server.region_addrs(),
        ca_path: server.ca_path(),
        dashboard: beside.dashboard.as_ref().map(Dashboard::address),
        sign_in: beside.sign_in.as_ref(),
        start_time,
    };
    // A failure is ignored: the server works even if its output cannot be written.
    let _ = print(&banner(settings, &started));
    tracing::info!(address = %started.address, "serving");
    let outcome = tokio::select! {
        signal = signals.next() => {
            tracing::info!(signal, "draining");
            Ok(())
        }
        reason = server.failed() => {
            tracing::error!(%reason, "the store failed, ending");
            Err(Failure::store(reason))
        }
        () = export(exporter.as_mut(), &server) => Ok(()),
    };
    let end = async {
        beside.stop().await;
        if let Some(exporter) = &mut exporter {
            exporter.export_last(&server).await;
        }
        server.drain(DRAIN_GRACE).await;
    };
    tokio::select! {
        () = end => outcome,
        signal = signals.next() => Err(Failure::runtime(format!("ended at once by a second signal ({signal})"))),
    }
}

/// Exports metrics until it is cancelled. Without an exporter, waits until it is cancelled.
async fn export(exporter: Option<&mut Exporter>, server: &Server) {
    match exporter {
        Some(exporter) => exporter.run(server).await,
        None => std::future::pending().await,
    }
}
