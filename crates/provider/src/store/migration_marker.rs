//! The marker document of a migration, in the target container of the migration. While the
//! marker's status is `copying`, no provider can be opened on the container. The marker's
//! partition key is a number, so the marker is not in the partition of an instance.

use perihelion_client::Container;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// The type and the id of the marker document.
pub(crate) const MARKER_TYPE: &str = "migration";
/// The status while a migration writes: set before its first write, and replaced by
/// [`DONE`] after its last.
pub(crate) const COPYING: &str = "copying";
/// The status of a finished migration.
const DONE: &str = "done";

/// The partition key of the marker. A session may have the same partition key, because its
/// key is a hash. That is harmless: the ids of the marker and of sessions differ.
const PARTITION_KEY: u64 = 0;

/// The marker document.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Marker {
    id: String,
    instance_id: u64,
    #[serde(rename = "type")]
    document_type: String,
    pub(crate) status: String,
    /// The container that is migrated, as `database/container`.
    pub(crate) source: String,
}

impl Marker {
    /// The marker of a migration that begins. `source` is `database/container`.
    pub(crate) fn copying(source: &str) -> Marker {
        Marker {
            id: MARKER_TYPE.to_owned(),
            instance_id: PARTITION_KEY,
            document_type: MARKER_TYPE.to_owned(),
            status: COPYING.to_owned(),
            source: source.to_owned(),
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.status == DONE
    }

    /// The marker of a container; `None` if nothing was ever migrated into it.
    pub(crate) async fn find(container: &Container) -> Result<Option<Marker>, Failure> {
        Ok(container.find(PARTITION_KEY, MARKER_TYPE).await?.map(|item| item.into_value()))
    }

    /// Writes the marker, whether or not it exists.
    pub(crate) async fn write(&self, container: &Container) -> Result<(), Failure> {
        container.upsert(PARTITION_KEY, self).await?;
        Ok(())
    }

    pub(crate) async fn write_done(mut self, container: &Container) -> Result<(), Failure> {
        self.status = DONE.to_owned();
        self.write(container).await
    }
}
