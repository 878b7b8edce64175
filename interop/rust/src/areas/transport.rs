//! The transport: HTTP/2 in clear and over TLS, certificates, keys, Cosmos
//! binary JSON bodies, and many requests at once.

use std::process::{ExitCode, Stdio};

use azure_data_cosmos::FeedScope;
use azure_data_cosmos::options::ServerCertificateValidation;
use serde_json::Value;
use tokio::process::Command;

use crate::TRUST_PROBE;
use crate::check::{Outcome, Problem, checks, code, holds, refused, same};
use crate::query::query_all;
use crate::relay::Relay;
use crate::world::{Connect, Item, Scheme, World, item, name_of};

checks![
    requests_go_over_http_2,
    in_clear_the_sdk_speaks_http_2_and_sends_binary_json,
    the_certificate_is_verified_by_our_ca,
    the_certificate_is_refused_without_our_ca,
    a_wrong_key_is_refused,
    many_requests_at_once_are_all_answered,
];

/// The first byte of a Cosmos binary JSON body.
const BINARY_JSON_OPENING: u8 = 0x80;

async fn requests_go_over_http_2(world: &World) -> Outcome {
    let container = world.container().await?;
    let created = container.create_item("a", "1", item("a", "1", 1), None).await?;
    let diagnostics = created.diagnostics();
    let requests = diagnostics.requests();
    holds!(!requests.is_empty());
    holds!(requests.iter().all(|request| request.transport_http_version().is_http2()));
    let scheme = match world.scheme() {
        Scheme::Http => "http://",
        Scheme::Https => "https://",
    };
    holds!(
        requests.iter().all(|request| request.endpoint().starts_with(scheme)),
        "{}",
        requests[0].endpoint()
    );
    Ok(())
}

async fn in_clear_the_sdk_speaks_http_2_and_sends_binary_json(world: &World) -> Outcome {
    let container = world.container().await?;
    let relay = Relay::start(world.port()).await?;
    let client = Connect::to(Scheme::Http, relay.port()).client().await?;
    let through_relay =
        client.database_client("interop").container_client(name_of(&container).await?, None).await?;
    through_relay.create_item("a", "1", item("a", "1", 1), None).await?;
    through_relay.replace_item("a", "1", item("a", "1", 2), None).await?;
    through_relay.upsert_item("a", "1", item("a", "1", 3), None).await?;
    let recorded = relay.recorded();
    holds!(recorded.http2_connections > 0 && recorded.other_connections == 0, "{recorded:?}");
    same!(recorded.first_body_bytes, [BINARY_JSON_OPENING; 3]);
    let read: Item = through_relay.read_item("a", "1", None).await?.into_model()?;
    same!(read, item("a", "1", 3));
    Ok(())
}

/// Runs this program once more, as a client that verifies certificates. Returns whether that
/// client could read from the server.
async fn is_trusted(world: &World, ca: Option<std::path::PathBuf>) -> Result<bool, Problem> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(TRUST_PROBE).arg(format!("https://localhost:{}/", world.port()));
    if let Some(ca) = ca {
        command.env("SSL_CERT_FILE", ca);
    }
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().await?;
    Ok(status.success())
}

/// The child process. It succeeds if its client can read a database of the account.
pub(crate) async fn trust_probe(endpoint: &str) -> ExitCode {
    let connected =
        Connect::to_endpoint(endpoint).with_validation(ServerCertificateValidation::Required).client().await;
    let answered = match connected {
        Ok(client) => client.database_client("interop").read(None).await.map(|_| ()),
        Err(error) => Err(error),
    };
    match answered {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn the_certificate_is_verified_by_our_ca(world: &World) -> Outcome {
    let ca = perihelion_interop_common::ca_file().await?;
    holds!(ca.is_file(), "{} is not a file", ca.display());
    holds!(is_trusted(world, Some(ca)).await?);
    Ok(())
}

async fn the_certificate_is_refused_without_our_ca(world: &World) -> Outcome {
    holds!(!is_trusted(world, None).await?);
    Ok(())
}

async fn a_wrong_key_is_refused(world: &World) -> Outcome {
    let wrong = "bm90IHRoZSBrZXkgdGhhdCB5b3UgYXJlIGxvb2tpbmcgZm9yLCB0aGlzIG9uZSBpcyB3cm9uZyE=";
    let answer = async {
        let client = Connect::to(world.scheme(), world.port()).with_key(wrong).client().await?;
        client.database_client("interop").read(None).await
    };
    same!(refused(answer.await)?, 401);
    Ok(())
}

async fn many_requests_at_once_are_all_answered(world: &World) -> Outcome {
    let container = world.container().await?;
    let create = |value: i64| {
        let container = container.clone();
        async move {
            let item = item(&format!("k{}", value % 10), &format!("i{value}"), value);
            container.create_item(item.pk.clone(), &item.id, &item, None).await
        }
    };
    let answers = futures::future::join_all((0..200).map(create)).await;
    for answer in answers {
        same!(code(answer?.status()), 201);
    }
    let all: Vec<Value> = query_all(&container, FeedScope::full_container(), "SELECT c.id FROM c").await?;
    same!(all.len(), 200);
    Ok(())
}
