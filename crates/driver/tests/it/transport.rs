//! The default transport against our real server over loopback.

use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method};
use perihelion_driver::transport::{HttpOptions, HttpTransport};
use perihelion_server::{AuthMode, Keys, MasterKey, Server, ServerOptions, net};
use perihelion_wire::transport::{Endpoint, Failure, Request, Response, Transport};
use tokio::time::Instant;

/// Far more than anything here takes.
const PLENTY: Duration = Duration::from_secs(30);

fn server_options() -> ServerOptions {
    ServerOptions {
        host: "127.0.0.1".to_owned(),
        port: 0,
        data: None,
        partitions: 1,
        strict_gateway: false,
        throughput: None,
        keys: Keys { primary: MasterKey::emulator() },
        auth: AuthMode::Off,
        management: false,
        tls_dir: None,
        tls_names: Vec::new(),
        public_endpoint: None,
        open_account: true,
        health_port: None,
        limits: net::Limits::default(),
    }
}

fn get(endpoint: &Endpoint, target: &'static str) -> Request {
    Request {
        endpoint: endpoint.clone(),
        method: Method::GET,
        target: PathAndQuery::from_static(target),
        headers: HeaderMap::new(),
        body: Bytes::new(),
        deadline: (Instant::now() + PLENTY).into_std(),
    }
}

async fn ask(transport: &HttpTransport, endpoint: &Endpoint) -> Result<Response, Failure> {
    transport.send(get(endpoint, "/")).await
}

#[tokio::test]
async fn the_server_answers_over_tls_in_http2() {
    let directory = std::env::temp_dir().join(format!("perihelion-transport-{}", std::process::id()));
    let options = ServerOptions { tls_dir: Some(directory.clone()), ..server_options() };
    let server = Server::start(options).await.unwrap();
    let endpoint = Endpoint::parse(&format!("https://localhost:{}", server.local_addr().port())).unwrap();
    let ca = std::fs::read(server.ca_path().unwrap()).unwrap();
    let transport = HttpTransport::new(HttpOptions::default().with_ca_pem(ca)).unwrap();
    let response = ask(&transport, &endpoint).await.unwrap();
    assert_eq!((response.status().as_u16(), response.version()), (200, http::Version::HTTP_2));
    server.drain(Duration::from_secs(5)).await;
    std::fs::remove_dir_all(directory).unwrap();
}
