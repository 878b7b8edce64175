//! Credentials: how requests prove who sends them.
//!
//! A [`Credential`] is a master key that signs each request, a resource token,
//! or a [`TokenSource`] whose tokens are cached until shortly before they
//! expire. What always holds: no secret appears in `Debug` or in an error,
//! headers that carry a secret are marked sensitive, and the memory of secrets that
//! are kept longer than a request is cleared when they are dropped.

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
use tokio::time::{Instant, timeout_at};

use crate::error::{Error, ErrorKind};
use cache::TokenCache;
pub use secret::Secret;

/// A credential for an account. Cheap to clone; clones share cached tokens.
#[derive(Clone)]
pub struct Credential(AuthMethod);

#[derive(Clone)]
enum AuthMethod {
    Key(Arc<MasterKey>),
    /// The whole Authorization header.
    ResourceToken(HeaderValue),
    Tokens(Arc<TokenCache>),
}

/// A source of Entra ID access tokens: an application, a managed identity, a user.
///
/// The driver asks for a token only when it has none, when its current token expires
/// within minutes, or when the service has refused the current token. For each scope, the driver
/// makes one call at a time. It makes a second call only if the first makes no progress any more,
/// because its tokio runtime is not run or its thread is blocked. The driver waits a bounded time,
/// and may drop the future at any time.
pub trait TokenSource: Send + Sync {
    /// A token for the scope, such as `https://account.documents.azure.com/.default`.
    fn token<'a>(&'a self, scope: &'a str) -> TokenFuture<'a>;
}

/// The future that [`TokenSource::token`] returns.
pub type TokenFuture<'a> = Pin<Box<dyn Future<Output = Result<AccessToken, Error>> + Send + 'a>>;

/// A bearer token and when it expires.
#[derive(Debug, Clone)]
pub struct AccessToken {
    /// The token itself.
    pub secret: Secret,
    /// When the service stops accepting the token.
    pub expires_on: SystemTime,
}

impl AccessToken {
    /// A token that expires at `expires_on`.
    pub fn new(secret: impl Into<Secret>, expires_on: SystemTime) -> Self {
        AccessToken { secret: secret.into(), expires_on }
    }
}

impl Credential {
    /// A primary or secondary key of the account, in base64.
    pub fn key(base64: &str) -> Result<Self, Error> {
        let key = MasterKey::from_base64(base64.trim()).map_err(|error| Error::input(error.to_string()))?;
        Ok(Credential(AuthMethod::Key(Arc::new(key))))
    }

    /// The published key of the emulators. It is not a secret.
    pub fn emulator() -> Self {
        Credential(AuthMethod::Key(Arc::new(MasterKey::emulator())))
    }

    /// A resource token of a permission, `type=resource&ver=1&sig=...`,
    /// percent-encoded or not.
    pub fn resource_token(token: &str) -> Result<Self, Error> {
        let bad = || Error::input("a resource token reads type=resource&ver=1&sig=...");
        let token = token.trim();
        match Credentials::parse(token) {
            Ok(Credentials::ResourceToken(_)) => {}
            Ok(Credentials::MasterKey { .. } | Credentials::EntraId(_)) | Err(_) => return Err(bad()),
        }
        let is_encoded = !token.contains('=');
        let header = if is_encoded { secret::header("", token) } else { secret::encoded_header("", token) };
        header.map(|header| Credential(AuthMethod::ResourceToken(header))).ok_or_else(bad)
    }

    /// Entra ID authentication with tokens of this source.
    pub fn token_source(source: Arc<dyn TokenSource>) -> Self {
        Credential(AuthMethod::Tokens(Arc::new(TokenCache::new(source))))
    }

    /// Whether this is the published key of the emulators. A
    /// [`ConnectionString`](crate::ConnectionString) with that key accepts any
    /// certificate of a loopback host, unless the string says otherwise.
    pub fn is_emulator(&self) -> bool {
        match &self.0 {
            AuthMethod::Key(key) => key.is_emulator_key(),
            AuthMethod::ResourceToken(_) | AuthMethod::Tokens(_) => false,
        }
    }

    /// The Authorization header of one request. `link` is the resource link that is signed,
    /// `date` is the request's `x-ms-date` in lower case, and `scope` comes from
    /// [`scope_of`]. The call waits only when an access token must be fetched, at most until the
    /// deadline.
    pub(crate) async fn authorize(
        &self,
        method: &Method,
        (resource_type, link): (&str, &str),
        date: &HeaderValue,
        scope: &str,
        deadline: Instant,
    ) -> Result<HeaderValue, Error> {
        match &self.0 {
            AuthMethod::Key(key) => {
                let date = date.to_str().map_err(|_| Error::input("the date to sign is not ASCII"))?;
                Ok(key.authorization_header(method.as_str(), resource_type, link, date))
            }
            AuthMethod::ResourceToken(header) => Ok(header.clone()),
            AuthMethod::Tokens(cache) => header_before(cache, scope, deadline).await,
        }
    }

    /// Waits until there is an access token; for keys and resource tokens it does not wait.
    pub(crate) async fn wait_for_token(&self, scope: &str, deadline: Instant) -> Result<(), Error> {
        match &self.0 {
            AuthMethod::Tokens(cache) => header_before(cache, scope, deadline).await.map(drop),
            AuthMethod::Key(_) | AuthMethod::ResourceToken(_) => Ok(()),
        }
    }

    /// Discards the access token of a request that was sent at `sent_at` and that the
    /// service has refused (401): the token may have been revoked, or have expired by the
    /// service's clock. A token that was new at `sent_at` is kept. Returns whether a request
    /// with another token may succeed; always false for keys and resource tokens.
    pub(crate) fn discard_refused_token(&self, scope: &str, sent_at: Instant) -> bool {
        match &self.0 {
            AuthMethod::Tokens(cache) => cache.discard_refused(scope, sent_at),
            AuthMethod::Key(_) | AuthMethod::ResourceToken(_) => false,
        }
    }
}

/// The Authorization header with an access token. Fails at the deadline.
async fn header_before(cache: &TokenCache, scope: &str, deadline: Instant) -> Result<HeaderValue, Error> {
    timeout_at(deadline, cache.header(scope)).await.unwrap_or_else(|_| {
        let text = "the operation's time was up while it waited for an access token";
        Err(Error::new(ErrorKind::Timeout, text.to_owned()))
    })
}

/// The scope of tokens for an account: the option, or else the account's host
/// name, which is the same for every port and region.
pub(crate) fn scope_of(account: &Endpoint, option: Option<&str>) -> String {
    match option {
        Some(scope) => scope.to_owned(),
        None => format!("https://{}/.default", account.host()),
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            AuthMethod::Key(_) => "Credential(master key)",
            AuthMethod::ResourceToken(_) => "Credential(resource token)",
            AuthMethod::Tokens(_) => "Credential(token source)",
        })
    }
}
