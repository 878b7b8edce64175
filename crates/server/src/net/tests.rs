//! A listener over real sockets, with a handler that echoes.
//!
//! The limits are small, so that they act within a test. A test waits for an event (an
//! answer, the end of a stream), or polls a counter of the server until it has changed.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::{Handler, Hangup, Limits, Listener, Peer, Rejection, bind};
use crate::certificates::{Certificates, Names};
use crate::memory::MemoryBudget;

/// A test that waits longer than this has failed.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A limit short enough to act within a test.
const SOON: Duration = Duration::from_millis(60);

/// The pause of a client that sends byte by byte to keep a connection, and of [`until`] between two
/// polls.
const TRICKLE: Duration = Duration::from_millis(5);

/// Echoes a request. On `/wait` it notifies `entered` and waits for `release` first.
#[derive(Default)]
struct Echo {
    entered: Notify,
    release: Notify,
}

impl Handler for Echo {
    async fn handle(&self, request: Request<Bytes>, peer: Peer) -> Result<Response<Bytes>, Hangup> {
        match request.uri().path() {
            "/hangup" => return Err(Hangup::Unserved),
            "/panic" => panic!("a handler's bug"),
            "/big" => return Ok(Response::new(Bytes::from(vec![b'x'; 4 * 1024 * 1024]))),
            "/wait" => {
                self.entered.notify_one();
                self.release.notified().await;
            }
            _ => (),
        }
        let scheme = peer.scheme.as_str();
        let (version, path) = (request.version(), request.uri().path());
        let text = format!("{version:?} {scheme} {path} {}", request.body().len());
        Ok(Response::new(Bytes::from(text)))
    }

    fn reject(&self, rejection: Rejection) -> Response<Bytes> {
        let mut response = Response::new(Bytes::from(format!("{rejection:?}")));
        *response.status_mut() = rejection.status();
        response
    }
}

struct Fixture {
    listener: Listener,
    echo: Arc<Echo>,
    memory: Arc<MemoryBudget>,
    client: Arc<ClientConfig>,
}

impl Fixture {
    async fn start(limits: Limits) -> Fixture {
        let names = Names::local_and([]);
        let certificates =
            Certificates::load_or_create(None, &names, SystemTime::now()).expect("certificates");
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(certificates.ca_pem().as_bytes()).expect("a CA");
        roots.add(ca).expect("a root");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let echo = Arc::new(Echo::default());
        let tls = certificates.server_config().expect("a configuration");
        let sockets = bind("127.0.0.1", 0).await.expect("a port");
        let memory = MemoryBudget::new(limits.body_bytes_total);
        let (budget, handler) = (Arc::clone(&memory), Arc::clone(&echo));
        let listener = Listener::start(sockets, Some(tls), limits, budget, handler).expect("a listener");
        Fixture { listener, echo, memory, client: Arc::new(client) }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.listener.local_addr()).await.expect("a connection")
    }

    async fn connect_tls(&self, alpn: &[&[u8]]) -> tokio_rustls::client::TlsStream<TcpStream> {
        let mut config = (*self.client).clone();
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let name = ServerName::try_from("localhost").expect("a name");
        connector.connect(name, self.connect().await).await.expect("a handshake")
    }

    /// Checks that the server still serves another client.
    async fn assert_serving(&self) {
        let answer = exchange(self.connect().await, b"GET /well HTTP/1.1\r\nconnection: close\r\n\r\n").await;
        assert!(answer.ends_with("HTTP/1.1 http /well 0"), "{answer}");
    }
}

/// Writes, then reads until the server closes or resets the connection. Returns what was
/// read.
async fn exchange<I: AsyncRead + AsyncWrite + Unpin>(mut stream: I, bytes: &[u8]) -> String {
    let mut answer = Vec::new();
    let conversation = async {
        let _ = stream.write_all(bytes).await;
        let mut chunk = [0; 4096];
        while let Ok(read @ 1..) = stream.read(&mut chunk).await {
            answer.extend_from_slice(&chunk[..read]);
        }
    };
    tokio::time::timeout(TIMEOUT, conversation).await.expect("the server closes the connection");
    String::from_utf8_lossy(&answer).into_owned()
}

/// The status, the version and the body of a response.
async fn text(response: Response<hyper::body::Incoming>) -> (StatusCode, Version, String) {
    let (head, body) = response.into_parts();
    let bytes = body.collect().await.expect("a body").to_bytes();
    (head.status, head.version, String::from_utf8_lossy(&bytes).into_owned())
}

