//! Actions on single workflows, and bulk actions on the workflows that a filter selects.

use std::time::Duration;

use perihelion_dashboard::{Dashboard, DashboardOptions};
use perihelion_testkit::wait::wait_until;
use tokio::net::TcpListener;

use crate::browser::Browser;
use crate::shop::{LIMIT, Shop};

#[tokio::test(flavor = "multi_thread")]
async fn an_event_ends_a_wait() {
    let shop = Shop::open().await;
    shop.wait_for_approval("approval-1").await;
    let browser = shop.browser();
    let fields = [("action", "raise"), ("id", "approval-1"), ("event", "approved"), ("payload", "true")];
    let page = browser.post_and_follow("/workflow", &fields).await;
    page.has(&["approval-1: sent the event approved."]);
    shop.client.wait_for_orchestration("approval-1", LIMIT).await.expect("an end");
    browser.get("/workflow?id=approval-1").await.has(&["Completed", "wait approved: done in"]);
    let late = browser.post("/workflow", &fields).await;
    assert_eq!(late.status, 409);
    late.has(&["it has ended"]);
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workflows_are_cancelled_restarted_pruned_and_deleted() {
    let shop = Shop::open().await;
    shop.wait_for_approval("approval-1").await;
    shop.run("fail-1", "fail", "no").await;
    shop.run("loop-1", "loop", "3").await;
    let browser = shop.browser();
    let act = async |action: &str, id: &str, more: &[(&str, &str)]| {
        let fields = [&[("action", action), ("id", id), ("confirm", "yes")], more].concat();
        browser.post_and_follow("/workflow", &fields).await
    };
    let unconfirmed = browser.post("/workflow", &[("action", "delete"), ("id", "fail-1")]).await;
    assert_eq!(unconfirmed.status, 400);
    act("cancel", "approval-1", &[("reason", "wrong item")]).await.has(&["asked to cancel"]);
    shop.client.wait_for_orchestration("approval-1", LIMIT).await.expect("an end");
    browser.get("/workflow?id=approval-1").await.has(&["Failed", "wrong item"]);
    act("restart", "fail-1", &[]).await.has(&["started fail-1-restart-1", "fail-1-restart-1"]);
    shop.client.wait_for_orchestration("fail-1-restart-1", LIMIT).await.expect("an end");
    act("restart", "fail-1", &[]).await.has(&["nothing was done, because it was restarted before"]);
    act("prune", "loop-1", &[("keep", "1")]).await.has(&["removed 3 executions"]);
    act("prune", "loop-1", &[("keep", "1")]).await.has(&["nothing was done, because it has no execution"]);
    act("delete", "fail-1", &[]).await.has(&["deleted 1 workflow"]);
    assert_eq!(browser.get("/workflow?id=fail-1").await.status, 404);
    // Story of a bug: the restart of the deleted workflow was taken for that of the new one.
    shop.run("fail-1", "fail", "another reason").await;
    let restart = [("action", "restart"), ("id", "fail-1"), ("confirm", "yes")];
    let refused = browser.post("/workflow", &restart).await;
    assert_eq!(refused.status, 409);
    refused.has(&["fail-1-restart-1 exists already and is not a restart of it"]);
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_action_counts_first_and_shows_its_progress() {
    let shop = Shop::open().await;
    for number in 0..12 {
        shop.start(&format!("approval-{number}"), "approval", "lamp").await;
    }
    shop.run("hello-1", "hello", "Ada").await;
    let browser = shop.browser();
    let running =
        [("filter", "status=running name=approval"), ("workflow_action", "cancel"), ("reason", "sold out")];
    wait_until("all wait", LIMIT, async || {
        let counted = browser.post("/bulk", &[&[("action", "count")], running.as_slice()].concat()).await;
        counted.text.contains("Cancel: 12 workflows")
    })
    .await;
    let unconfirmed = browser.post("/bulk", &[&[("action", "begin")], running.as_slice()].concat()).await;
    assert_eq!(unconfirmed.status, 400);
    let begin = [&[("action", "begin"), ("confirm", "yes")], running.as_slice()].concat();
    let job = browser.post("/bulk", &begin).await;
    let path = job.header("location").split("&notice").next().expect("an address").to_owned();
    wait_until("the job ends", LIMIT, async || browser.get(&path).await.text.contains("finished")).await;
    browser.get(&path).await.has(&["<dt>Done</dt><dd>12</dd>", "<dt>Failed or skipped</dt><dd>0</dd>"]);
    browser.get("/bulk").await.has(&["12 of 12", "cancel"]);
    shop.client.wait_for_orchestration("approval-11", LIMIT).await.expect("an end");
    let empty =
        browser.post("/bulk", &[("action", "count"), ("filter", " "), ("workflow_action", "delete")]).await;
    assert_eq!(empty.status, 400);
    empty.has(&["An empty filter would select every workflow."]);
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_action_ends_with_its_dashboard() {
    let shop = Shop::open().await;
    shop.run("hello-1", "hello", "Ada").await;
    shop.copy("hello-1", 300).await;
    let socket = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
    let options = DashboardOptions::new("duroxide", "duroxide");
    let other = Dashboard::start(socket, shop.server.client().await, options).expect("a dashboard");
    let begin =
        [("action", "begin"), ("confirm", "yes"), ("filter", "name=hello"), ("workflow_action", "delete")];
    assert_eq!(Browser::new(other.address()).post("/bulk", &begin).await.status, 303);
    drop(other);
    let left = async || {
        let count = [("action", "count"), ("filter", "name=hello"), ("workflow_action", "delete")];
        let page = shop.browser().post("/bulk", &count).await;
        page.text.split("Delete: ").nth(1).and_then(|text| text.split(' ').next()).map(ToOwned::to_owned)
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    let left_after_one_second = left().await.expect("workflows are left");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(left().await, Some(left_after_one_second), "nothing more is deleted");
    shop.close().await;
}

/// The hidden fields of a form, and what a person fills in.
fn filled<'a>(hidden: &'a [(String, String)], typed: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let hidden = hidden.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    hidden.chain(typed.iter().copied()).collect()
}

/// Story of a bug: a second click on *Begin* began a second bulk action, and one on *Send* sent a second
/// event.
#[tokio::test(flavor = "multi_thread")]
async fn a_form_that_is_sent_twice_acts_once() {
    let shop = Shop::open().await;
    shop.run("hello-1", "hello", "Ada").await;
    shop.wait_for_approval("approval-1").await;
    let browser = shop.browser();
    let count = [("action", "count"), ("filter", "name=hello"), ("workflow_action", "restart")];
    let begin = browser.post("/bulk", &count).await.hidden_fields("begin");
    let begin = filled(&begin, &[("confirm", "yes")]);
    let (one, two) = tokio::join!(browser.post("/bulk", &begin), browser.post("/bulk", &begin));
    assert_eq!((one.status, two.status), (303, 303));
    assert_eq!(one.header("location"), two.header("location"));
    assert_eq!(browser.post("/bulk", &begin).await.header("location"), one.header("location"));
    let jobs = browser.get("/bulk").await;
    jobs.has(&["Bulk action 1"]);
    assert!(!jobs.text.contains("Bulk action 2"), "there is one job");

    let raise = browser.get("/workflow?id=approval-1").await.hidden_fields("raise");
    let raise = filled(&raise, &[("event", "note"), ("payload", "1"), ("queue", "yes")]);
    for _ in 0..2 {
        assert_eq!(browser.post("/workflow", &raise).await.status, 303);
    }
    let other = browser.get("/workflow?id=approval-1").await.hidden_fields("raise");
    let other = filled(&other, &[("event", "last"), ("payload", "2"), ("queue", "yes")]);
    assert_eq!(browser.post("/workflow", &other).await.status, 303);
    let mut history = String::new();
    wait_until("the last event is in the history", LIMIT, async || {
        history = browser.get("/history.json?id=approval-1").await.text;
        history.contains("\"last\"")
    })
    .await;
    assert_eq!(history.matches("\"note\"").count(), 1, "{history}");
    shop.close().await;
}

/// Story of a bug: the form of bulk actions had no field for a queue, so a message was sent as an event,
/// which a workflow that does not wait for it loses.
#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_action_sends_a_message_to_a_queue() {
    let shop = Shop::open().await;
    shop.wait_for_approval("approval-1").await;
    let browser = shop.browser();
    browser.get("/bulk").await.has(&["name=\"queue\""]);
    let details = [("event", "note"), ("payload", "1"), ("queue", "yes")];
    let count = [("action", "count"), ("filter", "name=approval"), ("workflow_action", "raise")];
    let begin = browser.post("/bulk", &[&count[..], &details].concat()).await.hidden_fields("begin");
    assert_eq!(browser.post("/bulk", &filled(&begin, &[("confirm", "yes")])).await.status, 303);
    wait_until("the message is in the history", LIMIT, async || {
        browser.get("/history.json?id=approval-1").await.text.contains("ExternalEventPersistent")
    })
    .await;
    shop.close().await;
}

/// Story of a bug: the filter was read again after the confirmation, so that a person who had confirmed
/// one workflow deleted others too; and a form deleted a workflow that had been created again with the
/// same id.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_shown_is_not_confirmed() {
    let shop = Shop::open().await;
    shop.run("hello-1", "hello", "Ada").await;
    let browser = shop.browser();
    let count = [("action", "count"), ("filter", "name=hello"), ("workflow_action", "delete")];
    let begin = browser.post("/bulk", &count).await.hidden_fields("begin");
    let page = browser.get("/workflow?id=hello-1").await;
    shop.copy("hello-1", 2).await;
    let again = browser.post("/bulk", &filled(&begin, &[("confirm", "yes")])).await;
    assert_eq!(again.status, 409);
    again.has(&["1 workflow matched the filter when", "more match it now", "Delete: 3 workflows"]);
    let begin = again.hidden_fields("begin");
    assert_eq!(browser.post("/bulk", &filled(&begin, &[("confirm", "yes")])).await.status, 303);
    wait_until("it is deleted", LIMIT, async || browser.get("/workflow?id=hello-1").await.status == 404)
        .await;
    shop.run("hello-1", "hello", "Grace").await;
    let delete = page.hidden_fields("delete");
    let refused = browser.post("/workflow", &filled(&delete, &[("confirm", "yes")])).await;
    assert_eq!(refused.status, 409);
    refused.has(&["it was deleted and created again after the page was shown", "decide again"]);
    browser.get("/workflow?id=hello-1").await.has(&["Grace"]);
    shop.close().await;
}

/// Story of a bug: the progress counted workflows as done although nothing was done for them. It called a
/// job "finished" that could not read its selection, and a job "stopped" that had changed all its
/// workflows.
#[tokio::test(flavor = "multi_thread")]
async fn the_progress_of_a_bulk_action_says_what_happened() {
    let mut shop = Shop::open().await;
    shop.run("fail-1", "fail", "no").await;
    shop.run("fail-2", "fail", "no").await;
    let browser = shop.browser();
    let restart = [("action", "restart"), ("id", "fail-1"), ("confirm", "yes")];
    assert_eq!(browser.post("/workflow", &restart).await.status, 303);
    shop.client.wait_for_orchestration("fail-1-restart-1", LIMIT).await.expect("an end");
    shop.stop_workers().await;
    let begin = async |filter: &str| {
        let begin =
            [("action", "begin"), ("confirm", "yes"), ("filter", filter), ("workflow_action", "restart")];
        let job = browser.post("/bulk", &begin).await;
        assert_eq!(job.status, 303, "{}", job.text);
        job.header("location").split("&notice").next().expect("an address").to_owned()
    };
    let ends = async |path: &str, state: &str| {
        wait_until("the job ends", LIMIT, async || browser.get(path).await.text.contains(state)).await;
        browser.get(path).await
    };
    let path = begin("id=fail-1 status=failed").await;
    ends(&path, "finished").await.has(&["<dt>Done</dt><dd>0</dd>", "<dt>Nothing to do</dt><dd>1</dd>"]);
    let path = begin("id=fail-2 status=failed").await;
    ends(&path, "finished").await.has(&["<dt>Done</dt><dd>1</dd>", "<dt>Nothing to do</dt><dd>0</dd>"]);
    let number = path.split("job=").nth(1).expect("a number");
    assert_eq!(browser.post("/bulk", &[("action", "stop"), ("job", number)]).await.status, 303);
    let stopped = browser.get(&path).await;
    assert!(stopped.text.contains("finished") && !stopped.text.contains("stopped"), "{}", stopped.text);
    shop.server.fault(r#"{"database":"duroxide","container":"duroxide","status":403}"#).await;
    let path = begin("name=fail status=failed").await;
    ends(&path, "failed: the selection could not be read").await;
    shop.server.clear_faults().await;
    shop.close().await;
}

/// Story of a bug: at Ctrl-C the program ended in the middle of changes, and did not say that a bulk
/// action was cut off.
#[tokio::test(flavor = "multi_thread")]
async fn a_dashboard_that_is_closed_finishes_its_changes_and_names_what_is_left() {
    let shop = Shop::open().await;
    shop.run("hello-1", "hello", "Ada").await;
    shop.copy("hello-1", 300).await;
    let socket = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
    let options = DashboardOptions::new("duroxide", "duroxide");
    let other = Dashboard::start(socket, shop.server.client().await, options).expect("a dashboard");
    let begin =
        [("action", "begin"), ("confirm", "yes"), ("filter", "name=hello"), ("workflow_action", "delete")];
    let browser = Browser::new(other.address());
    let job = browser.post("/bulk", &begin).await.header("location").to_owned();
    wait_until("a workflow is deleted", LIMIT, async || {
        !browser.get(&job).await.text.contains("<dt>Done</dt><dd>0</dd>")
    })
    .await;
    let left = other.close(LIMIT).await;
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(left[0].starts_with("bulk action 1 (delete for workflows with"), "{left:?}");
    assert!(left[0].contains("was stopped after ") && left[0].ends_with(" of 301 workflows"), "{left:?}");
    let done = left[0].split("after ").nth(1).and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    let count = [("action", "count"), ("filter", "name=hello"), ("workflow_action", "delete")];
    let counted = shop.browser().post("/bulk", &count).await;
    counted.has(&[&format!("Delete: {} workflows", 301 - done.expect("a number"))]);
    let socket = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
    let options = DashboardOptions::new("duroxide", "duroxide");
    let idle = Dashboard::start(socket, shop.server.client().await, options).expect("a dashboard");
    assert_eq!(idle.close(LIMIT).await, Vec::<String>::new());
    shop.close().await;
}
