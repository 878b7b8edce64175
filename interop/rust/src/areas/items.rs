//! Point operations on items, and the contents of their answers.

use std::time::Duration;

use azure_data_cosmos::models::{ContainerProperties, TimeToLive, UniqueKey, UniqueKeyPolicy};
use azure_data_cosmos::options::{
    ContentResponseOnWrite, ItemReadOptions, ItemWriteOptions, OperationOptionsBuilder,
};
use serde_json::{Value, json};

use crate::check::{Outcome, checks, code, holds, refused, required, same};
use crate::world::{Connect, Item, World, item, name_of};

checks![
    an_item_is_created_and_read,
    a_rich_document_is_read_unchanged,
    a_document_sent_as_text_reads_the_same,
    a_second_item_of_the_same_id_is_refused,
    a_missing_item_is_not_found,
    an_item_is_replaced,
    a_missing_item_is_not_replaced,
    an_upsert_creates_and_then_replaces,
    a_deleted_item_is_gone,
    a_write_returns_the_document_only_when_asked,
    an_item_has_its_system_properties,
    an_answer_carries_charge_etag_and_session,
    a_read_with_its_own_session_token_succeeds,
    ids_may_hold_unusual_characters,
    a_unique_key_is_unique_within_a_partition,
    a_document_of_another_partition_is_refused,
    a_document_beyond_two_megabytes_is_refused,
    an_item_expires,
];

async fn an_item_is_created_and_read(world: &World) -> Outcome {
    let container = world.container().await?;
    let created = container.create_item("a", "1", item("a", "1", 42), None).await?;
    same!(code(created.status()), 201);
    let read = container.read_item("a", "1", None).await?;
    same!(code(read.status()), 200);
    same!(read.into_model::<Item>()?, item("a", "1", 42));
    Ok(())
}

/// A document with every kind of value that has its own form in Cosmos binary JSON.
fn rich_document() -> Value {
    json!({
        "id": "rich",
        "pk": "a",
        "nothing": null,
        "yes": true,
        "no": false,
        "integers": [0, 1, -1, 31, 32, 255, 256, -32768, 65536, 2_147_483_648_i64, 9_007_199_254_740_991_i64],
        "decimals": [0.5, -2.25, 1.0e-7, 1.5e300],
        "text": "plain",
        "empty": "",
        "accents": "Zoë café – Straße",
        "emoji": "🛰️ perihelion 🌞",
        "escapes": "tab\t newline\n quote\" slash\\ nul\u{1}",
        "guid": "3f2504e0-4f89-11d3-9a0c-0305e82c3301",
        "date": "2026-11-15T06:16:17.1234567Z",
        "hex": "0123456789abcdef0123456789ABCDEF",
        "long": "x".repeat(300),
        "longer": "word ".repeat(20_000),
        "objects": [{"id": "inner", "deep": {"deeper": {"deepest": []}}}, {}],
        "repeated": ["again and again", "again and again", "again and again"],
        "name with spaces": "a property",
        "": "a property without a name"
    })
}

async fn a_rich_document_is_read_unchanged(world: &World) -> Outcome {
    let container = world.container().await?;
    container.create_item("a", "rich", rich_document(), None).await?;
    let read: Value = container.read_item("a", "rich", None).await?.into_model()?;
    same_members(&read, &rich_document())
}

async fn a_document_sent_as_text_reads_the_same(world: &World) -> Outcome {
    let container = world.container().await?;
    let client = Connect::to(world.scheme(), world.port()).with_text().client().await?;
    let by_text =
        client.database_client("interop").container_client(name_of(&container).await?, None).await?;
    by_text.create_item("a", "rich", rich_document(), None).await?;
    let read: Value = container.read_item("a", "rich", None).await?.into_model()?;
    same_members(&read, &rich_document())?;
    let read: Value = by_text.read_item("a", "rich", None).await?.into_model()?;
    same_members(&read, &rich_document())
}

/// Checks that the found document has the members of the wanted one, and the members that the
/// service adds, and no others.
fn same_members(found: &Value, wanted: &Value) -> Outcome {
    let (found, wanted) = match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => (found, wanted),
        _ => return Err("not two objects".into()),
    };
    for (name, value) in wanted {
        if found.get(name) != Some(value) {
            return Err(format!("{name} is {:?}, wanted {value:?}", found.get(name)).into());
        }
    }
    let mut added: Vec<&str> =
        found.keys().filter(|name| !wanted.contains_key(*name)).map(String::as_str).collect();
    added.sort_unstable();
    same!(added, ["_attachments", "_etag", "_rid", "_self", "_ts"]);
    Ok(())
}

