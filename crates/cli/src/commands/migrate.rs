//! `perihelion migrate`: moves the workflows of the published crate into a new
//! container, where this version of the provider continues them. The provider
//! does the work (`duroxide_cdb::Migration`). This command connects to the account,
//! writes progress to standard error, and prints the result to standard output.

use std::time::{Duration, Instant};

use clap::Args;
use duroxide_cdb::{ContainerName, Migration, MigrationReport};
use perihelion_client::Client;
use serde::Serialize;

use crate::account::{self, AccountArgs};
use crate::args::Level;
use crate::exit::{self, Failure};
use crate::logs;
use crate::names::container_name;
use crate::output::text::escaped;
use crate::output::{Form, OutputArgs};
use crate::process::{block_on, print, tell};

const EXAMPLES: &str = "\
Examples:
  export COSMOS_ENDPOINT=https://account.documents.azure.com COSMOS_KEY=...
  perihelion migrate --from duroxide/duroxide --to duroxide/workflows --dry-run
  perihelion migrate --from duroxide/duroxide --to duroxide/workflows

The old container is only read and stays as it is. Stop the programs that use it
first. When a run is interrupted, start it again: it continues where it stopped. Until
all workflows are moved, providers cannot open the new container.";

/// Move the workflows of the published crate duroxide-cdb (0.1.10 and before) into a new
/// container, where this version continues them.
#[derive(Clone, Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}\n\n{}", account::HELP, exit::HELP))]
pub(crate) struct MigrateArgs {
    /// The container of the published crate
    #[arg(long, value_name = "DATABASE/CONTAINER", value_parser = container_name)]
    from: ContainerName,

    /// The container to fill, created if missing
    #[arg(long, value_name = "DATABASE/CONTAINER", value_parser = container_name)]
    to: ContainerName,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    account: AccountArgs,

    /// Read and check everything, write nothing
    #[arg(long)]
    dry_run: bool,

    /// Move even if the old container was written to within the last minute or
    /// holds a valid lock: work that its workers do meanwhile may be lost or done
    /// twice
    #[arg(long)]
    force: bool,

    /// Do not move this instance; may be repeated
    #[arg(long, value_name = "INSTANCE")]
    leave: Vec<String>,
}

/// The result as JSON. It is printed also if some instances cannot be moved.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Moved<'a> {
    target: String,
    is_dry_run: bool,
    /// Whether an earlier run had moved everything. The counts are zero then.
    was_done: bool,
    instances: usize,
    events: usize,
    messages: usize,
    activities: usize,
    /// The instances that --leave names.
    left: &'a [String],
    failed: Vec<NotMoved<'a>>,
}

/// An instance that cannot be moved.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NotMoved<'a> {
    instance_id: &'a str,
    reason: &'a str,
}

/// How often progress is written.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// The most instances that the failure names. If more instances cannot be moved, they probably
/// have a common cause.
const NAMED_INSTANCES_MAX: usize = 20;

pub(crate) fn run(args: MigrateArgs, _started_at: Instant) -> Result<(), Failure> {
    logs::start(Level::Warn);
    block_on(migrate(args))
}

async fn migrate(args: MigrateArgs) -> Result<(), Failure> {
    if args.from == args.to {
        return Err(Failure::usage(
            format!("{} cannot be migrated into itself", args.from),
            "name a new container with --to: the old one stays as it is",
        ));
    }
    let account = args.account.resolve()?;
    let action = if args.dry_run { "checking the move" } else { "moving workflows" };
    tell(escaped(&format!("{action} from {} to {} on {}", args.from, args.to, account.described())));
    account.run(async |client| move_instances(client.clone(), args).await).await
}

async fn move_instances(client: Client, args: MigrateArgs) -> Result<(), Failure> {
    let (is_dry, form, target) = (args.dry_run, args.output.output, args.to.to_string());
    // The provider's message about a source that does not exist.
    let missing = format!("there is no container {}", args.from);
    let mut migration =
        Migration::new(client, args.from, args.to).with_dry_run(is_dry).with_force(args.force);
    for instance in args.leave {
        migration = migration.with_skipped_instance(instance);
    }
    let mut last_written = Instant::now();
    let progress = |report: &MigrationReport| {
        if last_written.elapsed() >= PROGRESS_INTERVAL {
            last_written = Instant::now();
            tell(format_args!("{} instances, {} events", report.instances, report.events));
        }
    };
    let report = migration.run(progress).await.map_err(|error| match error.message == missing {
        true => Failure::not_found(error.message).with_advice("check --from"),
        false => Failure::provider(error),
    })?;
    if form != Form::Table {
        print(&form.single(&Moved::new(&report, is_dry, target.clone()), &[])?)?;
    }
    if !report.failed.is_empty() {
        return Err(cannot_move(&report, is_dry));
    }
    if form != Form::Table {
        return Ok(());
    }
    let result = match (report.was_done, is_dry) {
        (true, _) => format!("nothing to do: an earlier run has filled {target}\n"),
        (false, true) => format!("would move {}\n", summary(&report)),
        (false, false) => format!("moved {}; from now on use {target} in your programs\n", summary(&report)),
    };
    print(&result)
}

impl<'a> Moved<'a> {
    fn new(report: &'a MigrationReport, is_dry_run: bool, target: String) -> Moved<'a> {
        let failed = report.failed.iter().map(|(instance_id, reason)| NotMoved { instance_id, reason });
        Moved {
            target,
            is_dry_run,
            was_done: report.was_done,
            instances: report.instances,
            events: report.events,
            messages: report.messages,
            activities: report.activities,
            left: &report.skipped,
            failed: failed.collect(),
        }
    }
}

fn summary(report: &MigrationReport) -> String {
    let MigrationReport { instances, events, messages, activities, skipped, .. } = report;
    let skipped = match skipped.len() {
        0 => String::new(),
        count => format!("; {count} not moved"),
    };
    format!(
        "{instances} instances with {events} events, {messages} messages and {activities} activities{skipped}"
    )
}

/// Names the instances that cannot be moved, and what to do about them.
fn cannot_move(report: &MigrationReport, is_dry: bool) -> Failure {
    let named = report
        .failed
        .iter()
        .take(NAMED_INSTANCES_MAX)
        .map(|(instance, why)| format!("\n  {instance:?}: {why}"));
    let named: String = named.collect();
    let more = match report.failed.len().saturating_sub(NAMED_INSTANCES_MAX) {
        0 => String::new(),
        more => format!("\n  and {more} more"),
    };
    let others = match is_dry {
        true => "This was a dry run: nothing was moved.",
        false => "The other instances are moved, except those named with --leave.",
    };
    Failure::runtime(format!(
        "{} instances cannot be moved:{named}{more}\n{others} Repair the instances of this list in \
         the old container, or leave each of them out with --leave, then run this command again",
        report.failed.len()
    ))
}
