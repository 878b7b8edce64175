//! `Listener`: a port that is being served. It accepts connections, bounds their
//! number, starts their supervisor, and drains them at the end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::connection::{self, Shared};
use super::connection_state::{ConnectionState, Directive, run_supervised};
use super::limits::SEND_BUFFER_BYTES;
use super::supervisor::ConnectionTable;
use super::{Handler, Limits};
use crate::memory::MemoryBudget;

/// The pause after an accept that failed, unless one peer was the reason. Most often the
/// process lacks file descriptors or memory. A retry without a pause would spin. Connections
/// that end during the pause free both.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The clients that may wait in the kernel's queue: as many as tokio and most servers allow.
const BACKLOG: u32 = 1024;

/// The longest wait for connections that are told to close. They close at their next
/// poll, so this only bounds how long the scheduler takes to poll them.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// Binds every address that `host` stands for, all on one port (`localhost`
/// is often both 127.0.0.1 and ::1). With port 0 the first address gets a free port,
/// and the others get the same port.
///
/// An address that this machine does not have is skipped if another address can be
/// bound. Any other failure, such as a port in use, is an error.
pub(crate) async fn bind(host: &str, port: u16) -> io::Result<Vec<TcpListener>> {
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host((host, port)).await?.collect();
    let mut sockets: Vec<TcpListener> = Vec::new();
    let mut unavailable_error = None;
    for mut address in addresses {
        if let Some(first) = sockets.first() {
            address.set_port(first.local_addr()?.port());
        }
        match listen(address) {
            Ok(socket) => sockets.push(socket),
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => unavailable_error = Some(error),
            Err(error) => return Err(error),
        }
    }
    if sockets.is_empty() {
        let no_address = || io::Error::new(io::ErrorKind::AddrNotAvailable, "the host has no address");
        return Err(unavailable_error.unwrap_or_else(no_address));
    }
    Ok(sockets)
}

/// Listens on an address. The connections get small send buffers from the listening socket.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // On Windows this option would let another program take the port.
    if cfg!(unix) {
        socket.set_reuseaddr(true)?;
    }
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// A port that is being served. Dropping the listener closes every connection at
/// once; [`Listener::drain`] is the orderly way.
#[derive(Debug)]
pub(crate) struct Listener {
    local_addr: SocketAddr,
    /// Each open connection holds a slot, and so does each acceptor while it waits for a
    /// connection.
    slots: Arc<Semaphore>,
    slot_count: u32,
    table: Arc<ConnectionTable>,
    /// One task per socket.
    acceptors: Vec<JoinHandle<()>>,
    supervisor: JoinHandle<()>,
}

