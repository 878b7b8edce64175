//! `Peers`: how many connections each address has, so that one machine cannot use all of them. A
//! connection of a person who is signed in is not counted, because behind a proxy all people have
//! the address of the proxy.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// The most connections of one address. A browser opens up to six, and a network of people may
/// share an address.
const CONNECTIONS_MAX: usize = 64;

/// The connections of each address.
#[derive(Debug, Clone, Default)]
pub(super) struct Peers(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// A connection that is counted until it is dropped; `None` for loopback, which is not counted.
#[derive(Debug)]
pub(super) struct Counted(Option<(Peers, IpAddr)>);

/// The other side of a connection, for the requests on it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peer(Arc<Mutex<Option<Counted>>>);

impl Peer {
    pub(super) fn new(counted: Counted) -> Peer {
        Peer(Arc::new(Mutex::new(Some(counted))))
    }

    /// Stops counting the connection, because a person who is signed in uses it.
    pub(crate) fn trust(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Peers {
    /// Counts a connection; `None` if its address has too many. Loopback has no limit, because all
    /// people behind a proxy on this machine have a loopback address.
    pub(super) fn count(&self, address: IpAddr) -> Option<Counted> {
        let address = network(address);
        if address.is_loopback() {
            return Some(Counted(None));
        }
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        if *count >= CONNECTIONS_MAX {
            return None;
        }
        *count += 1;
        Some(Counted(Some((self.clone(), address))))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let Some((peers, address)) = &self.0 else { return };
        let mut counts = peers.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(address);
            }
        }
    }
}

/// The address by which connections are counted. A machine with IPv6 has all addresses of its /64
/// network, so these count as one address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(ipv6) if !ipv6.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(ipv6.to_bits() & !u128::from(u64::MAX)))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_limited_number_of_connections() {
        let peers = Peers::default();
        let count = |address: &str| peers.count(address.parse().unwrap());
        let mut held: Vec<_> = (0..CONNECTIONS_MAX).map(|_| count("10.0.0.1").expect("a place")).collect();
        assert!(count("10.0.0.1").is_none() && count("::ffff:10.0.0.1").is_none());
        assert!(count("10.0.0.2").is_some(), "another address");
        held.pop();
        assert!(count("10.0.0.1").is_some(), "one connection was closed");
        let trusted: Vec<Peer> =
            (0..300).map(|_| Peer::new(count("10.0.0.1").expect("a place"))).inspect(Peer::trust).collect();
        assert!(count("10.0.0.1").is_some(), "connections of people who are signed in do not count");
        drop(trusted);
        let ipv6: Vec<_> = (0..CONNECTIONS_MAX).map(|n| count(&format!("2001:db8::{n:x}"))).collect();
        assert!(ipv6.iter().all(Option::is_some) && count("2001:db8::ffff").is_none());
        let local: Vec<_> = (0..300).map(|_| count("127.0.0.1")).collect();
        assert!(local.iter().all(Option::is_some), "loopback has no limit");
        drop((held, ipv6));
        assert!(peers.0.lock().unwrap().is_empty());
    }
}
