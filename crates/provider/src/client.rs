//! The published crate's small client, as far as programs use it: a query, a
//! replace. A layer over ours, for tests that look into storage.

use duroxide::providers::ProviderError;
use perihelion_client::{Client, Container, Credential, Etag, ItemOptions, Query};
use serde_json::Value;

use crate::failure::Failure;

/// A parameter of a query.
#[derive(Debug, Clone)]
pub struct QueryParameter {
    name: String,
    value: Value,
}

impl QueryParameter {
    /// Gives `@name` a value; the sign is part of the name.
    pub fn new(name: impl Into<String>, value: impl Into<Value>) -> Self {
        QueryParameter { name: name.into(), value: value.into() }
    }
}

/// A container, for looking into it.
#[derive(Debug, Clone)]
pub struct CosmosDBClient {
    place: Place,
}

#[derive(Debug, Clone)]
enum Place {
    Open(Container),
    Named { endpoint: String, credential: Credential, database: String, container: String },
}

impl CosmosDBClient {
    /// Names a container of an account; nothing is sent.
    pub fn new(endpoint: &str, key: &str, database: &str, container: &str) -> Result<Self, ProviderError> {
        let credential =
            Credential::key(key).map_err(|error| Failure::Storage(error).into_error("CosmosDBClient"))?;
        Ok(CosmosDBClient {
            place: Place::Named {
                endpoint: endpoint.to_owned(),
                credential,
                database: database.to_owned(),
                container: container.to_owned(),
            },
        })
    }

    pub(crate) fn over(container: Container) -> Self {
        CosmosDBClient { place: Place::Open(container) }
    }

    /// Asks a query, in one partition or in all.
    pub async fn query(
        &self,
        text: &str,
        parameters: Vec<QueryParameter>,
        partition_key: Option<&str>,
    ) -> Result<Vec<Value>, ProviderError> {
        let mut query = Query::new(text);
        for QueryParameter { name, value } in parameters {
            query = query.with_parameter(name, value);
        }
        if let Some(key) = partition_key {
            query = query.in_partition(key);
        }
        let rows = self.container().await?.query(query).collect().await;
        rows.map_err(|error| Failure::Storage(error).into_error("query"))
    }

    /// Replaces a document, with an etag only if it is unchanged.
    pub async fn replace_document(
        &self,
        id: &str,
        partition_key: &str,
        document: &Value,
        etag: Option<&str>,
    ) -> Result<(), ProviderError> {
        let failed = |error: perihelion_client::Error| Failure::Storage(error).into_error("replace_document");
        let mut options = ItemOptions::new();
        if let Some(etag) = etag {
            options = options.with_if_match(&Etag::parse(etag).map_err(failed)?);
        }
        let container = self.container().await?;
        container.replace_with(partition_key, id, document, &options).await.map(drop).map_err(failed)
    }

    async fn container(&self) -> Result<Container, ProviderError> {
        match &self.place {
            Place::Open(container) => Ok(container.clone()),
            Place::Named { endpoint, credential, database, container } => {
                let client = Client::with_credential(endpoint, credential.clone()).await;
                let client = client.map_err(|error| Failure::Storage(error).into_error("connect"))?;
                Ok(client.database(database).container(container))
            }
        }
    }
}
