//! Peers: servers for the tests of the transport. A function of the test handles each
//! connection. A peer counts its connections and ends with the test.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use perihelion_driver::transport::{HttpOptions, HttpTransport};
use perihelion_server::certificates::{Certificates, Names};
use perihelion_wire::transport::{Endpoint, Failure, FailureKind, Request, Sent};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Far longer than any request of these tests takes.
pub(crate) const LONG_TIMEOUT: Duration = Duration::from_secs(30);

/// Long enough to connect and to send a request, and short enough that a test can wait
/// until this time has passed.
pub(crate) const SHORT_TIMEOUT: Duration = Duration::from_millis(300);

/// A listening peer.
pub(crate) struct Peer {
    pub(crate) endpoint: Endpoint,
    connections: Arc<AtomicUsize>,
    _accepting: JoinSet<()>,
}

impl Peer {
    /// Gives each connection, with its number from 1, to `serve`.
    pub(crate) async fn start<F, S>(scheme: &str, serve: F) -> Peer
    where
        F: Fn(usize, TcpStream) -> S + Send + Sync + 'static,
        S: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&connections);
        let mut accepting = JoinSet::new();
        accepting.spawn(boxed(async move {
            let mut serving = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let number = counter.fetch_add(1, Ordering::SeqCst) + 1;
                serving.spawn(boxed(serve(number, stream)));
            }
        }));
        let endpoint = Endpoint::parse(&format!("{scheme}://127.0.0.1:{port}")).unwrap();
        Peer { endpoint, connections, _accepting: accepting }
    }

    /// Connections accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// A request for `/` with plenty of time.
    pub(crate) fn get(&self) -> Request {
        Request {
            endpoint: self.endpoint.clone(),
            method: Method::GET,
            target: PathAndQuery::from_static("/"),
            headers: HeaderMap::new(),
            body: Bytes::new(),
            deadline: (Instant::now() + LONG_TIMEOUT).into_std(),
            route: Default::default(),
        }
    }

    /// A GET request with a short deadline.
    pub(crate) fn get_with_short_deadline(&self) -> Request {
        Request { deadline: (Instant::now() + SHORT_TIMEOUT).into_std(), ..self.get() }
    }

    /// A request with a body.
    pub(crate) fn post(&self, body: impl Into<Bytes>) -> Request {
        Request { method: Method::POST, body: body.into(), ..self.get() }
    }
}

/// A future as a trait object. All peers spawn the same type of future, instead of one type
/// per test. This halves the time to compile the tests.
fn boxed(future: impl Future<Output = ()> + Send + 'static) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(future)
}

/// Checks the kind of a failure, and whether the request was sent.
#[track_caller]
pub(crate) fn check(failure: &Failure, kind: FailureKind, sent: Sent) {
    assert_eq!((failure.kind, failure.sent), (kind, sent), "{failure}");
}

/// Reads the head of an HTTP/1.1 request.
pub(crate) async fn read_head<T: tokio::io::AsyncRead + Unpin>(stream: &mut T) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
}

/// The certificates of all peers of this process.
pub(crate) fn certificates() -> &'static Certificates {
    static CERTIFICATES: OnceLock<Certificates> = OnceLock::new();
    CERTIFICATES
        .get_or_init(|| Certificates::load_or_create(None, &Names::local_and([]), SystemTime::now()).unwrap())
}

/// Options that trust the peers.
pub(crate) fn options_trusting_peers() -> HttpOptions {
    HttpOptions::default().with_ca_pem(certificates().ca_pem())
}

/// A transport that trusts the peers.
pub(crate) fn transport() -> HttpTransport {
    HttpTransport::new(options_trusting_peers()).unwrap()
}

/// The server's half of a TLS handshake. The server offers these protocols.
pub(crate) async fn accept_tls(stream: TcpStream, alpn: &[&str]) -> TlsStream<TcpStream> {
    let mut config = (*certificates().server_config().unwrap()).clone();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    TlsAcceptor::from(Arc::new(config)).accept(stream).await.unwrap()
}

/// The number of tasks of this test's runtime, the peers' included.
pub(crate) fn alive_tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// Waits until at most `count` tasks are alive.
pub(crate) async fn wait_for_task_count(count: usize) {
    while alive_tasks() > count {
        tokio::task::yield_now().await;
    }
}

/// Serves HTTP/1.1, and answers each request with the request's own body.
pub(crate) async fn serve_http1<T>(stream: T)
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    serve_http1_together(1, stream, &watch::Sender::new(0)).await;
}

/// Serves HTTP/1.1 like [`serve_http1`], but answers nothing before `count` requests have arrived.
/// So the first `count` requests have a connection each. `arrived` counts the requests of all
/// connections.
pub(crate) async fn serve_http1_together<T>(count: usize, stream: T, arrived: &watch::Sender<usize>)
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let echo = service_fn(|request: http::Request<Incoming>| async move {
        arrived.send_modify(|arrived| *arrived += 1);
        // The sender lives as long as the connection.
        let _ = arrived.subscribe().wait_for(|arrived| *arrived >= count).await;
        let body = http_body_util::BodyExt::collect(request.into_body()).await?.to_bytes();
        Ok::<_, hyper::Error>(http::Response::new(Full::new(body)))
    });
    // The client may end the connection in any way.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), echo).await;
}

