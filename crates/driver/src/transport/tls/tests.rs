//! Which certificates are trusted, client certificates, and a TLS configuration of the caller.

use std::time::SystemTime;

use perihelion_server::certificates::{Certificates, Names};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::super::client_certificate::ClientCertificate;
use super::*;

/// A host name that does not belong to this machine.
const REMOTE_HOST: &str = "account.documents.example";

fn certificates() -> Certificates {
    Certificates::load_or_create(None, &Names::local_and([REMOTE_HOST]), SystemTime::now()).unwrap()
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
    let (_, connected) = tokio::join!(serving, tls.connect(&endpoint, tcp, true));
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
    let remote_endpoint = format!("https://{REMOTE_HOST}:1");
    for (options, endpoint) in
        [(&accepting, remote_endpoint.as_str()), (&HttpOptions::default(), "https://localhost:1")]
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
    let known = format!("https://{REMOTE_HOST}:1");
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

/// An authority, a certificate that it has signed for a client, and the key of that certificate.
struct Identity {
    authority: rcgen::Certificate,
    chain_pem: String,
    key_pem: String,
}

fn identity() -> Identity {
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap();
    let issuer = rcgen::Issuer::from_params(&params, &authority_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(["client".to_owned()]).unwrap();
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.signed_by(&key, &issuer).unwrap();
    Identity { authority, chain_pem: certificate.pem(), key_pem: key.serialize_pem() }
}

/// A server that asks for a certificate of this authority. The server's own certificate is not
/// signed by a trusted authority.
fn server_that_asks_for_a_certificate(authority: &rcgen::Certificate) -> Arc<rustls::ServerConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier =
        rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let server = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(server.signing_key.serialize_der());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(vec![server.cert.der().clone()], key.into());
    Arc::new(config.unwrap())
}

/// The cipher suite of a handshake; an error if the server does not accept the client.
async fn accepted(
    server: Arc<rustls::ServerConfig>,
    options: &HttpOptions,
) -> Result<rustls::CipherSuite, io::Error> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tcp = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let endpoint = Endpoint::parse("https://localhost:1").unwrap();
    let tls = Tls::new(options).unwrap();
    let serving = async {
        let (stream, _) = listener.accept().await.unwrap();
        TlsAcceptor::from(server).accept(stream).await
    };
    let (served, _client) = tokio::join!(serving, tls.connect(&endpoint, tcp, true));
    served.map(|stream| stream.get_ref().1.negotiated_cipher_suite().unwrap().suite())
}

fn accepting() -> HttpOptions {
    HttpOptions::default().with_accept_unknown_loopback_certificates(true)
}

#[tokio::test]
async fn a_server_that_asks_for_a_client_certificate_gets_it() {
    let Identity { authority, chain_pem, key_pem } = identity();
    let server = server_that_asks_for_a_certificate(&authority);
    assert!(accepted(Arc::clone(&server), &accepting()).await.is_err(), "without a certificate");
    let certificate = ClientCertificate::from_pem(&chain_pem, &key_pem).unwrap();
    let options = accepting().with_client_certificate(certificate);
    let shown = format!("{options:?}");
    assert!(shown.contains("certificates: 1") && !shown.contains("PRIVATE"), "{shown}");
    accepted(Arc::clone(&server), &options).await.unwrap();
    let stranger = identity();
    let certificate = ClientCertificate::from_pem(&stranger.chain_pem, &stranger.key_pem).unwrap();
    assert!(accepted(server, &accepting().with_client_certificate(certificate)).await.is_err());
    let foreign_key = ClientCertificate::from_pem(&chain_pem, &stranger.key_pem).unwrap();
    let error = Tls::new(&accepting().with_client_certificate(foreign_key)).err().unwrap().to_string();
    assert!(error.contains("client certificate and its key"), "{error}");
    for (chain, key, expected_part) in
        [("", key_pem.as_str(), "BEGIN CERTIFICATE"), (chain_pem.as_str(), "s3cret", "BEGIN PRIVATE KEY")]
    {
        let error = ClientCertificate::from_pem(chain, key).unwrap_err().to_string();
        assert!(error.contains(expected_part) && !error.contains("s3cret"), "{error}");
    }
}

#[tokio::test]
async fn the_callers_cryptography_is_used() {
    let suite = rustls::CipherSuite::TLS13_CHACHA20_POLY1305_SHA256;
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|supported| supported.suite() == suite);
    let server = certificates().server_config().unwrap();
    let options = accepting().with_crypto_provider(provider.clone());
    assert_eq!(accepted(Arc::clone(&server), &options).await.unwrap(), suite);
    assert_ne!(accepted(server, &accepting()).await.unwrap(), suite);
    provider.cipher_suites.clear();
    let error = Tls::new(&accepting().with_crypto_provider(provider)).err().unwrap().to_string();
    assert!(error.contains("crypto_provider"), "{error}");
}

#[tokio::test]
async fn the_callers_configuration_replaces_ours() {
    let server = certificates();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(server.ca_pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let endpoint = format!("https://{REMOTE_HOST}:1");
    let options = HttpOptions::default().with_tls_config(config.clone());
    assert_eq!(handshake(&server, &options, &endpoint).await.unwrap(), NegotiatedProtocol::Http2);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let options = HttpOptions::default().with_tls_config(config);
    assert_eq!(handshake(&server, &options, &endpoint).await.unwrap(), NegotiatedProtocol::Http1);
    let both = options.with_ca_pem(server.ca_pem());
    assert!(both.check().unwrap_err().to_string().contains("tls_config replaces"));
}