impl Listener {
    /// Starts serving on sockets from [`bind`]. Without `tls`, TLS clients are
    /// disconnected. Must be called inside a tokio runtime.
    pub(crate) fn start<H: Handler>(
        sockets: Vec<TcpListener>,
        tls: Option<Arc<ServerConfig>>,
        limits: Limits,
        memory: Arc<MemoryBudget>,
        handler: Arc<H>,
    ) -> io::Result<Listener> {
        let local_addr = match sockets.first() {
            Some(first) => first.local_addr()?,
            None => return Err(io::Error::new(io::ErrorKind::InvalidInput, "no socket given")),
        };
        let slot_count =
            u32::try_from(limits.connections.clamp(1, Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        let slots = Arc::new(Semaphore::new(slot_count as usize));
        let table = Arc::new(ConnectionTable::default());
        let limits = Arc::new(limits);
        let shared = Arc::new(Shared {
            handler,
            memory: Arc::clone(&memory),
            limits: Arc::clone(&limits),
            tls: tls.map(TlsAcceptor::from),
        });
        let acceptors = sockets
            .into_iter()
            .map(|socket| {
                let admission = Admission { slots: Arc::clone(&slots), table: Arc::clone(&table) };
                tokio::spawn(accept_all(socket, admission, Arc::clone(&shared)))
            })
            .collect();
        let supervised_table = Arc::clone(&table);
        let supervisor = tokio::spawn(async move { supervised_table.supervise(&limits, &memory).await });
        Ok(Listener { local_addr, slots, slot_count, table, acceptors, supervisor })
    }

    /// The address of the first socket, with the port that was really bound.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// How many connections are open.
    pub(crate) fn connections(&self) -> usize {
        self.table.len()
    }

    /// Stops accepting, lets requests in flight finish for at most `grace`, then closes
    /// the connections that remain.
    pub(crate) async fn drain(mut self, grace: Duration) {
        for acceptor in self.acceptors.drain(..) {
            acceptor.abort();
            // The await ends when the socket is closed. The result is the error of a
            // cancelled task.
            let _ = acceptor.await;
        }
        self.table.raise_directive_of_all(Directive::Drain);
        if !self.wait_until_closed(grace).await {
            tracing::warn!(
                connections = self.connections(),
                "the grace period is over, closing the remaining connections"
            );
            self.table.raise_directive_of_all(Directive::Close);
            self.wait_until_closed(CLOSE_WAIT).await;
        }
    }

    /// Waits until every slot is free: then no connection is open. The acceptors must have
    /// ended, because a waiting acceptor holds a slot. Returns `false` at the timeout.
    async fn wait_until_closed(&self, timeout: Duration) -> bool {
        tokio::time::timeout(timeout, self.slots.acquire_many(self.slot_count)).await.is_ok()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.acceptors.iter().for_each(JoinHandle::abort);
        self.supervisor.abort();
        self.table.raise_directive_of_all(Directive::Close);
    }
}

/// The parts of a listener that an acceptor needs to admit a connection.
struct Admission {
    slots: Arc<Semaphore>,
    table: Arc<ConnectionTable>,
}

/// Accepts connections until the task is aborted.
async fn accept_all<H: Handler>(socket: TcpListener, admission: Admission, shared: Arc<Shared<H>>) {
    // The slot is taken before the connection is accepted: while no slot is free,
    // clients wait in the kernel's queue. (The semaphore is never closed.)
    while let Ok(slot) = Arc::clone(&admission.slots).acquire_owned().await {
        match socket.accept().await {
            Ok((stream, remote)) => admit(&admission, slot, &shared, stream, remote),
            Err(error) if concerns_one_peer(&error) => (),
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections, will try again");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn admit<H: Handler>(
    admission: &Admission,
    slot: OwnedSemaphorePermit,
    shared: &Arc<Shared<H>>,
    stream: TcpStream,
    remote: SocketAddr,
) {
    if stream.set_nodelay(true).is_err() {
        return; // The peer has reset the connection already.
    }
    let state = Arc::new(ConnectionState::new());
    let registration = admission.table.register(&state);
    let shared = Arc::clone(shared);
    let announced = AnnouncedConnection::new(Arc::clone(&shared.handler));
    tokio::spawn(async move {
        // The variables of this tuple are dropped from last to first. So the slot is
        // freed last, when every other part of the connection has been dropped.
        let (_slot, _registration, _announced, shared) = (slot, registration, announced, shared);
        run_supervised(&state, connection::run(&shared, Arc::clone(&state), stream, remote)).await;
    });
}

/// A connection whose start was reported to the handler. The drop reports its end.
struct AnnouncedConnection<H: Handler>(Arc<H>);

impl<H: Handler> AnnouncedConnection<H> {
    fn new(handler: Arc<H>) -> Self {
        handler.connection_opened();
        AnnouncedConnection(handler)
    }
}

impl<H: Handler> Drop for AnnouncedConnection<H> {
    fn drop(&mut self) {
        self.0.connection_closed();
    }
}

/// Whether an accept failed because of one peer, so that the next accept can succeed.
fn concerns_one_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    )
}
