//! Endpoints that change their protocol, and thin-client endpoints.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Version;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use perihelion_driver::options::TopologyOptions;
use perihelion_driver::{Credential, Driver, DriverOptions, Region};
use perihelion_wire::transport::{Endpoint, Transport};
use tokio::net::TcpStream;

use crate::transport_peers::*;

/// The account document of a peer, with one region.
fn account_document(endpoint: &str) -> String {
    let location = serde_json::json!([{ "name": "West US", "databaseAccountEndpoint": endpoint }]);
    let thin =
        serde_json::json!([{ "name": "West US", "databaseAccountEndpoint": "https://thin.example:10250/" }]);
    serde_json::json!({
        "readableLocations": location,
        "writableLocations": location,
        "thinClientReadableLocations": thin,
    })
    .to_string()
}

/// Serves the account document in one protocol, and counts the requests.
async fn serve_account(stream: TcpStream, is_http2: bool, requests: Arc<AtomicUsize>) {
    let port = stream.local_addr().unwrap().port();
    let service = service_fn(move |request: http::Request<Incoming>| {
        requests.fetch_add(1, Ordering::SeqCst);
        assert_eq!(request.headers()["x-ms-cosmos-use-thinclient"], "true");
        let body = Full::new(Bytes::from(account_document(&format!("http://localhost:{port}/"))));
        async move { Ok::<_, hyper::Error>(http::Response::new(body)) }
    });
    let io = TokioIo::new(stream);
    // The end of the connection is not checked.
    if is_http2 {
        let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(io, service)
            .await;
    } else {
        let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
    }
}

/// An endpoint speaks HTTP/1.1 only, and later HTTP/2. The driver notices HTTP/2 when it reads
/// the account again, though its HTTP/1.1 connection still works.
#[tokio::test]
async fn http2_is_found_when_the_account_is_read_again() {
    let (http1_requests, http2_requests) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let speaks_http2 = Arc::new(AtomicBool::new(false));
    let peer = Peer::start("http", {
        let (http1_requests, http2_requests) = (Arc::clone(&http1_requests), Arc::clone(&http2_requests));
        let speaks_http2 = Arc::clone(&speaks_http2);
        move |_, stream| {
            let is_http2 = speaks_http2.load(Ordering::SeqCst);
            let requests = Arc::clone(if is_http2 { &http2_requests } else { &http1_requests });
            serve_account(stream, is_http2, requests)
        }
    })
    .await;
    let topology = TopologyOptions::default()
        .with_refresh_interval(Duration::from_millis(50))
        .with_refresh_pause(Duration::from_millis(10));
    let options = DriverOptions::default().with_topology(topology);
    let driver =
        Driver::open(peer.endpoint.clone(), Credential::emulator(), transport(), options).await.unwrap();
    assert_eq!((http1_requests.load(Ordering::SeqCst), http2_requests.load(Ordering::SeqCst)), (1, 0));
    let thin = (Region::new("West US"), Endpoint::parse("https://thin.example:10250/").unwrap());
    assert_eq!(driver.account().thin_client_read_endpoints, [thin]);
    assert!(driver.account().thin_client_write_endpoints.is_empty());
    speaks_http2.store(true, Ordering::SeqCst);
    let found = async {
        while http2_requests.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), found).await.expect("the driver finds HTTP/2");
}

/// An endpoint speaks HTTP/2, and after a restart HTTP/1.1 only.
#[tokio::test]
async fn http1_is_found_when_the_last_http2_connection_has_ended() {
    let peer = Peer::start("https", |number, stream| async move {
        match number {
            1 => {
                let mut peer = Frames::handshake(accept_tls(stream, &["h2"]).await).await;
                let request = peer.next_request().await.unwrap();
                peer.answer_ok(request).await;
            }
            _ => serve_http1(accept_tls(stream, &["http/1.1"]).await).await,
        }
    })
    .await;
    let transport = transport();
    assert_eq!(transport.send(peer.get()).await.unwrap().version(), Version::HTTP_2);
    let mut answer = transport.send(peer.get()).await;
    // The end of the first connection may be noticed a moment later.
    for _ in 0..5 {
        if answer.is_err() {
            answer = transport.send(peer.get()).await;
        }
    }
    assert_eq!(answer.unwrap().version(), Version::HTTP_11);
}
