//! A Cosmos-compatible server inside a test of your own application: in memory, on a free port of
//! this machine, stopped when the test ends. Every client of Cosmos DB can connect to it.
//!
//! ```
//! # use perihelion_client::{Client, ContainerProperties};
//! #[tokio::main] // in a test: #[tokio::test]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let server = perihelion_testing::server().await;
//!     let client = Client::connect(&server.connection_string()).await?;
//!     client.create_database_if_missing("shop").await?;
//!     Ok(())
//! }
//! ```
//!
//! `docs/testing.md` shows how to test workflows, crashes, throttling and outages.

#![warn(missing_docs)]

use std::time::Duration;

use http::{Method, StatusCode};
use perihelion_server::{EMULATOR_KEY, Server};

pub use perihelion_server::{self, AccountOptions, RegionNames, ServerOptions};

/// How long requests in flight may take when a server is stopped.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// Starts a server in memory on a free port of this machine, with the emulators' key and the
/// management interface. Panics if that is impossible. Must be called inside a tokio runtime.
pub async fn server() -> TestServer {
    TestServer::start(ServerOptions::default()).await
}

/// A server of a test. Dropping it closes its port and its connections at once; its background
/// tasks end with the tokio runtime of the test at the latest.
#[derive(Debug)]
#[must_use = "the server ends when this is dropped"]
pub struct TestServer {
    server: Server,
}

impl TestServer {
    /// Starts a server with options, for example with several partitions, with throttling or with a
    /// data directory. The management interface is always on, and the key is always that of the
    /// emulators. Panics if the server cannot start.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() {
    /// use perihelion_testing::{AccountOptions, ServerOptions, TestServer};
    ///
    /// // Answers 429 as a container with 400 RU/s does.
    /// let account = AccountOptions { throughput: Some(400), ..Default::default() };
    /// let server = TestServer::start(ServerOptions { account, ..Default::default() }).await;
    /// # drop(server);
    /// # }
    /// ```
    pub async fn start(options: ServerOptions) -> TestServer {
        let defaults = ServerOptions::default();
        let options = ServerOptions { management: true, keys: defaults.keys, ..options };
        match Server::start(options).await {
            Ok(server) => TestServer { server },
            Err(error) => panic!("the server of this test cannot start: {error}"),
        }
    }

    /// The endpoint without TLS, such as `http://127.0.0.1:41234/`. The same port answers `https`
    /// too, with a certificate that no client trusts.
    pub fn endpoint(&self) -> String {
        format!("http://{}/", self.server.local_addr())
    }

    /// The key: the published key of the emulators.
    pub fn key(&self) -> &'static str {
        EMULATOR_KEY
    }

    /// The connection string, for any client of Cosmos DB.
    pub fn connection_string(&self) -> String {
        format!("AccountEndpoint={};AccountKey={EMULATOR_KEY};", self.endpoint())
    }

    /// Adds a fault rule: an error status, a delay or a dropped connection for some requests.
    /// `docs/management.md` has the members of a rule. Panics if the rule is refused.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() {
    /// let server = perihelion_testing::server().await;
    /// // The next three creates are throttled.
    /// server.fault(r#"{"operation":"create_item","count":3,"status":429,"retryAfterMs":5}"#).await;
    /// # }
    /// ```
    pub async fn fault(&self, rule: &str) {
        self.manage(Method::POST, "faults", rule).await;
    }

    /// Sends a request to the management interface and returns its answer, which is JSON. `path`
    /// follows `/_perihelion/`, and `body` is JSON or empty (`docs/management.md`). Panics if the
    /// request is refused.
    pub async fn manage(&self, method: Method, path: &str, body: &str) -> String {
        let response = self.server.manage(method.clone(), path, body).await;
        let answer = String::from_utf8_lossy(response.body()).into_owned();
        assert!(
            response.status() == StatusCode::OK,
            "{method} {path} {body}: {}: {answer}",
            response.status()
        );
        answer
    }

    /// Waits up to five seconds for requests in flight, and stops the server. A data directory can
    /// be opened again afterwards.
    pub async fn stop(self) {
        self.server.drain(STOP_GRACE).await;
    }
}
