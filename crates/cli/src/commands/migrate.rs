//! `perihelion migrate`: moves the workflows of the published crate into a new
//! container, where this version of the provider goes on with them. The provider
//! does the work (`duroxide_cdb::Migration`); this command connects to the
//! account, writes progress to standard error and the result to standard output.

use std::io::Write;
use std::time::{Duration, Instant};

use clap::Args;
use duroxide_cdb::{ContainerName, Migration, MigrationReport};
use perihelion_client::{Client, Credential};

use crate::args::Level;
use crate::exit::{self, Failure};
use crate::logs;

const EXAMPLES: &str = "\
Examples:
  export COSMOS_ENDPOINT=https://account.documents.azure.com COSMOS_KEY=...
  perihelion migrate --from duroxide/duroxide --to duroxide/workflows --dry-run
  perihelion migrate --from duroxide/duroxide --to duroxide/workflows

The old container is only read; it stays as it is. Stop the programs that use it
first. A run that was cut off goes on where it stopped when it is repeated;
until it is through, the new container is closed to providers.";

/// Move the workflows of the published crate duroxide-cdb (0.1.10 and before) into a new
/// container, where this version goes on with them.
#[derive(Clone, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", exit::HELP))]
pub(crate) struct MigrateArgs {
    /// The container of the published crate
    #[arg(long, value_name = "DATABASE/CONTAINER")]
    from: ContainerName,

    /// The container to fill, made if missing
    #[arg(long, value_name = "DATABASE/CONTAINER")]
    to: ContainerName,

    /// The account, as the portal shows it. Others on this machine can read a
    /// command line: prefer the variable
    #[arg(long, value_name = "TEXT", env = "COSMOS_CONNECTION_STRING", hide_env_values = true)]
    connection_string: Option<String>,

    /// Where the account answers, in place of a connection string
    #[arg(long, value_name = "URL", env = "COSMOS_ENDPOINT", hide_env_values = true)]
    endpoint: Option<String>,

    /// The account's key, with --endpoint; prefer the variable
    #[arg(long, value_name = "KEY", env = "COSMOS_KEY", hide_env_values = true)]
    key: Option<String>,

    /// Read and check everything, write nothing
    #[arg(long)]
    dry_run: bool,

    /// Move although the old container was written to within the last minute,
    /// or holds a valid lock: what its workers do meanwhile may be lost, or
    /// happen twice
    #[arg(long)]
    force: bool,

    /// Leave this instance where it is; may be repeated
    #[arg(long, value_name = "INSTANCE")]
    leave: Vec<String>,
}

impl std::fmt::Debug for MigrateArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MigrateArgs")
            .field("from", &self.from)
            .field("to", &self.to)
            .field("dry_run", &self.dry_run)
            .field("force", &self.force)
            .field("leave", &self.leave)
            .finish_non_exhaustive()
    }
}

/// How often progress is told.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Instances that cannot be moved are named up to this many; more of them have
/// one cause.
const NAMED_MAX: usize = 20;

pub(crate) fn run(typed: MigrateArgs, _begun: Instant) -> Result<(), Failure> {
    logs::start(Level::Warn);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::runtime(format!("cannot start threads: {error}")))?;
    runtime.block_on(migrate(typed))
}

async fn migrate(typed: MigrateArgs) -> Result<(), Failure> {
    let client = connect(&typed).await?;
    let (is_dry, target) = (typed.dry_run, typed.to.clone());
    let mut migration =
        Migration::new(client, typed.from, typed.to).with_dry_run(is_dry).with_force(typed.force);
    for instance in typed.leave {
        migration = migration.leaving(instance);
    }
    let mut told = Instant::now();
    let watch = |report: &MigrationReport| {
        if told.elapsed() >= TELL_EVERY {
            told = Instant::now();
            eprintln!("{} instances, {} events", report.instances, report.events);
        }
    };
    let report = migration.run(watch).await.map_err(|error| Failure::runtime(error.message))?;
    if !report.failed.is_empty() {
        return Err(stuck(&report));
    }
    let said = match (report.was_done, is_dry) {
        (true, _) => format!("nothing to do: {target} was filled by an earlier run\n"),
        (false, true) => format!("would move {}\n", sum(&report)),
        (false, false) => format!("moved {}; open {target} now\n", sum(&report)),
    };
    std::io::stdout()
        .write_all(said.as_bytes())
        .map_err(|error| Failure::runtime(format!("cannot write to standard output: {error}")))
}

async fn connect(typed: &MigrateArgs) -> Result<Client, Failure> {
    let wrong = |error: perihelion_client::Error| Failure::usage(error, "see perihelion migrate --help");
    let connected = match (&typed.connection_string, &typed.endpoint, &typed.key) {
        (Some(text), _, _) => Client::builder().with_connection_string(text).connect().await,
        (None, Some(endpoint), Some(key)) => {
            Client::with_credential(endpoint, Credential::key(key).map_err(wrong)?).await
        }
        (None, _, _) => {
            return Err(Failure::usage(
                "which account?",
                "set COSMOS_CONNECTION_STRING, or COSMOS_ENDPOINT and COSMOS_KEY",
            ));
        }
    };
    connected.map_err(|error| Failure::runtime(format!("cannot reach the account: {error}")))
}

fn sum(report: &MigrationReport) -> String {
    let MigrationReport { instances, events, messages, activities, left, .. } = report;
    let left = match left.len() {
        0 => String::new(),
        count => format!("; {count} left where they are"),
    };
    format!(
        "{instances} instances with {events} events, {messages} messages and {activities} activities{left}"
    )
}

/// What to do about instances that cannot be moved.
fn stuck(report: &MigrationReport) -> Failure {
    let named =
        report.failed.iter().take(NAMED_MAX).map(|(instance, why)| format!("\n  {instance:?}: {why}"));
    let named: String = named.collect();
    let more = match report.failed.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!("\n  and {more} more"),
    };
    Failure::runtime(format!(
        "{} instances cannot be moved:{named}{more}\nEverything else is moved. Repair them in the old \
         container, or name each with --leave to do without it, and run this again",
        report.failed.len()
    ))
}
