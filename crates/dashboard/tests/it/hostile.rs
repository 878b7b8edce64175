//! Hostile input: ids, names, inputs and errors that contain markup, and requests that are too large
//! or broken.

use http::Method;
use serde_json::{Value, json};

use crate::browser::encode;
use crate::shop::Shop;

const SCRIPT: &str = "<script>alert(1)</script>";

#[tokio::test(flavor = "multi_thread")]
async fn texts_of_workflows_never_become_markup() {
    let shop = Shop::open().await;
    let id = format!("\"><img src=x onerror=alert(1)>{SCRIPT}' & \u{202e}");
    shop.run(&id, "fail", &format!("{SCRIPT}</pre></textarea>")).await;
    shop.start(&format!("named-{SCRIPT}"), &format!("unknown{SCRIPT}"), SCRIPT).await;
    let browser = shop.browser();
    let own = format!("/workflow?id={}", encode(&id));
    let event_of = format!("{own}&type={}", encode(SCRIPT));
    let filtered = format!("/workflows?filter={}", encode(&format!("name=\"{SCRIPT}\"")));
    let wrong = format!("/workflows?filter={}", encode(SCRIPT));
    let container = format!("/container?database={}&container=x", encode(SCRIPT));
    let named = format!("/workflow?id={}", encode(&format!("named-{SCRIPT}")));
    for path in ["/workflows", "/attention", &own, &event_of, &filtered, &wrong, &container, &named] {
        let page = browser.get(path).await;
        assert!(!page.text.contains(SCRIPT) && !page.text.contains("<img"), "{path}: {}", page.text);
        assert!(!page.text.contains('\u{202e}'), "{path}");
        page.has(&["&lt;script&gt;"]);
    }
    let sql = format!("SELECT '{SCRIPT}' AS x, c.instanceId FROM c");
    let fields =
        [("action", "query"), ("database", "duroxide"), ("container", "duroxide"), ("sql", sql.as_str())];
    let rows = browser.post("/container", &fields).await;
    assert!(!rows.text.contains(SCRIPT));
    let event = [("action", "raise"), ("id", id.as_str()), ("event", SCRIPT)];
    assert!(!browser.post("/workflow", &event).await.text.contains(SCRIPT));
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_too_large_or_broken_are_refused() {
    let shop = Shop::open().await;
    let browser = shop.browser();
    assert_eq!(browser.get(&format!("/workflows?filter={}", "a".repeat(20_000))).await.status, 414);
    let large = "x".repeat(8 * 1024 * 1024);
    assert_eq!(browser.send(Method::POST, "/bulk", large).await.status, 413);
    let token = "x".repeat(5 * 1024);
    assert_eq!(browser.send(Method::POST, "/login", token).await.status, 413, "a login is small");
    let json = browser.with("content-type", "application/json");
    assert_eq!(json.send(Method::POST, "/bulk", "{}".to_owned()).await.status, 415);
    assert_eq!(browser.send(Method::DELETE, "/workflows", String::new()).await.status, 405);
    for path in
        ["/workflow?id=%ff%00", "/workflow?id=a&execution=99999999999999999999", "/bulk?job=7", "/item?id=%"]
    {
        let status = browser.get(path).await.status;
        assert!((400..500).contains(&status), "{path}: {status}");
    }
    for path in [
        "/workflow?id=x&zoom=3&rows=18446744073709551615",
        "/workflows?at=1&after=%00",
        "/container?database=a%2Fb&container=%23",
        "/item?database=duroxide&container=duroxide&id=a&key=%7B%7D",
    ] {
        assert_ne!(browser.get(path).await.status, 200, "{path}");
    }
    assert_eq!(browser.get("/workflows").await.status, 200, "it still answers");
    shop.close().await;
}

/// Characters that a page cannot show: they change the direction of a text, or HTML has no reference
/// for them. Browsers change the last two when a form is sent.
const NOT_SHOWN: &str = "\u{202e}\u{2066}\u{7f}\u{80}\u{9f}\u{1}\r\n";

/// The deletion once deleted another workflow, whose id has replacement characters in place of the
/// characters that a page cannot show.
#[tokio::test(flavor = "multi_thread")]
async fn an_action_is_for_the_workflow_with_exactly_this_id() {
    let shop = Shop::open().await;
    let (id, other) = ("a\u{202e}\u{85}b", "a\u{fffd}\u{fffd}b");
    shop.run(id, "hello", "Ada").await;
    shop.run(other, "hello", "Ada").await;
    let browser = shop.browser();
    let page = browser.get(&format!("/workflow?id={}", encode(id))).await;
    assert!(!page.text.contains(['\u{202e}', '\u{85}']));
    let mut fields = page.hidden_fields("delete");
    fields.push(("confirm".to_owned(), "yes".to_owned()));
    let fields: Vec<(&str, &str)> =
        fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    browser.post_and_follow("/workflow", &fields).await.has(&["deleted 1 workflow"]);
    assert_eq!(browser.get(&format!("/workflow?id={}", encode(id))).await.status, 404);
    assert_eq!(browser.get(&format!("/workflow?id={}", encode(other))).await.status, 200);
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_that_is_saved_unchanged_stays_the_same() {
    let shop = Shop::open().await;
    let browser = shop.browser();
    let container = shop.server.client().await.database("duroxide").container("duroxide");
    let key = format!("shop{NOT_SHOWN}");
    let item =
        json!({"id": "a", "instanceId": key, "text": NOT_SHOWN, format!("name{NOT_SHOWN}"): "é \u{fffd}"});
    container.create(key.as_str(), &item).await.expect("an item");
    let typed = encode(&json!([key]).to_string());
    let page = browser.get(&format!("/item?database=duroxide&container=duroxide&id=a&key={typed}")).await;
    assert_eq!(page.status, 200, "{}", page.text);
    let mut fields = page.hidden_fields("save");
    fields.push(("item".to_owned(), page.text_area().replace('\n', "\r\n")));
    let fields: Vec<(&str, &str)> =
        fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    browser.post_and_follow("/item", &fields).await.has(&["Saved a for"]);
    let saved = container.read::<Value>(key.as_str(), "a").await.expect("the item").value;
    for (name, value) in item.as_object().expect("an object") {
        assert_eq!(saved.get(name), Some(value), "{name:?}");
    }
    shop.close().await;
}
