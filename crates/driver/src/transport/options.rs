//! Options of the HTTP transport.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::crypto::CryptoProvider;

use super::client_certificate::ClientCertificate;
use super::faults::FaultSource;
use super::proxy::ProxyChoice;

/// The default connect timeout, the same as in Microsoft's driver. When a region takes
/// longer, another region is the better choice.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The default ping times, the same as in Microsoft's driver: a dead connection is
/// noticed within three seconds.
const PING_INTERVAL: Duration = Duration::from_secs(1);
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// The default number of streams on one HTTP/2 connection: the number that the service
/// allows.
const STREAMS_PER_CONNECTION_MAX: usize = 20;

/// The default number of HTTP/2 connections that stay open without requests.
const CONNECTIONS_MIN: usize = 1;

/// The default of `connections_max`: this many connections for each core, within the two bounds
/// below. The number of requests in flight depends mostly on the latency of the service, and
/// hardly on the number of cores. So even a small machine may have 32 connections, for 640 requests
/// at a time.
const CONNECTIONS_PER_CORE: usize = 8;
const CONNECTIONS_MAX_AT_LEAST: usize = 32;
const CONNECTIONS_MAX_AT_MOST: usize = 256;

/// The default time after which an HTTP/2 connection without requests is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The default time without a byte from the peer after which a connection with requests is
/// given up. A lost packet is sent again several times within this time.
const READ_HANG_LIMIT: Duration = Duration::from_secs(2);

/// The least value of `read_hang_limit` and of `ping_timeout`. A peer needs some time to answer a
/// ping.
const ANSWER_TIME_MIN: Duration = Duration::from_millis(50);

/// The default number of HTTP/1.1 connections to one endpoint. Each connection carries one
/// request at a time.
const HTTP1_CONNECTIONS_MAX: usize = 64;

/// Options of [`HttpTransport`](super::HttpTransport). Environment variables set options that the
/// application left at their default: the head of `transport/environment.rs` and docs/driver.md
/// list them.
#[derive(Clone)]
#[non_exhaustive]
pub struct HttpOptions {
    /// The time for name resolution, TCP, TLS and the HTTP handshake together (default
    /// 5 s).
    pub connect_timeout: Duration,
    /// The time between HTTP/2 pings, also while the connection is idle (default 1 s). With
    /// `None`, a connection is pinged only right after it was opened, and when requests wait and
    /// nothing arrives.
    pub ping_interval: Option<Duration>,
    /// How long to wait for the answer to a ping before the connection is closed
    /// (default 2 s). A connection on which anything else arrives meanwhile is kept.
    pub ping_timeout: Duration,
    /// The most streams, and so requests at a time, on one HTTP/2 connection (default 20,
    /// the number that the service allows; 0 counts as 1). A peer that allows fewer gets
    /// fewer.
    pub streams_per_connection_max: usize,
    /// How many HTTP/2 connections to an endpoint stay open without requests (default 1; 0
    /// counts as 1). They are opened after the first request. A connection that the peer
    /// closes is replaced when a request needs it.
    pub connections_min: usize,
    /// The most HTTP/2 connections to one endpoint. The default is 8 for each core, at
    /// least 32 and at most 256 (0 counts as 1). With 20 streams each, 32 connections carry
    /// 640 requests at a time; further requests wait, at most until their deadline.
    pub connections_max: usize,
    /// How long an HTTP/2 connection beyond `connections_min` stays open without requests
    /// (default 60 s).
    pub idle_timeout: Duration,
    /// How long requests wait on an HTTP/2 connection from which nothing arrives, not even
    /// the answer to a ping, before the connection is closed (default 2 s). Its reads are
    /// then sent again on another connection. Other requests fail, and it is not known whether
    /// they were sent. A slow answer does not count as silence.
    pub read_hang_limit: Duration,
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
    /// Whether connections go through a proxy (default: as the environment says).
    pub proxy: ProxyChoice,
    /// The certificate by which servers recognise this client (default: none).
    pub client_certificate: Option<ClientCertificate>,
    /// The cryptography of TLS (default: aws-lc-rs).
    pub crypto_provider: Option<Arc<CryptoProvider>>,
    /// The whole configuration of TLS, instead of the driver's own (default: none).
    pub tls_config: Option<Arc<ClientConfig>>,
    /// The source of injected faults.
    pub(super) faults: FaultSource,
}

