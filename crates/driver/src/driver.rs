//! The driver: connects to an account and runs operations on it. A [`DriverRuntime`] holds what
//! the drivers of several accounts share.

mod runtime;
mod transactions;

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;

use perihelion_wire::transport::Endpoint;
use tokio::time::Instant;

use crate::background::Background;
use crate::core::Core;
use crate::credential::Credential;
use crate::error::Error;
use crate::metadata::{self, Container, ContainerMetadata};
use crate::observer::{EndedOperation, Observer};
use crate::operation::Operation;
use crate::options::{DriverOptions, OperationClass, OperationOptions, Overrides};
use crate::pipeline::{Call, run};
use crate::region::Region;
use crate::response::Response;
use crate::transport::{AnyTransport, TransportStatistics};

pub use runtime::DriverRuntime;

/// The driver of one account. Cheap to clone. The background task is aborted when the
/// last clone is dropped. A driver may be used on several tokio runtimes, and may outlive
/// the runtime that it was opened on.
#[derive(Clone)]
pub struct Driver {
    core: Arc<Core>,
    background: Arc<Background>,
    observer: Option<Arc<dyn Observer>>,
    /// Whether the events of operations have the level `DEBUG`, whatever their outcome.
    has_debug_events: bool,
}

/// The regions of an account, as the driver knew them when [`Driver::account`] was
/// called.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AccountView {
    /// Regions for reads, the preferred ones first.
    pub read_regions: Vec<Region>,
    /// Regions for writes. Where every region takes writes, the preferred ones come
    /// first.
    pub write_regions: Vec<Region>,
    /// Whether every region takes writes.
    pub is_multi_write: bool,
    /// Whether reads see the writes of their session: the account's default consistency is Session
    /// or a stronger one.
    pub is_session_consistent: bool,
    /// Whether partitions fail over to other regions one by one, as the account document says.
    /// Only in accounts with one write region.
    pub has_partition_failover: bool,
    /// The thin-client endpoints (Gateway 2.0) for reads, from the account document. They are
    /// shown and not used: the driver does not speak their binary protocol.
    pub thin_client_read_endpoints: Vec<(Region, Endpoint)>,
    /// The thin-client endpoints for writes. They are not used either.
    pub thin_client_write_endpoints: Vec<(Region, Endpoint)>,
}

/// The hedges, tasks, connections and requests of a driver at one moment. Tests use it to check
/// that nothing leaks.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DriverStatistics {
    /// Alternate legs of hedges that are under way.
    pub hedges: usize,
    /// First legs that have lost their race and are awaited for their charge.
    pub hedge_losers: usize,
    /// Tasks that read metadata for several operations.
    pub metadata_tasks: usize,
    /// The statistics of the transport; `None` for a transport that the application implements.
    pub transport: Option<TransportStatistics>,
}

impl DriverStatistics {
    /// Whether nothing is under way: no operation, no hedge, no read of metadata. Only open
    /// connections and the background task, which sleeps, are left. The requests of a transport
    /// without statistics are not known and do not count.
    pub fn is_idle(&self) -> bool {
        self.hedges == 0
            && self.hedge_losers == 0
            && self.metadata_tasks == 0
            && self.transport.as_ref().is_none_or(TransportStatistics::is_idle)
    }
}

impl Driver {
    /// Connects to an account, reads its regions, and starts the background task on the
    /// current tokio runtime. Environment variables are read for options that are not
    /// set (see [`Environment`](crate::options::Environment)).
    pub async fn open(
        endpoint: Endpoint,
        credential: Credential,
        transport: impl Into<AnyTransport>,
        options: DriverOptions,
    ) -> Result<Driver, Error> {
        let runtime = DriverRuntime::over(transport, DriverOptions::default())?;
        runtime.open(endpoint, credential, options).await
    }

    /// Connects to an account with options that are resolved.
    async fn open_resolved(
        endpoint: Endpoint,
        credential: Credential,
        transport: Arc<AnyTransport>,
        options: DriverOptions,
        overrides: Overrides,
    ) -> Result<Driver, Error> {
        let core = Core::new(endpoint, credential, transport, options, overrides)?;
        let deadline = Instant::now() + core.option_layers().metadata_settings().timeout;
        core.account_reader().read_at_opening(&*core, core.topology(), deadline).await?;
        core.account_reader().warn_of_unknown_regions(core.topology());
        let background = Arc::new(Background::new(&core));
        background.ensure_running(Instant::now());
        Ok(Driver { core, background, observer: None, has_debug_events: false })
    }

    /// A new driver that shares connections and metadata with this driver. The new driver
    /// and its clones report each operation that they run to `observer`, and not to the
    /// observer of this driver.
    pub fn with_observer(&self, observer: Arc<dyn Observer>) -> Driver {
        Driver { observer: Some(observer), ..self.clone() }
    }

