//! Tests of authentication: signatures, dates, modes.

use perihelion_server::{AuthMode, ServerOptions};
use perihelion_testkit::http_client::HttpRequest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::{PLAIN_CONTAINER, World};

fn read_db() -> HttpRequest {
    HttpRequest::new("GET", "/dbs/d")
}

#[tokio::test]
async fn a_wrong_or_missing_signature_is_refused() {
    let world = World::new(PLAIN_CONTAINER).await;
    assert_eq!(world.send(read_db()).await.status, 200);
    for authorization in [
        "type%3Dmaster%26ver%3D1.0%26sig%3DAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA%3D",
        "type%3Dmaster%26ver%3D1.0%26sig%3D",
        "type%3Dmaster%26ver%3D2.0%26sig%3DAAAA",
        "type%3Daad%26ver%3D1.0%26sig%3DeyJ0",
        "type%3Dresource%26ver%3D1.0%26sig%3Dabc",
        "Bearer abc",
        "",
    ] {
        let refused = world.send(read_db().header("authorization", authorization)).await;
        assert_eq!(refused.status, 401, "{authorization}: {}", refused.text());
        assert!(refused.header("x-ms-request-charge").is_none());
    }
    assert_eq!(world.send(read_db().omit("authorization")).await.status, 401);
    assert_eq!(world.send(HttpRequest::new("GET", "/").omit("authorization")).await.status, 401);
    world.stop().await;
}

#[tokio::test]
async fn a_signature_with_a_date_far_from_now_is_refused() {
    let world = World::new(PLAIN_CONTAINER).await;
    for date in ["Thu, 01 Jan 2026 00:00:00 GMT", "Fri, 01 Jan 2100 00:00:00 GMT"] {
        let refused = world.send(read_db().header("x-ms-date", date)).await;
        assert_eq!(refused.status, 403, "{}", refused.text());
    }
    assert_eq!(world.send(read_db().header("x-ms-date", "yesterday")).await.status, 401);
    world.stop().await;
}

#[tokio::test]
async fn the_mode_any_accepts_every_entra_token_and_the_mode_off_every_request() {
    for (mode, token, status) in [
        (AuthMode::Any, "type%3Daad%26ver%3D1.0%26sig%3DeyJhbGciOiJub25lIn0.e30.x", 200),
        (AuthMode::Any, "type%3Dmaster%26ver%3D1.0%26sig%3DAAAA", 401),
        (AuthMode::Off, "nonsense", 200),
    ] {
        let options = ServerOptions { auth: mode, ..Default::default() };
        let world = World::with_options(options, PLAIN_CONTAINER).await;
        assert_eq!(world.send(read_db().header("authorization", token)).await.status, status, "{mode:?}");
        world.stop().await;
    }
}

/// Story of a bug: clients without a signature sent most of their bodies and then nothing. With
/// 4,096 connections they held all memory for bodies, and signed requests were refused.
#[tokio::test]
async fn an_unsigned_request_is_refused_before_its_body_has_arrived() {
    let world = World::new(PLAIN_CONTAINER).await;
    let mut stream = TcpStream::connect(world.address()).await.unwrap();
    let head = "POST /dbs/d/colls/c/docs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 60000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&[b' '; 50_000]).await.unwrap();
    let mut start = [0; 12];
    let answered = tokio::time::timeout(std::time::Duration::from_secs(10), stream.read_exact(&mut start));
    answered.await.expect("it is refused at once").unwrap();
    assert_eq!(&start, b"HTTP/1.1 401");
    world.stop().await;
}
