//! The configuration of a provider: `CosmosDBProviderConfig` with the fields of the
//! published crate (`duroxide-cdb` 0.1.10), and `Options` with all options of this crate.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::options::cross_instance::CrossInstance;
use crate::options::retention::RetentionOptions;
use crate::timing::RECONCILER_INTERVAL;

/// The configuration, as in the published crate. Struct-update syntax works:
/// `CosmosDBProviderConfig { endpoint, key, ..Default::default() }`.
#[derive(Clone)]
pub struct CosmosDBProviderConfig {
    /// The endpoint of the account.
    pub endpoint: String,
    /// The key of the account.
    pub key: String,
    /// The database, created if missing.
    pub database: String,
    /// The container, created if missing.
    pub container: String,
    /// Accepted for compatibility. The provider does not need the number of dispatchers.
    pub orch_concurrency: u32,
    /// Accepted for compatibility, like `orch_concurrency`.
    pub worker_concurrency: u32,
    /// How often the reconciler looks for undelivered messages and unfinished work.
    pub reconciler_interval: Duration,
    /// How old undelivered messages and unfinished work must be before the reconciler of
    /// any process finishes them.
    pub reconciler_age_threshold: Duration,
}

impl Default for CosmosDBProviderConfig {
    fn default() -> Self {
        CosmosDBProviderConfig {
            endpoint: String::new(),
            key: String::new(),
            database: "duroxide".to_owned(),
            container: "duroxide".to_owned(),
            orch_concurrency: 1,
            worker_concurrency: 1,
            reconciler_interval: RECONCILER_INTERVAL,
            reconciler_age_threshold: Duration::from_secs(2),
        }
    }
}

/// The endpoint and the key of the emulators: the defaults of
/// [`CosmosDBProviderConfig::from_env`].
const EMULATOR_ENDPOINT: &str = "http://localhost:8081";
const EMULATOR_KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

impl CosmosDBProviderConfig {
    /// Reads the environment variables `COSMOS_ENDPOINT`, `COSMOS_KEY`, `COSMOS_DATABASE` and
    /// `COSMOS_CONTAINER`. If a variable is not set, the same name with the prefix `COSMOSDB_` is
    /// read. A blank variable counts as not set. The defaults are the endpoint and the key of
    /// the local emulator, and `duroxide` for database and container.
    pub fn from_env() -> Self {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let value_of = |name: &str| {
            let values = ["COSMOS", "COSMOSDB"].map(|prefix| variable(&format!("{prefix}_{name}")));
            values.into_iter().flatten().find(|value| !value.trim().is_empty())
        };
        let default = CosmosDBProviderConfig::default();
        CosmosDBProviderConfig {
            endpoint: value_of("ENDPOINT").unwrap_or_else(|| EMULATOR_ENDPOINT.to_owned()),
            key: value_of("KEY").unwrap_or_else(|| EMULATOR_KEY.to_owned()),
            database: value_of("DATABASE").unwrap_or_else(|| default.database.clone()),
            container: value_of("CONTAINER").unwrap_or_else(|| default.container.clone()),
            ..default
        }
    }
}

impl std::fmt::Debug for CosmosDBProviderConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CosmosDBProviderConfig")
            .field("endpoint", &self.endpoint)
            .field("key", &"***")
            .field("database", &self.database)
            .field("container", &self.container)
            .field("reconciler_interval", &self.reconciler_interval)
            .field("reconciler_age_threshold", &self.reconciler_age_threshold)
            .finish_non_exhaustive()
    }
}

/// How much of a claim is written before the commit. A claim takes an instance or an
/// activity for one fetch. All tiers are equally safe: of two commits of the same turn only
/// one succeeds, by the etag of the instance's state. The tiers differ in the cost of a turn,
/// and in whether other processes see that an instance is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommitTier {
    /// T0: every claim is a durable lock.
    Durable,
    /// T1: the first attempt of a turn is locked in memory only, if this process wrote the
    /// messages itself, or if it owned the instance's slice when the messages arrived. (A slice
    /// is a part of the container. Each slice belongs to one live process.) If a worker
    /// of this process waits, the commit of a turn creates an activity already locked for
    /// that worker. A worker that acks an activity locks its next activity at the same time.
    Optimistic,
    /// T2: T1, and in addition the state after a commit is cached. Completions, timers and
    /// starts that this process wrote itself are claimed without a read.
    #[default]
    Cached,
}

