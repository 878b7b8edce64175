//! `Environment`: the variables that describe an identity of Entra ID, with the names that Azure's SDKs
//! have. `plan` decides which identity they mean; it is a pure function.

use std::path::PathBuf;

use super::client_grant::{Authority, ClientGrant, Proof};
use super::managed_identity::{IdentityEndpoint, Imds};
use super::{NoToken, TokenOrigin};
use crate::secret::Secret;

/// The variables that describe an identity. An empty variable counts as not set.
#[derive(Debug)]
pub(super) struct Environment {
    authority: Option<String>,
    tenant: Option<String>,
    client_id: Option<String>,
    secret: Option<Secret>,
    federated_token_file: Option<PathBuf>,
    identity_endpoint: Option<String>,
    identity_header: Option<Secret>,
    /// The address of the instance metadata service, if it is not the usual one.
    imds: Option<String>,
}

/// Where tokens come from.
#[derive(Debug)]
pub(super) enum Plan {
    ClientGrant(ClientGrant),
    IdentityEndpoint(IdentityEndpoint),
    /// The environment names no identity: the virtual machine is asked, then the Azure CLI.
    Search(Imds),
}

impl Environment {
    pub(super) fn read(variable: &dyn Fn(&str) -> Option<String>) -> Environment {
        let variable = |name: &str| {
            let text = variable(name)?.trim().to_owned();
            (!text.is_empty()).then_some(text)
        };
        Environment {
            authority: variable("AZURE_AUTHORITY_HOST"),
            tenant: variable("AZURE_TENANT_ID"),
            client_id: variable("AZURE_CLIENT_ID"),
            secret: variable("AZURE_CLIENT_SECRET").map(Secret::new),
            federated_token_file: variable("AZURE_FEDERATED_TOKEN_FILE").map(PathBuf::from),
            identity_endpoint: variable("IDENTITY_ENDPOINT"),
            identity_header: variable("IDENTITY_HEADER").map(Secret::new),
            imds: variable("AZURE_POD_IDENTITY_AUTHORITY_HOST"),
        }
    }

    /// The tenant that the Azure CLI is asked for; `None` for the tenant of its login.
    pub(super) fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    /// Decides where tokens come from.
    pub(super) fn plan(&self) -> Result<Plan, NoToken> {
        if let Some(secret) = &self.secret {
            return self.client_grant(TokenOrigin::ClientSecret, Proof::Secret(secret.clone()));
        }
        if let Some(path) = &self.federated_token_file {
            return self.client_grant(TokenOrigin::WorkloadIdentity, Proof::FederatedTokenFile(path.clone()));
        }
        if let Some(url) = &self.identity_endpoint {
            let header = self.identity_header.clone().ok_or_else(|| {
                NoToken::new(
                    TokenOrigin::IdentityEndpoint,
                    "IDENTITY_HEADER is not set",
                    "Set it too; Azure Arc, which has no such variable, is not supported",
                )
            })?;
            return IdentityEndpoint::new(url, header, self.client_id.clone()).map(Plan::IdentityEndpoint);
        }
        Imds::new(self.imds.as_deref(), self.client_id.clone()).map(Plan::Search)
    }

    fn client_grant(&self, origin: TokenOrigin, proof: Proof) -> Result<Plan, NoToken> {
        let needed = |name: &str, value: &Option<String>| {
            let missing = || NoToken::new(origin, format!("{name} is not set"), format!("Set {name} too"));
            value.clone().ok_or_else(missing)
        };
        let tenant = needed("AZURE_TENANT_ID", &self.tenant)?;
        let client_id = needed("AZURE_CLIENT_ID", &self.client_id)?;
        let authority = Authority::new(origin, self.authority.as_deref(), &tenant)?;
        Ok(Plan::ClientGrant(ClientGrant { authority, client_id, proof }))
    }
}
