//! Every page is made, with the headers that every answer has.

use std::time::Duration;

use perihelion_server::EmbeddedOptions;
use perihelion_testkit::wait::wait_until;

use crate::shop::{LIMIT, Shop};

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_shown_with_safe_headers() {
    let shop = Shop::open().await;
    shop.run("hello-1", "hello", "Ada").await;
    let browser = shop.browser();
    for path in [
        "/",
        "/workflows",
        "/workflow?id=hello-1",
        "/attention",
        "/bulk",
        "/queues",
        "/workers",
        "/locks",
        "/sessions",
        "/charts",
        "/data",
        "/container?database=duroxide&container=duroxide",
    ] {
        let page = browser.get(path).await;
        assert_eq!(page.status, 200, "{path}: {}", page.text);
        page.has(&["<!doctype html>", "<main id=\"main\"", "Skip to the content", "aria-current=\"page\""]);
        assert_eq!(page.header("x-frame-options"), "DENY");
        assert_eq!(page.header("x-content-type-options"), "nosniff");
        assert_eq!(page.header("cache-control"), "no-store");
        let policy = page.header("content-security-policy");
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert!(!page.text.contains("<script>") && !page.text.contains(" style="), "{path} has inline code");
    }
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_are_served_and_missing_pages_are_reported() {
    let shop = Shop::open().await;
    let browser = shop.browser();
    assert_eq!(browser.get("/assets/dashboard.css").await.header("content-type"), "text/css; charset=utf-8");
    browser.get("/assets/dashboard.js").await.has(&["EventSource"]);
    assert_eq!(browser.get("/assets/../Cargo.toml").await.status, 404);
    let nowhere = browser.get("/nowhere").await;
    assert_eq!(nowhere.status, 404);
    nowhere.has(&["<title>Not found", "There is no page /nowhere.", "href=\"/workflows\""]);
    let events = browser.with("accept", "text/event-stream").get("/nowhere").await;
    assert_eq!((events.status, events.text.as_str()), (404, "Not Found"));
    let missing = browser.get("/workflow?id=nobody").await;
    assert_eq!(missing.status, 404);
    missing.has(&["There is no workflow &quot;nobody&quot;"]);
    assert_eq!(browser.get("/workflow").await.status, 400);
    for job in ["zzz", "7", "-1"] {
        let missing = browser.get(&format!("/bulk?job={job}")).await;
        assert_eq!(missing.status, 404);
        missing.has(&[&format!("There is no bulk action {job}.")]);
    }
    shop.close().await;
}

/// Story of a bug: these pages showed the service's JSON, or sent requests with names that cannot exist.
#[tokio::test(flavor = "multi_thread")]
async fn errors_of_the_data_explorer_are_in_our_words() {
    let shop = Shop::open().await;
    let browser = shop.browser();
    let of_shop = "database=duroxide&container=duroxide";
    for (path, status, words) in [
        ("/container?database=no&container=no".to_owned(), 404, "no/no cannot be read: it does not exist."),
        (
            "/container?database=a%2Fb&container=c".to_owned(),
            400,
            "a name or an id in the address cannot exist.",
        ),
        ("/item?database=no&container=no&id=a&key=a".to_owned(), 404, "there is no such container."),
        (format!("/item?{of_shop}&id=a&key=a"), 404, "cannot be read: it does not exist."),
        (format!("/item?{of_shop}&id=&key=a"), 400, "the id of a document is empty."),
        (format!("/item?{of_shop}&id=a&key=[1,2]"), 400, "the partition key does not fit the container"),
    ] {
        let page = browser.get(&path).await;
        assert_eq!(page.status, status, "{path}: {}", page.text);
        page.has(&[words]);
        for raw in ["Message:", "{&quot;", "ActivityId", "attempt 1"] {
            assert!(!page.text.contains(raw), "{path} has {raw}: {}", page.text);
        }
    }
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_a_workflow_has_all_its_sections() {
    let shop = Shop::open().await;
    shop.run("batch-1", "batch", "Ada").await;
    shop.wait_for_approval("approval-1").await;
    shop.run("loop-1", "loop", "2").await;
    shop.run("fail-1", "fail", "card declined").await;
    let browser = shop.browser();
    let batch = browser.get("/workflow?id=batch-1").await;
    batch.has(&[
        "Completed",
        "sub-orchestration hello",
        "timer: done in",
        "Family",
        "batch-1::sub",
        "Hello, Ada!",
    ]);
    batch.has(&["<h2 id=\"cost-title\">Cost</h2>", "Cost by turn", " RU in ", "The last turn is missing"]);
    let approval = browser.get("/workflow?id=approval-1").await;
    approval.has(&[
        "Running",
        "wait approved: open for",
        "waits for approval",
        "Key-values",
        "lamp",
        "Raise event…",
    ]);
    let looped = browser.get("/workflow?id=loop-1").await;
    looped.has(&["execution=1", "Prune executions…", "Restart…"]);
    looped.has(&["<h3>Output</h3>", ">done</pre>"]);
    let first = browser.get("/workflow?id=loop-1&execution=1").await;
    // Story of a bug: the output of the current execution was shown.
    first.has(&["OrchestrationContinuedAsNew", "<h3>Input of the next execution</h3>", ">1</pre>"]);
    first.has(&["This is execution 1; execution 3 is the current one.", "the workflow: "]);
    assert!(!first.text.contains(">done</pre>"), "the output belongs to another execution");
    for (execution, status, text) in [("99", 404, "has no execution 99"), ("abc", 400, "is not an execution")]
    {
        for path in ["/workflow", "/history.json"] {
            let refused = browser.get(&format!("{path}?id=loop-1&execution={execution}")).await;
            assert_eq!(refused.status, status, "{path}");
            refused.has(&[text]);
        }
    }
    let failed = browser.get("/workflow?id=fail-1&failed=yes&zoom=4").await;
    failed.has(&["activity refuse: failed after", "card declined", "Error", "width=\"400%\""]);
    browser.get("/attention").await.has(&["fail-1", "Failed in the last day"]);
    let history = browser.get("/history.json?id=fail-1").await;
    let events: serde_json::Value = serde_json::from_str(&history.text).expect("JSON");
    assert_eq!(events.as_array().map(Vec::len), Some(4));
    let metrics = browser.get("/metrics").await;
    assert!(metrics.header("content-type").starts_with("text/plain; version=0.0.4"));
    metrics.has(&["\nperihelion_dashboard_viewers 0\n", "\nduroxide_cdb_request_units_total{"]);
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_has_a_page_of_what_it_holds() {
    let shop = Shop::open().await;
    let browser = shop.browser();
    browser.get("/locks").await.has(&["No activity is locked.", "No lock of a turn was written"]);
    shop.start("slow-1", "slow", "Ada").await;
    wait_until("the activity is locked", LIMIT, async || {
        browser.get("/locks").await.text.contains("href=\"/workflow?id=slow-1\"")
    })
    .await;
    wait_until("the worker has a heartbeat", LIMIT, async || {
        browser.get("/workers").await.text.contains("Alive")
    })
    .await;
    let workers = browser.get("/workers").await;
    let own = workers.attribute("href=\"/locks?worker=", "href").expect("a link to what the worker holds");
    let held = browser.get(&own).await;
    held.has(&["What ", " holds</h1>", "href=\"/workflow?id=slow-1\"", ">pause<", "Held since", "Lock ends"]);
    assert!(!held.text.contains("not named"), "the lock names its worker");
    browser.get("/locks?worker=nobody").await.has(&["This worker holds none of the locked activities"]);
    let refused = browser.get("/locks?after=nonsense").await;
    assert_eq!(refused.status, 400, "the address is wrong, and not the account");
    refused.has(&["names a place in the list (after=) that this list does not have", "the first page"]);
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_container_is_reported_and_not_created() {
    let shop = Shop::with(|mut options| {
        options.container = "nothing".to_owned();
        options
    })
    .await;
    let page = shop.browser().get("/workflows").await;
    assert_eq!(page.status, 200);
    page.has(&["Nothing here yet", "duroxide/nothing", "does not exist", "--container"]);
    shop.browser().get("/data").await.has(&["duroxide"]);
    assert!(!shop.browser().get("/data").await.text.contains(">nothing<"));
    shop.close().await;
}

/// The state document of a workflow says how large its history is. The test writes 32 MiB there. That is
/// the limit for the memory of a history (`HISTORY_BYTES_MAX`), and each event counts with 200 bytes more.
#[tokio::test(flavor = "multi_thread")]
async fn a_history_that_is_too_large_is_not_shown() {
    let shop = Shop::open().await;
    shop.run("large", "hello", "Ada").await;
    let container = shop.server.client().await.database("duroxide").container("duroxide");
    let mut state = container.read::<serde_json::Value>("large", "i").await.expect("the state").value;
    assert!(state["eventBytes"].is_u64(), "{state}");
    state["eventBytes"] = 33_554_432.into();
    container.upsert("large", &state).await.expect("a write");
    let browser = shop.browser();
    let page = browser.get("/workflow?id=large").await;
    page.has(&["Completed", "is too large to show", "`perihelion workflow history` prints it", "Delete…"]);
    page.has(&["Not shown: it is in the history"]);
    assert!(!page.text.contains("Timeline"));
    let history = browser.get("/history.json?id=large").await;
    assert_eq!(history.status, 413);
    history.has(&["perihelion workflow history"]);
    shop.close().await;
}

/// Story of a bug: when one partition did not answer, the page of every workflow failed, even if the
/// workflow was in another partition. So no workflow could be cancelled.
#[tokio::test(flavor = "multi_thread")]
async fn when_a_partition_fails_only_one_part_of_a_page_is_missing() {
    let mut shop = Shop::on(EmbeddedOptions::default().with_partitions(2), |options| options).await;
    for number in 0..8 {
        shop.run(&format!("hello-{number}"), "hello", "Ada").await;
    }
    shop.stop_workers().await;
    let browser = shop.browser();
    browser.get("/workflows").await;
    shop.server.fault(r#"{"database":"duroxide","container":"duroxide","range":"0","status":503}"#).await;
    let container = shop.server.client().await.database("duroxide").container("duroxide");
    let mut answering = None;
    for number in 0..8 {
        let id = format!("hello-{number}");
        let read = container.read::<serde_json::Value>(id.as_str(), "i");
        if tokio::time::timeout(Duration::from_secs(1), read).await.is_ok_and(|read| read.is_ok()) {
            answering = Some(id);
            break;
        }
    }
    let path = format!("/workflow?id={}", answering.expect("a workflow in the other partition"));
    let pages = tokio::join!(browser.get(&path), browser.get("/attention"), browser.get("/charts"));
    for (page, part) in [(&pages.0, "Delete…"), (&pages.1, "Failed in the last day"), (&pages.2, "Charts")]
    {
        assert_eq!(page.status, 200, "{}", page.text);
        page.has(&["This part could not be read.", part]);
    }
    pages.0.has(&["Hello, Ada!", "whose number is not known"]);
    shop.server.clear_faults().await;
    shop.close().await;
}

/// Story of a bug: when the counters could not be read any more, the charts did not change, and the page
/// did not say why.
#[tokio::test(flavor = "multi_thread")]
async fn charts_say_that_the_counters_cannot_be_read() {
    let refused: perihelion_dashboard::ReadCounters =
        std::sync::Arc::new(|| Box::pin(async { Err("the key is wrong".to_owned()) }));
    let shop = Shop::with(|options| options.with_counters(refused)).await;
    let browser = shop.browser();
    wait_until("the page reports the failed read", LIMIT, async || {
        browser.get("/charts").await.text.contains("could not be read at")
    })
    .await;
    browser.get("/charts").await.has(&["the key is wrong."]);
    shop.close().await;
}
