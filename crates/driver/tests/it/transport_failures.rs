//! The default transport when things go wrong: what it says about whether the
//! request was sent, what it tries again, and that it answers in time.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use perihelion_driver::transport::{HttpOptions, HttpTransport};
use perihelion_wire::transport::{Endpoint, Failure, FailureKind, Request, Sent, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::transport_peers::*;

#[track_caller]
fn check(failure: &Failure, kind: FailureKind, sent: Sent) {
    assert_eq!((failure.kind, failure.sent), (kind, sent), "{failure}");
}

#[tokio::test]
async fn a_refused_connection_says_that_nothing_was_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Endpoint::parse(&format!("https://{}", listener.local_addr().unwrap())).unwrap();
    drop(listener);
    let peer = Peer::start("http", |_, _| async {}).await;
    let failure = transport().send(Request { endpoint, ..peer.get() }).await.unwrap_err();
    check(&failure, FailureKind::Connect, Sent::No);
    assert!(failure.message.contains("refused"), "{failure}");
}

#[tokio::test]
async fn an_unknown_authority_is_refused_with_advice_and_accepted_on_request() {
    let peer = Peer::start("https", |_, stream| async {
        // The client may refuse the certificate.
        let acceptor = tokio_rustls::TlsAcceptor::from(certificates().server_config().unwrap());
        if let Ok(stream) = acceptor.accept(stream).await {
            serve_http2(stream, 100, echo).await;
        }
    })
    .await;
    let failure = HttpTransport::new(HttpOptions::default()).unwrap().send(peer.get()).await.unwrap_err();
    check(&failure, FailureKind::Tls, Sent::No);
    for advice in ["with_ca_pem", "SSL_CERT_FILE", "with_accept_unknown_loopback_certificates"] {
        assert!(failure.message.contains(advice), "{failure}");
    }
    let accepting = HttpOptions::default().with_accept_unknown_loopback_certificates(true);
    let response = HttpTransport::new(accepting).unwrap().send(peer.get()).await.unwrap();
    assert_eq!(response.status().as_u16(), 200);
}

#[tokio::test]
async fn another_machine_is_not_spoken_to_in_the_clear() {
    let endpoint = Endpoint::parse("http://192.0.2.1:8081").unwrap();
    let peer = Peer::start("http", |_, _| async {}).await;
    let failure = transport().send(Request { endpoint, ..peer.get() }).await.unwrap_err();
    check(&failure, FailureKind::Connect, Sent::No);
    assert!(failure.message.contains("with_allow_cleartext"), "{failure}");
}

#[tokio::test]
async fn a_connection_that_ends_before_the_answer_leaves_it_open_whether_the_request_arrived() {
    let http2 = Peer::start("http", |_, stream| async {
        Frames::greet(stream).await.request().await.unwrap();
    })
    .await;
    let http1 = Peer::start("https", |_, stream| async {
        let mut stream = accept_tls(stream, &["http/1.1"]).await;
        stream.read_u8().await.unwrap();
    })
    .await;
    for peer in [http2, http1] {
        let failure = transport().send(peer.get()).await.unwrap_err();
        check(&failure, FailureKind::Closed, Sent::Unknown);
    }
}

#[tokio::test]
async fn a_connection_that_ends_within_the_body_says_that_the_request_arrived() {
    let http2 = Peer::start("http", |_, stream| async {
        let mut frames = Frames::greet(stream).await;
        let stream = frames.request().await.unwrap();
        frames.begin(stream).await;
        const INTERNAL_ERROR: u32 = 2;
        frames.send(RST_STREAM, 0, stream, &INTERNAL_ERROR.to_be_bytes()).await;
        frames.drain().await;
    })
    .await;
    let http1 = Peer::start("https", |_, stream| async {
        let mut stream = accept_tls(stream, &["http/1.1"]).await;
        read_head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").await.unwrap();
        stream.shutdown().await.unwrap();
    })
    .await;
    for peer in [http2, http1] {
        let failure = transport().send(peer.get()).await.unwrap_err();
        check(&failure, FailureKind::Closed, Sent::Yes);
    }
}

