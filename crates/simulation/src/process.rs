//! The programs that run on the hosts: a worker has a provider and duroxide's runtime, a
//! user has a provider and duroxide's client.

use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use duroxide::Client;
use duroxide::providers::{Provider, TagFilter};
use duroxide::runtime::{ObservabilityConfig, Runtime, RuntimeOptions};
use duroxide_cdb::{CommitTier, CosmosDBProvider, CrossInstance};
use serde_json::Value;

use crate::activity_log::ActivityLog;
use crate::stored::STATE_ID;
use crate::workflows;
use crate::world::{Connection, Program};

/// The database of the workflows.
pub const DATABASE: &str = "simulated";
/// The container of the workflows.
pub const CONTAINER: &str = "workflows";

/// How long locks of instances, activities and sessions last. Short, so that the work of a
/// killed process is soon fetched again. Longer than [`LONG_OUTAGE`](crate::fault::LONG_OUTAGE).
const LOCK_TIMEOUT: Duration = Duration::from_secs(4);

/// How long an activity may still run after it was cancelled.
const CANCELLATION_GRACE: Duration = Duration::from_secs(1);

/// The time after which a session without work counts as idle. Idle sessions are removed at
/// the same interval.
const SESSION_IDLE: Duration = Duration::from_secs(5);

/// The wait between two attempts of a process to open the provider.
const OPEN_PAUSE: Duration = Duration::from_millis(500);

/// The settings of a worker.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The provider's commit tier: how durably it writes its locks.
    pub tier: CommitTier,
    /// How the provider sends messages between instances.
    pub cross_instance: CrossInstance,
    /// Turns that the process runs at the same time.
    pub dispatchers: usize,
    /// Activities that the process runs at the same time.
    pub activity_workers: usize,
    /// The number of attempts after which a turn or an activity counts as poison. Larger than
    /// the number of kills, except in the test of poison.
    pub attempts_max: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            tier: CommitTier::default(),
            cross_instance: CrossInstance::Outbox,
            dispatchers: 2,
            activity_workers: 2,
            attempts_max: 10,
        }
    }
}

/// Opens a provider over a connection.
async fn open_provider(
    connection: &Connection,
    tier: CommitTier,
    cross_instance: CrossInstance,
) -> Result<Arc<CosmosDBProvider>, String> {
    let client = perihelion_client::Client::over(&connection.endpoint, connection.transport.clone()).await;
    open_provider_over(client.map_err(|error| error.to_string())?, tier, cross_instance).await
}

/// Opens a provider over a client that is already connected.
pub async fn open_provider_over(
    client: perihelion_client::Client,
    tier: CommitTier,
    cross_instance: CrossInstance,
) -> Result<Arc<CosmosDBProvider>, String> {
    let builder = CosmosDBProvider::builder().with_commit_tier(tier).with_cross_instance(cross_instance);
    let builder = builder.with_client(client).with_database(DATABASE).with_container(CONTAINER);
    Ok(Arc::new(builder.open().await.map_err(|error| error.to_string())?))
}

/// Opens a provider that sends messages through the outbox, and tries again until opening succeeds.
pub async fn open_provider_with_retries(connection: &Connection, tier: CommitTier) -> Arc<CosmosDBProvider> {
    open_with_retries(connection, tier, CrossInstance::Outbox).await
}

async fn open_with_retries(
    connection: &Connection,
    tier: CommitTier,
    cross_instance: CrossInstance,
) -> Arc<CosmosDBProvider> {
    loop {
        match open_provider(connection, tier, cross_instance).await {
            Ok(provider) => return provider,
            Err(_) => tokio::time::sleep(OPEN_PAUSE).await,
        }
    }
}

