//! Live pages: events, and what watching costs. A *look* reads the account and makes a page once.

use std::time::Duration;

use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use perihelion_testkit::wait::wait_until;

use crate::browser::Browser;
use crate::shop::{LIMIT, Shop};

/// The events of a page.
struct Events(http::Response<Incoming>);

impl Events {
    async fn open(browser: &Browser, path: &str) -> Events {
        let browser = browser.with("accept", "text/event-stream");
        Events(browser.open(Method::GET, path, String::new()).await)
    }

    /// Reads until an event has this text.
    async fn read_until(&mut self, text: &str) {
        let mut read = String::new();
        let found = tokio::time::timeout(LIMIT, async {
            while let Some(Ok(frame)) = self.0.body_mut().frame().await {
                read.push_str(&String::from_utf8_lossy(frame.data_ref().map_or(&[], |data| data)));
                if read.contains(text) {
                    return true;
                }
            }
            false
        });
        assert!(found.await.unwrap_or(false), "{text:?} did not come");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_gets_changes() {
    let shop = Shop::open().await;
    let browser = shop.browser();
    let mut events = Events::open(&browser, "/workflows").await;
    assert_eq!(events.0.headers()["content-type"], "text/event-stream");
    events.read_until("No workflow matches.").await;
    shop.run("hello-1", "hello", "Ada").await;
    events.read_until("data-key=\"hello-1\"").await;
    let refused = Events::open(&browser, "/data").await;
    assert_eq!(refused.0.status(), 406, "this page is not live");
    shop.close().await;
}

/// Story of a bug: the message of a failed look replaced the page, and with it a form that a person had
/// filled in.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_cannot_be_made_again_sends_a_failure_event() {
    let shop = Shop::open().await;
    shop.run("hello-1", "hello", "Ada").await;
    let browser = shop.browser();
    browser.get("/workflow?id=hello-1").await.has(&["<div id=\"live-failure\"></div>"]);
    let mut events = Events::open(&browser, "/workflow?id=hello-1").await;
    events.read_until("Hello, Ada!").await;
    let delete = [("action", "delete"), ("id", "hello-1"), ("confirm", "yes")];
    browser.post_and_follow("/workflow", &delete).await;
    events.read_until("event: failure\ndata: <div class=\"notice error\"").await;
    browser.get("/workflow?id=hello-1").await.has(&["<div id=\"live\" data-live data-failed>"]);
    shop.close().await;
}

/// A dashboard has at most 128 viewers (`VIEWERS_MAX`).
#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_viewers_is_bounded() {
    let shop = Shop::open().await;
    let browser = shop.browser();
    let mut viewers = Vec::new();
    for _ in 0..128 {
        let events = Events::open(&browser, "/queues").await;
        assert_eq!(events.0.status(), 200);
        viewers.push(events);
    }
    assert_eq!(Events::open(&browser, "/queues").await.0.status(), 503);
    assert_eq!(browser.get("/queues").await.status, 200, "pages are still shown");
    drop(viewers);
    wait_until("viewers leave", LIMIT, async || Events::open(&browser, "/queues").await.0.status() == 200)
        .await;
    shop.close().await;
}

/// The time for which the cost of watching is measured. It is long enough for several looks at the
/// most expensive page.
const MEASURED: Duration = Duration::from_secs(12);

/// Watching a page of an idle account with one partition costs at most 5 RU per second, whatever
/// the number of viewers, and nothing after the last viewer has disconnected. Each page has an account
/// of its own, so that all pages are measured at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn watching_a_page_costs_little() {
    let paths = [
        "/workflows",
        "/workflow?id=approval-1",
        "/attention",
        "/queues",
        "/workers",
        "/locks",
        "/sessions",
        "/charts",
    ];
    let measured = futures_util::future::join_all(paths.map(cost_of_watching)).await;
    for (path, units) in paths.into_iter().zip(measured) {
        println!("{path}: {units:.2} RU/s");
        assert!(units <= 5.0, "{path}: {units} RU/s");
    }
}

/// The cost of five viewers of a page, in request units per second. Checks that no request is sent
/// after they have disconnected.
async fn cost_of_watching(path: &str) -> f64 {
    let mut shop = Shop::open().await;
    shop.run("batch-1", "batch", "Ada").await;
    shop.run("fail-1", "fail", "no").await;
    shop.wait_for_approval("approval-1").await;
    shop.stop_workers().await;
    let browser = shop.browser();
    let mut viewers = Vec::new();
    for _ in 0..5 {
        viewers.push(Events::open(&browser, path).await);
    }
    // The cost of the first look is not measured.
    tokio::time::sleep(Duration::from_millis(500)).await;
    shop.server.reset_counters().await;
    tokio::time::sleep(MEASURED).await;
    let units = shop.server.counters().await["requestUnits"].as_f64().unwrap_or(0.0);
    drop(viewers);
    // The poller ends some seconds after its last viewer has disconnected.
    tokio::time::sleep(Duration::from_secs(7)).await;
    shop.server.reset_counters().await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let counters = shop.server.counters().await;
    assert_eq!(counters["requests"].as_u64(), Some(0), "{path}: {counters}");
    shop.close().await;
    units / MEASURED.as_secs_f64()
}