#[tokio::test]
async fn a_request_beyond_goaway_was_not_sent_and_the_next_one_goes_to_a_fresh_connection() {
    let peer = Peer::start("http", |number, stream| async move {
        let mut frames = Frames::greet(stream).await;
        let stream = frames.request().await.unwrap();
        match number {
            1 => frames.go_away(0).await,
            _ => frames.ok(stream).await,
        }
        frames.drain().await;
    })
    .await;
    let transport = transport();
    let failure = transport.send(peer.post("body")).await.unwrap_err();
    check(&failure, FailureKind::Closed, Sent::No);
    assert_eq!(transport.send(peer.post("body")).await.unwrap().status().as_u16(), 200);
    assert_eq!(peer.connections(), 2);
}

#[tokio::test]
async fn a_request_before_goaway_is_answered_and_the_next_one_goes_to_a_fresh_connection() {
    let (told, tell) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (hear, say) = (Arc::clone(&told), Arc::clone(&tell));
    let peer = Peer::start("http", move |number, stream| {
        let (told, tell) = (Arc::clone(&told), Arc::clone(&tell));
        async move {
            let mut frames = Frames::greet(stream).await;
            let stream = frames.request().await.unwrap();
            if number == 1 {
                frames.go_away_heard(stream).await;
                told.notify_one();
                tell.notified().await;
            }
            frames.ok(stream).await;
            frames.drain().await;
        }
    })
    .await;
    let transport = Arc::new(transport());
    let first = tokio::spawn({
        let (transport, request) = (Arc::clone(&transport), peer.get());
        async move { transport.send(request).await }
    });
    hear.notified().await;
    // The first connection still serves the first request, and no other.
    assert_eq!(transport.send(peer.get()).await.unwrap().status().as_u16(), 200);
    assert_eq!(peer.connections(), 2);
    say.notify_one();
    assert_eq!(first.await.unwrap().unwrap().status().as_u16(), 200);
}

#[tokio::test]
async fn a_refused_stream_was_not_sent_and_its_connection_goes_on() {
    let peer = Peer::start("http", |_, stream| async {
        let mut frames = Frames::greet(stream).await;
        let refused = frames.request().await.unwrap();
        const REFUSED_STREAM: u32 = 7;
        frames.send(RST_STREAM, 0, refused, &REFUSED_STREAM.to_be_bytes()).await;
        let stream = frames.request().await.unwrap();
        frames.ok(stream).await;
        frames.drain().await;
    })
    .await;
    let transport = transport();
    let failure = transport.send(peer.post("body")).await.unwrap_err();
    check(&failure, FailureKind::Closed, Sent::No);
    assert_eq!(transport.send(peer.post("body")).await.unwrap().status().as_u16(), 200);
    assert_eq!(peer.connections(), 1);
}

#[tokio::test]
async fn a_connection_that_died_idle_is_replaced_by_the_next_request() {
    let http2 = |stream| async {
        let mut frames = Frames::greet(stream).await;
        let stream = frames.request().await.unwrap();
        frames.ok(stream).await;
    };
    let http1 = |stream| async {
        let mut stream = accept_tls(stream, &["http/1.1"]).await;
        read_head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        stream.shutdown().await.unwrap();
    };
    let peers = [
        Peer::start("http", move |_, stream| http2(stream)).await,
        Peer::start("https", move |_, stream| http1(stream)).await,
    ];
    for peer in peers {
        let transport = transport();
        let idle = tasks();
        for number in 1..=3 {
            assert_eq!(transport.send(peer.get()).await.unwrap().status().as_u16(), 200);
            assert_eq!(peer.connections(), number);
            // The connection's task ends when its end has reached us.
            until_tasks_are(idle).await;
        }
    }
}

