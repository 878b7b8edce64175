//! The driver runtime: what the drivers of several accounts share.

use std::fmt;
use std::sync::Arc;

use perihelion_wire::transport::Endpoint;

use super::Driver;
use crate::credential::Credential;
use crate::error::Error;
use crate::options::{DriverOptions, Environment};
use crate::transport::{AnyTransport, HttpOptions, HttpTransport};

/// What the drivers of several accounts share: one pool of connections, and options for drivers
/// that do not set them. Cheap to clone. The connections are closed when the runtime and all its
/// drivers are dropped. The accounts of one runtime may have at most 256 endpoints in all.
///
/// The runtime's options lie between the environment's and the driver's: an option of an operation
/// wins over the driver's, the driver's over the runtime's, and the runtime's over the
/// environment's. Only the environment's [`Overrides`](crate::options::Overrides) win over all of
/// them.
///
/// ```no_run
/// # use perihelion_driver::transport::HttpOptions;
/// # use perihelion_driver::{Credential, Driver, DriverOptions, DriverRuntime, Error, OperationOptions};
/// # use perihelion_wire::transport::Endpoint;
/// # async fn example(orders: Endpoint, stock: Endpoint, key: Credential) -> Result<(), Error> {
/// let defaults = DriverOptions::default().with_application_region("West Europe");
/// let runtime = DriverRuntime::new(HttpOptions::default(), defaults)?;
/// let orders = runtime.open(orders, key.clone(), DriverOptions::default()).await?;
/// let stock = runtime.open(stock, key, DriverOptions::default()).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct DriverRuntime {
    transport: Arc<AnyTransport>,
    defaults: Arc<DriverOptions>,
    environment: Arc<Environment>,
}

impl DriverRuntime {
    /// A runtime with a pool of connections of its own, and defaults for its drivers. The
    /// environment of the process is read now, for options that are not set (see
    /// [`Environment`] and [`HttpOptions`]).
    pub fn new(http: HttpOptions, defaults: DriverOptions) -> Result<Self, Error> {
        let transport = HttpTransport::new(http).map_err(|error| Error::input(error.to_string()))?;
        DriverRuntime::over(transport, defaults)
    }

    /// A runtime whose drivers send their requests through this transport.
    pub fn over(transport: impl Into<AnyTransport>, defaults: DriverOptions) -> Result<Self, Error> {
        let environment = Environment::of_process()?;
        if !defaults.backup_endpoints.is_empty() {
            return Err(Error::input(
                "backup_endpoints belong to one account: set them in the options of its driver, not of the \
                 runtime",
            ));
        }
        // Bad defaults are refused now, and not when the first driver is opened.
        defaults.clone().resolved(&environment)?;
        Ok(DriverRuntime {
            transport: Arc::new(transport.into()),
            defaults: Arc::new(defaults),
            environment: Arc::new(environment),
        })
    }

    /// Connects to an account, reads its regions, and starts the background task on the current
    /// tokio runtime.
    pub async fn open(
        &self,
        endpoint: Endpoint,
        credential: Credential,
        options: DriverOptions,
    ) -> Result<Driver, Error> {
        let options = options.or(&self.defaults).resolved(&self.environment)?;
        let (transport, overrides) = (Arc::clone(&self.transport), self.environment.overrides);
        Driver::open_resolved(endpoint, credential, transport, options, overrides).await
    }
}

impl fmt::Debug for DriverRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriverRuntime")
            .field("transport", &self.transport)
            .field("defaults", &self.defaults)
            .finish_non_exhaustive()
    }
}
