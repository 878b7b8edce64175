//! The client of one account.

mod builder;

use perihelion_driver::credential::Credential;
use perihelion_driver::operation::Target;
use perihelion_driver::{AccountView, Driver};
use perihelion_wire::transport::{Endpoint, Transport};

pub use builder::ClientBuilder;

use crate::database::Database;
use crate::properties::DatabaseProperties;
use crate::throughput::Throughput;
use crate::transaction::{DistributedReadTransaction, DistributedWriteTransaction};
use crate::{Error, feed, manage};

/// The client of one account. It is cheap to clone: clones share connections,
/// regions and sessions. Create one per process.
#[derive(Clone, Debug)]
pub struct Client {
    driver: Driver,
}

impl Client {
    /// Connects with a connection string as the portal shows it or as an emulator
    /// prints it. This machine must trust the server's certificate. There is one
    /// exception: a server on this machine may show any certificate if the connection
    /// string has `DisableServerCertificateValidation=true`, or if the connection string has
    /// the emulators' published key and does not set `DisableServerCertificateValidation`.
    ///
    /// ```no_run
    /// # use perihelion_client::{Client, Error};
    /// # async fn example() -> Result<(), Error> {
    /// let client = Client::connect("AccountEndpoint=https://localhost:8081/;AccountKey=c2VjcmV0;").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(connection_string: &str) -> Result<Client, Error> {
        Client::builder().with_connection_string(connection_string).connect().await
    }

    /// Connects to an endpoint with a credential of any kind: a key, a resource
    /// token, Entra ID.
    pub async fn with_credential(endpoint: &str, credential: Credential) -> Result<Client, Error> {
        Client::builder().with_endpoint(endpoint).with_credential(credential).connect().await
    }

    /// Connects to the account that the environment names:
    /// `AZURE_COSMOS_CONNECTION_STRING`, or `COSMOS_ENDPOINT` with `COSMOS_KEY`.
    pub async fn from_env() -> Result<Client, Error> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        if let Some(text) = variable("AZURE_COSMOS_CONNECTION_STRING") {
            return Client::connect(&text).await;
        }
        match (variable("COSMOS_ENDPOINT"), variable("COSMOS_KEY")) {
            (Some(endpoint), Some(key)) => Client::with_credential(&endpoint, Credential::key(&key)?).await,
            _ => Err(Error::input(
                "the environment does not name an account: set AZURE_COSMOS_CONNECTION_STRING, \
                 or COSMOS_ENDPOINT and COSMOS_KEY",
            )),
        }
    }

    /// Connects through a transport of the caller, usually the transport of a
    /// database in this process.
    ///
    /// ```no_run
    /// # use perihelion_client::Client;
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use perihelion_server::{Embedded, EmbeddedOptions};
    ///
    /// let database = Embedded::open(EmbeddedOptions::default()).await?;
    /// let client = Client::over(&database.endpoint(), database.transport()).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn over(endpoint: &Endpoint, transport: impl Transport + 'static) -> Result<Client, Error> {
        Client::builder().with_endpoint(&endpoint.to_string()).with_transport(transport).connect().await
    }

    /// A builder, for regions, certificates, transports and options.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// The account's regions, as they are known now.
    pub fn account(&self) -> AccountView {
        self.driver.account()
    }

    /// A client over a driver that the caller has opened.
    pub fn from_driver(driver: Driver) -> Self {
        Client { driver }
    }

    /// The driver of this client, for operations that have no method in this crate.
    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    /// The handle of a database. Sends no request.
    pub fn database(&self, name: &str) -> Database {
        Database::new(&self.driver, name)
    }

    /// Begins a distributed transaction that writes: its writes may go to any partitions and
    /// containers of the account, and are applied together or not at all. Sends no request
    /// before [`commit`](DistributedWriteTransaction::commit). For writes to one partition key,
    /// [`Container::batch`](crate::Container::batch) costs less.
    pub fn write_transaction(&self) -> DistributedWriteTransaction {
        DistributedWriteTransaction::new(&self.driver)
    }

    /// Begins a distributed transaction that reads documents of any partitions and containers of
    /// the account from one snapshot. Sends no request before
    /// [`execute`](DistributedReadTransaction::execute).
    pub fn read_transaction(&self) -> DistributedReadTransaction {
        DistributedReadTransaction::new(&self.driver)
    }

    /// Creates a database. Fails with 409, [`Error::is_conflict`], when the database
    /// exists already.
    pub async fn create_database(&self, name: &str) -> Result<Database, Error> {
        manage::create_database(&self.driver, name, None).await?;
        Ok(self.database(name))
    }

    /// Creates a database whose containers share this throughput.
    pub async fn create_database_with_throughput(
        &self,
        name: &str,
        throughput: Throughput,
    ) -> Result<Database, Error> {
        manage::create_database(&self.driver, name, Some(throughput)).await?;
        Ok(self.database(name))
    }

    /// Creates a database unless it exists. Succeeds when another process creates
    /// it at the same time.
    pub async fn create_database_if_missing(&self, name: &str) -> Result<Database, Error> {
        manage::create_database_if_missing(&self.driver, name).await?;
        Ok(self.database(name))
    }

    /// Lists all databases.
    pub async fn databases(&self) -> Result<Vec<DatabaseProperties>, Error> {
        feed::list(&self.driver, Target::databases()).await
    }
}
