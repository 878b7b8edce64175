//! `ServeArgs`: the options of `dev` and `server` as given on the command line, not yet
//! resolved. Options of one command only are in the file of that command.
//!
//! Every option except `--show-key` can also be given by an environment variable
//! `PERIHELION_<OPTION>`; the command line wins.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::FalseyValueParser;
use clap::{ArgAction, Args, ValueEnum};

// The options of `dev` and `server`. This is not a documentation comment, because clap
// would show such a comment as the help of the commands that flatten this struct.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ServeArgs {
    /// Port for HTTP/1.1 and HTTP/2, in clear and over TLS; 0 takes a free one
    /// [default: 8081]
    #[arg(long, value_name = "PORT", env = "PERIHELION_PORT", hide_env_values = true)]
    pub(crate) port: Option<u16>,

    /// Address or name to listen on [default: 127.0.0.1]
    #[arg(long, value_name = "HOST", env = "PERIHELION_HOST", hide_env_values = true)]
    pub(crate) host: Option<String>,

    /// Keep data in this directory, created if missing [default: in memory]
    #[arg(long, value_name = "DIR", alias = "data-path", env = "PERIHELION_DATA", hide_env_values = true)]
    pub(crate) data: Option<PathBuf>,

    /// Physical partitions of a new container
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=PARTITIONS_MAX))]
    #[arg(env = "PERIHELION_PARTITIONS", hide_env_values = true)]
    pub(crate) partitions: u32,

    /// Regions of the account: "West US,East US". The first one is the write region until
    /// a request changes that. Each region has a port of its own, the ones after --port
    /// [default: one region]
    #[arg(long, value_name = "NAMES", env = "PERIHELION_REGIONS", hide_env_values = true)]
    pub(crate) regions: Option<String>,

    /// Take writes in every region; the last writer wins
    #[arg(long, action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    #[arg(env = "PERIHELION_MULTI_WRITE", hide_env_values = true)]
    pub(crate) multi_write: bool,

    /// How long a write takes from one region to another: 50ms, 2s
    /// [default: 0ms]
    #[arg(long, value_name = "TIME", value_parser = parse_delay)]
    #[arg(env = "PERIHELION_REPLICATION_DELAY", hide_env_values = true)]
    pub(crate) replication_delay: Option<Duration>,

    /// Merge cross-partition queries in the server, for clients that cannot follow a
    /// query plan. By default they get 400/1004, as from the service's gateway
    #[arg(long, action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    #[arg(env = "PERIHELION_MERGE_IN_GATEWAY", hide_env_values = true)]
    pub(crate) merge_in_gateway: bool,

    /// Refuse queries as the service's gateway does: cross-partition queries that
    /// the SDK must merge get 400/1004, and a page has rows of one range only. This
    /// is the default
    #[arg(long, action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    #[arg(env = "PERIHELION_STRICT_GATEWAY", hide_env_values = true)]
    pub(crate) strict_gateway: bool,

    /// Refuse queries that need an index which the container's policy does not
    /// have: filters and ORDER BY of excluded paths get 400
    #[arg(long, action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    #[arg(env = "PERIHELION_STRICT_INDEX", hide_env_values = true)]
    pub(crate) strict_index: bool,

    /// Throttle: request units per second of a container without an offer of
    /// its own. Requests beyond that get 429 [default: no throttling]
    #[arg(long, value_name = "RU", value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(env = "PERIHELION_THROUGHPUT", hide_env_values = true)]
    pub(crate) throughput: Option<u32>,

    /// Most operations of a distributed transaction [default: 100]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    #[arg(env = "PERIHELION_TRANSACTION_OPERATIONS", hide_env_values = true)]
    pub(crate) transaction_operations: Option<u32>,

    /// Most bytes of the body of a distributed transaction [default: 2097152]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=TRANSACTION_BYTES_MAX))]
    #[arg(env = "PERIHELION_TRANSACTION_BYTES", hide_env_values = true)]
    pub(crate) transaction_bytes: Option<u32>,

    /// How long the answers of distributed transactions are kept for requests that
    /// are sent again: 90s, 30m, 24h [default: 24h]
    #[arg(long, value_name = "TIME", value_parser = parse_ledger_age)]
    #[arg(env = "PERIHELION_LEDGER_AGE", hide_env_values = true)]
    pub(crate) ledger_age: Option<Duration>,

    /// Most answers of distributed transactions that are kept. Beyond that new
    /// transactions get 429 [default: 10000000]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    #[arg(env = "PERIHELION_LEDGER_ENTRIES", hide_env_values = true)]
    pub(crate) ledger_entries: Option<u64>,

    /// Most bytes of the answers of distributed transactions that are kept. Beyond that
    /// new transactions get 429 [default: 4294967296]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    #[arg(env = "PERIHELION_LEDGER_BYTES", hide_env_values = true)]
    pub(crate) ledger_bytes: Option<u64>,

    /// Refuse distributed transactions as the service's preview does: containers with
    /// hierarchical keys get 400/5406
    #[arg(long, action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    #[arg(env = "PERIHELION_STRICT_TRANSACTIONS", hide_env_values = true)]
    pub(crate) strict_transactions: bool,

    /// Most concurrent requests on one HTTP/2 connection. The real service allows
    /// about 20 [default: 100]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    #[arg(env = "PERIHELION_STREAMS_PER_CONNECTION", hide_env_values = true)]
    pub(crate) streams_per_connection: Option<u32>,

    /// Master key in base64 [default: the emulators' well-known key]. Other users
    /// of this machine can read a command line: prefer the variable or a file
    #[arg(long, value_name = "KEY", env = "PERIHELION_KEY", hide_env_values = true)]
    pub(crate) key: Option<String>,

    /// File with the master key in base64
    #[arg(long, value_name = "FILE", env = "PERIHELION_KEY_FILE", hide_env_values = true)]
    pub(crate) key_file: Option<PathBuf>,

    /// Show a key that is not the well-known one in the banner
    #[arg(long)]
    pub(crate) show_key: bool,

    /// Allow the well-known key on an address that other machines can reach. Every
    /// client that reaches the port then has full access to the data
    #[arg(long, action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    #[arg(env = "PERIHELION_ALLOW_WELL_KNOWN_KEY", hide_env_values = true)]
    pub(crate) allow_well_known_key: bool,

    /// Allow --auth any and --auth off on an address that other machines can reach.
    /// Every client that reaches the port then has full access to the data
    #[arg(long, action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    #[arg(env = "PERIHELION_ALLOW_WEAK_AUTH", hide_env_values = true)]
    pub(crate) allow_weak_auth: bool,

    /// Which requests are accepted
    #[arg(long, value_enum, default_value_t, env = "PERIHELION_AUTH", hide_env_values = true)]
    pub(crate) auth: Auth,

    /// Serve the management interface (always on with `dev`)
    #[arg(long, action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    #[arg(env = "PERIHELION_MANAGEMENT", hide_env_values = true)]
    pub(crate) management: bool,

    /// An additional name for the certificate; may be repeated
    #[arg(
        long,
        value_name = "NAME",
        env = "PERIHELION_TLS_NAME",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub(crate) tls_name: Vec<String>,

    /// Endpoint in the account document, in place of the one that the client used
    #[arg(long, value_name = "URL", alias = "gateway-endpoint", alias = "gateway-public-endpoint")]
    #[arg(env = "PERIHELION_PUBLIC_ENDPOINT", hide_env_values = true)]
    pub(crate) public_endpoint: Option<String>,

    /// Answer GET / without a signature, as the emulator image does. Some test
    /// containers wait for that [default: off]
    #[arg(long, action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    #[arg(env = "PERIHELION_OPEN_ACCOUNT", hide_env_values = true)]
    pub(crate) open_account: bool,

    /// Serve on a second port too: the emulator image answers health checks on
    /// 8080 (/alive, /ready, /status) [default: off]
    #[arg(long, value_name = "PORT", env = "PERIHELION_HEALTH_PORT", hide_env_values = true)]
    pub(crate) health_port: Option<u16>,

    /// Export metrics to a collector of OpenTelemetry at this URL, as OTLP over HTTP:
    /// http://127.0.0.1:4318 [default: no export]
    #[arg(long, value_name = "URL", env = "PERIHELION_OTLP_ENDPOINT", hide_env_values = true)]
    pub(crate) otlp_endpoint: Option<String>,

    /// Log level on standard error [default: warn with `dev`, info with `server`]
    #[arg(long, value_enum, value_name = "LEVEL", alias = "log-level", ignore_case = true)]
    #[arg(env = "PERIHELION_LOG", hide_env_values = true)]
    pub(crate) log: Option<Level>,
}

