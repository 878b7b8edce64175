//! `perihelion workflow prune`: removes earlier executions of workflows that continue as new.

use std::time::Duration;

use clap::Args;
use duroxide::providers::{ProviderAdmin, PruneOptions};

use super::bulk;
use super::selection::{SelectionArgs, workflows};
use crate::context::{Context, now_ms};
use crate::exit::Failure;
use crate::output::text::counted;

const EXAMPLES: &str = "\
Examples:
  perihelion workflow prune billing-loop --keep-last 10 --yes
  perihelion workflow prune --filter 'name=billing*' --completed-before 168h --dry-run

The current execution is always kept. Both limits must allow a removal.";

/// Remove earlier executions of workflows that continue as new
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct PruneArgs {
    #[command(flatten)]
    selection: SelectionArgs,

    /// Keep this many of the last executions
    #[arg(long, value_name = "N")]
    keep_last: Option<u32>,

    /// Only executions that ended longer ago than this: 12h, 168h
    #[arg(long, value_name = "TIME", value_parser = age)]
    completed_before: Option<Duration>,
}

fn age(text: &str) -> Result<Duration, String> {
    crate::args::parse_time(text).ok_or_else(|| format!("`{text}` is not a time: write it like 30m or 168h"))
}

pub(super) async fn run(args: PruneArgs, context: &Context) -> Result<(), Failure> {
    let PruneArgs { selection: selection_args, keep_last, completed_before } = args;
    if keep_last.is_none() && completed_before.is_none() {
        return Err(Failure::usage(
            "nothing says which executions to remove",
            "give --keep-last or --completed-before; --keep-last 1 keeps the current execution only",
        ));
    }
    let before_ms = completed_before
        .map(|age| now_ms().saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)));
    context
        .with_provider(async |provider| {
            // Only workflows that have continued as new have earlier executions.
            let selection = selection_args.select(provider, |row| row.execution_id > 1).await?;
            let action = format!("remove earlier executions of {}", workflows(selection.instances.len()));
            selection_args.confirm(&action, context, &selection)?;
            if selection_args.dry_run {
                return bulk::show_plan(context, selection, "remove earlier executions");
            }
            bulk::run(context, provider, selection, |provider, row| async move {
                let options = PruneOptions { keep_last, completed_before: before_ms };
                let pruned = provider.prune_executions(&row.instance_id, options).await;
                let pruned = pruned.map_err(|error| error.message)?;
                let executions = counted(pruned.executions_deleted, "execution");
                Ok(format!("removed {executions}, {}", counted(pruned.events_deleted, "event")))
            })
            .await
        })
        .await
}
