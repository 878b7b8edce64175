//! `Authenticator`: checks the signature of a request against the master keys. The
//! signature is checked over the same parsed path that the request is routed by. A resource
//! token is checked here too; what it permits is decided in `routes::permissions`.
//!
//! A request is refused unless a rule accepts it. The paths in
//! `management::answer_unsigned` are answered before authentication. A refusal never says
//! which signature would have been right.

use http::{HeaderMap, Method};
use perihelion_engine::Refusal;
use perihelion_wire::path::Resource;
use perihelion_wire::signature::{Credentials, MasterKey, SignedDate, SignedRequest};
use perihelion_wire::{date, headers, status};

use crate::options::AuthMode;
use crate::resource_token::ResourceToken;

/// The largest difference, in seconds, between the signed date and the server's clock.
const SKEW_SECONDS_MAX: u64 = 15 * 60;

const HEADER_MISSING: &str =
    "Required Header authorization is missing. Ensure a valid Authorization token is passed.";
const WRONG_SIGNATURE: &str = "The input authorization token can't serve the request. The wrong key is being used or the expected payload is not built as per the protocol. For more info: https://aka.ms/cosmosdb-tsg-unauthorized.";

/// What the sender of an accepted request may do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// The sender may do everything.
    Account,
    /// The sender may do what the permission with this `_rid` allows.
    Permission(String),
}

/// Decides which requests are accepted.
pub(crate) struct Authenticator {
    pub(crate) mode: AuthMode,
    pub(crate) keys: Vec<MasterKey>,
    /// `GET /` without an authorization header is accepted.
    pub(crate) allows_unsigned_account_read: bool,
}

impl Authenticator {
    /// Accepts a request, or refuses it with 401, or with 403 when the signed date is too
    /// far from `now_seconds` (since 1970) or a resource token has expired. `path` is the path as
    /// it was sent.
    pub(crate) fn check(
        &self,
        method: &Method,
        path: &str,
        resource: &Resource,
        map: &HeaderMap,
        now_seconds: u64,
    ) -> Result<Access, Refusal> {
        let is_allowed_unsigned =
            self.allows_unsigned_account_read && *resource == Resource::Account && method == Method::GET;
        let is_signed = map.contains_key(headers::AUTHORIZATION);
        if self.mode == AuthMode::Off || (is_allowed_unsigned && !is_signed) {
            return Ok(Access::Account);
        }
        match credentials(map)? {
            Credentials::MasterKey { signature } => {
                let date = signed_date(map, now_seconds)?;
                let request = SignedRequest { verb: method.as_str(), path, resource, date };
                self.check_keys(|key| key.verify(&request, &signature))?;
                Ok(Access::Account)
            }
            Credentials::EntraId(_) if self.mode == AuthMode::Any => Ok(Access::Account),
            Credentials::EntraId(_) => Err(Refusal::gateway(
                status::UNAUTHORIZED,
                "Entra ID tokens are not checked by this server. Start it with --auth any to accept any of them.",
            )),
            Credentials::ResourceToken(text) => self.check_token(&text, now_seconds),
        }
    }

    /// Accepts a resource token that one of the keys signed and that has not expired.
    fn check_token(&self, text: &str, now_seconds: u64) -> Result<Access, Refusal> {
        let wrong = || Refusal::gateway(status::UNAUTHORIZED, WRONG_SIGNATURE);
        let token = ResourceToken::parse(text).ok_or_else(wrong)?;
        self.check_keys(|key| token.is_signed_with(key))?;
        if token.expires_at <= now_seconds {
            return Err(Refusal::gateway(
                status::FORBIDDEN,
                "The authorization token is not valid at the current time: it has expired. Read its permission again to get another.",
            ));
        }
        Ok(Access::Permission(token.permission))
    }

    /// The token of a permission, signed with the first key; `None` if there is no key.
    pub(crate) fn token(&self, permission: &str, expires_at: u64) -> Option<String> {
        self.keys.first().map(|key| ResourceToken::print(permission, expires_at, key))
    }

    /// Accepts a management request that is signed with the account's key. The mode of `--auth`
    /// changes nothing here: a weak mode gives everyone access to the data, not to the management
    /// interface.
    pub(crate) fn check_management(
        &self,
        method: &Method,
        path: &str,
        map: &HeaderMap,
        now_seconds: u64,
    ) -> Result<(), Refusal> {
        let Credentials::MasterKey { signature } = credentials(map)? else {
            return Err(Refusal::gateway(status::UNAUTHORIZED, WRONG_SIGNATURE));
        };
        let date = signed_date(map, now_seconds)?;
        self.check_keys(|key| key.verify_management(method.as_str(), path, date, &signature))
    }

    /// Accepts when a key matches. Every key is tried, so that the time of the answer does
    /// not tell which key matched.
    fn check_keys(&self, is_signed_with: impl Fn(&MasterKey) -> bool) -> Result<(), Refusal> {
        if self.keys.iter().fold(false, |any, key| is_signed_with(key) | any) {
            Ok(())
        } else {
            Err(Refusal::gateway(status::UNAUTHORIZED, WRONG_SIGNATURE))
        }
    }
}

/// The credentials in the request's one authorization header.
fn credentials(map: &HeaderMap) -> Result<Credentials, Refusal> {
    let mut values = map.get_all(headers::AUTHORIZATION).iter();
    let (first, second) = (values.next(), values.next());
    let Some(header) = first.and_then(|value| value.to_str().ok()) else {
        return Err(Refusal::gateway(status::UNAUTHORIZED, HEADER_MISSING));
    };
    if second.is_some() {
        return Err(Refusal::gateway(status::UNAUTHORIZED, WRONG_SIGNATURE));
    }
    Credentials::parse(header).map_err(|error| Refusal::gateway(status::UNAUTHORIZED, error.to_string()))
}

/// The date that the signature covers: `x-ms-date`, or `Date` when there is no
/// `x-ms-date`. A date that is too far from `now_seconds` is refused.
fn signed_date(map: &HeaderMap, now_seconds: u64) -> Result<SignedDate<'_>, Refusal> {
    let text = |name| map.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
    let (date, value) = match (text(headers::MS_DATE), text(headers::DATE)) {
        (Some(value), _) => (SignedDate::MsDate(value), value),
        (None, Some(value)) => (SignedDate::HttpDate(value), value),
        (None, None) => {
            return Err(Refusal::gateway(
                status::UNAUTHORIZED,
                "The request has neither an x-ms-date nor a Date header.",
            ));
        }
    };
    let Some(seconds) = date::parse(value) else {
        return Err(Refusal::gateway(
            status::UNAUTHORIZED,
            "The input date header is invalid format. Please pass in RFC 1123 style date format.",
        ));
    };
    if seconds.abs_diff(now_seconds) > SKEW_SECONDS_MAX {
        return Err(Refusal::gateway(
            status::FORBIDDEN,
            "The authorization token is not valid at the current time: its date is more than 15 minutes off. Check the clocks of client and server.",
        ));
    }
    Ok(date)
}
