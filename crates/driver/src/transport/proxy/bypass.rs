//! The hosts that are reached without a proxy, as `NO_PROXY` lists them.

use std::net::IpAddr;

use super::super::options::BadHttpOptions;

/// Hosts that are reached without a proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Bypass {
    entries: Vec<Entry>,
}

/// One entry of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    hosts: Hosts,
    /// The only port that matches; `None` for all ports.
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Hosts {
    /// `*`
    All,
    /// A name in lower case, and its subdomains.
    Domain(String),
    /// A network, or an address with its whole length as prefix.
    Network(IpAddr, u8),
}

impl Bypass {
    /// Parses entries that are separated by commas or spaces.
    pub(super) fn parse(list: &str) -> Result<Self, BadHttpOptions> {
        let entries = texts_of(list).map(|text| {
            Entry::parse(text).ok_or_else(|| {
                BadHttpOptions::new(format!(
                    "{text:?} is not a host: the list of hosts without a proxy takes names, addresses, and \
                     networks such as 10.0.0.0/8"
                ))
            })
        });
        Ok(Bypass { entries: entries.collect::<Result<_, _>>()? })
    }

    /// Parses entries like [`Bypass::parse`], but leaves out the entries that cannot be read, and
    /// returns them separately. All programs of a user share `NO_PROXY`, so it may have entries
    /// that only other programs understand.
    pub(super) fn parse_known(list: &str) -> (Self, Vec<&str>) {
        let (mut entries, mut unknown) = (Vec::new(), Vec::new());
        for text in texts_of(list) {
            match Entry::parse(text) {
                Some(entry) => entries.push(entry),
                None => unknown.push(text),
            }
        }
        (Bypass { entries }, unknown)
    }

    /// Whether the host, a name or an address without brackets, is reached without a proxy.
    pub(super) fn matches(&self, host: &str, port: u16) -> bool {
        self.entries
            .iter()
            .any(|entry| entry.port.is_none_or(|own| own == port) && entry.hosts.contains(host))
    }
}

fn texts_of(list: &str) -> impl Iterator<Item = &str> {
    list.split([',', ' ', '\t']).filter(|text| !text.is_empty())
}

impl Entry {
    fn parse(text: &str) -> Option<Entry> {
        let all_ports = |hosts| Some(Entry { hosts, port: None });
        if text == "*" {
            return all_ports(Hosts::All);
        }
        if let Some((address, prefix)) = text.split_once('/') {
            let (address, prefix) = (parse_address(address)?, prefix.parse().ok()?);
            return (prefix <= bits_of(address))
                .then_some(Entry { hosts: Hosts::Network(address, prefix), port: None });
        }
        if let Some(address) = parse_address(text) {
            return all_ports(Hosts::Network(address, bits_of(address)));
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port.parse().ok()?)),
            None => (text, None),
        };
        if let Some(address) = parse_address(host) {
            return Some(Entry { hosts: Hosts::Network(address, bits_of(address)), port });
        }
        let domain = host.strip_prefix("*.").unwrap_or(host).trim_start_matches('.').to_ascii_lowercase();
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_domain = !domain.is_empty() && domain.bytes().all(is_name);
        is_domain.then_some(Entry { hosts: Hosts::Domain(domain), port })
    }
}

impl Hosts {
    fn contains(&self, host: &str) -> bool {
        match self {
            Hosts::All => true,
            Hosts::Domain(domain) => {
                let host = host.to_ascii_lowercase();
                host.strip_suffix(domain.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            }
            Hosts::Network(network, prefix) => {
                host.parse().is_ok_and(|address| is_in_network(address, *network, *prefix))
            }
        }
    }
}

/// An address, in brackets or not.
fn parse_address(text: &str) -> Option<IpAddr> {
    text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text).parse().ok()
}

fn bits_of(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn is_in_network(address: IpAddr, network: IpAddr, prefix: u8) -> bool {
    let (address, network, bits) = match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            (u128::from(address.to_bits()), u128::from(network.to_bits()), 32)
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => (address.to_bits(), network.to_bits(), 128),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
    };
    let host_bits = u32::from(bits - prefix);
    // A shift by 128 would overflow: then every address is in the network.
    address.checked_shr(host_bits).unwrap_or(0) == network.checked_shr(host_bits).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(list: &str, within: &[(&str, u16)], outside: &[(&str, u16)]) {
        let bypass = Bypass::parse(list).unwrap();
        for (hosts, expected) in [(within, true), (outside, false)] {
            for (host, port) in hosts {
                assert_eq!(bypass.matches(host, *port), expected, "{list}: {host}:{port}");
            }
        }
    }

    #[test]
    fn names_include_their_subdomains() {
        for list in ["example.com", ".example.com", "*.example.com", " other , EXAMPLE.com "] {
            check(
                list,
                &[("example.com", 1), ("a.B.Example.com", 443)],
                &[("badexample.com", 1), ("example.com.evil", 1), ("10.0.0.1", 1)],
            );
        }
        check("", &[], &[("example.com", 1)]);
        check("*", &[("example.com", 1), ("10.0.0.1", 1), ("::1", 1)], &[]);
        check("example.com:8081", &[("a.example.com", 8081)], &[("example.com", 443)]);
    }

    #[test]
    fn addresses_and_networks_are_compared_by_their_bits() {
        check("10.0.0.0/8", &[("10.255.1.2", 1)], &[("11.0.0.1", 1), ("ten.example", 1), ("::a", 1)]);
        check("0.0.0.0/0", &[("203.0.113.9", 1)], &[("::1", 1)]);
        check("::/0", &[("2001:db8::1", 1)], &[("203.0.113.9", 1)]);
        check("2001:db8::/32", &[("2001:db8:ffff::1", 1)], &[("2001:db9::1", 1)]);
        check(
            "192.0.2.7,[2001:db8::1]:443",
            &[("192.0.2.7", 5), ("2001:db8::1", 443)],
            &[("2001:db8::1", 80)],
        );
    }

    #[test]
    fn entries_that_only_other_programs_understand_are_left_out() {
        let (bypass, unknown) = Bypass::parse_known("169.254/16, 10.*,<local>,example.com,a;b");
        assert_eq!(unknown, ["169.254/16", "10.*", "<local>", "a;b"]);
        assert!(bypass.matches("shop.example.com", 443));
        assert!(!bypass.matches("10.0.0.1", 443));
    }

    #[test]
    fn an_entry_that_is_not_a_host_is_refused() {
        for bad in ["10.0.0.0/33", "10.0.0.0/x", "host:port", "a b:70000", "http://a", "*."] {
            let error = Bypass::parse(bad).unwrap_err().to_string();
            assert!(error.contains("is not a host"), "{error}");
        }
    }
}
