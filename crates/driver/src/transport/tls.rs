//! TLS: the handshake, and which certificates are trusted.
//!
//! If the caller gives a configuration of its own, every endpoint uses it. Otherwise there are two
//! configurations, each made on first use. The verifying configuration trusts the system's roots
//! and the authorities of the options. The accepting configuration accepts any certificate. It is
//! used only for an endpoint on this machine, and only when the options allow it. The choice is
//! made while connecting, by the endpoint's host name and by the address that was connected to. So
//! the certificate of a remote host is always verified, even if its name looks local.

use std::io;
use std::sync::{Arc, OnceLock};

use perihelion_wire::transport::{Endpoint, Failure, FailureKind, Sent};
use rustls::client::ResolvesClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::options::{BadHttpOptions, HttpOptions};

/// The protocols to offer, the preferred one first.
const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The protocol that a TLS handshake has negotiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NegotiatedProtocol {
    Http2,
    Http1,
}

/// The TLS configurations of one transport.
pub(super) struct Tls {
    provider: Arc<CryptoProvider>,
    /// The authorities that the options name, besides the system's.
    own_roots: Vec<CertificateDer<'static>>,
    accepts_unknown_loopback: bool,
    /// The client certificate.
    identity: Option<Arc<dyn ResolvesClientCert>>,
    /// The caller's configuration, which is used instead of the two below.
    callers_config: Option<Arc<ClientConfig>>,
    /// The configuration that verifies certificates.
    verifying: OnceCell<Arc<ClientConfig>>,
    /// The configuration that accepts any certificate.
    accepting: OnceLock<Arc<ClientConfig>>,
}

impl Tls {
    pub(super) fn new(options: &HttpOptions) -> Result<Self, BadHttpOptions> {
        let own_roots =
            CertificateDer::pem_slice_iter(&options.ca_pem).collect::<Result<Vec<_>, _>>().map_err(|_| {
                BadHttpOptions::new("the CA is not PEM: it should hold -----BEGIN CERTIFICATE----- blocks")
            })?;
        let has_text = options.ca_pem.iter().any(|byte| !byte.is_ascii_whitespace());
        if has_text && own_roots.is_empty() {
            return Err(BadHttpOptions::new(
                "the CA holds no certificate: it should be PEM with -----BEGIN CERTIFICATE-----",
            ));
        }
        // This store only checks the certificates. `verifying_config` makes the store that is
        // used.
        let mut checked = RootCertStore::empty();
        for root in &own_roots {
            checked
                .add(root.clone())
                .map_err(|_| BadHttpOptions::new("a certificate of the CA cannot serve as a trust anchor"))?;
        }
        let provider = match &options.crypto_provider {
            Some(provider) => Arc::clone(provider),
            None => Arc::new(rustls::crypto::aws_lc_rs::default_provider()),
        };
        config_builder(&provider).map_err(|error| {
            BadHttpOptions::new(format!("the crypto_provider cannot be used for TLS 1.2 and 1.3: {error}"))
        })?;
        let certificate = options.client_certificate.as_ref();
        let identity = certificate.map(|certificate| certificate.resolver(&provider)).transpose()?;
        Ok(Tls {
            provider,
            own_roots,
            identity,
            callers_config: options.tls_config.as_ref().map(with_default_alpn),
            accepts_unknown_loopback: options.accept_unknown_loopback_certificates,
            verifying: OnceCell::new(),
            accepting: OnceLock::new(),
        })
    }

    /// Makes the handshake, and returns the protocol that was negotiated. `is_direct` says
    /// whether the connection goes to the endpoint and not to a proxy.
    pub(super) async fn connect(
        &self,
        endpoint: &Endpoint,
        tcp: TcpStream,
        is_direct: bool,
    ) -> Result<(TlsStream<TcpStream>, NegotiatedProtocol), Failure> {
        let failed = |text: String| Failure::new(FailureKind::Tls, Sent::No, text);
        let name = ServerName::try_from(endpoint.host().to_owned()).map_err(|_| {
            failed(format!("{endpoint}: the host is not a name that a certificate can carry"))
        })?;
        let is_local =
            is_direct && endpoint.is_loopback() && tcp.peer_addr().is_ok_and(|peer| peer.ip().is_loopback());
        let config = self.config(is_local).await.map_err(|error| failed(format!("{endpoint}: {error}")))?;
        let stream = TlsConnector::from(config)
            .connect(name, tcp)
            .await
            .map_err(|error| failed(handshake_error_text(endpoint, &error)))?;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok((stream, if is_http2 { NegotiatedProtocol::Http2 } else { NegotiatedProtocol::Http1 }))
    }

