//! The account that the examples use: the account in the environment variable
//! `AZURE_COSMOS_CONNECTION_STRING`, or else a database in this process, so that
//! every example runs without an installation.

use std::error::Error;

use perihelion_client::{Client, Container, ContainerProperties, Database};
use perihelion_server::{Embedded, EmbeddedOptions};

/// The database of one example, which [`ExampleAccount::close`] deletes.
pub(crate) struct ExampleAccount {
    pub(crate) database: Database,
    /// The database in this process; `None` with the account of the environment variable.
    embedded: Option<Embedded>,
}

impl ExampleAccount {
    /// Connects, and creates the database of the example unless it exists.
    pub(crate) async fn open(example: &str) -> Result<ExampleAccount, Box<dyn Error>> {
        let (client, embedded) = if std::env::var_os("AZURE_COSMOS_CONNECTION_STRING").is_some() {
            (Client::from_env().await?, None)
        } else {
            let embedded = Embedded::open(EmbeddedOptions::default().with_partitions(3)).await?;
            let client = Client::over(&embedded.endpoint(), embedded.transport()).await?;
            (client, Some(embedded))
        };
        let database = client.create_database_if_missing(&format!("perihelion-example-{example}")).await?;
        Ok(ExampleAccount { database, embedded })
    }

    /// A container of orders, partitioned by customer.
    #[allow(dead_code, reason = "not every example has orders")]
    pub(crate) async fn orders(&self) -> Result<Container, Box<dyn Error>> {
        Ok(self
            .database
            .create_container_if_missing(&ContainerProperties::new("orders", "/customer"))
            .await?)
    }

    /// Deletes the database of the example, and closes the server in this process, if there is one.
    pub(crate) async fn close(self) -> Result<(), Box<dyn Error>> {
        self.database.delete().await?;
        if let Some(embedded) = self.embedded {
            embedded.close().await;
        }
        Ok(())
    }
}
