//! Our client, on the SDK's emulator or on our engine.

use perihelion_bench_client::{Document, NewDocument, Problem};
use perihelion_client::{Client, Container, ContainerProperties};
use perihelion_server::{Embedded, EmbeddedOptions};

use crate::arguments::PARTITIONS_MAX;
use crate::emulator::{CONTAINER, DATABASE, Emulator};
use crate::store::{CREATED, Store};

/// The most keys that are tried until every physical partition has one. A hundred are enough with
/// a probability of 97 %.
const KEYS_TRIED_MAX: u64 = 1_000;

#[derive(Clone)]
pub(crate) struct OurStore {
    client: Client,
    container: Container,
}

impl OurStore {
    /// Our client on the SDK's emulator.
    pub(crate) async fn on_emulator(emulator: &Emulator) -> Result<Self, Problem> {
        let client = emulator.our_client().await?;
        let container = client.database(DATABASE).container(CONTAINER);
        Ok(Self { client, container })
    }

    /// Our client on our engine in memory, with its defaults: one of them is a ledger of all
    /// transactions. The engine is open as long as the second value lives.
    pub(crate) async fn embedded() -> Result<(Self, Embedded), Problem> {
        let options = EmbeddedOptions::default().with_partitions(PARTITIONS_MAX as u32);
        let engine = Embedded::open(options).await?;
        let client = Client::over(&engine.endpoint(), engine.transport()).await?;
        let database = client.create_database(DATABASE).await?;
        let container = database.create_container(&ContainerProperties::new(CONTAINER, "/pk")).await?;
        Ok((Self { client, container }, engine))
    }

    /// One partition key in each physical partition of the container.
    pub(crate) async fn keys(&self) -> Result<Vec<String>, Problem> {
        let key_space = self.container.key_space().await?;
        let ranges = key_space.feed_ranges();
        if ranges.len() as u64 != PARTITIONS_MAX {
            return Err(format!("the container has {} partitions, not {PARTITIONS_MAX}", ranges.len()).into());
        }
        let candidates: Vec<String> = (0..KEYS_TRIED_MAX).map(|number| format!("k-{number}")).collect();
        let keys = ranges.iter().map(|range| {
            let mut of_range =
                candidates.iter().filter(|key| range.contains(&key_space.range_of(key.as_str())));
            of_range.next().cloned().ok_or_else(|| "a partition has no key".into())
        });
        keys.collect()
    }
}

impl Store for OurStore {
    async fn create(&self, documents: &[NewDocument<'_>]) -> Result<(), Problem> {
        let mut transaction = self.client.write_transaction();
        for document in documents {
            transaction.create(&self.container, document.pk, document)?;
        }
        let done = transaction.commit().await?;
        let created = done.results().iter().filter(|result| result.status().code == CREATED).count();
        match created == documents.len() {
            true => Ok(()),
            false => Err(format!("not every document was created: {done:?}").into()),
        }
    }

    async fn read(&self, names: &[(&str, &str)]) -> Result<Vec<Document>, Problem> {
        let mut transaction = self.client.read_transaction();
        for (key, id) in names {
            transaction.read(&self.container, *key, id)?;
        }
        let done = transaction.execute().await?;
        done.results().iter().map(|result| Ok(result.value()?)).collect()
    }
}
