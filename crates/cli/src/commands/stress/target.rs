//! `Target`: the account and the container of a run.
//!
//! Invariant: a database or container is removed only if this run created it. The proof is the
//! answer of the service, or the random name. A container that existed before keeps everything
//! but the instances of this run.

use duroxide::providers::{ProviderAdmin, ProviderError};
use duroxide_cdb::{ContainerName, CosmosDBProvider, CosmosDBProviderBuilder, ListOptions, LockOptions};
use perihelion_client::{Batch, Client, Container, Error, Query, Throughput};
use perihelion_server::EmbeddedOptions;
use tokio::task::JoinSet;

use super::row::Row;
use crate::account::{AccountArgs, Connection, Source};
use crate::exit::Failure;
use crate::progress::Progress;

/// How many instances are removed at the same time. More would be throttled in a small
/// container.
const PARALLEL_REMOVALS: usize = 8;

/// How often the removal of an instance is tried. A document may expire between the query
/// and the delete.
const REMOVAL_ATTEMPTS: u32 = 5;

/// The name of the container in a database that the run creates.
const CONTAINER: &str = "stress";

/// The statuses of workflows that have not ended.
const UNFINISHED: [&str; 3] = ["Running", "ContinuedAsNew", "Pending"];

/// The names that the user gave, and the random name of the run.
#[derive(Clone, Debug)]
pub(super) struct Names {
    pub(super) database: Option<String>,
    /// Given only together with a database.
    pub(super) container: Option<String>,
    pub(super) run: String,
}

/// Whether the run created a database or container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// The run has not created it: it existed before, or is still missing.
    Foreign,
    /// The run has created it.
    Created,
}

/// The account and the container of a run, and what the run created there.
pub(super) struct Target {
    client: Client,
    connection: Connection,
    /// The account's endpoint or the data directory; `None` for the engine in memory, whose data
    /// ends with the process.
    endpoint: Option<String>,
    /// The place that named the account, such as ` (from COSMOS_ENDPOINT)`; empty for the engine in memory.
    source: String,
    names: Names,
    /// The database and the container that the run uses.
    name: ContainerName,
    database_origin: Origin,
    container_origin: Origin,
}

impl Target {
    /// Connects to the account, or starts the engine in memory. Creates no database and no container.
    /// A load is never put on an account that only perihelion.toml names.
    pub(super) async fn connect(
        account: &AccountArgs,
        names: Names,
        throughput: Option<u32>,
    ) -> Result<Target, Failure> {
        let (args, account) = (account, account.resolve_without_file()?);
        let is_in_memory = account.source == Source::Default;
        if is_in_memory && args.has_credential() {
            return Err(Failure::usage(
                "a key or --entra is given, and no account",
                "set COSMOS_ENDPOINT or --endpoint",
            ));
        }
        let connection = match is_in_memory {
            true => Connection::in_process(EmbeddedOptions::default().with_throughput(throughput)).await?,
            false => account.connect_or_create().await?,
        };
        let client = connection.client.clone();
        let endpoint = (!is_in_memory).then(|| account.display_name());
        let source = if is_in_memory { String::new() } else { account.display_source() };
        let name = container_name(&names);
        let (database_origin, container_origin) = (Origin::Foreign, Origin::Foreign);
        Ok(Target { client, connection, endpoint, source, names, name, database_origin, container_origin })
    }

    /// Creates the database and the container if they are missing. Checks that a container that
    /// exists can be used.
    pub(super) async fn prepare(&mut self, throughput: Option<u32>) -> Result<(), Failure> {
        self.create_database().await?;
        self.create_container(throughput).await?;
        if self.container_origin == Origin::Created {
            return Ok(());
        }
        if throughput.is_some() && self.endpoint.is_some() {
            return Err(Failure::usage(
                format!("the container {} exists, so --throughput cannot set its request units", self.name),
                "leave --throughput out, or name a container that does not exist",
            ));
        }
        // Nothing is changed before the container is known to be fit: neither its time to live nor its
        // documents.
        let provider = self.builder().for_tools().open().await.map_err(Failure::provider)?;
        let checked = refuse_unfinished_work(&provider, &self.name).await;
        provider.close().await;
        checked
    }

    /// Creates the database unless it exists.
    async fn create_database(&mut self) -> Result<(), Failure> {
        let created = self.client.create_database(&self.name.database).await;
        let (origin, result) = origin(created.map(drop), self.names.database.is_none());
        self.database_origin = origin;
        result.map_err(|error| {
            Failure::runtime(format!("cannot create the database {}: {error}", self.name.database))
        })
    }

