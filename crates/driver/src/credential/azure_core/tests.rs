//! Tokens of an `azure_core` credential: how they are cached, and the text of its errors.

use std::pin::Pin;
use std::sync::Mutex;

use ::azure_core::credentials::{AccessToken as AzureToken, TokenRequestOptions};
use ::azure_core::error::{Error as AzureError, ErrorKind as AzureErrorKind};
use ::azure_core::time::OffsetDateTime;
use http::{HeaderValue, Method};
use tokio::time::Instant;

use super::*;
use crate::error::ErrorKind;

/// An identity that records its calls. The signature is the one that `async_trait`
/// generates.
#[derive(Debug, Default)]
struct Identity {
    is_signed_out: bool,
    asked_scopes: Mutex<Vec<String>>,
}

impl TokenCredential for Identity {
    fn get_token<'life0, 'life1, 'life2, 'life3, 'out>(
        &'life0 self,
        scopes: &'life1 [&'life2 str],
        _: Option<TokenRequestOptions<'life3>>,
    ) -> Pin<Box<dyn Future<Output = ::azure_core::Result<AzureToken>> + Send + 'out>>
    where
        'life0: 'out,
        'life1: 'out,
        'life2: 'out,
        'life3: 'out,
        Self: 'out,
    {
        self.asked_scopes.lock().unwrap().extend(scopes.iter().map(|scope| (*scope).to_owned()));
        let outcome = match self.is_signed_out {
            true => Err(AzureError::with_message(AzureErrorKind::Credential, "run `az login`")),
            false => {
                Ok(AzureToken::new("header.body.sign", OffsetDateTime::now_utc() + Duration::from_secs(3600)))
            }
        };
        Box::pin(std::future::ready(outcome))
    }
}

async fn authorize(credential: &Credential) -> Result<HeaderValue, Error> {
    let date = HeaderValue::from_static("thu, 27 apr 2017 00:51:12 gmt");
    let deadline = Instant::now() + Duration::from_secs(60);
    credential.authorize(&Method::GET, ("docs", ""), &date, "https://shop/.default", deadline).await
}

#[tokio::test]
async fn a_token_of_azure_core_is_fetched_once_and_cached() {
    let identity = Arc::new(Identity::default());
    let credential = Credential::azure(identity.clone());
    for _ in 0..3 {
        let header = authorize(&credential).await.unwrap();
        assert_eq!(header, "type%3Daad%26ver%3D1.0%26sig%3Dheader.body.sign");
        assert!(header.is_sensitive());
    }
    assert_eq!(*identity.asked_scopes.lock().unwrap(), ["https://shop/.default"]);
}

#[tokio::test]
async fn an_error_of_azure_core_says_what_to_do() {
    let identity = Identity { is_signed_out: true, ..Identity::default() };
    let error = authorize(&Credential::azure(Arc::new(identity))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Credential);
    assert!(
        error.message().contains("https://shop/.default") && error.message().contains("az login"),
        "{error}"
    );
}
