//! The running listener: accepts, counts, watches, drains.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use super::body::Budget;
use super::connection::{self, Shared};
use super::watch::{Line, Order, Roster, supervised};
use super::{Handler, Limits};

/// Out of file descriptors or memory: trying again at once would spin, and
/// connections that end meanwhile free what is missing.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections told to leave do so at their next poll; this only bounds the
/// wait for the scheduler to get to them.
const LEAVE_WAIT: Duration = Duration::from_secs(1);

/// Binds every address that `host` stands for, all on one port (`localhost`
/// is often both 127.0.0.1 and ::1). With port 0 the first address chooses.
///
/// An address that this machine does not have is passed over as long as
/// another one could be bound; a taken port is an error in any case.
pub async fn listen(host: &str, port: u16) -> io::Result<Vec<TcpListener>> {
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host((host, port)).await?.collect();
    let mut listeners: Vec<TcpListener> = Vec::new();
    let mut unavailable = None;
    for mut address in addresses {
        if let Some(first) = listeners.first() {
            address.set_port(first.local_addr()?.port());
        }
        match TcpListener::bind(address).await {
            Ok(listener) => listeners.push(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => unavailable = Some(error),
            Err(error) => return Err(error),
        }
    }
    if listeners.is_empty() {
        let nothing = || io::Error::new(io::ErrorKind::AddrNotAvailable, "the host has no address");
        return Err(unavailable.unwrap_or_else(nothing));
    }
    Ok(listeners)
}

/// A running front. Dropping it closes every connection at once;
/// [`Front::drain`] is the orderly way.
#[derive(Debug)]
pub struct Front {
    local_addr: SocketAddr,
    slots: Arc<Semaphore>,
    slot_count: u32,
    roster: Arc<Roster>,
    acceptors: Vec<JoinHandle<()>>,
    watch: JoinHandle<()>,
}

impl Front {
    /// Starts serving on listeners from [`listen`]; without `tls` a TLS client
    /// is turned away. Must be called inside a tokio runtime.
    pub fn start<H: Handler>(
        listeners: Vec<TcpListener>,
        tls: Option<Arc<ServerConfig>>,
        limits: Limits,
        handler: Arc<H>,
    ) -> io::Result<Front> {
        let local_addr = match listeners.first() {
            Some(first) => first.local_addr()?,
            None => return Err(io::Error::new(io::ErrorKind::InvalidInput, "no listener given")),
        };
        let slot_count =
            u32::try_from(limits.connections.clamp(1, Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        let slots = Arc::new(Semaphore::new(slot_count as usize));
        let roster = Arc::new(Roster::default());
        let limits = Arc::new(limits);
        let shared = Arc::new(Shared {
            handler,
            budget: Arc::new(Budget::new(limits.body_bytes_total)),
            limits: Arc::clone(&limits),
            tls: tls.map(TlsAcceptor::from),
        });
        let acceptors = listeners
            .into_iter()
            .map(|listener| {
                let door = Door { slots: Arc::clone(&slots), roster: Arc::clone(&roster) };
                tokio::spawn(accept(listener, door, Arc::clone(&shared)))
            })
            .collect();
        let watched = Arc::clone(&roster);
        let watch = tokio::spawn(async move { watched.keep_watch(&limits).await });
        Ok(Front { local_addr, slots, slot_count, roster, acceptors, watch })
    }

    /// The address of the first listener, with the port that was really bound.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.roster.len()
    }

    /// Stops accepting, lets requests in flight finish for at most `grace`,
    /// then closes what is left.
    pub async fn drain(mut self, grace: Duration) {
        for acceptor in self.acceptors.drain(..) {
            acceptor.abort();
            // Aborted on purpose; waiting for it is what closes the listener.
            let _ = acceptor.await;
        }
        self.roster.give_all(Order::Finish);
        if !self.all_gone(grace).await {
            tracing::warn!(connections = self.connections(), "grace is over, closing what is left");
            self.roster.give_all(Order::Leave);
            self.all_gone(LEAVE_WAIT).await;
        }
    }

    /// Waits until every slot is free, which is when no connection is left.
    async fn all_gone(&self, patience: Duration) -> bool {
        tokio::time::timeout(patience, self.slots.acquire_many(self.slot_count)).await.is_ok()
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.acceptors.iter().for_each(JoinHandle::abort);
        self.watch.abort();
        self.roster.give_all(Order::Leave);
    }
}

/// What an acceptor lets connections through.
struct Door {
    slots: Arc<Semaphore>,
    roster: Arc<Roster>,
}

async fn accept<H: Handler>(listener: TcpListener, door: Door, shared: Arc<Shared<H>>) {
    // The slot is taken first: a client for whom there is none waits in the
    // kernel's queue and costs us nothing. (The semaphore is never closed.)
    while let Ok(slot) = Arc::clone(&door.slots).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, remote)) => admit(&door, slot, &shared, stream, remote),
            Err(error) if concerns_one_peer(&error) => (),
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections, trying again");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn admit<H: Handler>(
    door: &Door,
    slot: OwnedSemaphorePermit,
    shared: &Arc<Shared<H>>,
    stream: TcpStream,
    remote: SocketAddr,
) {
    if stream.set_nodelay(true).is_err() {
        return; // It was reset before we got to it.
    }
    let line = Arc::new(Line::new(Instant::now()));
    let entry = door.roster.enter(&line);
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        // Dropped from the last to the first: when the slot is free, nothing
        // of the connection is left.
        let (_slot, _entry, shared) = (slot, entry, shared);
        supervised(&line, connection::run(&shared, Arc::clone(&line), stream, remote)).await;
    });
}

fn concerns_one_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    )
}
