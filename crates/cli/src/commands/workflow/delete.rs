//! `perihelion workflow delete`: removes workflows with their sub-orchestrations.

use clap::Args;
use duroxide_cdb::{CosmosDBProvider, ListedInstance, WorkflowTree};

use super::selection::{SelectionArgs, workflows};
use super::{bulk, instance};
use crate::context::Context;
use crate::exit::Failure;
use crate::output::text::counted;
use crate::process::tell;

const EXAMPLES: &str = "\
Examples:
  perihelion workflow delete order-7
  perihelion workflow delete --filter 'status=completed updated>30d' --dry-run
  perihelion workflow delete --filter 'status=completed updated>30d' --limit 10000 --yes

A workflow is deleted with its sub-orchestrations, all or nothing. A filter selects workflows that
have no parent, and have ended or are pending; with --force also those that run.";

/// The most trees that are read to count the sub-orchestrations of a selection. Each tree takes at
/// least three requests, and meanwhile a person waits for the question.
const TREES_MAX: usize = 32;

/// Delete workflows with their sub-orchestrations
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct DeleteArgs {
    #[command(flatten)]
    selection: SelectionArgs,

    /// Also delete workflows that run
    #[arg(long)]
    force: bool,
}

pub(super) async fn run(args: DeleteArgs, context: &Context) -> Result<(), Failure> {
    let DeleteArgs { selection: selection_args, force } = args;
    context
        .with_provider(async |provider| {
            let selection = selection_args.select(provider, |row| objection(row, force).is_none()).await?;
            // A filter has left out instances with an objection. Instances that were named have not been checked.
            let deletable: Vec<&ListedInstance> =
                selection.instances.iter().filter(|row| objection(row, force).is_none()).collect();
            let action = describe_action(provider, &deletable, force).await;
            if selection_args.dry_run {
                tell(format_args!("would {action}"));
            }
            // Prints the selection. With --dry-run nothing is asked.
            selection_args.confirm(&action, context, &selection)?;
            if selection_args.dry_run {
                let plan = async |row: &ListedInstance| plan(provider, row, force).await;
                return bulk::show_plan(context, selection, plan).await;
            }
            bulk::run(context, provider, selection, |provider, row| async move {
                if let Some(objection) = objection(&row, force) {
                    return Err(objection);
                }
                let deleted = match provider.delete(&row.instance_id, force).await {
                    Ok(deleted) => deleted,
                    // The plan has the likely reason in our own words.
                    Err(error) => {
                        return Err(plan(&provider, &row, force).await.err().unwrap_or(error.message));
                    }
                };
                let instances = counted(deleted.instances_deleted, "workflow");
                Ok(format!("deleted {instances}, {}", counted(deleted.events_deleted, "event")))
            })
            .await
        })
        .await
}

/// Why a workflow cannot be deleted, whatever its sub-orchestrations do; `None` if there is no such
/// reason. The provider refuses the same workflows, in the words of its own interface.
fn objection(row: &ListedInstance, force: bool) -> Option<String> {
    match &row.parent_instance_id {
        Some(parent) => Some(format!(
            "it is a child of {parent:?}: delete the workflow that has no parent; its children are deleted with it"
        )),
        None if force || is_idle(row) => None,
        None => Some(format!("it is {}: cancel it first, or add --force", row.status.to_lowercase())),
    }
}

/// What a deletion would do, or why it would fail. Unlike [`objection`], this looks also for a
/// sub-orchestration that runs.
async fn plan(provider: &CosmosDBProvider, row: &ListedInstance, force: bool) -> Result<String, String> {
    if let Some(objection) = objection(row, force) {
        return Err(objection);
    }
    if !force {
        let tree = provider.tree(&row.instance_id).await.map_err(|error| error.message)?;
        if let Some(running) = running_descendant(&tree) {
            let (id, status) = (&running.instance_id, running.status.to_lowercase());
            return Err(format!(
                "its sub-orchestration {id:?} is {status}: cancel {id:?} first, or add --force"
            ));
        }
    }
    Ok("delete".to_owned())
}

/// A sub-orchestration that runs; `None` if all have ended or have not begun.
fn running_descendant(tree: &WorkflowTree) -> Option<&ListedInstance> {
    let mut descendants = tree.instances.iter().skip(1).map(|descendant| &descendant.instance);
    descendants.find(|descendant| !is_idle(descendant))
}

/// Whether a workflow has ended, or has not begun.
fn is_idle(row: &ListedInstance) -> bool {
    instance::is_ended(&row.status) || row.status == "Pending"
}

/// The action in words, with the number of sub-orchestrations that are deleted too. Without `force`,
/// a workflow with a sub-orchestration that runs is not counted, because its deletion will fail.
async fn describe_action(provider: &CosmosDBProvider, instances: &[&ListedInstance], force: bool) -> String {
    let (mut workflows, mut descendants) = (instances.len(), 0);
    let mut is_complete = instances.len() <= TREES_MAX;
    for row in instances.iter().take(TREES_MAX) {
        match provider.tree(&row.instance_id).await {
            Ok(tree) if !force && running_descendant(&tree).is_some() => workflows -= 1,
            Ok(tree) => {
                descendants += tree.instances.len().saturating_sub(1);
                is_complete &= tree.is_complete;
            }
            // The instance may have been deleted meanwhile. The action itself reports that.
            Err(_) => is_complete = false,
        }
    }
    action_text(workflows, descendants as u64, is_complete)
}

/// The action in words. `is_complete` says whether all sub-orchestrations were counted.
fn action_text(selected: usize, descendants: u64, is_complete: bool) -> String {
    let deleted = format!("delete {}", workflows(selected));
    match (descendants, is_complete) {
        (0, true) => deleted,
        (0, false) => format!("{deleted} and any sub-orchestrations (not all counted)"),
        (_, true) => format!("{deleted} with {}", counted(descendants, "sub-orchestration")),
        (_, false) => format!("{deleted} with at least {}", counted(descendants, "sub-orchestration")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Story of a bug: before 60 workflows were deleted, the question had "with at least 0
    /// sub-orchestrations", because only the first 32 were looked at.
    #[test]
    fn the_question_says_what_is_known_about_sub_orchestrations() {
        for (descendants, is_complete, expected) in [
            (0, true, "delete 60 workflows"),
            (2, true, "delete 60 workflows with 2 sub-orchestrations"),
            (2, false, "delete 60 workflows with at least 2 sub-orchestrations"),
            (0, false, "delete 60 workflows and any sub-orchestrations (not all counted)"),
        ] {
            assert_eq!(action_text(60, descendants, is_complete), expected);
        }
    }
}