async fn a_second_item_of_the_same_id_is_refused(world: &World) -> Outcome {
    let container = world.container().await?;
    container.create_item("a", "1", item("a", "1", 1), None).await?;
    same!(refused(container.create_item("a", "1", item("a", "1", 2), None).await)?, 409);
    // The same id in another partition is another item.
    container.create_item("b", "1", item("b", "1", 3), None).await?;
    let read: Item = container.read_item("a", "1", None).await?.into_model()?;
    same!(read.rank, 1);
    Ok(())
}

async fn a_missing_item_is_not_found(world: &World) -> Outcome {
    let container = world.container().await?;
    same!(refused(container.read_item("a", "1", None).await)?, 404);
    container.create_item("a", "1", item("a", "1", 1), None).await?;
    same!(refused(container.read_item("b", "1", None).await)?, 404);
    Ok(())
}

async fn an_item_is_replaced(world: &World) -> Outcome {
    let container = world.container().await?;
    let created = container.create_item("a", "1", item("a", "1", 1), None).await?;
    let replaced = container.replace_item("a", "1", item("a", "1", 2), None).await?;
    same!(code(replaced.status()), 200);
    holds!(created.headers().etag() != replaced.headers().etag());
    let read: Item = container.read_item("a", "1", None).await?.into_model()?;
    same!(read.rank, 2);
    Ok(())
}

async fn a_missing_item_is_not_replaced(world: &World) -> Outcome {
    let container = world.container().await?;
    same!(refused(container.replace_item("a", "1", item("a", "1", 2), None).await)?, 404);
    same!(refused(container.read_item("a", "1", None).await)?, 404);
    Ok(())
}

async fn an_upsert_creates_and_then_replaces(world: &World) -> Outcome {
    let container = world.container().await?;
    same!(code(container.upsert_item("a", "1", item("a", "1", 1), None).await?.status()), 201);
    same!(code(container.upsert_item("a", "1", item("a", "1", 2), None).await?.status()), 200);
    let read: Item = container.read_item("a", "1", None).await?.into_model()?;
    same!(read.rank, 2);
    Ok(())
}

async fn a_deleted_item_is_gone(world: &World) -> Outcome {
    let container = world.container().await?;
    container.create_item("a", "1", item("a", "1", 1), None).await?;
    same!(code(container.delete_item("a", "1", None).await?.status()), 204);
    same!(refused(container.read_item("a", "1", None).await)?, 404);
    same!(refused(container.delete_item("a", "1", None).await)?, 404);
    same!(code(container.create_item("a", "1", item("a", "1", 2), None).await?.status()), 201);
    Ok(())
}

async fn a_write_returns_the_document_only_when_asked(world: &World) -> Outcome {
    let container = world.container().await?;
    let answer = |content| {
        let operation = OperationOptionsBuilder::new().with_content_response_on_write(content).build();
        Some(ItemWriteOptions::default().with_operation_options(operation))
    };
    let silent = answer(ContentResponseOnWrite::Disabled);
    let created = container.create_item("a", "1", item("a", "1", 1), silent).await?;
    same!(code(created.status()), 201);
    holds!(created.headers().etag().is_some());
    holds!(created.into_body().is_empty());
    let with_body = answer(ContentResponseOnWrite::Enabled);
    let replaced = container.replace_item("a", "1", item("a", "1", 2), with_body).await?;
    let etag = required(replaced.headers().etag(), "the etag")?.to_string();
    let body: Value = replaced.into_model()?;
    same!(body["rank"], 2);
    same!(body["_etag"], etag);
    Ok(())
}

async fn an_item_has_its_system_properties(world: &World) -> Outcome {
    let container = world.container().await?;
    container.create_item("a", "1", item("a", "1", 1), None).await?;
    let read = container.read_item("a", "1", None).await?;
    let etag = required(read.headers().etag(), "the etag")?.to_string();
    let body: Value = read.into_model()?;
    same!(body["_etag"], etag);
    let resource_id = required(body["_rid"].as_str(), "_rid")?;
    let own_link = required(body["_self"].as_str(), "_self")?;
    holds!(
        own_link.starts_with("dbs/") && own_link.ends_with(&format!("/docs/{resource_id}/")),
        "{own_link}"
    );
    let written = required(body["_ts"].as_u64(), "_ts")?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    holds!(now.abs_diff(written) < 60, "{written} at {now}");
    Ok(())
}

