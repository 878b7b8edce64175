//! Tests SIGKILL of a server with several regions: every write that a region
//! acknowledged before the kill is in all regions after the next start, and all
//! regions have the same documents.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use perihelion_model::json::{Value, object, parse_str};
use perihelion_testkit::Random;
use perihelion_testkit::ScratchDirectory;
use perihelion_testkit::http_client::{HttpClient, HttpRequest, HttpResponse};

use super::{kill, setting};
use crate::program::{RunningServer, command};

const REGIONS: [&str; 3] = ["West US", "East US", "North Europe"];

/// Clients in each region.
const CLIENTS_PER_REGION: usize = 3;

/// The longest run under load.
const RUN_MAX: Duration = Duration::from_millis(400);

/// Starts a server with three regions that all take writes. Replication is slow, so
/// that the kill comes while writes are being replicated.
fn start(scratch: &ScratchDirectory) -> (RunningServer, Vec<SocketAddr>) {
    let data = scratch.path().join("data").display().to_string();
    let list = REGIONS.join(",");
    let arguments = ["server", "--port", "0", "--data", &data, "--regions", &list, "--multi-write"];
    let mut command = command(scratch, &arguments);
    command.args(["--replication-delay", "20ms", "--management", "--log", "error"]);
    let server = RunningServer::start(&mut command);
    let banner = server.banner();
    let address = |name: &&str| {
        let rest = banner.split_once(&format!("{name}: http://")).expect("a region in the banner").1;
        rest.split('/').next().and_then(|address| address.parse().ok()).expect("an address")
    };
    let addresses = REGIONS.iter().map(address).collect();
    (server, addresses)
}

/// Sends a request that must be answered with `status`.
async fn send(client: &HttpClient, call: HttpRequest, status: u16) -> HttpResponse {
    let answer = client.send(&call).await.expect("an answer");
    assert_eq!(answer.status, status, "{call:?}: {}", answer.text());
    answer
}

fn docs(method: &str) -> HttpRequest {
    let call = HttpRequest::new(method, "/dbs/d/colls/c/docs").header("x-ms-version", "2020-07-15");
    call.header("x-ms-cosmos-allow-tentative-writes", "true")
}

/// Creates documents in five partitions until the server is killed. Returns the ids of the
/// acknowledged documents.
async fn write_until_the_end(address: SocketAddr, name: String) -> Vec<String> {
    let client = HttpClient::new(address);
    let mut acknowledged = Vec::new();
    for n in 0.. {
        let (id, pk) = (format!("{name}-{n}"), format!("k{}", n % 5));
        let body = object([("id", id.as_str().into()), ("pk", pk.as_str().into())]);
        let call = docs("POST").header("x-ms-documentdb-partitionkey", format!("[\"{pk}\"]")).json(&body);
        match client.send(&call).await {
            Ok(answer) if answer.status == 201 => acknowledged.push(id),
            Ok(answer) => panic!("{}: {}", answer.status, answer.text()),
            Err(_) => break,
        }
    }
    acknowledged
}

/// Every document of a region with its id, sorted by id.
async fn documents(address: SocketAddr) -> Vec<(String, Value)> {
    let answer = send(&HttpClient::new(address), docs("GET").header("x-ms-max-item-count", "-1"), 200).await;
    let feed = answer.json().expect("JSON");
    let list = feed.get("Documents").and_then(Value::as_array).expect("documents").to_vec();
    let id = |document: &Value| document.get("id").and_then(Value::as_str).expect("an id").to_owned();
    let mut documents: Vec<(String, Value)> =
        list.into_iter().map(|document| (id(&document), document)).collect();
    documents.sort_by(|left, right| left.0.cmp(&right.0));
    documents
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigkill_with_several_regions_loses_no_acknowledged_write() {
    let (kills, seed) = (setting("REGION_KILLS", 8), setting("KILLS_SEED", 1));
    let (scratch, mut random) = (ScratchDirectory::new(), Random::new(seed));
    let mut acknowledged: BTreeSet<String> = BTreeSet::new();
    for run in 0..kills {
        let (server, addresses) = start(&scratch);
        if run == 0 {
            let client = HttpClient::new(addresses[0]);
            let container = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
            for (path, body) in [("/dbs", r#"{"id":"d"}"#), ("/dbs/d/colls", container)] {
                send(&client, HttpRequest::new("POST", path).json(&parse_str(body).expect("JSON")), 201)
                    .await;
            }
        }
        let mut writers = Vec::new();
        for (region, address) in addresses.iter().enumerate() {
            for client in 0..CLIENTS_PER_REGION {
                let name = format!("{run}-{region}-{client}");
                writers.push(tokio::spawn(write_until_the_end(*address, name)));
            }
        }
        // Waits for a random time. All other waits of this test are for an event.
        tokio::time::sleep(Duration::from_micros(random.below(RUN_MAX.as_micros() as u64))).await;
        kill(server);
        for writer in writers {
            acknowledged.extend(writer.await.expect("a writer ends without a panic"));
        }
        let (server, addresses) = start(&scratch);
        let wait = HttpRequest::new("POST", "/_perihelion/replication/wait").omit("authorization");
        send(&HttpClient::new(addresses[0]), wait, 200).await;
        let first = documents(addresses[0]).await;
        for (name, address) in REGIONS.iter().zip(&addresses).skip(1) {
            assert_eq!(first, documents(*address).await, "seed {seed}, run {run}: {name} differs");
        }
        let ids: BTreeSet<&String> = first.iter().map(|(id, _)| id).collect();
        let lost: Vec<&String> = acknowledged.iter().filter(|id| !ids.contains(id)).collect();
        assert!(lost.is_empty(), "seed {seed}, run {run}: lost {lost:?}");
        kill(server);
    }
    println!("{kills} kills: {} writes acknowledged, in three regions, 0 lost", acknowledged.len());
    assert!(acknowledged.len() as u64 > kills * 10, "seed {seed}: too few writes were acknowledged");
}
