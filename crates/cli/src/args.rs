//! What was typed: the command line as clap reads it, nothing resolved yet.
//!
//! Every option of `dev` and `server` can also be given by an environment
//! variable `PERIHELION_<OPTION>`; the command line wins.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::FalseyValueParser;
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use duroxide_cdb::ContainerName;

use crate::{exit, image};

const EXAMPLES: &str = "\
Examples:
  perihelion demo                    a shop on durable workflows, and a kill half way
  perihelion dev                     in memory on 127.0.0.1:8081
  perihelion dev --data ./data       the same, kept in ./data
  perihelion dev --throughput 400    answers 429 as a container of 400 RU/s would
  perihelion server --data /var/lib/perihelion --key-file /etc/perihelion/key
  perihelion migrate --from duroxide/duroxide --to duroxide/workflows
  perihelion cert ca > ca.pem        the CA that signs the server's certificate";

const DEMO_EXAMPLES: &str = "\
Examples:
  perihelion demo                    24 orders, nothing left behind
  perihelion demo --orders 200
  perihelion demo --data ./shop      keep the workflows, to look into them";

const MIGRATE_EXAMPLES: &str = "\
Examples:
  export COSMOS_ENDPOINT=https://account.documents.azure.com COSMOS_KEY=...
  perihelion migrate --from duroxide/duroxide --to duroxide/workflows --dry-run
  perihelion migrate --from duroxide/duroxide --to duroxide/workflows

The old container is only read; it stays as it is. Stop the programs that use it
first. A run that was cut off goes on where it stopped when it is repeated;
until it is through, the new container is closed to providers.";

const DEV_EXAMPLES: &str = "\
Examples:
  perihelion dev                                   in memory, management on
  perihelion dev --data ./data --partitions 4      kept, four ranges per container
  perihelion dev --regions 'West US,East US' --replication-delay 50ms
  perihelion dev --strict-gateway                  refuse what the real gateway refuses
  perihelion dev --auth any                        for DefaultAzureCredential

The banner on standard output ends with the line \"Started\", printed once the
server answers. Logs go to standard error.";

const SERVER_EXAMPLES: &str = "\
Examples:
  perihelion server --data /var/lib/perihelion --key-file /etc/perihelion/key
  perihelion server --host 0.0.0.0 --key-file /run/secrets/key --tls-name db.internal
  PERIHELION_ALLOW_WELL_KNOWN_KEY=1 perihelion server --host 0.0.0.0   (a test container)

SIGTERM and SIGINT let requests in flight finish, then end the program; a
second signal ends it at once.";

/// A Cosmos-compatible database in one binary.
///
/// The official Azure Cosmos DB SDKs connect to it as to an account: HTTP/1.1
/// and HTTP/2, in clear and over TLS, all on one port.
#[derive(Debug, Parser)]
#[command(name = "perihelion", version, after_help = format!("{EXAMPLES}\n\n{}", exit::HELP))]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a small shop on durable workflows: kill its worker half way, start
    /// another, and see every order completed exactly once.
    #[command(after_help = format!("{DEMO_EXAMPLES}\n\n{}", exit::HELP))]
    Demo(DemoArgs),
    /// Start a server for development: in memory unless told otherwise, with
    /// the management interface.
    #[command(after_help = format!("{DEV_EXAMPLES}\n\n{}", exit::HELP))]
    Dev(Box<ServeArgs>),
    /// Start a server for long-running use: logs, no management interface
    /// unless asked for.
    #[command(after_help = format!("{SERVER_EXAMPLES}\n\n{}\n\n{}", image::HELP, exit::HELP))]
    Server(Box<ServerArgs>),
    /// Move the workflows of the published crate duroxide-cdb (0.1.10 and before) into a new
    /// container, where this version goes on with them.
    #[command(after_help = format!("{MIGRATE_EXAMPLES}\n\n{}", exit::HELP))]
    Migrate(MigrateArgs),
    /// Show the certificate authority that signs the server's certificate.
    #[command(after_help = exit::HELP)]
    Cert(CertArgs),
}

