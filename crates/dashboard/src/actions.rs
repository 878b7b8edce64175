//! `WorkflowAction`: an action on a workflow (cancel, restart, delete, prune, or send an event). The
//! page of a workflow and bulk actions run it by the same function. The function changes one workflow,
//! and says what it did.

use std::sync::Arc;

use duroxide::Client;
use duroxide::providers::{ProviderAdmin, PruneOptions};
use duroxide_cdb::{CosmosDBProvider, ListOptions, ListedInstance, RecordedStart};

use crate::failure::Failure;
use crate::source::is_ended;
use crate::text::counted;

/// An action on a workflow, from its page or as a bulk action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WorkflowAction {
    Cancel { reason: String },
    Restart,
    Delete { is_forced: bool },
    Prune { keep_last: u32 },
    Raise { event: String, payload: String, is_queued: bool },
}

/// What an action did to one workflow, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    Changed(String),
    /// Nothing was changed: the workflow was already in the state that was asked for.
    Nothing(String),
}

/// The actions, each with its name in addresses and forms, and with the name that pages show.
pub(crate) const NAMES: [(&str, &str); 5] = [
    ("cancel", "Cancel"),
    ("restart", "Restart"),
    ("delete", "Delete"),
    ("prune", "Prune executions"),
    ("raise", "Raise event"),
];

impl WorkflowAction {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            WorkflowAction::Cancel { .. } => "cancel",
            WorkflowAction::Restart => "restart",
            WorkflowAction::Delete { .. } => "delete",
            WorkflowAction::Prune { .. } => "prune",
            WorkflowAction::Raise { .. } => "raise",
        }
    }

    /// Why the action is not possible for a workflow; `None` if it is possible.
    pub(crate) fn objection(&self, row: &ListedInstance) -> Option<&'static str> {
        let (is_ended, is_child) = (is_ended(&row.status), row.parent_instance_id.is_some());
        let is_pending = row.status == "Pending";
        match self {
            WorkflowAction::Cancel { .. } | WorkflowAction::Raise { .. } if is_ended => Some("it has ended"),
            WorkflowAction::Restart | WorkflowAction::Delete { .. } if is_child => Some("it has a parent"),
            WorkflowAction::Restart if !is_ended => Some("it has not ended"),
            WorkflowAction::Delete { is_forced: false } if !is_ended && !is_pending => Some("it runs"),
            WorkflowAction::Prune { .. } if row.execution_id <= 1 => Some("it has one execution only"),
            WorkflowAction::Cancel { .. }
            | WorkflowAction::Restart
            | WorkflowAction::Delete { .. }
            | WorkflowAction::Prune { .. }
            | WorkflowAction::Raise { .. } => None,
        }
    }

    /// Runs the action on one workflow.
    pub(crate) async fn run(
        &self,
        provider: &CosmosDBProvider,
        row: &ListedInstance,
    ) -> Result<Effect, Failure> {
        if let Some(objection) = self.objection(row) {
            let what = format!("Nothing was done to {:?}: {objection}.", row.instance_id);
            return Err(Failure::conflict(what));
        }
        let id = row.instance_id.as_str();
        let client = || Client::new(Arc::new(provider.clone()));
        match self {
            WorkflowAction::Cancel { reason } => {
                client().cancel_instance(id, reason.as_str()).await?;
                Ok(Effect::Changed("asked to cancel".to_owned()))
            }
            WorkflowAction::Restart => restart(provider, row).await,
            WorkflowAction::Delete { is_forced } => {
                let deleted = provider.delete(id, *is_forced).await?;
                if deleted.instances_deleted == 0 {
                    return Ok(Effect::Nothing("it was deleted before".to_owned()));
                }
                let workflows = counted(deleted.instances_deleted, "workflow");
                let events = counted(deleted.events_deleted, "event");
                Ok(Effect::Changed(format!("deleted {workflows}, {events}")))
            }
            WorkflowAction::Prune { keep_last } => {
                let options = PruneOptions { keep_last: Some(*keep_last), completed_before: None };
                let pruned = provider.prune_executions(id, options).await?;
                if pruned.executions_deleted == 0 {
                    return Ok(Effect::Nothing("it has no execution to remove".to_owned()));
                }
                let executions = counted(pruned.executions_deleted, "execution");
                let events = counted(pruned.events_deleted, "event");
                Ok(Effect::Changed(format!("removed {executions}, {events}")))
            }
            WorkflowAction::Raise { event, payload, is_queued: true } => {
                client().enqueue_event(id, event.as_str(), payload.as_str()).await?;
                Ok(Effect::Changed(format!("sent a message to the queue {event}")))
            }
            WorkflowAction::Raise { event, payload, is_queued: false } => {
                client().raise_event(id, event.as_str(), payload.as_str()).await?;
                Ok(Effect::Changed(format!("sent the event {event}")))
            }
        }
    }
}

