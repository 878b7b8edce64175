//! `RawConnection`: sends single requests to the endpoint of an account, without the driver. It
//! does not retry, uses no other region, and returns every answer as it is.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderValue, Method};
use perihelion_driver::transport::{HttpOptions, HttpTransport};
use perihelion_wire::signature::{EMULATOR_KEY, MANAGEMENT_TYPE, MasterKey};
use perihelion_wire::transport::{self, Endpoint, Request, Response, Route, Transport};
use perihelion_wire::{date, headers};

use super::Account;
use super::words::in_own_words;
use crate::exit::Failure;

/// How long a request may take: the longest wait that the management interface offers is a minute.
const TIMEOUT: Duration = Duration::from_secs(90);

/// The version of the protocol that requests name.
const VERSION: HeaderValue = HeaderValue::from_static("2020-07-15");

/// The endpoint of an account, and how requests to it prove who sends them.
pub(crate) struct RawConnection {
    pub(crate) endpoint: Endpoint,
    proof: RawProof,
    transport: HttpTransport,
    timeout: Duration,
}

/// How requests prove who sends them.
pub(crate) enum RawProof {
    Key(MasterKey),
    /// The whole header with a token of Entra ID.
    Token(HeaderValue),
    None,
}

impl RawProof {
    /// The proof by a key in base64, or `RawProof::None` if there is no key.
    pub(crate) fn key(base64: Option<&str>) -> Result<RawProof, Failure> {
        let Some(base64) = base64 else { return Ok(RawProof::None) };
        let key = MasterKey::from_base64(base64);
        key.map(RawProof::Key).map_err(|error| Failure::usage(error, "check --key or COSMOS_KEY"))
    }
}

/// One request.
pub(crate) struct RawRequest<'a> {
    pub(crate) method: Method,
    /// The path. It begins with a slash.
    pub(crate) path: &'a str,
    /// The type and the link of the resource, which the key signs.
    pub(crate) signed: (&'a str, &'a str),
    pub(crate) body: String,
}

impl<'a> RawRequest<'a> {
    /// A request to the management interface.
    pub(crate) fn management(method: Method, path: &'a str, body: String) -> Self {
        RawRequest { method, path, signed: (MANAGEMENT_TYPE, path.trim_start_matches('/')), body }
    }
}

impl RawConnection {
    /// Prepares requests to an account. Nothing is sent yet.
    pub(crate) fn new(account: &Account, proof: RawProof, options: HttpOptions) -> Result<Self, Failure> {
        Self::to_endpoint(Self::endpoint_of(account)?, proof, options)
    }

    /// The endpoint of an account. A data directory has none.
    pub(crate) fn endpoint_of(account: &Account) -> Result<Endpoint, Failure> {
        let (endpoint, _) = account.endpoint_and_key().ok_or_else(|| {
            Failure::usage(
                "no server is named",
                "name one with --endpoint or COSMOS_ENDPOINT; --data has none",
            )
        })?;
        Endpoint::parse(endpoint).map_err(|_| {
            Failure::usage(
                format!("the endpoint of the account{} is not a URL", account.display_source()),
                "write it like http://127.0.0.1:8081/",
            )
        })
    }

    fn to_endpoint(endpoint: Endpoint, proof: RawProof, options: HttpOptions) -> Result<Self, Failure> {
        let transport = HttpTransport::new(options).map_err(Failure::runtime)?;
        Ok(RawConnection { endpoint, proof, transport, timeout: TIMEOUT })
    }

    /// This connection with another time limit for a request.
    pub(crate) fn with_timeout(self, timeout: Duration) -> Self {
        RawConnection { timeout, ..self }
    }

    /// A connection to the management interface of the server of an account. Without a key, requests
    /// are signed with the emulators' well-known key. The interface does not know Entra ID.
    pub(crate) fn to_management(account: &Account) -> Result<Self, Failure> {
        if account.is_entra() {
            return Err(Failure::usage(
                "the management interface of a server takes its key, and not Entra ID",
                "leave --entra and PERIHELION_ENTRA out; give --key-file if the server has a key of its own",
            ));
        }
        let key = account.endpoint_and_key().and_then(|(_, key)| key).unwrap_or(EMULATOR_KEY);
        Self::new(account, RawProof::key(Some(key))?, management_options(key == EMULATOR_KEY))
    }

    /// A connection to the management interface of the server at this endpoint.
    pub(crate) fn to_management_of(endpoint: Endpoint, key: MasterKey) -> Result<Self, Failure> {
        Self::to_endpoint(endpoint, RawProof::Key(key), management_options(false))
    }

    /// Sends a request. The answer may have any status.
    pub(crate) async fn send(&self, request: RawRequest<'_>) -> Result<Response, RawFailure> {
        let RawRequest { method, path, signed: (resource_type, link), body } = request;
        let target = path.parse().map_err(|_| RawFailure::Path)?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let date = date::format(now.as_secs()).to_ascii_lowercase();
        let mut map = HeaderMap::from_iter([(headers::VERSION, VERSION)]);
        let authorization = match &self.proof {
            RawProof::Key(key) => Some(key.authorization_header(method.as_str(), resource_type, link, &date)),
            RawProof::Token(header) => Some(header.clone()),
            RawProof::None => None,
        };
        map.extend(authorization.map(|value| (headers::AUTHORIZATION, value)));
        map.insert(headers::MS_DATE, HeaderValue::try_from(date).map_err(|_| RawFailure::Path)?);
        let deadline = (tokio::time::Instant::now() + self.timeout).into_std();
        let request = Request {
            endpoint: self.endpoint.clone(),
            method,
            target,
            headers: map,
            body: body.into(),
            deadline,
            route: Route::default(),
        };
        self.transport.send(request).await.map_err(RawFailure::NoAnswer)
    }
}

/// The options for the management interface. It is mostly on this machine, without TLS or with a
/// certificate of the server's own CA. For a server on another machine the rule of all commands holds:
/// only the emulators' key, which is published, is used without TLS.
fn management_options(is_emulator_key: bool) -> HttpOptions {
    HttpOptions::default()
        .with_allow_cleartext(is_emulator_key)
        .with_accept_unknown_loopback_certificates(true)
}

/// Why a request got no answer.
#[derive(Debug)]
pub(crate) enum RawFailure {
    /// The path of the request is not valid in a URL.
    Path,
    NoAnswer(transport::Failure),
}

impl std::fmt::Display for RawFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RawFailure::Path => f.write_str("the path is not valid in a URL"),
            RawFailure::NoAnswer(failure) => write!(f, "no answer: {}", in_own_words(&failure.to_string())),
        }
    }
}
