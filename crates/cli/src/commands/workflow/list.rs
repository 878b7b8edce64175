//! `perihelion workflow list`: workflows that match a filter, page by page up to a limit.

use clap::Args;
use duroxide_cdb::{ListOptions, ListOrder};

use super::instance::{COLUMNS, Instance};
use super::selection::{self, Cut, MAY_BE_MORE};
use crate::context::{Context, WatchArgs, now_ms};
use crate::exit::Failure;
use crate::process::tell;

const FILTERS: &str = "\
Filters (all terms must match; quote them, because the shell reads < and > itself):
  status=failed           running, completed, failed, continued or pending
  name=order name=order*  the name of the orchestration; the beginning of its name
  version=1.2.0           the version of the orchestration
  id=order-7 id=order-*   the id; the beginning of the id
  parent=batch-7          children of this workflow
  custom~half             the custom status contains the text
  created<2h updated>7d   created less than 2 h ago; last updated more than 7 days ago
  created>=2026-11-17     created at this time (UTC) or later; also 2026-11-17T04:05Z
  name=\"two words\"        a value with spaces. As in a shell, * within the double quotes is
                          an ordinary character: name=\"order*\" is the name order*

Examples:
  perihelion workflow list
  perihelion workflow list status=failed 'created<2h' --limit 200
  perihelion workflow list name='order*' --watch
  perihelion workflow list status=running -o jsonl | jq -r .instanceId";

/// List workflows, the last changed first and pending ones last
#[derive(Clone, Debug, Args)]
#[command(after_help = FILTERS)]
pub(super) struct ListArgs {
    /// Only workflows that match these terms
    filter: Vec<String>,

    /// The most workflows
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,

    /// List in the order of storage, which misses no workflow, and not the last changed first
    #[arg(long)]
    stored_order: bool,

    #[command(flatten)]
    watch: WatchArgs,
}

pub(super) async fn run(args: ListArgs, context: &Context) -> Result<(), Failure> {
    // A wrong filter is reported before any request is sent.
    options(&args)?;
    context
        .show(args.watch, async |provider| {
            let (limit, options) = (args.limit as usize, options(&args)?);
            let (rows, cut) = selection::read(provider, &options, limit, |_| true).await?;
            if cut == Some(Cut::Pages) {
                tell(format_args!("{MAY_BE_MORE}"));
            }
            if cut == Some(Cut::Limit) {
                let pending =
                    if options.status.is_none() { "; status=pending shows pending ones" } else { "" };
                tell(format_args!("there are more than {limit}: --limit N shows up to N{pending}"));
            }
            let rows: Vec<Instance> = rows.into_iter().map(Instance::from).collect();
            context.form.list(COLUMNS, &rows, now_ms())
        })
        .await
}

/// The options of the filter. Ages count from now.
fn options(args: &ListArgs) -> Result<ListOptions, Failure> {
    let order = if args.stored_order { ListOrder::Stored } else { ListOrder::RecentFirst };
    Ok(selection::parse_filter(&args.filter.join(" "))?.with_order(order))
}
