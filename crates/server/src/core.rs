//! What a server and an embedded database have in common: the service over
//! its engine, and the task that drives maintenance.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use perihelion_engine::storage::{DiskStore, MemoryStore};
use perihelion_engine::{Clock, Engine, EngineOptions};

use crate::activity::Activities;
use crate::auth::Guard;
use crate::management::Management;
use crate::routes::Service;
use crate::{AuthMode, Keys, StartError};

/// How often maintenance looks for expired documents and full partitions.
const MAINTENANCE_PAUSE: Duration = Duration::from_secs(1);

/// What a service is made from.
pub(crate) struct CoreOptions {
    pub(crate) data: Option<PathBuf>,
    pub(crate) partitions: u32,
    pub(crate) strict_gateway: bool,
    pub(crate) throughput: Option<u32>,
    pub(crate) keys: Keys,
    pub(crate) auth: AuthMode,
    pub(crate) management: bool,
    pub(crate) public_endpoint: Option<String>,
    pub(crate) open_account: bool,
    pub(crate) ca_pem: String,
    pub(crate) clock: Clock,
}

/// A service that can be asked, and what keeps it going.
pub(crate) struct Core {
    pub(crate) service: Arc<Service>,
    engine: Arc<Engine>,
    maintenance: tokio::task::JoinHandle<()>,
}

impl Core {
    pub(crate) async fn open(options: CoreOptions) -> Result<Core, StartError> {
        let engine = Arc::new(open_engine(&options)?);
        let service = Arc::new(Service {
            engine: Arc::clone(&engine),
            guard: Guard {
                mode: options.auth,
                keys: vec![options.keys.primary],
                open_account: options.open_account,
            },
            strict_gateway: options.strict_gateway,
            public_endpoint: options.public_endpoint,
            management: Management::new(options.management),
            activities: Activities::new(),
            ca_pem: options.ca_pem,
        });
        let maintenance = tokio::spawn(maintain(Arc::clone(&engine)));
        Ok(Core { service, engine, maintenance })
    }

    /// Stops maintenance, lets `requests` end, and closes the store.
    pub(crate) async fn close(self, requests: impl Future<Output = ()>) {
        self.maintenance.abort();
        drop(self.service);
        requests.await;
        // Awaited so that its hold on the engine is gone; being cancelled is
        // how it ends.
        let _ = self.maintenance.await;
        if let Some(engine) = Arc::into_inner(self.engine) {
            engine.close();
        }
    }
}

fn open_engine(options: &CoreOptions) -> Result<Engine, StartError> {
    let engine_options = EngineOptions::default()
        .with_partitions(options.partitions)
        .with_throughput(options.throughput)
        .with_clock(options.clock.clone());
    let engine = match &options.data {
        None => Engine::open(MemoryStore::new(), engine_options),
        Some(directory) => DiskStore::open(directory).and_then(|store| Engine::open(store, engine_options)),
    };
    engine.map_err(StartError::data)
}

/// Drives the engine's maintenance until it is aborted.
async fn maintain(engine: Arc<Engine>) {
    loop {
        if let Err(refusal) = engine.maintain().await {
            tracing::warn!(message = %refusal.message, "maintenance failed and will be tried again");
        }
        engine.maintenance_due(MAINTENANCE_PAUSE).await;
    }
}
