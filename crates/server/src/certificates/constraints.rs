//! The names that the local CA may sign.
//!
//! Users add the CA to their trust stores. A thief of its key must not be able to sign
//! certificates of other sites. So the CA may only sign the names of this server, and names and
//! addresses that only exist in private networks.

use std::net::IpAddr;

use rcgen::{CidrSubnet, GeneralSubtree, NameConstraints};

/// Domains that no public name ends with (RFC 2606, 6761, 6762, 8375, ICANN's `internal`, and two
/// that routers and hosts use by default).
const PRIVATE_DOMAINS: [&str; 7] =
    ["localhost", "local", "internal", "test", "lan", "localdomain", "home.arpa"];

/// Loopback, private and link-local networks, each with the length of its prefix.
const PRIVATE_NETWORKS: [(&str, u8); 8] = [
    ("127.0.0.0", 8),
    ("10.0.0.0", 8),
    ("172.16.0.0", 12),
    ("192.168.0.0", 16),
    ("169.254.0.0", 16),
    ("::1", 128),
    ("fc00::", 7),
    ("fe80::", 10),
];

/// The constraints of a CA that may sign these names, in addition to names and addresses that
/// only exist in private networks.
pub(super) fn for_names(names: &[String]) -> NameConstraints {
    let domains = PRIVATE_DOMAINS.iter().map(|domain| GeneralSubtree::DnsName((*domain).to_owned()));
    let networks = PRIVATE_NETWORKS.iter().filter_map(|(address, length)| network(address, *length));
    let own = names.iter().filter(|name| !is_private(name)).map(|name| match name.parse::<IpAddr>() {
        Ok(address) => GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(address, bits(address))),
        // A wildcard stands for all names below its domain.
        Err(_) => GeneralSubtree::DnsName(name.trim_start_matches("*.").to_owned()),
    });
    let permitted_subtrees = domains.chain(networks).chain(own).collect();
    NameConstraints { permitted_subtrees, excluded_subtrees: Vec::new() }
}

/// Whether a CA whose constraints have the names `ca_names` may sign all of `names`. A CA without
/// names is of an earlier version and may sign every name.
pub(super) fn permit_all<'a>(ca_names: &[String], mut names: impl Iterator<Item = &'a str>) -> bool {
    ca_names.is_empty() || names.all(|name| is_private(name) || ca_names.iter().any(|own| own == name))
}

fn network(address: &str, length: u8) -> Option<GeneralSubtree> {
    let address: IpAddr = address.parse().ok()?;
    Some(GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(address, length)))
}

/// The number of bits of an address.
fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Whether a name or address only exists in private networks.
fn is_private(name: &str) -> bool {
    let Ok(address) = name.parse::<IpAddr>() else {
        return PRIVATE_DOMAINS.iter().any(|domain| {
            name.strip_suffix(domain).is_some_and(|start| start.is_empty() || start.ends_with('.'))
        });
    };
    PRIVATE_NETWORKS.iter().any(|(network, length)| match (address, network.parse::<IpAddr>()) {
        (IpAddr::V4(address), Ok(IpAddr::V4(network))) => {
            let shift = 32 - u32::from(*length);
            u32::from(address) >> shift == u32::from(network) >> shift
        }
        (IpAddr::V6(address), Ok(IpAddr::V6(network))) => {
            let shift = 128 - u32::from(*length);
            u128::from(address) >> shift == u128::from(network) >> shift
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_and_public_names_are_distinguished() {
        for name in [
            "localhost",
            "db.internal",
            "a.b.local",
            "127.9.9.9",
            "10.1.2.3",
            "::1",
            "fd00::7",
            "192.168.1.1",
        ] {
            assert!(is_private(name), "{name}");
        }
        for name in ["example.com", "cosmos", "mylocal", "11.0.0.1", "192.169.0.1", "2001:db8::1", "::2"] {
            assert!(!is_private(name), "{name}");
        }
    }
}