/// One request to an HTTP/2 peer, and the handle to answer it.
pub(crate) type Exchange = (http::Request<h2::RecvStream>, h2::server::SendResponse<Bytes>);

/// Serves HTTP/2, with at most `streams_max` streams at a time. Gives each request to
/// `answer`, without waiting for the requests before it.
pub(crate) async fn serve_http2<T, F, A>(stream: T, streams_max: u32, answer: F)
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    F: Fn(Exchange) -> A,
    A: Future<Output = ()> + Send + 'static,
{
    let handshake = h2::server::Builder::new()
        .max_concurrent_streams(streams_max)
        .initial_window_size(1 << 20)
        .initial_connection_window_size(1 << 22)
        .handshake::<_, Bytes>(stream);
    let Ok(mut connection) = handshake.await else { return };
    let mut answering = JoinSet::new();
    while let Some(Ok(exchange)) = connection.accept().await {
        answering.spawn(boxed(answer(exchange)));
    }
}

/// Answers with the request's own body.
pub(crate) async fn echo((request, mut respond): Exchange) {
    let mut stream = request.into_body();
    let mut body = Vec::new();
    while let Some(Ok(part)) = stream.data().await {
        stream.flow_control().release_capacity(part.len()).unwrap();
        body.extend_from_slice(&part);
    }
    let head = http::Response::new(());
    // The client may have closed the connection.
    if let Ok(mut stream) = respond.send_response(head, body.is_empty())
        && !body.is_empty()
    {
        let _ = stream.send_data(body.into(), true);
    }
}

/// Never answers a request.
pub(crate) async fn never_answer((_request, _respond): Exchange) {
    std::future::pending::<()>().await;
}

/// An HTTP/2 connection whose frames the test writes itself, to send what no library
/// would send.
pub(crate) struct Frames<T>(T);

/// The fields of a frame that the tests use.
pub(crate) struct Frame {
    pub(crate) kind: u8,
    flags: u8,
    pub(crate) stream: u32,
}

/// The kinds of frames that the tests use.
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;

/// The flags of frames that the tests use.
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The header block of an answer with the status 200 and no other headers.
const STATUS_200: u8 = 0x88;

impl<T: AsyncRead + AsyncWrite + Unpin> Frames<T> {
    /// Reads the client's preface and sends empty settings.
    pub(crate) async fn handshake(mut stream: T) -> Self {
        let mut preface = [0; 24];
        stream.read_exact(&mut preface).await.unwrap();
        assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        let mut frames = Frames(stream);
        frames.send(SETTINGS, 0, 0, &[]).await;
        frames
    }

    /// Sends a frame.
    pub(crate) async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let mut frame = Vec::from(&(payload.len() as u32).to_be_bytes()[1..]);
        frame.extend_from_slice(&[kind, flags]);
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(payload);
        // The client may have closed the connection.
        let _ = self.0.write_all(&frame).await;
    }

    /// The next frame; `None` at the end. Settings and pings are answered.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        self.0.read_exact(&mut payload).await.ok()?;
        if head[4] & ACK == 0 {
            match head[3] {
                SETTINGS => self.send(SETTINGS, ACK, 0, &[]).await,
                PING => self.send(PING, ACK, 0, &payload).await,
                _ => {}
            }
        }
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some(Frame { kind: head[3], flags: head[4], stream })
    }

    /// Waits for the next request, and returns its stream.
    pub(crate) async fn next_request(&mut self) -> Option<u32> {
        loop {
            let frame = self.next().await?;
            if frame.kind == HEADERS {
                return Some(frame.stream);
            }
        }
    }

    /// Reads until the client closes the connection.
    pub(crate) async fn drain(mut self) {
        while self.next().await.is_some() {}
    }

    /// Sends GOAWAY, like [`Frames::go_away`], and waits until the client has received it.
    pub(crate) async fn go_away_and_wait(&mut self, last: u32) {
        self.go_away(last).await;
        self.send(PING, 0, 0, b"heard it").await;
        loop {
            let frame = self.next().await.expect("the client is connected");
            if (frame.kind, frame.flags) == (PING, ACK) {
                return;
            }
        }
    }

    /// Sends GOAWAY: no stream after `last` was or will be processed.
    pub(crate) async fn go_away(&mut self, last: u32) {
        let mut payload = Vec::from(last.to_be_bytes());
        payload.extend_from_slice(&0u32.to_be_bytes());
        self.send(GOAWAY, 0, 0, &payload).await;
    }

    /// Answers a request with an empty 200.
    pub(crate) async fn answer_ok(&mut self, stream: u32) {
        self.send(HEADERS, END_HEADERS | END_STREAM, stream, &[STATUS_200]).await;
    }

    /// Sends the head of an answer with the status 200, whose body is to follow.
    pub(crate) async fn begin_answer(&mut self, stream: u32) {
        self.send(HEADERS, END_HEADERS, stream, &[STATUS_200]).await;
    }
}
