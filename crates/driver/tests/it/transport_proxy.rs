//! Proxies over sockets: a proxy that understands CONNECT, in front of our server with TLS and
//! without.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Version;
use perihelion_driver::transport::{HttpOptions, HttpTransport, Proxy, ProxyChoice};
use perihelion_server::{AuthMode, Server, ServerOptions};
use perihelion_testkit::ScratchDirectory;
use perihelion_wire::transport::{Endpoint, Failure, FailureKind, Request, Response, Sent, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::TcpStream;

use crate::transport_peers::{Peer, check};

/// A proxy that answers CONNECT. It records the head of every request.
pub(crate) struct TestProxy {
    peer: Peer,
    heads: Arc<Mutex<Vec<String>>>,
}

impl TestProxy {
    /// A proxy whose tunnels all lead to this machine, whatever host the client names.
    pub(crate) async fn start() -> TestProxy {
        TestProxy::answering("HTTP/1.1 200 Connection established\r\nvia: test\r\n\r\n").await
    }

    /// A proxy with this answer. It opens the tunnel after an answer of 200.
    async fn answering(answer: &'static str) -> TestProxy {
        let heads = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&heads);
        let peer = Peer::start("http", move |_, mut stream| {
            let recorded = Arc::clone(&recorded);
            async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                let head = String::from_utf8(head).unwrap();
                let target = head.split(' ').nth(1).unwrap().to_owned();
                recorded.lock().unwrap().push(head);
                let port: u16 = target.rsplit_once(':').unwrap().1.parse().unwrap();
                if answer.contains(" 200 ") {
                    let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                    stream.write_all(answer.as_bytes()).await.unwrap();
                    let _ = copy_bidirectional(&mut stream, &mut server).await;
                } else {
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
            }
        })
        .await;
        TestProxy { peer, heads }
    }

    /// The proxy's address, with `credentials` such as `user:password@` before the host.
    pub(crate) fn url(&self, credentials: &str) -> String {
        format!("http://{credentials}127.0.0.1:{}", self.peer.endpoint.port())
    }

    fn proxy(&self, credentials: &str) -> Proxy {
        Proxy::parse(&self.url(credentials)).unwrap()
    }

    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    /// A request for `/` of an endpoint.
    fn request(&self, endpoint: &str) -> Request {
        Request { endpoint: Endpoint::parse(endpoint).unwrap(), ..self.peer.get() }
    }
}

/// Our server on a socket, and the PEM certificate of its certificate authority.
async fn server(directory: &ScratchDirectory) -> (Server, Vec<u8>) {
    let options = ServerOptions {
        auth: AuthMode::Off,
        tls_dir: Some(directory.path().to_owned()),
        ..ServerOptions::default()
    };
    let server = Server::start(options).await.unwrap();
    let authority = std::fs::read(server.ca_path().unwrap()).unwrap();
    (server, authority)
}

async fn send(options: HttpOptions, request: Request) -> Result<Response, Failure> {
    HttpTransport::new(options).unwrap().send(request).await
}

