//! The endpoints of an account: how clients reach the account and its regions.

use crate::regions::RegionNames;

/// The account's endpoint in an embedded database. The top-level domain `internal` is
/// reserved for private use, so a request that is sent over the network by mistake
/// reaches no public server.
pub(crate) const EMBEDDED_GLOBAL: &str = "https://account.perihelion.internal";

/// The end of every host name in an embedded database.
const EMBEDDED_DOMAIN: &str = ".perihelion.internal";

/// The host of the account's own endpoint, without the domain.
const EMBEDDED_ACCOUNT: &str = "account";

/// One endpoint of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndpointId {
    /// The account's own endpoint. The write region answers; during an outage of the
    /// write region, another region does.
    Global,
    /// The endpoint of the region with this index.
    Region(usize),
}

/// How clients reach the regions.
pub(crate) enum Addresses {
    /// By one port per region, on the host that the client used. With one region the list
    /// is empty: that region answers at the account's endpoint.
    Ports(Vec<u16>),
    /// By one host name per region.
    Hosts,
}

/// The endpoint of a region in an embedded database. `slug` is the region's name as part
/// of a host name, such as `west-us`.
pub(crate) fn embedded_endpoint(slug: &str) -> String {
    format!("https://{slug}{EMBEDDED_DOMAIN}")
}

/// The scheme, the host and the port of an endpoint. An endpoint without a port has the default port
/// of its scheme.
pub(crate) fn parts(endpoint: &str) -> (&str, &str, u16) {
    let (scheme, rest) = endpoint.split_once("://").unwrap_or(("http", endpoint));
    let authority = rest.split('/').next().unwrap_or(rest);
    // The colons of an IPv6 address are in brackets.
    let host_end = authority.rfind(']').map_or(0, |end| end + 1);
    let (host, port) = match authority[host_end..].rfind(':') {
        Some(colon) => {
            let (host, port) = authority.split_at(host_end + colon);
            (host, port[1..].parse().ok())
        }
        None => (authority, None),
    };
    (scheme, host, port.unwrap_or(if scheme == "https" { 443 } else { 80 }))
}

/// The endpoint with this host name in an embedded database; `None` when there is no such
/// endpoint.
pub(crate) fn embedded_endpoint_id(names: &RegionNames, host: &str) -> Option<EndpointId> {
    let name = host.strip_suffix(EMBEDDED_DOMAIN)?;
    match names.find(name) {
        Some(region) => Some(EndpointId::Region(region)),
        None => (name == EMBEDDED_ACCOUNT).then_some(EndpointId::Global),
    }
}
