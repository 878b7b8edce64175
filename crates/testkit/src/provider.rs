//! Accounts for tests of the provider: the kinds of server that it must run on
//! unchanged, and providers on them. Each provider has a client of its own, like a
//! provider in another process.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::Provider;
use duroxide_cdb::{CosmosDBProvider, CrossInstance};
use perihelion_server::{EmbeddedOptions, ServerOptions};
use tokio::runtime::Handle;

use crate::server::TestServer;

/// The container of every provider. Tests use different databases.
pub const CONTAINER: &str = "workflows";

/// The kind of an account: in process or behind a socket, in memory or on disk.
#[derive(Clone, Copy, Debug)]
pub enum AccountKind {
    /// The engine in this process, with its data in memory.
    Embedded,
    /// The engine in this process, with its data in a directory: commits wait for the
    /// disk.
    OnDisk,
    /// The engine in this process, with its data in memory. Every provider uses the
    /// most optimistic commit tier, for any poll timeout.
    EmbeddedOptimistic,
    /// The engine in this process, with its data in memory. Every provider uses distributed
    /// transactions to commit turns with messages to other instances, and to delete several
    /// instances.
    EmbeddedTransactions,
    /// Our server behind a socket.
    Wire,
    /// Our server behind a socket. Each container begins with four physical partitions.
    WireWithFourPartitions,
}

/// The behaviour of a short poll: a fetch with a timeout under a second that finds
/// nothing.
#[derive(Clone, Copy, Debug)]
pub enum ShortPolls {
    /// The fetch returns at once: the default.
    ReturnAtOnce,
    /// The fetch waits until its timeout, as a fetch with a longer timeout does.
    Wait,
}

/// An account, empty at first. It dereferences to its server, which has methods for
/// clients, faults and counters. Faults and counters work for accounts in this process
/// only: the servers on a socket run without the management interface.
pub struct Account {
    server: TestServer,
    kind: AccountKind,
}

impl Deref for Account {
    type Target = TestServer;

    fn deref(&self) -> &TestServer {
        &self.server
    }
}

impl Account {
    /// Starts the server of an account.
    pub async fn open(kind: AccountKind) -> Account {
        let server = match kind {
            AccountKind::Embedded | AccountKind::EmbeddedOptimistic | AccountKind::EmbeddedTransactions => {
                TestServer::in_process(EmbeddedOptions::default()).await
            }
            AccountKind::OnDisk => TestServer::in_process_on_disk(EmbeddedOptions::default()).await,
            AccountKind::Wire => TestServer::on_socket(with_partitions(1)).await,
            AccountKind::WireWithFourPartitions => TestServer::on_socket(with_partitions(4)).await,
        };
        Account { server, kind }
    }

    /// Opens a provider in a database. Creates the database if it is missing. The
    /// future does not borrow the account, so that any task can run it.
    pub fn provider(
        &self,
        database: &str,
        short_polls: ShortPolls,
    ) -> impl Future<Output = Arc<dyn Provider>> + Send + use<> {
        let (client, database, kind) = (self.server.client(), database.to_owned(), self.kind);
        async move {
            let builder = CosmosDBProvider::builder()
                .with_client(client.await)
                .with_database(database)
                .with_container(CONTAINER);
            let builder = match short_polls {
                ShortPolls::ReturnAtOnce => builder,
                ShortPolls::Wait => builder.with_long_poll_threshold(Duration::ZERO),
            };
            let builder = match kind {
                AccountKind::EmbeddedOptimistic => builder.with_commit_tier_for_short_polls(),
                AccountKind::EmbeddedTransactions => builder.with_cross_instance(CrossInstance::Transaction),
                _ => builder,
            };
            let provider = builder.open().await;
            Arc::new(provider.unwrap_or_else(|error| panic!("no provider: {error}"))) as Arc<dyn Provider>
        }
    }

    /// Opens a provider whose tasks and connections belong to another tokio runtime.
    pub async fn provider_in(
        &self,
        runtime: &Handle,
        database: &str,
        short_polls: ShortPolls,
    ) -> Arc<dyn Provider> {
        runtime.spawn(self.provider(database, short_polls)).await.expect("opening does not panic")
    }

    /// Waits until the requests in flight have ended, and stops the server. A server on a socket
    /// waits a few seconds at most.
    pub async fn stop(self) {
        self.server.stop().await;
    }
}

fn with_partitions(partitions: u32) -> ServerOptions {
    let mut options = ServerOptions::default();
    options.account.partitions = partitions;
    options
}
