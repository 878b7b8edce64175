//! A test of a promise that ends because its activity does not exist any more.

use duroxide::providers::{TagFilter, WorkItem};
use perihelion_client::Client;
use perihelion_server::{Embedded, EmbeddedOptions};

use super::*;
use crate::CosmosDBProvider;
use crate::plan::activity_document;

/// The answer of the commit was lost, and the activity was completed (its document was deleted)
/// before this process could read the activity.
#[tokio::test]
async fn a_promise_ends_when_its_activity_was_completed_before_the_hand_over() {
    let engine = Embedded::open(EmbeddedOptions::default()).await.unwrap();
    let client = Client::over(&engine.endpoint(), engine.transport()).await.unwrap();
    let provider = CosmosDBProvider::builder().with_client(client).open().await.unwrap();
    let core = &provider.core;
    let item = WorkItem::ActivityExecute {
        instance: "a".into(),
        execution_id: 1,
        id: 1,
        name: "charge".into(),
        input: String::new(),
        session_id: None,
        tag: None,
    };
    let activity = activity_document(&item, core.clock.stamp()).unwrap();
    let (lease, hints) = (Duration::from_secs(30), &core.hints.activities);
    let worker = hints.with(|hints| hints.add_waiting_worker(&TagFilter::default(), lease));
    assert_eq!(hints.with(|hints| hints.promise(&activity)), Some((worker, lease)));
    assert_eq!(hints.with(|hints| hints.promise(&activity)), None, "the only worker has a promise already");
    let promises = vec![Some(Promise { worker, lease, nonce: lock_nonce("process", 0) })];
    DirectDispatch::new(core, promises).hand_over(vec![activity.clone()], Vec::new()).await;
    assert_eq!(hints.with(|hints| hints.promise(&activity)), Some((worker, lease)));
}
