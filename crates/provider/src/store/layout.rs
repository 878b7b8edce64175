//! Detects the layout of a container: the layout of this crate, the layout of the published crate
//! (duroxide-cdb 0.1.10 and before), or an unfinished migration. A provider refuses the last
//! two. A container of the published crate would look empty to a provider, and a workflow
//! that both crates start would run twice.
//!
//! The check costs at most one query, by indexed members. The query goes to every physical partition.
//! A container that is missing, and is created, is not checked.

use perihelion_client::{Container, ContainerProperties, Query};

use super::migration_marker as marker;
use crate::failure::{Failure, Objection};

/// Values of `type` that only the published crate writes.
const PUBLISHED_TYPES: [&str; 4] = ["instance", "outbox_intent", "kv", "kv_delta"];

/// A path that only the published crate indexes. It identifies a container that has messages
/// but no document of [`PUBLISHED_TYPES`] yet.
const PUBLISHED_INDEXED_PATH: &str = "/dispatchSlot/?";

/// Refuses a container of another layout. `is_migrating` allows one whose migration is not
/// finished.
pub(crate) async fn check(
    container: &Container,
    properties: &ContainerProperties,
    is_migrating: bool,
) -> Result<(), Failure> {
    Ok(detect(container, properties).await?.check(container, is_migrating)?)
}

/// The layout of a container.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Layout {
    /// The layout of this crate, or a container without documents of either crate.
    Ours,
    /// The layout of the published crate.
    Published,
    /// The layout of this crate, with an unfinished migration.
    UnfinishedMigration,
}

impl Layout {
    /// Refuses every layout except the layout of this crate. `is_migrating` also allows an unfinished
    /// migration.
    pub(crate) fn check(self, container: &Container, is_migrating: bool) -> Result<(), Objection> {
        match self {
            Layout::Ours => Ok(()),
            Layout::UnfinishedMigration if is_migrating => Ok(()),
            Layout::UnfinishedMigration => Err(unfinished_migration(container)),
            Layout::Published => Err(published_layout(container)),
        }
    }
}

/// Detects the layout by the indexed paths of the container, then by its documents.
pub(crate) async fn detect(
    container: &Container,
    properties: &ContainerProperties,
) -> Result<Layout, Failure> {
    let indexed = properties.indexing_policy.iter().flat_map(|policy| &policy.included_paths);
    if indexed.into_iter().any(|path| path.path == PUBLISHED_INDEXED_PATH) {
        return Ok(Layout::Published);
    }
    let types = PUBLISHED_TYPES.map(|name| format!("'{name}'")).join(", ");
    let query = format!(
        "SELECT VALUE c.type FROM c WHERE c.type IN ({types}) OR (c.type = '{}' AND c.status = '{}')",
        marker::MARKER_TYPE,
        marker::COPYING,
    );
    let found: Option<String> = container.query(Query::new(query).with_max_items(1)).first().await?;
    Ok(match found.as_deref() {
        None => Layout::Ours,
        Some(marker::MARKER_TYPE) => Layout::UnfinishedMigration,
        Some(_) => Layout::Published,
    })
}

fn published_layout(container: &Container) -> Objection {
    let (database, name) = (container.database_name(), container.name());
    Objection::new(
        format!(
            "the container {database}/{name} was written by the published crate duroxide-cdb (0.1.10 and before), \
             whose documents this version cannot use"
        ),
        format!(
            "Stop the programs that use the container, move it into a new container with `perihelion migrate --from \
             {database}/{name} --to {database}/NEW`, and open the new one; the old one is not changed"
        ),
    )
}

fn unfinished_migration(container: &Container) -> Objection {
    let (database, name) = (container.database_name(), container.name());
    Objection::new(
        format!("the migration into the container {database}/{name} is not finished"),
        format!(
            "Run `perihelion migrate --from OLD --to {database}/{name}` again: it continues where it stopped"
        ),
    )
}
