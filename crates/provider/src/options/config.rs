//! What a provider is made with: the published crate's configuration, field by
//! field, and the options that are ours.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::options::retention::RetentionOptions;

/// Configuration, as the published crate has it. Struct-update syntax works:
/// `CosmosDBProviderConfig { endpoint, key, ..Default::default() }`.
#[derive(Clone)]
pub struct CosmosDBProviderConfig {
    /// Where the account answers.
    pub endpoint: String,
    /// Its key.
    pub key: String,
    /// The database, made if missing.
    pub database: String,
    /// The container, made if missing.
    pub container: String,
    /// Accepted for compatibility: work is shared without being told how many
    /// dispatchers there are.
    pub orch_concurrency: u32,
    /// Accepted for compatibility, as `orch_concurrency` is.
    pub worker_concurrency: u32,
    /// How often undelivered messages and unfinished work are looked for.
    pub reconciler_interval: Duration,
    /// How old an undelivered message must be to be another process's concern.
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
            reconciler_interval: Duration::from_secs(2),
            reconciler_age_threshold: Duration::from_secs(2),
        }
    }
}

/// Where the emulators answer, and with which key: what a program without
/// configuration means.
const EMULATOR_ENDPOINT: &str = "http://localhost:8081";
const EMULATOR_KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

impl CosmosDBProviderConfig {
    /// What the environment says: `COSMOS_ENDPOINT`, `COSMOS_KEY`,
    /// `COSMOS_DATABASE` and `COSMOS_CONTAINER`, each also spelt `COSMOSDB_`.
    /// Without them: the local emulator and `duroxide`.
    pub fn from_env() -> Self {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let named = |name: &str| {
            let spelt = ["COSMOS", "COSMOSDB"].map(|prefix| variable(&format!("{prefix}_{name}")));
            spelt.into_iter().flatten().find(|value| !value.trim().is_empty())
        };
        let default = CosmosDBProviderConfig::default();
        CosmosDBProviderConfig {
            endpoint: named("ENDPOINT").unwrap_or_else(|| EMULATOR_ENDPOINT.to_owned()),
            key: named("KEY").unwrap_or_else(|| EMULATOR_KEY.to_owned()),
            database: named("DATABASE").unwrap_or_else(|| default.database.clone()),
            container: named("CONTAINER").unwrap_or_else(|| default.container.clone()),
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

/// How much of a claim is written before the commit. Every tier is as safe: one
/// commit of an instance wins, by the etag of its state. They differ in what a
/// turn costs, and in who sees that an instance is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommitTier {
    /// T0: every claim is a durable lock.
    Durable,
    /// T1: a turn on messages that came while this process was there is locked
    /// in memory only, and an activity goes to a waiting worker of this process
    /// already locked.
    Optimistic,
    /// T2: beside that, the state after a commit is kept, and completions that
    /// this process made itself are taken without a read.
    #[default]
    Cached,
}

/// What the provider itself goes by.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// A fetch with a shorter `poll_timeout` looks once and returns; one with
    /// this or more waits for work.
    pub(crate) long_poll_threshold: Duration,
    pub(crate) tier: CommitTier,
    /// The tier goes for fetches that look once, too; they claim durably
    /// otherwise, because whoever calls them expects to be the only one.
    pub(crate) is_tier_for_all: bool,
    pub(crate) reconciler_interval: Duration,
    pub(crate) reconciler_age: Duration,
    pub(crate) retention: RetentionOptions,
    /// How wrong this machine's clock is made, for tests.
    pub(crate) clock_error_ms: i64,
    /// Opens a container that is being filled, which no provider may run on.
    pub(crate) is_migrating: bool,
    /// A deletion that is not committed by then was given up by its process.
    pub(crate) deletion_patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            // The published crate's tests want an answer at once for 500 ms;
            // the runtime asks for 30 s.
            long_poll_threshold: Duration::from_secs(1),
            tier: CommitTier::default(),
            is_tier_for_all: false,
            reconciler_interval: Duration::from_secs(2),
            reconciler_age: Duration::from_secs(2),
            retention: RetentionOptions::default(),
            clock_error_ms: 0,
            is_migrating: false,
            deletion_patience: Duration::from_secs(60),
        }
    }
}

/// Lets deliveries between instances fail, for tests: what was committed must
/// arrive all the same, by the reconciler, which is never made to fail. Clones
/// share their count.
#[derive(Clone, Debug)]
pub struct OutboxFaultInjector {
    left: Arc<AtomicU32>,
}

impl OutboxFaultInjector {
    /// The next `count` deliveries right after a commit fail.
    pub fn fail_next(count: u32) -> Self {
        OutboxFaultInjector { left: Arc::new(AtomicU32::new(count)) }
    }

    /// Whether this delivery is one of those; it is counted.
    pub fn should_fail(&self) -> bool {
        self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_is_read_in_both_spellings_and_has_the_emulator_as_default() {
        let nothing = CosmosDBProviderConfig::from_variables(|_| None);
        assert_eq!(nothing.endpoint, "http://localhost:8081");
        assert_eq!((nothing.database.as_str(), nothing.container.as_str()), ("duroxide", "duroxide"));
        let set = |name: &str| match name {
            "COSMOS_ENDPOINT" => Some("https://a/".to_owned()),
            "COSMOSDB_ENDPOINT" => Some("https://b/".to_owned()),
            "COSMOSDB_KEY" => Some("a2V5".to_owned()),
            "COSMOS_DATABASE" => Some(" ".to_owned()),
            _ => None,
        };
        let found = CosmosDBProviderConfig::from_variables(set);
        assert_eq!((found.endpoint.as_str(), found.key.as_str()), ("https://a/", "a2V5"));
        assert_eq!(found.database, "duroxide", "blank is not set");
        assert!(!format!("{found:?}").contains("a2V5"), "a key is never shown");
    }

    #[test]
    fn an_injector_counts_and_its_clones_count_with_it() {
        let injector = OutboxFaultInjector::fail_next(2);
        let clone = injector.clone();
        assert!(injector.should_fail() && clone.should_fail());
        assert!(!injector.should_fail() && !clone.should_fail());
    }
}
