//! `Account`: the account that a test runs on, in this process or behind a socket, and
//! providers on it. Each provider has its own client, like a provider in another
//! process.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide_cdb::CosmosDBProvider;
use http::Method;
use perihelion_client::{Client, Credential, Endpoint};
use perihelion_server::{Embedded, EmbeddedOptions, InProcess, Server, ServerOptions};

/// The container of every provider. Tests use different databases.
pub(crate) const CONTAINER: &str = "workflows";

/// How long requests under way may take when a test ends.
const DRAIN_GRACE: Duration = Duration::from_secs(2);

/// The kind of account: in process or behind a socket, in memory or on disk.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// The engine in this process, with its data in memory.
    Embedded,
    /// The engine in this process, with its data in a directory: commits wait for the
    /// disk.
    OnDisk,
    /// The engine in this process, with its data in memory. Every provider uses the
    /// most optimistic commit tier, for any poll timeout.
    EmbeddedOptimistic,
    /// Our server behind a socket.
    Wire,
    /// Our server behind a socket. Each container begins with four physical partitions.
    WireWithFourPartitions,
}

/// When a provider answers a fetch that finds nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Polls {
    /// A fetch with a timeout under a second is answered at once: the default.
    AnswerAtOnce,
    /// Every fetch waits until its timeout.
    Wait,
}

/// An account, empty at first.
pub(crate) struct Account {
    host: Host,
    is_optimistic: bool,
    /// Dropped after the host, so that no open file is removed.
    _directory: Option<Directory>,
}

/// A directory for data. Dropping it removes the directory.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Directory {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("duroxide-cdb-{}-{number}", std::process::id());
        Directory(std::env::temp_dir().join(name))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A directory that cannot be removed stays in the system's temporary directory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

enum Host {
    Embedded(Embedded),
    Wire(Server),
}

/// Requests, as the server counts them.
#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Counted {
    pub(crate) requests: u64,
    pub(crate) request_units: f64,
    /// The counts of each operation.
    #[expect(dead_code, reason = "printed in assertion messages")]
    operations: serde_json::Value,
}

/// The address of an account. Any task can connect with it.
#[derive(Clone)]
enum Way {
    Embedded(Endpoint, InProcess),
    Wire(String),
}

impl Account {
    pub(crate) async fn open(place: Place) -> Account {
        let directory = matches!(place, Place::OnDisk).then(Directory::new);
        let host = match place {
            Place::Embedded | Place::EmbeddedOptimistic | Place::OnDisk => {
                let data = directory.as_ref().map(|directory| directory.0.clone());
                let mut options = EmbeddedOptions::default();
                options.account.data = data;
                Host::Embedded(Embedded::open(options).await.unwrap())
            }
            Place::Wire => Host::Wire(serve(1).await),
            Place::WireWithFourPartitions => Host::Wire(serve(4).await),
        };
        Account { host, is_optimistic: matches!(place, Place::EmbeddedOptimistic), _directory: directory }
    }

    /// A client that shares nothing with any provider.
    pub(crate) async fn client(&self) -> Client {
        self.way().client().await
    }

    /// Opens a provider in a database. Creates the database if it is missing.
    pub(crate) async fn provider(&self, database: &str, polls: Polls) -> Arc<dyn Provider> {
        self.way().provider(database, polls, self.is_optimistic).await
    }

    /// Opens a provider whose tasks and connections belong to another tokio runtime.
    pub(crate) async fn provider_in(
        &self,
        runtime: &tokio::runtime::Handle,
        database: &str,
        polls: Polls,
    ) -> Arc<dyn Provider> {
        let (way, database, is_optimistic) = (self.way(), database.to_owned(), self.is_optimistic);
        runtime.spawn(async move { way.provider(&database, polls, is_optimistic).await }).await.unwrap()
    }

    /// The requests since the last [`Account::count_anew`].
    pub(crate) async fn counted(&self) -> Counted {
        let report = self.manage(Method::GET).await;
        serde_json::from_slice(&report).expect("counters are readable")
    }

    /// Resets the counters to zero.
    pub(crate) async fn count_anew(&self) {
        self.manage(Method::DELETE).await;
    }

    async fn manage(&self, method: Method) -> Vec<u8> {
        let Host::Embedded(embedded) = &self.host else { panic!("only an embedded account has counters") };
        let answer = embedded.manage(method, "counters", "").await.unwrap();
        assert!(answer.status().is_success());
        answer.into_body().to_vec()
    }

    pub(crate) async fn close(self) {
        match self.host {
            Host::Embedded(embedded) => embedded.close().await,
            Host::Wire(server) => server.drain(DRAIN_GRACE).await,
        }
    }

    fn way(&self) -> Way {
        match &self.host {
            Host::Embedded(embedded) => Way::Embedded(embedded.endpoint(), embedded.transport()),
            Host::Wire(server) => Way::Wire(format!("http://{}", server.local_addr())),
        }
    }
}

async fn serve(partitions: u32) -> Server {
    let mut options = ServerOptions::default();
    options.account.partitions = partitions;
    Server::start(options).await.unwrap()
}

impl Way {
    async fn client(&self) -> Client {
        match self {
            Way::Embedded(endpoint, transport) => Client::over(endpoint, transport.clone()).await,
            Way::Wire(endpoint) => Client::with_credential(endpoint, Credential::emulator()).await,
        }
        .unwrap()
    }

    async fn provider(&self, database: &str, polls: Polls, is_optimistic: bool) -> Arc<dyn Provider> {
        let builder = CosmosDBProvider::builder()
            .with_client(self.client().await)
            .with_database(database)
            .with_container(CONTAINER);
        let builder = match polls {
            Polls::AnswerAtOnce => builder,
            Polls::Wait => builder.with_long_poll_threshold(Duration::ZERO),
        };
        let builder = if is_optimistic { builder.with_commit_tier_for_short_polls() } else { builder };
        Arc::new(builder.open().await.unwrap())
    }
}
