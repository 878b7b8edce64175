//! `AccountRuntime`: an open account with its regions and background tasks. A
//! server and an embedded database each own one.

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use perihelion_engine::{Clock, Engine, EngineOptions};
use tokio::task::JoinHandle;

use crate::activity_id::ActivityIds;
use crate::addresses::{Addresses, EndpointId};
use crate::auth::Authenticator;
use crate::counters::Counters;
use crate::dispatch::Dispatcher;
use crate::error::StartError;
use crate::faults::FaultRules;
use crate::long_reads::LongReads;
use crate::memory::MemoryBudget;
use crate::options::{AccountOptions, AuthMode, Keys};
use crate::pause::Pause;
use crate::regions::{Regions, open_engines};
use crate::routes::{Account, RegionService};

/// How long closing waits for the reads and the charged writes that still run after their clients have
/// left. Such a read ends at the end of its slice (a few milliseconds) or of its current document. If it
/// waits for a processor, it ends after that wait, which takes at most 5 s.
const UNFINISHED_WORK_WAIT_MAX: Duration = Duration::from_secs(10);

/// How clients reach an account, and which requests it accepts.
pub(crate) struct AccessOptions {
    pub(crate) keys: Keys,
    pub(crate) auth: AuthMode,
    /// Whether the management interface is on.
    pub(crate) has_management: bool,
    pub(crate) public_endpoint: Option<String>,
    /// `GET /` without an authorization header is accepted.
    pub(crate) allows_unsigned_account_read: bool,
    /// The CA certificate that clients can fetch; empty in an embedded database.
    pub(crate) ca_pem: String,
    pub(crate) addresses: Addresses,
    /// The memory for requests and responses.
    pub(crate) memory: Arc<MemoryBudget>,
}

/// An open account.
pub(crate) struct AccountRuntime {
    /// One service per region, by the region's index.
    pub(crate) services: Arc<[RegionService]>,
    regions: Arc<Regions>,
    long_reads: Arc<LongReads>,
    tasks: Vec<JoinHandle<()>>,
}

impl AccountRuntime {
    /// Opens the stores and starts the background tasks.
    pub(crate) async fn open(
        options: AccountOptions,
        access: AccessOptions,
        clock: Clock,
    ) -> Result<AccountRuntime, StartError> {
        let engine_options = EngineOptions::default()
            .with_partitions(options.partitions)
            .with_throughput(options.throughput)
            .with_ledger(options.transactions.ledger)
            .with_clock(clock);
        let engines = open_engines(options.data.as_deref(), &options.regions, &engine_options)?;
        AccountRuntime::with_engines(options, access, engines).await
    }

    /// Starts the background tasks of an account whose stores are open: one engine per region.
    pub(crate) async fn with_engines(
        options: AccountOptions,
        access: AccessOptions,
        engines: Vec<Arc<Engine>>,
    ) -> Result<AccountRuntime, StartError> {
        let delay = options.replication_delay;
        let regions = Regions::open(options.regions, engines, options.multi_write, delay).await?;
        let long_reads = LongReads::new(access.memory);
        let account = Arc::new(Account {
            regions: Arc::clone(&regions),
            addresses: access.addresses,
            authenticator: Authenticator {
                mode: access.auth,
                keys: vec![access.keys.primary],
                allows_unsigned_account_read: access.allows_unsigned_account_read,
            },
            strict_gateway: options.strict_gateway,
            strict_index: options.strict_index,
            transactions: options.transactions,
            public_endpoint: access.public_endpoint,
            has_management: access.has_management,
            counters: Counters::new(access.has_management),
            faults: FaultRules::default(),
            pause: Pause::default(),
            activity_ids: ActivityIds::new(),
            long_reads: Arc::clone(&long_reads),
            ca_pem: access.ca_pem,
            explorer: OnceLock::new(),
        });
        let services = (0..regions.len()).map(|region| RegionService {
            engine: Arc::clone(regions.engine(region)),
            region,
            account: Arc::clone(&account),
        });
        let services = services.collect();
        let tasks = regions.start_tasks();
        Ok(AccountRuntime { services, regions, long_reads, tasks })
    }

    /// The dispatcher of one endpoint.
    pub(crate) fn dispatcher(&self, endpoint: EndpointId) -> Dispatcher {
        Dispatcher { services: Arc::clone(&self.services), endpoint }
    }

    pub(crate) fn regions(&self) -> &Regions {
        &self.regions
    }

    /// Waits for `requests`, the end of the requests in flight, and for the reads and charged writes
    /// whose clients have left. Then it stops the background tasks and closes the stores.
    pub(crate) async fn close(self, requests: impl Future<Output = ()>) {
        // After this, an embedded database accepts a request only while another request
        // in flight holds the services.
        drop(self.services);
        requests.await;
        // These reads and writes use the stores. If one of them outlives the wait, it keeps a store open,
        // and `Regions::close` warns.
        let _ = tokio::time::timeout(UNFINISHED_WORK_WAIT_MAX, self.long_reads.wait_for_threads()).await;
        for task in self.tasks {
            task.abort();
            // The await ends when the task has released the stores. The result is
            // the error of a cancelled task.
            let _ = task.await;
        }
        self.regions.close().await;
    }
}

#[cfg(test)]
mod tests;
