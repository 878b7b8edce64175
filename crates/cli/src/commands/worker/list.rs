//! `perihelion worker list`: the processes that serve a container, by their heartbeats.

use clap::Args;
use duroxide_cdb::WorkerInfo;
use serde::Serialize;

use crate::context::{Context, WatchArgs, now_ms};
use crate::exit::Failure;
use crate::output::table::Column;
use crate::output::text::{age, time};
use crate::process::tell;

const EXAMPLES: &str = "\
Examples:
  perihelion worker list
  perihelion worker list --watch=5s

  SEEN        age of the last heartbeat. A process that does nothing writes none
  ALIVE       whether the last heartbeat is recent. With --data no worker is alive, because no
              other process can use the directory meanwhile
  BUSY        whether the process has taken work lately
  TURNS       whether the process runs orchestrations
  ACTIVITIES  the tags of the activities that it runs: * is all, untagged is those without a tag
  SLICES      how many slices of the container it polls
  SHARED      for how many slices it asks other processes to help

`perihelion dashboard` shows on its page Workers what each process holds. A heartbeat does not name
the orchestrations of its process. In JSON the tag - stands for activities without a tag.";

/// Show the processes that serve a container
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ListArgs {
    #[command(flatten)]
    watch: WatchArgs,
}

/// A process, as JSON shows it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Worker {
    worker: String,
    seen_at: String,
    is_alive: bool,
    runs_orchestrations: bool,
    activity_tags: Vec<String>,
    is_busy: bool,
    slices: usize,
    shared_slices: usize,
    /// The newest version of the store's layout that the process can read.
    readable_version: u32,
    #[serde(skip)]
    seen_ms: u64,
}

impl Worker {
    /// `is_open_here` says whether the workers belong to a data directory that this process has open.
    /// No worker can then be alive, whatever its heartbeat says.
    fn new(info: WorkerInfo, is_open_here: bool) -> Self {
        Worker {
            seen_at: time(info.seen_at_ms),
            seen_ms: info.seen_at_ms,
            worker: info.id,
            is_alive: info.is_alive && !is_open_here,
            runs_orchestrations: info.runs_orchestrations,
            activity_tags: info.activity_tags,
            is_busy: info.is_busy,
            slices: info.slices,
            shared_slices: info.shared_slices,
            readable_version: info.readable_version,
        }
    }
}

/// A tag as the table shows it. In JSON, `-` stands for activities without a tag. In the table, `-`
/// would look like an empty cell.
fn tag_name(tag: &str) -> &str {
    if tag == "-" { "untagged" } else { tag }
}

fn yes_or_no(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}

const COLUMNS: &[Column<Worker>] = &[
    Column::new("WORKER", |row, _| row.worker.clone()),
    Column::new("SEEN", |row, now_ms| age(row.seen_ms.min(now_ms), now_ms)),
    Column::new("ALIVE", |row, _| yes_or_no(row.is_alive)),
    Column::new("BUSY", |row, _| yes_or_no(row.is_busy)),
    Column::new("TURNS", |row, _| yes_or_no(row.runs_orchestrations)),
    Column::new("ACTIVITIES", |row, _| match row.activity_tags.is_empty() {
        true => "no".to_owned(),
        false => row.activity_tags.iter().map(|tag| tag_name(tag)).collect::<Vec<_>>().join(","),
    }),
    Column::number("SLICES", |row, _| row.slices.to_string()),
    Column::number("SHARED", |row, _| row.shared_slices.to_string()),
];

/// Why a worker with a recent heartbeat is shown as not alive.
const NO_WORKER_ALIVE: &str =
    "no worker is alive: this command has the data directory open, and no other process can use it meanwhile";

pub(super) async fn run(args: ListArgs, context: &Context) -> Result<(), Failure> {
    context
        .show(args.watch, async |provider| {
            let workers = provider.workers().await.map_err(Failure::provider)?;
            let is_open_here = context.account.is_data_directory();
            if is_open_here && workers.iter().any(|worker| worker.is_alive) {
                tell(format_args!("{NO_WORKER_ALIVE}"));
            }
            let rows: Vec<Worker> =
                workers.into_iter().map(|worker| Worker::new(worker, is_open_here)).collect();
            context.form.list(COLUMNS, &rows, now_ms())
        })
        .await
}
