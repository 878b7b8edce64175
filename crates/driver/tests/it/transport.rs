//! The default transport: which protocol it uses, how many connections it opens, and that
//! the connections end with the transport.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Version;
use perihelion_driver::transport::{AnyTransport, HttpOptions, HttpTransport};
use perihelion_server::{AuthMode, Server, ServerOptions};
use perihelion_wire::transport::{Endpoint, Failure, FailureKind, Request, Response, Sent, Transport};
use tokio::sync::{Barrier, mpsc};
use tokio::task::JoinSet;

use crate::transport_peers::*;

fn server_options() -> ServerOptions {
    ServerOptions { auth: AuthMode::Off, ..ServerOptions::default() }
}

/// Asks our server for its account document at `scheme://localhost`.
async fn read_account_of_server(scheme: &str) -> Response {
    let directory =
        std::env::temp_dir().join(format!("perihelion-transport-{}-{scheme}", std::process::id()));
    let options = ServerOptions { tls_dir: Some(directory.clone()), ..server_options() };
    let server = Server::start(options).await.unwrap();
    let ca = std::fs::read(server.ca_path().unwrap()).unwrap();
    let transport = HttpTransport::new(options_trusting_peers().with_ca_pem(ca)).unwrap();
    // This peer is only needed to build the request.
    let peer = Peer::start("http", |_, _| async {}).await;
    let endpoint = Endpoint::parse(&format!("{scheme}://localhost:{}", server.local_addr().port())).unwrap();
    let response = transport.send(Request { endpoint, ..peer.get() }).await.unwrap();
    drop(transport);
    server.drain(Duration::from_secs(5)).await;
    std::fs::remove_dir_all(directory).unwrap();
    response
}

#[tokio::test]
async fn our_server_answers_in_http2_with_and_without_tls() {
    for scheme in ["https", "http"] {
        let response = read_account_of_server(scheme).await;
        assert_eq!((response.status().as_u16(), response.version()), (200, Version::HTTP_2));
        let account: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        assert!(account["writableLocations"].is_array(), "{account}");
    }
}

#[tokio::test]
async fn requests_to_a_peer_that_offers_only_http1_follow_each_other_on_one_connection() {
    let peer = Peer::start("https", |_, stream| async {
        serve_http1(accept_tls(stream, &["http/1.1"]).await).await;
    })
    .await;
    let transport = transport();
    for body in ["one", "two", "three"] {
        let response = transport.send(peer.post(body)).await.unwrap();
        assert_eq!((response.version(), response.body().as_ref()), (Version::HTTP_11, body.as_bytes()));
    }
    assert_eq!(peer.connections(), 1);
}

#[tokio::test]
async fn a_peer_without_alpn_gets_http1() {
    let peer =
        Peer::start("https", |_, stream| async { serve_http1(accept_tls(stream, &[]).await).await }).await;
    let response = transport().send(peer.post("x")).await.unwrap();
    assert_eq!(response.version(), Version::HTTP_11);
}

#[tokio::test]
async fn without_tls_http1_is_detected_once() {
    let peer = Peer::start("http", |_, stream| serve_http1(stream)).await;
    let transport = transport();
    for body in ["one", "two", "three"] {
        let response = transport.send(peer.post(body)).await.unwrap();
        assert_eq!((response.version(), response.body().as_ref()), (Version::HTTP_11, body.as_bytes()));
    }
    assert_eq!(peer.connections(), 2, "one connection that began in HTTP/2, and one for all requests");
}

#[tokio::test]
async fn http1_requests_at_once_use_no_more_connections_than_allowed() {
    let peer = Peer::start("https", |_, stream| async {
        serve_http1(accept_tls(stream, &["http/1.1"]).await).await;
    })
    .await;
    let transport =
        Arc::new(HttpTransport::new(options_trusting_peers().with_http1_connections_max(3)).unwrap());
    let answers = send_concurrently(&transport, 40, |number| peer.post(vec![number as u8; 100])).await;
    for (number, answer) in answers {
        assert_eq!(answer.unwrap().body().as_ref(), vec![number as u8; 100]);
    }
    assert!(peer.connections() <= 3, "{} connections", peer.connections());
}

