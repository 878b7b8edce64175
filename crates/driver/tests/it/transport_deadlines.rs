//! The default transport and deadlines. At every stage a request has an answer or a
//! failure by its deadline, and the failure says whether the request was sent.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use perihelion_driver::transport::HttpTransport;
use perihelion_wire::transport::{FailureKind, Request, Sent, Transport};
use tokio::io::AsyncWriteExt;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::transport_peers::*;

#[tokio::test]
async fn the_deadline_holds_while_connecting() {
    let peer = Peer::start("https", |_, stream| async {
        tokio::io::copy(&mut { stream }, &mut tokio::io::sink()).await.unwrap();
    })
    .await;
    let failure = transport().send(peer.get_with_short_deadline()).await.unwrap_err();
    check(&failure, FailureKind::Connect, Sent::No);
    let impatient = options_trusting_peers().with_connect_timeout(SHORT_TIMEOUT);
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
async fn when_a_request_times_out_its_connection_still_opens_for_others() {
    let (allow_handshake, handshake_allowed) = oneshot::channel::<()>();
    let handshake_allowed = Arc::new(Mutex::new(Some(handshake_allowed)));
    let peer = Peer::start("https", move |_, stream| {
        let handshake_allowed = handshake_allowed.lock().unwrap().take().unwrap();
        async move {
            handshake_allowed.await.unwrap();
            serve_http2(accept_tls(stream, &["h2"]).await, 100, echo).await;
        }
    })
    .await;
    let transport = transport();
    let (patient, ()) = tokio::join!(transport.send(peer.get()), async {
        let failure = transport.send(peer.get_with_short_deadline()).await.unwrap_err();
        check(&failure, FailureKind::Connect, Sent::No);
        allow_handshake.send(()).unwrap();
    });
    assert_eq!(patient.unwrap().status().as_u16(), 200);
    assert_eq!(peer.connections(), 1);
}

#[tokio::test]
async fn the_deadline_holds_while_waiting_for_the_head() {
    let http2 = Peer::start("http", |_, stream| serve_http2(stream, 100, never_answer)).await;
    let http1 = Peer::start("https", |_, stream| async {
        let mut stream = accept_tls(stream, &["http/1.1"]).await;
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.unwrap();
    })
    .await;
    for peer in [http2, http1] {
        let failure = transport().send(peer.get_with_short_deadline()).await.unwrap_err();
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
        let failure = transport().send(peer.get_with_short_deadline()).await.unwrap_err();
        check(&failure, FailureKind::Timeout, Sent::Yes);
    }
}

#[tokio::test]
async fn a_request_that_waits_for_a_stream_until_its_deadline_was_not_sent() {
    let http2 = Peer::start("http", |_, stream| serve_http2(stream, 1, never_answer)).await;
    let http1 = Peer::start("https", |_, stream| async {
        let mut stream = accept_tls(stream, &["http/1.1"]).await;
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.unwrap();
    })
    .await;
    for peer in [http2, http1] {
        let options = options_trusting_peers().with_connections_max(1).with_http1_connections_max(1);
        let transport = Arc::new(HttpTransport::new(options).unwrap());
        // The first request takes the only stream or connection, and keeps it.
        let first = tokio::spawn({
            let (transport, request) = (Arc::clone(&transport), peer.get());
            async move { transport.send(request).await }
        });
        // Lets the first request begin before the second.
        tokio::task::yield_now().await;
        // The second request may wait for the connection to open. At its deadline the
        // connection is open, and the transport knows the peer's limit. So the third request
        // waits only for a stream.
        check(
            &transport.send(peer.get_with_short_deadline()).await.unwrap_err(),
            FailureKind::Timeout,
            Sent::No,
        );
        check(
            &transport.send(peer.get_with_short_deadline()).await.unwrap_err(),
            FailureKind::Timeout,
            Sent::No,
        );
        assert!(!first.is_finished());
        first.abort();
    }
}
