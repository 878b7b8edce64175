//! Sessions of activities that this process cannot run, and gives up for another process.

use std::time::Duration;

use duroxide::providers::{Provider, SessionFetchConfig, TagFilter, WorkItem};
use serde_json::Value;
use tokio::time::Instant;

use super::recorded_process::RecordedProcess;
use super::{LOCK, World, activity_item};
use crate::CosmosDBProvider;
use crate::plan::session_document_key;

/// The delay with which the runtime first gives back an activity that is not registered.
const NOT_REGISTERED: Duration = Duration::from_secs(1);

/// The locks of this test last longer than the test.
const LONG_LOCK: Duration = LOCK.saturating_mul(20);

/// The longest wait of a fetch.
const FETCHED_WITHIN: Duration = Duration::from_secs(600);

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
    let (id, token, _) = fetch_attempt(provider, owner).await;
    (id, token)
}

/// Fetches an activity as [`fetch`] does. Also returns the number of the attempt.
async fn fetch_attempt(provider: &CosmosDBProvider, owner: &str) -> (u64, String, u32) {
    let config = SessionFetchConfig { owner_id: owner.to_owned(), lock_timeout: LONG_LOCK };
    let fetched =
        provider.fetch_work_item(LONG_LOCK, FETCHED_WITHIN, Some(&config), &TagFilter::default()).await;
    match fetched.unwrap().expect("an activity") {
        (WorkItem::ActivityExecute { id, .. }, token, attempt) => (id, token, attempt),
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

/// Another process has tried to claim the session, and knows when the session's lock would end. It does
/// not wait for that time after the session was given up.
#[tokio::test(start_paused = true)]
async fn a_process_that_waits_for_a_session_takes_it_soon_after_it_was_given_up() {
    let world = World::open().await;
    let (here, there) = (world.provider().await, world.provider().await);
    here.enqueue_for_worker(in_session(1)).await.unwrap();
    let (_, first_token) = fetch(&here, "here").await;
    there.enqueue_for_worker(in_session(2)).await.unwrap();
    let waiting = tokio::spawn(async move { fetch(&there, "there").await });
    // Both processes write heartbeats meanwhile.
    tokio::time::sleep(Duration::from_secs(20)).await;

    let (second, token) = fetch(&here, "here").await;
    assert_eq!(second, 2, "the other process has not got the session");
    here.ack_work_item(&first_token, None).await.unwrap();
    here.abandon_work_item(&token, Some(NOT_REGISTERED), false).await.unwrap();
    assert_eq!(owner(&here).await, None, "the session is given up");
    let begun = Instant::now();
    let (elsewhere, _) = waiting.await.unwrap();
    assert_eq!((elsewhere, owner(&here).await.as_deref()), (2, Some("there")));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

/// Only this process may take the activity while its session stays here. So the attempts are not
/// counted, because the process that can run the activity lives and cannot take it.
#[tokio::test(start_paused = true)]
async fn attempts_do_not_count_while_another_activity_keeps_the_session_here() {
    /// The runtime poisons an activity after eleven attempts.
    const ATTEMPTS: usize = 12;
    let world = World::open().await;
    let (here, there) = (world.provider().await, world.provider().await);
    for id in [1, 2] {
        here.enqueue_for_worker(in_session(id)).await.unwrap();
    }
    let ((_, mut token), (_, second_token)) = (fetch(&here, "here").await, fetch(&here, "here").await);
    let waiting = tokio::spawn(async move { fetch_attempt(&there, "there").await });
    tokio::time::sleep(Duration::from_secs(20)).await;
    for _ in 0..ATTEMPTS {
        here.abandon_work_item(&token, Some(NOT_REGISTERED), false).await.unwrap();
        let (again, next_token, attempt) = fetch_attempt(&here, "here").await;
        assert_eq!((again, attempt), (1, 1));
        token = next_token;
    }
    here.ack_work_item(&second_token, None).await.unwrap();
    here.abandon_work_item(&token, Some(NOT_REGISTERED), false).await.unwrap();
    let (elsewhere, _, attempt) = waiting.await.unwrap();
    assert_eq!((elsewhere, attempt), (1, 1));
}

/// The answer to the lock of the first activity is late. Meanwhile the second activity of the session is
/// fetched and given back, because this process cannot run it.
#[tokio::test(start_paused = true)]
async fn a_session_stays_while_one_of_its_activities_is_being_locked() {
    let world = World::open().await;
    let process = RecordedProcess::new(&world);
    let (here, there) = (process.provider(&world).await, world.provider().await);
    let waiting = tokio::spawn(async move { fetch(&there, "there").await });
    // Both processes write heartbeats.
    let idle = here.fetch_work_item(LOCK, Duration::from_secs(20), None, &TagFilter::default()).await;
    assert!(idle.unwrap().is_none());

    for id in [1, 2] {
        here.enqueue_for_worker(in_session(id)).await.unwrap();
    }
    let (again, (send, given_back)) = (here.clone(), tokio::sync::oneshot::channel());
    process.before_answer_to("/attemptCount", async move {
        // The second activity is locked later than the session was claimed for the first.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let (second, token) = fetch(&again, "here").await;
        again.abandon_work_item(&token, Some(NOT_REGISTERED), false).await.unwrap();
        send.send((second, owner(&again).await)).unwrap();
    });
    let (first, _) = fetch(&here, "here").await;
    let (second, owner_then) = given_back.await.unwrap();
    assert_eq!((first, second, owner_then.as_deref()), (1, 2, Some("here")));
    assert_eq!(owner(&here).await.as_deref(), Some("here"), "the first activity runs");
    waiting.abort();
}

/// Story of a bug, which the simulation found: the answers of the deletion were lost, the next attempt found
/// no session, and the session stayed in the memory of the process.
#[tokio::test(start_paused = true)]
async fn a_session_whose_deletion_lost_its_answers_is_removed_from_memory() {
    let world = World::open().await;
    let (here, there) = (world.provider().await, world.provider().await);
    here.enqueue_for_worker(in_session(1)).await.unwrap();
    let (_, token) = fetch(&here, "here").await;
    let waiting = tokio::spawn(async move { fetch(&there, "there").await });
    // Both processes write heartbeats meanwhile.
    tokio::time::sleep(Duration::from_secs(30)).await;

    world.inject_fault(r#"{"operation":"delete_item","count":8,"drop":"after"}"#).await;
    here.abandon_work_item(&token, Some(NOT_REGISTERED), false).await.unwrap();
    waiting.await.unwrap();
    assert_eq!(owner(&here).await.as_deref(), Some("there"));
    assert!(!here.core.sessions.is_owned("printer"));
}

/// While a session keeps an activity here that cannot run here, its delays grow, and after five minutes its
/// attempts count.
#[tokio::test(start_paused = true)]
async fn an_activity_that_its_session_keeps_here_is_counted_after_five_minutes() {
    let world = World::open().await;
    let (here, there) = (world.provider().await, world.provider().await);
    for id in [1, 2] {
        here.enqueue_for_worker(in_session(id)).await.unwrap();
    }
    let (_, mut token) = fetch(&here, "here").await;
    let _other = fetch(&here, "here").await;
    let _waiting = tokio::spawn(async move { fetch(&there, "there").await });
    tokio::time::sleep(Duration::from_secs(20)).await;

    let begun = Instant::now();
    let mut fetches = 0;
    let counted = loop {
        here.abandon_work_item(&token, Some(NOT_REGISTERED), false).await.unwrap();
        let (_, next, attempt) = fetch_attempt(&here, "here").await;
        token = next;
        fetches += 1;
        if attempt > 1 {
            break begun.elapsed();
        }
        assert!(fetches < 100, "the activity is fetched every second");
    };
    assert!(counted >= Duration::from_secs(250), "{counted:?}");
    assert!(counted < Duration::from_secs(400), "{counted:?}");
}

/// Story of a bug, which the simulation found: the first renewal of an owner found that the lock of a session
/// had expired, and removed the session. Then it read the stored sessions of the owner, and added it again.
#[tokio::test(start_paused = true)]
async fn a_session_whose_lock_has_expired_leaves_the_memory_with_the_first_renewal() {
    let world = World::open().await;
    let here = world.provider().await;
    here.enqueue_for_worker(in_session(1)).await.unwrap();
    fetch(&here, "here").await;
    assert!(here.core.sessions.is_owned("printer"));
    tokio::time::sleep(LONG_LOCK + Duration::from_secs(1)).await;
    assert_eq!(here.renew_session_lock(&["here"], LOCK, LONG_LOCK * 2).await.unwrap(), 0);
    assert!(!here.core.sessions.is_owned("printer"));
}