#[tokio::test]
async fn sixty_four_first_requests_use_no_more_connections_than_they_need() {
    for scheme in ["https", "http"] {
        // The peer answers no request before all requests have arrived.
        let all_arrived = Arc::new(Barrier::new(64));
        let peer = Peer::start(scheme, move |_, stream| {
            let all_arrived = Arc::clone(&all_arrived);
            async move {
                let answer = move |exchange| {
                    let all_arrived = Arc::clone(&all_arrived);
                    async move {
                        all_arrived.wait().await;
                        echo(exchange).await;
                    }
                };
                match scheme {
                    "https" => serve_http2(accept_tls(stream, &["h2"]).await, 100, answer).await,
                    _ => serve_http2(stream, 100, answer).await,
                }
            }
        })
        .await;
        let transport = Arc::new(transport());
        for (number, answer) in
            send_concurrently(&transport, 64, |number| peer.post(vec![number as u8; 10])).await
        {
            assert_eq!(answer.unwrap().body().as_ref(), vec![number as u8; 10]);
        }
        // Four connections have 80 streams. The requests use more than three quarters of them, so
        // the transport may open a fifth connection.
        assert!((4..=5).contains(&peer.connections()), "{}", peer.connections());
    }
}

#[tokio::test]
async fn no_more_streams_are_opened_than_the_peer_allows() {
    // The driver opens at most 20 streams before a peer has said how many it allows. Without TLS it
    // waits until the peer has said so. With 200 requests the pool grows until at most
    // three quarters of its streams are in use.
    for (scheme, streams_max, connections_max) in [("https", 20, 14), ("http", 7, 39)] {
        let highest = Arc::new(AtomicUsize::new(0));
        let highest_seen = Arc::clone(&highest);
        let peer = Peer::start(scheme, move |_, stream| {
            let (open, highest) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&highest));
            async move {
                let answer = move |exchange| {
                    let (open, highest) = (Arc::clone(&open), Arc::clone(&highest));
                    async move {
                        highest.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        tokio::task::yield_now().await;
                        open.fetch_sub(1, Ordering::SeqCst);
                        echo(exchange).await;
                    }
                };
                match scheme {
                    "https" => serve_http2(accept_tls(stream, &["h2"]).await, streams_max, answer).await,
                    _ => serve_http2(stream, streams_max, answer).await,
                }
            }
        })
        .await;
        let transport = Arc::new(transport());
        for (_, answer) in send_concurrently(&transport, 200, |_| peer.get()).await {
            assert_eq!(answer.unwrap().status().as_u16(), 200);
        }
        let highest = highest_seen.load(Ordering::SeqCst);
        assert!((1..=streams_max as usize).contains(&highest), "{highest} streams");
        assert!(peer.connections() <= connections_max, "{} connections", peer.connections());
    }
}

#[tokio::test]
async fn bodies_of_two_megabytes_are_sent_and_received() {
    let body: Bytes = (0..2_000_000u32).map(|number| (number % 251) as u8).collect::<Vec<u8>>().into();
    let http2 = Peer::start("https", |_, stream| async {
        serve_http2(accept_tls(stream, &["h2"]).await, 100, echo).await;
    })
    .await;
    let http1 = Peer::start("https", |_, stream| async {
        serve_http1(accept_tls(stream, &["http/1.1"]).await).await;
    })
    .await;
    let transport = transport();
    for peer in [http2, http1] {
        let response = transport.send(peer.post(body.clone())).await.unwrap();
        assert!(*response.body() == body, "{:?}", response.version());
    }
}

#[tokio::test]
async fn a_dropped_request_ends_its_stream_and_not_the_connection() {
    let (report_reset, mut resets) = mpsc::unbounded_channel();
    let peer = Peer::start("http", move |_, stream| {
        let report_reset = report_reset.clone();
        async move {
            let mut frames = Frames::handshake(stream).await;
            let mut first = None;
            while let Some(Frame { kind, stream, .. }) = frames.next().await {
                match kind {
                    HEADERS if first.is_none() => first = Some(stream),
                    HEADERS => frames.answer_ok(stream).await,
                    RST_STREAM => report_reset.send((first, stream)).unwrap(),
                    _ => {}
                }
            }
        }
    })
    .await;
    let transport = transport();
    let abandoned = tokio::time::timeout(SHORT_TIMEOUT, transport.send(peer.get())).await;
    assert!(abandoned.is_err());
    let (first, stream) = resets.recv().await.unwrap();
    assert_eq!(first, Some(stream));
    assert_eq!(transport.send(peer.get()).await.unwrap().status().as_u16(), 200);
    assert_eq!(peer.connections(), 1);
}

