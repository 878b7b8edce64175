//! `Store`: the container, and the requests that several operations share.
//!
//! `preflight`, `layout` and `layout_version` check a container when it is opened,
//! `migration_marker` is the document that shows an unfinished migration, `retry` repeats requests
//! after the driver has given up, `state_cache` keeps states that this process read or wrote.

pub(crate) mod layout;
pub(crate) mod layout_version;
pub(crate) mod migration_marker;
pub(crate) mod preflight;
mod retry;
pub(crate) mod state_cache;

use std::sync::Arc;
use std::time::Duration;

use perihelion_client::{
    Batch, Client, Container, ContainerProperties, Error, Etag, IndexingPolicy, ItemOptions,
    OperationOptions, PartitionKey, Patch, Query, Repeat, TransactionError, Written,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;

use self::layout_version::ContainerVersion;
use self::state_cache::{Snapshot, StateCache};
pub(crate) use crate::timing::RETRY_FOR;
pub(crate) use retry::{ConflictBudget, SharedDocument, retry_until, retry_while, unless_stale};

use crate::documents::{STATE_ID, State, Versioned};
use crate::failure::{Failure, Objection};

/// The indexed paths: queries order by them, or use them to find a few documents among
/// many. An indexed path costs 0.4 request units with every write of a document that has
/// the member, so most of these members are in few documents. Filters over a few documents,
/// such as sessions by their lock, need no index.
pub(crate) const INDEXED_PATHS: [&str; 10] = [
    "/type/?",
    "/visibleAt/?",
    // When a message or an activity was enqueued.
    "/enq/?",
    "/tag/?",
    "/sessionId/?",
    "/status/?",
    "/parentInstanceId/?",
    "/startParent/?",
    // The number of the execution, in chunks of history.
    "/hx/?",
    // When a document was created or became due, for the reconciler.
    "/madeAt/?",
];

/// The container and its cache. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    /// The client of the container, for distributed transactions.
    pub(crate) client: Client,
    pub(crate) container: Container,
    /// Cached states. A write of a state by this provider removes or replaces its cached
    /// version.
    pub(crate) state_cache: Arc<StateCache>,
    /// Whether the container deletes documents after their time to live.
    pub(crate) is_ttl_on: bool,
    pub(crate) layout_version: ContainerVersion,
    /// Whether this process has created the container.
    pub(crate) is_new: bool,
}

/// Refuses an account on which no lock and no commit would be safe.
fn check_account(client: &Client) -> Result<(), Objection> {
    let account = client.account();
    preflight::check_account(&account)?;
    preflight::check_consistency(&account)
}

/// How a container is opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opening {
    /// Whether a container with an unfinished migration is allowed.
    pub(crate) is_migrating: bool,
    /// Whether a tool opens the container. Then a missing container is an error, and the settings of
    /// the container are not changed.
    pub(crate) is_tool: bool,
    /// The newest layout version that the process can read.
    pub(crate) readable_version: u32,
}

