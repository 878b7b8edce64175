//! Tests of maintenance and the time to live: every document that expires is removed in the end,
//! whatever happens while maintenance runs.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use perihelion_engine::storage::MemoryStore;
use perihelion_engine::{
    ApiVersion, Clock, Container, Engine, EngineOptions, ItemOperation, NewBody, ParsedDefinition,
    Precondition,
};
use perihelion_model::partition_key::PartitionKey;

use crate::support::{ObservedStore, fill, object};

/// The first byte of the keys of documents (`keys.rs`).
const DOCUMENT: u8 = 0x10;
/// More documents than one job of maintenance visits.
const DOCUMENTS: usize = 1500;

/// The definition of the container `c`; `ttl` is empty, or a JSON member followed by a comma.
fn definition(ttl: &str) -> ParsedDefinition {
    let key = r#"{"paths":["/pk"],"kind":"Hash","version":2}"#;
    let body = object(&format!(r#"{{"id":"c",{ttl}"partitionKey":{key}}}"#));
    ParsedDefinition::parse(body, ApiVersion::Current).unwrap()
}

async fn create_container(engine: &Engine, ttl: &str) -> Arc<Container> {
    engine.create_database(object(r#"{"id":"d"}"#), None).await.unwrap();
    engine.create_container("d", definition(ttl), None).await.unwrap()
}

/// Story of a bug: maintenance listed a document that had just expired. The job of maintenance
/// joined a group that had begun a moment before, when the document was not expired yet. The job kept
/// the document but removed it from the expiry list, so the document was never removed.
#[tokio::test]
async fn a_document_that_is_not_expired_for_the_job_is_removed_later() {
    let seconds = Arc::new(AtomicU64::new(1_800_000_000));
    // How many of the next readings of the clock are one second ahead.
    let readings_ahead = Arc::new(AtomicU64::new(0));
    let clock = Clock::from_fn({
        let (seconds, readings_ahead) = (Arc::clone(&seconds), Arc::clone(&readings_ahead));
        move || {
            let take_one = |left: u64| left.checked_sub(1);
            let is_ahead = readings_ahead.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take_one).is_ok();
            Duration::from_secs(seconds.load(Ordering::SeqCst) + u64::from(is_ahead))
        }
    });
    let engine = Engine::open(MemoryStore::new(), EngineOptions::default().with_clock(clock)).unwrap();
    let created = create_container(&engine, r#""defaultTtl":-1,"#).await;
    let body = NewBody::new(object(r#"{"id":"1","pk":"p","ttl":5}"#), &created).unwrap();
    let key = PartitionKey::from_header(r#"["p"]"#).unwrap();
    let operation = ItemOperation::Create { body };
    engine.write_item(&created, key, operation, Precondition::default()).await.unwrap();
    let documents = || engine.state(&created).unwrap().documents();

    seconds.fetch_add(4, Ordering::SeqCst);
    // The first reading decides which documents maintenance lists.
    readings_ahead.store(1, Ordering::SeqCst);
    engine.maintain().await.unwrap();
    assert_eq!((documents(), readings_ahead.load(Ordering::SeqCst)), (1, 0));

    seconds.fetch_add(100, Ordering::SeqCst);
    engine.maintain().await.unwrap();
    assert_eq!(documents(), 0, "the expired document is removed");
}

/// Story of a bug: when the time to live changed while maintenance updated the expiry list for an
/// earlier change, maintenance took the second change as done. Documents that it had visited before
/// kept the expiry of the first change.
#[tokio::test]
async fn a_second_change_of_the_ttl_while_the_expiry_list_is_updated_is_not_lost() {
    type Change = Pin<Box<dyn Future<Output = ()> + Send>>;
    let seconds = Arc::new(AtomicU64::new(1_800_000_000));
    let clock_seconds = Arc::clone(&seconds);
    let clock = Clock::from_fn(move || Duration::from_secs(clock_seconds.load(Ordering::SeqCst)));
    // The next commit of documents submits this change. The writer runs it after that commit, so
    // before the next job of maintenance.
    let change: Arc<Mutex<Option<Change>>> = Arc::default();
    let submitted: Arc<Mutex<Option<Change>>> = Arc::default();
    let store = ObservedStore::new({
        let (change, submitted) = (Arc::clone(&change), Arc::clone(&submitted));
        move |keys: &[&[u8]]| {
            if keys.iter().any(|key| key[0] == DOCUMENT)
                && let Some(mut change) = change.lock().unwrap().take()
            {
                assert!(change.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
                *submitted.lock().unwrap() = Some(change);
            }
        }
    });
    let engine = Arc::new(Engine::open(store, EngineOptions::default().with_clock(clock)).unwrap());
    let created = create_container(&engine, r#""defaultTtl":10,"#).await;
    fill(&engine, &created, DOCUMENTS, 3).await;

    engine.replace_container(&created, definition(""), None).await.unwrap();
    *change.lock().unwrap() = Some(Box::pin({
        let (engine, created) = (Arc::clone(&engine), Arc::clone(&created));
        async move {
            engine.replace_container(&created, definition(r#""defaultTtl":10,"#), None).await.unwrap();
        }
    }));
    engine.maintain().await.unwrap();
    let submitted = submitted.lock().unwrap().take().expect("a change during the update");
    submitted.await;

    seconds.fetch_add(100, Ordering::SeqCst);
    engine.maintain().await.unwrap();
    assert_eq!(engine.state(&created).unwrap().documents(), 0, "every document has expired");
}