#[tokio::test]
async fn late_answers_to_thousands_of_dropped_requests_do_not_end_the_connection() {
    let peer = Peer::start("https", |_, stream| async {
        serve_http2(accept_tls(stream, &["h2"]).await, 1000, echo).await;
    })
    .await;
    let transport = transport();
    transport.send(peer.get()).await.unwrap();
    for _ in 0..3000 {
        // The future is polled once, which sends the request. Then it is dropped, before the
        // answer arrives.
        let mut request = std::pin::pin!(transport.send(peer.get()));
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(request.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
        tokio::task::yield_now().await;
    }
    assert_eq!(transport.send(peer.get()).await.unwrap().status().as_u16(), 200);
    assert_eq!(peer.connections(), 1);
}

#[tokio::test]
async fn no_task_is_left_when_the_transport_is_dropped() {
    let (ended, mut connection_ends) = mpsc::unbounded_channel();
    let peer = Peer::start("https", move |number, stream| {
        let ended = ended.clone();
        async move {
            match number {
                1 => serve_http2(accept_tls(stream, &["h2"]).await, 100, echo).await,
                2 => serve_http1(accept_tls(stream, &["http/1.1"]).await).await,
                // Never completes the handshake.
                _ => tokio::io::copy(&mut { stream }, &mut tokio::io::sink()).await.map(|_| ()).unwrap(),
            }
            ended.send(number).unwrap();
        }
    })
    .await;
    let before = alive_tasks();
    for number in 1..=3 {
        let transport = transport();
        let sent = transport.send(if number < 3 { peer.get() } else { peer.get_with_short_deadline() }).await;
        assert_eq!(sent.is_ok(), number < 3);
        assert!(alive_tasks() > before + 1, "the transport's tasks and the peer's");
        drop(transport);
        assert_eq!(connection_ends.recv().await.unwrap(), number);
        wait_for_task_count(before).await;
    }
}

#[test]
fn a_transport_is_made_without_a_runtime_and_outlives_several_runtimes() {
    let transport = transport();
    let host = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let peer = host.block_on(Peer::start("https", |number, stream| async move {
        match number {
            // Never completes the handshake: the runtime ends while connecting.
            2 => drop(tokio::io::copy(&mut { stream }, &mut tokio::io::sink()).await),
            _ => serve_http2(accept_tls(stream, &["h2"]).await, 100, echo).await,
        }
    }));
    for number in 1..=3 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let request = if number == 2 { peer.get_with_short_deadline() } else { peer.get() };
        assert_eq!(runtime.block_on(transport.send(request)).is_ok(), number != 2);
        assert_eq!(peer.connections(), number);
    }
}

/// The environment belongs to the whole process. So the test runs itself in another
/// process, with `SSL_CERT_FILE` set.
#[tokio::test]
async fn the_authority_in_ssl_cert_file_is_trusted() {
    const DIRECTORY: &str = "PERIHELION_TRANSPORT_TEST_DIRECTORY";
    let Some(directory) = std::env::var_os(DIRECTORY).map(std::path::PathBuf::from) else {
        let directory =
            std::env::temp_dir().join(format!("perihelion-transport-roots-{}", std::process::id()));
        let other_process = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "transport::the_authority_in_ssl_cert_file_is_trusted"])
            .env(DIRECTORY, &directory)
            .env("SSL_CERT_FILE", directory.join("ca.pem"))
            .output()
            .unwrap();
        std::fs::remove_dir_all(directory).unwrap();
        let text = String::from_utf8_lossy(&other_process.stdout);
        assert!(other_process.status.success() && text.contains("1 passed"), "{text}");
        return;
    };
    let options = ServerOptions { tls_dir: Some(directory), ..server_options() };
    let server = Server::start(options).await.unwrap();
    let endpoint = Endpoint::parse(&format!("https://localhost:{}", server.local_addr().port())).unwrap();
    // This peer is only needed to build the request.
    let peer = Peer::start("http", |_, _| async {}).await;
    let transport = HttpTransport::new(HttpOptions::default()).unwrap();
    let response = transport.send(Request { endpoint, ..peer.get() }).await.unwrap();
    assert_eq!(response.status().as_u16(), 200);
    drop(transport);
    server.drain(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_foreign_transport_is_used_as_it_is() {
    struct Refusing;
    impl Transport for Refusing {
        async fn send(&self, request: Request) -> Result<Response, Failure> {
            Err(Failure::new(FailureKind::Closed, Sent::No, request.target.as_str()))
        }
    }
    let peer = Peer::start("http", |_, stream| serve_http2(stream, 100, echo)).await;
    let foreign = AnyTransport::foreign(Refusing);
    assert_eq!(&*foreign.send(peer.get()).await.unwrap_err().message, "/");
    let built_in = AnyTransport::from(transport());
    assert_eq!(built_in.send(peer.get()).await.unwrap().status().as_u16(), 200);
}

/// Sends `count` requests at once, and returns the answers with the numbers of their
/// requests.
async fn send_concurrently(
    transport: &Arc<HttpTransport>,
    count: usize,
    request: impl Fn(usize) -> Request,
) -> Vec<(usize, Result<Response, Failure>)> {
    let mut sending = JoinSet::new();
    for number in 0..count {
        let (transport, request) = (Arc::clone(transport), request(number));
        sending.spawn(async move { (number, transport.send(request).await) });
    }
    sending.join_all().await
}
