//! Sessions of activities that this process cannot run, and gives up for another process.

use std::time::Duration;

use duroxide::providers::{Provider, SessionFetchConfig, TagFilter, WorkItem};
use serde_json::Value;

use super::{LOCK, World, activity_item};
use crate::CosmosDBProvider;
use crate::plan::session_document_key;

/// The delay with which the runtime first gives back an activity that is not registered.
const NOT_REGISTERED: Duration = Duration::from_secs(1);

/// The locks of this test last longer than the test.
const LONG_LOCK: Duration = LOCK.saturating_mul(20);

/// The longest wait of a fetch. The session moves in a few seconds.
const FETCHED_WITHIN: Duration = Duration::from_secs(60);

/// An activity of the instance `a` in the session `printer`.
fn in_session(id: u64) -> WorkItem {
    match activity_item("a", id, String::new()) {
        WorkItem::ActivityExecute { instance, execution_id, id, name, input, tag, .. } => {
            let session_id = Some("printer".to_owned());
            WorkItem::ActivityExecute { instance, execution_id, id, name, input, session_id, tag }
        }
        other => other,
    }
}

/// Waits for an activity, for a worker that owns sessions under this name. Returns the activity's id and
/// its token.
async fn fetch(provider: &CosmosDBProvider, owner: &str) -> (u64, String) {
    let config = SessionFetchConfig { owner_id: owner.to_owned(), lock_timeout: LONG_LOCK };
    let fetched =
        provider.fetch_work_item(LONG_LOCK, FETCHED_WITHIN, Some(&config), &TagFilter::default()).await;
    match fetched.unwrap().expect("an activity") {
        (WorkItem::ActivityExecute { id, .. }, token, _) => (id, token),
        (other, ..) => panic!("{other:?}"),
    }
}

/// The stored owner of the session.
async fn owner(provider: &CosmosDBProvider) -> Option<String> {
    let (id, key) = session_document_key("printer");
    let found = provider.core.store.container.find::<Value>(key, &id).await.unwrap();
    found.map(|found| found.value["owner"].as_str().unwrap_or_default().to_owned())
}

/// A process gives back an activity that it cannot run. Its session stays while another activity of the
/// session runs here. Then the process gives the session up, and another process takes both, although the
/// lock of the session would last for minutes.
#[tokio::test(start_paused = true)]
async fn a_session_is_given_up_when_none_of_its_activities_runs() {
    let world = World::open().await;
    let (here, there) = (world.provider().await, world.provider().await);
    for id in [1, 2] {
        here.enqueue_for_worker(in_session(id)).await.unwrap();
    }
    let ((first, first_token), (second, second_token)) =
        (fetch(&here, "here").await, fetch(&here, "here").await);
    assert_eq!((first, second), (1, 2));
    let waiting = tokio::spawn(async move { fetch(&there, "there").await });
    // Both processes write heartbeats meanwhile.
    tokio::time::sleep(Duration::from_secs(30)).await;

    here.abandon_work_item(&first_token, Some(NOT_REGISTERED), false).await.unwrap();
    assert_eq!(owner(&here).await.as_deref(), Some("here"), "the second activity runs");
    let (again, token) = fetch(&here, "here").await;
    assert_eq!(again, 1, "no other process may take it");

    here.ack_work_item(&second_token, None).await.unwrap();
    here.abandon_work_item(&token, Some(NOT_REGISTERED), false).await.unwrap();
    assert_eq!(owner(&here).await, None, "the session is given up");
    let (elsewhere, _) = waiting.await.unwrap();
    assert_eq!((elsewhere, owner(&here).await.as_deref()), (1, Some("there")));
}