/// What `demo` takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct DemoArgs {
    /// How many customers order
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u32).range(2..=ORDERS_MAX))]
    pub(crate) orders: u32,

    /// Keep the workflows in this directory, made if missing and empty at
    /// first [default: a temporary one, removed at the end]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    /// Be the worker of a shop
    #[arg(long, hide = true)]
    pub(crate) worker: bool,
}

/// A demo that takes longer than a coffee is none.
const ORDERS_MAX: i64 = 1_000;

/// What `migrate` takes.
#[derive(Clone, Args)]
pub(crate) struct MigrateArgs {
    /// The container of the published crate
    #[arg(long, value_name = "DATABASE/CONTAINER")]
    pub(crate) from: ContainerName,

    /// The container to fill, made if missing
    #[arg(long, value_name = "DATABASE/CONTAINER")]
    pub(crate) to: ContainerName,

    /// The account, as the portal shows it. Others on this machine can read a
    /// command line: prefer the variable
    #[arg(long, value_name = "TEXT", env = "COSMOS_CONNECTION_STRING", hide_env_values = true)]
    pub(crate) connection_string: Option<String>,

    /// Where the account answers, in place of a connection string
    #[arg(long, value_name = "URL", env = "COSMOS_ENDPOINT", hide_env_values = true)]
    pub(crate) endpoint: Option<String>,

    /// The account's key, with --endpoint; prefer the variable
    #[arg(long, value_name = "KEY", env = "COSMOS_KEY", hide_env_values = true)]
    pub(crate) key: Option<String>,

    /// Read and check everything, write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Move although the old container was written to within the last minute,
    /// or holds a valid lock: what its workers do meanwhile may be lost, or
    /// happen twice
    #[arg(long)]
    pub(crate) force: bool,

    /// Leave this instance where it is; may be repeated
    #[arg(long, value_name = "INSTANCE")]
    pub(crate) leave: Vec<String>,
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

/// The options of `dev` and `server`.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ServeArgs {
    /// Port for all four dialects; 0 takes a free one [default: 8081]
    #[arg(long, value_name = "PORT", env = "PERIHELION_PORT", hide_env_values = true)]
    pub(crate) port: Option<u16>,

    /// Address or name to listen on [default: 127.0.0.1]
    #[arg(long, value_name = "HOST", env = "PERIHELION_HOST", hide_env_values = true)]
    pub(crate) host: Option<String>,

    /// Keep data in this directory, made if missing [default: in memory]
    #[arg(long, value_name = "DIR", alias = "data-path", env = "PERIHELION_DATA", hide_env_values = true)]
    pub(crate) data: Option<PathBuf>,

