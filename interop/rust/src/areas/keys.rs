//! Partition keys of every kind. The server has to assign each key to the range that the SDK
//! computes. Otherwise the SDK asks the wrong range.

use azure_data_cosmos::models::{
    ContainerProperties, PartitionKeyDefinition, PartitionKeyValue, PartitionKeyVersion,
};
use azure_data_cosmos::{FeedScope, PartitionKey, Query};
use serde_json::{Value, json};

use crate::check::{Outcome, Problem, checks, refused, same};
use crate::query::query_all;
use crate::world::{World, item};

checks![
    keys_of_every_type_find_their_items,
    keys_of_every_type_find_their_items_by_query,
    keys_of_the_first_hash_version_find_their_items,
    an_item_without_the_key_is_found_as_undefined,
    hierarchical_keys_find_their_items,
    a_prefix_of_a_hierarchical_key_finds_all_items_below_it,
    a_nested_path_can_be_the_partition_key,
];

/// Each key with its JSON value in the document.
fn keys() -> Result<Vec<(PartitionKey, Value)>, Problem> {
    Ok(vec![
        ("text".into(), json!("text")),
        ("".into(), json!("")),
        ("Zoë 日本語 🌞".into(), json!("Zoë 日本語 🌞")),
        (PartitionKey::from("k".repeat(150)), json!("k".repeat(150))),
        (0.into(), json!(0)),
        ((-7).into(), json!(-7)),
        (PartitionKey::try_from(1.5)?, json!(1.5)),
        (9_007_199_254_740_991_i64.into(), json!(9_007_199_254_740_991_i64)),
        (true.into(), json!(true)),
        (false.into(), json!(false)),
        (None::<String>.into(), Value::Null),
    ])
}

async fn keys_of_every_type_find_their_items(world: &World) -> Outcome {
    let container = world.container().await?;
    for (key, value) in keys()? {
        container.create_item(key.clone(), "1", json!({"id": "1", "pk": value}), None).await?;
        let read: Value = container.read_item(key.clone(), "1", None).await?.into_model()?;
        same!(read["pk"], value);
    }
    let all: Vec<Value> = query_all(&container, FeedScope::full_container(), "SELECT * FROM c").await?;
    same!(all.len(), keys()?.len());
    Ok(())
}

async fn keys_of_every_type_find_their_items_by_query(world: &World) -> Outcome {
    let container = world.container().await?;
    for (key, value) in keys()? {
        container.create_item(key, "1", json!({"id": "1", "pk": value}), None).await?;
    }
    for (key, value) in keys()? {
        let query = Query::from("SELECT VALUE c.pk FROM c");
        let found: Vec<Value> = query_all(&container, FeedScope::partition(key), query).await?;
        same!(found, [value]);
    }
    Ok(())
}

async fn keys_of_the_first_hash_version_find_their_items(world: &World) -> Outcome {
    let definition = PartitionKeyDefinition::from("/pk").with_version(PartitionKeyVersion::V1);
    let container = world.container_of(ContainerProperties::new(world.fresh_name("c"), definition)).await?;
    for (key, value) in keys()? {
        container.create_item(key.clone(), "1", json!({"id": "1", "pk": value}), None).await?;
        let read: Value = container.read_item(key, "1", None).await?.into_model()?;
        same!(read["pk"], value);
    }
    Ok(())
}

async fn an_item_without_the_key_is_found_as_undefined(world: &World) -> Outcome {
    let container = world.container().await?;
    let undefined = || PartitionKey::from(PartitionKeyValue::UNDEFINED);
    container.create_item(undefined(), "1", json!({"id": "1", "rank": 1}), None).await?;
    container.create_item(None::<String>, "1", json!({"id": "1", "pk": null, "rank": 2}), None).await?;
    let read: Value = container.read_item(undefined(), "1", None).await?.into_model()?;
    same!(read["rank"], 1);
    let read: Value = container.read_item(None::<String>, "1", None).await?.into_model()?;
    same!(read["rank"], 2);
    Ok(())
}

async fn hierarchical_keys_find_their_items(world: &World) -> Outcome {
    let container = world.container_by(("/tenant", "/user", "/session").into()).await?;
    let document = json!({"id": "1", "tenant": "t", "user": 7, "session": true});
    let key = || PartitionKey::from(("t", 7, true));
    container.create_item(key(), "1", &document, None).await?;
    let read: Value = container.read_item(key(), "1", None).await?.into_model()?;
    same!(read["user"], 7);
    container.upsert_item(key(), "1", &document, None).await?;
    same!(refused(container.read_item(("t", 8, true), "1", None).await)?, 404);
    container.delete_item(key(), "1", None).await?;
    same!(refused(container.read_item(key(), "1", None).await)?, 404);
    Ok(())
}

async fn a_prefix_of_a_hierarchical_key_finds_all_items_below_it(world: &World) -> Outcome {
    let container = world.container_by(("/tenant", "/user").into()).await?;
    for (tenant, users) in [("t1", 12), ("t2", 5)] {
        for user in 0..users {
            let name = format!("u{user:02}");
            let document = json!({"id": "1", "tenant": tenant, "user": name});
            container.create_item((tenant, name.clone()), "1", document, None).await?;
        }
    }
    let query = || Query::from("SELECT VALUE c.user FROM c ORDER BY c.user");
    let below: Vec<String> = query_all(&container, FeedScope::partition("t1"), query()).await?;
    same!(below, (0..12).map(|user| format!("u{user:02}")).collect::<Vec<_>>());
    let one: Vec<String> = query_all(&container, FeedScope::partition(("t2", "u03")), query()).await?;
    same!(one, ["u03"]);
    let none: Vec<String> = query_all(&container, FeedScope::partition("t3"), query()).await?;
    same!(none, Vec::<String>::new());
    Ok(())
}

async fn a_nested_path_can_be_the_partition_key(world: &World) -> Outcome {
    let container = world.container_by("/owner/name".into()).await?;
    container.create_item("ann", "1", json!({"id": "1", "owner": {"name": "ann"}}), None).await?;
    let read: Value = container.read_item("ann", "1", None).await?.into_model()?;
    same!(read["owner"]["name"], "ann");
    same!(refused(container.create_item("ann", "2", item("ann", "2", 1), None).await)?, 400);
    Ok(())
}
