//! `CosmosDBClient`: the client of the published crate (`duroxide-cdb` 0.1.10), implemented
//! with `perihelion_client`. The client reads and writes documents by id, runs queries and
//! batches, and creates or deletes the container. It is for tests that look into storage.
//!
//! As in the published crate, a refused request on a document returns a response with the
//! service's status. An error means that the request was not sent or not answered.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use duroxide_cdb::client::{CosmosDBClient, QueryParameter};
//!
//! let key = std::env::var("COSMOS_KEY")?;
//! let client = CosmosDBClient::new("http://localhost:8081", &key, "duroxide", "duroxide")?;
//! let queued = vec![QueryParameter::new("@type", "orch_queue")];
//! let messages = client.query("SELECT * FROM c WHERE c.type = @type", queued, Some("order-1")).await?;
//! println!("{} messages wait for order-1", messages.len());
//! # Ok(())
//! # }
//! ```

mod batch;

use std::sync::Arc;

use duroxide::providers::ProviderError;
use perihelion_client::{
    Client, Container, ContainerProperties, Credential, Error, Etag, ItemOptions, Query, Written,
};
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::failure::Failure;

pub use batch::{BatchOperation, BatchOperationResult};

/// A parameter of a query.
#[derive(Debug, Clone)]
pub struct QueryParameter {
    /// The name of the parameter, with the `@`.
    pub name: String,
    /// The value of the parameter.
    pub value: Value,
}

impl QueryParameter {
    /// Creates a parameter. The `@` is part of the name.
    pub fn new(name: impl Into<String>, value: impl Into<Value>) -> Self {
        QueryParameter { name: name.into(), value: value.into() }
    }
}

/// The response to an operation on a document.
#[derive(Debug)]
pub struct CosmosDBResponse {
    /// The HTTP status, also of a refusal.
    pub status: u16,
    /// The etag that was read or written; `None` for a refusal.
    pub etag: Option<String>,
    /// The document, or the error body of the service. Empty after a delete.
    pub body: String,
}

impl CosmosDBResponse {
    /// Whether the status is a success.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    fn of(outcome: Result<Written, Error>, operation: &str) -> Result<Self, ProviderError> {
        // Providers of this process do not know of this write, so their cached states may be
        // out of date.
        crate::store::state_cache::invalidate_all();
        match outcome {
            Ok(written) => Ok(CosmosDBResponse {
                status: written.receipt().status().code,
                etag: written.etag().ok().map(|etag| etag.as_str().to_owned()),
                body: String::from_utf8_lossy(written.body()).into_owned(),
            }),
            Err(error) => Self::refused(error, operation),
        }
    }

    fn refused(error: Error, operation: &str) -> Result<Self, ProviderError> {
        match error.status() {
            Some(status) => Ok(CosmosDBResponse {
                status: status.code,
                etag: None,
                body: String::from_utf8_lossy(error.body()).into_owned(),
            }),
            None => Err(Failure::Storage(error).into_error(operation)),
        }
    }
}

/// A client for one container.
#[derive(Debug, Clone)]
pub struct CosmosDBClient {
    endpoint: String,
    database: String,
    container: String,
    credential: Credential,
    /// Connected at the first request.
    client: Arc<OnceCell<Client>>,
}

impl CosmosDBClient {
    /// A client for a container of an account. Sends no request.
    pub fn new(endpoint: &str, key: &str, database: &str, container: &str) -> Result<Self, String> {
        let credential = Credential::key(key).map_err(|error| format!("Invalid CosmosDB key: {error}"))?;
        Ok(CosmosDBClient {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            database: database.to_owned(),
            container: container.to_owned(),
            credential,
            client: Arc::default(),
        })
    }

    /// The endpoint of the account.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The database's name.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// The container's name.
    pub fn container(&self) -> &str {
        &self.container
    }

    /// Creates the database if it is missing.
    pub async fn ensure_database(&self) -> Result<(), ProviderError> {
        let created = self.connect().await?.create_database_if_missing(&self.database).await;
        created.map(drop).map_err(failed("ensure_database"))
    }

