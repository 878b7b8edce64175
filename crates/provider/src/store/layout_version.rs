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
//! | version | what processes of this version do |
//! |---|---|
//! | 1 | drop unknown members, set aside messages that they cannot read, and do not check the version |
//! | 2 | keep unknown members, leave messages that they cannot read in their place, and check the version |
//! | 3 | do the same as version 2, and know the list of consumed completions in a state (`State::undeleted`) |

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use perihelion_client::Container;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Objection};

/// The layout version of this provider: the newest that it can read.
pub(crate) const LAYOUT_VERSION: u32 = 3;

/// The version of a container without the document, and of a process whose heartbeat names
/// none.
pub(crate) const LAYOUT_VERSION_FIRST: u32 = 1;

/// The partition key of the document. The migration's marker has the same key.
pub(super) const PARTITION_KEY: u64 = 0;

/// The id and the type of the document.
pub(super) const DOCUMENT_ID: &str = "layout";

/// The document with the layout version of a container.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LayoutDocument {
    id: String,
    instance_id: u64,
    #[serde(rename = "type")]
    document_type: String,
    version: u32,
}

/// The layout version of the open container, as this process knows it.
#[derive(Debug, Clone)]
pub(crate) struct ContainerVersion {
    known: Arc<AtomicU32>,
    /// The newest version that this process can read. [`LAYOUT_VERSION`], except in simulations of an
    /// older process.
    readable: u32,
}

impl ContainerVersion {
    /// Writes the version of a container that this process has just created.
    pub(crate) async fn create(container: &Container, readable: u32) -> Result<Self, Failure> {
        let version = ContainerVersion { known: Arc::new(AtomicU32::new(LAYOUT_VERSION_FIRST)), readable };
        version.raise(container).await?;
        Ok(version)
    }

    /// Reads the version of a container. Fails if this provider is too old for it.
    pub(crate) async fn read(container: &Container, readable: u32) -> Result<Self, Failure> {
        let version = ContainerVersion::find(container).await?;
        check_version(container, version, readable)?;
        Ok(ContainerVersion { known: Arc::new(AtomicU32::new(version)), readable })
    }

    /// Reads the version of a container, whether or not this provider can read it.
    pub(crate) async fn find(container: &Container) -> Result<u32, Failure> {
        let found = container.find::<LayoutDocument>(PARTITION_KEY, DOCUMENT_ID).await?;
        Ok(found.map_or(LAYOUT_VERSION_FIRST, |item| item.into_value().version))
    }

    pub(crate) fn get(&self) -> u32 {
        self.known.load(Ordering::Relaxed)
    }

    /// The newest version that this process can read.
    pub(crate) fn readable(&self) -> u32 {
        self.readable
    }

    /// Records the version of the container that the heartbeat of another process names, if this
    /// provider is too old for that version. The recorded version never falls.
    pub(crate) fn record(&self, version: u32) {
        if version > self.readable {
            self.known.fetch_max(version, Ordering::Relaxed);
        }
    }

    /// Fails if the container has become too new for this provider.
    pub(crate) fn check(&self, container: &Container) -> Result<(), Failure> {
        Ok(check_version(container, self.get(), self.readable)?)
    }

    /// Raises the version of the container to the version of this provider. Never lowers it.
    pub(crate) async fn raise(&self, container: &Container) -> Result<(), Failure> {
        let document = LayoutDocument {
            id: DOCUMENT_ID.to_owned(),
            instance_id: PARTITION_KEY,
            document_type: DOCUMENT_ID.to_owned(),
            version: self.readable,
        };
        match container.create(PARTITION_KEY, &document).await {
            Ok(_) => {}
            Err(error) if error.is_conflict() => {
                let found = container.read::<LayoutDocument>(PARTITION_KEY, DOCUMENT_ID).await?;
                let etag = found.etag()?.clone();
                if found.into_value().version < self.readable {
                    let options = super::without_content().with_if_match(&etag);
                    container.replace_with(PARTITION_KEY, DOCUMENT_ID, &document, &options).await?;
                }
            }
            Err(error) => return Err(error.into()),
        }
        self.known.fetch_max(self.readable, Ordering::Relaxed);
        Ok(())
    }
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
