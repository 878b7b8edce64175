//! Which requests to the management interface are accepted.
//!
//! A request from the network is accepted when it is signed with the account's key, or when a
//! program on this machine sent it. A request counts as sent from this machine only if three
//! conditions hold, because each of them alone can be forged or proves nothing:
//!
//! - The peer's address is loopback. `Host` is a claim of the client, so it does not tell
//!   where the client is.
//! - The `Host` is a loopback name. A web page that a browser on this machine shows could
//!   otherwise reach the server under a name of its own (DNS rebinding).
//! - No header says that a proxy forwarded the request. Behind a proxy on this machine every
//!   peer is loopback.
//!
//! If the server runs in a Docker container with published ports, the peer's address says nothing
//! either, so only a signature helps. A request with an `Origin` header comes from a web page and
//! is never accepted.

use std::net::IpAddr;

use http::HeaderMap;
use http::request::Parts;
use perihelion_engine::Refusal;
use perihelion_wire::transport::is_loopback;
use perihelion_wire::{headers, status};

use crate::auth::Authenticator;

/// Headers that proxies add to the requests that they forward.
const PROXY_HEADERS: [&str; 5] = ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via"];

const WEB_PAGE: &str = "The management interface does not answer web pages.";
const NOT_LOCAL: &str = "The management interface answers programs on this machine, and signed requests from elsewhere. Sign the request with the account's key: `perihelion manage` does so, and docs/management.md says how.";

/// Where a management request came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    SameProcess,
    /// The peer's address is a loopback address.
    Loopback,
    Elsewhere,
}

impl Origin {
    /// The origin of a request from the network. A loopback address of IPv4 may be mapped into
    /// IPv6.
    pub(crate) fn of_peer(peer: IpAddr) -> Origin {
        if peer.to_canonical().is_loopback() { Origin::Loopback } else { Origin::Elsewhere }
    }
}

/// Accepts a request, or refuses it with 401 or 403.
pub(super) fn check(
    parts: &Parts,
    origin: Origin,
    authenticator: &Authenticator,
    now_seconds: u64,
) -> Result<(), Refusal> {
    if parts.headers.contains_key("origin") {
        return Err(Refusal::gateway(status::FORBIDDEN, WEB_PAGE));
    }
    match origin {
        Origin::SameProcess => Ok(()),
        Origin::Loopback | Origin::Elsewhere if parts.headers.contains_key(headers::AUTHORIZATION) => {
            authenticator.check_management(&parts.method, parts.uri.path(), &parts.headers, now_seconds)
        }
        Origin::Loopback if names_this_machine(parts) && !is_forwarded(&parts.headers) => Ok(()),
        Origin::Loopback | Origin::Elsewhere => Err(Refusal::gateway(status::FORBIDDEN, NOT_LOCAL)),
    }
}

fn is_forwarded(map: &HeaderMap) -> bool {
    PROXY_HEADERS.iter().any(|name| map.contains_key(*name))
}

/// Whether the request names a host, and every host that it names is this machine.
fn names_this_machine(parts: &Parts) -> bool {
    let host_headers =
        parts.headers.get_all(http::header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
    let mut hosts = host_headers.chain(parts.uri.authority().map(|authority| authority.as_str())).peekable();
    hosts.peek().is_some() && hosts.all(is_local_authority)
}

/// Whether a host with an optional port is this machine.
fn is_local_authority(authority: &str) -> bool {
    is_loopback(match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests;