    /// Creates the container, as the provider does, unless it exists.
    async fn create_container(&mut self, throughput: Option<u32>) -> Result<(), Failure> {
        let mut properties = duroxide_cdb::container_properties(&self.name.container);
        if let (Some(units), Some(_)) = (throughput, &self.endpoint) {
            properties = properties.with_throughput(Throughput::manual(units));
        }
        let created = self.client.database(&self.name.database).create_container(&properties).await;
        let (origin, result) = origin(created.map(drop), self.names.container.is_none());
        self.container_origin = origin;
        result
            .map_err(|error| Failure::runtime(format!("cannot create the container {}: {error}", self.name)))
    }

    pub(super) async fn open_provider(&self) -> Result<CosmosDBProvider, Failure> {
        self.builder().open().await.map_err(Failure::provider)
    }

    fn builder(&self) -> CosmosDBProviderBuilder {
        CosmosDBProvider::builder()
            .with_client(self.client.clone())
            .with_database(&self.name.database)
            .with_container(&self.name.container)
    }

    /// The account and the container of the run, for messages.
    pub(super) fn description(&self) -> String {
        match &self.endpoint {
            Some(endpoint) => format!("{endpoint}, container {}", self.name),
            None => "the engine in memory".to_owned(),
        }
    }

    /// The place that named the account, for messages.
    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// The account's endpoint or the data directory; `None` for the engine in memory.
    pub(super) fn endpoint(&self) -> Option<&str> {
        self.endpoint.as_deref()
    }

    pub(super) fn name(&self) -> &ContainerName {
        &self.name
    }

    /// The text with which the ids of a row's instances begin. No other run has the same text.
    pub(super) fn instance_prefix(&self, row: usize) -> String {
        format!("stress-{}-{}-", self.names.run, row + 1)
    }

    /// Removes what the run created.
    pub(super) async fn remove(self, rows: &[Row], progress: &Progress) -> Result<(), Failure> {
        let removed = match self.endpoint.is_some() {
            true => self.remove_created(rows, progress).await,
            false => Ok(()),
        };
        self.connection.close().await;
        removed
    }

    async fn remove_created(&self, rows: &[Row], progress: &Progress) -> Result<(), Failure> {
        let is_database_random = self.names.database.is_none();
        let database = self.client.database(&self.name.database);
        // A database with a random name is removed whole.
        if !is_database_random {
            self.remove_container_or_instances(&database.container(&self.name.container), rows, progress)
                .await?;
        }
        if self.database_origin == Origin::Foreign {
            return Ok(());
        }
        let what = format!("database {}", self.name.database);
        let failed = |error: Error| left_behind(&what, &error);
        // Another program may use a database whose name the user chose.
        if !is_database_random && !database.containers().await.map_err(failed)?.is_empty() {
            progress.phase(&format!("the {what} stays: other containers were created in it meanwhile"));
            return Ok(());
        }
        progress.phase(&format!("removing the {what}"));
        unless_missing(database.delete().await).map_err(failed)
    }

    /// Removes the container if the run created it, else the instances of the run.
    async fn remove_container_or_instances(
        &self,
        container: &Container,
        rows: &[Row],
        progress: &Progress,
    ) -> Result<(), Failure> {
        match self.container_origin {
            Origin::Foreign => remove_instances(container, &self.name, rows, progress).await,
            Origin::Created => {
                progress.phase(&format!("removing the container {}", self.name));
                unless_missing(container.delete_container().await)
                    .map_err(|error| left_behind(&format!("container {}", self.name), &error))
            }
        }
    }
}

/// The names given by the user, or names that no other run has.
fn container_name(names: &Names) -> ContainerName {
    let Names { database, container, run } = names;
    let (database, container) = match (database, container) {
        (None, _) => (format!("perihelion-stress-{run}"), CONTAINER.to_owned()),
        (Some(database), None) => (database.clone(), format!("{CONTAINER}-{run}")),
        (Some(database), Some(container)) => (database.clone(), container.clone()),
    };
    ContainerName { database, container }
}

/// Whether the run created the database or container. If its name is random and it exists, this
/// run created it, even if the answer to the create was lost.
fn origin(created: Result<(), Error>, is_name_random: bool) -> (Origin, Result<(), Error>) {
    match created {
        Ok(()) => (Origin::Created, Ok(())),
        Err(error) if error.is_conflict() && is_name_random => (Origin::Created, Ok(())),
        Err(error) if error.is_conflict() => (Origin::Foreign, Ok(())),
        Err(error) if error.is_ambiguous() && is_name_random => (Origin::Created, Err(error)),
        Err(error) => (Origin::Foreign, Err(error)),
    }
}

