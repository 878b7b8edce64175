//! An endpoint whose connections are pipes in memory, with an HTTP/2 server at the other end
//! that behaves as the test says.

use std::collections::BTreeSet;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use http::Method;
use http::uri::PathAndQuery;
use perihelion_wire::transport::{Endpoint, Failure, FailureKind, Response, Sent};
use tokio::io::DuplexStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{self, Instant};

use super::super::{Connections, Open};
use crate::pulse::LATE_AFTER;
use crate::transport::connect::{KnownProtocol, NewConnection};
use crate::transport::faults::FaultSource;
use crate::transport::http::{RequestParts, send_with_resends, start};
use crate::transport::http2::{self, Http2Support, NewHttp2};
use crate::transport::options::HttpOptions;
use crate::transport::shard::Shard;

/// The reaction of the server to a request.
pub(super) enum Answer {
    After(Duration),
    /// Resets the stream, without saying that the request was not processed.
    Reset,
    Never,
    /// Sends the head of the answer, and never the body.
    HeadOnly,
}

/// The pool and the servers at the other end of its pipes.
pub(super) struct World {
    connections: Arc<Connections>,
    servers: Arc<Servers>,
}

/// The servers of all connections. Each connection has a number, from 1.
struct Servers {
    streams_max: u32,
    /// Gets the number of a connection, and returns how a request on it is answered.
    answer: Box<dyn Fn(u64) -> Answer + Send + Sync>,
    opened: AtomicUsize,
    peak_per_connection: AtomicUsize,
    frozen: watch::Sender<BTreeSet<u64>>,
    going_away: watch::Sender<BTreeSet<u64>>,
}

/// The default options, but with up to 32 connections. The default number depends on the machine.
pub(super) fn options() -> HttpOptions {
    HttpOptions::default().with_connections_max(32)
}

fn parts(method: Method) -> RequestParts {
    let target = PathAndQuery::from_static("/");
    let (headers, body, route) = Default::default();
    RequestParts { method, target, headers, body, route }
}

impl World {
    /// Servers that allow `streams_max` streams. `answer` gets the number of the connection.
    pub(super) fn new(
        options: HttpOptions,
        streams_max: u32,
        answer: impl Fn(u64) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let servers = Arc::new(Servers {
            streams_max,
            answer: Box::new(answer),
            opened: AtomicUsize::new(0),
            peak_per_connection: AtomicUsize::new(0),
            frozen: watch::Sender::default(),
            going_away: watch::Sender::default(),
        });
        let endpoint = Endpoint::parse("http://pipe:1").unwrap();
        let opener = Arc::new(Pipes { servers: Arc::clone(&servers), faults: options.faults.clone() });
        World { connections: Arc::new(Connections::new(endpoint, opener, &options).unwrap()), servers }
    }

    pub(super) fn send(&self, method: Method) -> impl Future<Output = Result<Response, Failure>> + use<> {
        self.send_until(method, Instant::now() + Duration::from_secs(60))
    }

    pub(super) fn send_until(
        &self,
        method: Method,
        deadline: Instant,
    ) -> impl Future<Output = Result<Response, Failure>> + use<> {
        let connections = Arc::clone(&self.connections);
        async move { send_with_resends(&connections, parts(method), deadline).await.result }
    }

    /// Sends a request on one connection only.
    pub(super) fn send_once_until(
        &self,
        method: Method,
        deadline: Instant,
    ) -> impl Future<Output = Result<Response, Failure>> + use<> {
        let connections = Arc::clone(&self.connections);
        async move { start(&connections, parts(method), deadline).await.result }
    }

    /// Sends requests at the same time.
    pub(super) fn send_many(&self, count: usize, method: Method) -> JoinSet<Result<Response, Failure>> {
        (0..count).map(|_| self.send(method.clone())).collect()
    }

    /// Freezes a connection: from now on it carries no byte in either direction.
    pub(super) fn freeze(&self, number: u64) {
        self.servers.frozen.send_modify(|frozen| {
            frozen.insert(number);
        });
    }

    /// Makes the server take no more requests on this connection.
    pub(super) fn send_goaway(&self, number: u64) {
        self.servers.going_away.send_modify(|going_away| {
            going_away.insert(number);
        });
    }

    /// How many connections were ever opened.
    pub(super) fn opened(&self) -> usize {
        self.servers.opened.load(Ordering::SeqCst)
    }

    /// The most requests that a server had on one connection.
    pub(super) fn peak_per_connection(&self) -> usize {
        self.servers.peak_per_connection.load(Ordering::SeqCst)
    }

    /// The numbers of the connections in the pool.
    pub(super) fn shards(&self) -> Vec<u64> {
        self.connections.shards.load().iter().map(|shard| shard.core.number).collect()
    }

    pub(super) fn in_use(&self) -> usize {
        self.connections.load().in_use
    }

