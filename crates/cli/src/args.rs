//! `ServeArgs`: the options of `dev` and `server` as they were typed, not yet
//! resolved. Options of one command only are in the file of that command.
//!
//! Every option can also be given by an environment variable
//! `PERIHELION_<OPTION>`; the command line wins.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::FalseyValueParser;
use clap::{ArgAction, Args, ValueEnum};

// The options of `dev` and `server`. Not a documentation comment: clap would show
// it as the help of the commands that flatten this struct.
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
