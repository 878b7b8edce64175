//! The list of workflows: filters, pages, and what a page costs.

use std::collections::BTreeSet;

use crate::browser::{Page, encode};
use crate::shop::Shop;

/// The ids on a page of the list.
fn ids(page: &Page) -> Vec<String> {
    let rows = page.text.split("data-key=\"").skip(1);
    rows.filter_map(|rest| rest.split('"').next()).map(ToOwned::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pages_of_the_list_have_every_workflow_once() {
    let shop = Shop::open().await;
    shop.run("hello-1", "hello", "Ada").await;
    shop.copy("hello-1", 430).await;
    let browser = shop.browser();
    let mut seen = BTreeSet::new();
    let mut path = format!("/workflows?filter={}", encode("id=copy-* created<1h"));
    let mut pages = 0;
    loop {
        let page = browser.get(&path).await;
        assert_eq!(page.status, 200, "{}", page.text);
        for id in ids(&page) {
            assert!(seen.insert(id.clone()), "{id} is on two pages");
        }
        pages += 1;
        assert!(pages < 50, "the list ends");
        match page.attribute("id=\"next\"", "href") {
            Some(next) => path = next,
            None => break,
        }
    }
    assert_eq!(seen.len(), 430);
    shop.close().await;
}

/// A page sends at most this many requests to an account of one partition.
const REQUESTS_MAX: u64 = 12;

#[tokio::test(flavor = "multi_thread")]
async fn a_page_sends_few_requests_whatever_the_number_of_workflows() {
    let mut shop = Shop::open().await;
    shop.run("hello-1", "hello", "Ada").await;
    shop.stop_workers().await;
    let browser = shop.browser();
    // Opening the container takes a few requests, once.
    browser.get("/workflows").await;
    for count in [0, 1000] {
        shop.copy("hello-1", count).await;
        for path in
            ["/workflows", "/workflow?id=hello-1", "/attention", "/queues", "/workers", "/locks", "/charts"]
        {
            shop.server.reset_counters().await;
            browser.get(path).await;
            let requests = shop.server.counters().await["requests"].as_u64().expect("a number");
            assert!(requests <= REQUESTS_MAX, "{path} with {count} workflows: {requests} requests");
        }
    }
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_selects_workflows_and_an_error_in_it_shows_its_place() {
    let shop = Shop::open().await;
    shop.run("hello-1", "hello", "Ada").await;
    shop.run("fail-1", "fail", "no").await;
    let browser = shop.browser();
    let failed = browser.get(&format!("/workflows?filter={}", encode("status=failed"))).await;
    assert_eq!(ids(&failed), ["fail-1"]);
    failed.has(&["value=\"status=failed\"", "aria-current=\"true\""]);
    let wrong = browser.get(&format!("/workflows?filter={}", encode("status=faild"))).await;
    wrong.has(&["`faild` is not a status", "       ^", "role=\"alert\""]);
    let none = browser.get(&format!("/workflows?filter={}", encode("name=nobody"))).await;
    none.has(&["No workflow matches."]);
    for after in ["l1.nonsense", "nonsense"] {
        let old = browser.get(&format!("/workflows?after={after}")).await;
        assert_eq!(old.status, 400, "the address is wrong, and not the account");
        old.has(&["names a place in the list (after=) that this list does not have", "the first page"]);
    }
    shop.close().await;
}
