//! The data explorer: queries and items.

use crate::shop::Shop;

#[tokio::test(flavor = "multi_thread")]
async fn a_query_is_run_and_explained() {
    let shop = Shop::open().await;
    shop.run("hello-1", "hello", "Ada").await;
    let browser = shop.browser();
    browser.get("/data").await.has(&["duroxide", "/instanceId", "the workflows of this dashboard"]);
    let place = [("action", "query"), ("database", "duroxide"), ("container", "duroxide")];
    let run = async |more: &[(&str, &str)]| browser.post("/container", &[&place, more].concat()).await;
    let rows = run(&[("sql", "SELECT * FROM c WHERE c.id = 'i'"), ("explain", "yes")]).await;
    rows.has(&[
        "1 row",
        "RU in 1 request",
        "What the service did",
        "Indexes used",
        "/item?database=duroxide",
    ]);
    let nothing = run(&[("sql", "SELECT * FROM c WHERE c.id = 'nothing'"), ("explain", "yes")]).await;
    nothing.has(&["RU in 1 request"]);
    let one = run(&[("sql", "SELECT VALUE COUNT(1) FROM c"), ("key", "nobody")]).await;
    one.has(&["1 row"]);
    let wrong = run(&[("sql", "SELEC * FROM c")]).await;
    assert_eq!(wrong.status, 200);
    wrong.has(&["role=\"alert\"", "Syntax error"]);
    let by_address = browser.get("/container?database=duroxide&container=duroxide&sql=SELECT").await;
    assert!(!by_address.text.contains("Result"), "a GET does not run the query in its address");
    shop.close().await;
}

/// Story of a bug: every failure to read a plan was shown as a refusal.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_plan_and_an_unreadable_plan_have_different_texts() {
    let shop = Shop::open().await;
    let form = [
        ("action", "query"),
        ("database", "duroxide"),
        ("container", "duroxide"),
        ("sql", "SELECT VALUE COUNT(1) FROM c"),
        ("explain", "yes"),
    ];
    for (status, text) in [
        (400, "no plan: the service refuses one for this query"),
        (403, "The plan of the query cannot be read: 403"),
    ] {
        shop.server.fault(&format!(r#"{{"operation":"query_plan","count":1,"status":{status}}}"#)).await;
        shop.browser().post("/container", &form).await.has(&[text, "1 row"]);
    }
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_is_created_edited_and_deleted_under_its_etag() {
    let shop = Shop::open().await;
    let browser = shop.browser();
    let place = [("database", "duroxide"), ("container", "duroxide")];
    let json = r#"{"id":"a","instanceId":"shop","z":1,"b":12345678901234567}"#;
    let created = browser
        .post_and_follow("/item", &[&place[..], &[("action", "create"), ("item", json)]].concat())
        .await;
    created.has(&["Created a.", "12345678901234567"]);
    let etag = created.attribute("name=\"etag\"", "value").expect("an etag");
    let key = created.attribute("name=\"key\"", "value").expect("a key");
    assert_eq!(key, "[\"shop\"]");
    let item = [("id", "a"), ("key", key.as_str()), ("etag", etag.as_str())];
    let save = |json: &'static str| [&place[..], &item[..], &[("action", "save"), ("item", json)]].concat();
    let saved = browser.post_and_follow("/item", &save(r#"{"id":"a","instanceId":"shop","z":2}"#)).await;
    saved.has(&["Saved a for", "&quot;z&quot;: 2"]);
    let stale = browser.post("/item", &save(r#"{"id":"a","instanceId":"shop","z":3}"#)).await;
    assert_eq!(stale.status, 409, "the item has another etag now");
    stale.has(&["was not changed: it was changed meanwhile.", "open it again"]);
    let again = browser.post("/item", &[&place[..], &[("action", "create"), ("item", json)]].concat()).await;
    assert_eq!(again.status, 409, "the item exists");
    again.has(&["there is another item with this id"]);
    let time_to_live = r#"{"id":"b","instanceId":"shop","ttl":-7}"#;
    let refused =
        browser.post("/item", &[&place[..], &[("action", "create"), ("item", time_to_live)]].concat()).await;
    assert_eq!(refused.status, 400);
    refused.has(&["was not changed: 400: The input ttl is invalid."]);
    for wrong in ["[1]", "{", "not json"] {
        let answer = browser
            .post("/item", &[&place[..], &item[..], &[("action", "save"), ("item", wrong)]].concat())
            .await;
        assert_eq!(answer.status, 400, "{wrong}");
    }
    let etag = saved.attribute("name=\"etag\"", "value").expect("an etag");
    let delete = [("id", "a"), ("key", key.as_str()), ("etag", etag.as_str()), ("action", "delete")];
    let unconfirmed = browser.post("/item", &[&place[..], &delete[..]].concat()).await;
    assert_eq!(unconfirmed.status, 400);
    let deleted =
        browser.post_and_follow("/item", &[&place[..], &delete[..], &[("confirm", "yes")]].concat()).await;
    deleted.has(&["Deleted a."]);
    shop.close().await;
}