/// The error for options that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadHttpOptions(Cow<'static, str>);

impl BadHttpOptions {
    pub(super) fn new(text: impl Into<Cow<'static, str>>) -> Self {
        BadHttpOptions(text.into())
    }
}

impl fmt::Display for BadHttpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadHttpOptions {}

impl Default for HttpOptions {
    fn default() -> Self {
        HttpOptions {
            connect_timeout: CONNECT_TIMEOUT,
            ping_interval: Some(PING_INTERVAL),
            ping_timeout: PING_TIMEOUT,
            streams_per_connection_max: STREAMS_PER_CONNECTION_MAX,
            connections_min: CONNECTIONS_MIN,
            connections_max: default_connections_max(),
            idle_timeout: IDLE_TIMEOUT,
            read_hang_limit: READ_HANG_LIMIT,
            http1_connections_max: HTTP1_CONNECTIONS_MAX,
            allow_cleartext: false,
            ca_pem: Vec::new(),
            accept_unknown_loopback_certificates: false,
            proxy: ProxyChoice::Environment,
            client_certificate: None,
            crypto_provider: None,
            tls_config: None,
            faults: Default::default(),
        }
    }
}

/// The default number of HTTP/2 connections to one endpoint.
fn default_connections_max() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (CONNECTIONS_PER_CORE * cores).clamp(CONNECTIONS_MAX_AT_LEAST, CONNECTIONS_MAX_AT_MOST)
}

impl HttpOptions {
    /// Sets the time for name resolution, TCP, TLS and the HTTP handshake together.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets the time between HTTP/2 pings; `None` for no regular pings.
    pub fn with_ping_interval(mut self, interval: impl Into<Option<Duration>>) -> Self {
        self.ping_interval = interval.into();
        self
    }

    /// Sets how long to wait for the answer to a ping.
    pub fn with_ping_timeout(mut self, timeout: Duration) -> Self {
        self.ping_timeout = timeout;
        self
    }

    /// Sets the number of streams on one HTTP/2 connection; at least one.
    pub fn with_streams_per_connection_max(mut self, streams: usize) -> Self {
        self.streams_per_connection_max = streams.max(1);
        self
    }

    /// Sets how many HTTP/2 connections to an endpoint stay open without requests; at least
    /// one.
    pub fn with_connections_min(mut self, connections: usize) -> Self {
        self.connections_min = connections.max(1);
        self
    }

    /// Sets the most HTTP/2 connections to one endpoint; at least one.
    pub fn with_connections_max(mut self, connections: usize) -> Self {
        self.connections_max = connections.max(1);
        self
    }

