//! The core of a driver: the state that all its operations share. The pipeline
//! and the background task use the core; [`Driver`](crate::Driver) owns it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use http::HeaderValue;
use perihelion_wire::transport::Endpoint;

use crate::clock::DateHeader;
use crate::credential::{Credential, scope_of};
use crate::error::Error;
use crate::metadata::{AccountReader, Container};
use crate::options::{DriverOptions, OptionLayers, Overrides};
use crate::routing::account::Account;
use crate::routing::hedge_budget::HedgeBudget;
use crate::routing::topology::Topology;
use crate::shared_tasks::SharedTasks;
use crate::telemetry::Telemetry;
use crate::transport::AnyTransport;

/// The name by which the service sees this driver.
const USER_AGENT: &str = concat!("perihelion-driver/", env!("CARGO_PKG_VERSION"));

/// The most containers whose metadata is shared by name. Further containers can be
/// used, but each handle of such a container reads its own metadata.
const CONTAINERS_MAX: usize = 10_000;

/// The state that all operations of a driver share.
pub(crate) struct Core {
    transport: Arc<AnyTransport>,
    hedge_budget: HedgeBudget,
    credential: Credential,
    topology: Topology,
    option_layers: OptionLayers,
    account_reader: AccountReader,
    containers: Mutex<HashMap<(String, String), Arc<Container>>>,
    date: DateHeader,
    user_agent: HeaderValue,
    token_scope: String,
    telemetry: Telemetry,
    shared_tasks: SharedTasks,
    /// This core. Tasks that belong to no operation need a reference of their own.
    itself: Weak<Core>,
}

impl Core {
    /// A core that has not read the account yet. The caller has resolved the options
    /// ([`DriverOptions::resolved`]).
    pub(crate) fn new(
        endpoint: Endpoint,
        credential: Credential,
        transport: Arc<AnyTransport>,
        options: DriverOptions,
        overrides: Overrides,
    ) -> Result<Arc<Self>, Error> {
        let agent = options
            .user_agent
            .as_deref()
            .map_or(USER_AGENT.to_owned(), |suffix| format!("{USER_AGENT} {suffix}"));
        let user_agent = HeaderValue::from_str(&agent)
            .map_err(|_| Error::input(format!("the user agent {agent:?} is not printable ASCII")))?;
        let option_layers = OptionLayers::new(&options.operation, overrides)?;
        let account_reader = AccountReader::new(&options);
        Ok(Arc::new_cyclic(|itself| Core {
            transport,
            hedge_budget: HedgeBudget::new(options.hedges_max),
            credential,
            option_layers,
            telemetry: Telemetry::new(&endpoint),
            token_scope: scope_of(&endpoint, options.token_scope.as_deref()),
            topology: Topology::new(Account::bootstrap(endpoint), options.topology, options.circuit_breaker),
            account_reader,
            containers: Mutex::default(),
            date: DateHeader::new(),
            user_agent,
            shared_tasks: SharedTasks::default(),
            itself: Weak::clone(itself),
        }))
    }

    /// The container of this name. All handles of one container share its metadata, unless
    /// [`CONTAINERS_MAX`] other containers were asked for before this one.
    pub(crate) fn container(&self, database: &str, name: &str) -> Arc<Container> {
        let mut containers = self.containers.lock().unwrap_or_else(PoisonError::into_inner);
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

    pub(crate) fn transport(&self) -> &Arc<AnyTransport> {
        &self.transport
    }

    /// The budget of concurrent hedges.
    pub(crate) fn hedge_budget(&self) -> &HedgeBudget {
        &self.hedge_budget
    }

    pub(crate) fn credential(&self) -> &Credential {
        &self.credential
    }

    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    pub(crate) fn option_layers(&self) -> &OptionLayers {
        &self.option_layers
    }

    pub(crate) fn account_reader(&self) -> &AccountReader {
        &self.account_reader
    }

    pub(crate) fn date(&self) -> &DateHeader {
        &self.date
    }

    pub(crate) fn user_agent(&self) -> &HeaderValue {
        &self.user_agent
    }

    /// The scope that Entra ID tokens are requested for.
    pub(crate) fn token_scope(&self) -> &str {
        &self.token_scope
    }

    /// The tasks that belong to no operation.
    pub(crate) fn shared_tasks(&self) -> &SharedTasks {
        &self.shared_tasks
    }

    /// Another reference to this core; `None` only while the core is being dropped.
    pub(crate) fn shared(&self) -> Option<Arc<Core>> {
        self.itself.upgrade()
    }

    pub(crate) fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }
}