/// The type of an HTTP/2 SETTINGS frame.
const SETTINGS: u8 = 4;

/// An HTTP/2 frame, by hand: length, type, flags, stream, payload.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short payload").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn get(target: &str) -> Request<Full<Bytes>> {
    Request::get(target).body(Full::default()).expect("a request")
}

/// Starts a client that speaks HTTP/1.1 over the stream.
async fn over_http1<I>(stream: I) -> http1::SendRequest<Full<Bytes>>
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("a handshake");
    tokio::spawn(connection);
    sender
}

/// Starts a client that speaks HTTP/2 over the stream.
async fn over_http2<I>(stream: I) -> http2::SendRequest<Full<Bytes>>
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("a handshake");
    tokio::spawn(connection);
    sender
}

#[tokio::test]
async fn four_protocols_are_served_on_one_port() {
    let fixture = Fixture::start(Limits::default()).await;

    let answer = text(over_http1(fixture.connect().await).await.send_request(get("/a")).await.unwrap()).await;
    assert_eq!(answer, (StatusCode::OK, Version::HTTP_11, "HTTP/1.1 http /a 0".into()));

    let mut clear = over_http2(fixture.connect().await).await;
    let answer = text(clear.send_request(get("http://localhost/b")).await.unwrap()).await;
    assert_eq!(answer, (StatusCode::OK, Version::HTTP_2, "HTTP/2.0 http /b 0".into()));

    let stream = fixture.connect_tls(&[b"h2", b"http/1.1"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let answer = text(over_http2(stream).await.send_request(get("https://localhost/c")).await.unwrap()).await;
    assert_eq!(answer, (StatusCode::OK, Version::HTTP_2, "HTTP/2.0 https /c 0".into()));

    let stream = fixture.connect_tls(&[b"http/1.1"]).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let answer = text(over_http1(stream).await.send_request(get("/d")).await.unwrap()).await;
    assert_eq!(answer, (StatusCode::OK, Version::HTTP_11, "HTTP/1.1 https /d 0".into()));

    for (stream, expected) in [
        (fixture.connect_tls(&[]).await, "HTTP/1.1 https /e 0"),
        (fixture.connect_tls(&[]).await, "HTTP/2.0 https /e 0"),
    ] {
        let answer = if expected.starts_with("HTTP/2") {
            over_http2(stream).await.send_request(get("https://localhost/e")).await
        } else {
            over_http1(stream).await.send_request(get("/e")).await
        };
        assert_eq!(text(answer.unwrap()).await.2, expected, "without ALPN the first bytes decide");
    }
}

#[tokio::test]
async fn an_http2_preface_in_single_bytes_is_recognized() {
    let fixture = Fixture::start(Limits::default()).await;
    let (near, far) = tokio::io::duplex(1);
    let mut server = fixture.connect().await;
    server.set_nodelay(true).unwrap();
    // The duplex passes on one byte at a time, so the server receives single bytes.
    tokio::spawn(async move {
        let mut near = near;
        let _ = tokio::io::copy_bidirectional_with_sizes(&mut near, &mut server, 1, 1).await;
    });
    let answer = text(over_http2(far).await.send_request(get("http://localhost/f")).await.unwrap()).await;
    assert_eq!(answer.2, "HTTP/2.0 http /f 0");
}

#[tokio::test]
async fn pipelined_requests_on_one_connection_are_answered_in_order() {
    let fixture = Fixture::start(Limits::default()).await;
    let requests = b"POST /1 HTTP/1.1\r\ncontent-length: 3\r\n\r\nabcGET /2 HTTP/1.1\r\n\r\n\
        POST /3 HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n\
        GET /4 HTTP/1.1\r\nconnection: close\r\n\r\n";
    let answer = exchange(fixture.connect().await, requests).await;
    let offsets: Vec<_> = ["/1 3", "/2 0", "/3 5", "/4 0"].map(|echo| answer.find(echo).expect(echo)).into();
    assert!(offsets.is_sorted(), "{answer}");
}

#[tokio::test]
async fn invalid_bytes_are_refused_and_others_are_still_served() {
    let fixture = Fixture::start(Limits { handshake_timeout: SOON, ..Limits::default() }).await;
    // The bytes, and how the answer to them must begin, if that matters. Two zeros begin an HTTP/2 frame.
    let garbage: [(&[u8], &str); 8] = [
        (b"\0\0\0\0\0\0\0\0\r\n\r\n", "HTTP/1.1 400 "),
        (b"GET\r\n\r\n", "HTTP/1.1 400 "),
        (b"GET / HTTP/9.9\r\n\r\n", "HTTP/1.1 400 "),
        (b"\xff\xfe\xfd\xfc\r\n\r\n", "HTTP/1.1 400 "),
        (b"GET / HTTP/1.1\r\ncontent-length: -1\r\n\r\n", "HTTP/1.1 400 "),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nnonsense\r\n", ""),
        (b"\x16\x03\x01\x00\x05hello", ""),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff", "\0\0"),
    ];
    for (bytes, expected) in garbage {
        let answer = exchange(fixture.connect().await, bytes).await;
        assert!(answer.starts_with(expected), "{bytes:?} was answered with {answer:?}");
        assert!(!answer.contains(" 200 "), "{bytes:?} was answered with {answer:?}");
    }
    fixture.assert_serving().await;
}

#[tokio::test]
async fn a_connection_with_a_slow_header_block_is_closed_while_others_are_served() {
    let fixture = Fixture::start(Limits { header_timeout: SOON, ..Limits::default() }).await;
    let mut slow = fixture.connect().await;
    slow.write_all(b"GET / HTTP/1.1\r\nx-slow: ").await.unwrap();
    let (mut reader, mut writer) = slow.into_split();
    let trickle = tokio::spawn(async move {
        while writer.write_all(b"a").await.is_ok() {
            tokio::time::sleep(TRICKLE).await;
        }
    });
    let ended =
        tokio::time::timeout(TIMEOUT, reader.read(&mut [0; 64])).await.expect("the connection is closed");
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    trickle.await.unwrap();
    fixture.assert_serving().await;
}

#[tokio::test]
async fn silent_connections_are_closed_before_and_after_the_handshake() {
    let limits = Limits { first_request_timeout: SOON, close_timeout: SOON, ..Limits::default() };
    let fixture = Fixture::start(limits).await;
    assert_eq!(exchange(fixture.connect().await, b"").await, "");
    assert_eq!(exchange(fixture.connect().await, b"PRI * HT").await, "");
    assert_eq!(exchange(fixture.connect_tls(&[b"http/1.1"]).await, b"").await, "");
    assert_eq!(exchange(fixture.connect_tls(&[]).await, b"").await, "");
    let http2 = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 0, 0, &[])].concat();
    assert!(
        exchange(fixture.connect().await, &http2).await.starts_with('\0'),
        "SETTINGS, GOAWAY, then the end of the stream"
    );
}