    /// Creates the container if it is missing, with the partition key of a provider.
    /// Without a policy every path is indexed; a container that a provider creates
    /// indexes fewer paths.
    pub async fn ensure_container(&self, indexing_policy: Option<Value>) -> Result<(), ProviderError> {
        let mut properties = ContainerProperties::new(&self.container, "/instanceId");
        if let Some(policy) = indexing_policy {
            let policy = serde_json::from_value(policy).map_err(|error| {
                let message = format!("the indexing policy is not valid: {error}");
                ProviderError::permanent("ensure_container", message)
            })?;
            properties = properties.with_indexing_policy(policy);
        }
        let database = self.connect().await?.database(&self.database);
        let created = database.create_container_if_missing(&properties).await;
        created.map(drop).map_err(failed("ensure_container"))
    }

    /// Deletes the container with everything in it, if it exists.
    pub async fn delete_container(&self) -> Result<(), ProviderError> {
        let outcome = self.open().await?.delete_container().await;
        crate::store::state_cache::invalidate_all();
        match outcome {
            Err(error) if !error.is_not_found() => Err(failed("delete_container")(error)),
            _ => Ok(()),
        }
    }

    /// Runs a query in one partition, or in all if `partition_key` is `None`. Returns all
    /// rows.
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
        let rows = self.open().await?.query(query).collect().await;
        rows.map_err(failed("query"))
    }

    /// Creates a document.
    pub async fn create_document(
        &self,
        partition_key: &str,
        document: &Value,
    ) -> Result<CosmosDBResponse, ProviderError> {
        let written = self.open().await?.create(partition_key, document).await;
        CosmosDBResponse::of(written, "create_document")
    }

    /// Creates a document or replaces it.
    pub async fn upsert_document(
        &self,
        partition_key: &str,
        document: &Value,
    ) -> Result<CosmosDBResponse, ProviderError> {
        let written = self.open().await?.upsert(partition_key, document).await;
        CosmosDBResponse::of(written, "upsert_document")
    }

    /// Reads a document.
    pub async fn read_document(
        &self,
        id: &str,
        partition_key: &str,
    ) -> Result<CosmosDBResponse, ProviderError> {
        match self.open().await?.read::<Value>(partition_key, id).await {
            Ok(item) => Ok(CosmosDBResponse {
                status: item.receipt().status().code,
                etag: item.etag().ok().map(|etag| etag.as_str().to_owned()),
                body: item.value.to_string(),
            }),
            Err(error) => CosmosDBResponse::refused(error, "read_document"),
        }
    }

    /// Replaces a document. With an etag, replaces it only if it still has this etag.
    pub async fn replace_document(
        &self,
        id: &str,
        partition_key: &str,
        document: &Value,
        if_match: Option<&str>,
    ) -> Result<CosmosDBResponse, ProviderError> {
        let mut options = ItemOptions::new();
        if let Some(etag) = if_match {
            let etag = Etag::parse(etag).map_err(failed("replace_document"))?;
            options = options.with_if_match(&etag);
        }
        let written = self.open().await?.replace_with(partition_key, id, document, &options).await;
        CosmosDBResponse::of(written, "replace_document")
    }

    /// Deletes a document.
    pub async fn delete_document(
        &self,
        id: &str,
        partition_key: &str,
    ) -> Result<CosmosDBResponse, ProviderError> {
        CosmosDBResponse::of(self.open().await?.delete(partition_key, id).await, "delete_document")
    }

    /// The container. The first call connects to the account.
    async fn open(&self) -> Result<Container, ProviderError> {
        Ok(self.connect().await?.database(&self.database).container(&self.container))
    }

    async fn connect(&self) -> Result<&Client, ProviderError> {
        let connect = || Client::with_credential(&self.endpoint, self.credential.clone());
        self.client.get_or_try_init(connect).await.map_err(failed("connect"))
    }
}

fn failed(operation: &str) -> impl Fn(Error) -> ProviderError {
    move |error| Failure::Storage(error).into_error(operation)
}
