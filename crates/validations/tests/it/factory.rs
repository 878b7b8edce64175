//! The factory that duroxide's validations require: it opens new providers, and has two
//! hooks that change and read stored documents without the provider. The hooks use a
//! client of their own. They use only the members that the test helpers of the published
//! crate (`duroxide-cdb` 0.1.10) use: `eventData` of documents of type `history`, and
//! `attemptCount` of documents of type `orch_queue`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use duroxide::provider_validation::ProviderFactory;
use duroxide::providers::Provider;
use perihelion_client::{Client, Container, Query};
use perihelion_testkit::provider::{Account, AccountKind, CONTAINER, ShortPolls};
use serde_json::Value;

/// The lock timeout. It is long enough for a few requests on a busy machine, and short
/// because two dozen validations wait until it has passed.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// An empty short poll must return within this time. The validations poll for half
/// a second.
const SHORT_POLL_MAX: Duration = Duration::from_millis(250);

/// A text that is neither JSON nor an event.
const CORRUPTED_EVENT: &str = "{ this was an event once";

/// Opens providers, each in its own database of one account.
pub(crate) struct Factory {
    account: Account,
    /// The client of the hooks; no provider uses it.
    client: Client,
    short_polls: ShortPolls,
    /// The number of databases; the hooks act on the last database.
    databases: AtomicU32,
}

impl Factory {
    pub(crate) async fn open(kind: AccountKind, short_polls: ShortPolls) -> Factory {
        let account = Account::open(kind).await;
        let client = account.client().await;
        Factory { account, client, short_polls, databases: AtomicU32::new(0) }
    }

    pub(crate) async fn close(self) {
        drop(self.client);
        self.account.stop().await;
    }

    /// The container of the last provider.
    fn container(&self) -> Container {
        let last = self.databases.load(Ordering::SeqCst);
        self.client.database(&database_name(last)).container(CONTAINER)
    }

    async fn documents(&self, instance: &str, document_type: &str) -> Vec<Value> {
        let query = Query::new("SELECT * FROM c WHERE c.type = @type")
            .with_parameter("@type", document_type)
            .in_partition(instance);
        self.container().query(query).collect().await.unwrap()
    }
}

fn database_name(number: u32) -> String {
    format!("validation-{number}")
}

#[async_trait::async_trait]
impl ProviderFactory for Factory {
    async fn create_provider(&self) -> Arc<dyn Provider> {
        let number = self.databases.fetch_add(1, Ordering::SeqCst) + 1;
        self.account.provider(&database_name(number), self.short_polls).await
    }

    fn lock_timeout(&self) -> Duration {
        LOCK_TIMEOUT
    }

    fn short_poll_threshold(&self) -> Duration {
        SHORT_POLL_MAX
    }

    async fn corrupt_instance_history(&self, instance: &str) {
        let documents = self.documents(instance, "history").await;
        assert!(!documents.is_empty(), "{instance} has no history to corrupt");
        for mut document in documents {
            let id = document["id"].as_str().expect("documents have ids").to_owned();
            assert!(document["eventData"].is_string(), "{document}");
            document["eventData"] = CORRUPTED_EVENT.into();
            self.container().replace(instance, &id, &document).await.unwrap();
        }
    }

    async fn get_max_attempt_count(&self, instance: &str) -> u32 {
        let messages = self.documents(instance, "orch_queue").await;
        let counts = messages.iter().map(|message| {
            message["attemptCount"].as_u64().unwrap_or_else(|| panic!("no attempt count: {message}"))
        });
        let highest = counts.max().unwrap_or_else(|| panic!("{instance} has no messages"));
        u32::try_from(highest).expect("attempts are few")
    }
}