#[tokio::test]
async fn a_connection_with_a_half_done_handshake_is_closed() {
    let fixture = Fixture::start(Limits { handshake_timeout: SOON, ..Limits::default() }).await;
    assert_eq!(exchange(fixture.connect().await, b"\x16\x03\x01\x02\x00\x01").await, "");
    fixture.assert_serving().await;
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let limits = Limits { idle_timeout: SOON, close_timeout: SOON, ..Limits::default() };
    let fixture = Fixture::start(limits).await;
    let answer = exchange(fixture.connect().await, b"GET /once HTTP/1.1\r\n\r\n").await;
    assert!(answer.ends_with("/once 0"), "{answer}");
    let mut sender = over_http2(fixture.connect().await).await;
    sender.send_request(get("http://localhost/once")).await.unwrap();
    tokio::time::timeout(TIMEOUT, async {
        while sender.ready().await.is_ok() {
            tokio::task::yield_now().await
        }
    })
    .await
    .expect("GOAWAY");
}

#[tokio::test]
async fn a_slow_body_is_refused() {
    let fixture = Fixture::start(Limits { body_timeout: SOON, ..Limits::default() }).await;
    let answer = exchange(fixture.connect().await, b"POST / HTTP/1.1\r\ncontent-length: 10\r\n\r\nabc").await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.ends_with("BodyTimeout"), "{answer}");
    fixture.assert_serving().await;
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_however_it_is_framed() {
    let fixture = Fixture::start(Limits { body_bytes: 1000, ..Limits::default() }).await;
    let body = vec![b'x'; 300_000];

    let mut announced = format!("POST / HTTP/1.1\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes();
    announced.extend_from_slice(&body);
    let mut chunked =
        format!("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n", body.len()).into_bytes();
    chunked.extend_from_slice(&body);
    chunked.extend_from_slice(b"\r\n0\r\n\r\n");
    for bytes in [announced, chunked] {
        let answer = exchange(fixture.connect().await, &bytes).await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
        assert!(answer.ends_with("BodyTooLarge { limit: 1000 }"), "{answer}");
    }

    let exact = format!(
        "POST /fits HTTP/1.1\r\nconnection: close\r\ncontent-length: 1000\r\n\r\n{}",
        "x".repeat(1000)
    );
    let answer = exchange(fixture.connect().await, exact.as_bytes()).await;
    assert!(answer.ends_with("/fits 1000"), "{answer}");

    let request = Request::post("http://localhost/").body(Full::new(Bytes::from(body))).unwrap();
    let response = over_http2(fixture.connect().await).await.send_request(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn a_body_with_a_huge_content_length_is_refused_unread() {
    let fixture = Fixture::start(Limits::default()).await;
    let huge = b"POST / HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n";
    let answer = exchange(fixture.connect().await, huge).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    let asking = b"POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 5000000\r\n\r\n";
    let answer = exchange(fixture.connect().await, asking).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "413 comes without a 100 before it: {answer}");
}

#[tokio::test]
async fn bodies_share_one_memory_budget_and_give_their_bytes_back() {
    let limits = Limits { body_bytes_total: 1000, ..Limits::default() };
    let fixture = Fixture::start(limits).await;
    let post = |path, size| {
        let body = "x".repeat(size);
        format!("POST {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {size}\r\n\r\n{body}")
    };
    let mut holder = fixture.connect().await;
    holder.write_all(post("/wait", 800).as_bytes()).await.unwrap();
    fixture.echo.entered.notified().await;
    let answer = exchange(fixture.connect().await, post("/", 800).as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    fixture.echo.release.notify_one();
    assert!(exchange(holder, b"").await.ends_with("/wait 800"));
    let answer = exchange(fixture.connect().await, post("/after", 800).as_bytes()).await;
    assert!(answer.ends_with("/after 800"), "{answer}");
}

/// Story of a bug: when a client did not read its response, the response stayed in the server's
/// memory forever.
#[tokio::test]
async fn a_client_that_does_not_read_its_response_is_disconnected_and_its_memory_is_freed() {
    let fast = 1 << 30;
    let limits = Limits { response_timeout: SOON, response_bytes_per_second: fast, ..Limits::default() };
    let fixture = Fixture::start(limits).await;
    let mut slow = Vec::new();
    for _ in 0..4 {
        let mut stream = fixture.connect().await;
        stream.write_all(b"GET /big HTTP/1.1\r\n\r\n").await.unwrap();
        // The head of the response arrives, so the response is ready.
        stream.read_exact(&mut [0; 16]).await.unwrap();
        slow.push(stream);
    }
    let mut sender = over_http2(fixture.connect().await).await;
    let unread = sender.send_request(get("http://localhost/big")).await.unwrap();
    assert!(fixture.memory.used_bytes() > 4 * 1024 * 1024, "the responses are held");
    until(|| fixture.listener.connections() == 0).await;
    until(|| fixture.memory.used_bytes() == 0).await;
    drop((slow, unread));
    let answer = exchange(fixture.connect().await, b"GET /ok HTTP/1.1\r\nconnection: close\r\n\r\n").await;
    assert!(answer.ends_with("/ok 0"), "{answer}");
}

#[tokio::test]
async fn a_request_waits_until_the_client_has_read_the_responses_before_it() {
    let limits = Limits { response_bytes_per_connection: 1, ..Limits::default() };
    let fixture = Fixture::start(limits).await;
    let mut sender = over_http2(fixture.connect().await).await;
    let unread = sender.send_request(get("http://localhost/big")).await.unwrap();
    let mut waiting = Box::pin(sender.send_request(get("http://localhost/wait")));
    let entered = fixture.echo.entered.notified();
    tokio::select! {
        biased;
        _ = &mut waiting => panic!("answered"),
        () = entered => panic!("the request began"),
        // Another connection is served meanwhile.
        answer = exchange(fixture.connect().await, b"GET /ok HTTP/1.1\r\nconnection: close\r\n\r\n") => {
            assert!(answer.ends_with("/ok 0"), "{answer}");
        }
    }
    fixture.echo.release.notify_one();
    let (big, waited) = tokio::join!(unread.into_body().collect(), waiting);
    assert_eq!(big.unwrap().to_bytes().len(), 4 * 1024 * 1024);
    assert_eq!(waited.unwrap().status(), StatusCode::OK);
}

/// Waits until the condition holds.
async fn until(holds: impl Fn() -> bool) {
    let poll = async {
        while !holds() {
            tokio::time::sleep(TRICKLE).await;
        }
    };
    tokio::time::timeout(TIMEOUT, poll).await.expect("the condition holds in time");
}

#[tokio::test]
async fn an_oversized_head_is_refused() {
    let fixture = Fixture::start(Limits::default()).await;
    let long = "x".repeat(70_000);
    let many: String = (0..150).map(|count| format!("x-{count}: y\r\n")).collect();
    let target = "x".repeat(20_000);
    for (bytes, status) in [
        (format!("GET / HTTP/1.1\r\nx: {long}\r\n\r\n"), "431"),
        (format!("GET / HTTP/1.1\r\n{many}\r\n"), "431"),
        (format!("GET /{target} HTTP/1.1\r\n\r\n"), "414"),
    ] {
        let answer = exchange(fixture.connect().await, bytes.as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }

    let mut sender = over_http2(fixture.connect().await).await;
    let mut request = get("http://localhost/");
    for count in 0..150 {
        let name = http::HeaderName::try_from(format!("x-{count}")).unwrap();
        request.headers_mut().insert(name, http::HeaderValue::from_static("y"));
    }
    assert_eq!(
        sender.send_request(request).await.unwrap().status(),
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
    );
    let response = sender.send_request(get(&format!("http://localhost/{target}"))).await.unwrap();
    assert_eq!(response.status(), StatusCode::URI_TOO_LONG);
    let answer = text(sender.send_request(get("http://localhost/still")).await.unwrap()).await;
    assert_eq!(answer.2, "HTTP/2.0 http /still 0");
}

#[tokio::test]
async fn a_hangup_drops_the_connection_or_the_stream_without_an_answer() {
    let fixture = Fixture::start(Limits::default()).await;
    assert_eq!(exchange(fixture.connect().await, b"GET /hangup HTTP/1.1\r\n\r\n").await, "");

    let mut sender = over_http2(fixture.connect().await).await;
    assert!(sender.send_request(get("http://localhost/hangup")).await.is_err());
    let answer = text(sender.send_request(get("http://localhost/next")).await.unwrap()).await;
    assert_eq!(answer.2, "HTTP/2.0 http /next 0", "other streams are served");
}

#[tokio::test]
async fn a_panic_in_a_handler_ends_one_request_only() {
    let fixture = Fixture::start(Limits::default()).await;
    assert_eq!(exchange(fixture.connect().await, b"GET /panic HTTP/1.1\r\n\r\n").await, "");
    let mut sender = over_http2(fixture.connect().await).await;
    assert!(sender.send_request(get("http://localhost/panic")).await.is_err());
    assert!(sender.send_request(get("http://localhost/next")).await.is_ok());
    fixture.assert_serving().await;
}

#[tokio::test]
async fn rapid_resets_end_the_connection() {
    // Types of frames.
    const HEADERS: u8 = 1;
    const RST_STREAM: u8 = 3;
    // The flags END_STREAM and END_HEADERS.
    const WHOLE_REQUEST: u8 = 5;
    // The header block in HPACK: GET, http and / from the static table, and an authority
    // of one letter.
    const HEAD: &[u8] = &[0x82, 0x86, 0x84, 0x01, 0x01, b'a'];
    // The error code of the reset.
    const CANCEL: [u8; 4] = [0, 0, 0, 8];
    let fixture = Fixture::start(Limits::default()).await;
    let mut attack = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    attack.extend(frame(SETTINGS, 0, 0, &[]));
    for stream in (1..4000).step_by(2) {
        attack.extend(frame(HEADERS, WHOLE_REQUEST, stream, HEAD));
        attack.extend(frame(RST_STREAM, 0, stream, &CANCEL));
    }
    let answer = exchange(fixture.connect().await, &attack).await;
    assert!(answer.contains("too_many_resets"), "the server sends GOAWAY: {answer:?}");
    fixture.assert_serving().await;
}

#[tokio::test]
async fn connections_over_the_limit_wait_for_a_slot() {
    let fixture = Fixture::start(Limits { connections: 1, ..Limits::default() }).await;
    let mut first = fixture.connect().await;
    first.write_all(b"GET /wait HTTP/1.1\r\nconnection: close\r\n\r\n").await.unwrap();
    fixture.echo.entered.notified().await;
    let mut second = fixture.connect().await;
    second.write_all(b"GET /second HTTP/1.1\r\nconnection: close\r\n\r\n").await.unwrap();
    assert_eq!(fixture.listener.connections(), 1);
    fixture.echo.release.notify_one();
    assert!(exchange(first, b"").await.ends_with("/wait 0"));
    assert!(exchange(second, b"").await.ends_with("/second 0"));
}

#[tokio::test]
async fn a_drain_closes_idle_connections_and_waits_for_requests_in_flight() {
    let fixture = Fixture::start(Limits::default()).await;
    let address = fixture.listener.local_addr();
    let mut idle = fixture.connect().await;
    idle.write_all(b"GET /idle HTTP/1.1\r\n\r\n").await.unwrap();
    assert!(idle.read(&mut [0; 512]).await.unwrap() > 0);
    let mut working = fixture.connect().await;
    working.write_all(b"GET /wait HTTP/1.1\r\n\r\n").await.unwrap();
    fixture.echo.entered.notified().await;
    let mut sender = over_http2(fixture.connect().await).await;
    let stream = tokio::spawn(sender.send_request(get("http://localhost/wait")));
    fixture.echo.entered.notified().await;

    let draining = tokio::spawn(fixture.listener.drain(TIMEOUT));
    assert_eq!(exchange(idle, b"").await, "", "the idle connection is closed at once");
    assert!(!draining.is_finished());
    assert!(TcpStream::connect(address).await.is_err(), "no new connection is accepted");
    fixture.echo.release.notify_waiters();
    assert!(exchange(working, b"").await.ends_with("/wait 0"));
    assert_eq!(text(stream.await.unwrap().unwrap()).await.2, "HTTP/2.0 http /wait 0");
    tokio::time::timeout(TIMEOUT, draining).await.expect("the drain ends").unwrap();
}

#[tokio::test]
async fn a_drain_closes_every_connection_when_the_grace_period_is_over() {
    let fixture = Fixture::start(Limits::default()).await;
    let mut stuck = fixture.connect().await;
    stuck.write_all(b"GET /wait HTTP/1.1\r\n\r\n").await.unwrap();
    fixture.echo.entered.notified().await;
    let mut sender = over_http2(fixture.connect().await).await;
    let stream = tokio::spawn(sender.send_request(get("http://localhost/wait")));
    fixture.echo.entered.notified().await;
    tokio::time::timeout(TIMEOUT, fixture.listener.drain(SOON)).await.expect("the drain ends");
    assert_eq!(exchange(stuck, b"").await, "");
    assert!(stream.await.unwrap().is_err());
    // The handlers were dropped with their connections, HTTP/2 streams included.
    assert_eq!(Arc::strong_count(&fixture.echo), 1);
}

#[tokio::test]
async fn a_client_that_never_reads_does_not_delay_a_drain() {
    let limits = Limits { idle_timeout: SOON, close_timeout: SOON, ..Limits::default() };
    let fixture = Fixture::start(limits).await;
    let mut silent_reader = fixture.connect().await;
    for _ in 0..8 {
        silent_reader.write_all(b"GET /big HTTP/1.1\r\n\r\n").await.unwrap();
    }
    fixture.assert_serving().await;
    tokio::time::timeout(TIMEOUT, fixture.listener.drain(TIMEOUT * 2)).await.expect("the drain ends");
    drop(silent_reader);
}

#[tokio::test]
async fn a_request_is_cancelled_when_its_client_disconnects() {
    let fixture = Fixture::start(Limits::default()).await;
    let mut leaving = fixture.connect().await;
    leaving.write_all(b"GET /wait HTTP/1.1\r\n\r\n").await.unwrap();
    fixture.echo.entered.notified().await;
    drop(leaving);
    // The handler waits for a release that never comes. The drain ends before the
    // grace period only because the handler is dropped.
    tokio::time::timeout(TIMEOUT, fixture.listener.drain(TIMEOUT * 2)).await.expect("the drain ends");
}

#[tokio::test]
async fn localhost_is_bound_on_all_its_addresses_with_one_port() {
    // A port that is free on the first address may be in use on another one.
    let mut bound = bind("localhost", 0).await;
    for _ in 0..10 {
        if bound.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::AddrInUse) {
            bound = bind("localhost", 0).await;
        }
    }
    let sockets = bound.expect("a port");
    let ports: Vec<u16> = sockets.iter().map(|socket| socket.local_addr().unwrap().port()).collect();
    assert!(ports.iter().all(|port| *port == ports[0] && *port != 0), "{ports:?}");
    let taken = bind("localhost", ports[0]).await.expect_err("taken");
    assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
}
