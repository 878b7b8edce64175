//! The default transport when connections fail: whether the transport reports the request
//! as sent, and what happens to the next request.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use perihelion_driver::transport::{HttpOptions, HttpTransport};
use perihelion_wire::transport::{Endpoint, FailureKind, Request, Sent, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::transport_peers::*;

#[tokio::test]
async fn a_refused_connection_says_that_nothing_was_sent() {
    // No server listens on port 1.
    let endpoint = Endpoint::parse("https://127.0.0.1:1").unwrap();
    // This peer is only needed to build the request.
    let peer = Peer::start("http", |_, _| async {}).await;
    let failure = transport().send(Request { endpoint, ..peer.get() }).await.unwrap_err();
    check(&failure, FailureKind::Connect, Sent::No);
    assert!(failure.message.contains("refused"), "{failure}");
}

#[tokio::test]
async fn an_unknown_authority_is_refused_with_advice_unless_the_options_accept_it() {
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
async fn another_machine_is_not_reached_without_tls() {
    let endpoint = Endpoint::parse("http://192.0.2.1:8081").unwrap();
    // This peer is only needed to build the request.
    let peer = Peer::start("http", |_, _| async {}).await;
    let failure = transport().send(Request { endpoint, ..peer.get() }).await.unwrap_err();
    check(&failure, FailureKind::Connect, Sent::No);
    assert!(failure.message.contains("with_allow_cleartext"), "{failure}");
}

#[tokio::test]
async fn a_connection_that_ends_before_the_answer_may_have_sent_the_request() {
    let http2 = Peer::start("http", |_, stream| async {
        Frames::handshake(stream).await.next_request().await.unwrap();
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
        let mut frames = Frames::handshake(stream).await;
        let stream = frames.next_request().await.unwrap();
        frames.begin_answer(stream).await;
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
async fn a_request_beyond_goaway_was_not_sent_and_goes_to_another_connection() {
    let peer = Peer::start("http", |number, stream| async move {
        let mut frames = Frames::handshake(stream).await;
        let stream = frames.next_request().await.unwrap();
        match number {
            1 => frames.go_away(0).await,
            _ => frames.answer_ok(stream).await,
        }
        frames.drain().await;
    })
    .await;
    assert_eq!(transport().send(peer.post("body")).await.unwrap().status().as_u16(), 200);
    assert_eq!(peer.connections(), 2);
}

/// Every connection answers with a GOAWAY that excludes the request. The transport tries three
/// connections for one request.
#[tokio::test]
async fn a_request_that_no_connection_takes_fails_as_unsent() {
    let peer = Peer::start("http", |_, stream| async move {
        let mut frames = Frames::handshake(stream).await;
        frames.next_request().await.unwrap();
        frames.go_away(0).await;
        frames.drain().await;
    })
    .await;
    let failure = transport().send(peer.post("body")).await.unwrap_err();
    check(&failure, FailureKind::Closed, Sent::No);
    assert_eq!(peer.connections(), 3);
}

#[tokio::test]
async fn a_read_is_sent_again_when_its_connection_ends_and_a_write_is_not() {
    let peer = || {
        Peer::start("http", |number, stream| async move {
            let mut frames = Frames::handshake(stream).await;
            let stream = frames.next_request().await.unwrap();
            if number > 1 {
                frames.answer_ok(stream).await;
                frames.drain().await;
            }
        })
    };
    let peers = [peer().await, peer().await, peer().await];
    let query = {
        let mut request = peers[1].post("{}");
        request.headers.insert("x-ms-documentdb-isquery", http::HeaderValue::from_static("True"));
        request
    };
    for request in [peers[0].get(), query] {
        assert_eq!(transport().send(request).await.unwrap().status().as_u16(), 200);
    }
    let failure = transport().send(peers[2].post("body")).await.unwrap_err();
    check(&failure, FailureKind::Closed, Sent::Unknown);
    assert!(
        failure.incident.is_some(),
        "the end of a connection is an incident: it fails all requests on it"
    );
    assert_eq!(peers.map(|peer| peer.connections()), [2, 2, 1]);
}

#[tokio::test]
async fn a_request_before_goaway_is_answered_and_the_next_one_goes_to_a_fresh_connection() {
    let (goaway_received, answer_allowed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (wait_for_goaway, allow_answer) = (Arc::clone(&goaway_received), Arc::clone(&answer_allowed));
    let peer = Peer::start("http", move |number, stream| {
        let (goaway_received, answer_allowed) = (Arc::clone(&goaway_received), Arc::clone(&answer_allowed));
        async move {
            let mut frames = Frames::handshake(stream).await;
            let stream = frames.next_request().await.unwrap();
            if number == 1 {
                frames.go_away_and_wait(stream).await;
                goaway_received.notify_one();
                answer_allowed.notified().await;
            }
            frames.answer_ok(stream).await;
            frames.drain().await;
        }
    })
    .await;
    let transport = Arc::new(transport());
    let first = tokio::spawn({
        let (transport, request) = (Arc::clone(&transport), peer.get());
        async move { transport.send(request).await }
    });
    wait_for_goaway.notified().await;
    // The first connection still serves the first request, but takes no other requests.
    assert_eq!(transport.send(peer.get()).await.unwrap().status().as_u16(), 200);
    assert_eq!(peer.connections(), 2);
    allow_answer.notify_one();
    assert_eq!(first.await.unwrap().unwrap().status().as_u16(), 200);
}

/// A peer that refuses a stream has not processed its request, so even a write is sent again.
#[tokio::test]
async fn a_request_whose_stream_is_refused_is_sent_again_on_the_same_connection() {
    let peer = Peer::start("http", |_, stream| async {
        let mut frames = Frames::handshake(stream).await;
        let refused = frames.next_request().await.unwrap();
        const REFUSED_STREAM: u32 = 7;
        frames.send(RST_STREAM, 0, refused, &REFUSED_STREAM.to_be_bytes()).await;
        let stream = frames.next_request().await.unwrap();
        frames.answer_ok(stream).await;
        frames.drain().await;
    })
    .await;
    assert_eq!(transport().send(peer.post("body")).await.unwrap().status().as_u16(), 200);
    assert_eq!(peer.connections(), 1, "the second stream is on the same connection");
}

#[tokio::test]
async fn a_connection_that_ended_while_idle_is_replaced_by_the_next_request() {
    let http2 = |stream| async {
        let mut frames = Frames::handshake(stream).await;
        let stream = frames.next_request().await.unwrap();
        frames.answer_ok(stream).await;
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
        let idle = alive_tasks();
        for number in 1..=3 {
            assert_eq!(transport.send(peer.get()).await.unwrap().status().as_u16(), 200);
            assert_eq!(peer.connections(), number);
            // The task of the connection ends when the client has noticed that the peer closed
            // the connection.
            wait_for_task_count(idle).await;
        }
    }
}

#[tokio::test]
async fn a_silent_peer_is_noticed_by_its_missing_pongs() {
    let peer = Peer::start("https", |_, stream| async {
        let mut stream = accept_tls(stream, &["h2"]).await;
        // Reads everything and never answers.
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.unwrap();
    })
    .await;
    let options = options_trusting_peers()
        .with_ping_interval(Duration::from_millis(50))
        .with_ping_timeout(Duration::from_millis(100));
    let before = Instant::now();
    let failure = HttpTransport::new(options).unwrap().send(peer.get()).await.unwrap_err();
    check(&failure, FailureKind::Closed, Sent::Unknown);
    assert!(before.elapsed() < LONG_TIMEOUT / 2);
}

/// Connections end in several ways and at any moment, under load on several threads. A
/// request that is reported as not sent must not have arrived. A request that was answered
/// must have arrived.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_request_reported_as_unsent_never_arrives() {
    const REQUESTS: usize = 4000;
    let arrived = Arc::new(Mutex::new(HashSet::new()));
    let peer_arrived = Arc::clone(&arrived);
    let peer = Peer::start("http", move |number, stream| {
        let arrived = Arc::clone(&peer_arrived);
        async move {
            let Ok(mut connection) = h2::server::handshake(stream).await else { return };
            // Each connection ends after some requests: by a drop, by an abrupt GOAWAY, or by
            // a graceful GOAWAY.
            for count in 0.. {
                let Some(Ok((request, mut respond))) = connection.accept().await else { return };
                arrived.lock().unwrap().insert(request.uri().path().to_owned());
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
    let slots = Arc::new(tokio::sync::Semaphore::new(32));
    let mut sending = tokio::task::JoinSet::new();
    for number in 0..REQUESTS {
        let permit = Arc::clone(&slots).acquire_owned().await.unwrap();
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
    // How many requests were answered, were not sent, and may have been sent.
    let mut outcomes = [0; 3];
    for (path, answer) in sending.join_all().await {
        let has_arrived = arrived.lock().unwrap().contains(&path);
        match answer {
            Ok(_) => {
                assert!(has_arrived, "{path}");
                outcomes[0] += 1;
            }
            Err(failure) if failure.sent == Sent::No => {
                assert!(!has_arrived, "{path}: {failure}");
                outcomes[1] += 1;
            }
            Err(failure) => {
                check(&failure, FailureKind::Closed, Sent::Unknown);
                outcomes[2] += 1;
            }
        }
    }
    // Most requests are answered, although every connection ended within 100 requests.
    assert!(outcomes[0] > REQUESTS / 2 && peer.connections() > 20, "{outcomes:?} on {}", peer.connections());
}

/// The first connection ends because the peer violates HTTP/2: before the answer, or within its
/// body. A read is answered on another connection. A write may have been applied, and fails.
#[tokio::test]
async fn a_read_goes_to_another_connection_after_a_violation_of_the_protocol() {
    for begins_answer in [false, true] {
        let peer = Peer::start("http", move |number, stream| async move {
            let mut frames = Frames::handshake(stream).await;
            let stream = frames.next_request().await.unwrap();
            match number {
                2 => frames.answer_ok(stream).await,
                _ => {
                    if begins_answer {
                        frames.begin_answer(stream).await;
                    }
                    // Settings belong to no stream.
                    frames.send(SETTINGS, 0, stream, &[]).await;
                }
            }
            frames.drain().await;
        })
        .await;
        let transport = transport();
        assert_eq!(transport.send(peer.get()).await.unwrap().status().as_u16(), 200);
        assert_eq!(peer.connections(), 2);
        let peer = Peer::start("http", |_, stream| async move {
            let mut frames = Frames::handshake(stream).await;
            let stream = frames.next_request().await.unwrap();
            frames.send(SETTINGS, 0, stream, &[]).await;
            frames.drain().await;
        })
        .await;
        let failure = transport.send(peer.post("body")).await.unwrap_err();
        check(&failure, FailureKind::Protocol, Sent::Unknown);
        assert_eq!(peer.connections(), 1);
    }
}

/// The peer answers over HTTP/1.1 before it has read the whole request, and reads no more. So its
/// connection never becomes ready for another request. The next request waits for it only a quarter
/// of a second, and then opens another connection.
#[tokio::test]
async fn an_idle_http1_connection_that_does_not_become_ready_is_replaced() {
    let peer = Peer::start("https", |number, stream| async move {
        let mut stream = accept_tls(stream, &["http/1.1"]).await;
        if number > 1 {
            return serve_http1(stream).await;
        }
        read_head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        std::future::pending().await
    })
    .await;
    let transport = transport();
    // More than the buffers of a socket hold.
    let unread = vec![b'x'; 32 << 20];
    assert_eq!(transport.send(peer.post(unread)).await.unwrap().status().as_u16(), 200);
    assert_eq!(transport.statistics().endpoints[0].http1_idle, 1);
    let deadline = (Instant::now() + Duration::from_secs(5)).into_std();
    transport.send(Request { deadline, ..peer.get() }).await.unwrap();
    assert_eq!(peer.connections(), 2);
}

/// The defect: a request tried one idle connection after the other, and waited a quarter of a second
/// for each connection that was not ready.
#[tokio::test]
async fn several_idle_http1_connections_that_do_not_become_ready_cost_one_wait() {
    const STUCK: usize = 8;
    let together = Arc::new(tokio::sync::Barrier::new(STUCK));
    let peer = Peer::start("https", move |number, stream| {
        let together = Arc::clone(&together);
        async move {
            let mut stream = accept_tls(stream, &["http/1.1"]).await;
            if number > STUCK {
                return serve_http1(stream).await;
            }
            read_head(&mut stream).await;
            // All requests are under way at the same time, so each has a connection of its own.
            together.wait().await;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            std::future::pending().await
        }
    })
    .await;
    let transport = Arc::new(transport());
    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..STUCK {
        // More than the buffers of a socket hold.
        let (transport, request) = (Arc::clone(&transport), peer.post(vec![b'x'; 16 << 20]));
        requests.spawn(async move { transport.send(request).await });
    }
    while let Some(answer) = requests.join_next().await {
        assert_eq!(answer.unwrap().unwrap().status().as_u16(), 200);
    }
    assert_eq!(transport.statistics().endpoints[0].http1_idle, STUCK);
    let began_at = Instant::now();
    let deadline = (Instant::now() + Duration::from_secs(20)).into_std();
    transport.send(Request { deadline, ..peer.get() }).await.unwrap();
    // Eight waits of a quarter of a second take two seconds.
    assert!(began_at.elapsed() < Duration::from_millis(1500), "{:?}", began_at.elapsed());
    assert_eq!(peer.connections(), STUCK + 1);
}