    /// Sets how long an HTTP/2 connection beyond the minimum stays open without requests.
    pub fn with_idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = timeout;
        self
    }

    /// Sets how long requests wait on an HTTP/2 connection from which nothing arrives.
    pub fn with_read_hang_limit(mut self, limit: Duration) -> Self {
        self.read_hang_limit = limit;
        self
    }

    /// Sets the number of connections to an endpoint that only speaks HTTP/1.1; at
    /// least one.
    pub fn with_http1_connections_max(mut self, connections: usize) -> Self {
        self.http1_connections_max = connections.max(1);
        self
    }

    /// Sets whether `http://` is used for hosts other than this machine. If so, others on the
    /// network can read everything, including tokens.
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

    /// Sets whether connections go through a proxy, and through which one. Without TLS, a
    /// request goes to a proxy on another machine only if `allow_cleartext` is set.
    pub fn with_proxy(mut self, proxy: impl Into<ProxyChoice>) -> Self {
        self.proxy = proxy.into();
        self
    }

    /// Sets the certificate by which servers recognise this client.
    pub fn with_client_certificate(mut self, certificate: ClientCertificate) -> Self {
        self.client_certificate = Some(certificate);
        self
    }

    /// Sets the cryptography of TLS, for example that of `ring` or one that is certified for
    /// FIPS. The certificates that are trusted stay the same.
    ///
    /// ```
    /// use perihelion_driver::transport::{HttpOptions, rustls};
    ///
    /// let provider = rustls::crypto::aws_lc_rs::default_provider();
    /// let options = HttpOptions::default().with_crypto_provider(provider);
    /// ```
    pub fn with_crypto_provider(mut self, provider: impl Into<Arc<CryptoProvider>>) -> Self {
        self.crypto_provider = Some(provider.into());
        self
    }

    /// Sets the whole configuration of TLS: trusted authorities, client certificates and
    /// cryptography are those of `config`, for every endpoint. A configuration without ALPN
    /// protocols gets HTTP/2 and HTTP/1.1. It cannot be combined with
    /// [`with_ca_pem`](HttpOptions::with_ca_pem),
    /// [`with_client_certificate`](HttpOptions::with_client_certificate) and
    /// [`with_crypto_provider`](HttpOptions::with_crypto_provider).
    pub fn with_tls_config(mut self, config: impl Into<Arc<ClientConfig>>) -> Self {
        self.tls_config = Some(config.into());
        self
    }
}

impl HttpOptions {
    /// Refuses timeouts that are too short for a connection that works, and options of TLS that
    /// contradict each other.
    pub(super) fn check(&self) -> Result<(), BadHttpOptions> {
        if self.read_hang_limit < ANSWER_TIME_MIN || self.ping_timeout < ANSWER_TIME_MIN {
            return Err(BadHttpOptions::new(
                "read_hang_limit and ping_timeout must be at least 50 ms: \
                 connections that work would be closed; 2 s suit most networks",
            ));
        }
        let has_tls_options = self.ca_pem.iter().any(|byte| !byte.is_ascii_whitespace())
            || self.client_certificate.is_some()
            || self.crypto_provider.is_some();
        if self.tls_config.is_some() && has_tls_options {
            return Err(BadHttpOptions::new(
                "tls_config replaces the driver's TLS: set authorities, client certificates and cryptography \
                 in that configuration, not in the other options",
            ));
        }
        Ok(())
    }
}

impl fmt::Debug for HttpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpOptions")
            .field("connect_timeout", &self.connect_timeout)
            .field("ping_interval", &self.ping_interval)
            .field("ping_timeout", &self.ping_timeout)
            .field("streams_per_connection_max", &self.streams_per_connection_max)
            .field("connections_min", &self.connections_min)
            .field("connections_max", &self.connections_max)
            .field("idle_timeout", &self.idle_timeout)
            .field("read_hang_limit", &self.read_hang_limit)
            .field("http1_connections_max", &self.http1_connections_max)
            .field("allow_cleartext", &self.allow_cleartext)
            .field("ca_pem_bytes", &self.ca_pem.len())
            .field("accept_unknown_loopback_certificates", &self.accept_unknown_loopback_certificates)
            .field("proxy", &self.proxy)
            .field("client_certificate", &self.client_certificate)
            .field("has_crypto_provider", &self.crypto_provider.is_some())
            .field("has_tls_config", &self.tls_config.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_that_are_too_short_for_an_answer_are_refused() {
        assert_eq!(HttpOptions::default().check(), Ok(()));
        for options in [
            HttpOptions::default().with_read_hang_limit(Duration::ZERO),
            HttpOptions::default().with_ping_timeout(Duration::from_millis(49)),
        ] {
            assert!(options.check().unwrap_err().to_string().contains("at least 50 ms"));
        }
    }

    #[test]
    fn the_default_number_of_connections_is_within_its_bounds() {
        let connections = HttpOptions::default().connections_max;
        assert!((32..=256).contains(&connections), "{connections}");
        assert_eq!(HttpOptions::default().with_connections_max(0).connections_max, 1);
    }
}
