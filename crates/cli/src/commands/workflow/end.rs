//! Waits for the end of a workflow. The workflow is read often at first and then less often,
//! because each read costs request units.

use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use duroxide::providers::ProviderAdmin;
use duroxide_cdb::{CosmosDBProvider, ListedInstance};
use serde::Serialize;
use tokio::time::{Instant, timeout_at};

use super::instance;
use crate::args::parse_time;
use crate::context::Context;
use crate::exit::Failure;
use crate::output::Form;
use crate::output::text::{duration, escaped, time};
use crate::process::{print, tell};

/// The first pause between two reads. Each pause is 1.5 times as long as the pause before it.
const PAUSE_FIRST: Duration = Duration::from_millis(20);

/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The longest time to wait.
const TIMEOUT_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

// How long to wait. Not a documentation comment: clap would show it as the help.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct TimeoutArgs {
    /// How long to wait: 30s, 5m, 2h
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_timeout)]
    pub(super) timeout: Duration,
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    parse_time(text)
        .filter(|time| *time <= TIMEOUT_MAX)
        .ok_or_else(|| format!("`{text}` is not a time of at most 720h: write it like 30s, 5m or 2h"))
}

/// A workflow that has ended, as JSON shows it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Ended {
    instance_id: String,
    status: String,
    created_at: String,
    completed_at: Option<String>,
    output: Option<String>,
}

/// How long a workflow may be pending before the heartbeats of the workers are read. A worker that has
/// nothing else to do takes a start within a second.
const PENDING_MAX: Duration = Duration::from_secs(3);

/// The least time that a read gets before it is given up, also if the deadline is sooner. It is a
/// little longer than one attempt of the driver. So `--timeout 0s` reads once, and a wait ends even
/// if the account does not answer.
const READ_TIME_MIN: Duration = Duration::from_secs(7);

/// How long reading the workers' heartbeats may take, to find out why a workflow is pending.
const REASON_TIME_MAX: Duration = Duration::from_secs(2);

/// Waits until a workflow has ended. If no worker can run the workflow, standard error says so once.
/// A transient failure of a read is also printed there, but not again if the next reads fail in the
/// same way.
pub(super) async fn wait(
    context: &Context,
    provider: &CosmosDBProvider,
    id: &str,
    timeout: Duration,
) -> Result<ListedInstance, Failure> {
    let began = Instant::now();
    let deadline = began + timeout;
    let mut pause = PAUSE_FIRST;
    let (mut is_told, mut last_failure) = (false, String::new());
    loop {
        let read_until = deadline.max(Instant::now() + READ_TIME_MIN);
        let (state, is_pending) = match timeout_at(read_until, read_instance(provider, id)).await {
            Ok(Ok(row)) if instance::is_ended(&row.status) => return Ok(row),
            Ok(Ok(row)) => {
                last_failure.clear();
                (format!("is {}", row.status.to_lowercase()), row.status == "Pending")
            }
            // A transient failure does not mean that the workflow has ended.
            Ok(Err(failure)) if failure.is_transient() => {
                if last_failure != failure.message() {
                    tell(escaped(&format!("cannot read {id:?}: {}", failure.message())));
                    last_failure = failure.message().to_owned();
                }
                (format!("cannot be read ({})", failure.message()), false)
            }
            Ok(Err(failure)) => return Err(failure),
            // The deadline has passed.
            Err(_) if !last_failure.is_empty() => (format!("cannot be read ({last_failure})"), false),
            Err(_) => ("was not read in time".to_owned(), false),
        };
        let now = Instant::now();
        if now >= deadline {
            let waited = duration(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
            let stopped = why_stopped(context, provider, is_pending).await;
            let advice = stopped.unwrap_or("wait longer with --timeout; the workflow goes on");
            return Err(Failure::timeout(format!("{id:?} {state} after {waited}")).with_advice(advice));
        }
        if !is_told
            && now >= began + PENDING_MAX
            && let Some(why) = why_stopped(context, provider, is_pending).await
        {
            tell(format_args!("{} {}: {why}", escaped(id), escaped(&state)));
            is_told = true;
        }
        tokio::time::sleep_until(deadline.min(Instant::now() + pause)).await;
        pause = (pause * 3 / 2).min(PAUSE_MAX);
    }
}

/// Why the workflow does not go on; `None` if it probably does.
async fn why_stopped(
    context: &Context,
    provider: &CosmosDBProvider,
    is_pending: bool,
) -> Option<&'static str> {
    match context.account.is_data_directory() {
        true => Some(NOTHING_RUNS),
        false if is_pending && !has_live_worker(provider).await => Some(NO_WORKER),
        false => None,
    }
}

const NO_WORKER: &str =
    "no worker is alive on this container. Start one; until then the workflow stays in the queue";

const NOTHING_RUNS: &str =
    "no worker can run while this command has the data directory open. Start a server and a worker on it";

/// Whether a process is alive that runs orchestrations. `true` if the heartbeats cannot be read in
/// time: nothing is then known about the processes.
async fn has_live_worker(provider: &CosmosDBProvider) -> bool {
    let Ok(workers) = tokio::time::timeout(REASON_TIME_MAX, provider.workers()).await else { return true };
    workers.map_or(true, |all| all.iter().any(|worker| worker.is_alive && worker.runs_orchestrations))
}

/// The instance, with its output if it has ended.
async fn read_instance(provider: &CosmosDBProvider, id: &str) -> Result<ListedInstance, Failure> {
    let mut row = instance::get(provider, id).await?;
    if instance::is_ended(&row.status) && row.output.is_none() && row.output_length.is_some() {
        // The output is too large for a row.
        row.output = provider.get_instance_info(id).await.map_err(Failure::provider)?.output;
    }
    Ok(row)
}

/// Prints the result of a workflow. A workflow that failed is a failure.
pub(super) fn print_end(context: &Context, row: ListedInstance) -> Result<(), Failure> {
    let is_failed = row.status == "Failed";
    let output = row.output.clone().unwrap_or_default();
    match context.form {
        Form::Table if is_failed => {}
        Form::Table => {
            let took = row.completed_at.map(|at| duration(at.saturating_sub(row.created_at)));
            let took = took.map_or_else(String::new, |took| format!(" in {took}"));
            tell(format_args!("{} {}{took}", escaped(&row.instance_id), row.status.to_lowercase()));
            // A program gets the output as it is. On a terminal, control characters must not act.
            let is_terminal = std::io::stdout().is_terminal();
            print(&format!("{}\n", if is_terminal { escaped(&output) } else { output.clone() }))?;
        }
        Form::Json | Form::Jsonl => {
            let ended = Ended {
                instance_id: row.instance_id.clone(),
                status: row.status,
                created_at: time(row.created_at),
                completed_at: row.completed_at.map(time),
                output: row.output,
            };
            print(&context.form.single(&ended, &[])?)?;
        }
    }
    match is_failed {
        true => Err(Failure::workflow(format!("{:?} failed: {}", row.instance_id, escaped(&output)))),
        false => Ok(()),
    }
}
