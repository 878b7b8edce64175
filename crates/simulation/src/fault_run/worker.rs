//! The program of a worker that can also be shut down: it runs workflows until it is asked to
//! stop. Then it shuts down gracefully, as a program does after SIGTERM, and its host starts it
//! again.

use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{Provider, TagFilter};
use duroxide::runtime::{ObservabilityConfig, Runtime, RuntimeOptions};
use duroxide_cdb::{CommitTier, CosmosDBProvider, CrossInstance, RetentionOptions};
use tokio::sync::Notify;

use crate::activity_log::ActivityLog;
use crate::fault_run::fleet::Release;
use crate::process::{CONTAINER, DATABASE, Handoff};
use crate::stored::OLD_LAYOUT_VERSION;
use crate::workflows::{self, Registered};
use crate::world::{Connection, Program};

/// How long the runtime waits for its tasks when it is shut down.
const SHUTDOWN_WAIT_MS: u64 = 1000;

/// How long an activity may still run after it was cancelled.
const CANCELLATION_GRACE: Duration = Duration::from_secs(1);

/// The interval at which idle sessions are removed.
const SESSION_CLEANUP_INTERVAL: Duration = Duration::from_secs(5);

/// A session without work is kept for the time of a lock and this much longer. The runtime requires
/// that a session is kept longer than the time between two renewals of a lock.
const SESSION_IDLE_BEYOND_LOCK: Duration = Duration::from_secs(1);

/// The wait between two attempts of a process to open the provider, and of `keep_turn` to take a turn.
const OPEN_PAUSE: Duration = Duration::from_millis(500);

/// How long the planted bug `TurnKept` waits for a turn at a time.
const KEPT_TURN_WAIT: Duration = Duration::from_secs(1);

/// The settings of a worker.
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    pub tier: CommitTier,
    /// How the process sends messages between instances.
    pub cross_instance: CrossInstance,
    /// Turns that the process runs at the same time.
    pub dispatchers: usize,
    /// Activities that the process runs at the same time.
    pub activity_workers: usize,
    /// The number of attempts after which a turn or an activity counts as poison.
    pub attempts_max: u32,
    /// How long locks of instances, activities and sessions last.
    pub lock_timeout: Duration,
    pub retention: RetentionOptions,
    /// The region that the process prefers for reads.
    pub reads_in: Option<&'static str>,
    /// What the process can run.
    pub registered: Registered,
}

/// What a worker shares with the run.
#[derive(Clone)]
pub struct Shared {
    pub activity_log: ActivityLog,
    /// The provider of the worker's process, so that the run can read its metrics and its memory.
    pub opened: Handoff<CosmosDBProvider>,
    /// Notified when the process is to shut down.
    pub stop: Arc<Notify>,
    /// The release of the worker's next process.
    pub release: Release,
    /// Whether the process takes a turn and never ends it, as with the planted bug `TurnKept`.
    pub keeps_turn: bool,
}

/// The program of a worker.
pub fn program(settings: WorkerSettings, shared: Shared) -> Program {
    Arc::new(move |connection| {
        let (settings, shared) = (settings.clone(), shared.clone());
        Box::pin(async move {
            let Shared { activity_log, opened, stop, release, keeps_turn } = shared;
            let provider = open_with_retries(&connection, &settings, &release).await;
            opened.put(provider.clone());
            if keeps_turn {
                tokio::spawn(keep_turn(provider.clone(), settings.lock_timeout));
            }
            let (activities, orchestrations) =
                workflows::registries(&activity_log, &connection.transport, &settings.registered);
            let store = Arc::new(provider.clone());
            let runtime =
                Runtime::start_with_options(store, activities, orchestrations, options(&settings)).await;
            stop.notified().await;
            runtime.shutdown(Some(SHUTDOWN_WAIT_MS)).await;
            drop(opened.take());
            provider.close().await;
            // The process ends, and its host starts it again.
            connection.transport.process.kill();
        })
    })
}

fn options(settings: &WorkerSettings) -> RuntimeOptions {
    RuntimeOptions {
        orchestration_concurrency: settings.dispatchers,
        worker_concurrency: settings.activity_workers,
        orchestrator_lock_timeout: settings.lock_timeout,
        worker_lock_timeout: settings.lock_timeout,
        session_lock_timeout: settings.lock_timeout,
        session_idle_timeout: settings.lock_timeout + SESSION_IDLE_BEYOND_LOCK,
        session_cleanup_interval: SESSION_CLEANUP_INTERVAL,
        activity_cancellation_grace_period: CANCELLATION_GRACE,
        max_attempts: settings.attempts_max,
        observability: ObservabilityConfig { log_level: "off".to_owned(), ..Default::default() },
        worker_tag_filter: TagFilter::default_and([workflows::TAG]),
        ..RuntimeOptions::default()
    }
}

/// Takes a turn and never ends it, like a dispatcher whose task was lost. When the lock of the turn ends,
/// the turn is run again.
async fn keep_turn(provider: CosmosDBProvider, lock_timeout: Duration) {
    while !matches!(provider.fetch_orchestration_item(lock_timeout, KEPT_TURN_WAIT, None).await, Ok(Some(_)))
    {
        tokio::time::sleep(OPEN_PAUSE).await;
    }
}

/// Opens the provider, and tries again until that succeeds. A process of the earlier version cannot open
/// a container whose version has been raised: then it is replaced first.
async fn open_with_retries(
    connection: &Connection,
    settings: &WorkerSettings,
    release: &Release,
) -> CosmosDBProvider {
    loop {
        let is_old = release.is_old();
        let Ok(provider) = open(connection, settings, is_old).await else {
            tokio::time::sleep(OPEN_PAUSE).await;
            continue;
        };
        // This is early enough: the process sends its first heartbeat after its first fetch.
        if is_old {
            release.record_old(&connection.transport.process.name);
        }
        return provider;
    }
}

async fn open(
    connection: &Connection,
    settings: &WorkerSettings,
    is_old: bool,
) -> Result<CosmosDBProvider, String> {
    let client = perihelion_client::Client::builder()
        .with_endpoint(&connection.endpoint.to_string())
        .with_transport(connection.transport.clone())
        .with_preferred_regions(settings.reads_in);
    let client = client.connect().await.map_err(|error| error.to_string())?;
    let mut builder = CosmosDBProvider::builder();
    if is_old {
        builder = builder.with_layout_version(OLD_LAYOUT_VERSION);
    }
    let builder = builder
        .with_commit_tier(settings.tier)
        .with_cross_instance(settings.cross_instance)
        .with_retention(settings.retention)
        .with_client(client)
        .with_database(DATABASE)
        .with_container(CONTAINER);
    builder.open().await.map_err(|error| error.to_string())
}
