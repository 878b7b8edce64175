//! Migrates a container of the published crate, duroxide-cdb 0.1.10 and before, to the
//! layout of this crate.
//!
//! Several instances are copied at a time, each independently of the others. The old
//! container is only read, so the published crate can use it again.
//!
//! Invariants:
//!
//! - No provider opens the new container before the copy is complete
//!   (`store::migration_marker`).
//! - An interrupted run can be repeated: the ids of messages and activities derive from the
//!   copied documents, and an execution that exists is not written again.
//!
//! ```text
//! published (the old documents) ─> convert (pure) ─> write (turns of this crate)
//! ```

mod convert;
mod published;
#[cfg(test)]
mod tests;
mod write;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use duroxide::providers::{ProviderError, WorkItem};
use perihelion_client::{Client, Container, Query};
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::failure::Failure;
use crate::ops::core::Core;
use crate::options::config::Options;
use crate::process::clock::HybridClock;
use crate::process::metrics::DriverObserver;
use crate::store::layout::{self, Layout};
use crate::store::layout_version::LAYOUT_VERSION;
use crate::store::migration_marker::Marker;
use crate::store::{Opening, RETRY_FOR, Store, retry_while};
use published::{OutboxIntent, Partition};

/// The most instances copied at a time: enough to overlap their round trips, few enough to
/// hold them in memory.
const PARALLEL_MAX: usize = 8;

/// A container that was written to within this time is in use: a worker of the published
/// crate writes many times a second while it has work, and renews its longest lock
/// within half a minute.
const IN_USE_WINDOW: Duration = Duration::from_secs(60);

/// The name of a container with its database: `database/container`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerName {
    /// The database.
    pub database: String,
    /// The container.
    pub container: String,
}

impl std::str::FromStr for ContainerName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split('/').collect::<Vec<_>>()[..] {
            [database, container] if !database.is_empty() && !container.is_empty() => {
                Ok(ContainerName { database: database.to_owned(), container: container.to_owned() })
            }
            _ => Err(format!("{text:?} is not the name of a container: write DATABASE/CONTAINER")),
        }
    }
}

impl std::fmt::Display for ContainerName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.database, self.container)
    }
}

/// Migrates a container of the published crate into a new one, as `perihelion migrate`
/// does. `docs/migration.md` has the preparations.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use duroxide_cdb::Migration;
/// use duroxide_cdb::perihelion_client::Client;
///
/// let client = Client::from_env().await?;
/// let migration = Migration::new(client, "duroxide/duroxide".parse()?, "duroxide/workflows".parse()?);
/// let report = migration.with_dry_run(true).run(|so_far| eprintln!("{} instances", so_far.instances)).await?;
/// assert!(report.failed.is_empty(), "{:?}", report.failed);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing happens before run()"]
pub struct Migration {
    client: Client,
    /// The service's time, from the dates of its answers.
    clock: Arc<HybridClock>,
    source: ContainerName,
    target: ContainerName,
    /// Ids of instances that are not copied.
    skipped: BTreeSet<String>,
    is_dry_run: bool,
    is_forced: bool,
}

/// The progress of a migration. In a dry run, the counts are about instances that could be
/// copied.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct MigrationReport {
    /// Instances in the new container, including instances that earlier runs copied.
    pub instances: usize,
    /// Events in the histories of these instances.
    pub events: usize,
    /// Queued messages to these instances, and undelivered messages from these instances to
    /// others.
    pub messages: usize,
    /// Queued activities of these instances.
    pub activities: usize,
    /// Ids of the instances that were skipped ([`Migration::with_skipped_instance`]).
    pub skipped: Vec<String>,
    /// Ids of the instances that could not be migrated, each with the reason.
    pub failed: Vec<(String, String)>,
    /// Whether an earlier run had completed the migration. If so, nothing was copied, and the
    /// counts are zero.
    pub was_done: bool,
}

impl MigrationReport {
    /// Adds the counts of one more instance.
    fn add(&mut self, counts: &MigrationReport) {
        self.instances += 1;
        self.events += counts.events;
        self.messages += counts.messages;
        self.activities += counts.activities;
    }
}