impl Store {
    /// Opens the container, and creates it with its database if it is missing. Refuses an
    /// account or a container on which the provider cannot run: see `preflight` and `layout`.
    pub(crate) async fn open(
        client: &Client,
        database: &str,
        container: &str,
        opening: Opening,
    ) -> Result<Store, Failure> {
        preflight::check_names(database, container)?;
        check_account(client)?;
        let handle = client.database(database).container(container);
        let begun = Instant::now();
        match handle.properties().await {
            Ok(properties) => {
                preflight::check_partition_key(&handle, &properties)?;
                layout::check(&handle, &properties, opening.is_migrating).await?;
                let layout_version =
                    ContainerVersion::read(&handle, opening.readable_version, !opening.is_tool).await?;
                preflight::check_ttl(&handle, &properties)?;
                preflight::check_indexes(&handle, &properties)?;
                let is_ttl_on = match opening.is_tool {
                    true => properties.ttl.is_some(),
                    false => preflight::switch_ttl_on(&handle, properties).await?,
                };
                Ok(Store {
                    client: client.clone(),
                    container: handle,
                    state_cache: Arc::default(),
                    is_ttl_on,
                    layout_version,
                    is_new: false,
                })
            }
            Err(error) if error.is_not_found() && opening.is_tool => {
                Err(Failure::NotFoundContainer(format!("{database}/{container}")))
            }
            Err(error) if error.is_not_found() => {
                let created = create_container(client, database, container).await;
                let container =
                    created.map_err(|error| preflight::creation_failure(database, container, error))?;
                let layout_version =
                    ContainerVersion::create(&container, opening.readable_version, begun).await?;
                Ok(Store {
                    client: client.clone(),
                    container,
                    state_cache: Arc::default(),
                    is_ttl_on: true,
                    layout_version,
                    is_new: true,
                })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Fails if this provider may not take work from the container any more: the container has become
    /// too new for it, or the account was changed in a way that a provider refuses at opening. The
    /// driver reads the account again every few minutes.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.layout_version.check(&self.container)?;
        Ok(check_account(&self.client)?)
    }

    /// [`Store::check`] for a process that is about to take work: its knowledge of the layout version must
    /// be recent, see `layout_version`.
    pub(crate) async fn check_may_take_work(&self) -> Result<(), Failure> {
        self.layout_version.refresh_if_old(&self.container).await;
        self.check()
    }

    /// Asks whether the account has distributed transactions.
    pub(crate) async fn read_layout_in_transaction(&self, timeout: Duration) -> Result<(), Failure> {
        read_layout_in_transaction(&self.client, &self.container, timeout).await
    }

    /// The state of an instance; `None` if there is no state document.
    pub(crate) async fn state(&self, instance: &str) -> Result<Option<Versioned<State>>, Failure> {
        self.find(instance, STATE_ID).await
    }

    /// The state of an instance as the write region has it; `None` if there is no state document. The
    /// read is sent as a batch, because batches are routed like writes. So it is never behind, unlike
    /// [`Store::state`], which a replica in any region may answer.
    pub(crate) async fn newest_state(&self, instance: &str) -> Result<Option<Versioned<State>>, Failure> {
        let mut batch = Batch::new(instance);
        batch.read(STATE_ID)?;
        match self.container.batch(batch.with_repeat(Repeat::Always)).await {
            Ok(results) => match results.get(0).map(|read| (read, read.etag())) {
                Some((read, Some(etag))) => Ok(Some(Versioned { value: read.value()?, etag: etag.clone() })),
                _ => Err(Failure::Contended(format!("the answer has no state of {instance}"))),
            },
            Err(error) if error.is_document_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the state of an instance if its etag is no longer `seen`.
    pub(crate) async fn state_if_changed(&self, instance: &str, seen: &Etag) -> Result<StateChange, Failure> {
        match self.container.read_if_changed::<State>(instance, STATE_ID, seen).await {
            Ok(None) => Ok(StateChange::Unchanged),
            Ok(Some(item)) => {
                let etag = item.etag()?.clone();
                Ok(StateChange::Changed(Box::new(Versioned { value: item.into_value(), etag })))
            }
            Err(error) if error.is_document_not_found() => Ok(StateChange::NoDocument),
            Err(error) => Err(error.into()),
        }
    }

    /// A document with its etag; `None` if it does not exist.
    pub(crate) async fn find<T: DeserializeOwned>(
        &self,
        instance: &str,
        id: &str,
    ) -> Result<Option<Versioned<T>>, Failure> {
        match self.container.find::<T>(instance, id).await? {
            Some(item) => Ok(Some(Versioned { etag: item.etag()?.clone(), value: item.into_value() })),
            None => Ok(None),
        }
    }

    /// All rows of a query.
    pub(crate) async fn rows<T: DeserializeOwned>(&self, query: Query) -> Result<Vec<T>, Failure> {
        Ok(self.container.query::<T>(query).collect().await?)
    }

    /// Replaces the state document if it has this etag; without an etag, creates it. Returns
    /// the new etag. `witness` is the value at the JSON pointer `pointer`. No other write
    /// stores this value there. When the answer is lost, the witness shows whether the write
    /// was applied.
    pub(crate) async fn put_state(
        &self,
        state: &State,
        etag: Option<&Etag>,
        pointer: &str,
        witness: Value,
    ) -> Result<Etag, Failure> {
        let options = without_content().with_witness(STATE_ID, pointer, witness);
        let key = state.instance_id.as_str();
        self.state_cache.forget(key);
        let written = match etag {
            Some(etag) => {
                self.container.replace_with(key, STATE_ID, state, &options.with_if_match(etag)).await?
            }
            None => self.container.create_with(key, state, &options).await?,
        };
        let etag = self.written_etag(key, STATE_ID, state, &written).await?;
        if state.is_deleted() {
            self.cache_tombstone(&Versioned { value: state.clone(), etag: etag.clone() });
        }
        Ok(etag)
    }

    /// Puts the tombstone of a deleted instance into the cache: the next claim in this process must
    /// see it.
    pub(crate) fn cache_tombstone(&self, tombstone: &Versioned<State>) {
        self.state_cache.put(Arc::new(Snapshot {
            state: tombstone.clone(),
            history: Arc::default(),
            is_committed_here: false,
        }));
    }

    /// Creates a document with an id that no other process uses, and returns its etag. If
    /// the document exists, an earlier attempt created it.
    pub(crate) async fn create<T: Serialize>(
        &self,
        key: impl Into<PartitionKey>,
        id: &str,
        value: &T,
    ) -> Result<Etag, Failure> {
        let key = key.into();
        match self.container.create_with(key.clone(), value, &without_content()).await {
            Ok(written) if written.etag().is_ok() => return Ok(written.etag()?.clone()),
            Err(error) if !error.is_conflict() => return Err(error.into()),
            _ => {}
        }
        match self.container.find::<Value>(key, id).await? {
            Some(found) => Ok(found.etag()?.clone()),
            None => Err(Failure::Contended(format!("{id} was deleted while it was created"))),
        }
    }

    /// Replaces a document of an instance if it has this etag. Returns the new etag.
    pub(crate) async fn put<T: Serialize>(
        &self,
        instance: &str,
        id: &str,
        value: &T,
        etag: &Etag,
        options: ItemOptions,
    ) -> Result<Etag, Failure> {
        let written = self.container.replace_with(instance, id, value, &options.with_if_match(etag)).await?;
        self.written_etag(instance, id, value, &written).await
    }

    /// Changes a document of an instance if the document has this etag: sets these members, and
    /// removes the members whose value is `None`. Keeps all other members, also those that this
    /// version does not know. Returns the new etag.
    pub(crate) async fn set_members(
        &self,
        instance: &str,
        id: &str,
        members: &[(&str, Option<Value>)],
        etag: &Etag,
        options: ItemOptions,
    ) -> Result<Etag, Failure> {
        let mut patch = Patch::new();
        for (name, value) in members {
            let path = format!("/{name}");
            patch = match value {
                Some(value) => patch.set(&path, value)?,
                None => patch.remove(&path)?,
            };
        }
        let written = self.container.patch_with(instance, id, &patch, &options.with_if_match(etag)).await?;
        if let Some(etag) = answered_etag(&written) {
            return Ok(etag.clone());
        }
        // If another writer has changed the document since, its etag is not the etag of this write.
        let found = self.find::<Value>(instance, id).await?.ok_or(Failure::LockLost)?;
        match members.iter().all(|(name, value)| found.value.get(name) == value.as_ref()) {
            true => Ok(found.etag),
            false => Err(changed_after_write(instance, id)),
        }
    }

    /// The new etag of a written document. If the answer was lost, the document is read. Fails if
    /// another writer has changed the document since: its etag is not the etag of this write.
    async fn written_etag<T: Serialize>(
        &self,
        instance: &str,
        id: &str,
        value: &T,
        written: &Written,
    ) -> Result<Etag, Failure> {
        if let Some(etag) = answered_etag(written) {
            return Ok(etag.clone());
        }
        let found = self.find::<Value>(instance, id).await?.ok_or(Failure::LockLost)?;
        let mut stored = found.value;
        if let Some(members) = stored.as_object_mut() {
            members.retain(|name, _| !name.starts_with('_'));
        }
        match serde_json::to_value(value) {
            Ok(sent) if sent == stored => Ok(found.etag),
            _ => Err(changed_after_write(instance, id)),
        }
    }
}

/// Reads the container's layout document in a distributed transaction, to find out whether the
/// account has transactions. It does not matter whether the document exists.
pub(crate) async fn read_layout_in_transaction(
    client: &Client,
    container: &Container,
    timeout: Duration,
) -> Result<(), Failure> {
    let options = OperationOptions::default().with_timeout(timeout).with_throttle_retries_max(1);
    let mut transaction = client.read_transaction().with_options(options);
    transaction.read(container, layout_version::PARTITION_KEY, layout_version::DOCUMENT_ID)?;
    match transaction.execute().await {
        Ok(_) => Ok(()),
        Err(TransactionError::Aborted(aborted)) if aborted.error().is_document_not_found() => Ok(()),
        Err(error) => Err(perihelion_client::Error::from(error).into()),
    }
}

/// The etag of a write that was answered. `None` if the answer was lost: then the etag in `written`
/// was read afterwards, and another writer may have written it.
fn answered_etag(written: &Written) -> Option<&Etag> {
    let is_answered = written.receipt().diagnostics().resolution().is_none();
    written.etag().ok().filter(|_| is_answered)
}

fn changed_after_write(instance: &str, id: &str) -> Failure {
    Failure::Contended(format!("{id} of {instance} was changed after it was written"))
}

async fn create_container(client: &Client, database: &str, container: &str) -> Result<Container, Error> {
    let database = client.create_database_if_missing(database).await?;
    database.create_container_if_missing(&container_properties(container)).await
}

/// The properties with which a provider creates a container that is missing: partition key,
/// time to live and indexing policy. A program that creates the container itself adds, for
/// example, its throughput.
///
/// ```no_run
/// # async fn example(client: perihelion_client::Client) -> Result<(), perihelion_client::Error> {
/// use duroxide_cdb::perihelion_client::Throughput;
///
/// let properties = duroxide_cdb::container_properties("workflows").with_throughput(Throughput::autoscale(4000));
/// client.create_database_if_missing("shop").await?.create_container_if_missing(&properties).await?;
/// # Ok(())
/// # }
/// ```
pub fn container_properties(name: &str) -> ContainerProperties {
    ContainerProperties::new(name, "/instanceId")
        .with_ttl_per_item()
        .with_indexing_policy(IndexingPolicy::only(INDEXED_PATHS))
}

/// Whether a state has changed since a process read it.
pub(crate) enum StateChange {
    Unchanged,
    Changed(Box<Versioned<State>>),
    /// There is no state document any more. (The state of a deleted instance is a tombstone.)
    NoDocument,
}

/// Options of a write whose response does not repeat the document.
pub(crate) fn without_content() -> ItemOptions {
    ItemOptions::new().with_content_on_write(false)
}

/// Options of a batch whose response does not repeat the documents.
pub(crate) fn batch_without_content() -> OperationOptions {
    OperationOptions::default().with_content_on_write(false)
}

/// Decodes a document that a query returned, with its etag.
pub(crate) fn decode_row<T: DeserializeOwned>(row: Value) -> Result<Versioned<T>, Failure> {
    let unreadable =
        |what: &dyn std::fmt::Display| Failure::Refused(format!("a document is unreadable: {what}"));
    let etag = row.get("_etag").and_then(Value::as_str).ok_or_else(|| unreadable(&"it has no etag"))?;
    let etag = Etag::parse(etag)?;
    let value = serde_json::from_value(row).map_err(|error| unreadable(&error))?;
    Ok(Versioned { value, etag })
}
