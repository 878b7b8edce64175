//! `perihelion workflow list`: workflows that match a filter, page by page up to a limit.

use clap::Args;
use duroxide_cdb::{ListOptions, ListOrder, ListedInstance};
use serde::Serialize;

use super::instance::Instance;
use super::selection::{self, Cut, MAY_BE_MORE};
use crate::context::{Context, WatchArgs, now_ms};
use crate::exit::Failure;
use crate::output::table::Column;
use crate::output::text::{age, cut};
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
  perihelion workflow list status=running -o jsonl | jq -r .instanceId

COST is what the turns of a workflow have cost, as far as it is stored: the cost of a turn is
stored by the next turn.";

/// List workflows, the last changed first and pending ones last
#[derive(Clone, Debug, Args)]
#[command(after_help = FILTERS)]
pub(super) struct ListArgs {
    /// Only workflows that match these terms
    filter: Vec<String>,

    /// List at most this many workflows
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,

    /// List in the order of storage, in place of the last changed first. This misses no workflow
    #[arg(long)]
    stored_order: bool,

    #[command(flatten)]
    watch: WatchArgs,
}

/// The most characters of a custom status in the table.
const CUSTOM_STATUS_CHARS_MAX: usize = 40;

/// A workflow, as JSON shows it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    #[serde(flatten)]
    instance: Instance,
    /// `None` until the second turn: the cost of a turn is stored by the next turn.
    request_units: Option<f64>,
    #[serde(skip)]
    created_ms: u64,
    #[serde(skip)]
    updated_ms: u64,
}

impl From<ListedInstance> for Row {
    fn from(row: ListedInstance) -> Self {
        Row {
            request_units: (row.charge_centi_ru > 0).then(|| row.charge_centi_ru as f64 / 100.0),
            created_ms: row.created_at,
            updated_ms: row.updated_at,
            instance: row.into(),
        }
    }
}

const COLUMNS: &[Column<Row>] = &[
    Column::new("INSTANCE", |row, _| row.instance.instance_id.clone()),
    Column::new("NAME", |row, _| row.instance.name.clone()),
    Column::new("STATUS", |row, _| row.instance.status.clone()),
    Column::new("CREATED", |row, now_ms| age(row.created_ms, now_ms)),
    Column::new("UPDATED", |row, now_ms| age(row.updated_ms, now_ms)),
    Column::number("COST", |row, _| {
        row.request_units.map_or_else(|| "-".to_owned(), |units| format!("{units:.2} RU"))
    }),
    Column::new("CUSTOM STATUS", |row, _| {
        cut(row.instance.custom_status.as_deref().unwrap_or("-"), CUSTOM_STATUS_CHARS_MAX)
    }),
];

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
            let rows: Vec<Row> = rows.into_iter().map(Row::from).collect();
            context.form.list(COLUMNS, &rows, now_ms())
        })
        .await
}

/// The options of the filter. Ages count from now.
fn options(args: &ListArgs) -> Result<ListOptions, Failure> {
    let order = if args.stored_order { ListOrder::Stored } else { ListOrder::RecentFirst };
    Ok(selection::parse_filter(&args.filter.join(" "))?.with_order(order))
}
