//! `Entra`: access tokens of Entra ID for `--entra`, without a library of Azure.
//!
//! The environment decides which identity is used. `environment` reads it into a `Plan`:
//! 1. an application with a client secret (`AZURE_CLIENT_SECRET`),
//! 2. an application with a federated token, called workload identity
//!    (`AZURE_FEDERATED_TOKEN_FILE`); `client_grant` sends the request of both,
//! 3. the managed identity of App Service and Container Apps (`IDENTITY_ENDPOINT`),
//! 4. the managed identity of a virtual machine, and if this machine has none, the user of the
//!    Azure CLI (`az login`).
//!
//! An identity that the environment names is used alone. If it gets no token, no other identity is
//! tried, because the command would then run as somebody else.
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
}

/// A token and the place that it came from.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) token: AccessToken,
    pub(crate) origin: Origin,
}

/// The place that a token comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    ClientSecret,
    WorkloadIdentity,
    /// The managed identity of App Service, Container Apps and similar.
    IdentityEndpoint,
    /// The managed identity of a virtual machine.
    Imds,
    AzureCli,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Origin::ClientSecret => "the client secret (AZURE_CLIENT_SECRET)",
            Origin::WorkloadIdentity => "workload identity (AZURE_FEDERATED_TOKEN_FILE)",
            Origin::IdentityEndpoint => "managed identity (IDENTITY_ENDPOINT)",
            Origin::Imds => "managed identity (169.254.169.254)",
            Origin::AzureCli => "the Azure CLI (az)",
        })
    }
}

impl Entra {
    /// The identity of this process's environment.
    pub(crate) fn of_process() -> Entra {
        let variable = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        Entra { environment: Environment::read(&variable) }
    }

    /// Asks for a token for the scope.
    pub(crate) async fn grant(&self, scope: &str) -> Result<Granted, NoToken> {
        let now = SystemTime::now();
        let (origin, token) = match self.environment.plan()? {
            Plan::ClientGrant(grant) => (grant.origin(), grant.token(scope, now).await?),
            Plan::IdentityEndpoint(endpoint) => (Origin::IdentityEndpoint, endpoint.token(scope, now).await?),
            Plan::Search(imds) => self.search(imds, scope, now).await?,
        };
        Ok(Granted { token, origin })
    }

    /// Asks the virtual machine, and if it has no identity, the Azure CLI.
    async fn search(
        &self,
        imds: Imds,
        scope: &str,
        now: SystemTime,
    ) -> Result<(Origin, AccessToken), NoToken> {
        match imds.token(scope, now).await? {
            Ok(token) => Ok((Origin::Imds, token)),
            Err(why_no_identity) => {
                let token = AzureCli::default().token(scope, self.environment.tenant(), now).await;
                let token = token.map_err(|failure| failure.after(Origin::Imds, &why_no_identity))?;
                Ok((Origin::AzureCli, token))
            }
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
