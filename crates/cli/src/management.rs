//! `Management`: signed requests to the management interface of a server.
//!
//! The interface answers unsigned requests only from the machine on which the server runs. A
//! signed request works from everywhere, also through the published port of a container.

use http::{Method, StatusCode};
use perihelion_wire::signature::MasterKey;
use perihelion_wire::transport::Endpoint;

use crate::account::{Account, RawConnection, RawFailure, RawRequest};
use crate::exit::Failure;

/// A server whose management interface is used.
pub(crate) struct Management {
    connection: RawConnection,
    /// The account, for messages.
    account_name: String,
}

impl Management {
    /// The server of an account. If the account has no key, requests are signed with the emulators'
    /// key.
    pub(crate) fn of(account: &Account) -> Result<Management, Failure> {
        Ok(Management {
            connection: RawConnection::to_management(account)?,
            account_name: account.display_name(),
        })
    }

    pub(crate) fn new(
        endpoint: Endpoint,
        key: MasterKey,
        account_name: String,
    ) -> Result<Management, Failure> {
        Ok(Management { connection: RawConnection::to_management_of(endpoint, key)?, account_name })
    }

    /// Sends a request and returns the body of its answer. `path` is the part after
    /// `/_perihelion/`.
    pub(crate) async fn send(&self, method: Method, path: &str, body: String) -> Result<String, Failure> {
        let path = format!("/_perihelion/{}", name_of(path));
        let request_text = format!("{method} {path} on {}", self.account_name);
        let request = RawRequest::management(method, &path, body);
        let response = self.connection.send(request).await.map_err(|failure| match failure {
            RawFailure::Path => {
                Failure::usage(format!("{path:?} is not a path"), "write it like regions/offline")
            }
            RawFailure::NoAnswer(_) => Failure::runtime(format!("{request_text}: {failure}"))
                .with_advice("check the endpoint, and that the server runs"),
        })?;
        let (status, body) = (response.status(), String::from_utf8_lossy(response.body()));
        let message = || format!("{request_text}: {status}: {body}");
        match status {
            _ if status.is_success() => Ok(body.into_owned()),
            StatusCode::UNAUTHORIZED => Err(Failure::runtime(message())
                .with_advice("check the key, and that this machine's clock is right")),
            StatusCode::NOT_FOUND => Err(Failure::not_found(message()).with_advice(
                "check the path; `perihelion server` has these requests only with --management",
            )),
            _ => Err(Failure::runtime(message())),
        }
    }
}

/// The name of a request: its path without `/_perihelion/`, which people may write or leave out.
pub(crate) fn name_of(path: &str) -> &str {
    let path = path.trim_matches('/');
    path.strip_prefix("_perihelion/").unwrap_or(path)
}
