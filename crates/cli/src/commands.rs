//! The commands. Each has a file with its arguments, its help and its `run`, and one row
//! in the table below that registers it. `dev` and `server` share `serve`.

mod cert;
mod check;
mod completions;
mod container;
mod dashboard;
mod demo;
mod dev;
mod doctor;
mod feed;
mod item;
mod man;
mod manage;
mod metrics;
mod migrate;
mod new;
mod noun;
mod query;
mod queue;
mod serve;
mod server;
mod session;
mod stress;
mod transaction;
mod worker;
mod workflow;

use std::process::ExitCode;
use std::time::Instant;

use clap::error::{ContextKind, ContextValue};
use clap::{Parser, Subcommand};

use crate::exit::{self, Failure};
use crate::process::tell;

const EXAMPLES: &str = "\
Examples:
  perihelion demo                    a shop on durable workflows; its worker is killed half way
  perihelion dev                     in memory on 127.0.0.1:8081
  perihelion dev --data ./data       the same, with data in ./data
  perihelion dev --throughput 400    answers 429 as a container with 400 RU/s does
  perihelion new my-app              a small project with a worker
  perihelion server --data /var/lib/perihelion --key-file /etc/perihelion/key
  perihelion dashboard               the dashboard of any account, on 127.0.0.1:8082
  perihelion workflow list status=failed 'created<2h'
  perihelion workflow execute hello --input '\"Ada\"'
  perihelion queue list --watch
  perihelion query 'SELECT * FROM c' -d shop -c orders --explain
  perihelion doctor                  checks an account and says what to do
  perihelion migrate --from duroxide/duroxide --to duroxide/workflows
  perihelion stress                  throughput, latency and cost of workflows
  perihelion transaction run transfer.json   writes to several containers, all or nothing
  perihelion manage GET counters     a request to the server's management interface
  perihelion check ./data            verifies a data directory that no server uses
  perihelion cert ca > ca.pem        the CA that signs the server's certificate";

/// A Cosmos-compatible database in one binary.
///
/// The official Azure Cosmos DB SDKs connect to it as to an account: HTTP/1.1
/// and HTTP/2, in clear and over TLS, all on one port.
#[derive(Debug, Parser)]
#[command(name = "perihelion", version, after_help = format!("{EXAMPLES}\n\n{}", exit::HELP))]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Registers the commands. `$args` has the arguments of a command, and its
/// documentation comment is the help. `$module::run` runs the command.
macro_rules! commands {
    ($($variant:ident($args:ty) => $module:ident),* $(,)?) => {
        #[derive(Debug, Subcommand)]
        enum Command {
            $($variant(Box<$args>)),*
        }

        impl Cli {
            /// Runs the command of the command line. The program began at `started_at`.
            pub(crate) fn run(self, started_at: Instant) -> Result<(), Failure> {
                match self.command {
                    $(Command::$variant(args) => $module::run(*args, started_at)),*
                }
            }
        }
    };
}

commands! {
    Demo(demo::DemoArgs) => demo,
    Dev(dev::DevArgs) => dev,
    Server(server::ServerArgs) => server,
    Dashboard(dashboard::DashboardArgs) => dashboard,
    New(new::NewArgs) => new,
    Workflow(workflow::WorkflowArgs) => workflow,
    Queue(queue::QueueArgs) => queue,
    Worker(worker::WorkerArgs) => worker,
    Session(session::SessionArgs) => session,
    Item(item::ItemArgs) => item,
    Container(container::ContainerArgs) => container,
    Query(query::QueryArgs) => query,
    Feed(feed::FeedArgs) => feed,
    Doctor(doctor::DoctorArgs) => doctor,
    Migrate(migrate::MigrateArgs) => migrate,
    Stress(stress::StressArgs) => stress,
    Transaction(transaction::TransactionArgs) => transaction,
    Metrics(metrics::MetricsArgs) => metrics,
    Manage(manage::ManageArgs) => manage,
    Check(check::CheckArgs) => check,
    Cert(cert::CertArgs) => cert,
    Completions(completions::CompletionsArgs) => completions,
    Man(man::ManArgs) => man,
}

impl Cli {
    /// Parses the command line. Help, and errors of usage, are printed, and the exit code is returned.
    pub(crate) fn from_command_line() -> Result<Cli, ExitCode> {
        Cli::try_parse().map_err(|error| {
            // If the text cannot be written, the exit code is enough.
            let _ = error.print();
            if let Some(name) = variable_of(&error, |name| std::env::var(name).ok()) {
                tell(format_args!("The value is that of the variable {name}."));
            }
            u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
        })
    }
}

/// The variable that gave a wrong value. clap names the option also if the value is from the
/// environment.
fn variable_of(error: &clap::Error, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let text = |kind| match error.get(kind)? {
        ContextValue::String(text) => Some(text.as_str()),
        _ => None,
    };
    let option = text(ContextKind::InvalidArg)?.strip_prefix("--")?.split(' ').next()?;
    let name = format!("PERIHELION_{}", option.replace('-', "_").to_ascii_uppercase());
    (variable(&name)? == text(ContextKind::InvalidValue)?).then_some(name)
}
