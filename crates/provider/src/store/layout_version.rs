//! The layout version of a container: which versions of the provider can use it.
//!
//! The container has one document with its layout version. A container without the document has
//! version 1. A provider that is too old for the version refuses to open the container. Each
//! heartbeat says which versions its process can read. A process raises the version of the
//! container to its own when every live process can read that version. New forms of documents
//! are written only after that.
//!
//! A process whose heartbeat has expired (it was stopped, or had no network) does not count as
//! live, so the version may be raised without it. Therefore heartbeats also name the layout
//! version of the container. A process that finds a newer version than its own in a heartbeat
//! fetches nothing any more.
//!
//! A process without a recent heartbeat may be about to take work: it has just opened the container, or
//! has fetched nothing for some time. No heartbeat tells of it, and it has read the old version. Two waits
//! make that safe. A process reads the version again before it takes work if it has not read it for
//! [`LAYOUT_KNOWN_FOR`]. And new forms are written only [`NEW_FORMS_AFTER`] the version was raised, which
//! is longer. So whoever takes work then has read the new version. Before each lock the process looks again
//! when it last read the version: it may have been suspended since its fetch began.
//!
//! 0.1.0 knows none of this: a process of 0.1.0 must not be started after the version was raised. If one is,
//! the other processes write no new forms while its heartbeat is in their view. That does not protect
//! documents that have a new form already.
//!
//! The document of a new container says that no earlier version was ever there (`first`). Then no process
//! waits. A process that opens the container before this document exists looks a second time, after the
//! document must have been created.
//!
//! | version | what processes of this version do |
//! |---|---|
//! | 1 (0.1.0) | drop unknown members, set aside messages that they cannot read, and do not check the version |
//! | 2 | keep unknown members, leave messages that they cannot read in their place, and check the version |
//! | 3 | do the same as version 2, and know the list of consumed completions in a state (`State::undeleted`) |

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use perihelion_client::{Container, Item};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::failure::{Failure, Objection};
use crate::sync::lock;
use crate::timing::{
    LAYOUT_CREATED_WITHIN, LAYOUT_KNOWN_FOR, LAYOUT_MISSING_PAUSE, LAYOUT_READ_EVERY, NEW_FORMS_AFTER,
};

/// The layout version of this provider: the newest that it can read.
pub(crate) const LAYOUT_VERSION: u32 = 3;

/// The version of a container without the document, and of a process whose heartbeat names
/// none.
pub(crate) const LAYOUT_VERSION_FIRST: u32 = 1;

/// The partition key of the document. The migration's marker has the same key.
pub(super) const PARTITION_KEY: u64 = 0;

/// The id and the type of the document.
pub(super) const DOCUMENT_ID: &str = "layout";

/// How long a fetch waits for the version to be read again.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// After a fetch has waited in vain, no fetch waits for this time: the partition of the document may not
/// answer for long. Meanwhile each heartbeat tries to read the document.
const READ_AGAIN_AFTER: Duration = LAYOUT_KNOWN_FOR;

/// The document with the layout version of a container.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LayoutDocument {
    id: String,
    instance_id: u64,
    #[serde(rename = "type")]
    document_type: String,
    version: u32,
    /// Whether the container never had an earlier version.
    #[serde(rename = "first", default, skip_serializing_if = "std::ops::Not::not")]
    is_first: bool,
    /// When the version was raised: seconds since 1970 by the service's clock.
    #[serde(rename = "_ts", default, skip_serializing)]
    written_at_s: u64,
}

impl LayoutDocument {
    fn new(version: u32, is_first: bool) -> Self {
        LayoutDocument {
            id: DOCUMENT_ID.to_owned(),
            instance_id: PARTITION_KEY,
            document_type: DOCUMENT_ID.to_owned(),
            version,
            is_first,
            written_at_s: 0,
        }
    }
}

/// The layout version of the open container, as this process knows it.
#[derive(Debug, Clone)]
pub(crate) struct ContainerVersion {
    known: Arc<Mutex<Known>>,
    /// When a fetch last waited in vain for the version to be read again. Locked while it is read.
    failed_at: Arc<tokio::sync::Mutex<Option<Moment>>>,
    /// The newest version that this process can read. [`LAYOUT_VERSION`], except in simulations of an
    /// older process.
    readable: u32,
}

