//! Moving the writes of one range to another region, as when a partition of an account with
//! one write region fails over.

use std::path::Path;

use perihelion_model::json::Value;
use perihelion_server::ServerOptions;
use perihelion_testkit::http_client::{HttpRequest, HttpResponse};
use perihelion_testkit::scratch::ScratchDirectory;

use crate::multi_region::{EAST, MultiRegion, NAMES, NORTH, WEST, three_regions};
use crate::world::{docs, json};

/// Three regions and a container with two ranges. The data is in the directory.
async fn two_ranges(directory: &ScratchDirectory) -> MultiRegion {
    MultiRegion::with_options(options(directory)).await
}

fn options(directory: &ScratchDirectory) -> ServerOptions {
    let mut options = three_regions();
    options.account.partitions = 2;
    options.account.data = Some(directory.path().to_owned());
    options
}

/// Upserts a document whose id is its partition key.
async fn upsert(world: &MultiRegion, region: usize, key: &str) -> HttpResponse {
    let body = json(&format!(r#"{{"id":"{key}","pk":"{key}"}}"#));
    let call = docs("POST", "", &format!(r#"["{key}"]"#)).header("x-ms-documentdb-is-upsert", "true");
    world.send(region, call.json(&body)).await
}

/// One partition key in each of the two ranges.
async fn a_key_of_each_range(world: &MultiRegion) -> [String; 2] {
    let mut keys: [Option<String>; 2] = [None, None];
    for number in 0..40 {
        let key = format!("k{number}");
        let answer = upsert(world, WEST, &key).await;
        let range = answer.header("x-ms-documentdb-partitionkeyrangeid").unwrap().to_owned();
        keys[range.parse::<usize>().unwrap()].get_or_insert(key);
    }
    keys.map(Option::unwrap)
}

async fn move_range(world: &MultiRegion, range: &str, region: usize) -> HttpResponse {
    let name = NAMES[region];
    let body = format!(
        r#"{{"database":"d","container":"c","range":"{range}","region":"{name}","timeoutMs":10000}}"#
    );
    world.try_manage("POST", "regions/write", &body).await
}

/// The regions that take a write of this key.
async fn writers(world: &MultiRegion, key: &str) -> Vec<usize> {
    let mut writers = Vec::new();
    for region in [WEST, EAST, NORTH] {
        let answer = upsert(world, region, key).await;
        match (answer.status, answer.header("x-ms-substatus")) {
            (200 | 201, _) => writers.push(region),
            outcome => assert_eq!(outcome, (403, Some("3")), "{}", answer.text()),
        }
    }
    writers
}

#[tokio::test]
async fn exactly_one_region_takes_the_writes_of_a_range() {
    let directory = ScratchDirectory::new();
    let world = two_ranges(&directory).await;
    let [first, second] = a_key_of_each_range(&world).await;
    assert_eq!(move_range(&world, "1", EAST).await.status, 200);
    assert_eq!(writers(&world, &first).await, [WEST]);
    assert_eq!(writers(&world, &second).await, [EAST]);
    let report = world.manage("GET", "regions", "").await;
    let moved = report.get("movedRanges").and_then(Value::as_array).unwrap().to_vec();
    assert_eq!(moved, [json(r#"{"container":"c","range":"1","writeRegion":"East US"}"#)]);
    world.wait_for_replication().await;
    assert_eq!(world.assert_regions_agree().await.len(), 40);

    // After a split, the children are written where their parent was.
    let split = r#"{"database":"d","container":"c","range":"1"}"#;
    world.manage("POST", "split", split).await;
    assert_eq!(writers(&world, &second).await, [EAST]);
    // The move is stored with the data, so it survives a restart.
    world.stop().await;
    let world = MultiRegion::open(options(&directory)).await;
    assert_eq!(writers(&world, &first).await, [WEST]);
    assert_eq!(writers(&world, &second).await, [EAST]);
    // A child moves without its sibling. A new write region takes the writes of every range.
    let answer = upsert(&world, EAST, &second).await;
    let child = answer.header("x-ms-documentdb-partitionkeyrangeid").unwrap().to_owned();
    assert_eq!(move_range(&world, &child, NORTH).await.status, 200);
    assert_eq!(writers(&world, &second).await, [NORTH]);
    world.manage_region("regions/write", EAST).await;
    assert_eq!(writers(&world, &first).await, [EAST]);
    assert_eq!(writers(&world, &second).await, [EAST]);
    world.stop().await;
}

#[tokio::test]
async fn a_moved_range_has_every_acknowledged_write_and_its_lsns_continue() {
    let directory = ScratchDirectory::new();
    let world = two_ranges(&directory).await;
    let [_, second] = a_key_of_each_range(&world).await;
    world.manage("POST", "replication/delay", r#"{"milliseconds":20000}"#).await;
    let lsn = |answer: &HttpResponse| answer.header("lsn").unwrap().parse::<u64>().unwrap();
    let before = lsn(&upsert(&world, WEST, &second).await);
    assert_eq!(move_range(&world, "1", NORTH).await.status, 200);
    assert_eq!(lsn(&upsert(&world, NORTH, &second).await), before + 1);
    world.stop().await;
}

#[tokio::test]
async fn a_range_does_not_move_to_a_region_that_cannot_catch_up() {
    let directory = ScratchDirectory::new();
    let world = two_ranges(&directory).await;
    let [_, second] = a_key_of_each_range(&world).await;
    world.wait_for_replication().await;
    world.manage_region("replication/cut", EAST).await;
    upsert(&world, WEST, &second).await;
    let refused = move_range(&world, "1", EAST).await;
    assert_eq!(refused.status, 409, "{}", refused.text());
    assert!(refused.text().contains("heal it first"), "{}", refused.text());
    assert_eq!(writers(&world, &second).await, [WEST]);
    assert_eq!(move_range(&world, "7", EAST).await.status, 400);
    world.stop().await;
}

/// A read that asks for the write region is answered by the region that takes the writes of
/// its range. The account document says whether ranges fail over one by one.
#[tokio::test]
async fn a_read_meant_for_the_write_region_follows_its_range() {
    let directory = ScratchDirectory::new();
    let world = two_ranges(&directory).await;
    let [first, second] = a_key_of_each_range(&world).await;
    assert_eq!(move_range(&world, "1", EAST).await.status, 200);
    world.wait_for_replication().await;
    for (key, writer) in [(&first, WEST), (&second, EAST)] {
        for region in [WEST, EAST, NORTH] {
            let call = docs("GET", key, &format!(r#"["{key}"]"#));
            let call = call.header("x-ms-cosmos-hub-region-processing-only", "True");
            let expected = if region == writer { 200 } else { 403 };
            assert_eq!(world.send(region, call).await.status, expected, "{key} in {region}");
        }
    }
    let failover = async || {
        let account = world.send(WEST, HttpRequest::new("GET", "/")).await.json().unwrap();
        account.get("enablePerPartitionFailoverBehavior").cloned()
    };
    assert_eq!(failover().await, Some(false.into()));
    world.manage("POST", "regions/partition-failover", r#"{"enabled":true}"#).await;
    assert_eq!(failover().await, Some(true.into()));
    let bad = world.try_manage("POST", "regions/partition-failover", "{}").await;
    assert_eq!(bad.status, 400, "{}", bad.text());
    world.stop().await;
}

/// The server is killed while the write region of the account moves to North, just before the move
/// is stored. East took the writes of a range and must still take them, because West may lack some of
/// these writes.
#[tokio::test]
async fn a_kill_before_a_move_is_stored_leaves_a_moved_range_where_it_was() {
    let (directory, killed) = (ScratchDirectory::new(), ScratchDirectory::new());
    let world = two_ranges(&directory).await;
    let [first, second] = a_key_of_each_range(&world).await;
    assert_eq!(move_range(&world, "1", EAST).await.status, 200);
    world.wait_for_replication().await;
    world.manage_region("regions/write", NORTH).await;
    copy_directory(directory.path(), killed.path());
    world.stop().await;

    // In the copy, the log ends before the record that stores the move.
    let log = killed.path().join("west-us/perihelion-0.log");
    let mut content = std::fs::read(&log).unwrap();
    let name = b"write-region";
    let stored_at = content.windows(name.len()).rposition(|bytes| bytes == name).expect("it is in the log");
    content.truncate(stored_at / SECTOR_BYTES * SECTOR_BYTES);
    std::fs::write(&log, content).unwrap();
    let world = MultiRegion::open(options(&killed)).await;
    assert_eq!(writers(&world, &first).await, [WEST]);
    assert_eq!(writers(&world, &second).await, [EAST]);
    world.stop().await;
}

/// Every record of the log begins at the start of a sector.
const SECTOR_BYTES: usize = 512;

fn copy_directory(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_directory(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}
