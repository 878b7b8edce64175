//! Transactions over two containers, read in other regions while a writer runs and replication is
//! cut and healed. No region ever shows only half of a transaction.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use perihelion_server::AccountOptions;
use perihelion_testkit::Random;

use super::*;
use crate::multi_region::{EAST, MultiRegion, NORTH, WEST, three_regions};
use crate::world::documents;

const CONTAINERS: [&str; 2] = ["c", "other"];
const KEYS: [&str; 4] = ["a", "b", "c", "d"];
/// Transactions with each seed.
const TRANSACTIONS: i64 = 150;
/// A link is cut or healed once in this many transactions.
const CHANGE_ONE_IN: u64 = 8;

/// A transaction that writes `n` to all documents of both containers.
fn write_everywhere(n: i64) -> HttpRequest {
    let places = CONTAINERS.iter().flat_map(|container| KEYS.map(|key| (container, key)));
    let operations: Vec<String> = places.map(|(container, key)| upsert(container, key, "1", n)).collect();
    write(n as u64, &operations)
}

/// The `n` of all documents of a container, which must be the same. The feed of a container is
/// one snapshot.
async fn n_in(world: &MultiRegion, region: usize, container: &str) -> i64 {
    let feed = HttpRequest::new("GET", format!("/dbs/d/colls/{container}/docs"));
    let feed = world.send(region, feed.header("x-ms-max-item-count", "-1")).await;
    assert_eq!(feed.status, 200, "{}", feed.text());
    let values: Vec<Option<i64>> =
        documents(&feed).iter().map(|document| document.get("n").and_then(Value::as_i64)).collect();
    assert!(
        values.len() == KEYS.len() && values.iter().all(|n| *n == values[0]),
        "a part of a transaction is visible: {values:?}"
    );
    values[0].expect("a number")
}

/// What a reader of one region saw.
#[derive(Debug, Default)]
struct Seen {
    reads: u64,
    /// Reads that missed a transaction which was acknowledged before.
    late: u64,
    /// How often a read showed a later transaction than the read before.
    changes: u64,
}

/// Reads one container and then the other one until the writer ends. The second read is later, so
/// it has every transaction that the first one showed.
async fn read_until_the_end(world: &MultiRegion, region: usize, writer: &Writer) -> Seen {
    let (mut seen, mut last) = (Seen::default(), 0);
    while !writer.is_done.load(Ordering::SeqCst) {
        let acknowledged = writer.acknowledged.load(Ordering::SeqCst);
        let first = (seen.reads % 2) as usize;
        let earlier = n_in(world, region, CONTAINERS[first]).await;
        let later = n_in(world, region, CONTAINERS[1 - first]).await;
        assert!(
            later >= earlier,
            "region {region}: one container shows transaction {earlier}, the other one later only {later}"
        );
        assert!(earlier >= last, "region {region} went back from {last} to {earlier}");
        seen.reads += 1;
        seen.late += u64::from(earlier < acknowledged);
        seen.changes += u64::from(later > last);
        last = later;
    }
    seen
}

/// What the writer tells the readers.
#[derive(Default)]
struct Writer {
    /// The last transaction that was acknowledged.
    acknowledged: AtomicI64,
    is_done: AtomicBool,
}

impl Writer {
    /// Writes the transactions of these numbers. Between them, links to the other regions are cut
    /// and healed.
    async fn write(&self, world: &MultiRegion, numbers: RangeInclusive<i64>, random: &mut Random) {
        let mut is_cut = [false; 3];
        for n in numbers {
            if random.one_in(CHANGE_ONE_IN) {
                let region = [EAST, NORTH][random.index(2)];
                let change = if is_cut[region] { "replication/heal" } else { "replication/cut" };
                world.manage_region(change, region).await;
                is_cut[region] = !is_cut[region];
            }
            let answer = world.send(WEST, write_everywhere(n)).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            self.acknowledged.store(n, Ordering::SeqCst);
        }
        for region in [EAST, NORTH] {
            if is_cut[region] {
                world.manage_region("replication/heal", region).await;
            }
        }
        world.wait_for_replication().await;
        self.is_done.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn no_region_shows_half_of_a_transaction_over_two_containers() {
    let account = AccountOptions { partitions: 3, ..three_regions().account };
    let world = MultiRegion::with_options(ServerOptions { account, ..three_regions() }).await;
    let created = HttpRequest::new("POST", "/dbs/d/colls").json(&json(SECOND_CONTAINER));
    assert_eq!(world.send(WEST, created).await.status, 201);
    assert_eq!(world.send(WEST, write_everywhere(1)).await.status, 200);
    world.wait_for_replication().await;
    for seed in 0..3 {
        let (writer, mut random) = (Writer::default(), Random::new(seed));
        let last = 1 + (seed as i64 + 1) * TRANSACTIONS;
        let (_, east, north) = tokio::join!(
            writer.write(&world, last - TRANSACTIONS + 1..=last, &mut random),
            read_until_the_end(&world, EAST, &writer),
            read_until_the_end(&world, NORTH, &writer),
        );
        // A reader that read seldom, was never late or saw no changes would prove nothing.
        for seen in [&east, &north] {
            assert!(seen.reads > 20 && seen.late > 2 && seen.changes > 2, "seed {seed}: {seen:?}");
        }
        for region in [EAST, NORTH] {
            for container in CONTAINERS {
                assert_eq!(n_in(&world, region, container).await, last);
            }
        }
        println!("seed {seed}: east {east:?}, north {north:?}");
    }
    world.stop().await;
}
