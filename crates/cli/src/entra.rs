//! `Entra`: access tokens of Entra ID for `--entra`, without a library of Azure.
//!
//! The environment decides which identity is used. `environment` reads it into a `Plan`:
//! 1. an application with a client secret (`AZURE_CLIENT_SECRET`),
//! 2. an application with a federated token, called workload identity
//!    (`AZURE_FEDERATED_TOKEN_FILE`); `client_grant` sends the request of both,
//! 3. the managed identity of App Service and Container Apps (`IDENTITY_ENDPOINT`),
//! 4. the managed identity of a virtual machine, and if this machine has none and `AZURE_CLIENT_ID`
//!    is not set, the user of the Azure CLI (`az login`).
//!
//! An identity that the environment names is used alone. If it gets no token, no other identity is
//! tried, because the command would then run as somebody else. For the same reason the search of step 4
//! ends with the first token that it finds: all later tokens come from the same place.
//!
//! What always holds: every wait is bounded, and no token, client secret or identity header is in an
//! error, a log, a `Debug` text or a URL. A token is made for the host of the account, so another
//! host cannot use a token that it was sent.

mod azure_cli;
mod client_grant;
mod encode;
mod environment;
mod managed_identity;
mod no_token;
mod send;
mod token_answer;

use std::sync::OnceLock;
use std::time::SystemTime;

use http::HeaderValue;
use perihelion_client::Error;
use perihelion_client::credential::{AccessToken, TokenFuture, TokenSource};
use perihelion_wire::transport::Endpoint;

pub(crate) use no_token::NoToken;

use self::azure_cli::AzureCli;
use self::encode::encoded;
use self::environment::{Environment, Plan};
use self::managed_identity::Imds;
use crate::secret::Secret;

/// A source of tokens for the identity of the environment.
#[derive(Debug)]
pub(crate) struct Entra {
    environment: Environment,
    azure_cli: AzureCli,
    /// Where the search found the first token. Later tokens come from there alone.
    found: OnceLock<SearchedOrigin>,
}

/// A token and the place that it came from.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) token: AccessToken,
    pub(crate) origin: TokenOrigin,
}

/// The places that a search asks, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SearchedOrigin {
    Imds,
    AzureCli,
}

/// The place that a token comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenOrigin {
    ClientSecret,
    WorkloadIdentity,
    /// The managed identity of App Service, Container Apps and similar.
    IdentityEndpoint,
    /// The managed identity of a virtual machine.
    Imds,
    AzureCli,
}

impl std::fmt::Display for TokenOrigin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            TokenOrigin::ClientSecret => "the client secret (AZURE_CLIENT_SECRET)",
            TokenOrigin::WorkloadIdentity => "workload identity (AZURE_FEDERATED_TOKEN_FILE)",
            TokenOrigin::IdentityEndpoint => "managed identity (IDENTITY_ENDPOINT)",
            TokenOrigin::Imds => "managed identity (169.254.169.254)",
            TokenOrigin::AzureCli => "the Azure CLI (az)",
        })
    }
}

impl Entra {
    /// The identity of this process's environment.
    pub(crate) fn of_process() -> Entra {
        let variable = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        Entra::new(Environment::read(&variable), AzureCli::default())
    }

    fn new(environment: Environment, azure_cli: AzureCli) -> Entra {
        Entra { environment, azure_cli, found: OnceLock::new() }
    }

    /// Asks for a token for the scope.
    pub(crate) async fn grant(&self, scope: &str) -> Result<Granted, NoToken> {
        let now = SystemTime::now();
        let (origin, token) = match self.environment.plan()? {
            Plan::ClientGrant(grant) => (grant.origin(), grant.token(scope, now).await?),
            Plan::IdentityEndpoint(endpoint) => {
                (TokenOrigin::IdentityEndpoint, endpoint.token(scope, now).await?)
            }
            Plan::Search(imds) => self.search_once(&imds, scope, now).await?,
        };
        Ok(Granted { token, origin })
    }

    /// The token of the virtual machine or of the Azure CLI. The first of them that gives a token is
    /// the only one that is asked from then on.
    async fn search_once(
        &self,
        imds: &Imds,
        scope: &str,
        now: SystemTime,
    ) -> Result<(TokenOrigin, AccessToken), NoToken> {
        if let Some(found) = self.found.get() {
            return self.ask_again(*found, imds, scope, now).await;
        }
        let (searched, token) = self.search(imds, scope, now).await?;
        // Two searches may run at the same time, for two scopes. The first that ends decides.
        let found = *self.found.get_or_init(|| searched);
        match found == searched {
            true => Ok((found.into(), token)),
            false => self.ask_again(found, imds, scope, now).await,
        }
    }

    /// Asks the virtual machine, and if it has no identity, the Azure CLI.
    async fn search(
        &self,
        imds: &Imds,
        scope: &str,
        now: SystemTime,
    ) -> Result<(SearchedOrigin, AccessToken), NoToken> {
        match imds.token(scope, now).await? {
            Ok(token) => Ok((SearchedOrigin::Imds, token)),
            Err(why_no_identity) => {
                let token = self.ask_azure_cli(scope, now).await;
                let token = token.map_err(|failure| failure.after(TokenOrigin::Imds, &why_no_identity))?;
                Ok((SearchedOrigin::AzureCli, token))
            }
        }
    }

    /// Asks the place that gave the first token.
    async fn ask_again(
        &self,
        found: SearchedOrigin,
        imds: &Imds,
        scope: &str,
        now: SystemTime,
    ) -> Result<(TokenOrigin, AccessToken), NoToken> {
        let token = match found {
            SearchedOrigin::AzureCli => self.ask_azure_cli(scope, now).await?,
            SearchedOrigin::Imds => imds.token(scope, now).await?.map_err(|why| {
                let why = format!("{why}; the first token came from there, and no other identity is tried");
                NoToken::new(TokenOrigin::Imds, why, "Try again, or start the command again")
            })?,
        };
        Ok((found.into(), token))
    }

    async fn ask_azure_cli(&self, scope: &str, now: SystemTime) -> Result<AccessToken, NoToken> {
        self.azure_cli.token(scope, self.environment.tenant(), now).await
    }
}

impl From<SearchedOrigin> for TokenOrigin {
    fn from(searched: SearchedOrigin) -> TokenOrigin {
        match searched {
            SearchedOrigin::Imds => TokenOrigin::Imds,
            SearchedOrigin::AzureCli => TokenOrigin::AzureCli,
        }
    }
}

impl TokenSource for Entra {
    fn token<'a>(&'a self, scope: &'a str) -> TokenFuture<'a> {
        Box::pin(async move {
            let granted = self.grant(scope).await;
            granted.map(|granted| granted.token).map_err(|failure| Error::credential(failure.to_string()))
        })
    }
}

impl Granted {
    /// The value of the header Authorization; `None` if the token cannot be in a header.
    pub(crate) fn authorization(&self) -> Option<HeaderValue> {
        let text =
            Secret::new(format!("type%3Daad%26ver%3D1.0%26sig%3D{}", encoded(self.token.secret.reveal())));
        let mut header = HeaderValue::from_str(text.reveal()).ok()?;
        header.set_sensitive(true);
        Some(header)
    }
}

/// The scope of the tokens for an account. The driver asks for the same scope.
pub(crate) fn scope_of(account: &Endpoint) -> String {
    format!("https://{}/.default", account.host())
}

/// The resource of a scope. Managed identities are asked for a resource.
fn resource_of(scope: &str) -> &str {
    scope.strip_suffix("/.default").unwrap_or(scope)
}

#[cfg(test)]
mod tests;
