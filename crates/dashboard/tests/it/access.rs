//! Access control of the dashboard.

use std::time::Duration;

use http::Method;
use tokio::net::TcpListener;

use perihelion_dashboard::{Dashboard, DashboardOptions};

use crate::browser::Browser;
use crate::shop::Shop;

const TOKEN: &str = "a-token-that-a-person-chose";

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_names_a_foreign_host_is_refused() {
    let shop = Shop::open().await;
    let browser = shop.browser();
    // DNS rebinding: the name of a foreign site leads to this machine, and the browser sends that name.
    let rebound = browser.with("host", "evil.example:8082");
    for path in ["/workflows", "/assets/dashboard.js", "/metrics", "/history.json?id=x"] {
        assert_eq!(rebound.get(path).await.status, 403, "{path}");
    }
    assert_eq!(browser.with("host", "localhost:1").get("/workflows").await.status, 200);
    assert!(!browser.get("/workflows").await.text.contains("Sign out"), "there is no login");
    let embedded = browser.with("sec-fetch-site", "cross-site").with("sec-fetch-mode", "no-cors");
    assert_eq!(embedded.get("/workflows").await.status, 403);
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_of_another_site_does_nothing() {
    let shop = Shop::open().await;
    shop.wait_for_approval("approval-1").await;
    let browser = shop.browser();
    let cancel = [("action", "cancel"), ("id", "approval-1"), ("confirm", "yes"), ("reason", "x")];
    for foreign in [browser.with("origin", "http://evil.example"), browser.with("origin", "null")] {
        assert_eq!(foreign.post("/workflow", &cancel).await.status, 403);
    }
    let body = "action=cancel&id=approval-1&confirm=yes&reason=x".to_owned();
    assert_eq!(browser.send(Method::POST, "/workflow", body.clone()).await.status, 403, "no form token");
    let wrong = format!("form=0000&{body}");
    assert_eq!(browser.send(Method::POST, "/workflow", wrong).await.status, 403, "a wrong form token");
    browser.get("/workflow?id=approval-1").await.has(&["Running"]);
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_token_nothing_is_shown_before_the_login() {
    let shop = Shop::with(|options| options.with_token(TOKEN)).await;
    let browser = shop.browser();
    let page = browser.get("/workflows").await;
    assert_eq!(page.status, 401);
    page.has(&["type=\"password\""]);
    assert!(!page.text.contains("Queues"), "the pages are not named");
    for path in ["/history.json?id=x", "/metrics", "/workflow?id=x", "/data"] {
        assert_eq!(browser.get(path).await.status, 401, "{path}");
    }
    let form = page.attribute("name=\"form\"", "value").expect("a form token");
    let sign_in =
        async |token: &str| browser.send(Method::POST, "/login", format!("form={form}&token={token}")).await;
    let begin = std::time::Instant::now();
    assert_eq!(sign_in("wrong").await.status, 401);
    assert!(begin.elapsed().as_millis() >= 1000, "a wrong token is answered slowly");
    let signed_in = sign_in(TOKEN).await;
    assert_eq!((signed_in.status, signed_in.header("location")), (303, "/workflows"));
    let cookie = signed_in.header("set-cookie");
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    assert!(!cookie.contains(TOKEN));
    let inside = browser.with("cookie", cookie.split(';').next().expect("a pair"));
    assert_eq!(inside.get("/workflows").await.status, 200);
    let action = [("action", "count"), ("filter", "status=failed"), ("workflow_action", "cancel")];
    assert_eq!(inside.post("/bulk", &action).await.status, 200);
    let form_inside = inside.get("/bulk").await.attribute("name=\"form\"", "value").expect("a form token");
    assert_ne!(form, form_inside, "people who are not signed in do not see the token of the forms");
    let outside = format!("form={form_inside}&action=count&filter=status%3Dfailed&workflow_action=cancel");
    assert_eq!(browser.send(Method::POST, "/bulk", outside).await.status, 401);
    assert!(cookie.contains("Max-Age=43200"), "{cookie}");
    inside.get("/workflows").await.has(&["Sign out"]);
    let signed_out = inside.post("/logout", &[]).await;
    assert_eq!((signed_out.status, signed_out.header("location")), (303, "/workflows"));
    assert!(signed_out.header("set-cookie").contains("Max-Age=0"));
    assert_eq!(inside.get("/workflows").await.status, 401, "the session has ended");
    let again = sign_in(TOKEN).await;
    assert_ne!(again.header("set-cookie"), cookie, "each login has a session of its own");
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_reads_the_metrics_with_the_token_and_nothing_else() {
    let shop = Shop::with(|options| options.with_token(TOKEN)).await;
    let program = shop.browser().with("authorization", &format!("Bearer {TOKEN}"));
    let metrics = program.get("/metrics").await;
    assert_eq!(metrics.status, 200);
    metrics.has(&["perihelion_dashboard_viewers 0"]);
    for path in ["/workflows", "/history.json?id=x", "/data"] {
        assert_eq!(program.get(path).await.status, 401, "{path}");
    }
    assert_eq!(program.post("/bulk", &[("action", "count")]).await.status, 401);
    for wrong in ["Bearer a-token-that-nobody-chose", "Bearer ", TOKEN] {
        let answer = shop.browser().with("authorization", wrong).get("/metrics").await;
        assert_eq!(answer.status, 401, "{wrong}");
        assert!(!answer.text.contains("perihelion_dashboard"), "{}", answer.text);
    }
    assert_eq!(program.get("/metrics").await.status, 200);
    shop.close().await;
}

/// Story of a bug: a program that closed its connections, and did not wait for the answers, could guess
/// tokens fast.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_login_delays_the_next_login_also_if_its_client_disconnects() {
    let shop = Shop::with(|options| options.with_token(TOKEN)).await;
    let browser = shop.browser();
    let form = browser.get("/workflows").await.attribute("name=\"form\"", "value").expect("a form token");
    let sign_in =
        async |token: &str| browser.send(Method::POST, "/login", format!("form={form}&token={token}")).await;
    let begin = std::time::Instant::now();
    for _ in 0..3 {
        let abandoned = tokio::time::timeout(Duration::from_millis(100), sign_in("wrong")).await;
        assert!(abandoned.is_err(), "the answer comes later");
    }
    assert_eq!(sign_in(TOKEN).await.status, 303, "the right token works");
    assert!(begin.elapsed().as_millis() >= 3000, "one second for each wrong one: {:?}", begin.elapsed());
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_loopback_there_is_always_a_token() {
    let shop = Shop::open().await;
    let open = |token: Option<&str>| {
        let mut options = DashboardOptions::new("duroxide", "duroxide");
        options.token = token.map(ToOwned::to_owned);
        let client = shop.server.client();
        async move {
            let socket = TcpListener::bind("0.0.0.0:0").await.expect("a socket");
            Dashboard::start(socket, client.await, options)
        }
    };
    let dashboard = open(None).await.expect("a dashboard");
    let token = dashboard.made_token().expect("a token").to_owned();
    assert_eq!(token.len(), 64);
    assert_eq!(dashboard.sign_in_path(), Some(format!("/#token={token}")));
    assert!(!format!("{dashboard:?}").contains(&token), "a log must not get the token");
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], dashboard.address().port()));
    assert_eq!(Browser::new(address).get("/workflows").await.status, 401);
    assert!(open(Some("short")).await.is_err_and(|error| error.to_string().contains("at least 16")));
    assert_eq!(open(Some(TOKEN)).await.expect("a dashboard").made_token(), None, "a given token is not made");
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_dashboard_changes_nothing() {
    let shop = Shop::with(|options| options.with_read_only(true)).await;
    shop.wait_for_approval("approval-1").await;
    let browser = shop.browser();
    let page = browser.get("/workflow?id=approval-1").await;
    page.has(&["read-only"]);
    assert!(!page.text.contains("<form method=\"post\""), "there is no form that changes something");
    // The form of a query has the form token.
    let container = browser.get("/container?database=duroxide&container=duroxide").await;
    let form = container.attribute("name=\"form\"", "value").expect("a form token");
    for (path, body) in [
        ("/workflow", "action=cancel&id=approval-1&confirm=yes&reason=x"),
        ("/bulk", "action=begin&filter=status%3Drunning&workflow_action=cancel&confirm=yes"),
        ("/item", "action=delete&database=duroxide&container=duroxide&id=i&key=approval-1&confirm=yes"),
    ] {
        let answer = browser.send(Method::POST, path, format!("form={form}&{body}")).await;
        assert_eq!(answer.status, 403, "{path}");
        answer.has(&["read-only"]);
    }
    let query =
        format!("form={form}&action=query&database=duroxide&container=duroxide&sql=SELECT+VALUE+1+FROM+c");
    assert_eq!(browser.send(Method::POST, "/container", query).await.status, 200, "reading is allowed");
    browser.get("/workflow?id=approval-1").await.has(&["Running"]);
    shop.close().await;
}
