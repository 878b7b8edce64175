//! Resolves a host name and opens a TCP connection to one of its addresses. Each
//! address is tried a short time after the address before it (RFC 8305), or at once when
//! an address has failed. The first connection wins.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;

use perihelion_wire::transport::{Failure, FailureKind, Sent};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time;

use super::limits::{ADDRESS_STAGGER, ADDRESSES_MAX, TCP_KEEPALIVE_AFTER, TCP_KEEPALIVE_INTERVAL};

/// Opens a TCP connection to a host. Errors begin with `peer`. Dropping the future ends all
/// attempts.
pub(super) async fn dial(host: &str, port: u16, peer: &(dyn Display + Sync)) -> Result<TcpStream, Failure> {
    let failure = |text: String| Failure::new(FailureKind::Connect, Sent::No, text);
    let addresses = tokio::net::lookup_host((host, port))
        .await
        .map_err(|error| failure(format!("{peer}: the name could not be resolved: {error}")))?;
    let addresses: Vec<SocketAddr> = addresses.collect();
    let stream = connect_first(interleave(&addresses))
        .await
        .map_err(|error| failure(format!("{peer}: no connection: {error}")))?;
    set_socket_options(&stream);
    Ok(stream)
}

/// Connects to the address that answers first. The next address is tried when an address
/// has failed, or when no address has answered within [`ADDRESS_STAGGER`].
async fn connect_first(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    if let [address] = addresses[..] {
        return TcpStream::connect(address).await;
    }
    let mut waiting = addresses.into_iter();
    let mut attempts = JoinSet::new();
    let mut error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    loop {
        match waiting.next() {
            Some(address) => {
                attempts.spawn(TcpStream::connect(address));
            }
            None if attempts.is_empty() => return Err(error),
            None => {}
        }
        let joined = if waiting.len() == 0 {
            attempts.join_next().await
        } else {
            time::timeout(ADDRESS_STAGGER, attempts.join_next()).await.unwrap_or(None)
        };
        match joined {
            Some(Ok(Ok(stream))) => return Ok(stream),
            Some(Ok(Err(failed))) => error = failed,
            Some(Err(_)) | None => {}
        }
    }
}

/// Alternates between IPv4 and IPv6 addresses, so that a broken address family delays
/// the connection only once. Returns at most [`ADDRESSES_MAX`].
fn interleave(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let is_first_family = |address: &&SocketAddr| address.is_ipv6() == addresses[0].is_ipv6();
    let mut mixed: Vec<(usize, SocketAddr)> = Vec::with_capacity(addresses.len());
    mixed.extend(addresses.iter().filter(is_first_family).copied().enumerate());
    mixed.extend(addresses.iter().filter(|address| !is_first_family(address)).copied().enumerate());
    mixed.sort_by_key(|(rank, _)| *rank);
    mixed.into_iter().map(|(_, address)| address).take(ADDRESSES_MAX).collect()
}

/// Sets TCP_NODELAY, so that small frames are sent at once, and TCP keepalive, so that
/// a silent peer is noticed. A failure is only logged.
fn set_socket_options(stream: &TcpStream) {
    let keepalive =
        socket2::TcpKeepalive::new().with_time(TCP_KEEPALIVE_AFTER).with_interval(TCP_KEEPALIVE_INTERVAL);
    let tuned =
        stream.set_nodelay(true).and_then(|()| socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive));
    if let Err(error) = tuned {
        tracing::debug!(%error, "a socket option could not be set");
    }
}

#[cfg(test)]
mod tests;
