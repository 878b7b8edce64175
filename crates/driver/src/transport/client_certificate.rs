//! A client certificate: the certificate by which a server recognises this client.

use std::fmt;
use std::sync::Arc;

use rustls::client::ResolvesClientCert;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use super::options::BadHttpOptions;

/// A certificate and its private key. `Debug` does not show the key.
#[derive(Clone)]
pub struct ClientCertificate {
    chain: Vec<CertificateDer<'static>>,
    key: Arc<PrivateKeyDer<'static>>,
}

impl ClientCertificate {
    /// Parses a chain of certificates and the private key (PKCS#8, PKCS#1 or SEC1). The chain
    /// begins with the client's own certificate, and continues with those of the authorities that
    /// signed it. Both texts are PEM, and may be the same text.
    pub fn from_pem(chain: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Result<Self, BadHttpOptions> {
        let chain = CertificateDer::pem_slice_iter(chain.as_ref()).collect::<Result<Vec<_>, _>>();
        let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or_else(|| {
            BadHttpOptions::new(
                "the client certificate is not PEM: it should hold -----BEGIN CERTIFICATE----- blocks",
            )
        })?;
        // The error of the parser is dropped, because it could show the key.
        let key = PrivateKeyDer::from_pem_slice(key.as_ref()).map_err(|_| {
            BadHttpOptions::new(
                "the key of the client certificate is not PEM: it should hold a -----BEGIN PRIVATE KEY----- \
                 block without a passphrase",
            )
        })?;
        Ok(ClientCertificate { chain, key: Arc::new(key) })
    }

    /// The certificate as TLS uses it. It is an error if the key does not fit the certificate.
    pub(super) fn resolver(
        &self,
        provider: &CryptoProvider,
    ) -> Result<Arc<dyn ResolvesClientCert>, BadHttpOptions> {
        let certified = CertifiedKey::from_der(self.chain.clone(), self.key.clone_key(), provider);
        let certified = certified.map_err(|error| {
            BadHttpOptions::new(format!("the client certificate and its key cannot be used: {error}"))
        })?;
        Ok(Arc::new(SingleCertAndKey::from(certified)))
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificate").field("certificates", &self.chain.len()).finish_non_exhaustive()
    }
}