/// What this process knows of the document.
#[derive(Debug, Clone, Copy)]
struct Known {
    version: u32,
    /// When the new forms of this version may be written: milliseconds since 1970 by the service's clock.
    new_forms_from_ms: u64,
    /// When the last read of the document began.
    read_at: Moment,
}

/// A moment by two clocks. The steady clock stands still while the machine sleeps, and the wall clock may be
/// set to another time.
#[derive(Debug, Clone, Copy)]
struct Moment {
    steady: Instant,
    wall: SystemTime,
}

impl Moment {
    fn now() -> Self {
        Moment { steady: Instant::now(), wall: SystemTime::now() }
    }

    /// The time since this moment, by the clock that tells the longer time. If the wall clock was set
    /// forwards, this is too long, and the document is read once more.
    fn elapsed(self) -> Duration {
        let by_wall = SystemTime::now().duration_since(self.wall).unwrap_or_default();
        self.steady.elapsed().max(by_wall)
    }
}

impl ContainerVersion {
    fn new(readable: u32, read_at: Moment) -> Self {
        let known = Known { version: LAYOUT_VERSION_FIRST, new_forms_from_ms: 0, read_at };
        ContainerVersion { known: Arc::new(Mutex::new(known)), failed_at: Arc::default(), readable }
    }

    /// Writes the version of a container that this process creates since `begun`. Fails if another
    /// process was first and this provider is too old for its version.
    pub(crate) async fn create(
        container: &Container,
        readable: u32,
        begun: Instant,
    ) -> Result<Self, Failure> {
        let version = ContainerVersion::new(readable, Moment::now());
        let document = LayoutDocument::new(readable, false);
        let options = super::without_content();
        match container.create_with(PARTITION_KEY, &document, &options).await {
            // Processes that have found no document have not begun to work.
            Ok(created) if begun.elapsed() <= LAYOUT_CREATED_WITHIN => {
                if let Some(etag) = super::answered_etag(&created) {
                    let options = options.with_if_match(etag);
                    let document = LayoutDocument { is_first: true, ..document };
                    match container.replace_with(PARTITION_KEY, DOCUMENT_ID, &document, &options).await {
                        Ok(_) => {
                            lock(&version.known).version = readable;
                            return Ok(version);
                        }
                        Err(error) if error.is_precondition_failed() => {}
                        Err(error) => return Err(error.into()),
                    }
                }
            }
            Ok(_) => {}
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(error.into()),
        }
        version.refresh(container).await?;
        version.check(container)?;
        Ok(version)
    }

    /// Reads the version of a container. Fails if this provider is too old for it. A provider that will
    /// take work looks twice for a missing document.
    pub(crate) async fn read(
        container: &Container,
        readable: u32,
        takes_work: bool,
    ) -> Result<Self, Failure> {
        let version = ContainerVersion::new(readable, Moment::now());
        let is_found = version.refresh(container).await?;
        if !is_found && takes_work {
            tokio::time::sleep(LAYOUT_MISSING_PAUSE).await;
            version.refresh(container).await?;
        }
        version.check(container)?;
        Ok(version)
    }

    /// Reads the version of a container, whether or not this provider can read it.
    pub(crate) async fn find(container: &Container) -> Result<u32, Failure> {
        let found = find_document(container).await?;
        Ok(found.map_or(LAYOUT_VERSION_FIRST, |item| item.into_value().version))
    }

    /// Reads the document again. Returns whether there is one. The known version never falls.
    async fn refresh(&self, container: &Container) -> Result<bool, Failure> {
        let begun = Moment::now();
        let found = find_document(container).await?.map(Item::into_value);
        let mut known = lock(&self.known);
        if begun.steady > known.read_at.steady {
            known.read_at = begun;
        }
        if let Some(found) = &found
            && found.version > known.version
        {
            known.version = found.version;
            let after_ms = NEW_FORMS_AFTER.as_millis() as u64;
            known.new_forms_from_ms = if found.is_first { 0 } else { found.written_at_s * 1000 + after_ms };
        }
        Ok(found.is_some())
    }

