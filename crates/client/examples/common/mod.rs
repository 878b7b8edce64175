//! Where the examples run: against the account that the environment names
//! (`AZURE_COSMOS_CONNECTION_STRING`), or else against a database in this very
//! process, so that every one of them runs without anything being installed.

use std::error::Error;

use perihelion_client::{Client, Container, ContainerProperties, Database};
use perihelion_server::{Embedded, EmbeddedOptions};

/// A client with a database of its own, which [`Place::leave`] deletes.
pub(crate) struct Place {
    pub(crate) database: Database,
    embedded: Option<Embedded>,
}

impl Place {
    /// Connects, and makes the example's database.
    pub(crate) async fn find(example: &str) -> Result<Place, Box<dyn Error>> {
        let (client, embedded) = if std::env::var_os("AZURE_COSMOS_CONNECTION_STRING").is_some() {
            (Client::from_env().await?, None)
        } else {
            let embedded = Embedded::open(EmbeddedOptions::default().with_partitions(3)).await?;
            let client = Client::over(&embedded.endpoint(), embedded.transport()).await?;
            (client, Some(embedded))
        };
        let database = client.create_database_if_missing(&format!("perihelion-example-{example}")).await?;
        Ok(Place { database, embedded })
    }

    /// A container of orders, by customer.
    #[allow(dead_code, reason = "not every example has orders")]
    pub(crate) async fn orders(&self) -> Result<Container, Box<dyn Error>> {
        Ok(self
            .database
            .create_container_if_missing(&ContainerProperties::new("orders", "/customer"))
            .await?)
    }

    /// Cleans up.
    pub(crate) async fn leave(self) -> Result<(), Box<dyn Error>> {
        self.database.delete().await?;
        if let Some(embedded) = self.embedded {
            embedded.close().await;
        }
        Ok(())
    }
}
