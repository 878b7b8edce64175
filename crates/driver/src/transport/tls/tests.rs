use std::time::SystemTime;

use perihelion_server::certificates::{Certificates, Names};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

/// A host name that is not this machine's.
const ELSEWHERE: &str = "account.documents.example";

fn certificates() -> Certificates {
    Certificates::load_or_create(None, &Names::local_and([ELSEWHERE]), SystemTime::now()).unwrap()
}

/// Makes a handshake with a server on this machine under the name of `endpoint`.
async fn handshake(
    server: &Certificates,
    options: &HttpOptions,
    endpoint: &str,
) -> Result<NegotiatedProtocol, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tcp = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let acceptor = TlsAcceptor::from(server.server_config().unwrap());
    let endpoint = Endpoint::parse(endpoint).unwrap();
    let tls = Tls::new(options).unwrap();
    let serving = async {
        let (stream, _) = listener.accept().await.unwrap();
        acceptor.accept(stream).await
    };
    let (_, connected) = tokio::join!(serving, tls.connect(&endpoint, tcp));
    connected.map(|(_, negotiated)| negotiated)
}

#[tokio::test]
async fn any_certificate_is_accepted_only_for_this_machine_and_only_with_the_option() {
    let server = certificates();
    let accepting = HttpOptions::default().with_accept_unknown_loopback_certificates(true);
    assert_eq!(
        handshake(&server, &accepting, "https://localhost:1").await.unwrap(),
        NegotiatedProtocol::Http2
    );
    assert_eq!(
        handshake(&server, &accepting, "https://127.0.0.1:1").await.unwrap(),
        NegotiatedProtocol::Http2
    );
    let elsewhere = format!("https://{ELSEWHERE}:1");
    for (options, endpoint) in
        [(&accepting, elsewhere.as_str()), (&HttpOptions::default(), "https://localhost:1")]
    {
        let failure = handshake(&server, options, endpoint).await.unwrap_err();
        assert_eq!((failure.kind, failure.sent), (FailureKind::Tls, Sent::No));
        let message = failure.message;
        assert!(message.contains(endpoint) && message.contains("with_ca_pem"), "{message}");
        let is_local = endpoint.contains("localhost");
        assert_eq!(message.contains("with_accept_unknown_loopback_certificates"), is_local, "{message}");
    }
}

#[tokio::test]
async fn an_added_authority_is_trusted_for_the_names_it_certified() {
    let server = certificates();
    let options = HttpOptions::default().with_ca_pem(server.ca_pem());
    let known = format!("https://{ELSEWHERE}:1");
    assert_eq!(handshake(&server, &options, &known).await.unwrap(), NegotiatedProtocol::Http2);
    let failure = handshake(&server, &options, "https://other.example:1").await.unwrap_err();
    assert!(failure.message.contains("not valid for name"), "{}", failure.message);
}

#[test]
fn a_ca_that_holds_no_certificate_is_refused_at_once() {
    let server = certificates();
    for bad in [
        "hello",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
        "-----BEGIN CERTIFICATE-----",
    ] {
        assert!(Tls::new(&HttpOptions::default().with_ca_pem(bad)).is_err(), "{bad}");
    }
    let twice = HttpOptions::default().with_ca_pem(server.ca_pem()).with_ca_pem(certificates().ca_pem());
    assert_eq!(Tls::new(&twice).unwrap().own_roots.len(), 2);
    assert!(Tls::new(&HttpOptions::default()).is_ok());
}
