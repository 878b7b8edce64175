//! Who the driver is to the service, and how a request proves it.
//!
//! A [`Credential`] is a master key that signs each request, a resource token,
//! or a [`TokenSource`] whose tokens are cached until shortly before they
//! expire. What always holds: no secret shows in `Debug` or in an error,
//! headers that carry one are marked sensitive, and the memory of secrets that
//! outlive a request is cleared when they are dropped.

#[cfg(feature = "azure-core")]
mod azure_core;
mod cache;
mod secret;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use http::{HeaderValue, Method};
use perihelion_wire::signature::{Credentials, MasterKey};
use perihelion_wire::transport::Endpoint;
use tokio::time::Instant;

use crate::error::Error;
use cache::TokenCache;
pub use secret::Secret;

/// What opens an account. Cheap to clone; clones share cached tokens.
#[derive(Clone)]
pub struct Credential(Kind);

#[derive(Clone)]
enum Kind {
    Key(Arc<MasterKey>),
    /// The whole Authorization value, ready to send.
    ResourceToken(HeaderValue),
    Tokens(Arc<TokenCache>),
}

/// Gives Entra ID access tokens: an application, a managed identity, a person.
///
/// The driver asks only when it has no token that is good for some minutes
/// more, never twice at the same time for one scope, and waits a bounded time.
/// Dropping the future must be harmless.
pub trait TokenSource: Send + Sync {
    /// A token for the scope, such as `https://account.documents.azure.com/.default`.
    fn token<'a>(
        &'a self,
        scope: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<AccessToken, Error>> + Send + 'a>>;
}

/// A bearer token and how long it is good for.
#[derive(Debug, Clone)]
pub struct AccessToken {
    /// The token itself.
    pub secret: Secret,
    /// When the service stops to accept it.
    pub expires_on: SystemTime,
}

impl AccessToken {
    /// A token that expires at that time.
    pub fn new(secret: impl Into<Secret>, expires_on: SystemTime) -> Self {
        AccessToken { secret: secret.into(), expires_on }
    }
}

impl Credential {
    /// A primary or secondary key of the account, in base64.
    pub fn key(base64: &str) -> Result<Self, Error> {
        let key = MasterKey::from_base64(base64.trim()).map_err(|error| Error::input(error.to_string()))?;
        Ok(Credential(Kind::Key(Arc::new(key))))
    }

    /// The published key of every emulator. It protects nothing.
    pub fn emulator() -> Self {
        Credential(Kind::Key(Arc::new(MasterKey::emulator())))
    }

    /// A resource token, `type=resource&ver=1&sig=...`, as a permission gives
    /// it: percent-encoded or not.
    pub fn resource_token(token: &str) -> Result<Self, Error> {
        let bad = || Error::input("a resource token reads type=resource&ver=1&sig=...");
        let token = token.trim();
        match Credentials::parse(token) {
            Ok(Credentials::ResourceToken(_)) => {}
            Ok(Credentials::MasterKey { .. } | Credentials::EntraId(_)) | Err(_) => return Err(bad()),
        }
        let is_encoded = !token.contains('=');
        let header = if is_encoded { secret::header("", token) } else { secret::encoded_header("", token) };
        header.map(|header| Credential(Kind::ResourceToken(header))).ok_or_else(bad)
    }

    /// Entra ID, through anything that gives tokens.
    pub fn token_source(source: Arc<dyn TokenSource>) -> Self {
        Credential(Kind::Tokens(Arc::new(TokenCache::new(source))))
    }

    /// Whether it is the published key of the emulators, with which a loopback
    /// host may show any certificate.
    pub fn is_emulator(&self) -> bool {
        match &self.0 {
            Kind::Key(key) => key.is_emulator_key(),
            Kind::ResourceToken(_) | Kind::Tokens(_) => false,
        }
    }

    /// The Authorization header of one request. The date is the `x-ms-date` that
    /// goes with it, in lower case; the scope is what [`scope_of`] says of the
    /// account. Waits only when a token must be fetched.
    pub(crate) async fn authorize(
        &self,
        method: &Method,
        resource_type: &str,
        link: &str,
        date: &HeaderValue,
        scope: &str,
    ) -> Result<HeaderValue, Error> {
        match &self.0 {
            Kind::Key(key) => {
                let date = date.to_str().map_err(|_| Error::input("the date to sign is not ASCII"))?;
                Ok(key.authorization_header(method.as_str(), resource_type, link, date))
            }
            Kind::ResourceToken(header) => Ok(header.clone()),
            Kind::Tokens(cache) => cache.header(scope).await,
        }
    }

    /// The service has refused (401) what was sent at `sent_at`. Whether that was
    /// a token that another one can replace: revoked, or ended by a clock that is
    /// not ours.
    pub(crate) fn is_replaceable(&self, scope: &str, sent_at: Instant) -> bool {
        match &self.0 {
            Kind::Tokens(cache) => cache.refused(scope, sent_at),
            Kind::Key(_) | Kind::ResourceToken(_) => false,
        }
    }
}

/// The scope of tokens for an account: its own name on every port and in every
/// region, unless the options say otherwise.
pub(crate) fn scope_of(account: &Endpoint, option: Option<&str>) -> String {
    match option {
        Some(scope) => scope.to_owned(),
        None => format!("https://{}/.default", account.host()),
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Kind::Key(_) => "Credential(master key)",
            Kind::ResourceToken(_) => "Credential(resource token)",
            Kind::Tokens(_) => "Credential(token source)",
        })
    }
}