    /// A new driver that shares connections and metadata with this driver. The events of its
    /// operations have the level `DEBUG`, whatever their outcome. This is for a program that repeats
    /// failed operations and reports an outage itself: otherwise the outage fills the log.
    pub fn with_debug_events(&self) -> Driver {
        Driver { has_debug_events: true, ..self.clone() }
    }

    /// The container of this name. No request is sent. All handles of one container
    /// share its metadata, unless 10,000 other containers were asked for before this one.
    pub fn container(&self, database: &str, name: &str) -> Arc<Container> {
        self.core.container(database, name)
    }

    /// Runs one operation to its end.
    pub async fn execute(
        &self,
        operation: &Operation,
        options: &OperationOptions,
    ) -> Result<Response, Error> {
        let settings = self.core.option_layers().settings_for(options, class_of(operation))?;
        let now = Instant::now();
        self.background.ensure_running(now);
        let deadline = now + settings.timeout;
        let call = Call { operation, settings: &settings, deadline, route_to: None };
        let span = self.core.telemetry().operation_span(operation);
        let result = {
            // `Instrument` would move the future, which has some kilobytes.
            let mut running = pin!(run(&self.core, call));
            poll_fn(|context| span.in_scope(|| running.as_mut().poll(context))).await
        };
        span.in_scope(|| {
            self.core.telemetry().record(operation, &result, &span, self.has_debug_events);
            if let Some(observer) = &self.observer {
                EndedOperation::notify(observer.as_ref(), operation, &result);
            }
        });
        result
    }

    /// The metadata of a container. The metadata is read at first use, and cached until
    /// it is found to be out of date.
    pub async fn metadata(&self, container: &Arc<Container>) -> Result<Arc<ContainerMetadata>, Error> {
        match container.metadata() {
            Some(metadata) => Ok(metadata),
            None => metadata::load(&*self.core, container, self.metadata_deadline()).await,
        }
    }

    /// Reads a container's metadata again, because `stale` turned out to be out
    /// of date. If another task has replaced `stale` already, nothing is read.
    pub async fn refresh_metadata(
        &self,
        container: &Arc<Container>,
        stale: &Arc<ContainerMetadata>,
    ) -> Result<Arc<ContainerMetadata>, Error> {
        metadata::refresh(&*self.core, container, stale, self.metadata_deadline()).await
    }

    /// Whether both drivers belong to the same account. This is so if one of the drivers was
    /// opened with an endpoint that the other driver knows as the endpoint of its account or of
    /// one of its regions.
    pub fn is_of_same_account(&self, other: &Driver) -> bool {
        let knows = |one: &Driver, other: &Driver| {
            let (account, endpoint) = (one.core.topology().snapshot().account, other.endpoint());
            let mut locations = account.read_locations.iter().chain(&account.write_locations);
            one.endpoint() == endpoint || locations.any(|location| location.endpoint == endpoint)
        };
        Arc::ptr_eq(&self.core, &other.core) || knows(self, other) || knows(other, self)
    }

    /// The endpoint that the driver was opened with.
    fn endpoint(&self) -> Endpoint {
        self.core.topology().snapshot().account.configured_location.endpoint.clone()
    }

    /// The account's regions as they are known now.
    pub fn account(&self) -> AccountView {
        let account = self.core.topology().snapshot().account;
        AccountView {
            read_regions: account.read_locations.iter().map(|location| location.region.clone()).collect(),
            write_regions: account.write_locations.iter().map(|location| location.region.clone()).collect(),
            is_multi_write: account.is_multi_write,
            is_session_consistent: account.consistency.is_session_or_stronger(),
            has_partition_failover: account.has_partition_failover,
            thin_client_read_endpoints: account.thin_client.read.clone(),
            thin_client_write_endpoints: account.thin_client.write.clone(),
        }
    }

    /// The hedges, tasks, connections and requests of the driver now.
    pub fn statistics(&self) -> DriverStatistics {
        let (hedges, hedge_losers) = self.core.hedge_budget().in_use();
        DriverStatistics {
            hedges,
            hedge_losers,
            metadata_tasks: self.core.shared_tasks().count(),
            transport: self.core.transport().statistics(),
        }
    }

    fn metadata_deadline(&self) -> Instant {
        Instant::now() + self.core.option_layers().metadata_settings().timeout
    }
}

fn class_of(operation: &Operation) -> OperationClass {
    match (operation.is_data_plane(), operation.verb.is_read()) {
        (true, _) if operation.verb.is_transaction() => OperationClass::Transaction,
        (true, _) => OperationClass::Document,
        (false, true) => OperationClass::MetadataRead,
        (false, false) => OperationClass::MetadataWrite,
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("account", &self.account()).finish_non_exhaustive()
    }
}
