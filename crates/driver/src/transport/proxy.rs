//! Proxies: which endpoints are reached through a proxy, and its address and credentials.
//!
//! A connection through a proxy is a tunnel: the driver sends `CONNECT host:port`, and the rest
//! is the same as without a proxy, TLS and HTTP/2 included. So the proxy sees the host and not
//! the requests, except those to an endpoint without TLS.
//!
//! What always holds: the credentials of a proxy never appear in an error, a log or a `Debug` text;
//! an endpoint on this machine is reached through a proxy only if the application chooses the proxy
//! in code, and not by an environment variable.

mod bypass;
mod environment;
#[cfg(test)]
mod tests;
mod tunnel;

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::uri::Authority;
use perihelion_wire::transport::{Endpoint, Failure, FailureKind, Sent, is_loopback};
use zeroize::Zeroizing;

use self::bypass::Bypass;
pub(super) use self::tunnel::open_tunnel;
use super::options::BadHttpOptions;
use crate::variable;

/// The port of a proxy whose address has no port: the default port of `http`.
const PORT_DEFAULT: u16 = 80;

/// Whether connections go through a proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ProxyChoice {
    /// Connections go through the proxy that the environment variables `HTTPS_PROXY`,
    /// `HTTP_PROXY` and `ALL_PROXY` name, except to the hosts in `NO_PROXY`. A variable whose name
    /// is in lower case has precedence. Endpoints on this machine are reached without a proxy.
    #[default]
    Environment,
    /// Connections use no proxy, whatever the environment says.
    Off,
    /// Connections go through this proxy, even those to endpoints on this machine, except to the
    /// hosts of [`Proxy::with_bypass`].
    Fixed(Proxy),
}

impl From<Proxy> for ProxyChoice {
    fn from(proxy: Proxy) -> Self {
        ProxyChoice::Fixed(proxy)
    }
}

/// An HTTP proxy.
///
/// ```
/// use perihelion_driver::transport::{HttpOptions, Proxy};
///
/// let proxy = Proxy::parse("http://user:secret@proxy.example:3128")?.with_bypass("internal.example, 10.0.0.0/8")?;
/// assert_eq!(proxy.to_string(), "proxy.example:3128");
/// let options = HttpOptions::default().with_proxy(proxy);
/// # Ok::<(), perihelion_driver::transport::BadHttpOptions>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    /// The host without brackets.
    host: String,
    port: u16,
    /// The value of `Proxy-Authorization`.
    authorization: Option<Zeroizing<String>>,
    bypass: Bypass,
}

impl Proxy {
    /// Parses `http://[user:password@]host[:port]`. The scheme may be left out, and the default
    /// port is 80. User and password are percent-decoded. An error does not show the text.
    pub fn parse(text: &str) -> Result<Self, BadHttpOptions> {
        let bad = || {
            BadHttpOptions::new(
                "the address of the proxy cannot be read: write it as http://host:port, with user:password@ \
                 before the host if the proxy asks for them",
            )
        };
        let text = text.trim();
        let rest = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => rest,
            Some(_) => {
                return Err(BadHttpOptions::new(
                    "the proxy is not an http:// proxy: proxies over TLS or SOCKS are not supported; \
                     write http://host:port",
                ));
            }
            None => text,
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (credentials, address) = match rest.rsplit_once('@') {
            Some((credentials, address)) => (Some(credentials), address),
            None => (None, rest),
        };
        let address: Authority = address.parse().map_err(|_| bad())?;
        let host = address.host().trim_start_matches('[').trim_end_matches(']');
        let has_bad_port = address.port_u16().is_none() && address.as_str() != address.host();
        if host.is_empty() || has_bad_port {
            return Err(bad());
        }
        let authorization = credentials.map(|text| basic_authorization(text).ok_or_else(bad)).transpose()?;
        Ok(Proxy {
            host: host.to_owned(),
            port: address.port_u16().unwrap_or(PORT_DEFAULT),
            authorization,
            bypass: Bypass::default(),
        })
    }

