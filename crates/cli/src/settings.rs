//! `Settings`: the options of `dev` and `server`, resolved and checked.

use std::path::{Path, PathBuf};

use perihelion_server::{
    AccountOptions, AuthMode, Keys, LedgerLimits, Limits, MasterKey, RegionNames, ServerOptions,
    TransactionLimits, TransactionOptions, certificates,
};
use perihelion_wire::transport::is_loopback;

use crate::args::{Auth, Level, ServeArgs};
use crate::exit::Failure;
use crate::secret::{FILE_BYTES_MAX, Secret};

const DEFAULT_PORT: u16 = 8081;
const DEFAULT_HOST: &str = "127.0.0.1";

/// The subdirectory of a data directory that holds the certificates.
const TLS_DIRECTORY: &str = "tls";

/// The command that starts the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Dev,
    Server,
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::Dev => "dev",
            Mode::Server => "server",
        }
    }
}

/// The resolved options of `dev` or `server`.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) mode: Mode,
    pub(crate) options: ServerOptions,
    pub(crate) log: Level,
    pub(crate) show_key: bool,
    /// The collector that gets the metrics.
    pub(crate) otlp_endpoint: Option<String>,
}

impl Settings {
    /// Resolves and checks the options of the command line.
    pub(crate) fn resolve(args: ServeArgs, mode: Mode) -> Result<Settings, Failure> {
        let transactions = transactions(&args);
        let host = args.host.unwrap_or_else(|| DEFAULT_HOST.to_owned());
        let primary = master_key(args.key.as_deref(), args.key_file.as_deref())?;
        if primary.is_emulator_key() && !is_loopback(&host) && !args.allow_well_known_key {
            return Err(Failure::usage(
                format!("the well-known key is public, and {host} can be reached from other machines"),
                "give a key of your own with --key-file, or allow it with --allow-well-known-key \
                 (PERIHELION_ALLOW_WELL_KNOWN_KEY=1 in a test container)",
            ));
        }
        if args.auth != Auth::Key && !is_loopback(&host) && !args.allow_weak_auth {
            return Err(Failure::usage(
                format!(
                    "--auth {} lets in clients without a key, and {host} can be reached from other machines",
                    args.auth
                ),
                "use --auth key, or allow it with --allow-weak-auth (PERIHELION_ALLOW_WEAK_AUTH=1 in a test container)",
            ));
        }
        if args.strict_gateway && args.merge_in_gateway {
            return Err(Failure::usage(
                "--strict-gateway and --merge-in-gateway contradict each other",
                "give only --merge-in-gateway if a client cannot merge the results of partitions, \
                 else give neither",
            ));
        }
        let log = args.log.unwrap_or(match mode {
            Mode::Dev => Level::Warn,
            Mode::Server => Level::Info,
        });
        let options = ServerOptions {
            host,
            port: args.port.unwrap_or(DEFAULT_PORT),
            tls_dir: tls_directory(args.data.as_deref()),
            account: AccountOptions {
                data: args.data,
                partitions: args.partitions,
                strict_gateway: !args.merge_in_gateway,
                strict_index: args.strict_index,
                throughput: args.throughput,
                regions: parse_regions(args.regions.as_deref())?,
                multi_write: args.multi_write,
                replication_delay: args.replication_delay.unwrap_or_default(),
                transactions,
            },
            keys: Keys { primary },
            auth: match args.auth {
                Auth::Key => AuthMode::Key,
                Auth::Any => AuthMode::Any,
                Auth::Off => AuthMode::Off,
            },
            management: args.management || mode == Mode::Dev,
            tls_names: tls_names(args.tls_name, args.public_endpoint.as_deref())?,
            public_endpoint: args.public_endpoint,
            open_account: args.open_account,
            health_port: args.health_port,
            limits: limits(args.streams_per_connection),
        };
        Ok(Settings { mode, options, log, show_key: args.show_key, otlp_endpoint: args.otlp_endpoint })
    }
}

/// The limits of the listeners. `streams_per_connection` replaces the default for the most
/// concurrent requests on an HTTP/2 connection.
fn limits(streams_per_connection: Option<u32>) -> Limits {
    let mut limits = Limits::default();
    limits.streams = streams_per_connection.unwrap_or(limits.streams);
    limits
}

