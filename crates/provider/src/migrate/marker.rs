//! The note that a migration leaves in the container it fills: while it says
//! `copying`, no provider runs there. It lies under a numeric partition key,
//! where no instance is.

use perihelion_client::Container;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// Its type, and its id.
pub(super) const KIND: &str = "migration";
/// Its status from before the first write of a migration to after the last.
pub(super) const COPYING: &str = "copying";
const DONE: &str = "done";

/// Its partition; nothing else lies there.
const KEY: u64 = 0;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Marker {
    id: String,
    instance_id: u64,
    #[serde(rename = "type")]
    kind: String,
    pub(super) status: String,
    /// The container that is moved: database and name.
    pub(super) source: String,
}

impl Marker {
    pub(super) fn copying(source: &str) -> Marker {
        Marker {
            id: KIND.to_owned(),
            instance_id: KEY,
            kind: KIND.to_owned(),
            status: COPYING.to_owned(),
            source: source.to_owned(),
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.status == DONE
    }

    pub(super) async fn find(container: &Container) -> Result<Option<Marker>, Failure> {
        Ok(container.find(KEY, KIND).await?.map(|item| item.into_value()))
    }

    /// Writes it down; twice is as good as once.
    pub(super) async fn write(&self, container: &Container) -> Result<(), Failure> {
        container.upsert(KEY, self).await?;
        Ok(())
    }

    pub(super) async fn write_done(mut self, container: &Container) -> Result<(), Failure> {
        self.status = DONE.to_owned();
        self.write(container).await
    }
}