impl Migration {
    /// A migration from the container `source` of an account into the container `target`. The
    /// target must be empty. If it is missing, it is created.
    pub fn new(client: Client, source: ContainerName, target: ContainerName) -> Self {
        let clock = Arc::<HybridClock>::default();
        let observer = DriverObserver {
            metrics: Arc::default(),
            clock: Arc::clone(&clock),
            congestion: Arc::default(),
            costs: Arc::default(),
        };
        let client = Client::from_driver(client.driver().with_observer(Arc::new(observer)));
        Migration {
            client,
            clock,
            source,
            target,
            skipped: BTreeSet::new(),
            is_dry_run: false,
            is_forced: false,
        }
    }

    /// Skips this instance. May be called for several instances.
    pub fn with_skipped_instance(mut self, instance: impl Into<String>) -> Self {
        self.skipped.insert(instance.into());
        self
    }

    /// With `true`, reads and checks everything and writes nothing.
    pub fn with_dry_run(mut self, is_dry_run: bool) -> Self {
        self.is_dry_run = is_dry_run;
        self
    }

    /// With `true`, migrates even if programs of the published crate seem to be running. The
    /// work of these programs during the migration may be lost or done twice.
    pub fn with_force(mut self, is_forced: bool) -> Self {
        self.is_forced = is_forced;
        self
    }

    /// Runs the migration and calls `on_progress` after each instance that is not skipped.
    /// After an error, or when [`MigrationReport::failed`] is not empty, the new container
    /// stays closed to providers; run the migration again.
    pub async fn run(
        self,
        mut on_progress: impl FnMut(&MigrationReport),
    ) -> Result<MigrationReport, ProviderError> {
        self.migrate(&mut on_progress).await.map_err(|failure| failure.into_error("migrate"))
    }

    async fn migrate(
        &self,
        on_progress: &mut impl FnMut(&MigrationReport),
    ) -> Result<MigrationReport, Failure> {
        let source = self.open_source().await?;
        if self.check_target().await? == TargetState::Done {
            return Ok(already_done());
        }
        if self.is_dry_run {
            return self.copy(&source, None, on_progress).await;
        }
        let target = self.open_target().await?;
        let report = self.copy_under_marker(&source, &target, on_progress).await;
        target.close().await;
        report
    }

    /// Writes the migration marker with status `copying`, unless an earlier run wrote it.
    /// Then copies the instances. Sets the status to `done` if no copy failed and the old
    /// container was not used during the copy.
    async fn copy_under_marker(
        &self,
        source: &Container,
        target: &Arc<Core>,
        on_progress: &mut impl FnMut(&MigrationReport),
    ) -> Result<MigrationReport, Failure> {
        let container = &target.store.container;
        let marker = match self.find_marker(container).await? {
            Some(marker) if marker.is_done() => return Ok(already_done()),
            Some(marker) => marker,
            None => self.write_marker(container).await?,
        };
        let begun_ms = self.clock.now_ms();
        let report = self.copy(source, Some(target), on_progress).await?;
        if report.failed.is_empty() {
            self.check_not_in_use(source, begun_ms).await?;
            marker.write_done(container).await?;
        }
        Ok(report)
    }

    /// The old container. Fails if it is missing, was not written by the published crate, or
    /// is in use.
    async fn open_source(&self) -> Result<Container, Failure> {
        if self.source == self.target {
            return Err(refused(format!(
                "{} cannot be migrated into itself: name a new container",
                self.source
            )));
        }
        let source = self.client.database(&self.source.database).container(&self.source.container);
        let properties = match source.properties().await {
            Ok(properties) => properties,
            Err(error) if error.is_not_found() => {
                return Err(refused(format!("there is no container {}", self.source)));
            }
            Err(error) => return Err(error.into()),
        };
        if layout::detect(&source, &properties).await? != Layout::Published {
            return Err(refused(format!(
                "{} was not written by the published crate: there is nothing to migrate",
                self.source
            )));
        }
        self.check_not_in_use(&source, self.clock.now_ms()).await?;
        Ok(source)
    }

