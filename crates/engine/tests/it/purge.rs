//! Deleting a container purges its documents in the background, and nothing else.

use std::sync::Arc;

use perihelion_engine::body::NewBody;
use perihelion_engine::container::{ApiVersion, Container, ParsedDefinition};
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

async fn container(engine: &Engine, name: &str) -> Arc<Container> {
    let body =
        object(&format!(r#"{{"id":"{name}","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}}}"#));
    let definition = ParsedDefinition::parse(body, ApiVersion::Current).unwrap();
    engine.create_container("d", definition, None).await.unwrap()
}

fn key(n: usize) -> PartitionKey {
    PartitionKey::from_header(&format!("[\"k{}\"]", n % 10)).unwrap()
}

async fn fill(engine: &Engine, container: &Arc<Container>, documents: usize) {
    for n in 0..documents {
        let body = object(&format!(r#"{{"id":"{n}","pk":"k{}","pad":"{}"}}"#, n % 10, "x".repeat(300)));
        let operation = ItemOperation::Create { body: NewBody::new(body, container).unwrap() };
        engine.write_item(container, key(n), operation, Precondition::default()).await.unwrap();
    }
}

fn missing(engine: &Engine, container: &Arc<Container>, documents: usize) -> Vec<usize> {
    let is_missing = |n: &usize| {
        let target = Target::resolve(container, key(*n)).unwrap();
        engine.read_item(&target, &n.to_string(), &Precondition::default(), &[]).is_err()
    };
    (0..documents).filter(is_missing).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_takes_nothing_of_other_containers() {
    let engine = Arc::new(Engine::open(MemoryStore::new(), EngineOptions::default()).unwrap());
    engine.create_database(object(r#"{"id":"d"}"#), None).await.unwrap();
    let mut old: Option<Arc<Container>> = None;
    for round in 0..6 {
        let new = container(&engine, &format!("c{round}")).await;
        let purging = old.take().map(|old| {
            let engine = Arc::clone(&engine);
            tokio::spawn(async move {
                engine.delete_container(&old).await.unwrap();
                engine.maintain().await.unwrap();
            })
        });
        fill(&engine, &new, 3000).await;
        assert_eq!(missing(&engine, &new, 3000), Vec::<usize>::new(), "round {round}");
        if let Some(purging) = purging {
            purging.await.unwrap();
        }
        assert_eq!(missing(&engine, &new, 3000), Vec::<usize>::new(), "round {round}, after the purge");
        old = Some(new);
    }
}
