//! A partition that grows too large is split by maintenance.

use perihelion_engine::body::NewBody;
use perihelion_engine::container::{ApiVersion, ParsedDefinition};
use perihelion_engine::items::{ItemOperation, Precondition, Target};
use perihelion_engine::storage::MemoryStore;
use perihelion_engine::{Engine, EngineOptions};
use perihelion_model::json::{Object, Value, parse_str};
use perihelion_model::partition_key::PartitionKey;

fn object(text: &str) -> Object {
    match parse_str(text) {
        Ok(Value::Object(object)) => object,
        other => panic!("{text}: {other:?}"),
    }
}

fn key(n: usize) -> PartitionKey {
    PartitionKey::from_header(&format!("[\"k{n}\"]")).unwrap()
}

#[tokio::test]
async fn a_partition_over_its_size_is_split_until_each_part_fits() {
    const DOCUMENTS: usize = 200;
    let options = EngineOptions::default().with_partition_bytes_max(20_000);
    let engine = Engine::open(MemoryStore::new(), options).unwrap();
    engine.create_database(object(r#"{"id":"d"}"#), None).await.unwrap();
    let body = object(r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#);
    let definition = ParsedDefinition::parse(body, ApiVersion::Current).unwrap();
    let container = engine.create_container("d", definition, None).await.unwrap();
    for n in 0..DOCUMENTS {
        let body = object(&format!(r#"{{"id":"{n}","pk":"k{n}","pad":"{}"}}"#, "x".repeat(200)));
        let operation = ItemOperation::Create { body: NewBody::new(body, &container).unwrap() };
        engine.write_item(&container, key(n), operation, Precondition::default()).await.unwrap();
    }
    let bytes = engine.state(&container).unwrap().bytes();
    assert!(bytes > 80_000, "{bytes}");

    // Each round halves what is too large.
    for _ in 0..8 {
        engine.maintain().await.unwrap();
    }
    let catalog = engine.catalog();
    let split = catalog.container("d", "c").unwrap();
    let state = engine.state(split).unwrap();
    assert!(split.ranges.len() >= 5, "{:?}", split.ranges);
    assert!(state.ranges.iter().all(|range| range.bytes <= 20_000), "{state:?}");
    assert_eq!((state.documents(), state.bytes()), (DOCUMENTS as u64, bytes));
    assert!(split.was_split(0) && split.range(0).is_none());
    for n in 0..DOCUMENTS {
        let target = Target::resolve(split, key(n)).unwrap();
        let answer = engine.read_item(&target, &n.to_string(), &Precondition::default(), &[]).unwrap();
        assert_eq!(answer.status, 200);
    }
}