    /// Reads whether the target can be filled, and changes nothing: a container that is refused stays as
    /// it is. A missing container can be filled; it is created later.
    async fn check_target(&self) -> Result<TargetState, Failure> {
        let opening = Opening { is_migrating: true, is_tool: true, readable_version: LAYOUT_VERSION };
        let ContainerName { database, container } = &self.target;
        let open = || Store::open(&self.client, database, container, opening);
        let deadline = Instant::now() + RETRY_FOR;
        let container = match retry_while(deadline, Failure::is_service_fault, open).await {
            Ok(store) => store.container,
            Err(Failure::NotFoundContainer(_)) => return Ok(TargetState::Fillable),
            Err(failure) => return Err(failure),
        };
        match self.find_marker(&container).await? {
            Some(marker) if marker.is_done() => return Ok(TargetState::Done),
            Some(_) => {}
            None => self.check_empty(&container).await?,
        }
        Ok(TargetState::Fillable)
    }

    /// The marker of the target. Fails if the target belongs to another migration.
    async fn find_marker(&self, container: &Container) -> Result<Option<Marker>, Failure> {
        match Marker::find(container).await? {
            Some(marker) if marker.source != self.source.to_string() => Err(refused(format!(
                "{} is the target of another migration, from {}: name a new container",
                self.target, marker.source
            ))),
            marker => Ok(marker),
        }
    }

    async fn open_target(&self) -> Result<Arc<Core>, Failure> {
        let options = Options { is_migrating: true, ..Options::default() };
        Core::open(self.client.clone(), &self.target.database, &self.target.container, options).await
    }

    /// Marks a container as the target of a migration. Fails if the container is not empty.
    async fn write_marker(&self, container: &Container) -> Result<Marker, Failure> {
        self.check_empty(container).await?;
        let marker = Marker::copying(&self.source.to_string());
        marker.write(container).await?;
        Ok(marker)
    }

    async fn check_empty(&self, container: &Container) -> Result<(), Failure> {
        // `layout` is the id of the document with the layout version of the container.
        let query = Query::new("SELECT VALUE c.id FROM c WHERE c.id != 'layout'").with_max_items(1);
        if container.query::<String>(query).first().await?.is_some() {
            return Err(refused(format!(
                "{} is not empty: a migration needs a new container. Name one that does not exist yet",
                self.target
            )));
        }
        Ok(())
    }

    /// Fails if the old container is in use: it was written to after `moment_ms`, or less
    /// than [`IN_USE_WINDOW`] before `moment_ms`, or one of its documents has a valid lock. A
    /// forced migration does not check.
    async fn check_not_in_use(&self, source: &Container, moment_ms: u64) -> Result<(), Failure> {
        if self.is_forced {
            return Ok(());
        }
        let since_s = moment_ms.saturating_sub(IN_USE_WINDOW.as_millis() as u64) / 1000;
        let written = Query::new("SELECT VALUE c.instanceId FROM c WHERE c._ts >= @since")
            .with_parameter("@since", since_s)
            .with_max_items(1);
        let locked = Query::new("SELECT VALUE c.instanceId FROM c WHERE c.lockedUntil > @now")
            .with_parameter("@now", self.clock.now_ms())
            .with_max_items(1);
        // The second check, after the copy, also finds writes that came during the copy.
        let written_recently = "was written to within the last minute, or since the migration began";
        for (query, what) in [(written, written_recently), (locked, "is locked")] {
            if let Some(instance) = source.query::<String>(query).first().await? {
                return Err(refused(format!(
                    "{} is in use: its instance {instance:?} {what}. Stop the programs that use it, wait a \
                     minute and run this again, or force the migration if you are sure that they are stopped",
                    self.source
                )));
            }
        }
        Ok(())
    }

