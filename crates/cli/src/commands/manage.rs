//! `perihelion manage`: sends one signed request to the management interface of a server.
//!
//! The interface answers unsigned requests only from the machine on which the server runs. A
//! signed request works from everywhere, also through the published port of a container.
//!
//! The file perihelion.toml is not read: a request may empty the server, and a file that came with
//! a cloned repository must not choose it.

use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use http::{HeaderMap, HeaderValue, Method};
use perihelion_driver::transport::{HttpOptions, HttpTransport};
use perihelion_wire::signature::{EMULATOR_KEY, MANAGEMENT_TYPE, MasterKey};
use perihelion_wire::transport::{Endpoint, Request, Response, Route, Transport};
use perihelion_wire::{date, headers};

use crate::account::{self, AccountArgs};
use crate::exit::{self, Failure};
use crate::process::{block_on, print};

/// How long a request may take: the longest wait that the interface offers is a minute.
const TIMEOUT: Duration = Duration::from_secs(90);

const EXAMPLES: &str = "\
Examples:
  perihelion manage GET counters
  perihelion manage POST faults '{\"operation\":\"create_item\",\"count\":3,\"status\":429}'
  COSMOS_ENDPOINT=http://db:8081 COSMOS_KEY=... perihelion manage POST reset

Without a key the request is signed with the emulators' well-known key.";

/// Send a signed request to the management interface of a server.
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}\n\n{}", account::HELP_WITHOUT_FILE, exit::HELP))]
pub(crate) struct ManageArgs {
    #[command(flatten)]
    account: AccountArgs,

    /// GET, POST or DELETE
    method: String,

    /// The path after /_perihelion/, such as counters or regions/offline
    path: String,

    /// The body, in JSON
    body: Option<String>,
}

pub(crate) fn run(typed: ManageArgs, _started_at: Instant) -> Result<(), Failure> {
    block_on(send_and_print(typed))
}

async fn send_and_print(typed: ManageArgs) -> Result<(), Failure> {
    let (request, shown) = signed_request(&typed)?;
    let options =
        HttpOptions::default().with_allow_cleartext(true).with_accept_unknown_loopback_certificates(true);
    let transport = HttpTransport::new(options).map_err(Failure::runtime)?;
    let response: Response = transport
        .send(request)
        .await
        .map_err(|failure| Failure::runtime(format!("{shown}: no answer: {failure}")))?;
    let (status, body) = (response.status(), String::from_utf8_lossy(response.body()));
    if !status.is_success() {
        return Err(Failure::runtime(format!("{shown}: {status}: {body}")));
    }
    print(&format!("{body}\n"))
}

/// The request, and how messages name it.
fn signed_request(typed: &ManageArgs) -> Result<(Request, String), Failure> {
    let account = typed.account.resolve_without_file()?;
    let (endpoint_text, key) = account.endpoint_and_key().ok_or_else(|| {
        Failure::usage("no server is named", "name one with --endpoint or COSMOS_ENDPOINT; --data has none")
    })?;
    let endpoint = Endpoint::parse(endpoint_text).map_err(|_| {
        Failure::usage(
            format!("the endpoint of the account{} is none", account.shown_source()),
            "write it like http://127.0.0.1:8081/",
        )
    })?;
    let key = MasterKey::from_base64(key.unwrap_or(EMULATOR_KEY))
        .map_err(|error| Failure::usage(error, "check --key or COSMOS_KEY"))?;
    let method = Method::from_bytes(typed.method.to_ascii_uppercase().as_bytes()).map_err(|_| {
        Failure::usage(format!("{:?} is not a method", typed.method), "write GET, POST or DELETE")
    })?;
    let path = typed.path.trim_matches('/');
    let path = format!("_perihelion/{}", path.strip_prefix("_perihelion/").unwrap_or(path));
    let target = format!("/{path}").parse().map_err(|_| {
        Failure::usage(format!("{:?} is not a path", typed.path), "write it like regions/offline")
    })?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let date = date::format(now.as_secs()).to_ascii_lowercase();
    let authorization = key.authorization_header(method.as_str(), MANAGEMENT_TYPE, &path, &date);
    let date = HeaderValue::from_str(&date).map_err(Failure::runtime)?;
    let headers = HeaderMap::from_iter([(headers::MS_DATE, date), (headers::AUTHORIZATION, authorization)]);
    let shown = format!("{method} /{path} on {}", account.shown());
    let body = typed.body.clone().unwrap_or_default().into();
    let deadline = (tokio::time::Instant::now() + TIMEOUT).into_std();
    Ok((Request { endpoint, method, target, headers, body, deadline, route: Route::default() }, shown))
}
