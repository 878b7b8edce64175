//! `Instance`: how an instance is shown as JSON; and the lookup of one instance.

use duroxide_cdb::{CosmosDBProvider, ListOptions, ListedInstance};
use serde::Serialize;

use crate::exit::Failure;
use crate::output::text::time;

/// An instance, as JSON shows it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Instance {
    pub(super) instance_id: String,
    pub(super) name: String,
    /// `None` for a pending workflow whose start names no version: a worker chooses it.
    pub(super) version: Option<String>,
    pub(super) status: String,
    pub(super) created_at: String,
    pub(super) updated_at: String,
    pub(super) completed_at: Option<String>,
    pub(super) execution: u64,
    pub(super) parent: Option<String>,
    pub(super) custom_status: Option<String>,
}

impl From<ListedInstance> for Instance {
    fn from(row: ListedInstance) -> Self {
        Instance {
            instance_id: row.instance_id,
            name: row.name,
            version: Some(row.version).filter(|version| !version.is_empty()),
            status: row.status,
            created_at: time(row.created_at),
            updated_at: time(row.updated_at),
            completed_at: row.completed_at.map(time),
            execution: row.execution_id,
            parent: row.parent_instance_id,
            custom_status: row.custom_status,
        }
    }
}

/// The instance with this id, also a pending one; `None` if there is none.
pub(super) async fn find(
    provider: &CosmosDBProvider,
    instance: &str,
) -> Result<Option<ListedInstance>, Failure> {
    let options = ListOptions::new().with_id(instance).with_output(true);
    let page = provider.list(&options).await.map_err(Failure::provider)?;
    Ok(page.instances.into_iter().next())
}

/// The instance with this id.
pub(super) async fn get(provider: &CosmosDBProvider, instance: &str) -> Result<ListedInstance, Failure> {
    find(provider, instance).await?.ok_or_else(|| missing(instance))
}

/// The failure of a verb on an instance that does not exist.
pub(super) fn missing(instance: &str) -> Failure {
    let advice = match instance.contains(['=', '<', '>']) {
        true => "to select workflows by a filter, write it after --filter",
        false => "`perihelion workflow list` shows the workflows of this container",
    };
    Failure::not_found(format!("there is no workflow {instance:?}")).with_advice(advice)
}

/// Whether an instance with this status has ended.
pub(super) fn is_ended(status: &str) -> bool {
    matches!(status, "Completed" | "Failed")
}