    /// Copies all instances that are not skipped. Without a target, only reads and checks
    /// them.
    async fn copy(
        &self,
        source: &Container,
        target: Option<&Arc<Core>>,
        on_progress: &mut impl FnMut(&MigrationReport),
    ) -> Result<MigrationReport, Failure> {
        let mut report = MigrationReport::default();
        let mut under_way = JoinSet::new();
        let mut instances = source
            .query::<String>("SELECT DISTINCT VALUE c.instanceId FROM c ORDER BY c.instanceId")
            .into_stream();
        loop {
            while under_way.len() < PARALLEL_MAX {
                let Some(instance) = instances.next().await.transpose()? else { break };
                if self.skipped.contains(&instance) {
                    report.skipped.push(instance);
                    continue;
                }
                under_way.spawn(migrate_instance(
                    source.clone(),
                    target.cloned(),
                    instance,
                    self.clock.now_ms(),
                ));
            }
            let Some(ended) = under_way.join_next().await else { return Ok(report) };
            let (instance, outcome) = ended.map_err(|error| {
                Failure::Contended(format!("the copy of an instance was aborted: {error}"))
            })?;
            match outcome {
                Ok(counts) => report.add(&counts),
                Err(Failure::Refused(reason)) => report.failed.push((instance, reason)),
                Err(failure) => return Err(failure),
            }
            on_progress(&report);
        }
    }
}

/// What `check_target` found. A target that must not be used has no state: it is an error.
#[derive(Debug, Clone, Copy, PartialEq)]
enum TargetState {
    /// The target is missing or empty, or an earlier run has filled a part of it.
    Fillable,
    /// An earlier run has filled it.
    Done,
}

/// The report of a run that copies nothing, because an earlier run has copied everything.
fn already_done() -> MigrationReport {
    MigrationReport { was_done: true, ..MigrationReport::default() }
}

fn refused(reason: String) -> Failure {
    Failure::Refused(reason)
}

/// Reads and converts an instance, and writes it if there is a target. Returns the id of the
/// instance, and its counts or the failure. `now_ms` is the service's time.
async fn migrate_instance(
    source: Container,
    target: Option<Arc<Core>>,
    instance: String,
    now_ms: u64,
) -> (String, Result<MigrationReport, Failure>) {
    let outcome = async {
        let query = Query::new("SELECT * FROM c").in_partition(instance.as_str());
        let documents: Vec<Value> = source.query(query).collect().await?;
        let mut partition = Partition::decode(&instance, documents).map_err(Failure::Refused)?;
        drop_consumed_starts(&source, &mut partition).await?;
        let converted = convert::convert(partition, now_ms)?;
        let counts = converted.counts();
        if let Some(target) = target {
            write::write(&target, converted).await?;
        }
        Ok(counts)
    };
    let outcome = outcome.await;
    (instance, outcome)
}

/// Drops outbox intents that start an instance which has started already. (An outbox intent is a
/// queue document for another instance. Its delivery is not recorded.) The start was delivered,
/// and only the outbox intent was not deleted. If the start were delivered again, the parent
/// would get a failure, because the instance exists.
async fn drop_consumed_starts(source: &Container, partition: &mut Partition) -> Result<(), Failure> {
    let mut kept = Vec::new();
    for intent in std::mem::take(&mut partition.outbox_intents) {
        if !is_consumed_start(source, &partition.instance, &intent).await? {
            kept.push(intent);
        }
    }
    partition.outbox_intents = kept;
    Ok(())
}

/// Whether an outbox intent of the instance `sender` is a start whose instance has started. If
/// the start is that of a child, the started instance must be a child of `sender`.
async fn is_consumed_start(source: &Container, sender: &str, intent: &OutboxIntent) -> Result<bool, Failure> {
    let WorkItem::StartOrchestration { parent_instance, .. } = &intent.queued.item else { return Ok(false) };
    let query = Query::new(format!("SELECT * FROM c WHERE c.type = '{}'", published::INSTANCE));
    let documents: Vec<Value> = source.query(query.in_partition(intent.target.as_str())).collect().await?;
    let target = Partition::decode(&intent.target, documents).map_err(Failure::Refused)?;
    let started = target.instance_document.filter(|document| !document.orchestration_name.is_empty());
    let Some(document) = started else { return Ok(false) };
    Ok(parent_instance.is_none() || document.parent_instance_id.as_deref() == Some(sender))
}
