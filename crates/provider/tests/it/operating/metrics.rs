//! The provider's own counts of requests agree with the server's.

use duroxide::providers::{Provider, ProviderAdmin};
use duroxide_cdb::{CosmosDBProvider, ListOptions};
use perihelion_server::EmbeddedOptions;
use perihelion_testkit::TestServer;

use super::{LOCK, POLL_ONCE, provider, smallest_workflow, start};

#[tokio::test]
async fn the_provider_counts_what_the_server_counts() {
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    let provider = provider(&server).await;
    // The first request loads the container's metadata, which the provider does not count.
    smallest_workflow(&provider, "first").await;
    let before = provider.metrics();
    server.reset_counters().await;
    for n in 0..3 {
        smallest_workflow(&provider, &format!("order {n}")).await;
    }
    let (after, counts) = (provider.metrics(), server.request_counts().await);
    assert_eq!(after.requests - before.requests, counts.requests, "{counts:?}");
    let spent = after.request_units - before.request_units;
    let charged = counts.request_units;
    assert!((spent - charged).abs() < 0.1, "{spent} RU by the provider, {charged} RU by the server");
    let calls = |name: &str| after.methods[name].calls - before.methods[name].calls;
    assert_eq!(calls("enqueue_for_orchestrator"), 3);
    assert_eq!(calls("fetch_orchestration_item"), 6);
    assert_eq!(calls("ack_orchestration_item"), 6);
    assert_eq!(calls("ack_work_item"), 3);
    assert!(after.methods["ack_orchestration_item"].latency.max_us > 0);
    assert_eq!((after.conflicts, after.throttles, after.steals), (0, 0, 0));
}

/// Story of a bug: the dashboard counted the listing of one workflow as background. The server counts it
/// as requests to one partition key.
#[tokio::test]
async fn only_requests_that_are_not_about_one_instance_are_background() {
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    let worker = provider(&server).await;
    smallest_workflow(&worker, "order").await;
    worker.close().await;
    let builder = CosmosDBProvider::builder().with_client(server.client().await);
    // A provider for tools has no heartbeats.
    let tools = builder.for_tools().open().await.unwrap();
    let background = || tools.metrics().background_request_units;
    tools.list(&ListOptions::new()).await.unwrap();
    let before = background();
    tools.list(&ListOptions::new().with_id("order")).await.unwrap();
    tools.read("order").await.unwrap();
    assert_eq!(background(), before);
    server.reset_counters().await;
    // A tree is read with requests of both kinds.
    tools.tree("order").await.unwrap();
    tools.list(&ListOptions::new()).await.unwrap();
    let (counters, spent) = (server.counters().await, background() - before);
    let one_key = counters["onePartitionKey"]["requestUnits"].as_f64().unwrap();
    let charged = counters["requestUnits"].as_f64().unwrap() - one_key;
    assert!(one_key > 0.0 && spent > 0.0, "{counters}");
    assert!((spent - charged).abs() < 0.1, "{spent} RU by the provider, {charged} RU by the server");
}

#[tokio::test]
async fn throttled_requests_failed_calls_and_stolen_locks_are_counted() {
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    let (first, second): (CosmosDBProvider, _) = (provider(&server).await, provider(&server).await);
    let fault = r#"{"operation":"create_item","count":2,"status":429,"subStatus":3200,"retryAfterMs":1}"#;
    server.fault(fault).await;
    first.enqueue_for_orchestrator(start("a", None), None).await.unwrap();
    let enqueued = &first.metrics().methods["enqueue_for_orchestrator"];
    assert_eq!((enqueued.calls, enqueued.failures, enqueued.requests), (1, 0, 3), "{enqueued:?}");
    assert_eq!((enqueued.throttles, enqueued.retries), (2, 2));

    assert!(first.ack_work_item("no token", None).await.is_err());
    assert_eq!(first.metrics().methods["ack_work_item"].failures, 1);

    let short = std::time::Duration::from_millis(50);
    first
        .fetch_orchestration_item(short, POLL_ONCE, None)
        .await
        .unwrap()
        .expect("the instance, with a lock that expires");
    let wait = std::time::Duration::from_secs(20);
    second.fetch_orchestration_item(LOCK, wait, None).await.unwrap().expect("the instance");
    assert_eq!((first.metrics().steals, second.metrics().steals), (0, 1));
    assert!(second.metrics().polls > 0);
}