/// The limits of distributed transactions: from the command line, or their defaults.
fn transactions(args: &ServeArgs) -> TransactionOptions {
    let (limits, ledger) = (TransactionLimits::default(), LedgerLimits::default());
    TransactionOptions {
        limits: TransactionLimits {
            operations_max: args.transaction_operations.map_or(limits.operations_max, |max| max as usize),
            body_bytes_max: args.transaction_bytes.map_or(limits.body_bytes_max, |max| max as usize),
        },
        ledger: LedgerLimits {
            age: args.ledger_age.unwrap_or(ledger.age),
            entries_max: args.ledger_entries.unwrap_or(ledger.entries_max),
            bytes_max: args.ledger_bytes.unwrap_or(ledger.bytes_max),
        },
        is_strict: args.strict_transactions,
    }
}

fn parse_regions(text: Option<&str>) -> Result<RegionNames, Failure> {
    let names = text.map_or_else(|| Ok(RegionNames::default()), RegionNames::parse);
    names.map_err(|error| {
        Failure::usage(format!("--regions: {error}"), "write it like --regions \"West US,East US\"")
    })
}

/// The directory of the certificates: in the data directory if there is one, else in
/// the user's cache. `None` if there is no cache either.
pub(crate) fn tls_directory(data: Option<&Path>) -> Option<PathBuf> {
    match data {
        Some(data) => Some(data.join(TLS_DIRECTORY)),
        None => certificates::cache_directory(),
    }
}

/// The key from the command line or from the file, or the emulators' key if neither is given.
fn master_key(key: Option<&str>, file: Option<&Path>) -> Result<MasterKey, Failure> {
    let advice = "create a key with: openssl rand -base64 64 | tr -d '\\n'";
    match (key, file) {
        (None, None) => Ok(MasterKey::emulator()),
        (Some(_), Some(_)) => Err(Failure::usage("both a key and a key file are given", "give one of them")),
        (Some(key), None) => {
            MasterKey::from_base64(key).map_err(|error| Failure::usage(format!("--key: {error}"), advice))
        }
        (None, Some(path)) => {
            let key = Secret::read_file(path, FILE_BYTES_MAX, "one key in base64").map_err(|error| {
                Failure::usage(format!("the key file {}: {error}", path.display()), "check --key-file")
            })?;
            MasterKey::from_base64(key.reveal())
                .map_err(|error| Failure::usage(format!("the key file {}: {error}", path.display()), advice))
        }
    }
}

/// The additional names for the certificate: the names of the command line, and the host of
/// the public endpoint, because clients use that host.
fn tls_names(mut names: Vec<String>, endpoint: Option<&str>) -> Result<Vec<String>, Failure> {
    if let Some(endpoint) = endpoint {
        let host = host_of(endpoint).ok_or_else(|| {
            Failure::usage(
                format!("the public endpoint {endpoint:?} is not a URL"),
                "write it like https://cosmos.internal:8081",
            )
        })?;
        names.push(host.to_owned());
    }
    Ok(names)
}

