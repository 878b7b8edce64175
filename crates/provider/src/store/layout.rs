//! Whether a container is one of the published crate, or one that a migration
//! has not finished. Either is refused when a provider opens it: read by the
//! wrong layout it would look empty, and both layouts in one container would
//! run every workflow twice.
//!
//! It costs one query of an indexed member, and only when the container was
//! there before.

use perihelion_client::{Container, ContainerProperties, Query};

use super::migration_marker as marker;
use crate::failure::Failure;

/// What `type` says there and never in our own documents, so that finding one
/// of them is finding that layout.
const ONLY_THERE: [&str; 4] = ["instance", "outbox_intent", "kv", "kv_delta"];

/// A path that the published crate has indexed and nobody else would: it tells
/// a container of that crate that has messages and no instance yet.
const INDEXED_ONLY_THERE: &str = "/dispatchSlot/?";

/// Refuses a container that this crate must not run on. What a migration has
/// not finished, a migration opens.
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

/// What a container is.
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
         container with `perihelion migrate --from {database}/{name} --to {database}/NEW`, and open that \
         one; the old one stays as it is"
    ))
}

fn unfinished(container: &Container) -> Failure {
    let (database, name) = (container.database_name(), container.name());
    Failure::Refused(format!(
        "the migration into the container {database}/{name} is not finished. Run \
         `perihelion migrate --from OLD --to {database}/{name}` again: it goes on where it stopped"
    ))
}
