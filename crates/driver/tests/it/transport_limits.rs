//! The default transport and peers that send too much data, or invalid data.

use bytes::Bytes;
use perihelion_wire::transport::{FailureKind, Sent, Transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::transport_peers::*;

#[tokio::test]
async fn a_body_over_the_limit_is_refused() {
    let announced = Peer::start("https", |_, stream| async {
        let mut stream = accept_tls(stream, &["http/1.1"]).await;
        read_head(&mut stream).await;
        // The transport takes bodies of up to 64 MiB. This one is a byte longer.
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
                    Some(Ok(capacity)) => stream.send_data(part.slice(..capacity), false).unwrap(),
                    // The client has closed the stream.
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

/// The transport takes up to 128 KiB of headers.
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
            // The client may close the connection before it has read everything.
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
        // Each of the following is a settings frame and a second frame. The second frames
        // are: a frame that is too long, an answer without a request, a header block that
        // cannot be decoded, and a window update that overflows.
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
                    // The client may close the connection at any moment.
                    if alpn.is_empty() {
                        let _ = stream.write_all(&bytes).await;
                        let _ = stream.shutdown().await;
                        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
                        return;
                    }
                    let mut stream = accept_tls(stream, &[alpn]).await;
                    let mut request = [0; 16];
                    let _ = stream.read(&mut request).await;
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
