//! `perihelion session list`: the activity sessions of a container.

use clap::Args;
use duroxide_cdb::SessionInfo;
use serde::Serialize;

use crate::context::{Context, WatchArgs, now_ms};
use crate::exit::Failure;
use crate::output::table::Column;
use crate::output::text::{age, time};

const EXAMPLES: &str = "\
Examples:
  perihelion session list
  perihelion session list --held -o jsonl

A session is held for the time under HELD; then any worker may take it. At most 1,000 sessions
of each physical partition are shown.";

/// Show the activity sessions of a container
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ListArgs {
    /// Only sessions that a worker holds now
    #[arg(long)]
    held: bool,

    #[command(flatten)]
    watch: WatchArgs,
}

/// A session, as JSON shows it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Session {
    session: String,
    owner: String,
    locked_until: String,
    used_at: String,
    #[serde(skip)]
    locked_until_ms: u64,
    #[serde(skip)]
    used_ms: u64,
}

impl From<SessionInfo> for Session {
    fn from(info: SessionInfo) -> Self {
        Session {
            session: info.name,
            owner: info.owner,
            locked_until: time(info.locked_until_ms),
            used_at: time(info.used_at_ms),
            locked_until_ms: info.locked_until_ms,
            used_ms: info.used_at_ms,
        }
    }
}

const COLUMNS: &[Column<Session>] = &[
    Column::new("SESSION", |row, _| row.session.clone()),
    Column::new("OWNER", |row, _| row.owner.clone()),
    Column::new("HELD", |row, now_ms| match row.locked_until_ms > now_ms {
        true => age(row.locked_until_ms, now_ms).trim_start_matches("in ").to_owned(),
        false => "no".to_owned(),
    }),
    Column::new("USED", |row, now_ms| age(row.used_ms.min(now_ms), now_ms)),
];

pub(super) async fn run(args: ListArgs, context: &Context) -> Result<(), Failure> {
    context
        .show(args.watch, async |provider| {
            let sessions = provider.sessions().await.map_err(Failure::provider)?;
            let now_ms = now_ms();
            let is_wanted = |row: &SessionInfo| !args.held || row.locked_until_ms > now_ms;
            let rows: Vec<Session> = sessions.into_iter().filter(is_wanted).map(Session::from).collect();
            context.form.list(COLUMNS, &rows, now_ms)
        })
        .await
}
