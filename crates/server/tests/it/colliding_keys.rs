//! Tests with partition keys that are different and have the same hash.
//!
//! Logical partitions were once told apart by MurmurHash3 alone. A client that knows the key of
//! another tenant can compute a second key with the same hash. With that key it could read, block
//! and delete the other tenant's documents.

use perihelion_model::json::{self, Style, Value, object};
use perihelion_model::partition_key::{KeyValue, PartitionKey};
use perihelion_testkit::http_client::HttpRequest;

use crate::world::{World, batch, docs, documents, ids, query};

/// The key of the victim. It fills three blocks of the hash, of 16 bytes each. The attacker's key differs
/// from it in the first two blocks.
const VICTIM: &str = "tenant-7f0d2c1e-contoso-production-0123456789!";

const CONTAINER: &str = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/mail"]}]}}"#;

/// A key that differs from the victim's key and has the same hash.
fn attackers_key() -> String {
    let found = perihelion_testkit::colliding_keys::colliding_key(VICTIM);
    let hash = |text: &str| PartitionKey { values: vec![KeyValue::String(text.to_owned())] }.logical_hash();
    assert!(found != VICTIM && hash(&found) == hash(VICTIM), "{found:?}");
    found
}

/// The text of a value with all characters above ASCII escaped, for headers.
fn ascii(value: &Value) -> String {
    let mut out = String::new();
    for character in json::to_text(value, Style::Point).chars() {
        if character.is_ascii() {
            out.push(character);
        } else {
            let mut units = [0; 2];
            character
                .encode_utf16(&mut units)
                .iter()
                .for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        }
    }
    out
}

/// The partition key header of a key of one level.
fn header(key: &str) -> String {
    ascii(&Value::Array(vec![key.into()]))
}

fn item(key: &str, id: &str, n: i64) -> Value {
    object([("id", id.into()), ("pk", key.into()), ("mail", "m".into()), ("n", n.into())])
}

async fn create(world: &World, key: &str, id: &str, n: i64) -> u16 {
    world.send(docs("POST", "", &header(key)).json(&item(key, id, n))).await.status
}

/// The `n` of a document; `None` if the document does not exist.
async fn n_of(world: &World, key: &str, id: &str) -> Option<i64> {
    let answer = world.read(&header(key), id).await;
    if answer.status == 200 { answer.json().unwrap().get("n")?.as_i64() } else { None }
}

#[tokio::test]
async fn a_key_with_the_same_hash_is_another_partition_for_items_and_unique_keys() {
    let world = World::new(CONTAINER).await;
    let attacker = attackers_key();
    assert_eq!(create(&world, VICTIM, "1", 1).await, 201);
    assert_eq!(n_of(&world, &attacker, "1").await, None, "the attacker cannot read the document");
    assert_eq!(
        world.send(docs("DELETE", "1", &header(&attacker))).await.status,
        404,
        "the attacker cannot delete it"
    );
    assert_eq!(create(&world, &attacker, "1", 2).await, 201, "the victim's document does not block it");
    assert_eq!((n_of(&world, VICTIM, "1").await, n_of(&world, &attacker, "1").await), (Some(1), Some(2)));
    let operations = format!(
        r#"[{{"operationType":"Read","id":"1"}},{{"operationType":"Upsert","resourceBody":{}}}]"#,
        json::to_text(&item(&attacker, "1", 3), Style::Point)
    );
    let answer = world.send(batch(&header(&attacker), &operations)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!((n_of(&world, VICTIM, "1").await, n_of(&world, &attacker, "1").await), (Some(1), Some(3)));
    assert_eq!(world.send(docs("DELETE", "1", &header(&attacker))).await.status, 204);
    assert_eq!(n_of(&world, VICTIM, "1").await, Some(1));
    world.stop().await;
}

#[tokio::test]
async fn a_key_with_the_same_hash_is_another_partition_for_queries_feeds_and_deletion() {
    let world = World::new(CONTAINER).await;
    let attacker = attackers_key();
    assert_eq!(create(&world, VICTIM, "mine", 1).await, 201);
    let rows = |key: &str| query("SELECT * FROM c").header("x-ms-documentdb-partitionkey", header(key));
    assert!(documents(&world.send(rows(&attacker)).await).is_empty());
    let feed = |key: &str| docs("GET", "", &header(key)).header("a-im", "Incremental Feed");
    assert_eq!(world.send(feed(&attacker)).await.status, 304);
    let full = |key: &str| docs("GET", "", &header(key)).header("a-im", "Full-Fidelity Feed");
    let start = world.send(full(&attacker).header("if-none-match", "*")).await;
    world.send(docs("PUT", "mine", &header(VICTIM)).json(&item(VICTIM, "mine", 2))).await;
    world.send(docs("DELETE", "mine", &header(VICTIM))).await;
    let after = world.send(full(&attacker).header("if-none-match", start.header("etag").unwrap())).await;
    assert_eq!(after.status, 304, "{}", after.text());
    assert_eq!(create(&world, VICTIM, "mine", 1).await, 201);
    let delete = HttpRequest::new("POST", "/dbs/d/colls/c/operations/partitionkeydelete")
        .header("x-ms-documentdb-partitionkey", header(&attacker));
    assert_eq!(world.send(delete).await.status, 200);
    assert_eq!(ids(&documents(&world.send(rows(VICTIM)).await)), ["mine"]);
    assert_eq!(ids(&documents(&world.send(feed(VICTIM)).await)), ["mine"]);
    world.stop().await;
}

#[tokio::test]
async fn first_levels_with_the_same_hash_are_different_tenants() {
    let container = r#"{"id":"c","partitionKey":{"paths":["/t","/u"],"kind":"MultiHash","version":2},"indexingPolicy":{"compositeIndexes":[[{"path":"/n","order":"ascending"},{"path":"/m","order":"ascending"}]]}}"#;
    let world = World::new(container).await;
    let attacker = attackers_key();
    for (id, tenant) in [("victim", VICTIM), ("attacker", attacker.as_str())] {
        let body = object([
            ("id", id.into()),
            ("t", tenant.into()),
            ("u", 1i64.into()),
            ("n", 1i64.into()),
            ("m", 1i64.into()),
        ]);
        let key = ascii(&Value::Array(vec![tenant.into(), 1i64.into()]));
        assert_eq!(world.send(docs("POST", "", &key).json(&body)).await.status, 201);
    }
    for text in [
        "SELECT * FROM c",
        "SELECT * FROM c WHERE c.n = 1 ORDER BY c.n, c.m",
        "SELECT * FROM c WHERE c.n = 1",
    ] {
        for (id, tenant) in [("victim", VICTIM), ("attacker", attacker.as_str())] {
            let found = world.send(query(text).header("x-ms-documentdb-partitionkey", header(tenant))).await;
            assert_eq!(ids(&documents(&found)), [id], "{text}");
        }
    }
    world.stop().await;
}
