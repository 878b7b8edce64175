//! The programs of the hosts: a worker has a provider and duroxide's runtime, a
//! user has a provider and duroxide's client.

use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use duroxide::Client;
use duroxide::providers::{Provider, TagFilter};
use duroxide::runtime::{ObservabilityConfig, Runtime, RuntimeOptions};
use duroxide_cdb::{CommitTier, CosmosDBProvider};
use serde_json::Value;

use crate::activity_log::ActivityLog;
use crate::stored::STATE_ID;
use crate::workflows;
use crate::world::{Connection, Program};

pub(crate) const DATABASE: &str = "simulated";
pub(crate) const CONTAINER: &str = "workflows";

/// How long locks of instances, activities and sessions last: short, so that work of a killed
/// process is soon fetched again, and longer than any delay or outage of a gentle run
/// (`random`).
const LOCK: Duration = Duration::from_secs(4);

/// How long a cancelled activity may go on.
const CANCELLATION_GRACE: Duration = Duration::from_secs(1);

/// After this time a session without work is idle; also how often idle sessions
/// are removed.
const SESSION_IDLE: Duration = Duration::from_secs(5);

/// The wait between two attempts of a process to open the provider.
const OPEN_PAUSE: Duration = Duration::from_millis(500);

/// The settings of a worker.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The provider's commit tier.
    pub(crate) tier: CommitTier,
    /// Turns that the process runs at the same time.
    pub(crate) dispatchers: usize,
    /// Activities that the process runs at the same time.
    pub(crate) workers: usize,
    /// Attempts before a message counts as poison: more than there are kills, except in the
    /// test of poison.
    pub(crate) attempts_max: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { tier: CommitTier::default(), dispatchers: 2, workers: 2, attempts_max: 10 }
    }
}

/// Opens a provider over a connection.
pub(crate) async fn provider(
    connection: &Connection,
    tier: CommitTier,
) -> Result<Arc<CosmosDBProvider>, String> {
    let client = perihelion_client::Client::over(&connection.endpoint, connection.transport.clone()).await;
    provider_over(client.map_err(|error| error.to_string())?, tier).await
}

/// Opens a provider over a client that is connected.
pub(crate) async fn provider_over(
    client: perihelion_client::Client,
    tier: CommitTier,
) -> Result<Arc<CosmosDBProvider>, String> {
    let builder = CosmosDBProvider::builder().with_commit_tier(tier);
    let builder = builder.with_client(client).with_database(DATABASE).with_container(CONTAINER);
    Ok(Arc::new(builder.open().await.map_err(|error| error.to_string())?))
}

/// Opens a provider, and tries again until it succeeds.
pub(crate) async fn provider_with_retries(
    connection: &Connection,
    tier: CommitTier,
) -> Arc<CosmosDBProvider> {
    loop {
        match provider(connection, tier).await {
            Ok(provider) => return provider,
            Err(_) => tokio::time::sleep(OPEN_PAUSE).await,
        }
    }
}

/// A process that runs workflows. It puts its provider into the slot `opened`.
pub(crate) fn worker(
    settings: Settings,
    activity_log: ActivityLog,
    opened: &Slot<Arc<CosmosDBProvider>>,
) -> Program {
    let opened = opened.clone();
    Arc::new(move |connection| {
        let (settings, activity_log, opened) = (settings.clone(), activity_log.clone(), opened.clone());
        Box::pin(async move {
            let provider = provider_with_retries(&connection, settings.tier).await;
            opened.put(Arc::clone(&provider));
            let options = RuntimeOptions {
                orchestration_concurrency: settings.dispatchers,
                worker_concurrency: settings.workers,
                orchestrator_lock_timeout: LOCK,
                worker_lock_timeout: LOCK,
                session_lock_timeout: LOCK,
                session_idle_timeout: SESSION_IDLE,
                session_cleanup_interval: SESSION_IDLE,
                activity_cancellation_grace_period: CANCELLATION_GRACE,
                max_attempts: settings.attempts_max,
                observability: ObservabilityConfig { log_level: "off".to_owned(), ..Default::default() },
                worker_tag_filter: TagFilter::default_and([workflows::TAG]),
                ..RuntimeOptions::default()
            };
            let (activities, orchestrations) = workflows::registries(&activity_log, &connection.transport);
            let _runtime = Runtime::start_with_options(provider, activities, orchestrations, options).await;
            pending::<()>().await;
        })
    })
}

/// A program that uses workflows.
pub(crate) struct User {
    pub(crate) connection: Connection,
    /// A client for the user's own calls; its requests can fail.
    pub(crate) client: Client,
    pub(crate) provider: Arc<CosmosDBProvider>,
    /// A client for waiting and checking; its requests never fail.
    pub(crate) observer: perihelion_client::Client,
}

impl User {
    pub(crate) async fn open(connection: Connection) -> User {
        let provider = provider_with_retries(&connection, CommitTier::default()).await;
        let observing = connection.as_observer();
        let observer = perihelion_client::Client::over(&observing.endpoint, observing.transport).await;
        let client = Client::new(Arc::clone(&provider) as Arc<dyn Provider>);
        User { connection, client, provider, observer: observer.expect("an observer has no faults") }
    }

    /// The container, for waiting and checking.
    pub(crate) fn container(&self) -> perihelion_client::Container {
        self.observer.database(DATABASE).container(CONTAINER)
    }

    /// An instance's state document, or null if there is none or it cannot be read. Reading
    /// it takes fewer requests than the provider's own calls.
    pub(crate) async fn state(&self, instance: &str) -> Value {
        let found = self.container().find::<Value>(instance, STATE_ID).await;
        found.ok().flatten().map(perihelion_client::Item::into_value).unwrap_or_default()
    }

    /// A provider whose requests never fail.
    pub(crate) async fn auditor(&self) -> Arc<CosmosDBProvider> {
        provider_over(self.observer.clone(), CommitTier::default()).await.expect("an observer has no faults")
    }
}

/// A place for a value that a host hands to the test.
#[derive(Debug)]
pub(crate) struct Slot<T>(Arc<Mutex<Option<T>>>);

impl<T> Slot<T> {
    pub(crate) fn empty() -> Self {
        Slot(Arc::default())
    }

    pub(crate) fn put(&self, value: T) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
    }

    pub(crate) fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Slot(Arc::clone(&self.0))
    }
}