/// Refuses a container with unfinished workflows. The runtime of this program would fetch
/// them, could not run them, and would fail them after some attempts.
async fn refuse_unfinished_work(provider: &CosmosDBProvider, name: &ContainerName) -> Result<(), Failure> {
    let failed = |error: ProviderError| {
        Failure::runtime(format!("cannot look into the container {name}: {}", error.message))
    };
    let mut found = Vec::new();
    for status in UNFINISHED {
        // Lists find a status by an index, so one row is cheap in a container of any size.
        let options = ListOptions::new().with_status(status).with_page_size(1);
        if let Some(row) = provider.list(&options).await.map_err(failed)?.instances.first() {
            found.push(format!("{:?} is {}", row.instance_id, row.status.to_lowercase()));
        }
    }
    let depths = provider.get_queue_depths().await.map_err(failed)?;
    let queued = depths.orchestrator_queue + depths.worker_queue + depths.timer_queue;
    if queued > 0 {
        found.push(format!("{queued} messages and activities wait"));
    }
    // An activity that a worker has is not in the queue.
    let locks = provider.locks(&LockOptions::new()).await.map_err(failed)?;
    if let Some(activity) = locks.activities.first() {
        found.push(format!("a worker runs an activity of {:?}", activity.instance_id));
    }
    if found.is_empty() {
        return Ok(());
    }
    Err(Failure::runtime(format!(
        "the container {name} is in use: {}. A stress run would take this work and could not do it. Name a \
         container without unfinished workflows, or one that does not exist: it is created and removed",
        found.join(", ")
    )))
}

fn unless_missing(removed: Result<(), Error>) -> Result<(), Error> {
    match removed {
        Err(error) if error.is_not_found() => Ok(()),
        removed => removed,
    }
}

fn left_behind(what: &str, error: &Error) -> Failure {
    Failure::runtime(format!("cannot remove the {what}, which this run created: {error}. Remove it yourself"))
}

/// Removes the instances of the rows from a container that stays.
async fn remove_instances(
    container: &Container,
    name: &ContainerName,
    rows: &[Row],
    progress: &Progress,
) -> Result<(), Failure> {
    let total: u64 = rows.iter().map(|row| row.started).sum();
    if total == 0 {
        return Ok(());
    }
    progress.begin(&format!("removing {total} instances from {name}"));
    let mut removals = JoinSet::new();
    let mut removed = 0;
    let mut instances = rows.iter().flat_map(Row::instances);
    loop {
        while removals.len() < PARALLEL_REMOVALS
            && let Some(instance) = instances.next()
        {
            removals.spawn(remove_instance(container.clone(), instance));
        }
        let Some(ended) = removals.join_next().await else { return Ok(()) };
        ended.map_err(Failure::runtime)?.map_err(|why| {
            Failure::runtime(format!("cannot remove the instances of this run from {name}: {why}"))
        })?;
        removed += 1;
        progress.live(|| format!("{removed} of {total} instances removed from {name}"));
    }
}

/// Removes all documents of an instance, which form one logical partition. The runtime of the
/// instance has stopped, and its name is random, so nothing else writes to the partition.
async fn remove_instance(container: Container, instance: String) -> Result<(), String> {
    let mut last_error = "it does not become empty".to_owned();
    for _ in 0..REMOVAL_ATTEMPTS {
        match remove_documents(&container, &instance).await {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) => last_error = error.to_string(),
        }
    }
    Err(format!("{instance}: {last_error}"))
}

/// Removes the documents that a query finds, and returns their number.
async fn remove_documents(container: &Container, instance: &str) -> Result<usize, Error> {
    let query = Query::new("SELECT VALUE c.id FROM c").in_partition(instance);
    let ids: Vec<String> = container.query(query).collect().await?;
    for ids in ids.chunks(Batch::OPERATIONS_MAX) {
        let mut batch = Batch::new(instance);
        for id in ids {
            batch.delete(id)?;
        }
        container.batch(batch).await?;
    }
    Ok(ids.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_not_given_contain_the_random_name_of_the_run() {
        let check = |database: Option<&str>, container: Option<&str>, expected: &str| {
            let [database, container] = [database, container].map(|name| name.map(str::to_owned));
            let names = Names { database, container, run: "0f".to_owned() };
            assert_eq!(container_name(&names).to_string(), expected);
        };
        check(None, None, "perihelion-stress-0f/stress");
        check(Some("shop"), None, "shop/stress-0f");
        check(Some("shop"), Some("load"), "shop/load");
    }
}
