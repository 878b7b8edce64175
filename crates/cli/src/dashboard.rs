//! The parts that the commands `dashboard`, `dev` and `server` share: finding a port for the dashboard,
//! closing it, and reading the counters for its charts.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use perihelion_dashboard::{Dashboard, ReadCounters};
use tokio::net::TcpListener;

use crate::exit::Failure;
use crate::management::Management;

/// The default port of the dashboard. The default port of the server is 8081.
pub(crate) const PORT: u16 = 8082;

/// How many ports are tried, [`PORT`] first. Each other development server on this machine takes
/// one of them.
const PORTS_MAX: u16 = 20;

/// A socket on the dashboard's port or the next free one, or on any free port if all are taken.
pub(crate) async fn bind_first_free(ip: IpAddr) -> Result<TcpListener, Failure> {
    for port in PORT..PORT + PORTS_MAX {
        if let Ok(socket) = TcpListener::bind(SocketAddr::new(ip, port)).await {
            return Ok(socket);
        }
    }
    bind(SocketAddr::new(ip, 0)).await
}

pub(crate) async fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|error| Failure::address(format!("the dashboard cannot listen on {address}: {error}")))
}

/// Reads the counters of a server.
pub(crate) fn counters(management: Management) -> ReadCounters {
    let management = Arc::new(management);
    Arc::new(move || {
        let management = Arc::clone(&management);
        Box::pin(async move {
            let read = management.send(Method::GET, "counters", String::new()).await;
            let text = read.map_err(|failure| failure.message().to_owned())?;
            serde_json::from_str(&text).map_err(|error| error.to_string())
        })
    })
}

/// Ends a dashboard. Its bulk actions finish the changes that are under way, if that takes no longer than
/// `wait_max`. Standard error names the bulk actions that are left unfinished.
pub(crate) async fn close(dashboard: Dashboard, wait_max: Duration) {
    for unfinished in dashboard.close(wait_max).await {
        let failure = Failure::runtime(unfinished);
        let _ = failure.with_advice("begin it again with the same filter for the rest").report();
    }
}