    /// All connections whose task runs, also those that were taken out of use.
    #[cfg(feature = "fault-injection")]
    pub(super) fn open(&self) -> usize {
        self.connections.statistics().connections_open
    }

    /// Whether no stream is in use, no request is in flight or waits, and no bytes are held.
    #[cfg(feature = "fault-injection")]
    pub(super) fn is_idle(&self) -> bool {
        self.connections.statistics().is_idle()
    }

    /// How many connections are being opened.
    pub(super) fn opening(&self) -> usize {
        self.connections.opening.load(Ordering::SeqCst)
    }

    /// Opens a connection on the current runtime.
    pub(super) fn open_shard(&self) {
        self.connections.open_shards(self.connections.lock(), 1, None);
    }

    /// Makes the task of this connection look stuck, as if it had not run for a long time, until
    /// it runs again.
    pub(super) fn stop_pulse(&self, number: u64) {
        self.shard(number).core.pulse.expect_at(Instant::now() - 2 * LATE_AFTER);
    }

    /// Makes a timer of this connection fire a second late.
    pub(super) fn fire_timer_late(&self, number: u64) {
        let (shard, now) = (self.shard(number), Instant::now());
        shard.core.starvation.timer_fired(now - Duration::from_secs(1), now, &shard.core.vitals);
    }

    /// Waits until the task of this connection has run. It then runs again after a second, if the
    /// connection is idle.
    pub(super) async fn wait_for_check(&self, number: u64) {
        let shard = self.shard(number);
        let due = shard.core.pulse.due_ms();
        while shard.core.pulse.due_ms() == due {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn shard(&self, number: u64) -> Arc<Shard> {
        let shards = self.connections.shards.load();
        Arc::clone(shards.iter().find(|shard| shard.core.number == number).unwrap())
    }

    pub(super) fn waiting(&self) -> usize {
        self.connections.waiting.load(Ordering::SeqCst)
    }
}

struct Pipes {
    servers: Arc<Servers>,
    faults: FaultSource,
}

impl Open for Pipes {
    fn open(
        &self,
        _known: KnownProtocol,
    ) -> Pin<Box<dyn Future<Output = Result<NewConnection, Failure>> + Send + '_>> {
        Box::pin(async {
            let number = self.servers.opened.fetch_add(1, Ordering::SeqCst) as u64 + 1;
            let (client, server) = tokio::io::duplex(1 << 20);
            tokio::spawn(serve(server, number, Arc::clone(&self.servers)));
            let (client, switch) = self.faults.wrap_http2(client);
            let opened = http2::open(client, Http2Support::Assumed).await;
            opened
                .map(|new| NewConnection::Http2(NewHttp2 { switch, ..new }))
                .map_err(|error| Failure::new(FailureKind::Connect, Sent::No, error.to_string()))
        })
    }
}

async fn serve(pipe: DuplexStream, number: u64, servers: Arc<Servers>) {
    let (mut frozen, mut going_away) = (servers.frozen.subscribe(), servers.going_away.subscribe());
    let mut builder = h2::server::Builder::new();
    let Ok(mut connection) =
        builder.max_concurrent_streams(servers.streams_max).handshake::<_, Bytes>(pipe).await
    else {
        return;
    };
    let mut answering = JoinSet::new();
    let mut has_sent_goaway = false;
    loop {
        tokio::select! {
            biased;
            // The pipe stays open, but is not read or written any more.
            () = wait_for_number(&mut frozen, number) => return pending().await,
            () = wait_for_number(&mut going_away, number), if !has_sent_goaway => {
                connection.graceful_shutdown();
                has_sent_goaway = true;
            }
            Some(_) = answering.join_next() => {}
            accepted = connection.accept() => match accepted {
                Some(Ok((_, respond))) => {
                    answering.spawn(answer((servers.answer)(number), respond));
                    servers.peak_per_connection.fetch_max(answering.len(), Ordering::SeqCst);
                }
                Some(Err(_)) | None => return,
            },
        }
    }
}

/// Waits until the set contains the number.
async fn wait_for_number(set: &mut watch::Receiver<BTreeSet<u64>>, number: u64) {
    // The world that owns the sender lives as long as the test.
    let _ = set.wait_for(|numbers| numbers.contains(&number)).await;
}

async fn answer(answer: Answer, mut respond: SendResponse<Bytes>) {
    match answer {
        Answer::After(delay) => {
            time::sleep(delay).await;
            // The client may have reset the stream.
            let _ = respond.send_response(http::Response::new(()), true);
        }
        Answer::Reset => respond.send_reset(h2::Reason::INTERNAL_ERROR),
        Answer::Never => {
            // Ends when the client resets the stream.
            let _ = std::future::poll_fn(|cx| respond.poll_reset(cx)).await;
        }
        Answer::HeadOnly => {
            if let Ok(mut body) = respond.send_response(http::Response::new(()), false) {
                let _ = std::future::poll_fn(|cx| body.poll_reset(cx)).await;
            }
        }
    }
}
