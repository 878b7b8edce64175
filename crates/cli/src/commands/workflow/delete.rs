//! `perihelion workflow delete`: removes workflows with their sub-orchestrations.

use clap::Args;
use duroxide_cdb::{CosmosDBProvider, ListedInstance};

use super::selection::{SelectionArgs, workflows};
use super::{bulk, instance};
use crate::context::Context;
use crate::exit::Failure;
use crate::output::text::counted;

const EXAMPLES: &str = "\
Examples:
  perihelion workflow delete order-7
  perihelion workflow delete --filter 'status=completed updated>30d' --dry-run
  perihelion workflow delete --filter 'status=completed updated>30d' --limit 10000 --yes

A workflow is deleted with its sub-orchestrations, all or nothing. A filter selects workflows
without a parent that have ended or are pending; with --force also those that run.";

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
            let may_be_deleted = |row: &ListedInstance| {
                let is_idle = instance::is_ended(&row.status) || row.status == "Pending";
                row.parent_instance_id.is_none() && (force || is_idle)
            };
            let selection = selection_args.select(provider, may_be_deleted).await?;
            let action = describe_action(provider, &selection.instances).await;
            if selection_args.dry_run {
                eprintln!("would {action}");
            }
            selection_args.confirm(&action, context, &selection)?;
            if selection_args.dry_run {
                return bulk::show_plan(context, selection, "delete");
            }
            bulk::run(context, provider, selection, |provider, row| async move {
                let deleted =
                    provider.delete(&row.instance_id, force).await.map_err(|error| error.message)?;
                let instances = counted(deleted.instances_deleted, "workflow");
                Ok(format!("deleted {instances}, {}", counted(deleted.events_deleted, "event")))
            })
            .await
        })
        .await
}

/// The action in words, with the number of sub-orchestrations that are deleted too.
async fn describe_action(provider: &CosmosDBProvider, instances: &[ListedInstance]) -> String {
    let mut descendants = 0;
    let mut is_complete = instances.len() <= TREES_MAX;
    for row in instances.iter().take(TREES_MAX) {
        match provider.tree(&row.instance_id).await {
            Ok(tree) => {
                descendants += tree.instances.len().saturating_sub(1);
                is_complete &= tree.is_complete;
            }
            // The instance may have been deleted meanwhile. The action itself reports that.
            Err(_) => is_complete = false,
        }
    }
    let deleted = format!("delete {}", workflows(instances.len()));
    match (descendants, is_complete) {
        (0, true) => deleted,
        (descendants, true) => format!("{deleted} with {}", counted(descendants as u64, "sub-orchestration")),
        (descendants, false) => {
            format!("{deleted} with at least {}", counted(descendants as u64, "sub-orchestration"))
        }
    }
}
