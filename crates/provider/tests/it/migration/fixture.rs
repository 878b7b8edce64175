//! A recorded container of the published crate, and functions that restore it. The recording
//! is the file in the repository, or another file that an environment variable names:
//! `interop/migration` makes new recordings.

use perihelion_client::{Client, Container, ContainerProperties, IndexingPolicy};
use serde_json::Value;

/// The environment variable with the path of a recording to use instead of the file in
/// the repository.
const RECORDING_VARIABLE: &str = "PERIHELION_PUBLISHED_CONTAINER";

const RECORDED: &str = include_str!("../../fixtures/published-0.1.10.json");

/// The database of every test here.
pub(super) const DATABASE: &str = "shop";

pub(super) struct Fixture {
    policy: IndexingPolicy,
    pub(super) documents: Vec<Value>,
}

impl Fixture {
    pub(super) fn read() -> Fixture {
        let text = match std::env::var(RECORDING_VARIABLE) {
            Ok(path) => std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}")),
            Err(_) => RECORDED.to_owned(),
        };
        let mut file: Value = serde_json::from_str(&text).expect("the fixture is JSON");
        let Value::Array(documents) = file["documents"].take() else { panic!("no documents") };
        assert!(!documents.is_empty());
        let policy = serde_json::from_value(file["indexingPolicy"].take()).expect("a policy");
        Fixture { policy, documents }
    }

    /// Creates a container as the published crate does, with the recorded documents that are
    /// wanted.
    pub(super) async fn restore(
        &self,
        client: &Client,
        name: &str,
        is_wanted: impl Fn(&Value) -> bool,
    ) -> Container {
        self.restore_with_policy(client, name, Some(self.policy.clone()), is_wanted).await
    }

    /// Creates a container with this indexing policy, and with the recorded documents that
    /// are wanted.
    pub(super) async fn restore_with_policy(
        &self,
        client: &Client,
        name: &str,
        policy: Option<IndexingPolicy>,
        is_wanted: impl Fn(&Value) -> bool,
    ) -> Container {
        let mut properties = ContainerProperties::new(name, "/instanceId");
        properties.indexing_policy = policy;
        let database = client.create_database_if_missing(DATABASE).await.unwrap();
        let container = database.create_container(&properties).await.unwrap();
        for document in self.documents.iter().filter(|document| is_wanted(document)) {
            let instance = document["instanceId"].as_str().expect("instances have ids");
            container.create(instance, document).await.unwrap();
        }
        container
    }
}
