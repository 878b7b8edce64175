//! The transport trait: it takes one request with a deadline, and returns one
//! response, or a failure that says whether the request was sent.
//!
//! The driver's own transport sends over HTTP. The server implements the trait
//! in process. A test or an application may implement it too. This module does
//! no I/O. Every implementation must return by the request's deadline. It may report
//! [`Sent::No`] only when the service cannot have processed the request, because the
//! driver then repeats any write.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Method, Uri};

/// One request, complete except for what the transport adds (`host`, framing).
#[derive(Debug, Clone)]
pub struct Request {
    /// The endpoint that the request is sent to.
    pub endpoint: Endpoint,
    /// The HTTP method.
    pub method: Method,
    /// The path and query of the URL.
    pub target: PathAndQuery,
    /// The headers, with the signature if there is one. Values that hold secrets are
    /// marked sensitive.
    pub headers: HeaderMap,
    /// The body; may be empty.
    pub body: Bytes,
    /// The time by which the transport must return. An instant of tokio's clock
    /// (`tokio::time::Instant::into_std`), so that the time can be virtual.
    pub deadline: Instant,
    /// Where the driver has routed the request.
    pub route: Route,
}

/// Where the driver has routed a request. The route itself is not sent. Transports may use it to
/// tell requests apart, as fault injection does.
#[derive(Debug, Clone, Default)]
pub struct Route {
    /// The name of the region; `None` when the request was not made by the driver.
    pub region: Option<Arc<str>>,
    /// The id of the partition key range; `None` when the request is not addressed to exactly
    /// one range, or the range is not known.
    pub range: Option<Arc<str>>,
}

/// The whole response, with any status.
pub type Response = http::Response<Bytes>;

/// Sends requests. Implementations are shared by all operations of a driver.
pub trait Transport: Send + Sync {
    /// Sends one request.
    fn send(&self, request: Request) -> impl Future<Output = Result<Response, Failure>> + Send;
}

/// The form of [`Transport`] that works as a trait object. Every transport
/// implements it.
pub trait DynTransport: Send + Sync {
    /// Sends one request.
    fn send_boxed(
        &self,
        request: Request,
    ) -> Pin<Box<dyn Future<Output = Result<Response, Failure>> + Send + '_>>;
}

impl<T: Transport> DynTransport for T {
    fn send_boxed(
        &self,
        request: Request,
    ) -> Pin<Box<dyn Future<Output = Result<Response, Failure>> + Send + '_>> {
        Box::pin(self.send(request))
    }
}

/// Whether the service may have processed the request. The driver uses this to decide
/// whether a write may be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sent {
    /// The service has not processed the request: no byte was handed to a connection, or
    /// the peer declared the request unprocessed (REFUSED_STREAM, or a stream after the
    /// last stream of a GOAWAY).
    No,
    /// The whole request was sent.
    Yes,
    /// The request may have been sent.
    Unknown,
}

/// The kinds of failures without an HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// No connection was made: name resolution failed, or the host refused, was
    /// unreachable or too slow. In process: the database is closed, or it has no such
    /// endpoint.
    Connect,
    /// The TLS handshake failed, or the certificate is not trusted.
    Tls,
    /// The connection ended before the response was complete.
    Closed,
    /// The peer broke the protocol, or the response exceeds a limit.
    Protocol,
    /// The deadline passed after the connection was made.
    Timeout,
}

/// Why there is no response.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The kind of failure.
    pub kind: FailureKind,
    /// Whether the service may have processed the request.
    pub sent: Sent,
    /// What failed and where; never a header or a body.
    pub message: Arc<str>,
    /// The incident that made this request fail together with others; `None` when only this
    /// request failed.
    pub incident: Option<Incident>,
}

/// An incident: the end of a connection, or of several connections to one endpoint at about
/// the same time. Every request on those connections fails, but for the health of the
/// service this is one failure. Failures with equal incidents are to be counted once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Incident(u64);

impl Incident {
    /// An incident that differs from all others of this process.
    pub fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Incident(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Failure {
    /// A failure of this kind.
    pub fn new(kind: FailureKind, sent: Sent, message: impl Into<Arc<str>>) -> Self {
        Failure { kind, sent, message: message.into(), incident: None }
    }

    /// The failure as a part of an incident.
    pub fn with_incident(mut self, incident: Incident) -> Self {
        self.incident = Some(incident);
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// The endpoint of an account or of one of its regions: a scheme and an
/// authority. It is cheap to clone and to compare.
#[derive(Clone)]
pub struct Endpoint(Arc<EndpointParts>);

struct EndpointParts {
    scheme: Scheme,
    authority: Authority,
}

/// The text is not an endpoint. The error does not contain the text, because
/// people paste keys and connection strings by mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadEndpoint(());

impl fmt::Display for BadEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "this is not an endpoint: write it as https://host:port/, without path, query or user \
             (http only for an emulator)",
        )
    }
}

impl std::error::Error for BadEndpoint {}

impl Endpoint {
    /// Parses `https://host[:port][/]`, also with `http`. A path, a query or user
    /// information is refused: a key pasted into a URL must not get into logs.
    pub fn parse(text: &str) -> Result<Self, BadEndpoint> {
        let bad = || BadEndpoint(());
        let parts = text.trim().parse::<Uri>().map_err(|_| bad())?.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else { return Err(bad()) };
        let has_path = parts.path_and_query.is_some_and(|path| path.as_str() != "/");
        let is_http = scheme == Scheme::HTTPS || scheme == Scheme::HTTP;
        if has_path || !is_http || authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(bad());
        }
        Ok(Endpoint(Arc::new(EndpointParts { scheme, authority })))
    }

