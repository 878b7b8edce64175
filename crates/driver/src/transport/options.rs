//! What users may set about connections.

use std::fmt;
use std::time::Duration;

/// As the published driver has it: a region that takes longer is better
/// replaced by another.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Likewise: a dead connection is noticed within three seconds.
const PING_INTERVAL: Duration = Duration::from_secs(1);
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// One request each: as many as browsers and pools open in all, and enough
/// for the gateways that still speak nothing else.
const HTTP1_CONNECTIONS_MAX: usize = 64;

/// Options of [`HttpTransport`](super::HttpTransport).
#[derive(Clone)]
#[non_exhaustive]
pub struct HttpOptions {
    /// Name resolution, TCP and TLS together (default 5 s).
    pub connect_timeout: Duration,
    /// Between HTTP/2 pings, also while idle (default 1 s); `None` for no pings.
    pub ping_interval: Option<Duration>,
    /// How long a ping may go unanswered before the connection counts as dead
    /// (default 2 s).
    pub ping_timeout: Duration,
    /// Connections to an endpoint that only speaks HTTP/1.1 (default 64).
    pub http1_connections_max: usize,
    /// Whether `http://` is used for hosts other than this machine (default no).
    pub allow_cleartext: bool,
    /// Certificates of authorities to trust besides the system's, as PEM.
    pub ca_pem: Vec<u8>,
    /// Whether any certificate of a server on this machine is accepted
    /// (default no). Other hosts are verified regardless.
    pub accept_unknown_loopback_certificates: bool,
}

impl Default for HttpOptions {
    fn default() -> Self {
        HttpOptions {
            connect_timeout: CONNECT_TIMEOUT,
            ping_interval: Some(PING_INTERVAL),
            ping_timeout: PING_TIMEOUT,
            http1_connections_max: HTTP1_CONNECTIONS_MAX,
            allow_cleartext: false,
            ca_pem: Vec::new(),
            accept_unknown_loopback_certificates: false,
        }
    }
}

impl HttpOptions {
    /// Name resolution, TCP and TLS together.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Between HTTP/2 pings; `None` for no pings.
    pub fn with_ping_interval(mut self, interval: impl Into<Option<Duration>>) -> Self {
        self.ping_interval = interval.into();
        self
    }

    /// How long a ping may go unanswered.
    pub fn with_ping_timeout(mut self, timeout: Duration) -> Self {
        self.ping_timeout = timeout;
        self
    }

    /// Connections to an endpoint that only speaks HTTP/1.1; at least one.
    pub fn with_http1_connections_max(mut self, connections: usize) -> Self {
        self.http1_connections_max = connections.max(1);
        self
    }

    /// Whether `http://` is used for hosts other than this machine: everything
    /// sent can then be read on the way, tokens included.
    pub fn with_allow_cleartext(mut self, allow: bool) -> Self {
        self.allow_cleartext = allow;
        self
    }

    /// Trusts these authorities besides the system's; may be called repeatedly.
    pub fn with_ca_pem(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.ca_pem.extend_from_slice(pem.as_ref());
        self.ca_pem.push(b'\n');
        self
    }

    /// Accepts any certificate of a server on this machine, as local emulators
    /// have one that nobody has signed. Other hosts are verified regardless.
    pub fn with_accept_unknown_loopback_certificates(mut self, accept: bool) -> Self {
        self.accept_unknown_loopback_certificates = accept;
        self
    }
}

impl fmt::Debug for HttpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpOptions")
            .field("connect_timeout", &self.connect_timeout)
            .field("ping_interval", &self.ping_interval)
            .field("ping_timeout", &self.ping_timeout)
            .field("http1_connections_max", &self.http1_connections_max)
            .field("allow_cleartext", &self.allow_cleartext)
            .field("ca_pem_bytes", &self.ca_pem.len())
            .field("accept_unknown_loopback_certificates", &self.accept_unknown_loopback_certificates)
            .finish()
    }
}
