//! Starting servers for tests: on a free loopback port, in memory, with the
//! emulator's key, unless a test says otherwise.

use std::time::Duration;

use perihelion_server::{Server, ServerOptions};

use crate::client::Client;

/// How long a server may take to answer what is under way when a test ends.
const DRAIN_GRACE: Duration = Duration::from_secs(5);

/// What tests start a server with.
pub(crate) fn options() -> ServerOptions {
    ServerOptions::default()
}

/// A running server and how to reach it.
pub(crate) struct Running {
    server: Server,
}

impl Running {
    pub(crate) async fn start(options: ServerOptions) -> Running {
        let server = Server::start(options).await.unwrap_or_else(|error| panic!("no start: {error}"));
        Running { server }
    }

    /// A client with a connection of its own.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.server.local_addr())
    }

    pub(crate) fn region_addr(&self, name: &str) -> std::net::SocketAddr {
        self.server.region_addr(name).unwrap_or_else(|| panic!("no region {name}"))
    }

    /// A client of one region.
    pub(crate) fn region_client(&self, name: &str) -> Client {
        Client::new(self.region_addr(name))
    }

    pub(crate) async fn stop(self) {
        self.server.drain(DRAIN_GRACE).await;
    }
}
