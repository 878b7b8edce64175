//! `perihelion workflow delete`: removes workflows with their sub-orchestrations.

use clap::Args;
use duroxide_cdb::ListedInstance;

use super::selection::SelectionArgs;
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

pub(super) async fn run(typed: DeleteArgs, context: &Context) -> Result<(), Failure> {
    let DeleteArgs { selection: args, force } = typed;
    context
        .with_provider(async |provider| {
            let can_go = |row: &ListedInstance| {
                let is_idle = instance::is_ended(&row.status) || row.status == "Pending";
                row.parent_instance_id.is_none() && (force || is_idle)
            };
            let selection = args.select(provider, can_go).await?;
            args.confirm("delete", &selection)?;
            if args.dry_run {
                return bulk::show_plan(context, selection.instances, "delete");
            }
            bulk::run(context, provider, selection.instances, |provider, row| async move {
                let deleted =
                    provider.delete(&row.instance_id, force).await.map_err(|error| error.message)?;
                let instances = counted(deleted.instances_deleted, "workflow");
                Ok(format!("deleted {instances}, {}", counted(deleted.events_deleted, "event")))
            })
            .await
        })
        .await
}
