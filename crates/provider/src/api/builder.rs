//! `CosmosDBProviderBuilder`: opens a provider with a connection string, a credential, an
//! existing client, or the engine in this process.

use std::time::Duration;

use duroxide::providers::ProviderError;
use perihelion_client::{Client, ClientBuilder, Credential};

use crate::api::provider::CosmosDBProvider;
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::options::config::{CommitTier, CosmosDBProviderConfig, Options};
use crate::options::cross_instance::CrossInstance;
use crate::options::retention::RetentionOptions;
use crate::store::layout_version::LAYOUT_VERSION;

/// The longest interval and the longest age that `with_reconciler` sets. With a much longer
/// time, unfinished work would wait for days, and an `Instant` could overflow.
const RECONCILER_TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// Builds a [`CosmosDBProvider`]. The provider connects in one of four ways: with a
/// connection string, with an endpoint and a credential, with an existing client, or
/// (feature `embedded`) to the engine in this process.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use duroxide_cdb::{CosmosDBProvider, RetentionOptions};
///
/// let connection_string = std::env::var("AZURE_COSMOS_CONNECTION_STRING")?;
/// let week = Duration::from_secs(7 * 24 * 3600);
/// let store = CosmosDBProvider::builder()
///     .with_connection_string(&connection_string)
///     .with_database("shop")
///     .with_container("workflows")
///     .with_retention(RetentionOptions::new().with_finished_for(week))
///     .open()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing happens before open()"]
pub struct CosmosDBProviderBuilder {
    target: Target,
    connection: ClientBuilder,
    database: String,
    container: String,
    /// `None` until the program sets it.
    cross_instance: Option<CrossInstance>,
    options: Options,
}

/// What the provider connects to.
#[derive(Debug)]
enum Target {
    /// An account, with the builder's connection options.
    Account,
    /// An existing client.
    Client(Client),
    /// The engine in this process.
    #[cfg(feature = "embedded")]
    Embedded(Box<perihelion_server::EmbeddedOptions>),
}

impl Default for CosmosDBProviderBuilder {
    fn default() -> Self {
        let config = CosmosDBProviderConfig::default();
        CosmosDBProviderBuilder {
            target: Target::Account,
            connection: Client::builder(),
            database: config.database,
            container: config.container,
            cross_instance: None,
            options: Options::default(),
        }
    }
}

impl CosmosDBProviderBuilder {
    /// A connection string, as the Azure portal shows it or `perihelion dev` prints it.
    pub fn with_connection_string(mut self, text: &str) -> Self {
        self.connection = self.connection.with_connection_string(text);
        self
    }

    /// An endpoint with a key, a resource token or a source of Entra ID tokens. With the
    /// feature `azure-core` a credential of `azure_identity` can be used:
    ///
    /// ```ignore
    /// let identity = azure_identity::ManagedIdentityCredential::new(None)?;
    /// let store = CosmosDBProvider::builder()
    ///     .with_credential("https://shop.documents.azure.com/", Credential::azure(identity))
    ///     .open()
    ///     .await?;
    /// ```
    ///
    /// Without it, implement [`TokenSource`](perihelion_client::credential::TokenSource)
    /// and pass it to [`Credential::token_source`]. An Entra ID identity cannot create
    /// databases and containers: `docs/provider.md` has the commands that create them.
    pub fn with_credential(mut self, endpoint: &str, credential: Credential) -> Self {
        self.connection = self.connection.with_endpoint(endpoint).with_credential(credential);
        self
    }

