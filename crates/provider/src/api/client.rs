//! The published crate's small client, as far as programs use it: documents by
//! id, and queries. A layer over ours, for tests that look into storage.
//!
//! As there, what the service refuses is an answer with its status and not an
//! error; an error is what kept the question from being asked or answered.
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
    /// Its name, the sign included.
    pub name: String,
    /// What stands for it.
    pub value: Value,
}

impl QueryParameter {
    /// Gives `@name` a value; the sign is part of the name.
    pub fn new(name: impl Into<String>, value: impl Into<Value>) -> Self {
        QueryParameter { name: name.into(), value: value.into() }
    }
}

/// What the service answered about a document.
#[derive(Debug)]
pub struct CosmosDBResponse {
    /// The status, refusals included.
    pub status: u16,
    /// The version that was read or written.
    pub etag: Option<String>,
    /// The document, or what the service said instead.
    pub body: String,
}

impl CosmosDBResponse {
    /// Whether it was done.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    fn of(outcome: Result<Written, Error>, operation: &str) -> Result<Self, ProviderError> {
        // Whatever was kept of states before this write counts no more.
        crate::store::state_cache::disturb();
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

/// A container, for looking into it.
#[derive(Debug, Clone)]
pub struct CosmosDBClient {
    endpoint: String,
    database: String,
    container: String,
    credential: Credential,
    /// Connected at the first question.
    client: Arc<OnceCell<Client>>,
}

impl CosmosDBClient {
    /// Names a container of an account; nothing is sent.
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

    /// Where the account answers.
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

    /// Makes the database if it is missing.
    pub async fn ensure_database(&self) -> Result<(), ProviderError> {
        let made = self.connect().await?.create_database_if_missing(&self.database).await;
        made.map(drop).map_err(failed("ensure_database"))
    }

    /// Makes the container, partitioned as a provider's is, if it is missing;
    /// without a policy every path is indexed. A provider makes its own, which
    /// indexes less.
    pub async fn ensure_container(&self, indexing_policy: Option<Value>) -> Result<(), ProviderError> {
        let mut properties = ContainerProperties::new(&self.container, "/instanceId");
        if let Some(policy) = indexing_policy {
            let policy = serde_json::from_value(policy).map_err(|error| {
                let why = format!("the indexing policy is none that the service knows: {error}");
                ProviderError::permanent("ensure_container", why)
            })?;
            properties = properties.with_indexing_policy(policy);
        }
        let database = self.connect().await?.database(&self.database);
        let made = database.create_container_if_missing(&properties).await;
        made.map(drop).map_err(failed("ensure_container"))
    }

    /// Deletes the container with everything in it; one that is gone already is
    /// as good.
    pub async fn delete_container(&self) -> Result<(), ProviderError> {
        let outcome = self.open().await?.delete_container().await;
        crate::store::state_cache::disturb();
        match outcome {
            Err(error) if !error.is_not_found() => Err(failed("delete_container")(error)),
            _ => Ok(()),
        }
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

    /// Replaces a document, with an etag only if it is unchanged.
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
