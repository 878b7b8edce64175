//! Programs of the hosts: a worker is the provider with duroxide's runtime on
//! it, a user is the provider with a client, and someone who looks.

use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use duroxide::Client;
use duroxide::providers::{Provider, TagFilter};
use duroxide::runtime::{ObservabilityConfig, Runtime, RuntimeOptions};
use duroxide_cdb::{CommitTier, CosmosDBProvider};
use serde_json::Value;

use crate::ledger::Ledger;
use crate::workflows;
use crate::world::{Program, Site};

pub(crate) const DATABASE: &str = "simulated";
pub(crate) const CONTAINER: &str = "workflows";

/// Locks of instances, activities and sessions. Short, so that what was killed
/// is soon taken up again, and longer than any wait that is injected.
const LOCK: Duration = Duration::from_secs(4);

/// How long an activity that is cancelled may go on.
const GRACE: Duration = Duration::from_secs(1);

/// Sessions without work, and how often they are swept.
const SESSION_IDLE: Duration = Duration::from_secs(5);

/// Between attempts of a process to open the database.
const OPEN_PAUSE: Duration = Duration::from_millis(500);

/// How workers are set up.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// The commit tier of the provider.
    pub(crate) tier: CommitTier,
    pub(crate) dispatchers: usize,
    pub(crate) workers: usize,
    /// Attempts before a message counts as poison: above the number of kills.
    pub(crate) attempts_max: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { tier: CommitTier::default(), dispatchers: 2, workers: 2, attempts_max: 10 }
    }
}

/// A provider at that site, as a process opens it.
pub(crate) async fn provider(site: &Site, tier: CommitTier) -> Result<Arc<CosmosDBProvider>, String> {
    let client = perihelion_client::Client::over(&site.endpoint, site.tap.clone()).await;
    provider_over(client.map_err(|error| error.to_string())?, tier).await
}

/// A provider over a client that is connected.
pub(crate) async fn provider_over(
    client: perihelion_client::Client,
    tier: CommitTier,
) -> Result<Arc<CosmosDBProvider>, String> {
    let builder = CosmosDBProvider::builder().with_commit_tier(tier);
    let builder = builder.with_client(client).with_database(DATABASE).with_container(CONTAINER);
    Ok(Arc::new(builder.open().await.map_err(|error| error.to_string())?))
}

/// The same, as often as it takes: a process that cannot open is started again.
pub(crate) async fn provider_at_last(site: &Site, tier: CommitTier) -> Arc<CosmosDBProvider> {
    loop {
        match provider(site, tier).await {
            Ok(provider) => return provider,
            Err(_) => tokio::time::sleep(OPEN_PAUSE).await,
        }
    }
}

/// A process that runs workflows. Its provider is left in the slot.
pub(crate) fn worker(settings: Settings, ledger: Ledger, left: &Slot<Arc<CosmosDBProvider>>) -> Program {
    let left = left.clone();
    Arc::new(move |site| {
        let (settings, ledger, left) = (settings.clone(), ledger.clone(), left.clone());
        Box::pin(async move {
            let provider = provider_at_last(&site, settings.tier).await;
            left.put(Arc::clone(&provider));
            let options = RuntimeOptions {
                orchestration_concurrency: settings.dispatchers,
                worker_concurrency: settings.workers,
                orchestrator_lock_timeout: LOCK,
                worker_lock_timeout: LOCK,
                session_lock_timeout: LOCK,
                session_idle_timeout: SESSION_IDLE,
                session_cleanup_interval: SESSION_IDLE,
                activity_cancellation_grace_period: GRACE,
                max_attempts: settings.attempts_max,
                observability: ObservabilityConfig { log_level: "off".to_owned(), ..Default::default() },
                worker_tag_filter: TagFilter::default_and([workflows::TAG]),
                ..RuntimeOptions::default()
            };
            let (activities, orchestrations) = workflows::registries(&ledger, &site.tap);
            let _runtime = Runtime::start_with_options(provider, activities, orchestrations, options).await;
            pending::<()>().await;
        })
    })
}

/// A program that uses workflows.
pub(crate) struct User {
    pub(crate) site: Site,
    /// What it does goes through here, and may fail.
    pub(crate) client: Client,
    pub(crate) provider: Arc<CosmosDBProvider>,
    /// What it waits for it sees through here: nothing of it fails.
    pub(crate) watch: perihelion_client::Client,
}

impl User {
    pub(crate) async fn open(site: Site) -> User {
        let provider = provider_at_last(&site, CommitTier::default()).await;
        let watching = site.watching();
        let watch = perihelion_client::Client::over(&watching.endpoint, watching.tap).await;
        let client = Client::new(Arc::clone(&provider) as Arc<dyn Provider>);
        User { site, client, provider, watch: watch.expect("nobody who watches fails") }
    }

    /// The container, to look at.
    pub(crate) fn container(&self) -> perihelion_client::Container {
        self.watch.database(DATABASE).container(CONTAINER)
    }

    /// What an instance's state document says, which costs less than to ask
    /// the provider; null before there is one.
    pub(crate) async fn state(&self, instance: &str) -> Value {
        let found = self.container().find::<Value>(instance, "i").await;
        found.ok().flatten().map(perihelion_client::Item::into_value).unwrap_or_default()
    }

    /// A provider that nothing happens to.
    pub(crate) async fn auditor(&self) -> Arc<CosmosDBProvider> {
        provider_over(self.watch.clone(), CommitTier::default()).await.expect("nobody who watches fails")
    }
}

/// Where one host leaves something for whoever plays the world.
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