/// The host of an http or https URL.
fn host_of(endpoint: &str) -> Option<&str> {
    let rest = endpoint.strip_prefix("https://").or_else(|| endpoint.strip_prefix("http://"))?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = match authority.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once(']')?.0,
        None => authority.split(':').next()?,
    };
    (!host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN_KEY: &str = "bm90IGEgc2VjcmV0";

    fn default_args() -> ServeArgs {
        ServeArgs { partitions: 1, ..ServeArgs::default() }
    }

    fn is_refused(args: ServeArgs) -> bool {
        Settings::resolve(args, Mode::Server).is_err_and(|failure| failure.code() == 2)
    }

    #[test]
    fn the_defaults_are_local_and_in_memory() {
        let settings = Settings::resolve(default_args(), Mode::Dev).expect("settings");
        assert_eq!((settings.options.host.as_str(), settings.options.port), ("127.0.0.1", 8081));
        assert_eq!(settings.options.account.data, None);
        assert!(settings.options.keys.primary.is_emulator_key());
        assert!(settings.options.management);
        assert!(!Settings::resolve(default_args(), Mode::Server).expect("settings").options.management);
    }

    #[test]
    fn queries_are_merged_in_the_server_only_with_merge_in_gateway() {
        for mode in [Mode::Dev, Mode::Server] {
            let is_strict =
                |args| Settings::resolve(args, mode).expect("settings").options.account.strict_gateway;
            assert!(is_strict(default_args()), "as the service");
            assert!(
                is_strict(ServeArgs { strict_gateway: true, ..default_args() }),
                "the option of earlier versions"
            );
            assert!(!is_strict(ServeArgs { merge_in_gateway: true, ..default_args() }));
            let both = ServeArgs { strict_gateway: true, merge_in_gateway: true, ..default_args() };
            assert!(is_refused(both), "the two options contradict each other");
        }
    }

    #[test]
    fn transaction_limits_without_an_option_have_their_defaults() {
        let settings = |args| Settings::resolve(args, Mode::Dev).expect("settings").options.account;
        assert_eq!(settings(default_args()).transactions, TransactionOptions::default());
        let changed = settings(ServeArgs {
            transaction_operations: Some(7),
            ledger_age: Some(std::time::Duration::from_secs(60)),
            strict_transactions: true,
            ..default_args()
        });
        assert_eq!(changed.transactions.limits.operations_max, 7);
        assert_eq!(changed.transactions.ledger.age.as_secs(), 60);
        assert!(changed.transactions.is_strict);
    }

    #[test]
    fn the_well_known_key_stays_on_loopback_unless_allowed() {
        let on = |host: &str| ServeArgs { host: Some(host.to_owned()), ..default_args() };
        for host in ["127.0.0.1", "127.8.9.1", "::1", "localhost", "::ffff:127.0.0.1"] {
            assert!(!is_refused(on(host)), "{host}");
        }
        for host in ["0.0.0.0", "::", "192.168.1.4", "db.internal"] {
            assert!(is_refused(on(host)), "{host}");
            assert!(!is_refused(ServeArgs { allow_well_known_key: true, ..on(host) }), "{host}");
            assert!(!is_refused(ServeArgs { key: Some(OWN_KEY.to_owned()), ..on(host) }), "{host}");
        }
    }

    #[test]
    fn weak_modes_of_authentication_stay_on_loopback_unless_allowed() {
        let with = |host: &str, auth| ServeArgs {
            host: Some(host.to_owned()),
            key: Some(OWN_KEY.to_owned()),
            auth,
            ..default_args()
        };
        for auth in [Auth::Any, Auth::Off] {
            assert!(!is_refused(with("127.0.0.1", auth)), "{auth}");
            assert!(is_refused(with("0.0.0.0", auth)), "{auth}");
            assert!(!is_refused(ServeArgs { allow_weak_auth: true, ..with("0.0.0.0", auth) }), "{auth}");
        }
        assert!(!is_refused(with("0.0.0.0", Auth::Key)));
        // The option that allows the well-known key allows nothing else.
        assert!(is_refused(ServeArgs { allow_well_known_key: true, ..with("0.0.0.0", Auth::Off) }));
    }

    #[test]
    fn a_key_must_be_strict_base64_and_is_never_repeated_in_an_error() {
        for key in ["", "not base64!", "bm90IGEgc2VjcmV", "bm90IGEgc2VjcmV0\n"] {
            let failure =
                Settings::resolve(ServeArgs { key: Some(key.to_owned()), ..default_args() }, Mode::Dev)
                    .expect_err("not a key");
            assert!(key.is_empty() || !format!("{failure:?}").contains(key), "{failure:?}");
        }
        let both =
            ServeArgs { key: Some(OWN_KEY.to_owned()), key_file: Some("/nowhere".into()), ..default_args() };
        assert!(is_refused(both));
        assert!(is_refused(ServeArgs { key_file: Some("/nowhere/at/all".into()), ..default_args() }));
    }

    #[test]
    fn the_host_of_a_public_endpoint_is_found() {
        for (endpoint, host) in [
            ("https://cosmos:8081/", Some("cosmos")),
            ("http://db.internal", Some("db.internal")),
            ("https://[fd00::1]:8081", Some("fd00::1")),
            ("cosmos:8081", None),
            ("https://", None),
        ] {
            assert_eq!(host_of(endpoint), host, "{endpoint}");
        }
    }

    #[test]
    fn regions_are_a_list_of_names() {
        let with = |names: &str| ServeArgs { regions: Some(names.to_owned()), ..default_args() };
        let settings = Settings::resolve(with("West US, North Europe"), Mode::Dev).expect("settings");
        assert_eq!(settings.options.account.regions.to_string(), "West US,North Europe");
        assert_eq!(
            Settings::resolve(default_args(), Mode::Dev)
                .expect("settings")
                .options
                .account
                .regions
                .to_string(),
            "South Central US"
        );
        for bad in ["", "West US,West US", "a/b"] {
            assert!(is_refused(with(bad)), "{bad}");
        }
    }

    #[test]
    fn certificates_are_kept_with_the_data() {
        let args = ServeArgs { data: Some("/var/lib/p".into()), ..default_args() };
        let settings = Settings::resolve(args, Mode::Server).expect("settings");
        assert_eq!(settings.options.tls_dir, Some(PathBuf::from("/var/lib/p/tls")));
    }
}
