//! What can be done to a workflow: cancel, restart, delete, prune, and send an event. One function
//! does each of them to one workflow, for its own page and for bulk actions, and returns what
//! happened in words.

use std::sync::Arc;

use duroxide::providers::{ProviderAdmin, PruneOptions};
use duroxide::{Client, EventKind};
use duroxide_cdb::{CosmosDBProvider, ListOptions, ListedInstance};

use crate::failure::Failure;
use crate::source::is_ended;
use crate::text::counted;

/// Something that is done to workflows, one by one or by a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Deed {
    Cancel { reason: String },
    Restart,
    Delete { is_forced: bool },
    Prune { keep_last: u32 },
    Raise { event: String, payload: String, is_queued: bool },
}

/// The deeds, with their names in addresses and forms, and for people.
pub(crate) const NAMES: [(&str, &str); 5] = [
    ("cancel", "Cancel"),
    ("restart", "Restart"),
    ("delete", "Delete"),
    ("prune", "Prune executions"),
    ("raise", "Raise event"),
];

impl Deed {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Deed::Cancel { .. } => "cancel",
            Deed::Restart => "restart",
            Deed::Delete { .. } => "delete",
            Deed::Prune { .. } => "prune",
            Deed::Raise { .. } => "raise",
        }
    }

    /// Why a workflow is left out of a bulk action; `None` if the deed is for it.
    pub(crate) fn objection(&self, row: &ListedInstance) -> Option<&'static str> {
        let (is_ended, is_child) = (is_ended(&row.status), row.parent_instance_id.is_some());
        let is_pending = row.status == "Pending";
        match self {
            Deed::Cancel { .. } | Deed::Raise { .. } if is_ended => Some("it has ended"),
            Deed::Restart | Deed::Delete { .. } if is_child => Some("it has a parent"),
            Deed::Restart if !is_ended => Some("it has not ended"),
            Deed::Delete { is_forced: false } if !is_ended && !is_pending => Some("it runs"),
            Deed::Prune { .. } if row.execution_id <= 1 => Some("it has one execution only"),
            Deed::Cancel { .. }
            | Deed::Restart
            | Deed::Delete { .. }
            | Deed::Prune { .. }
            | Deed::Raise { .. } => None,
        }
    }

    /// Does it to one workflow.
    pub(crate) async fn run(
        &self,
        provider: &CosmosDBProvider,
        row: &ListedInstance,
    ) -> Result<String, Failure> {
        if let Some(objection) = self.objection(row) {
            let what = format!("Nothing was done to {:?}: {objection}.", row.instance_id);
            return Err(Failure::conflict(what));
        }
        let id = row.instance_id.as_str();
        let client = || Client::new(Arc::new(provider.clone()));
        match self {
            Deed::Cancel { reason } => {
                client().cancel_instance(id, reason.as_str()).await?;
                Ok("asked to cancel".to_owned())
            }
            Deed::Restart => restart(provider, row).await,
            Deed::Delete { is_forced } => {
                let deleted = provider.delete(id, *is_forced).await?;
                let workflows = counted(deleted.instances_deleted, "workflow");
                Ok(format!("deleted {workflows}, {}", counted(deleted.events_deleted, "event")))
            }
            Deed::Prune { keep_last } => {
                let options = PruneOptions { keep_last: Some(*keep_last), completed_before: None };
                let pruned = provider.prune_executions(id, options).await?;
                let executions = counted(pruned.executions_deleted, "execution");
                Ok(format!("removed {executions}, {}", counted(pruned.events_deleted, "event")))
            }
            Deed::Raise { event, payload, is_queued: true } => {
                client().enqueue_event(id, event.as_str(), payload.as_str()).await?;
                Ok(format!("sent a message to the queue {event}"))
            }
            Deed::Raise { event, payload, is_queued: false } => {
                client().raise_event(id, event.as_str(), payload.as_str()).await?;
                Ok(format!("sent the event {event}"))
            }
        }
    }
}

/// Starts a new workflow with the recorded input. duroxide cannot rewind, so the old one stays. The
/// new id follows from the old one, so that the same action again starts no second copy.
async fn restart(provider: &CosmosDBProvider, row: &ListedInstance) -> Result<String, Failure> {
    let id = format!("{}-restart-{}", row.instance_id, row.execution_id);
    let history = provider.read_history(&row.instance_id).await?;
    let started = history.into_iter().find_map(|event| match event.kind {
        EventKind::OrchestrationStarted { name, version, input, .. } => Some((name, version, input)),
        _ => None,
    });
    let Some((name, version, input)) = started else {
        return Err(Failure::conflict("It has not begun, so its input is not recorded."));
    };
    let existing = provider.list(&ListOptions::new().with_id(id.as_str())).await?;
    if !existing.instances.is_empty() {
        return Ok(format!("was restarted before as {id}"));
    }
    let client = Client::new(Arc::new(provider.clone()));
    client.start_orchestration_versioned(&id, &name, version, input).await?;
    Ok(format!("started {id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deed_is_only_for_workflows_that_it_can_help() {
        let row = |status: &str, parent: bool, execution: u64| {
            let mut row = ListedInstance::default();
            (row.status, row.execution_id) = (status.to_owned(), execution);
            row.parent_instance_id = parent.then(|| "p".to_owned());
            row
        };
        let cancel = Deed::Cancel { reason: String::new() };
        let delete = |is_forced| Deed::Delete { is_forced };
        for (deed, row, is_for) in [
            (cancel.clone(), row("Running", true, 1), true),
            (cancel, row("Completed", false, 1), false),
            (Deed::Restart, row("Failed", false, 1), true),
            (Deed::Restart, row("Failed", true, 1), false),
            (Deed::Restart, row("Running", false, 1), false),
            (delete(false), row("Running", false, 1), false),
            (delete(true), row("Running", false, 1), true),
            (delete(false), row("Pending", false, 1), true),
            (delete(true), row("Failed", true, 1), false),
            (Deed::Prune { keep_last: 1 }, row("Running", false, 3), true),
            (Deed::Prune { keep_last: 1 }, row("Running", false, 1), false),
        ] {
            assert_eq!(deed.objection(&row).is_none(), is_for, "{deed:?} {row:?}");
        }
    }
}
