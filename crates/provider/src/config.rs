//! What a provider is made with: the published crate's configuration, field by
//! field, and the options that are ours.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

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

/// What the provider itself goes by.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// A fetch with a shorter `poll_timeout` looks once and returns; one with
    /// this or more waits for work.
    pub(crate) long_poll_threshold: Duration,
    pub(crate) reconciler_interval: Duration,
    pub(crate) reconciler_age: Duration,
    /// How wrong this machine's clock is made, for tests.
    pub(crate) clock_error_ms: i64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            // The published crate's tests want an answer at once for 500 ms;
            // the runtime asks for 30 s.
            long_poll_threshold: Duration::from_secs(1),
            reconciler_interval: Duration::from_secs(2),
            reconciler_age: Duration::from_secs(2),
            clock_error_ms: 0,
        }
    }
}

/// Lets the next deliveries between instances fail, for tests: what was
/// committed must arrive all the same, by the reconciler.
#[derive(Clone, Debug, Default)]
pub struct OutboxFaultInjector {
    left: Arc<AtomicU32>,
}

impl OutboxFaultInjector {
    /// One that does nothing until told to.
    pub fn new() -> Self {
        OutboxFaultInjector::default()
    }

    /// The next `count` deliveries fail.
    pub fn fail_next(&self, count: u32) {
        self.left.store(count, Ordering::SeqCst);
    }

    /// Whether this delivery is one of those.
    pub(crate) fn takes_one(&self) -> bool {
        self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
    }
}