async fn an_answer_carries_charge_etag_and_session(world: &World) -> Outcome {
    let container = world.container().await?;
    let created = container.create_item("a", "1", item("a", "1", 1), None).await?;
    let headers = created.headers();
    holds!(required(headers.request_charge(), "the charge")?.value() > 1.0);
    holds!(required(headers.session_token(), "the session token")?.to_string().contains('#'));
    holds!(headers.activity_id().is_some());
    holds!(required(headers.lsn(), "the lsn")? >= 1);
    let read = container.read_item("a", "1", None).await?;
    same!(required(read.headers().request_charge(), "the charge")?.value(), 1.0);
    same!(read.headers().etag(), headers.etag());
    Ok(())
}

async fn a_read_with_its_own_session_token_succeeds(world: &World) -> Outcome {
    let container = world.container().await?;
    let created = container.create_item("a", "1", item("a", "1", 1), None).await?;
    let token = required(created.headers().session_token(), "the session token")?.clone();
    let client = Connect::to(world.scheme(), world.port()).client().await?;
    let other = client.database_client("interop").container_client(name_of(&container).await?, None).await?;
    let options = ItemReadOptions::default().with_session_token(token);
    let read: Item = other.read_item("a", "1", Some(options)).await?.into_model()?;
    same!(read.rank, 1);
    Ok(())
}

async fn ids_may_hold_unusual_characters(world: &World) -> Outcome {
    let container = world.container().await?;
    let ids = [
        "with space",
        "Zoë",
        "日本語",
        "a+b",
        "a&b=c",
        "100%",
        "%41",
        "semi;colon",
        "(brackets)",
        "quote'd",
        "\"d\"",
        "~tilde",
        "at@sign",
        "dot.",
        "comma,",
        "a:b",
        "[x]",
        "{y}",
        "🌞",
        "^",
        "`",
        "|",
    ];
    for id in ids {
        container.create_item("a", id, item("a", id, 1), None).await?;
        let read: Item = container.read_item("a", id, None).await?.into_model()?;
        same!(read.id, id);
        container.replace_item("a", id, item("a", id, 2), None).await?;
        container.delete_item("a", id, None).await?;
        same!(refused(container.read_item("a", id, None).await)?, 404);
    }
    Ok(())
}

async fn a_unique_key_is_unique_within_a_partition(world: &World) -> Outcome {
    let unique = UniqueKeyPolicy::default().with_unique_key(UniqueKey::default().with_path("/rank"));
    let properties =
        ContainerProperties::new(world.fresh_name("c"), "/pk".into()).with_unique_key_policy(unique);
    let container = world.container_of(properties).await?;
    container.create_item("a", "1", item("a", "1", 1), None).await?;
    same!(refused(container.create_item("a", "2", item("a", "2", 1), None).await)?, 409);
    container.create_item("a", "2", item("a", "2", 2), None).await?;
    same!(refused(container.replace_item("a", "2", item("a", "2", 1), None).await)?, 409);
    container.create_item("b", "1", item("b", "1", 1), None).await?;
    Ok(())
}

async fn a_document_of_another_partition_is_refused(world: &World) -> Outcome {
    let container = world.container().await?;
    same!(refused(container.create_item("a", "1", item("b", "1", 1), None).await)?, 400);
    same!(refused(container.read_item("a", "1", None).await)?, 404);
    Ok(())
}

async fn a_document_beyond_two_megabytes_is_refused(world: &World) -> Outcome {
    let container = world.container().await?;
    let sized = |id: &str, length: usize| json!({"id": id, "pk": "a", "text": "x".repeat(length)});
    container.create_item("a", "large", sized("large", 1_900_000), None).await?;
    let read: Value = container.read_item("a", "large", None).await?.into_model()?;
    same!(read["text"].as_str().map(str::len), Some(1_900_000));
    same!(refused(container.create_item("a", "larger", sized("larger", 2_200_000), None).await)?, 413);
    Ok(())
}

async fn an_item_expires(world: &World) -> Outcome {
    let properties =
        ContainerProperties::new(world.fresh_name("c"), "/pk".into()).with_default_ttl(TimeToLive::NoDefault);
    let container = world.container_of(properties).await?;
    container.create_item("a", "1", json!({"id": "1", "pk": "a", "ttl": 1}), None).await?;
    container.create_item("a", "2", json!({"id": "2", "pk": "a"}), None).await?;
    // The item expires after the second of its ttl and at most one more for rounding. The rest is
    // a margin for a busy machine.
    let mut polls_left = 100;
    while container.read_item("a", "1", None).await.is_ok() {
        polls_left -= 1;
        holds!(polls_left > 0, "still there after ten seconds");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    same!(refused(container.read_item("a", "1", None).await)?, 404);
    same!(code(container.read_item("a", "2", None).await?.status()), 200);
    Ok(())
}
