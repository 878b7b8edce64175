//! `CosmosDBProvider::overdue`: work that no process takes is found, even beside fresh work, broken
//! documents and a partition that does not answer.

use std::time::Duration;

use duroxide::providers::{Provider, TagFilter, WorkItem};
use duroxide_cdb::{CosmosDBProvider, OverdueInfo, QueueKind};
use perihelion_server::EmbeddedOptions;
use perihelion_testkit::TestServer;
use serde_json::json;

use super::{LOCK, POLL_ONCE, event, metadata, provider, start, work};

const MINUTE: Duration = Duration::from_secs(60);

async fn server(partitions: u32) -> TestServer {
    TestServer::in_process(EmbeddedOptions::default().with_partitions(partitions).with_strict_gateway(true))
        .await
}

/// Runs one turn, which schedules these activities.
async fn turn(provider: &CosmosDBProvider, activities: Vec<WorkItem>) {
    let (item, token, _) = provider.fetch_orchestration_item(LOCK, POLL_ONCE, None).await.unwrap().unwrap();
    let (history, metadata) = (vec![event(&item.instance, 1)], metadata("Order", None));
    provider.ack_orchestration_item(&token, 1, history, activities, vec![], metadata, vec![]).await.unwrap();
}

/// The instance and the name of each overdue entry.
fn shown(entries: &[OverdueInfo]) -> Vec<(&str, &str)> {
    entries.iter().map(|entry| (entry.instance_id.as_str(), entry.name.as_deref().unwrap_or("-"))).collect()
}

#[tokio::test(start_paused = true)]
async fn a_start_and_an_activity_that_no_process_takes_are_overdue() {
    let server = server(4).await;
    let provider = provider(&server).await;
    provider.enqueue_for_orchestrator(start("order-1", None), None).await.unwrap();
    let mut large = work("order-1", 3);
    let WorkItem::ActivityExecute { input, name, tag, .. } = &mut large else { panic!("{large:?}") };
    (*input, *name, *tag) = ("x".repeat(100_000), "pack \"gift\"".to_owned(), Some("gpu".to_owned()));
    turn(&provider, vec![work("order-1", 2), large]).await;
    // No worker has registered the first activity: it is given back.
    let fetched = provider.fetch_work_item(LOCK, POLL_ONCE, None, &TagFilter::default()).await.unwrap();
    let (_, token, _) = fetched.expect("the activity without a tag");
    provider.abandon_work_item(&token, None, false).await.unwrap();
    tokio::time::advance(Duration::from_secs(10)).await;
    provider.enqueue_for_orchestrator(start("order-2", None), None).await.unwrap();
    assert_eq!(provider.overdue(MINUTE).await.unwrap().entries, []);

    tokio::time::advance(MINUTE + Duration::from_secs(1)).await;
    let work = provider.overdue(MINUTE).await.unwrap();
    let expected = [("order-2", "start of Order"), ("order-1", "charge"), ("order-1", "pack \"gift\"")];
    let mut found = shown(&work.entries);
    found[1..].sort_unstable();
    assert_eq!(found, expected);
    assert!(work.is_complete);
    let kinds: Vec<QueueKind> = work.entries.iter().map(|entry| entry.kind).collect();
    assert_eq!(kinds, [QueueKind::Turns, QueueKind::Activities, QueueKind::Activities]);
    for entry in &work.entries[1..] {
        let was_given_back = entry.name.as_deref() == Some("charge");
        let expected = if was_given_back { (1, None) } else { (0, Some("gpu")) };
        assert_eq!((entry.attempts, entry.tag.as_deref()), expected, "{entry:?}");
    }
}

/// A message that is due at once is stored with a time two minutes in the past, so it comes before
/// a timer in the order of the query.
#[tokio::test(start_paused = true)]
async fn fresh_messages_do_not_hide_an_overdue_timer() {
    let server = server(1).await;
    let provider = provider(&server).await;
    provider.enqueue_for_orchestrator(start("late", None), Some(Duration::from_secs(30))).await.unwrap();
    tokio::time::advance(2 * MINUTE).await;
    for number in 0..60 {
        provider.enqueue_for_orchestrator(start(&format!("fresh-{number}"), None), None).await.unwrap();
    }
    let work = provider.overdue(MINUTE).await.unwrap();
    assert_eq!(shown(&work.entries), [("late", "start of Order")]);
}

#[tokio::test(start_paused = true)]
async fn a_broken_document_hides_no_overdue_work() {
    let server = server(1).await;
    let provider = provider(&server).await;
    provider.enqueue_for_orchestrator(start("order-1", None), None).await.unwrap();
    let container = server.client().await.database("duroxide").container("duroxide");
    let broken = json!({"id": "m:1", "instanceId": "broken", "type": "orch_queue", "visibleAt": 1, "enq": 2,
        "attemptCount": "many", "item": "{\"StartOrchestration\":"});
    container.create("broken", &broken).await.unwrap();
    tokio::time::advance(2 * MINUTE).await;
    let work = provider.overdue(MINUTE).await.unwrap();
    assert_eq!(shown(&work.entries), [("order-1", "start of Order")]);
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_fails_hides_no_work_of_the_others() {
    let server = server(4).await;
    let provider = provider(&server).await;
    for number in 0..40 {
        provider.enqueue_for_orchestrator(start(&format!("order-{number}"), None), None).await.unwrap();
    }
    tokio::time::advance(2 * MINUTE).await;
    let whole = provider.overdue(MINUTE).await.unwrap();
    assert_eq!((whole.entries.len(), whole.is_complete), (40, true));
    server.fault(r#"{"operation":"query","count":1,"status":400}"#).await;
    let partial = provider.overdue(MINUTE).await.unwrap();
    assert!(!partial.is_complete && (1..40).contains(&partial.entries.len()), "{}", partial.entries.len());
    server.fault(r#"{"operation":"query","count":8,"status":400}"#).await;
    assert!(provider.overdue(MINUTE).await.is_err(), "no partition answers");
}
