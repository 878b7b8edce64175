//! Detects the layout of a container: ours, that of the published crate, or an
//! unfinished migration. A provider refuses the last two: the container would look
//! empty, and two layouts in one container would run every workflow twice.
//!
//! The check costs one query of an indexed member, only for a container that exists.

use perihelion_client::{Container, ContainerProperties, Query};

use super::migration_marker as marker;
use crate::failure::Failure;

/// Values of `type` that only the published crate writes.
const ONLY_THERE: [&str; 4] = ["instance", "outbox_intent", "kv", "kv_delta"];

/// A path that only the published crate indexes. It identifies a container with messages
/// and no instance yet.
const INDEXED_ONLY_THERE: &str = "/dispatchSlot/?";

/// Refuses a container that this provider must not run on. A migration may open one that
/// is not finished.
pub(crate) async fn check(
    container: &Container,
    properties: &ContainerProperties,
    is_migrating: bool,
) -> Result<(), Failure> {
    match found(container, properties).await? {
        Layout::Ours => Ok(()),
        Layout::Unfinished if is_migrating => Ok(()),
        Layout::Unfinished => Err(unfinished(container)),
        Layout::Published => Err(published(container)),
    }
}

/// The layout of a container.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Layout {
    /// Ours, or empty.
    Ours,
    Published,
    Unfinished,
}

pub(crate) async fn found(
    container: &Container,
    properties: &ContainerProperties,
) -> Result<Layout, Failure> {
    let indexed = properties.indexing_policy.iter().flat_map(|policy| &policy.included_paths);
    if indexed.into_iter().any(|path| path.path == INDEXED_ONLY_THERE) {
        return Ok(Layout::Published);
    }
    let kinds = ONLY_THERE.map(|kind| format!("'{kind}'")).join(", ");
    let query = format!(
        "SELECT VALUE c.type FROM c WHERE c.type IN ({kinds}) OR (c.type = '{}' AND c.status = '{}')",
        marker::KIND,
        marker::COPYING,
    );
    let kind: Option<String> = container.query(Query::new(query).with_max_items(1)).first().await?;
    Ok(match kind.as_deref() {
        None => Layout::Ours,
        Some(marker::KIND) => Layout::Unfinished,
        Some(_) => Layout::Published,
    })
}

fn published(container: &Container) -> Failure {
    let (database, name) = (container.database_name(), container.name());
    Failure::Refused(format!(
        "the container {database}/{name} was written by the published crate duroxide-cdb (0.1.10 and before), whose \
         documents this version does not run on. Stop the programs that use it, move it into a new \
         container with `perihelion migrate --from {database}/{name} --to {database}/NEW`, and open the new \
         one; the old one is not changed"
    ))
}

fn unfinished(container: &Container) -> Failure {
    let (database, name) = (container.database_name(), container.name());
    Failure::Refused(format!(
        "the migration into the container {database}/{name} is not finished. Run \
         `perihelion migrate --from OLD --to {database}/{name}` again: it continues where it stopped"
    ))
}
