//! `perihelion workflow count`: how many workflows match a filter, by status.

use clap::Args;
use duroxide_cdb::InstanceCounts;
use serde::Serialize;

use super::selection;
use crate::context::{Context, WatchArgs, now_ms};
use crate::exit::Failure;
use crate::output::Form;
use crate::output::table::Column;
use crate::process::tell;

const EXAMPLES: &str = "\
Examples:
  perihelion workflow count
  perihelion workflow count name=order 'created<1d' --watch=10s

The filters are those of `perihelion workflow list`. The server counts; in a container with
millions of workflows a count costs many request units, and reads at most 210 pages.";

/// Count workflows by status
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct CountArgs {
    /// Only workflows that match these terms
    filter: Vec<String>,

    #[command(flatten)]
    watch: WatchArgs,
}

/// A row of the table: the number of workflows with a status.
#[derive(Debug, Serialize)]
struct StatusCount {
    status: String,
    count: u64,
}

/// The counts, as JSON shows them.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Counts {
    total: u64,
    is_complete: bool,
    by_status: std::collections::BTreeMap<String, u64>,
}

const COLUMNS: &[Column<StatusCount>] = &[
    Column::new("STATUS", |row, _| row.status.clone()),
    Column::number("COUNT", |row, _| row.count.to_string()),
];

pub(super) async fn run(args: CountArgs, context: &Context) -> Result<(), Failure> {
    let filter = args.filter.join(" ");
    // A wrong filter is reported before any request is sent.
    selection::parse_filter(&filter)?;
    context
        .show(args.watch, async |provider| {
            // The filter is parsed each time, because ages in it count from now.
            let options = selection::parse_filter(&filter)?;
            let counts = provider.count(&options).await;
            render(context.form, counts.map_err(Failure::provider)?)
        })
        .await
}

fn render(form: Form, counts: InstanceCounts) -> Result<String, Failure> {
    let (total, is_complete) = (counts.total(), counts.is_complete);
    if !is_complete {
        // The provider's limit: 200 pages of counts and 10 pages of pending instances.
        tell(format_args!("there are more: a count reads at most 210 pages"));
    }
    if form != Form::Table {
        return form.single(&Counts { total, is_complete, by_status: counts.by_status }, &[]);
    }
    let rows = counts.by_status.into_iter().map(|(status, count)| StatusCount { status, count });
    let rows: Vec<StatusCount> =
        rows.chain([StatusCount { status: "all".to_owned(), count: total }]).collect();
    form.list(COLUMNS, &rows, now_ms())
}