    /// Whether the scheme is `https`.
    pub fn is_tls(&self) -> bool {
        self.0.scheme == Scheme::HTTPS
    }

    /// The host and port as written.
    pub fn authority(&self) -> &Authority {
        &self.0.authority
    }

    /// The host without brackets or port.
    pub fn host(&self) -> &str {
        self.0.authority.host().trim_start_matches('[').trim_end_matches(']')
    }

    /// The port as written, or the default port of the scheme.
    pub fn port(&self) -> u16 {
        self.0.authority.port_u16().unwrap_or(if self.is_tls() { 443 } else { 80 })
    }

    /// Whether the host is this machine, by name or address.
    pub fn is_loopback(&self) -> bool {
        is_loopback(self.host())
    }

    /// The URL of a resource at this endpoint.
    pub fn uri(&self, target: PathAndQuery) -> Uri {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.0.scheme.clone());
        parts.authority = Some(self.0.authority.clone());
        parts.path_and_query = Some(target);
        Uri::from_parts(parts).expect("scheme, authority and path are all there")
    }
}

/// Whether a host is this machine: `localhost`, or a loopback address without
/// brackets. A loopback address of IPv4 may be mapped into IPv6.
pub fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

impl PartialEq for Endpoint {
    fn eq(&self, other: &Self) -> bool {
        if Arc::ptr_eq(&self.0, &other.0) {
            return true;
        }
        // Each request compares its endpoint. Nearly always the texts are equal, so they are
        // compared first. An endpoint without a port equals one with the scheme's default port.
        self.0.scheme == other.0.scheme
            && (self.0.authority.as_str() == other.0.authority.as_str()
                || (self.port() == other.port() && self.host().eq_ignore_ascii_case(other.host())))
    }
}

impl Eq for Endpoint {}

impl std::hash::Hash for Endpoint {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.scheme.hash(state);
        self.port().hash(state);
        self.host().bytes().for_each(|byte| byte.to_ascii_lowercase().hash(state));
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.0.scheme, self.0.authority)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_parsed_compared_and_printed() {
        let endpoint = Endpoint::parse("https://Account.documents.azure.com:443/").unwrap();
        assert_eq!(endpoint.to_string(), "https://Account.documents.azure.com:443");
        assert_eq!((endpoint.port(), endpoint.is_tls(), endpoint.is_loopback()), (443, true, false));
        assert_eq!(endpoint, Endpoint::parse("https://account.documents.azure.com:443").unwrap());
        let set: std::collections::HashSet<Endpoint> =
            ["https://a.example", "https://A.example:443/", "http://a.example:443", "https://a.example:444"]
                .map(|text| Endpoint::parse(text).unwrap())
                .into();
        assert_eq!(set.len(), 3, "the first two are equal");
        let local = Endpoint::parse("http://[::1]:8081").unwrap();
        assert_eq!((local.host(), local.port(), local.is_loopback()), ("::1", 8081, true));
        for host in ["127.0.0.1", "127.8.9.1", "::1", "localhost", "LocalHost", "::ffff:127.0.0.1"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["", "127.0.0.1.evil.example", "localhost.evil", "::2", "::ffff:10.0.0.1", "[::1]"] {
            assert!(!is_loopback(host), "{host}");
        }
        let uri = local.uri(PathAndQuery::from_static("/dbs/d"));
        assert_eq!(uri.to_string(), "http://[::1]:8081/dbs/d");
    }

    #[test]
    fn a_refused_endpoint_does_not_show_its_text() {
        for bad in ["", "localhost", "ftp://x", "https://x/dbs/d", "https:///"] {
            Endpoint::parse(bad).unwrap_err();
        }
        for bad in [
            "https://s3cret@host:1/",
            "https://host:1/?key=s3cret",
            "https://host:1/s3cret",
            "AccountEndpoint=https://host:1/;AccountKey=s3cret==;",
            "s3cret==",
        ] {
            let error = Endpoint::parse(bad).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{bad}");
        }
    }
}
