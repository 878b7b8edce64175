//! `Listener`: accepts connections and serves each in a task, until it is dropped.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

use super::Body;
use super::peers::{Peer, Peers};
use super::write_limit::WriteLimit;

/// The most connections. A browser opens up to six; a connection beyond the limit waits.
const CONNECTIONS_MAX: usize = 256;

/// How long the head of a request may take. After that the connection is closed.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// How long an answer may wait for a client that does not read. After that the connection is closed.
const WRITE_WAIT_MAX: Duration = Duration::from_secs(30);

/// The most bytes of a head.
const HEAD_BYTES_MAX: usize = 32 * 1024;

/// The pause after a failed accept, as when no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listener that serves. Dropping it closes it and all its connections.
#[derive(Debug)]
pub(crate) struct Listener {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Listener {
    /// Serves every request of a bound socket with `answer`.
    pub(crate) fn serve<F>(
        socket: TcpListener,
        answer: impl Fn(http::Request<Incoming>) -> F + Send + Sync + 'static,
    ) -> std::io::Result<Listener>
    where
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        let address = socket.local_addr()?;
        Ok(Listener { address, task: tokio::spawn(accept(socket, Arc::new(answer))) })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Accepts connections. The tasks of the connections end with this future.
async fn accept<F>(
    socket: TcpListener,
    answer: Arc<impl Fn(http::Request<Incoming>) -> F + Send + Sync + 'static>,
) where
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let peers = Peers::default();
    let mut connections = JoinSet::new();
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        match accepted {
            Ok((stream, peer)) => {
                let Some(counted) = peers.count(peer.ip()) else {
                    tracing::debug!(%peer, "the dashboard closes a connection: its address has too many");
                    continue;
                };
                let answer = Arc::clone(&answer);
                connections.spawn(async move {
                    let stream = WriteLimit::new(stream, WRITE_WAIT_MAX);
                    serve_connection(stream, Peer::new(counted), answer).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "the dashboard cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_connection<F>(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    peer: Peer,
    answer: Arc<impl Fn(http::Request<Incoming>) -> F + Send + Sync + 'static>,
) where
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let service = service_fn(move |mut request: http::Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        let answered = answer(request);
        async move { Ok::<_, Infallible>(answered.await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection to the dashboard ended");
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    /// 256 such clients once used all connections, so that no other client could connect. They needed
    /// no login.
    #[tokio::test]
    async fn a_client_that_never_reads_is_disconnected() {
        let (near, mut far) = tokio::io::duplex(4096);
        let near = WriteLimit::new(near, Duration::from_millis(200));
        let answer = |_| async { Response::new(Body::Whole(vec![b'x'; 1024].into())) };
        let served = tokio::spawn(serve_connection(near, Peer::default(), Arc::new(answer)));
        let head = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        let sending = async { while far.write_all(head).await.is_ok() {} };
        tokio::time::timeout(Duration::from_secs(10), sending).await.expect("the connection ends");
        served.await.expect("no panic");
    }
}