    /// Regions in order of preference, for a connection string or a credential.
    pub fn with_preferred_regions<'r>(mut self, regions: impl IntoIterator<Item = &'r str>) -> Self {
        self.connection = self.connection.with_preferred_regions(regions);
        self
    }

    /// An existing client. Connections and sessions are shared with it. A connection
    /// string, a credential and preferred regions of this builder are then ignored.
    pub fn with_client(mut self, client: Client) -> Self {
        self.target = Target::Client(client);
        self
    }

    /// The engine in this process, like [`CosmosDBProvider::embedded`], with options.
    ///
    /// ```
    /// # async fn example() -> Result<(), duroxide::providers::ProviderError> {
    /// use duroxide_cdb::{CosmosDBProvider, EmbeddedOptions};
    ///
    /// // Throttles like a container with 400 RU/s.
    /// let engine = EmbeddedOptions::default().with_data("./data").with_throughput(Some(400));
    /// let store = CosmosDBProvider::builder().with_embedded(engine).open().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "embedded")]
    pub fn with_embedded(mut self, options: perihelion_server::EmbeddedOptions) -> Self {
        self.target = Target::Embedded(Box::new(options));
        self
    }

    /// The database, created if missing. The default is `duroxide`.
    pub fn with_database(mut self, name: impl Into<String>) -> Self {
        self.database = name.into();
        self
    }

    /// The container, created if missing. The default is `duroxide`.
    pub fn with_container(mut self, name: impl Into<String>) -> Self {
        self.container = name.into();
        self
    }

    /// The shortest `poll_timeout` with which a fetch waits for work. A fetch with a shorter one, or
    /// with zero, looks for work only once. The default is one second.
    pub fn with_long_poll_threshold(mut self, threshold: Duration) -> Self {
        self.options.long_poll_threshold = threshold;
        self
    }

    /// How much of a claim (the lock on fetched work) is written before the commit. The default is
    /// as little as possible, [`CommitTier::Cached`].
    pub fn with_commit_tier(mut self, tier: CommitTier) -> Self {
        self.options.commit_tier = tier;
        self
    }

    /// Applies the commit tier also to fetches of orchestrations that look for work only
    /// once. By default these fetches write their locks: no other provider of the container
    /// takes the same work before it is abandoned or its lock expires.
    pub fn with_commit_tier_for_short_polls(mut self) -> Self {
        self.options.is_tier_for_short_polls = true;
        self
    }

    /// How turns send messages to other instances: through the outbox, or in one distributed
    /// transaction with the commit. Without this call the environment variable
    /// `COSMOS_CROSS_INSTANCE` decides (`outbox`, `transaction` or `auto`). The default is
    /// [`CrossInstance::Outbox`] for an account (of Azure or of `perihelion server`) and for an
    /// existing client, and [`CrossInstance::Auto`] for the engine in this process.
    pub fn with_cross_instance(mut self, cross_instance: CrossInstance) -> Self {
        self.cross_instance = Some(cross_instance);
        self
    }

    /// Sets how often the reconciler looks for undelivered messages and unfinished work, and
    /// how old these must be. The default for both is two seconds. A time longer than a day
    /// is cut to a day. When the reconciler finds nothing in a physical partition, it skips at
    /// least 14 intervals in this partition, unless this process sees unfinished work in the meantime.
    pub fn with_reconciler(mut self, interval: Duration, age: Duration) -> Self {
        let [interval, age] = [interval, age].map(|time| time.min(RECONCILER_TIME_MAX));
        (self.options.reconciler_interval, self.options.reconciler_age) = (interval, age);
        self
    }

    /// How long finished instances and old executions are kept. By default they are kept
    /// until a program deletes them.
    pub fn with_retention(mut self, retention: RetentionOptions) -> Self {
        self.options.retention = retention;
        self
    }

    /// Opens the container for a tool that looks at workflows and sends messages to them, but
    /// runs no workflows. A missing database or container is an error and is not created. The
    /// settings of the container stay as they are, and no background task runs.
    pub fn for_tools(mut self) -> Self {
        self.options.is_tool = true;
        self
    }

    /// An uncommitted deletion that has recorded no progress for this long counts as abandoned by
    /// its process.
    #[cfg(test)]
    pub(crate) fn with_deletion_timeout(mut self, timeout: Duration) -> Self {
        self.options.deletion_timeout = timeout;
        self
    }

    /// Makes this machine's clock wrong by this many milliseconds. Tests use it to check that
    /// the provider uses the service's clock.
    #[doc(hidden)]
    pub fn with_clock_error_ms(mut self, error_ms: i64) -> Self {
        self.options.clock_error_ms = error_ms;
        self
    }

    /// Makes this process behave like an earlier build, whose newest layout version is `version` (2 or
    /// 3): the process says so in its heartbeat, refuses containers with a newer version, and neither
    /// writes nor reads newer forms of documents. For simulations.
    #[doc(hidden)]
    pub fn with_layout_version(mut self, version: u32) -> Self {
        self.options.played_version = Some(version.clamp(2, LAYOUT_VERSION));
        self
    }

    /// Connects, creates the database and container if they are missing, and starts the
    /// background tasks. Must be called inside a tokio runtime.
    pub async fn open(self) -> Result<CosmosDBProvider, ProviderError> {
        let CosmosDBProviderBuilder { target, connection, database, container, cross_instance, mut options } =
            self;
        options.cross_instance = chosen_cross_instance(cross_instance, &target)?;
        let core = match target {
            Target::Account => {
                let client = connection.connect().await.map_err(connect_failed)?;
                Core::open(client, &database, &container, options).await
            }
            Target::Client(client) => Core::open(client, &database, &container, options).await,
            #[cfg(feature = "embedded")]
            Target::Embedded(engine) => {
                let engine = perihelion_server::Embedded::open(*engine).await.map_err(|error| {
                    ProviderError::permanent("open", format!("cannot open the embedded database: {error}"))
                })?;
                let client =
                    Client::over(&engine.endpoint(), engine.transport()).await.map_err(connect_failed)?;
                let core = Core::open(client, &database, &container, options).await;
                core.inspect(|core| core.keep_engine(engine))
            }
        };
        Ok(CosmosDBProvider::from_core(core.map_err(opening_failed)?))
    }
}

/// How turns send messages to other instances: the choice of the program, else of the environment
/// variable, else the default for the target.
fn chosen_cross_instance(
    chosen: Option<CrossInstance>,
    target: &Target,
) -> Result<CrossInstance, ProviderError> {
    if let Some(chosen) = chosen {
        return Ok(chosen);
    }
    let default = match target {
        Target::Account | Target::Client(_) => CrossInstance::Outbox,
        #[cfg(feature = "embedded")]
        Target::Embedded(_) => CrossInstance::Auto,
    };
    let variable = CrossInstance::from_environment();
    variable.map(|set| set.unwrap_or(default)).map_err(|error| ProviderError::permanent("open", error))
}

/// The error of a provider that could not be opened.
fn opening_failed(failure: Failure) -> ProviderError {
    match failure {
        Failure::Storage(error) if !error.is_not_found() => connect_failed(error),
        failure => failure.into_opening_error(),
    }
}

/// The error of a failed connection: a likely reason first, then the service's message,
/// which is long.
fn connect_failed(error: perihelion_client::Error) -> ProviderError {
    let reason = match error.status().map(|status| status.code) {
        // The service's words when the date of a request is more than 15 minutes off.
        Some(403) if error.to_string().contains("not valid at the current time") => {
            "this machine's clock differs from the service's by more than 15 minutes. Set the clock."
        }
        Some(401) => {
            "the account refuses the credential. Check that it belongs to this account, that its key was not \
             regenerated, and that this machine's clock is right."
        }
        Some(404) if error.is_not_found() => {
            "the server at this endpoint is not a Cosmos DB account. Check the endpoint."
        }
        _ => return Failure::Storage(error).into_opening_error(),
    };
    ProviderError::permanent("open", format!("{reason} {error}"))
}