/// The program of a process that runs workflows. It hands its provider to the test through
/// `opened`.
pub fn worker_program(
    settings: Settings,
    activity_log: ActivityLog,
    opened: &Handoff<Arc<CosmosDBProvider>>,
) -> Program {
    let opened = opened.clone();
    Arc::new(move |connection| {
        let (settings, activity_log, opened) = (settings.clone(), activity_log.clone(), opened.clone());
        Box::pin(async move {
            let provider = open_with_retries(&connection, settings.tier, settings.cross_instance).await;
            opened.put(Arc::clone(&provider));
            let options = RuntimeOptions {
                orchestration_concurrency: settings.dispatchers,
                worker_concurrency: settings.activity_workers,
                orchestrator_lock_timeout: LOCK_TIMEOUT,
                worker_lock_timeout: LOCK_TIMEOUT,
                session_lock_timeout: LOCK_TIMEOUT,
                session_idle_timeout: SESSION_IDLE,
                session_cleanup_interval: SESSION_IDLE,
                activity_cancellation_grace_period: CANCELLATION_GRACE,
                max_attempts: settings.attempts_max,
                observability: ObservabilityConfig { log_level: "off".to_owned(), ..Default::default() },
                worker_tag_filter: TagFilter::default_and([workflows::TAG]),
                ..RuntimeOptions::default()
            };
            let (activities, orchestrations) =
                workflows::registries(&activity_log, &connection.transport, &Default::default());
            let _runtime = Runtime::start_with_options(provider, activities, orchestrations, options).await;
            pending::<()>().await;
        })
    })
}

/// The connection, the clients and the provider of a user's program.
pub struct User {
    pub connection: Connection,
    /// A client for the user's own calls. Its requests can fail.
    pub client: Client,
    pub provider: Arc<CosmosDBProvider>,
    /// A client for waiting and checking. Its requests never fail.
    pub faultless_client: perihelion_client::Client,
}

impl User {
    /// Opens the providers of a user, and tries again until that succeeds.
    pub async fn open(connection: Connection) -> User {
        User::open_with(connection, CrossInstance::Outbox).await
    }

    /// Opens the providers of a user. `cross_instance` says how the user deletes trees.
    pub async fn open_with(connection: Connection, cross_instance: CrossInstance) -> User {
        let provider = open_with_retries(&connection, CommitTier::default(), cross_instance).await;
        let faultless = connection.without_faults();
        let faultless_client =
            perihelion_client::Client::over(&faultless.endpoint, faultless.transport).await;
        let client = Client::new(Arc::clone(&provider) as Arc<dyn Provider>);
        User { connection, client, provider, faultless_client: faultless_client.expect("no fault") }
    }

    /// The container, for waiting and checking.
    pub fn container(&self) -> perihelion_client::Container {
        self.faultless_client.database(DATABASE).container(CONTAINER)
    }

    /// An instance's state document. Null if there is none or if it cannot be read. Reading
    /// the document takes fewer requests than a call of the provider.
    pub async fn state(&self, instance: &str) -> Value {
        let item = self.container().find::<Value>(instance, STATE_ID).await;
        item.ok().flatten().map(perihelion_client::Item::into_value).unwrap_or_default()
    }

    /// A provider whose requests never fail.
    pub async fn faultless_provider(&self) -> Arc<CosmosDBProvider> {
        let client = self.faultless_client.clone();
        open_provider_over(client, CommitTier::default(), CrossInstance::Outbox).await.expect("no fault")
    }
}

/// A value that the program of a host hands to the test. Empty until the program puts the
/// value.
#[derive(Debug)]
pub struct Handoff<T>(Arc<Mutex<Option<T>>>);

impl<T> Handoff<T> {
    /// A handoff without a value.
    pub fn empty() -> Self {
        Handoff(Arc::default())
    }

    /// Puts the value, in place of an earlier one.
    pub fn put(&self, value: T) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
    }

    /// Takes the value, if there is one.
    pub fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether there is a value.
    pub fn has_value(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl<T> Clone for Handoff<T> {
    fn clone(&self) -> Self {
        Handoff(Arc::clone(&self.0))
    }
}