#[tokio::test]
async fn a_silent_peer_is_noticed_by_its_missing_pongs() {
    let peer = Peer::start("https", |_, stream| async {
        let mut stream = accept_tls(stream, &["h2"]).await;
        // Reads everything, says nothing.
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.unwrap();
    })
    .await;
    let options = trusting()
        .with_ping_interval(Duration::from_millis(50))
        .with_ping_timeout(Duration::from_millis(100));
    let begun = Instant::now();
    let failure = HttpTransport::new(options).unwrap().send(peer.get()).await.unwrap_err();
    check(&failure, FailureKind::Closed, Sent::Unknown);
    assert!(begun.elapsed() < PLENTY / 2);
}

#[tokio::test]
async fn the_deadline_holds_while_connecting() {
    let peer = Peer::start("https", |_, stream| async {
        tokio::io::copy(&mut { stream }, &mut tokio::io::sink()).await.unwrap();
    })
    .await;
    let failure = transport().send(peer.get_soon()).await.unwrap_err();
    check(&failure, FailureKind::Timeout, Sent::No);
    let impatient = trusting().with_connect_timeout(SOON);
    let failure = HttpTransport::new(impatient).unwrap().send(peer.get()).await.unwrap_err();
    check(&failure, FailureKind::Connect, Sent::No);
}

#[tokio::test]
async fn a_deadline_in_the_past_sends_nothing() {
    let peer = Peer::start("http", |_, stream| serve_http2(stream, 100, echo)).await;
    let transport = transport();
    transport.send(peer.get()).await.unwrap();
    let late = Request { deadline: Instant::now().into_std(), ..peer.get() };
    check(&transport.send(late).await.unwrap_err(), FailureKind::Timeout, Sent::No);
}

#[tokio::test]
async fn who_gives_up_connecting_does_not_take_the_attempt_from_the_others() {
    let (go, gone) = oneshot::channel::<()>();
    let gone = Arc::new(Mutex::new(Some(gone)));
    let peer = Peer::start("https", move |_, stream| {
        let gone = gone.lock().unwrap().take().unwrap();
        async move {
            gone.await.unwrap();
            serve_http2(accept_tls(stream, &["h2"]).await, 100, echo).await;
        }
    })
    .await;
    let transport = transport();
    let (patient, ()) = tokio::join!(transport.send(peer.get()), async {
        let failure = transport.send(peer.get_soon()).await.unwrap_err();
        check(&failure, FailureKind::Timeout, Sent::No);
        go.send(()).unwrap();
    });
    assert_eq!(patient.unwrap().status().as_u16(), 200);
    assert_eq!(peer.connections(), 1);
}

#[tokio::test]
async fn the_deadline_holds_while_waiting_for_the_head() {
    let http2 = Peer::start("http", |_, stream| serve_http2(stream, 100, never)).await;
    let http1 = Peer::start("https", |_, stream| async {
        let mut stream = accept_tls(stream, &["http/1.1"]).await;
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.unwrap();
    })
    .await;
    for peer in [http2, http1] {
        let failure = transport().send(peer.get_soon()).await.unwrap_err();
        check(&failure, FailureKind::Timeout, Sent::Unknown);
    }
}

#[tokio::test]
async fn the_deadline_holds_while_reading_the_body() {
    let http2 = Peer::start("http", |_, stream| {
        serve_http2(stream, 100, |(_, mut respond): Exchange| async move {
            let mut stream = respond.send_response(http::Response::new(()), false).unwrap();
            stream.send_data(Bytes::from_static(b"half"), false).unwrap();
            std::future::pending::<()>().await;
        })
    })
    .await;
    let http1 = Peer::start("https", |_, stream| async {
        let mut stream = accept_tls(stream, &["http/1.1"]).await;
        read_head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").await.unwrap();
        stream.flush().await.unwrap();
        std::future::pending::<()>().await;
    })
    .await;
    for peer in [http2, http1] {
        let failure = transport().send(peer.get_soon()).await.unwrap_err();
        check(&failure, FailureKind::Timeout, Sent::Yes);
    }
}

