//! Properties are written in the form that the service expects, and are parsed without loss.

use std::time::Duration;

use serde_json::json;

use super::*;

#[test]
fn properties_have_the_form_that_the_service_expects() {
    let properties = ContainerProperties::new("orders", "/customer")
        .with_ttl(Duration::from_secs(60))
        .with_unique_key(["/number", "/year"])
        .with_indexing_policy(
            IndexingPolicy::only(["/placed/?"])
                .with_composite([("/a", SortOrder::Ascending), ("/b", SortOrder::Descending)]),
        )
        .with_throughput(Throughput::manual(400));
    assert_eq!(
        serde_json::to_value(&properties).unwrap(),
        json!({
            "id": "orders",
            "partitionKey": {"paths": ["/customer"], "kind": "Hash", "version": 2},
            "defaultTtl": 60,
            "uniqueKeyPolicy": {"uniqueKeys": [{"paths": ["/number", "/year"]}]},
            "indexingPolicy": {
                "indexingMode": "consistent",
                "automatic": true,
                "includedPaths": [{"path": "/placed/?"}],
                "excludedPaths": [{"path": "/*"}],
                "compositeIndexes": [[{"path": "/a", "order": "ascending"}, {"path": "/b", "order": "descending"}]],
            },
        })
    );
}

#[test]
fn two_or_three_paths_make_a_hierarchical_key() {
    let two = ContainerProperties::new("c", ["/tenant", "/user"]).with_ttl_per_item();
    assert_eq!(two.partition_key.kind, "MultiHash");
    assert_eq!(serde_json::to_value(&two).unwrap()["defaultTtl"], json!(-1));
    assert_eq!(ContainerProperties::new("c", ["/a", "/b", "/c"]).partition_key.paths.len(), 3);
}

#[test]
fn unknown_members_survive_reading_and_writing() {
    let stored = json!({
        "id": "c",
        "indexingPolicy": {
            "indexingMode": "consistent", "automatic": true,
            "includedPaths": [{"path": "/*", "indexes": [{"kind": "Range"}]}], "excludedPaths": [],
            "spatialIndexes": [{"path": "/place/*", "types": ["Point"]}],
        },
        "partitionKey": {"paths": ["/pk"], "kind": "Hash"},
        "conflictResolutionPolicy": {"mode": "LastWriterWins"},
        "defaultTtl": -1,
        "_rid": "abc=", "_etag": "\"1\"", "_ts": 5,
    });
    let read: ContainerProperties = serde_json::from_value(stored.clone()).unwrap();
    assert_eq!(read.ttl, Some(TimeToLive::PerItem));
    assert_eq!(serde_json::to_value(&read).unwrap(), stored);
}

#[test]
fn a_time_to_live_is_at_most_the_longest_that_the_service_accepts() {
    for seconds in [2_147_483_647, 2_147_483_648, u64::MAX] {
        let longest = TimeToLive::after(Duration::from_secs(seconds));
        assert_eq!(longest, TimeToLive::Seconds(2_147_483_647), "{seconds}");
    }
}

#[test]
fn a_time_to_live_is_at_least_one_second_and_minus_two_is_refused() {
    assert_eq!(TimeToLive::after(Duration::from_millis(10)), TimeToLive::Seconds(1));
    assert!(serde_json::from_str::<TimeToLive>("-2").is_err());
}
