//! The driver: what all operations of an account share, and the way in.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use http::HeaderValue;
use perihelion_wire::transport::Endpoint;
use tokio::time::Instant;

use crate::background::{self, Background};
use crate::clock::DateHeader;
use crate::container::{Container, Known};
use crate::credential::{Credential, scope_of};
use crate::environment::Environment;
use crate::error::Error;
use crate::observer::{Ended, Observer};
use crate::operation::Operation;
use crate::options::{DriverOptions, Layers, OperationOptions};
use crate::pipeline::{Task, run};
use crate::region::Region;
use crate::response::Response;
use crate::routing::account::Account;
use crate::routing::topology::Topology;
use crate::telemetry::Telemetry;
use crate::transport::AnyTransport;

/// How the service should see us.
const USER_AGENT: &str = concat!("perihelion-driver/", env!("CARGO_PKG_VERSION"));

/// The containers whose state is shared by name. More are still usable, but
/// each handle then learns for itself.
const CONTAINERS_MAX: usize = 10_000;

/// A connection to one account. Cheap to clone; the background work stops with
/// the last clone.
#[derive(Clone)]
pub struct Driver {
    core: Arc<Core>,
    _background: Arc<Background>,
    observer: Option<Arc<dyn Observer>>,
}

/// What the pipeline works with.
pub(crate) struct Core {
    transport: AnyTransport,
    credential: Credential,
    topology: Topology,
    settings: Layers,
    preferred_regions: Vec<Region>,
    containers: Mutex<HashMap<(String, String), Arc<Container>>>,
    /// When the account was last read; held by the one task that reads it.
    pub(crate) refreshing: tokio::sync::Mutex<Option<Instant>>,
    date: DateHeader,
    user_agent: HeaderValue,
    token_scope: String,
    telemetry: Telemetry,
}

/// What an account says of itself.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AccountView {
    /// Regions for reads, in the order they are preferred.
    pub read_regions: Vec<Region>,
    /// Regions for writes, in the order they are preferred.
    pub write_regions: Vec<Region>,
    /// Whether every region takes writes.
    pub is_multi_write: bool,
}

impl Driver {
    /// Connects to an account and reads its regions.
    pub async fn open(
        endpoint: Endpoint,
        credential: Credential,
        transport: impl Into<AnyTransport>,
        options: DriverOptions,
    ) -> Result<Driver, Error> {
        let environment = Environment::of_process()?;
        let options = options.resolved(&environment)?;
        let agent = options
            .user_agent
            .as_deref()
            .map_or(USER_AGENT.to_owned(), |more| format!("{USER_AGENT} {more}"));
        let user_agent = HeaderValue::from_str(&agent)
            .map_err(|_| Error::input(format!("the user agent {agent:?} is not printable ASCII")))?;
        let core = Arc::new(Core {
            transport: transport.into(),
            credential,
            settings: Layers::new(&environment, &options.operation)?,
            telemetry: Telemetry::new(&endpoint),
            token_scope: scope_of(&endpoint, options.token_scope.as_deref()),
            topology: Topology::new(Account::bootstrap(endpoint), options.topology, options.circuit_breaker),
            preferred_regions: options.preferred_regions,
            containers: Mutex::default(),
            refreshing: tokio::sync::Mutex::default(),
            date: DateHeader::new(),
            user_agent,
        });
        let deadline = Instant::now() + core.settings.metadata().timeout;
        core.read_account(None, deadline).await?;
        core.warn_of_unknown_regions();
        let background = Arc::new(background::start(&core));
        Ok(Driver { core, _background: background, observer: None })
    }

    /// The same driver, its connections and all it has learnt, with someone who
    /// is told of every operation that is asked of this handle and its clones.
    pub fn with_observer(&self, observer: Arc<dyn Observer>) -> Driver {
        Driver { observer: Some(observer), ..self.clone() }
    }

    /// The container of that name; nothing is sent. Handles of one name share
    /// what was learnt.
    pub fn container(&self, database: &str, name: &str) -> Arc<Container> {
        let mut containers = self.core.containers.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (database.to_owned(), name.to_owned());
        if let Some(container) = containers.get(&key) {
            return Arc::clone(container);
        }
        let container = Container::new(database, name);
        if containers.len() < CONTAINERS_MAX {
            containers.insert(key, Arc::clone(&container));
        }
        container
    }

    /// Runs one operation to its end.
    pub async fn execute(
        &self,
        operation: &Operation,
        options: &OperationOptions,
    ) -> Result<Response, Error> {
        let settings = self.core.settings.settings(options, operation.is_data_plane())?;
        let deadline = Instant::now() + settings.timeout;
        let result = run(&self.core, Task { operation, settings: &settings, deadline, place: None }).await;
        self.core.telemetry.record(operation, &result);
        if let Some(observer) = &self.observer {
            Ended::tell(observer.as_ref(), operation, &result);
        }
        result
    }

    /// What is known of a container: learnt at first use, then kept.
    pub async fn known(&self, container: &Arc<Container>) -> Result<Arc<Known>, Error> {
        match container.known() {
            Some(known) => Ok(known),
            None => self.core.learn(container, self.metadata_deadline()).await,
        }
    }

    /// Learns a container's ranges anew, because `stale` turned out to be.
    pub async fn refresh(&self, container: &Arc<Container>, stale: &Arc<Known>) -> Result<Arc<Known>, Error> {
        self.core.relearn(container, stale, self.metadata_deadline()).await
    }

    /// The account's regions as they are known now.
    pub fn account(&self) -> AccountView {
        let account = self.core.topology.snapshot().account;
        AccountView {
            read_regions: account.reads.iter().map(|site| site.region.clone()).collect(),
            write_regions: account.writes.iter().map(|site| site.region.clone()).collect(),
            is_multi_write: account.is_multi_write,
        }
    }

    fn metadata_deadline(&self) -> Instant {
        Instant::now() + self.core.settings.metadata().timeout
    }
}

impl Core {
    pub(crate) fn transport(&self) -> &AnyTransport {
        &self.transport
    }

    pub(crate) fn credential(&self) -> &Credential {
        &self.credential
    }

    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    pub(crate) fn settings(&self) -> &Layers {
        &self.settings
    }

    pub(crate) fn preferred_regions(&self) -> &[Region] {
        &self.preferred_regions
    }

    pub(crate) fn date(&self) -> &DateHeader {
        &self.date
    }

    pub(crate) fn user_agent(&self) -> &HeaderValue {
        &self.user_agent
    }

    /// What an Entra ID token must be good for.
    pub(crate) fn token_scope(&self) -> &str {
        &self.token_scope
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("account", &self.account()).finish_non_exhaustive()
    }
}
