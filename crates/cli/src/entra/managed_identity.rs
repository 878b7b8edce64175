//! Managed identities: the platform on which a program runs gives tokens to it over HTTP.
//! `IdentityEndpoint` is the service of App Service and Container Apps, `Imds` the instance metadata
//! service of virtual machines.

use std::time::SystemTime;

use http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use perihelion_client::credential::AccessToken;
use perihelion_wire::transport::Endpoint;

use super::encode::form;
use super::send::{TokenRequest, Waits, send};
use super::{NoToken, TokenOrigin, resource_of, token_answer};
use crate::secret::Secret;

/// The address of the metadata service in every virtual machine of Azure.
const IMDS: &str = "http://169.254.169.254";

/// The identity service of App Service and Container Apps.
#[derive(Debug)]
pub(super) struct IdentityEndpoint {
    url: Uri,
    /// The value of `IDENTITY_HEADER`, by which the service recognises this program.
    header: Secret,
    /// The client id of a user-assigned identity; `None` for the system-assigned identity.
    client_id: Option<String>,
}

impl IdentityEndpoint {
    pub(super) fn new(url: &str, header: Secret, client_id: Option<String>) -> Result<Self, NoToken> {
        let parsed = url.parse::<Uri>().ok().filter(|url| url.scheme().is_some() && url.query().is_none());
        let url = parsed.ok_or_else(|| {
            let advice = "The platform sets it; unset it to use the virtual machine's identity or `az login`";
            NoToken::new(TokenOrigin::IdentityEndpoint, "IDENTITY_ENDPOINT is not a URL", advice)
        })?;
        Ok(IdentityEndpoint { url, header, client_id })
    }

    pub(super) async fn token(&self, scope: &str, now: SystemTime) -> Result<AccessToken, NoToken> {
        let failed = |why: String| {
            let advice =
                "Check that the app has a managed identity; AZURE_CLIENT_ID names a user-assigned one";
            NoToken::new(TokenOrigin::IdentityEndpoint, why, advice)
        };
        let query = query("2019-08-01", scope, self.client_id.as_deref());
        let header = HeaderValue::from_str(self.header.reveal());
        let mut header =
            header.map_err(|_| failed("IDENTITY_HEADER cannot be sent in a header".to_owned()))?;
        header.set_sensitive(true);
        let request = TokenRequest {
            method: Method::GET,
            url: format!("{}?{query}", self.url)
                .parse()
                .map_err(|_| failed("the URL is too long".to_owned()))?,
            header: (HeaderName::from_static("x-identity-header"), header),
            body: String::new(),
        };
        let answer = send(request, Waits::default()).await.map_err(failed)?;
        token_answer::read(&answer, now, &[self.header.reveal()]).map_err(failed)
    }
}

/// The instance metadata service.
#[derive(Debug)]
pub(super) struct Imds {
    endpoint: Endpoint,
    client_id: Option<String>,
}

impl Imds {
    /// The service at this address, or at the address that all virtual machines have.
    pub(super) fn new(address: Option<&str>, client_id: Option<String>) -> Result<Imds, NoToken> {
        let endpoint = Endpoint::parse(address.unwrap_or(IMDS)).map_err(|_| {
            let why = "AZURE_POD_IDENTITY_AUTHORITY_HOST is not a URL of a host";
            NoToken::new(TokenOrigin::Imds, why, format!("Write it like {IMDS}, or unset it"))
        })?;
        Ok(Imds { endpoint, client_id })
    }

    /// A token, or the reason why this machine has no identity. On a machine outside Azure, nothing
    /// answers at the address, or another service answers that does not know the path. In Azure, the
    /// metadata service answers 400 if the machine has no identity. If AZURE_CLIENT_ID names an
    /// identity, all these cases are failures, because with another identity the command would act as
    /// somebody else.
    pub(super) async fn token(
        &self,
        scope: &str,
        now: SystemTime,
    ) -> Result<Result<AccessToken, String>, NoToken> {
        let failed = |why: String| {
            let advice = "Try again; AZURE_CLIENT_ID names a user-assigned identity";
            NoToken::new(TokenOrigin::Imds, why, advice)
        };
        let query = query("2018-02-01", scope, self.client_id.as_deref());
        let target = format!("/metadata/identity/oauth2/token?{query}");
        let request = TokenRequest {
            method: Method::GET,
            url: self.endpoint.uri(target.parse().map_err(|_| failed("the URL is too long".to_owned()))?),
            header: (HeaderName::from_static("metadata"), HeaderValue::from_static("true")),
            body: String::new(),
        };
        let answer = match send(request, Waits::imds()).await {
            Ok(answer) => answer,
            Err(why) => return self.absent(why),
        };
        match token_answer::read(&answer, now, &[]) {
            Ok(token) => Ok(Ok(token)),
            Err(why) if means_absent(answer.status) => self.absent(why),
            Err(why) => Err(failed(why)),
        }
    }

    /// The outcome if this machine has no identity, or not the one that AZURE_CLIENT_ID names.
    fn absent<T>(&self, why: String) -> Result<Result<T, String>, NoToken> {
        if self.client_id.is_none() {
            return Ok(Err(why));
        }
        let advice = "Check AZURE_CLIENT_ID, which names an identity that this machine does not have, \
                      or unset it to use `az login`";
        Err(NoToken::new(TokenOrigin::Imds, why, advice))
    }
}

/// Whether an answer says that there is no identity, or comes from another service. The metadata service
/// answers 410 while it is updated, and 429 to too many requests; later requests succeed.
fn means_absent(status: StatusCode) -> bool {
    let is_busy = matches!(status, StatusCode::GONE | StatusCode::TOO_MANY_REQUESTS);
    status.is_client_error() && !is_busy
}

fn query(version: &str, scope: &str, client_id: Option<&str>) -> String {
    let mut pairs = vec![("api-version", version), ("resource", resource_of(scope))];
    pairs.extend(client_id.map(|id| ("client_id", id)));
    form(&pairs)
}
