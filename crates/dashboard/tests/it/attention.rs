//! The page Attention, with workflows that really fail and wait for different reasons.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use duroxide::OrchestrationRegistry;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{Runtime, RuntimeOptions, UnregisteredBackoffConfig};
use duroxide_cdb::ListOptions;
use perihelion_client::{Container, Patch, Query};
use perihelion_testkit::wait::wait_until;
use serde_json::Value;

use crate::browser::Page;
use crate::shop::{LIMIT, Shop};

/// The provider counts time stamps in 4096ths of a millisecond.
const STAMP_PER_MS: u64 = 4096;

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time after 1970");
    u64::try_from(now.as_millis()).expect("a time of this millennium")
}

/// The text of a section of a page.
fn section<'a>(page: &'a Page, id: &str) -> &'a str {
    let (_, after) = page.text.split_once(&format!("<section id=\"{id}\"")).expect("a section");
    after.split_once("</section>").expect("its end").0
}

/// Changes the times of the only document of this type in a partition, as if the document had waited for
/// this long.
async fn make_older(container: &Container, instance: &str, document_type: &str, by: Duration) {
    let text = format!("SELECT VALUE c.id FROM c WHERE c.type = '{document_type}'");
    let ids = container.query::<Value>(Query::new(text).in_partition(instance)).collect().await;
    let ids = ids.expect("the ids");
    let [Value::String(id)] = ids.as_slice() else { panic!("one document, not {ids:?}") };
    let then_ms = now_ms() - u64::try_from(by.as_millis()).expect("a short time");
    let stamp = then_ms * STAMP_PER_MS;
    let patch = match document_type {
        "history" => Patch::new().set("/updatedAt", then_ms),
        _ => Patch::new().set("/enq", stamp).and_then(|patch| patch.set("/visibleAt", stamp)),
    };
    container.patch(instance, id, &patch.expect("a patch")).await.expect("the document");
}

/// A worker that has registered nothing. It uses the provider of the shop, because that provider owns all
/// slices of the container. A second provider would first have to wait until it owns some.
async fn empty_worker(shop: &Shop, max_attempts: u32, pause_max: Duration) -> Arc<Runtime> {
    let unregistered_backoff =
        UnregisteredBackoffConfig { base_delay: Duration::from_millis(1), max_delay: pause_max };
    let options = RuntimeOptions { max_attempts, unregistered_backoff, ..RuntimeOptions::default() };
    let (activities, orchestrations) =
        (ActivityRegistry::builder().build(), OrchestrationRegistry::builder().build());
    let store = Arc::new(shop.provider.clone());
    Runtime::start_with_options(store, activities, orchestrations, options).await
}

#[tokio::test(flavor = "multi_thread")]
async fn attention_lists_each_workflow_under_its_reason() {
    let mut shop = Shop::open().await;
    let browser = shop.browser();
    let container = shop.server.client().await.database("duroxide").container("duroxide");
    let (minutes, hours) = (Duration::from_secs(180), Duration::from_secs(7200));
    // No worker offers the tag of this activity.
    shop.start("tagged-1", "tagged", "Ada").await;
    wait_until("the activity is queued", LIMIT, async || {
        browser.get("/history.json?id=tagged-1").await.text.contains("ActivityScheduled")
    })
    .await;
    make_older(&container, "tagged-1", "worker_queue", minutes).await;
    shop.wait_for_approval("stuck-1").await;
    make_older(&container, "stuck-1", "history", hours).await;
    shop.stop_workers().await;

    // A start that is given back twice is poisoned.
    let worker = empty_worker(&shop, 2, Duration::from_millis(1)).await;
    shop.run("poisoned-1", "no-such", "").await;
    worker.shutdown(Some(100)).await;

    // With a higher limit of attempts, a start is given back again and again.
    let worker = empty_worker(&shop, 1_000, Duration::from_millis(100)).await;
    shop.start("unregistered-1", "nowhere", "").await;
    wait_until("the start was given back", LIMIT, async || {
        let page = shop.provider.list(&ListOptions::new().with_id("unregistered-1")).await.expect("a page");
        page.instances.iter().any(|row| row.start_attempts > 1)
    })
    .await;
    make_older(&container, "unregistered-1", "orch_queue", minutes).await;
    wait_until("the worker has a heartbeat", LIMIT, async || {
        section(&browser.get("/attention").await, "pending").contains("not registered")
    })
    .await;

    let page = browser.get("/attention").await;
    for (id, workflow, why) in [
        ("failed", "poisoned-1", "<strong>poisoned </strong>"),
        ("pending", "unregistered-1", "<strong>not registered</strong>, or its workers have ended: taken "),
        ("stuck", "stuck-1", "approval"),
        // Whether the reason is "no worker" or "waits" depends on the tags in the last heartbeat.
        ("overdue", "tagged-1", "greet (tag tape)"),
    ] {
        let section = section(&page, id);
        assert!(section.contains(&format!("id={workflow}\"")) && section.contains(why), "{id}: {section}");
        for other in ["poisoned-1", "stuck-1", "tagged-1"].iter().filter(|other| **other != workflow) {
            assert!(!section.contains(*other), "{other} is in {id}: {section}");
        }
    }
    worker.shutdown(Some(100)).await;
    shop.close().await;
}