    /// The configuration for an endpoint; `is_local` says whether the endpoint is on this
    /// machine.
    async fn config(&self, is_local: bool) -> Result<Arc<ClientConfig>, String> {
        if let Some(config) = &self.callers_config {
            return Ok(Arc::clone(config));
        }
        if self.accepts_unknown_loopback && is_local {
            return Ok(Arc::clone(self.accepting.get_or_init(|| self.accepting_config())));
        }
        let verifying = self.verifying.get_or_try_init(|| self.verifying_config());
        verifying.await.map(Arc::clone)
    }

    async fn verifying_config(&self) -> Result<Arc<ClientConfig>, String> {
        // On some systems this reads and parses a hundred files, so it runs on a
        // thread for blocking work.
        let system = tokio::task::spawn_blocking(rustls_native_certs::load_native_certs)
            .await
            .map_err(|_| "loading the system's certificates was interrupted".to_owned())?;
        for error in &system.errors {
            tracing::warn!(%error, "some of the system's certificates could not be loaded");
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(system.certs);
        roots.add_parsable_certificates(self.own_roots.iter().cloned());
        if roots.is_empty() {
            return Err(
                "there are no trusted certificates: install the system's (package ca-certificates), \
                        set SSL_CERT_FILE, or give a CA with HttpOptions::with_ca_pem"
                    .to_owned(),
            );
        }
        Ok(self.finish(self.builder().with_root_certificates(roots)))
    }

    fn accepting_config(&self) -> Arc<ClientConfig> {
        let verifier = AcceptAny { algorithms: self.provider.signature_verification_algorithms };
        let builder = self.builder().dangerous().with_custom_certificate_verifier(Arc::new(verifier));
        self.finish(builder)
    }

    /// The configuration with the client certificate, if there is one, and the protocols.
    fn finish(
        &self,
        builder: rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>,
    ) -> Arc<ClientConfig> {
        with_alpn(match &self.identity {
            Some(identity) => builder.with_client_cert_resolver(Arc::clone(identity)),
            None => builder.with_no_client_auth(),
        })
    }

    fn builder(&self) -> rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier> {
        config_builder(&self.provider).expect("`new` has checked this provider")
    }
}

fn config_builder(
    provider: &Arc<CryptoProvider>,
) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, rustls::Error> {
    ClientConfig::builder_with_provider(Arc::clone(provider)).with_safe_default_protocol_versions()
}

/// The caller's configuration, with our protocols if it names none.
fn with_default_alpn(config: &Arc<ClientConfig>) -> Arc<ClientConfig> {
    match config.alpn_protocols.is_empty() {
        true => with_alpn(ClientConfig::clone(config)),
        false => Arc::clone(config),
    }
}

fn with_alpn(mut config: ClientConfig) -> Arc<ClientConfig> {
    config.alpn_protocols = ALPN.iter().map(|protocol| protocol.to_vec()).collect();
    Arc::new(config)
}

/// The error text: what failed, on which endpoint, and what to try.
fn handshake_error_text(endpoint: &Endpoint, error: &io::Error) -> String {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let Some(tls) = tls else {
        return format!("{endpoint}: the connection broke during the TLS handshake: {error}");
    };
    if !is_unknown_issuer(tls) {
        return format!("{endpoint}: the TLS handshake failed: {tls}");
    }
    let local = if endpoint.is_loopback() {
        ", or accept it with HttpOptions::with_accept_unknown_loopback_certificates if this is a local emulator"
    } else {
        ""
    };
    format!(
        "{endpoint}: the server's certificate is signed by an authority that is not trusted here; \
         add that authority with HttpOptions::with_ca_pem or SSL_CERT_FILE{local}"
    )
}

fn is_unknown_issuer(error: &rustls::Error) -> bool {
    matches!(error, rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer))
        // rustls has no variant for this error: a self-signed certificate that is also
        // marked as a CA.
        || matches!(error, rustls::Error::InvalidCertificate(CertificateError::Other(other))
            if other.to_string().contains("CaUsedAsEndEntity"))
}

/// Accepts any certificate. Signatures are still checked, so the peer must have
/// the certificate's key.
#[derive(Debug)]
struct AcceptAny {
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
