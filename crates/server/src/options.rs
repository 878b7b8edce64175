//! Options of an account, and of the two ways to run it: behind a listener
//! ([`ServerOptions`]) and inside a process ([`EmbeddedOptions`]).

use std::path::PathBuf;
use std::time::Duration;

use perihelion_engine::{Clock, LedgerLimits};
use perihelion_wire::signature::MasterKey;
use perihelion_wire::transaction::TransactionLimits;

use crate::net::Limits;
use crate::regions::RegionNames;

/// The keys that a client may sign with.
#[derive(Clone, Debug)]
pub struct Keys {
    /// The account's primary master key.
    pub primary: MasterKey,
}

/// Which requests are accepted. Health checks need no signature in any mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthMode {
    /// Requests signed with the key, and requests with a resource token that the key signed.
    Key,
    /// All requests that `Key` accepts, and requests with any Entra ID token. The Entra ID
    /// token is not checked: this is for local development.
    Any,
    /// All requests.
    Off,
}

/// The options of an account: its data, its partitions and its regions.
#[derive(Clone, Debug)]
pub struct AccountOptions {
    /// The data directory; `None` keeps data in memory.
    pub data: Option<PathBuf>,
    /// Physical partitions of a new container.
    pub partitions: u32,
    /// Refuse the cross-partition queries that the service's gateway refuses, and end pages where the
    /// service ends them. The default is `false`; the programs `perihelion server` and `dev` set it
    /// unless `--merge-in-gateway` is given.
    pub strict_gateway: bool,
    /// Refuse queries that need an index which the container's policy does not have. A query
    /// whose ORDER BY lacks its composite index is refused without this option too.
    pub strict_index: bool,
    /// Switches throttling on. A container with an offer of its own, or in a database
    /// with an offer, gets the request units of that offer; any other container gets this
    /// many per second. `None`: no throttling.
    pub throughput: Option<u32>,
    /// The account's regions. In a new account the first region is the write region.
    pub regions: RegionNames,
    /// Every region takes writes; the last writer wins.
    pub multi_write: bool,
    /// How long a write takes from one region to another.
    pub replication_delay: Duration,
    /// Limits of distributed transactions.
    pub transactions: TransactionOptions,
}

/// Limits of distributed transactions (`docs/transactions.md`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransactionOptions {
    /// The most operations and bytes of one transaction.
    pub limits: TransactionLimits,
    /// How many answers are recorded, and for how long. A request that is sent again gets its
    /// recorded answer.
    pub ledger: LedgerLimits,
    /// Refuse what the service's preview refuses: hierarchical partition keys.
    pub is_strict: bool,
}

impl Default for AccountOptions {
    fn default() -> Self {
        AccountOptions {
            data: None,
            partitions: 1,
            strict_gateway: false,
            strict_index: false,
            throughput: None,
            regions: RegionNames::default(),
            multi_write: false,
            replication_delay: Duration::ZERO,
            transactions: TransactionOptions::default(),
        }
    }
}

/// The options of a [`Server`](crate::Server).
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The account to serve.
    pub account: AccountOptions,
    /// The address or name to listen on.
    pub host: String,
    /// The port of the account's endpoint; 0 takes a free port. With several regions,
    /// each region has a port of its own: one of the ports after `port`, or a free port
    /// when `port` is 0.
    pub port: u16,
    /// The key that signatures are checked with.
    pub keys: Keys,
    /// Which requests are accepted.
    pub auth: AuthMode,
    /// Serve the management interface.
    pub management: bool,
    /// The directory of the certificates; `None` makes them in memory.
    pub tls_dir: Option<PathBuf>,
    /// Names for the certificate besides the host and the local names.
    pub tls_names: Vec<String>,
    /// The endpoint in the account document. When it is `None`, the document echoes
    /// the address that the client used. With several regions, the port of each region
    /// is computed from the port of this endpoint.
    pub public_endpoint: Option<String>,
    /// Answer a `GET /` that has no authorization header, as the emulator image does.
    pub open_account: bool,
    /// A second port of the account's endpoint. The emulator image answers health checks
    /// on a second port, 8080.
    pub health_port: Option<u16>,
    /// The bounds of each listener.
    pub limits: Limits,
}

/// The default server listens on a free loopback port, stores data in memory, uses
/// the emulators' key and has no management interface.
impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            account: AccountOptions::default(),
            host: "127.0.0.1".to_owned(),
            port: 0,
            keys: Keys { primary: MasterKey::emulator() },
            auth: AuthMode::Key,
            management: false,
            tls_dir: None,
            tls_names: Vec::new(),
            public_endpoint: None,
            open_account: false,
            health_port: None,
            limits: Limits::default(),
        }
    }
}

/// The options of an [`Embedded`](crate::Embedded) database.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EmbeddedOptions {
    /// The account to open.
    pub account: AccountOptions,
    /// The key that signatures are checked with, unless `auth` is off.
    pub keys: Keys,
    /// Which requests are accepted. By default all of them: every caller is in the
    /// same process.
    pub auth: AuthMode,
    /// The clock: for the times of writes, for expiry and throttling, for the current
    /// time in queries, and for the dates of signatures.
    pub clock: Clock,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        EmbeddedOptions {
            account: AccountOptions::default(),
            keys: Keys { primary: MasterKey::emulator() },
            auth: AuthMode::Off,
            clock: Clock::system(),
        }
    }
}

impl EmbeddedOptions {
    /// Keeps data in this directory, which is created if it is missing.
    pub fn with_data(mut self, directory: impl Into<PathBuf>) -> Self {
        self.account.data = Some(directory.into());
        self
    }

    /// Gives new containers this many physical partitions.
    pub fn with_partitions(mut self, partitions: u32) -> Self {
        self.account.partitions = partitions;
        self
    }

    /// Sets whether the cross-partition queries that the service's gateway refuses are
    /// refused, and whether pages end where the service ends them.
    pub fn with_strict_gateway(mut self, is_strict: bool) -> Self {
        self.account.strict_gateway = is_strict;
        self
    }

    /// Sets whether a query is refused if it needs an index which the container's policy does
    /// not have.
    pub fn with_strict_index(mut self, is_strict: bool) -> Self {
        self.account.strict_index = is_strict;
        self
    }

    /// Switches throttling on, with this many request units per second for a container
    /// without an offer (see [`AccountOptions::throughput`]). `None` switches it off.
    pub fn with_throughput(mut self, units: Option<u32>) -> Self {
        self.account.throughput = units;
        self
    }

    /// Sets which requests are accepted, and the key that signatures are checked with.
    pub fn with_auth(mut self, auth: AuthMode, keys: Keys) -> Self {
        (self.auth, self.keys) = (auth, keys);
        self
    }

    /// Gives the account these regions, each with an endpoint of its own.
    pub fn with_regions(mut self, regions: RegionNames) -> Self {
        self.account.regions = regions;
        self
    }

    /// Sets whether every region takes writes.
    pub fn with_multi_write(mut self, is_multi_write: bool) -> Self {
        self.account.multi_write = is_multi_write;
        self
    }

    /// Delays each write by this time on its way to another region.
    pub fn with_replication_delay(mut self, delay: Duration) -> Self {
        self.account.replication_delay = delay;
        self
    }

    /// Sets the limits of distributed transactions.
    pub fn with_transactions(mut self, options: TransactionOptions) -> Self {
        self.account.transactions = options;
        self
    }

    /// Replaces the system's clock; see [`EmbeddedOptions::clock`].
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }
}
