//! `perihelion workflow tree`: a workflow and its sub-orchestrations, indented.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde::Serialize;

use super::instance::{self, Instance};
use crate::context::{Context, WatchArgs, now_ms};
use crate::exit::Failure;
use crate::output::table::Column;
use crate::output::text::age;
use crate::process::tell;

const EXAMPLES: &str = "\
Examples:
  perihelion workflow tree batch-7
  perihelion workflow tree batch-7 --watch

At most 1,000 workflows in 32 levels are shown.";

/// Show a workflow and its sub-orchestrations
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct TreeArgs {
    /// The instance at the root
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    instance: String,

    #[command(flatten)]
    watch: WatchArgs,
}

/// An instance of the tree, as JSON shows it.
#[derive(Debug, Serialize)]
struct Row {
    depth: usize,
    #[serde(flatten)]
    instance: Instance,
    #[serde(skip)]
    updated_ms: u64,
}

const COLUMNS: &[Column<Row>] = &[
    Column::new("INSTANCE", |row, _| format!("{}{}", "  ".repeat(row.depth), row.instance.instance_id)),
    Column::new("NAME", |row, _| row.instance.name.clone()),
    Column::new("STATUS", |row, _| row.instance.status.clone()),
    Column::new("UPDATED", |row, now_ms| age(row.updated_ms, now_ms)),
];

pub(super) async fn run(args: TreeArgs, context: &Context) -> Result<(), Failure> {
    context
        .show(args.watch, async |provider| {
            instance::get(provider, &args.instance).await?;
            let tree = provider.tree(&args.instance).await;
            let tree = tree.map_err(Failure::provider)?;
            if !tree.is_complete {
                // The limits are the provider's.
                tell(format_args!("there are more: at most 1,000 workflows in 32 levels are shown"));
            }
            let row = |row: duroxide_cdb::TreeInstance| Row {
                depth: row.depth,
                updated_ms: row.instance.updated_at,
                instance: row.instance.into(),
            };
            let rows: Vec<Row> = tree.instances.into_iter().map(row).collect();
            context.form.list(COLUMNS, &rows, now_ms())
        })
        .await
}
