//! `perihelion workflow prune`: removes earlier executions of workflows that continue as new.

use std::time::Duration;

use clap::Args;
use duroxide::providers::{ProviderAdmin, PruneOptions};
use duroxide_cdb::{CosmosDBProvider, ListedInstance};

use super::bulk;
use super::selection::{SelectionArgs, workflows};
use crate::context::{Context, now_ms};
use crate::exit::Failure;
use crate::output::text::counted;

const EXAMPLES: &str = "\
Examples:
  perihelion workflow prune billing-loop --keep-last 10 --yes
  perihelion workflow prune --filter 'name=billing*' --completed-before 168h --dry-run

The current execution is always kept. If both --keep-last and --completed-before are given, an
execution is removed only if both allow it.";

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
    #[arg(long, value_name = "TIME", value_parser = parse_age)]
    completed_before: Option<Duration>,
}

fn parse_age(text: &str) -> Result<Duration, String> {
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
                let options = PruneOptions { keep_last, completed_before: before_ms };
                let plan = async |row: &ListedInstance| plan(provider, row, &options).await;
                return bulk::show_plan(context, selection, plan).await;
            }
            bulk::run(context, provider, selection, |provider, row| async move {
                check_begun(&row)?;
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

/// Refuses a pending workflow that was named. A filter selects no pending workflow.
fn check_begun(row: &ListedInstance) -> Result<(), String> {
    match row.status.as_str() {
        "Pending" => Err("it has not begun, so it has no executions".to_owned()),
        _ => Ok(()),
    }
}

/// How many executions would be removed, in words. The provider has the same rule: the current
/// execution and executions that run stay. Each other execution is removed if both options allow it.
async fn plan(
    provider: &CosmosDBProvider,
    row: &ListedInstance,
    options: &PruneOptions,
) -> Result<String, String> {
    check_begun(row)?;
    let mut past = provider.list_executions(&row.instance_id).await.map_err(|error| error.message)?;
    past.retain(|execution| *execution != row.execution_id);
    past.sort_unstable();
    // `keep_last` counts the current execution too.
    let past_kept = options.keep_last.map_or(0, |count| count.saturating_sub(1) as usize);
    past.truncate(past.len().saturating_sub(past_kept));
    let (mut executions, mut events) = (0, 0);
    for execution in past {
        let info = provider.get_execution_info(&row.instance_id, execution).await;
        let info = info.map_err(|error| error.message)?;
        let is_old =
            options.completed_before.is_none_or(|before| info.completed_at.is_some_and(|at| at < before));
        if info.status != "Running" && is_old {
            executions += 1;
            events += info.event_count as u64;
        }
    }
    Ok(format!("remove {}, {}", counted(executions, "execution"), counted(events, "event")))
}
