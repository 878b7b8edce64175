//! Tests of the check: it accepts sound data, and names each kind of damage.

use perihelion_model::json::{Object, parse_str};
use perihelion_model::partition_key::PartitionKey;

use super::*;
use crate::storage::{MemoryStore, Write};
use crate::{
    ApiVersion, Column, Engine, EngineOptions, IndexScope, IndexShape, ItemOperation, NewBody,
    ParsedDefinition, Precondition,
};

fn object(text: &str) -> Object {
    match parse_str(text) {
        Ok(Value::Object(object)) => object,
        other => panic!("{text}: {other:?}"),
    }
}

/// Lets a test look at the store of an engine.
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

/// A store with twenty documents, some of them expiring, an index, and a split range.
async fn filled_store() -> Arc<MemoryStore> {
    let store = Arc::new(MemoryStore::new());
    let engine = Engine::open(Arc::clone(&store), EngineOptions::default()).unwrap();
    engine.create_database(object(r#"{"id":"d"}"#), None).await.unwrap();
    let body = r#"{"id":"c","defaultTtl":-1,"partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
    let definition = ParsedDefinition::parse(object(body), ApiVersion::Current).unwrap();
    let container = engine.create_container("d", definition, None).await.unwrap();
    for n in 0..20 {
        let key = PartitionKey::from_header(&format!(r#"["k{}"]"#, n % 3)).unwrap();
        let ttl = if n % 5 == 0 { r#","ttl":1000"# } else { "" };
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
    ] {
        let store = filled_store().await;
        let (key, _) = first(&store, kind);
        store.commit(&mut [Write { key: &key, value: None }].into_iter()).unwrap();
        let report = check(&*store).unwrap();
        let texts = &report.descriptions;
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
