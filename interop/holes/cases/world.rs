//! `World`: the container of a case, and the server with that container. A case can ask the
//! server to inject faults. The requests to the management interface are written by hand, so
//! that no HTTP library is needed.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use duroxide::providers::ProviderError;
use duroxide_cdb::client::CosmosDBClient;
use duroxide_cdb::{CosmosDBProvider, CosmosDBProviderConfig};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The outcome of a case.
pub(crate) type Outcome<T = ()> = Result<T, CaseFailure>;

/// The failure of a case: a sentence about what went wrong.
#[derive(Debug)]
pub(crate) struct CaseFailure(pub(crate) String);

impl<E: std::error::Error> From<E> for CaseFailure {
    fn from(error: E) -> Self {
        CaseFailure(error.to_string())
    }
}

/// Ends a case with a [`CaseFailure`] unless a condition holds.
macro_rules! ensure {
    ($holds:expr, $($sentence:tt)+) => {
        if !$holds {
            return Err($crate::cases::world::CaseFailure(format!($($sentence)+)));
        }
    };
}
pub(crate) use ensure;

/// The well-known key of the emulators.
pub(crate) const KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

const DATABASE: &str = "holes";

/// The longest answer of the management interface that is read.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// A function that opens a provider.
pub(crate) type Opener = fn(CosmosDBProviderConfig) -> Opening;
pub(crate) type Opening = Pin<Box<dyn Future<Output = Result<CosmosDBProvider, ProviderError>> + Send>>;

/// Opens a provider as programs written for the published crate do.
pub(crate) fn as_published(config: CosmosDBProviderConfig) -> Opening {
    Box::pin(CosmosDBProvider::new_with_config(config))
}

/// A container and its server.
#[derive(Debug, Clone)]
pub(crate) struct World {
    port: u16,
    container: String,
    open: Opener,
}

impl World {
    pub(crate) fn new(port: u16, container: &str, open: Opener) -> Self {
        World { port, container: container.to_owned(), open }
    }

    /// The world of another container on the same server.
    pub(crate) fn with_other_container(world: &World, n: usize) -> Self {
        World { container: format!("{}-{n}", world.container), ..world.clone() }
    }

    /// Opens a provider with this configuration.
    pub(crate) async fn open(&self, config: CosmosDBProviderConfig) -> Outcome<CosmosDBProvider> {
        Ok((self.open)(config).await?)
    }

    /// The configuration of a provider on this container.
    pub(crate) fn config(&self) -> CosmosDBProviderConfig {
        CosmosDBProviderConfig {
            endpoint: self.endpoint(),
            key: KEY.to_owned(),
            database: DATABASE.to_owned(),
            container: self.container.clone(),
            ..Default::default()
        }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The endpoint of the same server over TLS. Its certificate is not trusted by any client.
    pub(crate) fn secure_endpoint(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Opens another provider, as another process would do.
    pub(crate) async fn provider(&self) -> Outcome<CosmosDBProvider> {
        self.open(self.config()).await
    }

    /// Opens a provider whose reconciler runs every 100 ms.
    pub(crate) async fn provider_with_fast_reconciler(&self) -> Outcome<CosmosDBProvider> {
        let often = Duration::from_millis(100);
        let config = CosmosDBProviderConfig {
            reconciler_interval: often,
            reconciler_age_threshold: often,
            ..self.config()
        };
        self.open(config).await
    }

    /// Opens a provider whose reconciler does not run during a case.
    pub(crate) async fn provider_without_reconciler(&self) -> Outcome<CosmosDBProvider> {
        let rarely = Duration::from_secs(3600);
        let config = CosmosDBProviderConfig {
            reconciler_interval: rarely,
            reconciler_age_threshold: rarely,
            ..self.config()
        };
        self.open(config).await
    }

    /// Direct access to the documents of the container.
    pub(crate) fn documents(&self) -> Outcome<CosmosDBClient> {
        CosmosDBClient::new(&self.endpoint(), KEY, DATABASE, &self.container).map_err(CaseFailure)
    }

    /// Lets the next `count` requests of a kind pass. The rules that are added later apply to
    /// the requests after them.
    pub(crate) async fn let_pass(&self, operation: &str, count: u32) -> Outcome<u64> {
        self.add_fault(json!({"operation": operation, "count": count, "delayMs": 1})).await
    }

    /// Refuses `count` requests of a kind with a status and a sub-status.
    pub(crate) async fn refuse_with(
        &self,
        operation: &str,
        count: u32,
        status: u16,
        sub_status: Option<u32>,
    ) -> Outcome<u64> {
        let Some(sub_status) = sub_status else { return self.refuse(operation, count, status).await };
        let rule = json!({"operation": operation, "count": count, "status": status, "subStatus": sub_status});
        self.add_fault(rule).await
    }

    /// Refuses `count` requests of a kind with a status.
    pub(crate) async fn refuse(&self, operation: &str, count: u32, status: u16) -> Outcome<u64> {
        let mut rule = json!({"operation": operation, "count": count, "status": status});
        if status == 429 {
            rule["subStatus"] = json!(3200);
            rule["retryAfterMs"] = json!(5);
        }
        self.add_fault(rule).await
    }

    /// Delays one request of a kind by `time`, then serves it.
    pub(crate) async fn delay(&self, operation: &str, time: Duration) -> Outcome<u64> {
        self.add_fault(json!({"operation": operation, "count": 1, "delayMs": time.as_millis() as u64})).await
    }

    /// Serves one request of a kind and closes the connection instead of
    /// answering.
    pub(crate) async fn lose_answer(&self, operation: &str) -> Outcome<u64> {
        self.add_fault(json!({"operation": operation, "count": 1, "drop": "after"})).await
    }

    /// Adds a fault rule for this container and returns its id.
    async fn add_fault(&self, mut rule: Value) -> Outcome<u64> {
        rule["container"] = json!(self.container);
        let added = self.manage("POST", "faults", &rule.to_string()).await?;
        added["id"].as_u64().ok_or_else(|| CaseFailure(format!("no rule was added: {added}")))
    }

    /// Whether a rule has been applied.
    pub(crate) async fn was_applied(&self, rule: u64) -> Outcome<bool> {
        let rules = self.manage("GET", "faults", "").await?;
        let rules = rules["faults"].as_array().or(rules.as_array()).cloned().unwrap_or_default();
        let state = rules.iter().find(|state| state["id"] == rule);
        let state = state.ok_or_else(|| CaseFailure(format!("rule {rule} is unknown: {rules:?}")))?;
        Ok(state["hits"].as_u64().unwrap_or(0) > 0)
    }

    /// Sends a request to the management interface and returns the JSON of the answer.
    async fn manage(&self, verb: &str, path: &str, body: &str) -> Outcome<Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        let request = format!(
            "{verb} /_perihelion/{path} HTTP/1.1\r\nhost: localhost:{}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.port,
            body.len()
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer).await?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        ensure!(head.starts_with("HTTP/1.1 20"), "{verb} {path} {body}: {answer}");
        Ok(serde_json::from_str(body)?)
    }
}
