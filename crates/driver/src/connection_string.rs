//! Connection strings, `AccountEndpoint=https://...;AccountKey=...;`, as the
//! portal shows them.
//!
//! As in Microsoft's clients, names may be in any case and order and have blanks
//! around them, parts may be empty, and unknown names are ignored. What always
//! holds: no error text contains a part of the connection string, because that part
//! may be the key.

#[cfg(test)]
mod tests;

use std::str::FromStr;

use perihelion_wire::transport::Endpoint;

use crate::credential::Credential;
use crate::error::Error;

/// A connection string that was parsed.
///
/// ```
/// use perihelion_driver::ConnectionString;
///
/// let local: ConnectionString = "AccountEndpoint=http://localhost:8081/;AccountKey=c2VjcmV0;".parse()?;
/// assert_eq!(local.endpoint.port(), 8081);
/// # Ok::<(), perihelion_driver::Error>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ConnectionString {
    /// The account's endpoint.
    pub endpoint: Endpoint,
    /// The account's key.
    pub credential: Credential,
    /// Whether any certificate of the server is accepted. Always false when the host is not
    /// loopback. For a loopback host, this is the value of
    /// `DisableServerCertificateValidation`. If the string does not have that name, this is
    /// true for the emulators' published key and false for other keys.
    pub accepts_any_certificate: bool,
}

impl ConnectionString {
    /// Parses a connection string.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let parts = Parts::split(text)?;
        let endpoint = parts.endpoint.ok_or_else(|| {
            Error::input("the connection string has no AccountEndpoint: write AccountEndpoint=https://...;")
        })?;
        let endpoint = Endpoint::parse(endpoint).map_err(|_| {
            Error::input(
                "the connection string's AccountEndpoint must read https://host:port/, without a path",
            )
        })?;
        let key = parts.key.ok_or_else(|| {
            Error::input("the connection string has no AccountKey: write AccountKey=<the account's key>;")
        })?;
        let credential = Credential::key(key).map_err(|_| {
            Error::input("the connection string's AccountKey must be standard base64 with padding")
        })?;
        let disables_validation = parts.disables_validation.map(parse_boolean).transpose()?;
        if disables_validation == Some(true) && endpoint.is_tls() && !endpoint.is_loopback() {
            return Err(Error::input(
                "DisableServerCertificateValidation is only for a server on this machine: leave it out, and \
                 install the other machine's certificate here",
            ));
        }
        let accepts_any_certificate =
            endpoint.is_loopback() && disables_validation.unwrap_or(credential.is_emulator());
        Ok(ConnectionString { endpoint, credential, accepts_any_certificate })
    }
}

impl FromStr for ConnectionString {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        ConnectionString::parse(text)
    }
}

/// The values of the known names, not parsed yet.
#[derive(Default)]
struct Parts<'a> {
    endpoint: Option<&'a str>,
    key: Option<&'a str>,
    /// `DisableServerCertificateValidation`.
    disables_validation: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Result<Self, Error> {
        let mut parts = Parts::default();
        for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            // The first '=' ends the name; a base64 key may end with further '='.
            let Some((name, value)) = part.split_once('=') else {
                return Err(Error::input(
                    "the connection string has a part that is not name=value: write \
                     AccountEndpoint=https://...;AccountKey=...;",
                ));
            };
            let (slot, name) = match name.trim() {
                name if name.eq_ignore_ascii_case("AccountEndpoint") => {
                    (&mut parts.endpoint, "AccountEndpoint")
                }
                name if name.eq_ignore_ascii_case("AccountKey") => (&mut parts.key, "AccountKey"),
                name if name.eq_ignore_ascii_case(DISABLE_VALIDATION) => {
                    (&mut parts.disables_validation, DISABLE_VALIDATION)
                }
                _ => continue,
            };
            if slot.replace(value.trim()).is_some() {
                return Err(Error::input(format!("the connection string has {name} twice")));
            }
        }
        Ok(parts)
    }
}

const DISABLE_VALIDATION: &str = "DisableServerCertificateValidation";

fn parse_boolean(text: &str) -> Result<bool, Error> {
    match text {
        text if text.eq_ignore_ascii_case("true") => Ok(true),
        text if text.eq_ignore_ascii_case("false") => Ok(false),
        _ => Err(Error::input(format!("{DISABLE_VALIDATION} must be true or false"))),
    }
}
