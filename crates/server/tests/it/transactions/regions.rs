//! Transactions in an account with several regions.

use perihelion_server::AccountOptions;

use super::*;
use crate::multi_region::{EAST, MultiRegion, WEST, three_regions};
use crate::world::docs;

/// The container and the partition key of each document.
const PLACES: [(&str, &str); 4] = [("c", "a"), ("c", "b"), ("c", "c"), ("c", "d")];

/// Upserts that write `n` to all documents.
fn all(n: i64) -> Vec<String> {
    PLACES.iter().map(|(container, pk)| upsert(container, pk, "1", n)).collect()
}

/// The `n` of all documents in a region.
async fn values(world: &MultiRegion, region: usize) -> Vec<Option<i64>> {
    let mut values = Vec::new();
    for (container, pk) in PLACES {
        let path = format!("/dbs/d/colls/{container}/docs/1");
        let call =
            HttpRequest::new("GET", path).header("x-ms-documentdb-partitionkey", format!(r#"["{pk}"]"#));
        let answer = world.send(region, call).await;
        values.push(
            (answer.status == 200).then(|| answer.json().unwrap().get("n").and_then(Value::as_i64).unwrap()),
        );
    }
    values
}

async fn manage(world: &MultiRegion, name: &str, body: &str) {
    let answer = world.try_manage("POST", name, body).await;
    assert_eq!(answer.status, 200, "{name} {body}: {}", answer.text());
}

#[tokio::test]
async fn only_the_write_region_answers_and_a_failover_keeps_the_answers() {
    let world = MultiRegion::with_options(ServerOptions {
        account: AccountOptions { partitions: 3, ..three_regions().account },
        ..three_regions()
    })
    .await;
    let committed = world.send(WEST, write(1, &all(1))).await;
    assert_eq!(envelope(&committed), (200, 0), "{}", committed.text());
    let session_token = text_of(&results(&committed)[0], "sessionToken").unwrap();
    assert!(session_token.contains("#0="), "no progress of region 0: {session_token}");
    check_refused(&world.send(EAST, write(1, &all(1))).await, 403, 3);
    check_refused(&world.send(EAST, read(&[read_item("c", "a", "1")])).await, 403, 3);
    manage(&world, "regions/write", r#"{"region":"East US"}"#).await;
    let again = world.send(EAST, write(1, &all(1))).await;
    assert_eq!((again.status, &again.body), (200, &committed.body), "the answer of the old write region");
    check_refused(&world.send(WEST, write(2, &all(2))).await, 403, 3);
    assert_eq!(world.send(EAST, write(2, &all(2))).await.status, 200);
    assert_eq!(values(&world, EAST).await, [Some(2); 4]);
    world.stop().await;
}

#[tokio::test]
async fn a_transaction_is_never_half_visible_while_replication_is_cut_and_healed() {
    let world = MultiRegion::with_options(ServerOptions {
        account: AccountOptions { partitions: 3, ..three_regions().account },
        ..three_regions()
    })
    .await;
    world.send(WEST, write(1, &all(1))).await;
    manage(&world, "replication/wait", "").await;
    for round in 2..12 {
        if round % 3 == 0 {
            world.manage_region("replication/cut", EAST).await;
        }
        let answer = world.send(WEST, write(round, &all(round as i64))).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        // A feed of the other region is one snapshot.
        let documents = world.documents(EAST).await;
        let seen: Vec<Option<i64>> =
            documents.iter().map(|document| document.get("n").and_then(Value::as_i64)).collect();
        assert!(seen.len() == 4 && seen.iter().all(|n| *n == seen[0]), "round {round}: {seen:?}");
        if round % 3 == 0 {
            assert!(seen[0] < Some(round as i64), "round {round}: the region was cut off");
            world.manage_region("replication/heal", EAST).await;
        }
    }
    manage(&world, "replication/wait", "").await;
    assert_eq!(values(&world, EAST).await, [Some(11); 4]);
    world.stop().await;
}

#[tokio::test]
async fn an_account_with_several_write_regions_has_no_transactions() {
    let world = MultiRegion::with_multi_write().await;
    for region in [WEST, EAST] {
        check_refused(&world.send(region, write(1, &all(1))).await, 400, 5406);
        check_refused(&world.send(region, read(&[read_item("c", "a", "1")])).await, 400, 5406);
    }
    world.stop().await;
}

#[tokio::test]
async fn a_range_whose_writes_were_moved_to_another_region_has_no_transactions() {
    let world = MultiRegion::with_options(ServerOptions {
        account: AccountOptions { partitions: 3, ..three_regions().account },
        ..three_regions()
    })
    .await;
    let committed = world.send(WEST, write(1, &all(1))).await;
    assert_eq!(committed.status, 200, "{}", committed.text());
    let ranges: Vec<String> =
        results(&committed).iter().map(|result| text_of(result, "partitionKeyRangeId").unwrap()).collect();
    let elsewhere = ranges.iter().position(|range| *range != ranges[0]).expect("two ranges");
    let other_key = PLACES[elsewhere].1;
    let move_to = |region: &str| {
        format!(r#"{{"database":"d","container":"c","range":"{}","region":"{region}"}}"#, ranges[0])
    };
    manage(&world, "regions/write", &move_to("East US")).await;
    // From now on West US does not see what East US acknowledges.
    world.manage_region("replication/cut", WEST).await;
    let body = json(r#"{"id":"1","pk":"a","n":2}"#);
    let call = docs("POST", "", r#"["a"]"#).header("x-ms-documentdb-is-upsert", "true").json(&body);
    assert_eq!(world.send(EAST, call).await.status, 200);
    let touching = [read_item("c", other_key, "1"), read_item("c", "a", "1")];
    check_refused(&world.send(WEST, read(&touching)).await, 400, 5406);
    check_refused(&world.send(WEST, write(2, &all(3))).await, 400, 5406);
    // Transactions of other ranges are served, and so are recorded answers.
    assert_eq!(world.send(WEST, read(&touching[..1])).await.status, 200);
    assert_eq!(world.send(WEST, write(3, &[upsert("c", other_key, "1", 3)])).await.status, 200);
    assert_eq!(world.send(WEST, write(1, &all(1))).await.body, committed.body);
    world.manage_region("replication/heal", WEST).await;
    manage(&world, "regions/write", &move_to("West US")).await;
    let answer = world.send(WEST, read(&touching[1..])).await;
    let document = results(&answer)[0].get("resourceBody").cloned().expect("a document");
    assert_eq!(document.get("n").and_then(Value::as_i64), Some(2), "the write of the other region");
    assert_eq!(world.send(WEST, write(2, &all(3))).await.status, 200);
    world.stop().await;
}