    /// For the heartbeat: reads the document again if that is due.
    pub(crate) async fn refresh_if_due(&self, container: &Container) -> Result<(), Failure> {
        match self.age() >= LAYOUT_READ_EVERY {
            true => self.refresh(container).await.map(drop),
            false => Ok(()),
        }
    }

    /// For a process that is about to take work: reads the document again if this process has not read
    /// it for [`LAYOUT_KNOWN_FOR`]. Work goes on if the document cannot be read.
    pub(crate) async fn refresh_if_old(&self, container: &Container) {
        if self.age() < LAYOUT_KNOWN_FOR {
            return;
        }
        // Other fetches wait for the first one.
        let mut failed_at = self.failed_at.lock().await;
        if self.age() < LAYOUT_KNOWN_FOR || failed_at.is_some_and(|at| at.elapsed() < READ_AGAIN_AFTER) {
            return;
        }
        let read = tokio::time::timeout(READ_TIMEOUT, self.refresh(container)).await;
        if !matches!(read, Ok(Ok(_))) {
            *failed_at = Some(Moment::now());
            tracing::debug!(?read, "the layout version was not read; work continues");
        }
    }

    /// Lets the wall clock go on while the steady clock stands still, as when the machine sleeps.
    #[cfg(test)]
    pub(crate) fn let_machine_sleep(&self, time: Duration) {
        lock(&self.known).read_at.wall -= time;
    }

    fn age(&self) -> Duration {
        lock(&self.known).read_at.elapsed()
    }

    pub(crate) fn get(&self) -> u32 {
        lock(&self.known).version
    }

    /// Whether, by the document, other documents may be written in a form that only processes of this
    /// version can read. The caller also asks the membership for older processes.
    pub(crate) fn may_write_forms_of(&self, version: u32, now_ms: u64) -> bool {
        let known = lock(&self.known);
        known.version >= version && now_ms >= known.new_forms_from_ms
    }

    /// The newest version that this process can read.
    pub(crate) fn readable(&self) -> u32 {
        self.readable
    }

    /// Records the version of the container that the heartbeat of another process names, if this
    /// provider is too old for that version. The recorded version never falls.
    pub(crate) fn record(&self, version: u32) {
        let mut known = lock(&self.known);
        if version > self.readable {
            known.version = known.version.max(version);
        }
    }

    /// Fails if the container has become too new for this provider.
    pub(crate) fn check(&self, container: &Container) -> Result<(), Failure> {
        Ok(check_version(container, self.get(), self.readable)?)
    }

    /// Raises the version of the container to the version of this provider. Never lowers it.
    pub(crate) async fn raise(&self, container: &Container) -> Result<(), Failure> {
        let document = LayoutDocument::new(self.readable, false);
        match find_document(container).await? {
            None => drop(container.create(PARTITION_KEY, &document).await?),
            Some(found) if found.value.version < self.readable => {
                let options = super::without_content().with_if_match(found.etag()?);
                container.replace_with(PARTITION_KEY, DOCUMENT_ID, &document, &options).await?;
            }
            Some(_) => {}
        }
        self.refresh(container).await.map(drop)
    }
}

async fn find_document(container: &Container) -> Result<Option<Item<LayoutDocument>>, Failure> {
    Ok(container.find::<LayoutDocument>(PARTITION_KEY, DOCUMENT_ID).await?)
}

/// Refuses a version that is newer than `readable`, the newest version that this process can read.
pub(crate) fn check_version(container: &Container, version: u32, readable: u32) -> Result<(), Objection> {
    if version <= readable {
        return Ok(());
    }
    let (database, name, crate_version) =
        (container.database_name(), container.name(), env!("CARGO_PKG_VERSION"));
    Err(Objection::new(
        format!(
            "the container {database}/{name} has layout version {version}, and this program's duroxide-cdb \
             {crate_version} reads versions up to {readable}"
        ),
        "Update the program to the version of duroxide-cdb that the other programs on this container use",
    ))
}
