//! `Beside`: the dashboard and the demo shop, which run in the process of a server: both with `dev`,
//! and the dashboard also with `server --explorer`. They are clients of the server over its socket, as
//! other programs are. If one of them cannot start, standard error says why, and the server still
//! runs.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use perihelion_client::{Client, Credential};
use perihelion_dashboard::{Dashboard, DashboardOptions};
use perihelion_server::Server;
use perihelion_wire::transport::Endpoint;

use super::Extras;
use crate::commands::demo::Traffic;
use crate::dashboard::{bind_first_free, close, counters};
use crate::exit::Failure;
use crate::management::Management;
use crate::settings::{Mode, Settings};
use crate::sign_in::SignIn;

/// How long the end of the dashboard waits for changes that are under way. It is a part of the ten seconds
/// that Docker leaves a container, see `DRAIN_GRACE`.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(1);

/// The database and the container that the provider uses by default.
const WORKFLOWS: &str = "duroxide";

/// The parts that run beside the server.
#[derive(Default)]
pub(super) struct Beside {
    pub(super) dashboard: Option<Dashboard>,
    /// How people sign in to the dashboard, if it needs a token.
    pub(super) sign_in: Option<SignIn>,
    demo: Option<Traffic>,
}

impl Beside {
    pub(super) async fn start(settings: &Settings, extras: Extras, server: &Server) -> Beside {
        let mut beside = Beside::default();
        if !extras.dashboard && !extras.demo {
            return beside;
        }
        let url = format!("http://{}/", reachable(server.local_addr()));
        let key = settings.options.keys.primary.reveal();
        let client = match connect(&url, &key).await {
            Ok(client) => client,
            Err(failure) => {
                let _ = failure.during(what_does_not_start(extras)).report();
                return beside;
            }
        };
        if extras.dashboard {
            match dashboard(&url, settings, client.clone()).await {
                Ok((dashboard, sign_in)) => {
                    beside.sign_in = sign_in;
                    server.set_explorer(format!("http://{}/", dashboard.address()));
                    beside.dashboard = Some(dashboard);
                }
                Err(failure) => {
                    let _ = failure.during("the dashboard does not start").report();
                }
            }
        }
        if extras.demo {
            match Traffic::start(client).await {
                Ok(traffic) => beside.demo = Some(traffic),
                Err(failure) => {
                    let _ = failure.during("the demo does not start").report();
                }
            }
        }
        beside
    }

    /// Ends the demo and closes the dashboard, before the server drains.
    pub(super) async fn stop(self) {
        if let Some(dashboard) = self.dashboard {
            close(dashboard, CLOSE_WAIT_MAX).await;
        }
        if let Some(demo) = self.demo {
            demo.stop().await;
        }
    }
}

/// The message if no client of the server can be made.
fn what_does_not_start(extras: Extras) -> &'static str {
    match (extras.dashboard, extras.demo) {
        (true, true) => "the dashboard and the demo do not start",
        (false, true) => "the demo does not start",
        (_, false) => "the dashboard does not start",
    }
}

async fn connect(url: &str, key: &str) -> Result<Client, Failure> {
    let credential = Credential::key(key).map_err(Failure::runtime)?;
    Client::with_credential(url, credential).await.map_err(Failure::runtime)
}

/// Starts the dashboard, which acts with the key of the server. If that key is a secret, the
/// dashboard asks people to sign in. Otherwise everybody on this machine could use the key through
/// the dashboard.
async fn dashboard(
    url: &str,
    settings: &Settings,
    client: Client,
) -> Result<(Dashboard, Option<SignIn>), Failure> {
    let key = &settings.options.keys.primary;
    let mut options = DashboardOptions::new(WORKFLOWS, WORKFLOWS)
        .with_account(url.trim_end_matches('/'))
        .with_token_needed(!key.is_emulator_key());
    // The counters are a part of the management interface, which `server` has only if asked for.
    if settings.options.management {
        let endpoint = Endpoint::parse(url).map_err(Failure::runtime)?;
        let management = Management::new(endpoint, key.clone(), url.to_owned())?;
        options = options.with_counters(counters(management));
    }
    let socket = bind_first_free(IpAddr::from(Ipv4Addr::LOCALHOST)).await?;
    let dashboard = Dashboard::start(socket, client, options).map_err(Failure::runtime)?;
    let link = dashboard.sign_in_path().map(|path| format!("http://{}{path}", dashboard.address()));
    let is_output_log = settings.mode == Mode::Server;
    let sign_in = link.map(|link| SignIn::new(link, is_output_log)).transpose()?;
    Ok((dashboard, sign_in))
}

/// The address by which this process reaches its own listener.
fn reachable(address: SocketAddr) -> SocketAddr {
    match address.ip().is_unspecified() {
        true => SocketAddr::from((Ipv4Addr::LOCALHOST, address.port())),
        false => address,
    }
}
