//! Credentials of Azure's SDK: any credential of `azure_identity` can be used as a
//! token source. Needs the feature `azure-core`, because the crate `azure_core` has
//! many dependencies.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use ::azure_core::credentials::TokenCredential;

use super::{AccessToken, Credential, TokenFuture, TokenSource};
use crate::error::Error;

impl Credential {
    /// Entra ID authentication with a credential of `azure_core` or `azure_identity`.
    pub fn azure(credential: Arc<dyn TokenCredential>) -> Self {
        Credential::token_source(Arc::new(AzureTokenSource(credential)))
    }
}

/// An Azure credential as a token source.
struct AzureTokenSource(Arc<dyn TokenCredential>);

impl TokenSource for AzureTokenSource {
    fn token<'a>(&'a self, scope: &'a str) -> TokenFuture<'a> {
        Box::pin(async move {
            let token = self.0.get_token(&[scope], None).await.map_err(|error| {
                Error::credential(format!("the Azure credential gave no token for {scope}: {error}"))
            })?;
            let seconds = u64::try_from(token.expires_on.unix_timestamp()).unwrap_or(0);
            Ok(AccessToken::new(token.token.secret(), UNIX_EPOCH + Duration::from_secs(seconds)))
        })
    }
}