#[tokio::test]
async fn who_waits_for_a_stream_or_a_connection_until_the_deadline_has_sent_nothing() {
    let http2 = Peer::start("http", |_, stream| serve_http2(stream, 1, never)).await;
    let http1 = Peer::start("https", |_, stream| async {
        let mut stream = accept_tls(stream, &["http/1.1"]).await;
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.unwrap();
    })
    .await;
    for peer in [http2, http1] {
        let transport = Arc::new(HttpTransport::new(trusting().with_http1_connections_max(1)).unwrap());
        // Takes the only place there is, and stays.
        let first = tokio::spawn({
            let (transport, request) = (Arc::clone(&transport), peer.get());
            async move { transport.send(request).await }
        });
        // By then the connection is there and its limit known.
        check(&transport.send(peer.get_soon()).await.unwrap_err(), FailureKind::Timeout, Sent::No);
        check(&transport.send(peer.get_soon()).await.unwrap_err(), FailureKind::Timeout, Sent::No);
        assert!(!first.is_finished());
        first.abort();
    }
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused() {
    let announced = Peer::start("https", |_, stream| async {
        let mut stream = accept_tls(stream, &["http/1.1"]).await;
        read_head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 67108865\r\n\r\n").await.unwrap();
        stream.flush().await.unwrap();
        std::future::pending::<()>().await;
    })
    .await;
    let endless = Peer::start("http", |_, stream| {
        serve_http2(stream, 100, |(_, mut respond): Exchange| async move {
            let mut stream = respond.send_response(http::Response::new(()), false).unwrap();
            let part = Bytes::from(vec![0; 1 << 20]);
            loop {
                stream.reserve_capacity(part.len());
                match std::future::poll_fn(|cx| stream.poll_capacity(cx)).await {
                    Some(Ok(room)) => stream.send_data(part.slice(..room), false).unwrap(),
                    // The client had enough.
                    Some(Err(_)) | None => return,
                }
            }
        })
    })
    .await;
    for peer in [announced, endless] {
        let failure = transport().send(peer.get()).await.unwrap_err();
        check(&failure, FailureKind::Protocol, Sent::Yes);
    }
}

#[tokio::test]
async fn headers_over_the_limit_are_refused() {
    let value = "x".repeat(40_000);
    let fields: String = (0..4).map(|number| format!("x-{number}: {value}\r\n")).collect();
    let head = format!("HTTP/1.1 200 OK\r\n{fields}content-length: 0\r\n\r\n");
    let http1 = Peer::start("https", move |_, stream| {
        let head = head.clone();
        async move {
            let mut stream = accept_tls(stream, &["http/1.1"]).await;
            read_head(&mut stream).await;
            // The client may hang up in the middle.
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = stream.flush().await;
            std::future::pending::<()>().await;
        }
    })
    .await;
    let http2 = Peer::start("http", move |_, stream| {
        let value = http::HeaderValue::from_str(&value).unwrap();
        serve_http2(stream, 100, move |(_, mut respond): Exchange| {
            let mut response = http::Response::new(());
            for name in ["x-0", "x-1", "x-2", "x-3"] {
                response.headers_mut().insert(name, value.clone());
            }
            async move {
                respond.send_response(response, true).unwrap();
            }
        })
    })
    .await;
    for peer in [http1, http2] {
        let answer = transport().send(peer.get()).await.map(|response| response.headers().len());
        check(&answer.unwrap_err(), FailureKind::Protocol, Sent::Unknown);
    }
}

#[tokio::test]
async fn garbage_is_an_error_within_the_deadline() {
    let settings = b"\0\0\0\x04\0\0\0\0\0".as_slice();
    let garbage: Vec<Vec<u8>> = vec![
        Vec::new(),
        b"\0".to_vec(),
        b"HTTP/1.1 banana\r\n\r\n".to_vec(),
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n".to_vec(),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nZZZ\r\n".to_vec(),
        vec![0xff; 100_000],
        (0..=255).collect(),
        // Settings, then: a frame too long; an answer nobody asked for; a
        // header block that cannot be decoded; a window that overflows.
        [settings, b"\xff\xff\xff\0\0\0\0\0\x01"].concat(),
        [settings, b"\0\0\x01\x01\x05\0\0\0\x63\x88"].concat(),
        [settings, b"\0\0\x04\x01\x05\0\0\0\x01\xff\xff\xff\xff"].concat(),
        [settings, b"\0\0\x04\x08\0\0\0\0\0\x7f\xff\xff\xff"].concat(),
    ];
    for (number, bytes) in garbage.into_iter().enumerate() {
        for (scheme, alpn) in [("http", ""), ("https", ""), ("https", "h2"), ("https", "http/1.1")] {
            let bytes = bytes.clone();
            let peer = Peer::start(scheme, move |_, mut stream| {
                let bytes = bytes.clone();
                async move {
                    // The client may hang up at any moment.
                    if alpn.is_empty() {
                        let _ = stream.write_all(&bytes).await;
                        let _ = stream.shutdown().await;
                        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
                        return;
                    }
                    let mut stream = accept_tls(stream, &[alpn]).await;
                    let mut seen = [0; 16];
                    let _ = stream.read(&mut seen).await;
                    let _ = stream.write_all(&bytes).await;
                    let _ = stream.shutdown().await;
                    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
                }
            })
            .await;
            let answer = transport().send(peer.get()).await;
            let failure = answer.expect_err(&format!("{number} {scheme} {alpn}"));
            assert_ne!(failure.kind, FailureKind::Timeout, "{number} {scheme} {alpn}: {failure}");
        }
    }
}

/// Reads the head of an HTTP/1.1 request.
async fn read_head<T: tokio::io::AsyncRead + Unpin>(stream: &mut T) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
}

