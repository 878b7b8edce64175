//! `ClientGrant`: asks the authority of Entra ID for a token of an application (OAuth 2.0, client
//! credentials). The application proves who it is with a client secret or with a federated token.

use std::path::PathBuf;
use std::time::SystemTime;

use http::{Method, header};
use perihelion_client::credential::AccessToken;
use perihelion_wire::transport::Endpoint;

use super::encode::form;
use super::send::{TokenRequest, Waits, send};
use super::{NoToken, TokenOrigin, token_answer};
use crate::secret::Secret;

/// The authority of the public cloud.
const AUTHORITY: &str = "https://login.microsoftonline.com";

/// The most bytes of a federated token. The tokens of Kubernetes have one or two kilobytes.
const FEDERATED_TOKEN_BYTES_MAX: u64 = 64 * 1024;

const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// An application, and how it proves who it is.
#[derive(Debug)]
pub(super) struct ClientGrant {
    pub(super) authority: Authority,
    pub(super) client_id: String,
    pub(super) proof: Proof,
}

/// How an application proves who it is.
#[derive(Debug)]
pub(super) enum Proof {
    Secret(Secret),
    /// A file with a token of another authority, such as Kubernetes. It is replaced from time to
    /// time, so it is read for each request.
    FederatedTokenFile(PathBuf),
}

/// The URL at which a tenant gives tokens.
#[derive(Debug)]
pub(super) struct Authority {
    url: http::Uri,
}

impl Authority {
    /// The tenant at this host, or at the host of the public cloud. The secret is sent to the host, so
    /// the URL needs TLS unless the host is this machine.
    pub(super) fn new(origin: TokenOrigin, host: Option<&str>, tenant: &str) -> Result<Authority, NoToken> {
        let wrong = |why: &str| {
            let advice = format!("Write it like {AUTHORITY}, or unset it");
            NoToken::new(origin, format!("AZURE_AUTHORITY_HOST {why}"), advice)
        };
        let host = host.unwrap_or(AUTHORITY);
        let host = if host.contains("://") { host.to_owned() } else { format!("https://{host}") };
        let endpoint = Endpoint::parse(&host).map_err(|_| wrong("is not a URL of a host"))?;
        if !endpoint.is_tls() && !endpoint.is_loopback() {
            return Err(wrong("is not https"));
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
        let target =
            format!("/{tenant}/oauth2/v2.0/token").parse().ok().filter(|_| tenant.chars().all(is_plain));
        let target = target.ok_or_else(|| {
            let advice = "Set it to the id or the domain of the tenant; `az account show` shows the id";
            NoToken::new(origin, "AZURE_TENANT_ID is not the id of a tenant", advice)
        })?;
        Ok(Authority { url: endpoint.uri(target) })
    }
}

impl ClientGrant {
    pub(super) fn origin(&self) -> TokenOrigin {
        match self.proof {
            Proof::Secret(_) => TokenOrigin::ClientSecret,
            Proof::FederatedTokenFile(_) => TokenOrigin::WorkloadIdentity,
        }
    }

    pub(super) async fn token(&self, scope: &str, now: SystemTime) -> Result<AccessToken, NoToken> {
        let secret = match &self.proof {
            Proof::Secret(secret) => secret.clone(),
            Proof::FederatedTokenFile(path) => {
                Secret::read_file(path, FEDERATED_TOKEN_BYTES_MAX, "one token").map_err(|error| {
                    let advice = "Check AZURE_FEDERATED_TOKEN_FILE and the mount of the token";
                    NoToken::new(self.origin(), format!("{}: {error}", path.display()), advice)
                })?
            }
        };
        let mut pairs =
            vec![("grant_type", "client_credentials"), ("client_id", &self.client_id), ("scope", scope)];
        pairs.extend(match &self.proof {
            Proof::Secret(_) => vec![("client_secret", secret.reveal())],
            Proof::FederatedTokenFile(_) => {
                vec![("client_assertion_type", ASSERTION_TYPE), ("client_assertion", secret.reveal())]
            }
        });
        let request = TokenRequest {
            method: Method::POST,
            url: self.authority.url.clone(),
            header: (
                header::CONTENT_TYPE,
                http::HeaderValue::from_static("application/x-www-form-urlencoded"),
            ),
            body: form(&pairs),
        };
        let answer = send(request, Waits::default()).await.map_err(|why| {
            let advice = "Check AZURE_AUTHORITY_HOST and the proxy settings, and that this machine reaches the authority";
            NoToken::new(self.origin(), why, advice)
        })?;
        token_answer::read(&answer, now, &[secret.reveal()]).map_err(|why| {
            let advice = match self.proof {
                Proof::Secret(_) => "Check AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET",
                Proof::FederatedTokenFile(_) => {
                    "Check AZURE_TENANT_ID, AZURE_CLIENT_ID and the federated credential of the application"
                }
            };
            NoToken::new(self.origin(), why, advice)
        })
    }
}
