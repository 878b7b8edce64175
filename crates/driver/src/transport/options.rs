//! Options of the HTTP transport.

use std::fmt;
use std::time::Duration;

/// The default connect timeout, the same as in Microsoft's driver. When a region takes
/// longer, another region is the better choice.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The default ping times, the same as in Microsoft's driver: a dead connection is
/// noticed within three seconds.
const PING_INTERVAL: Duration = Duration::from_secs(1);
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// The default number of HTTP/1.1 connections to one endpoint. Each connection carries one
/// request at a time.
const HTTP1_CONNECTIONS_MAX: usize = 64;

/// Options of [`HttpTransport`](super::HttpTransport).
#[derive(Clone)]
#[non_exhaustive]
pub struct HttpOptions {
    /// The time for name resolution, TCP, TLS and the HTTP handshake together (default
    /// 5 s).
    pub connect_timeout: Duration,
    /// The time between HTTP/2 pings, also while the connection is idle (default 1 s). With
    /// `None`, a connection is pinged only once, when it was opened.
    pub ping_interval: Option<Duration>,
    /// How long to wait for the answer to a ping before the connection is closed
    /// (default 2 s).
    pub ping_timeout: Duration,
    /// The most connections to an endpoint that only speaks HTTP/1.1 (default 64; 0 counts
    /// as 1).
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
    /// Sets the time for name resolution, TCP, TLS and the HTTP handshake together.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets the time between HTTP/2 pings; `None` for one ping only.
    pub fn with_ping_interval(mut self, interval: impl Into<Option<Duration>>) -> Self {
        self.ping_interval = interval.into();
        self
    }

    /// Sets how long to wait for the answer to a ping.
    pub fn with_ping_timeout(mut self, timeout: Duration) -> Self {
        self.ping_timeout = timeout;
        self
    }

    /// Sets the number of connections to an endpoint that only speaks HTTP/1.1; at
    /// least one.
    pub fn with_http1_connections_max(mut self, connections: usize) -> Self {
        self.http1_connections_max = connections.max(1);
        self
    }

    /// Sets whether `http://` is used for hosts other than this machine. Others on
    /// the network can then read everything, including tokens.
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

    /// Sets whether any certificate of a server on this machine is accepted: local
    /// emulators have a certificate that no authority has signed. Other hosts are verified
    /// regardless.
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
