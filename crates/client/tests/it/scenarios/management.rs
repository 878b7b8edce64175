//! Databases and containers: create, read, list, change and delete.

use std::time::Duration;

use perihelion_client::{ContainerProperties, ErrorKind, IndexingPolicy, TimeToLive};
use serde_json::{Value, json};

use crate::account::TestAccount;

pub(crate) async fn scenario(account: &TestAccount) {
    a_database_is_created_once_and_deleted(account).await;
    concurrent_callers_create_one_container(account).await;
    a_unique_key_is_unique_within_its_partition(account).await;
    properties_with_a_stale_etag_are_refused(account).await;
    a_handle_refers_to_a_container_that_was_created_again(account).await;
    deleting_a_partition_keeps_the_other_partitions(account).await;
}

async fn a_database_is_created_once_and_deleted(account: &TestAccount) {
    let name = account.database.name();
    let listed = account.client.databases().await.unwrap();
    assert!(listed.iter().any(|database| database.id == name));
    assert!(account.client.create_database(name).await.unwrap_err().is_conflict());
    let same = account.client.create_database_if_missing(name).await.unwrap();
    assert_eq!(same.read().await.unwrap().id, name);
    let other = format!("{name}-other");
    let other = account.client.create_database_if_missing(&other).await.unwrap();
    other.delete().await.unwrap();
    assert!(other.read().await.unwrap_err().is_not_found());
    assert!(!account.client.account().read_regions.is_empty());
}

async fn concurrent_callers_create_one_container(account: &TestAccount) {
    let properties = ContainerProperties::new("races", "/pk");
    let racers = (0..4).map(|_| {
        let (database, properties) = (account.database.clone(), properties.clone());
        tokio::spawn(async move { database.create_container_if_missing(&properties).await })
    });
    for racer in racers.collect::<Vec<_>>() {
        racer.await.unwrap().unwrap();
    }
    assert!(account.database.create_container(&properties).await.unwrap_err().is_conflict());
    let other_key = ContainerProperties::new("races", "/other");
    let refused = account.database.create_container_if_missing(&other_key).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Input);
    assert!(refused.message().contains("/pk"), "{refused}");
    let names: Vec<String> =
        account.database.containers().await.unwrap().into_iter().map(|container| container.id).collect();
    assert_eq!(names, ["races"]);
    let container = account.database.container("races");
    container.delete_container().await.unwrap();
    assert!(container.properties().await.unwrap_err().is_not_found());
}

async fn a_unique_key_is_unique_within_its_partition(account: &TestAccount) {
    let properties = ContainerProperties::new("unique", "/pk").with_unique_key(["/number"]);
    let container = account.container(properties).await;
    container.create("k", &json!({"id": "1", "pk": "k", "number": 5})).await.unwrap();
    let taken = container.create("k", &json!({"id": "2", "pk": "k", "number": 5})).await.unwrap_err();
    assert!(taken.is_conflict());
    container.create("l", &json!({"id": "2", "pk": "l", "number": 5})).await.unwrap();
}

async fn properties_with_a_stale_etag_are_refused(account: &TestAccount) {
    let created = ContainerProperties::new("changing", "/pk")
        .with_ttl(Duration::from_secs(3600))
        .with_indexing_policy(IndexingPolicy::default().with_excluded("/blob/*"));
    let container = account.container(created).await;
    let mut properties = container.properties().await.unwrap();
    assert_eq!(properties.ttl, Some(TimeToLive::Seconds(3600)));
    let policy = properties.indexing_policy.clone().unwrap();
    assert!(policy.excluded_paths.iter().any(|path| path.path == "/blob/*"));
    let stale = properties.clone();
    properties.ttl = Some(TimeToLive::PerItem);
    let replaced = container.replace_properties(&properties).await.unwrap();
    assert_eq!(replaced.ttl, Some(TimeToLive::PerItem));
    assert!(container.replace_properties(&stale).await.unwrap_err().is_precondition_failed());
    assert_eq!(container.properties().await.unwrap().ttl, Some(TimeToLive::PerItem));
}

/// A handle has only the name of its container. When the container of that name is
/// created again, the handle refers to the new container.
async fn a_handle_refers_to_a_container_that_was_created_again(account: &TestAccount) {
    let properties = ContainerProperties::new("again", "/pk");
    let container = account.container(properties.clone()).await;
    let document = |n: u32| json!({"id": "1", "pk": "k", "n": n});
    container.create("k", &document(1)).await.unwrap();
    container.delete_container().await.unwrap();
    account.container(properties).await;
    assert!(container.find::<Value>("k", "1").await.unwrap().is_none());
    container.create("k", &document(2)).await.unwrap();
    assert_eq!(container.read::<Value>("k", "1").await.unwrap().value["n"], 2);
}

async fn deleting_a_partition_keeps_the_other_partitions(account: &TestAccount) {
    let container = account.container(ContainerProperties::new("partitions", "/pk")).await;
    for (id, key) in [("1", "gone"), ("2", "gone"), ("1", "kept")] {
        container.create(key, &json!({"id": id, "pk": key})).await.unwrap();
    }
    match container.delete_partition("gone").await {
        Ok(()) => {}
        // This is a live account that does not have the feature enabled.
        Err(error) if error.status().is_some_and(|status| status.code == 400) => return,
        Err(error) => panic!("{error}"),
    }
    assert!(container.find::<Value>("gone", "1").await.unwrap().is_none());
    assert!(container.find::<Value>("gone", "2").await.unwrap().is_none());
    assert!(container.find::<Value>("kept", "1").await.unwrap().is_some());
}