/// Connections end in every way, at any moment, under load on several threads:
/// what is called unsent has not been seen, and what is answered has.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_called_unsent_was_never_seen() {
    const REQUESTS: usize = 4000;
    let seen = Arc::new(Mutex::new(HashSet::new()));
    let book = Arc::clone(&seen);
    let peer = Peer::start("http", move |number, stream| {
        let seen = Arc::clone(&book);
        async move {
            let Ok(mut connection) = h2::server::handshake(stream).await else { return };
            // Each connection ends after some requests: by a drop, by an abrupt
            // GOAWAY, by a graceful one.
            for count in 0.. {
                let Some(Ok((request, mut respond))) = connection.accept().await else { return };
                seen.lock().unwrap().insert(request.uri().path().to_owned());
                let _ = respond.send_response(http::Response::new(()), true);
                match number % 3 {
                    0 if count == 50 => return,
                    1 if count == 70 => connection.abrupt_shutdown(h2::Reason::NO_ERROR),
                    2 if count == 90 => connection.graceful_shutdown(),
                    _ => {}
                }
            }
        }
    })
    .await;
    let transport = Arc::new(transport());
    let room = Arc::new(tokio::sync::Semaphore::new(32));
    let mut sending = tokio::task::JoinSet::new();
    for number in 0..REQUESTS {
        let permit = Arc::clone(&room).acquire_owned().await.unwrap();
        let transport = Arc::clone(&transport);
        let path = format!("/{number}");
        let body = if number % 2 == 0 { "" } else { "body" };
        let request = Request { target: path.parse().unwrap(), ..peer.post(body) };
        sending.spawn(async move {
            let answer = transport.send(request).await;
            drop(permit);
            (path, answer)
        });
    }
    let mut endings = [0; 3];
    for (path, answer) in sending.join_all().await {
        let was_seen = seen.lock().unwrap().contains(&path);
        match answer {
            Ok(_) => {
                assert!(was_seen, "{path}");
                endings[0] += 1;
            }
            Err(failure) if failure.sent == Sent::No => {
                assert!(!was_seen, "{path}: {failure}");
                endings[1] += 1;
            }
            Err(failure) => {
                check(&failure, FailureKind::Closed, Sent::Unknown);
                endings[2] += 1;
            }
        }
    }
    // Most are answered, though every connection ended within 100 requests.
    assert!(endings[0] > REQUESTS / 2 && peer.connections() > 20, "{endings:?} on {}", peer.connections());
}