    /// Physical partitions of a new container
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=PARTITIONS_MAX))]
    #[arg(env = "PERIHELION_PARTITIONS", hide_env_values = true)]
    pub(crate) partitions: u32,

    /// Regions of the account, the first one first to write: "West US,East US".
    /// Each answers on a port of its own, the ones after --port
    /// [default: one region]
    #[arg(long, value_name = "NAMES", env = "PERIHELION_REGIONS", hide_env_values = true)]
    pub(crate) regions: Option<String>,

    /// Take writes in every region; the last writer wins
    #[arg(long, action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    #[arg(env = "PERIHELION_MULTI_WRITE", hide_env_values = true)]
    pub(crate) multi_write: bool,

    /// How long a write takes from one region to another: 50ms, 2s
    /// [default: 0ms]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    #[arg(env = "PERIHELION_REPLICATION_DELAY", hide_env_values = true)]
    pub(crate) replication_delay: Option<Duration>,

    /// Refuse what the real gateway refuses: queries across partitions that
    /// the SDK must merge get 400/1004
    #[arg(long, action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    #[arg(env = "PERIHELION_STRICT_GATEWAY", hide_env_values = true)]
    pub(crate) strict_gateway: bool,

    /// Throttle: request units per second of a container without an offer of
    /// its own; more is answered with 429 [default: no throttling]
    #[arg(long, value_name = "RU", value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(env = "PERIHELION_THROUGHPUT", hide_env_values = true)]
    pub(crate) throughput: Option<u32>,

    /// Master key in base64 [default: the emulators' well-known key]. Others on
    /// this machine can read a command line: prefer the variable or a file
    #[arg(long, value_name = "KEY", env = "PERIHELION_KEY", hide_env_values = true)]
    pub(crate) key: Option<String>,

    /// File with the master key in base64
    #[arg(long, value_name = "FILE", env = "PERIHELION_KEY_FILE", hide_env_values = true)]
    pub(crate) key_file: Option<PathBuf>,

    /// Print a key of your own in the banner instead of hiding it
    #[arg(long)]
    pub(crate) show_key: bool,

    /// Allow the well-known key on an address that others can reach: whoever
    /// reaches the port then owns the data
    #[arg(long, action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    #[arg(env = "PERIHELION_ALLOW_WELL_KNOWN_KEY", hide_env_values = true)]
    pub(crate) allow_well_known_key: bool,

    /// Who is let in
    #[arg(long, value_enum, default_value_t, env = "PERIHELION_AUTH", hide_env_values = true)]
    pub(crate) auth: Auth,

    /// Serve the management interface (always on with `dev`)
    #[arg(long, action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    #[arg(env = "PERIHELION_MANAGEMENT", hide_env_values = true)]
    pub(crate) management: bool,

    /// One more name for the certificate; may be repeated
    #[arg(
        long,
        value_name = "NAME",
        env = "PERIHELION_TLS_NAME",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub(crate) tls_name: Vec<String>,

    /// Endpoint to tell clients in place of the one they used
    #[arg(long, value_name = "URL", alias = "gateway-endpoint", alias = "gateway-public-endpoint")]
    #[arg(env = "PERIHELION_PUBLIC_ENDPOINT", hide_env_values = true)]
    pub(crate) public_endpoint: Option<String>,

    /// Answer GET / without a signature, as the emulator image does: some test
    /// containers wait for it [default: off]
    #[arg(long, env = "PERIHELION_OPEN_ACCOUNT", hide_env_values = true)]
    pub(crate) open_account: bool,

    /// Serve on a second port too, as the emulator image does on 8080 for
    /// health checks: /alive, /ready, /status [default: off]
    #[arg(long, value_name = "PORT", env = "PERIHELION_HEALTH_PORT", hide_env_values = true)]
    pub(crate) health_port: Option<u16>,

    /// What to log on standard error [default: warn with `dev`, info with `server`]
    #[arg(long, value_enum, value_name = "LEVEL", alias = "log-level", ignore_case = true)]
    #[arg(env = "PERIHELION_LOG", hide_env_values = true)]
    pub(crate) log: Option<Level>,
}

/// The longest replication delay: longer than any test waits.
const REPLICATION_DELAY_MAX: Duration = Duration::from_secs(60);

/// Reads `50ms` or `2s`.
fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("`{text}` is not a time up to 60s: write it like 50ms or 2s");
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let number: u64 = number.parse().map_err(|_| bad())?;
    let time = match unit {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        _ => return Err(bad()),
    };
    if time <= REPLICATION_DELAY_MAX { Ok(time) } else { Err(bad()) }
}

/// Every range costs memory and a slot in each cross-partition query; the
/// service itself starts a container with a handful.
const PARTITIONS_MAX: i64 = 256;

/// What `server` takes: the common options and, hidden, the arguments of the
/// official emulator image that mean nothing here.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServerArgs {
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
    #[command(flatten)]
    pub(crate) image: image::ImageArgs,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Auth {
    /// Signatures by the master key
    #[default]
    Key,
    /// Those, or any Entra ID token: for local development
    Any,
    /// Everybody
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    #[value(alias = "quiet")]
    Off,
    Error,
    #[value(alias = "warning")]
    Warn,
    #[value(alias = "information")]
    Info,
    Debug,
    Trace,
}

#[derive(Debug, Args)]
pub(crate) struct CertArgs {
    #[command(subcommand)]
    pub(crate) what: CertCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CertCommand {
    /// Print the CA certificate (PEM), for a trust store
    Ca(CertPlace),
    /// Print the path of the CA certificate
    Path(CertPlace),
}

#[derive(Debug, Args)]
pub(crate) struct CertPlace {
    /// The server's data directory, if it has one
    #[arg(long, value_name = "DIR", env = "PERIHELION_DATA", hide_env_values = true)]
    pub(crate) data: Option<PathBuf>,
}