/// Starts a new workflow with the recorded input. duroxide cannot run an ended workflow again, so the old
/// workflow stays as it is.
/// The new id is derived from the old id, so that a repeated action starts no second copy.
async fn restart(provider: &CosmosDBProvider, row: &ListedInstance) -> Result<Effect, Failure> {
    let id = format!("{}-restart-{}", row.instance_id, row.execution_id);
    let Some(original_start) = provider.recorded_start(&row.instance_id).await? else {
        return Err(Failure::conflict("It has not begun, so its input is not recorded."));
    };
    let existing = provider.list(&ListOptions::new().with_id(id.as_str())).await?;
    if let Some(existing) = existing.instances.into_iter().next() {
        // `recorded_start` reads the start of the current execution. A later execution than the first one
        // began with another input, so its start is not compared.
        let existing_start = match existing.execution_id {
            1 => provider.recorded_start(&id).await?,
            _ => None,
        };
        return match is_restart_of(&existing, existing_start.as_ref(), row, &original_start) {
            true => Ok(Effect::Nothing(format!("it was restarted before as {id}"))),
            false => Err(Failure::conflict(format!(
                "It cannot be restarted: {id} exists already and is not a restart of it. It may be a \
                 restart of an earlier workflow with the same id."
            ))
            .advise(format!("Look at {id}, and delete it if it is not needed."))),
        };
    }
    let client = Client::new(Arc::new(provider.clone()));
    let RecordedStart { name, version, input, .. } = original_start;
    match version {
        Some(version) => client.start_orchestration_versioned(&id, &name, version, input).await?,
        None => client.start_orchestration(&id, &name, input).await?,
    }
    Ok(Effect::Changed(format!("started {id}")))
}

/// Whether an existing workflow is the restart of the original one: it is younger, and has the same name
/// and input. `existing_start` is `None` if the existing workflow has not begun, or runs a later execution.
/// Then its input is not compared.
fn is_restart_of(
    existing: &ListedInstance,
    existing_start: Option<&RecordedStart>,
    original: &ListedInstance,
    original_start: &RecordedStart,
) -> bool {
    let has_same_start = match existing_start {
        Some(start) => start.name == original_start.name && start.input == original_start.input,
        None => existing.name == original_start.name,
    };
    existing.created_at >= original.created_at && has_same_start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_action_is_possible_only_for_some_workflows() {
        let row = |status: &str, parent: bool, execution: u64| {
            let mut row = ListedInstance::default();
            (row.status, row.execution_id) = (status.to_owned(), execution);
            row.parent_instance_id = parent.then(|| "p".to_owned());
            row
        };
        let cancel = WorkflowAction::Cancel { reason: String::new() };
        let delete = |is_forced| WorkflowAction::Delete { is_forced };
        for (action, row, is_possible) in [
            (cancel.clone(), row("Running", true, 1), true),
            (cancel, row("Completed", false, 1), false),
            (WorkflowAction::Restart, row("Failed", false, 1), true),
            (WorkflowAction::Restart, row("Failed", true, 1), false),
            (WorkflowAction::Restart, row("Running", false, 1), false),
            (delete(false), row("Running", false, 1), false),
            (delete(true), row("Running", false, 1), true),
            (delete(false), row("Pending", false, 1), true),
            (delete(true), row("Failed", true, 1), false),
            (WorkflowAction::Prune { keep_last: 1 }, row("Running", false, 3), true),
            (WorkflowAction::Prune { keep_last: 1 }, row("Running", false, 1), false),
        ] {
            assert_eq!(action.objection(&row).is_none(), is_possible, "{action:?} {row:?}");
        }
    }
}