/// The longest replication delay.
const REPLICATION_DELAY_MAX: Duration = Duration::from_secs(60);

/// Parses `--replication-delay`, at most [`REPLICATION_DELAY_MAX`].
fn parse_delay(text: &str) -> Result<Duration, String> {
    let bad = || format!("`{text}` is not a time of at most 60s: write it like 50ms or 2s");
    parse_time(text).filter(|time| *time <= REPLICATION_DELAY_MAX).ok_or_else(bad)
}

/// The most bytes of a transaction: as many as the listener accepts in any request.
const TRANSACTION_BYTES_MAX: i64 = 4 * 1024 * 1024;

/// Parses `--ledger-age`, at least a second.
fn parse_ledger_age(text: &str) -> Result<Duration, String> {
    let bad = || format!("`{text}` is not a time of at least 1s: write it like 90s, 30m or 24h");
    parse_time(text).filter(|age| *age >= Duration::from_secs(1)).ok_or_else(bad)
}

/// Parses a time such as `50ms`, `2s`, `5m` or `24h`.
pub(crate) fn parse_time(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let number: u64 = number.parse().ok()?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_secs(number.checked_mul(60)?)),
        "h" => Some(Duration::from_secs(number.checked_mul(60 * 60)?)),
        _ => None,
    }
}

/// Whether the text of a variable means yes. clap reads the variables of options in the same way.
pub(crate) fn is_on(text: impl AsRef<str>) -> bool {
    let text = text.as_ref().trim().to_ascii_lowercase();
    !["", "0", "n", "no", "f", "false", "off"].contains(&text.as_str())
}

/// The most physical partitions of a new container. Each costs memory, and time in every
/// cross-partition query. The service starts a container with few partitions.
const PARTITIONS_MAX: i64 = 256;

/// `--auth`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Auth {
    /// Requests signed with the master key
    #[default]
    Key,
    /// Signed requests, and any Entra ID token without a check: for local development
    Any,
    /// All requests
    Off,
}

/// The mode as given on the command line.
impl std::fmt::Display for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Auth::Key => "key",
            Auth::Any => "any",
            Auth::Off => "off",
        })
    }
}

/// `--log`.
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
