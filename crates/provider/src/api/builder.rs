//! Building a provider that needs more than a configuration: other credentials,
//! a connection string, a client that exists, the engine in this process.

use std::time::Duration;

use duroxide::providers::ProviderError;
use perihelion_client::{Client, ClientBuilder, Credential};

use crate::api::provider::CosmosDBProvider;
use crate::failure::Failure;
use crate::ops::core::Core;
use crate::options::config::{CommitTier, CosmosDBProviderConfig, Options};
use crate::options::retention::RetentionOptions;

/// The longest time between looks of the reconciler: what a crash left behind
/// waits for it, and a time without end does not fit a clock.
const RECONCILER_MAX: Duration = Duration::from_secs(24 * 3600);

/// Builds a [`CosmosDBProvider`]. Where the account is, and who we are to it,
/// is said in one of four ways: a connection string, an endpoint with a
/// credential, a client, or (feature `embedded`) the engine itself.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use duroxide_cdb::{CosmosDBProvider, RetentionOptions};
///
/// let account = std::env::var("AZURE_COSMOS_CONNECTION_STRING")?;
/// let week = Duration::from_secs(7 * 24 * 3600);
/// let store = CosmosDBProvider::builder()
///     .with_connection_string(&account)
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
    place: Place,
    connection: ClientBuilder,
    database: String,
    container: String,
    options: Options,
}

#[derive(Debug)]
enum Place {
    Account,
    Client(Client),
    #[cfg(feature = "embedded")]
    Embedded(Box<perihelion_server::EmbeddedOptions>),
}

impl Default for CosmosDBProviderBuilder {
    fn default() -> Self {
        let config = CosmosDBProviderConfig::default();
        CosmosDBProviderBuilder {
            place: Place::Account,
            connection: Client::builder(),
            database: config.database,
            container: config.container,
            options: Options::default(),
        }
    }
}

impl CosmosDBProviderBuilder {
    /// Endpoint and key as the portal shows them together, or as
    /// `perihelion dev` prints them.
    pub fn with_connection_string(mut self, text: &str) -> Self {
        self.connection = self.connection.with_connection_string(text);
        self
    }

    /// An endpoint, with a key, a resource token or a source of Entra ID tokens.
    /// With the feature `azure-core` a credential of `azure_identity` is one:
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
    /// and hand it to [`Credential::token_source`]. An identity of Entra ID may
    /// not make containers: `docs/provider.md` says how to have them made.
    pub fn with_credential(mut self, endpoint: &str, credential: Credential) -> Self {
        self.connection = self.connection.with_endpoint(endpoint).with_credential(credential);
        self
    }

    /// Regions in order of preference.
    pub fn with_preferred_regions<'r>(mut self, regions: impl IntoIterator<Item = &'r str>) -> Self {
        self.connection = self.connection.with_preferred_regions(regions);
        self
    }

    /// A client that exists: connections and sessions are shared with it.
    pub fn with_client(mut self, client: Client) -> Self {
        self.place = Place::Client(client);
        self
    }

    /// The engine in this process: like [`CosmosDBProvider::embedded`], with
    /// options.
    ///
    /// ```
    /// # async fn example() -> Result<(), duroxide::providers::ProviderError> {
    /// use duroxide_cdb::{CosmosDBProvider, EmbeddedOptions};
    ///
    /// // Answers 429 as a container of 400 RU/s would.
    /// let engine = EmbeddedOptions::default().with_data("./data").with_throughput(Some(400));
    /// let store = CosmosDBProvider::builder().with_embedded(engine).open().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "embedded")]
    pub fn with_embedded(mut self, options: perihelion_server::EmbeddedOptions) -> Self {
        self.place = Place::Embedded(Box::new(options));
        self
    }

    /// The database, made if missing. Without it: `duroxide`.
    pub fn with_database(mut self, name: impl Into<String>) -> Self {
        self.database = name.into();
        self
    }

    /// The container, made if missing. Without it: `duroxide`.
    pub fn with_container(mut self, name: impl Into<String>) -> Self {
        self.container = name.into();
        self
    }

    /// From which `poll_timeout` on a fetch waits for work instead of looking
    /// once. Without it: one second.
    pub fn with_long_poll_threshold(mut self, threshold: Duration) -> Self {
        self.options.long_poll_threshold = threshold;
        self
    }

    /// How much of a claim is written before the commit. Without it: as little
    /// as possible, [`CommitTier::Cached`].
    pub fn with_commit_tier(mut self, tier: CommitTier) -> Self {
        self.options.tier = tier;
        self
    }

    /// Lets fetches that look once claim by the commit tier as well. Without it
    /// they claim durably, and what they take no other provider on the
    /// container takes before it is given back or the lock runs out.
    pub fn with_commit_tier_for_short_polls(mut self) -> Self {
        self.options.is_tier_for_all = true;
        self
    }

    /// How often undelivered messages and unfinished work are looked for, and
    /// how old they must be: a day at most. Without it: both two seconds.
    pub fn with_reconciler(mut self, interval: Duration, age: Duration) -> Self {
        let [interval, age] = [interval, age].map(|time| time.min(RECONCILER_MAX));
        (self.options.reconciler_interval, self.options.reconciler_age) = (interval, age);
        self
    }

    /// How long what has ended is kept. Without it: until it is deleted.
    pub fn with_retention(mut self, retention: RetentionOptions) -> Self {
        self.options.retention = retention;
        self
    }

    /// How long a deletion that is not committed is left to its process.
    #[cfg(test)]
    pub(crate) fn with_deletion_patience(mut self, patience: Duration) -> Self {
        self.options.deletion_patience = patience;
        self
    }

    /// Makes this machine's clock wrong by so many milliseconds, for tests: the
    /// provider must go by the service's clock all the same.
    #[doc(hidden)]
    pub fn with_clock_error_ms(mut self, error: i64) -> Self {
        self.options.clock_error_ms = error;
        self
    }

    /// Connects, makes database and container if they are missing, and starts
    /// the reconciler. Must be called inside a tokio runtime.
    pub async fn open(self) -> Result<CosmosDBProvider, ProviderError> {
        let CosmosDBProviderBuilder { place, connection, database, container, options } = self;
        let core = match place {
            Place::Account => {
                let client = connection.connect().await.map_err(unopened)?;
                Core::open(client, &database, &container, options).await
            }
            Place::Client(client) => Core::open(client, &database, &container, options).await,
            #[cfg(feature = "embedded")]
            Place::Embedded(engine) => {
                let engine = perihelion_server::Embedded::open(*engine).await.map_err(|error| {
                    ProviderError::permanent("open", format!("the embedded database does not open: {error}"))
                })?;
                let client = Client::over(&engine.endpoint(), engine.transport()).await.map_err(unopened)?;
                let core = Core::open(client, &database, &container, options).await;
                core.inspect(|core| core.keep(engine))
            }
        };
        Ok(CosmosDBProvider::new_from(core.map_err(|failure| failure.into_error("open"))?))
    }
}

/// Why there is no way to the account, and what may be wrong; what the service
/// says comes last, because it is long.
fn unopened(error: perihelion_client::Error) -> ProviderError {
    let why = match error.status().map(|status| status.code) {
        Some(401) => {
            "the account refuses the credential. Is it one of this account, was its key not made anew since, \
             and is this machine's clock right?"
        }
        Some(404) => "what answers at this endpoint is no Cosmos account: is it spelt right?",
        _ => return Failure::Storage(error).into_error("open"),
    };
    ProviderError::permanent("open", format!("{why} {error}"))
}
