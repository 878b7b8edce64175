//! `perihelion queue list`: the depth of each queue and the age of its oldest entry.

use clap::Args;
use duroxide_cdb::{QueueInfo, QueueKind};
use serde::Serialize;

use crate::context::{Context, WatchArgs, now_ms};
use crate::exit::Failure;
use crate::output::table::Column;
use crate::output::text::{age, time};

const EXAMPLES: &str = "\
Examples:
  perihelion queue list
  perihelion queue list --watch

  turns               messages that wait for a turn of their workflow
  activities          activities that wait for a worker
  running-activities  activities that a worker has, or that wait for a retry
  timers              timers that are not due

OLDEST is how long the oldest entry waits or runs; for timers, when the next one is due. At most
2,000 entries of each queue are counted in a physical partition; + means that there may be more.";

/// Show the depth of each queue and the age of its oldest entry
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ListArgs {
    #[command(flatten)]
    watch: WatchArgs,
}

/// A queue, as JSON shows it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Queue {
    queue: &'static str,
    depth: u64,
    is_exact: bool,
    since: Option<String>,
    #[serde(skip)]
    since_ms: Option<u64>,
}

impl From<QueueInfo> for Queue {
    fn from(info: QueueInfo) -> Self {
        let queue = match info.kind {
            QueueKind::Turns => "turns",
            QueueKind::Activities => "activities",
            QueueKind::RunningActivities => "running-activities",
            QueueKind::Timers => "timers",
            // The enum of the provider may grow.
            _ => "other",
        };
        let since = info.since_ms.map(time);
        Queue { queue, depth: info.depth, is_exact: info.is_exact, since, since_ms: info.since_ms }
    }
}

const COLUMNS: &[Column<Queue>] = &[
    Column::new("QUEUE", |row, _| row.queue.to_owned()),
    Column::number("DEPTH", |row, _| format!("{}{}", row.depth, if row.is_exact { "" } else { "+" })),
    Column::new("OLDEST", |row, now_ms| row.since_ms.map_or("-".to_owned(), |ms| age(ms, now_ms))),
];

pub(super) async fn run(args: ListArgs, context: &Context) -> Result<(), Failure> {
    context
        .show(args.watch, async |provider| {
            let queues = provider.queues().await.map_err(Failure::provider)?;
            let rows: Vec<Queue> = queues.into_iter().map(Queue::from).collect();
            context.form.list(COLUMNS, &rows, now_ms())
        })
        .await
}