#[tokio::test]
async fn requests_to_our_server_go_through_a_tunnel_with_and_without_tls() {
    let directory = ScratchDirectory::new();
    let (server, authority) = server(&directory).await;
    let port = server.local_addr().port();
    for scheme in ["https", "http"] {
        let proxy = TestProxy::start().await;
        let options = HttpOptions::default().with_ca_pem(&authority).with_proxy(proxy.proxy("user:p%40ss@"));
        let transport = HttpTransport::new(options).unwrap();
        for _ in 0..3 {
            let response =
                transport.send(proxy.request(&format!("{scheme}://localhost:{port}"))).await.unwrap();
            assert_eq!((response.status().as_u16(), response.version()), (200, Version::HTTP_2), "{scheme}");
        }
        let heads = proxy.heads();
        // All requests share one connection. Another may be opened ahead of need.
        assert!((1..=2).contains(&heads.len()), "{heads:?}");
        for head in heads {
            // The base64 of "user:p@ss".
            assert_eq!(
                head,
                format!(
                    "CONNECT localhost:{port} HTTP/1.1\r\nhost: localhost:{port}\r\n\
                     proxy-authorization: Basic dXNlcjpwQHNz\r\n\r\n"
                )
            );
        }
    }
    server.drain(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn unusual_answers_with_status_200_open_the_tunnel_too() {
    let directory = ScratchDirectory::new();
    let (server, _) = server(&directory).await;
    for answer in
        ["HTTP/1.0 200 OK\n\n", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 Connection established\r\n\r\n"]
    {
        let proxy = TestProxy::answering(answer).await;
        let endpoint = format!("http://account.invalid:{}", server.local_addr().port());
        let options = HttpOptions::default().with_allow_cleartext(true).with_proxy(proxy.proxy(""));
        let response = send(options, proxy.request(&endpoint)).await.unwrap();
        assert_eq!(response.status().as_u16(), 200, "{answer:?}");
    }
    server.drain(Duration::from_secs(5)).await;
}

/// Unknown certificates are accepted from this machine only. Behind a proxy, `localhost` may be
/// another machine, because the proxy resolves the name.
#[tokio::test]
async fn behind_a_proxy_no_unknown_certificate_is_accepted() {
    let directory = ScratchDirectory::new();
    let (server, _) = server(&directory).await;
    let endpoint = format!("https://localhost:{}", server.local_addr().port());
    let proxy = TestProxy::start().await;
    let options = || HttpOptions::default().with_accept_unknown_loopback_certificates(true);
    let failure = send(options().with_proxy(proxy.proxy("")), proxy.request(&endpoint)).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Tls, "{failure}");
    let direct = send(options().with_proxy(ProxyChoice::Off), proxy.request(&endpoint)).await.unwrap();
    assert_eq!(direct.status().as_u16(), 200);
    server.drain(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_host_that_does_not_resolve_here_is_reached_through_the_proxy() {
    let directory = ScratchDirectory::new();
    let (server, _) = server(&directory).await;
    let proxy = TestProxy::start().await;
    let endpoint = format!("http://account.invalid:{}", server.local_addr().port());
    let options = || HttpOptions::default().with_allow_cleartext(true);
    let response = send(options().with_proxy(proxy.proxy("")), proxy.request(&endpoint)).await.unwrap();
    assert_eq!(response.status().as_u16(), 200);
    assert_eq!(proxy.heads().len(), 1, "{:?}", proxy.heads());
    let bypassed = proxy.proxy("").with_bypass("account.invalid").unwrap();
    let failure = send(options().with_proxy(bypassed), proxy.request(&endpoint)).await.unwrap_err();
    assert!(failure.message.contains("resolved"), "{failure}");
    let failure = send(options().with_proxy(ProxyChoice::Off), proxy.request(&endpoint)).await.unwrap_err();
    assert!(failure.message.contains("resolved"), "{failure}");
    assert_eq!(proxy.heads().len(), 1);
    server.drain(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_refusal_of_the_proxy_says_what_to_do_and_shows_no_password() {
    for (answer, credentials, expected_part) in [
        ("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "", "http://user:password@host:port"),
        ("HTTP/1.1 407 No\r\n\r\n", "user:s3cret@", "does not accept the user and password"),
        ("HTTP/1.0 403 Forbidden\r\n\r\n", "user:s3cret@", "does not allow"),
        ("HTTP/1.1 502 Bad Gateway\r\n\r\n", "", "could not reach"),
        ("SSH-2.0-OpenSSH_9.6\r\n\r\n", "", "did not answer in HTTP/1.1"),
        ("", "user:s3cret@", "broke"),
    ] {
        let proxy = TestProxy::answering(answer).await;
        let options = HttpOptions::default().with_proxy(proxy.proxy(credentials));
        let shown = format!("{options:?}");
        assert!(!shown.contains("s3cret") && shown.contains("127.0.0.1"), "{shown}");
        let failure = send(options, proxy.request("https://account.example")).await.unwrap_err();
        check(&failure, FailureKind::Connect, Sent::No);
        let text = format!("{failure} {failure:?}");
        assert!(text.contains(expected_part) && text.contains("https://account.example"), "{text}");
        assert!(!text.contains("s3cret") && !text.contains("Basic"), "{text}");
    }
}

/// A request without TLS would leave this machine, although its endpoint is `localhost`.
#[tokio::test]
async fn a_proxy_on_another_machine_gets_no_request_without_tls() {
    // This proxy is only needed to build the request.
    let proxy = TestProxy::start().await;
    let other_proxy = Proxy::parse("http://proxy.invalid:3128").unwrap();
    let options = HttpOptions::default().with_proxy(other_proxy);
    let failure = send(options, proxy.request("http://localhost:8081")).await.unwrap_err();
    assert!(failure.message.contains("without TLS"), "{failure}");
}

/// A proxy that accepts the connection and says nothing takes no longer than the connect
/// timeout.
#[tokio::test]
async fn a_proxy_that_says_nothing_is_given_up_after_the_connect_timeout() {
    let silent = Peer::start("http", |_, stream| async move {
        let _stream = stream;
        std::future::pending::<()>().await;
    })
    .await;
    let proxy = Proxy::parse(&format!("127.0.0.1:{}", silent.endpoint.port())).unwrap();
    let options = HttpOptions::default().with_proxy(proxy).with_connect_timeout(Duration::from_millis(200));
    let request = Request { endpoint: Endpoint::parse("https://account.example").unwrap(), ..silent.get() };
    let failure = send(options, request).await.unwrap_err();
    check(&failure, FailureKind::Connect, Sent::No);
    assert!(failure.message.contains("200ms"), "{failure}");
}
