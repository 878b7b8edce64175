//! What the default transport reports about a request over HTTP/1.1, and the limit of endpoints.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::diagnostics::Protocol;

/// Answers every request with 200, in HTTP/1.1. The preface of HTTP/2 is refused.
async fn serve_http1(mut stream: TcpStream) {
    let mut received = Vec::new();
    while stream.read_buf(&mut received).await.is_ok_and(|count| count > 0) {
        if received.starts_with(b"PRI") {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n").await;
            return;
        }
        if received.ends_with(b"\r\n\r\n") {
            received.clear();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
        }
    }
}

fn get(endpoint: &Endpoint) -> Request {
    Request {
        endpoint: endpoint.clone(),
        method: Method::GET,
        target: PathAndQuery::from_static("/"),
        headers: HeaderMap::new(),
        body: Bytes::new(),
        deadline: (Instant::now() + time::Duration::from_secs(30)).into_std(),
        route: Default::default(),
    }
}

#[tokio::test]
async fn a_transfer_over_http1_names_its_connection_and_whether_it_is_new() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Endpoint::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let accepting = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(serve_http1(stream));
        }
    });
    let transport = HttpTransport::new(HttpOptions::default()).unwrap();
    for is_new in [true, false] {
        let Delivered { result, transfer } = transport.deliver(get(&endpoint)).await;
        assert_eq!(result.unwrap().body(), "ok");
        let transfer = transfer.unwrap();
        assert_eq!((transfer.protocol(), transfer.connection()), (Some(Protocol::Http1), Some(1)));
        assert_eq!((transfer.is_new_connection(), transfer.streams()), (is_new, 1));
        assert!(transfer.first_byte().is_some(), "{transfer:?}");
        assert_eq!(is_new, !transfer.connecting().is_zero(), "{transfer:?}");
    }
    accepting.abort();
    let closed = Endpoint::parse("http://127.0.0.1:1").unwrap();
    let Delivered { result, transfer } = transport.deliver(get(&closed)).await;
    result.unwrap_err();
    let transfer = transfer.unwrap();
    assert_eq!((transfer.protocol(), transfer.connection(), transfer.first_byte()), (None, None, None));
}

/// A transport that several drivers share outlives the drivers of many accounts. When it has as many
/// endpoints as allowed, it forgets one that is not used, and refuses a new one if all are in use.
#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_not_used_makes_room_for_another_one() {
    let transport = HttpTransport::new(HttpOptions::default()).unwrap();
    let endpoint = |number: usize| Endpoint::parse(&format!("http://127.0.0.1:{}", number + 1)).unwrap();
    let all: Vec<_> =
        (0..ENDPOINTS_MAX).map(|number| transport.connections(&endpoint(number)).unwrap()).collect();
    let in_flight = |connections: &Arc<Connections>| connections.start_flight(std::future::pending());
    let mut requests: Vec<_> = all.iter().map(in_flight).collect();
    let refused = transport.connections(&endpoint(ENDPOINTS_MAX)).err().unwrap();
    assert!(refused.to_string().contains("in use"), "{refused}");
    let remote = Endpoint::parse("http://192.0.2.1:8081").unwrap();
    let refused = transport.connections(&remote).err().unwrap();
    assert!(
        refused.to_string().contains("without TLS"),
        "the endpoint itself is checked before the limit: {refused}"
    );
    requests.remove(7);
    // The task of the request ends. An endpoint that has no connection and no request may be
    // forgotten at once.
    time::sleep(time::Duration::from_millis(1)).await;
    transport.connections(&endpoint(ENDPOINTS_MAX)).unwrap();
    let known = transport.endpoints.load();
    assert_eq!(known.len(), ENDPOINTS_MAX);
    assert!(find(&known, &endpoint(7)).is_none() && find(&known, &endpoint(8)).is_some());
}
