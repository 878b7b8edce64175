//! Every region takes writes: the last writer wins, and all regions converge.

use perihelion_testkit::Random;
use perihelion_testkit::http_client::{HttpClient, HttpRequest};

use crate::multi_region::{EAST, MultiRegion, NAMES, NORTH, WEST, send, upsert};
use crate::world::{docs, json};

async fn write_at_random(client: HttpClient, writes: usize, seed: u64) {
    let mut random = Random::new(seed);
    for _ in 0..writes {
        let id = random.below(12).to_string();
        let call: HttpRequest = match random.below(5) {
            0 => docs("DELETE", &id, r#"["a"]"#),
            _ => upsert(&id, random.below(1_000_000)),
        };
        let status = send(&client, call).await.status;
        assert!(matches!(status, 200 | 201 | 204 | 404), "{status}");
    }
}

/// With several write regions the write with the later `_ts` always wins. So a container with any
/// other policy is refused. Such policies were once stored and ignored.
#[tokio::test]
async fn a_conflict_resolution_that_has_no_effect_is_refused() {
    let container = |policy: &str| {
        let body = format!(
            r#"{{"id":"other","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}},"conflictResolutionPolicy":{policy}}}"#
        );
        HttpRequest::new("POST", "/dbs/d/colls").json(&json(&body))
    };
    let custom = r#"{"mode":"Custom","conflictResolutionProcedure":"dbs/d/colls/c/sprocs/s"}"#;
    let by_path = r#"{"mode":"LastWriterWins","conflictResolutionPath":"/version"}"#;
    let world = MultiRegion::with_multi_write().await;
    let client = world.server.region_http_client(NAMES[0]);
    for policy in [custom, by_path] {
        let refused = send(&client, container(policy)).await;
        assert_eq!(refused.status, 400, "{policy}");
        assert!(refused.text().contains("LastWriterWins"), "{}", refused.text());
    }
    let by_time = r#"{"mode":"LastWriterWins","conflictResolutionPath":"/_ts"}"#;
    assert_eq!(send(&client, container(by_time)).await.status, 201);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn regions_that_all_take_writes_converge() {
    let world = MultiRegion::with_multi_write().await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..6 {
        let client = world.server.region_http_client(NAMES[writer % 3]);
        writers.spawn(write_at_random(client, 250, writer as u64));
    }
    // Meanwhile links are cut and healed, and a range is split.
    for round in 0..6 {
        world.manage_region("replication/cut", round % 3).await;
        if round % 3 == 1 {
            world.manage("POST", "split", r#"{"database":"d","container":"c"}"#).await;
        }
        // The reads take some time, in which the writers write.
        for _ in 0..20 {
            assert_eq!(world.read(round % 3, "none").await.status, 404);
        }
        world.manage_region("replication/heal", round % 3).await;
    }
    while let Some(outcome) = writers.join_next().await {
        outcome.unwrap();
    }
    let documents = world.assert_regions_agree().await;
    assert!(!documents.is_empty() && documents.len() <= 12, "{}", documents.len());
    world.stop().await;
}

#[tokio::test]
async fn a_session_reads_its_own_write_in_every_region_once_it_is_replicated() {
    let world = MultiRegion::with_multi_write().await;
    for (n, region) in [WEST, EAST, NORTH, EAST, WEST].into_iter().enumerate() {
        // No write arrives in another region until the delay is 0 again.
        world.manage("POST", "replication/delay", r#"{"milliseconds":60000}"#).await;
        let token =
            world.upsert(region, "1", n as u64).await.header("x-ms-session-token").unwrap().to_owned();
        let read = |region: usize| {
            world.send(region, docs("GET", "1", r#"["a"]"#).header("x-ms-session-token", token.clone()))
        };
        let other = (region + 1) % 3;
        assert_eq!(read(region).await.status, 200, "{token}");
        assert_eq!(read(other).await.header("x-ms-substatus"), Some("1002"), "{token}");
        world.manage("POST", "replication/delay", r#"{"milliseconds":0}"#).await;
        world.wait_for_replication().await;
        let replicated = read(other).await;
        assert_eq!(replicated.json().unwrap().get("n"), Some(&(n as i64).into()), "{token}");
    }
    world.stop().await;
}
