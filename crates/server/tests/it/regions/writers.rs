//! Every region writes: the last writer wins, and all end up alike.

use std::hash::{BuildHasher, RandomState};

use crate::client::{Call, Client};
use crate::planet::{EAST, NAMES, NORTH, Planet, WEST, send, upsert};
use crate::world::docs;

#[tokio::test]
async fn two_regions_that_wrote_apart_agree_on_the_later_write() {
    let planet = Planet::of_writers().await;
    for region in [WEST, EAST] {
        planet.order("replication/cut", region).await;
    }
    assert_eq!(planet.upsert(EAST, "1", 1).await.status, 201);
    // `_ts` counts seconds: the next one makes the later write later.
    let first = planet.read(EAST, "1").await.json().unwrap().get("_ts").unwrap().as_i64().unwrap();
    loop {
        assert!(matches!(planet.upsert(WEST, "1", 2).await.status, 200 | 201));
        let second = planet.read(WEST, "1").await.json().unwrap().get("_ts").unwrap().as_i64().unwrap();
        if second > first {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    planet.manage("POST", "replication/heal", "").await;
    let documents = planet.assert_alike().await;
    assert_eq!(documents.len(), 1);
    assert_eq!(documents[0].get("n"), Some(&2i64.into()));
    planet.stop().await;
}

#[tokio::test]
async fn a_late_older_write_does_not_bring_a_deleted_document_back() {
    let planet = Planet::of_writers().await;
    planet.upsert(WEST, "1", 1).await;
    planet.settle().await;
    planet.order("replication/cut", WEST).await;
    planet.upsert(WEST, "1", 2).await;
    // The delete sees later: it is written again and again until it is later.
    loop {
        assert!(matches!(planet.upsert(EAST, "1", 3).await.status, 200 | 201));
        let there = planet.read(EAST, "1").await.json().unwrap().get("_ts").unwrap().as_i64();
        let here = planet.read(WEST, "1").await.json().unwrap().get("_ts").unwrap().as_i64();
        assert_eq!(planet.delete(EAST, "1").await.status, 204);
        if there > here {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    planet.order("replication/heal", WEST).await;
    assert_eq!(planet.assert_alike().await.len(), 0);
    assert_eq!(planet.upsert(NORTH, "1", 4).await.status, 201);
    assert_eq!(planet.assert_alike().await.len(), 1);
    planet.stop().await;
}

/// A die that needs no crate: every `RandomState` is keyed differently.
struct Dice(RandomState, u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.1 += 1;
        self.0.hash_one(self.1) % sides
    }
}

async fn write_at_random(client: Client, writes: usize) {
    let mut dice = Dice(RandomState::new(), 0);
    for _ in 0..writes {
        let id = dice.roll(12).to_string();
        let call: Call = match dice.roll(5) {
            0 => docs("DELETE", &id, r#"["a"]"#),
            _ => upsert(&id, dice.roll(1_000_000)),
        };
        let status = send(&client, call).await.status;
        assert!(matches!(status, 200 | 201 | 204 | 404), "{status}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn regions_that_all_write_at_once_end_up_alike() {
    let planet = Planet::of_writers().await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..6 {
        let client = planet.server.region_client(NAMES[writer % 3]);
        writers.spawn(write_at_random(client, 250));
    }
    // Meanwhile ways are cut and healed, and a range is split.
    for round in 0..6 {
        planet.order("replication/cut", round % 3).await;
        if round % 3 == 1 {
            planet.manage("POST", "split", r#"{"database":"d","container":"c"}"#).await;
        }
        tokio::time::sleep(std::time::Duration::from_millis(30)).await;
        planet.order("replication/heal", round % 3).await;
    }
    while let Some(outcome) = writers.join_next().await {
        outcome.unwrap();
    }
    let documents = planet.assert_alike().await;
    assert!(!documents.is_empty() && documents.len() <= 12, "{}", documents.len());
    planet.stop().await;
}

#[tokio::test]
async fn a_session_follows_its_own_write_to_every_region() {
    let planet = Planet::of_writers().await;
    planet.manage("POST", "replication/delay", r#"{"milliseconds":40}"#).await;
    for (n, region) in [WEST, EAST, NORTH, EAST, WEST].into_iter().enumerate() {
        let token =
            planet.upsert(region, "1", n as u64).await.header("x-ms-session-token").unwrap().to_owned();
        let read = |region: usize| {
            planet.send(region, docs("GET", "1", r#"["a"]"#).header("x-ms-session-token", token.clone()))
        };
        let other = (region + 1) % 3;
        assert_eq!(read(region).await.status, 200, "{token}");
        assert_eq!(read(other).await.header("x-ms-substatus"), Some("1002"), "{token}");
        planet.settle().await;
        let there = read(other).await;
        assert_eq!(there.json().unwrap().get("n"), Some(&(n as i64).into()), "{token}");
    }
    planet.stop().await;
}