/// The resolved options of a provider.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// A fetch with a shorter `poll_timeout`, or with zero, looks for work once; other
    /// fetches wait for work.
    pub(crate) long_poll_threshold: Duration,
    pub(crate) commit_tier: CommitTier,
    /// Whether the commit tier also applies to fetches of orchestrations that look for work
    /// once. Otherwise these fetches write their locks, because their callers expect that no
    /// other provider takes the work.
    pub(crate) is_tier_for_short_polls: bool,
    /// How turns send messages to other instances. The builder resolves the default.
    pub(crate) cross_instance: CrossInstance,
    pub(crate) reconciler_interval: Duration,
    /// The age at which the reconciler finishes work that any process left.
    pub(crate) reconciler_age: Duration,
    pub(crate) retention: RetentionOptions,
    /// By how many milliseconds this machine's clock is made wrong, for tests. Zero otherwise.
    pub(crate) clock_error_ms: i64,
    /// Whether to open a container with an unfinished migration. Only the migration itself
    /// does; a provider must not use such a container.
    pub(crate) is_migrating: bool,
    /// Whether a tool uses the provider: nothing is created and no background task runs.
    pub(crate) is_tool: bool,
    /// An uncommitted deletion that has recorded no progress for this long counts as abandoned by
    /// its process.
    pub(crate) deletion_timeout: Duration,
    /// The newest layout version that this process can read, if it plays an earlier version in a
    /// simulation; `None` for the version of this crate.
    pub(crate) played_version: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            // The published crate's tests fetch with 500 ms and expect an answer at
            // once; the runtime fetches with 30 s.
            long_poll_threshold: Duration::from_secs(1),
            commit_tier: CommitTier::default(),
            is_tier_for_short_polls: false,
            cross_instance: CrossInstance::Outbox,
            reconciler_interval: RECONCILER_INTERVAL,
            reconciler_age: Duration::from_secs(2),
            retention: RetentionOptions::default(),
            clock_error_ms: 0,
            is_migrating: false,
            is_tool: false,
            deletion_timeout: Duration::from_secs(60),
            played_version: None,
        }
    }
}

/// Makes deliveries between instances fail, for tests. One delivery sends the messages of
/// one outbox. Deliveries of the reconciler do not fail, so the reconciler delivers the
/// messages later. Clones share their count.
#[derive(Clone, Debug)]
pub struct OutboxFaultInjector {
    failures_left: Arc<AtomicU32>,
}

impl OutboxFaultInjector {
    /// The next `count` deliveries right after a commit fail.
    pub fn fail_next(count: u32) -> Self {
        OutboxFaultInjector { failures_left: Arc::new(AtomicU32::new(count)) }
    }

    /// Whether the delivery that begins now fails. Each call counts as one delivery.
    pub fn should_fail(&self) -> bool {
        self.failures_left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_prefixes_of_variables_are_read_and_the_emulator_is_the_default() {
        let defaults = CosmosDBProviderConfig::from_variables(|_| None);
        assert_eq!(defaults.endpoint, "http://localhost:8081");
        assert_eq!((defaults.database.as_str(), defaults.container.as_str()), ("duroxide", "duroxide"));
        let variables = |name: &str| match name {
            "COSMOS_ENDPOINT" => Some("https://a/".to_owned()),
            "COSMOSDB_ENDPOINT" => Some("https://b/".to_owned()),
            "COSMOSDB_KEY" => Some("a2V5".to_owned()),
            "COSMOS_DATABASE" => Some(" ".to_owned()),
            _ => None,
        };
        let found = CosmosDBProviderConfig::from_variables(variables);
        assert_eq!((found.endpoint.as_str(), found.key.as_str()), ("https://a/", "a2V5"));
        assert_eq!(found.database, "duroxide", "a blank variable counts as not set");
        assert!(!format!("{found:?}").contains("a2V5"), "the debug output hides the key");
    }

    #[test]
    fn clones_of_an_injector_share_their_count() {
        let injector = OutboxFaultInjector::fail_next(2);
        let clone = injector.clone();
        assert!(injector.should_fail() && clone.should_fail());
        assert!(!injector.should_fail() && !clone.should_fail());
    }
}