    /// Sets the hosts that are reached without the proxy, written as in `NO_PROXY`: names (their
    /// subdomains count too) and addresses, both also with a port, networks such as `10.0.0.0/8`,
    /// or `*` for all hosts.
    pub fn with_bypass(mut self, list: &str) -> Result<Self, BadHttpOptions> {
        self.bypass = Bypass::parse(list)?;
        Ok(self)
    }
}

/// The value of `Proxy-Authorization` for `user:password`; `None` when a `%` is not followed by
/// two hexadecimal digits.
fn basic_authorization(credentials: &str) -> Option<Zeroizing<String>> {
    let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
    let mut plain = percent_decoded(user)?;
    plain.push(b':');
    plain.extend_from_slice(&percent_decoded(password)?);
    let encoded = Zeroizing::new(STANDARD.encode(&*plain));
    Some(Zeroizing::new(format!("Basic {}", *encoded)))
}

fn percent_decoded(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let mut decoded = Zeroizing::new(Vec::with_capacity(text.len() + 1));
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                u8::try_from(16 * digit()? + digit()?).ok()?
            }
            byte => byte,
        };
        decoded.push(byte);
    }
    Some(decoded)
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy")
            .field("address", &format_args!("{self}"))
            .field("has_credentials", &self.authorization.is_some())
            .field("bypass", &self.bypass)
            .finish()
    }
}

/// The proxy for one kind of endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Chosen {
    #[default]
    None,
    Proxy(Proxy),
    /// The environment names a proxy that cannot be used. Endpoints that would need it cannot be
    /// reached; others can.
    Bad(BadHttpOptions),
}

/// The proxies of one transport.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Proxies {
    /// For endpoints with TLS.
    https: Chosen,
    /// For endpoints without TLS.
    http: Chosen,
    /// The hosts that are reached without a proxy, as the environment says. A proxy that is
    /// chosen in code has its own list.
    bypass: Bypass,
    /// Whether endpoints on this machine are reached through the proxy too.
    includes_loopback: bool,
}

impl Proxies {
    /// The proxies of a choice. [`ProxyChoice::Environment`] reads the variables of this process.
    pub(super) fn of(choice: &ProxyChoice) -> Result<Self, BadHttpOptions> {
        match choice {
            ProxyChoice::Environment => environment::proxies(variable::of_process),
            ProxyChoice::Off => Ok(Proxies::default()),
            ProxyChoice::Fixed(proxy) => {
                let chosen = Chosen::Proxy(proxy.clone());
                Ok(Proxies {
                    https: chosen.clone(),
                    http: chosen,
                    bypass: Bypass::default(),
                    includes_loopback: true,
                })
            }
        }
    }

    /// The proxy to an endpoint; `None` when the endpoint is reached without one. The result is
    /// an error when the proxy that the environment names for this endpoint cannot be used.
    pub(super) fn proxy_to(&self, endpoint: &Endpoint) -> Result<Option<&Proxy>, Failure> {
        let (host, port) = (endpoint.host(), endpoint.port());
        if (endpoint.is_loopback() && !self.includes_loopback) || self.bypass.matches(host, port) {
            return Ok(None);
        }
        match if endpoint.is_tls() { &self.https } else { &self.http } {
            Chosen::None => Ok(None),
            Chosen::Proxy(proxy) => Ok(Some(proxy).filter(|proxy| !proxy.bypass.matches(host, port))),
            Chosen::Bad(error) => {
                Err(Failure::new(FailureKind::Connect, Sent::No, format!("{endpoint}: {error}")))
            }
        }
    }
}

impl Proxy {
    /// Whether the proxy is on this machine, by its name or address.
    pub(super) fn is_loopback(&self) -> bool {
        is_loopback(&self.host)
    }
}
