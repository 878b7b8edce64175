//! Tests of the check: it accepts sound data, and names each kind of damage.

use perihelion_model::json::{Object, parse_str};
use perihelion_model::partition_key::PartitionKey;

use super::*;
use crate::storage::{MemoryStore, Write};
use crate::{
    ApiVersion, Column, Engine, EngineOptions, IndexScope, IndexShape, ItemOperation, NewBody,
    ParsedDefinition, Precondition, RegionId, Replica,
};

fn object(text: &str) -> Object {
    match parse_str(text) {
        Ok(Value::Object(object)) => object,
        other => panic!("{text}: {other:?}"),
    }
}

/// Lets a test keep a reference to the store that it gives to an engine.
impl Store for Arc<MemoryStore> {
    fn view(&self) -> Result<Box<dyn View + '_>, StoreError> {
        (**self).view()
    }

    fn commit(&self, writes: &mut dyn Iterator<Item = Write<'_>>) -> Result<(), StoreError> {
        (**self).commit(writes)
    }

    fn is_durable(&self) -> bool {
        false
    }
}

/// The definition of a container whose documents can expire and have a unique key.
fn definition() -> ParsedDefinition {
    let body = r#"{"id":"c","defaultTtl":-1,"partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},
        "uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/n"]}]}}"#;
    ParsedDefinition::parse(object(body), ApiVersion::Current).unwrap()
}

/// A store with twenty documents, some of them expiring, an index, and a split range.
async fn filled_store() -> Arc<MemoryStore> {
    let store = Arc::new(MemoryStore::new());
    let engine = Engine::open(Arc::clone(&store), EngineOptions::default()).unwrap();
    engine.create_database(object(r#"{"id":"d"}"#), None).await.unwrap();
    let container = engine.create_container("d", definition(), None).await.unwrap();
    for n in 0..20 {
        let key = PartitionKey::from_header(&format!(r#"["k{}"]"#, n % 3)).unwrap();
        let ttl = if n % 5 == 4 { r#","ttl":1000"# } else { "" };
        let body = object(&format!(r#"{{"id":"{n}","pk":"k{}","n":{n}{ttl}}}"#, n % 3));
        let body = NewBody::new(body, &container).unwrap();
        let operation = ItemOperation::Upsert { body };
        engine.write_item(&container, key, operation, Precondition::default()).await.unwrap();
    }
    let columns = vec![Column { path: vec!["n".to_owned()], is_descending: false }];
    let shape = IndexShape { scope: IndexScope::Segment, columns };
    engine.build_index(&container, shape).await.unwrap();
    let range = container.ranges[0].id;
    engine.split(&container, range).await.unwrap();
    store
}

/// The first key with this first byte (`keys.rs`), and its value.
fn first(store: &MemoryStore, kind: u8) -> (Vec<u8>, Bytes) {
    let view = store.view().unwrap();
    let key = OwnedKeyRange::prefix(&[kind]).first_keys(&*view, 1).unwrap().remove(0);
    let value = view.get(&key).unwrap().unwrap();
    (key, value)
}

#[tokio::test]
async fn sound_data_has_no_problems() {
    let report = check(&*filled_store().await).unwrap();
    assert_eq!(report.descriptions, Vec::<String>::new());
    assert_eq!((report.containers, report.documents, report.index_entries), (1, 20, 20));
}

#[tokio::test]
async fn each_kind_of_damage_is_named() {
    for (kind, what) in [
        (0x04, "its counters are missing"),
        (0x10, "its counters say 20 documents"),
        (0x18, "its id is missing"),
        (0x19, "its entry in the list of its partition is missing"),
        (0x13, "its entry in the change feed is missing"),
        (0x16, "its index entry is missing"),
        (0x17, "its entry in the expiry list is missing"),
        (0x1A, "its unique key is missing"),
    ] {
        let store = filled_store().await;
        let (key, _) = first(&store, kind);
        store.commit(&mut [Write { key: &key, value: None }].into_iter()).unwrap();
        let report = check(&*store).unwrap();
        let texts = &report.descriptions;
        assert!(texts.iter().any(|text| text.contains(what)), "{kind:#x}: {texts:?}");
    }
    // A key without a document.
    for (kind, what) in [(0x17, "5 entries in the expiry list for 4"), (0x1A, "21 unique keys")] {
        let store = filled_store().await;
        let (mut key, value) = first(&store, kind);
        *key.last_mut().unwrap() ^= 0x80;
        store.commit(&mut [Write { key: &key, value: Some(&value) }].into_iter()).unwrap();
        let texts = check(&*store).unwrap().descriptions;
        assert!(texts.iter().any(|text| text.contains(what)), "{kind:#x}: {texts:?}");
    }
    // A document record that is cut to a third, and one that lacks its last byte.
    for divisor in [3, 1] {
        let store = filled_store().await;
        let (key, value) = first(&store, 0x10);
        let cut = value.slice(..value.len() / divisor - 1);
        store.commit(&mut [Write { key: &key, value: Some(&cut) }].into_iter()).unwrap();
        assert!(check(&*store).unwrap().problems > 0, "{divisor}");
    }
}

/// Two regions write documents with the same unique key. In the second region the key belongs to the
/// document `first`, which the region applies after its own write. When `first` is deleted, the key
/// is removed, although the document `second` has the same values.
#[tokio::test]
async fn a_unique_key_that_two_regions_wrote_is_not_reported() {
    let stores = [Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new())];
    let engines = [0, 1].map(|region| {
        let replica = Replica { region: RegionId(region), regions: 2 };
        let options = EngineOptions::default().with_replica(Some(replica));
        Engine::open(Arc::clone(&stores[usize::from(region)]), options).unwrap()
    });
    engines[0].create_database(object(r#"{"id":"d"}"#), None).await.unwrap();
    let container = engines[0].create_container("d", definition(), None).await.unwrap();
    engines[1].copy_catalog_from(&engines[0]).await.unwrap();
    let key = || PartitionKey::from_header(r#"["k"]"#).unwrap();
    for (engine, id) in engines.iter().zip(["first", "second"]) {
        let body = NewBody::new(object(&format!(r#"{{"id":"{id}","pk":"k","n":1}}"#)), &container).unwrap();
        let operation = ItemOperation::Create { body };
        engine.write_item(&container, key(), operation, Precondition::default()).await.unwrap();
    }
    let changes = engines[0].outbox(0, u64::MAX).unwrap();
    engines[1].apply(RegionId(0), changes).await.unwrap();
    for documents in [2, 1] {
        let report = check(&*stores[1]).unwrap();
        assert_eq!((report.documents, report.descriptions), (documents, Vec::new()));
        let delete = ItemOperation::Delete { id: "first".to_owned() };
        let _ = engines[1].write_item(&container, key(), delete, Precondition::default()).await;
    }
}