/// The runtime asks for the numbers of instances and of waiting messages once a minute in
/// every process; tools may ask more often. Each number is counted by a query and cached. A
/// writer sees its own writes, and a frequent reader is answered from the cache.
#[tokio::test]
async fn counts_are_fresh_for_a_writer_and_cached_for_a_frequent_reader() {
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    let provider = provider(&server).await;
    for n in 1..=3 {
        smallest_workflow(&provider, &format!("order {n}")).await;
        assert_eq!(provider.get_system_metrics().await.unwrap().completed_instances, n);
        let waiting = format!("waiting {n}");
        provider.enqueue_for_orchestrator(start(&waiting, None), None).await.unwrap();
        assert_eq!(provider.get_queue_depths().await.unwrap().orchestrator_queue, 1);
        provider.delete_instances_atomic(&[waiting], true).await.unwrap();
    }
    let requests = |name: &str| provider.metrics().methods[name].requests;
    let before = (requests("get_system_metrics"), requests("get_queue_depths"));
    for _ in 0..200 {
        let (metrics, depths) = tokio::join!(provider.get_system_metrics(), provider.get_queue_depths());
        assert_eq!((metrics.unwrap().total_instances, depths.unwrap().worker_queue), (3, 0));
    }
    // Nothing is written between these calls, so only the first call of each method counts again. A
    // count takes at most two requests (plan and query), system metrics take two counts, and queue
    // depths three.
    assert!(requests("get_system_metrics") <= before.0 + 2 * 2);
    assert!(requests("get_queue_depths") <= before.1 + 3 * 2);
    for n in 0..100 {
        provider.enqueue_for_orchestrator(start(&format!("later {n}"), None), None).await.unwrap();
        provider.get_queue_depths().await.unwrap();
    }
    // Each write outdates the cached depths, but the budget pays for only about twenty new
    // counts in a row. After that, calls return the outdated depths from the cache.
    assert!(requests("get_queue_depths") <= before.1 + 25 * 3 * 2, "{}", requests("get_queue_depths"));
}

#[tokio::test]
async fn the_age_of_a_waiting_outbox_is_reported_until_it_is_delivered() {
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    let often = std::time::Duration::from_millis(50);
    let builder = CosmosDBProvider::builder().with_client(server.client().await);
    let mut provider = builder.with_reconciler(often, std::time::Duration::ZERO).open().await.unwrap();
    provider.set_outbox_fault_injector(duroxide_cdb::OutboxFaultInjector::fail_next(1));
    provider.enqueue_for_orchestrator(start("parent", None), None).await.unwrap();
    let (_, token, _) = provider.fetch_orchestration_item(LOCK, POLL_ONCE, None).await.unwrap().unwrap();
    let (history, child) = (vec![super::event("parent", 1)], vec![start("child", Some("parent"))]);
    let running = super::metadata("Order", None);
    provider.ack_orchestration_item(&token, 1, history, vec![], child, running, vec![]).await.unwrap();
    let mut ages = Vec::new();
    let delivered = async {
        // The round of the reconciler that finds the outbox delivers it. The next round finds none.
        while provider.metrics().messages_delivered == 0 || provider.metrics().outbox_age_ms.is_some() {
            ages.extend(provider.metrics().outbox_age_ms);
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), delivered)
        .await
        .expect("the outbox is delivered");
    assert!(!ages.is_empty(), "no round reported the age of the outbox");
    assert!(provider.metrics().methods["reconcile"].calls > 0);
}

/// Story of a bug: the age of an outbox that cannot be delivered was reported as zero while a round
/// tried to deliver it.
#[tokio::test]
async fn the_age_of_an_outbox_is_reported_while_its_delivery_takes_long() {
    let server = TestServer::in_process(EmbeddedOptions::default()).await;
    let often = std::time::Duration::from_millis(50);
    let builder = CosmosDBProvider::builder().with_client(server.client().await);
    let mut provider = builder.with_reconciler(often, std::time::Duration::ZERO).open().await.unwrap();
    provider.set_outbox_fault_injector(duroxide_cdb::OutboxFaultInjector::fail_next(1));
    provider.enqueue_for_orchestrator(start("parent", None), None).await.unwrap();
    let (_, token, _) = provider.fetch_orchestration_item(LOCK, POLL_ONCE, None).await.unwrap().unwrap();
    // `create_item` is the operation that delivers a message.
    server.fault(r#"{"operation":"create_item","delayMs":30000}"#).await;
    let (history, child) = (vec![super::event("parent", 1)], vec![start("child", Some("parent"))]);
    let running = super::metadata("Order", None);
    provider.ack_orchestration_item(&token, 1, history, vec![], child, running, vec![]).await.unwrap();
    let age = || provider.metrics().outbox_age_ms;
    let reported = async {
        while age().is_none() {
            tokio::time::sleep(often / 10).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), reported).await.expect("an age");
    for _ in 0..60 {
        tokio::time::sleep(often / 10).await;
        assert!(age().is_some(), "the outbox still waits");
    }
}
