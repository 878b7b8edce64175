//! What a server and an embedded database have in common: the account with its
//! regions, and the tasks that keep them going.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use perihelion_engine::{Clock, EngineOptions};

use crate::activity::Activities;
use crate::auth::Guard;
use crate::door::{Door, Entrance};
use crate::management::Management;
use crate::regions::{RegionNames, Regions, open_engines};
use crate::routes::{Account, Addresses, Service};
use crate::{AuthMode, Keys, StartError};

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
    pub(crate) regions: RegionNames,
    pub(crate) is_multi_write: bool,
    pub(crate) replication_delay: Duration,
    pub(crate) addresses: Addresses,
}

/// An account that can be asked, and what keeps it going.
pub(crate) struct Core {
    pub(crate) services: Arc<[Service]>,
    regions: Arc<Regions>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Core {
    pub(crate) async fn open(options: CoreOptions) -> Result<Core, StartError> {
        let engine_options = EngineOptions::default()
            .with_partitions(options.partitions)
            .with_throughput(options.throughput)
            .with_clock(options.clock);
        let engines = open_engines(options.data.as_deref(), &options.regions, &engine_options)?;
        let delay = options.replication_delay;
        let regions = Regions::open(options.regions, engines, options.is_multi_write, delay).await?;
        let account = Arc::new(Account {
            regions: Arc::clone(&regions),
            addresses: options.addresses,
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
        let services = (0..regions.len()).map(|region| Service {
            engine: Arc::clone(regions.engine(region)),
            region,
            account: Arc::clone(&account),
        });
        let services = services.collect();
        let tasks = regions.start_tasks();
        Ok(Core { services, regions, tasks })
    }

    /// One way in.
    pub(crate) fn door(&self, entrance: Entrance) -> Door {
        Door { services: Arc::clone(&self.services), entrance }
    }

    pub(crate) fn regions(&self) -> &Regions {
        &self.regions
    }

    /// Stops what runs by itself, lets `requests` end, and closes the stores.
    pub(crate) async fn close(self, requests: impl Future<Output = ()>) {
        drop(self.services);
        requests.await;
        for task in self.tasks {
            task.abort();
            // Awaited so that its hold on the stores is gone; being cancelled
            // is how it ends.
            let _ = task.await;
        }
        self.regions.close().await;
    }
}
