//! Tests of the embedded database: it serves without a socket, obeys a paused clock,
//! injects faults and closes in order.

use super::*;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Sends one request. `key` is the value of the partition key header; an empty `key`
/// sends no such header.
async fn send(
    transport: &InProcess,
    method: Method,
    path: &str,
    key: &str,
    body: &str,
) -> Result<Response, Failure> {
    let mut headers = HeaderMap::new();
    if !key.is_empty() {
        headers.insert("x-ms-documentdb-partitionkey", key.parse().unwrap());
    }
    transport
        .send(Request {
            endpoint: Endpoint::parse(EMBEDDED_GLOBAL).unwrap(),
            method,
            target: path.parse().unwrap(),
            headers,
            body: Bytes::copy_from_slice(body.as_bytes()),
            deadline: (Instant::now() + REQUEST_TIMEOUT).into_std(),
            route: Default::default(),
        })
        .await
}

async fn status(transport: &InProcess, method: Method, path: &str, key: &str, body: &str) -> u16 {
    send(transport, method, path, key, body)
        .await
        .unwrap_or_else(|failure| panic!("{failure}"))
        .status()
        .as_u16()
}

async fn open_with_container(options: EmbeddedOptions) -> Embedded {
    let database = Embedded::open(options).await.unwrap();
    let transport = database.transport();
    assert_eq!(status(&transport, Method::POST, "/dbs", "", r#"{"id":"d"}"#).await, 201);
    let body = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
    assert_eq!(status(&transport, Method::POST, "/dbs/d/colls", "", body).await, 201);
    database
}

async fn create(transport: &InProcess, id: &str) -> Result<Response, Failure> {
    let body = format!(r#"{{"id":"{id}","pk":"a"}}"#);
    send(transport, Method::POST, "/dbs/d/colls/c/docs", r#"["a"]"#, &body).await
}

async fn read_status(transport: &InProcess, id: &str) -> u16 {
    status(transport, Method::GET, &format!("/dbs/d/colls/c/docs/{id}"), r#"["a"]"#, "").await
}

#[tokio::test(start_paused = true)]
async fn items_are_served_without_a_socket_under_a_paused_clock() {
    let database = open_with_container(EmbeddedOptions::default()).await;
    let transport = database.transport();
    assert_eq!(create(&transport, "1").await.unwrap().status(), 201);
    assert_eq!(read_status(&transport, "1").await, 200);
    assert_eq!(read_status(&transport, "2").await, 404);
    let account = send(&transport, Method::GET, "/", "", "").await.unwrap();
    let text = String::from_utf8(account.into_body().to_vec()).unwrap();
    assert!(text.contains("\"databaseAccountEndpoint\":\"https://account.perihelion.internal/\""), "{text}");
    database.close().await;
}

#[tokio::test(start_paused = true)]
async fn the_failure_of_a_dropped_request_says_whether_it_was_sent() {
    let database = open_with_container(EmbeddedOptions::default()).await;
    let transport = database.transport();
    for (when, sent, read_status_after) in [("before", Sent::Unknown, 404), ("after", Sent::Yes, 200)] {
        let rule = format!(r#"{{"operation":"create_item","count":1,"drop":"{when}"}}"#);
        assert_eq!(database.manage(Method::POST, "faults", &rule).await.unwrap().status(), 200);
        let failure = create(&transport, when).await.unwrap_err();
        assert_eq!((failure.kind, failure.sent), (FailureKind::Closed, sent), "{when}");
        assert_eq!(read_status(&transport, when).await, read_status_after, "{when}");
    }
    database.close().await;
}

#[tokio::test(start_paused = true)]
async fn an_injected_delay_is_waited_for_up_to_the_deadline() {
    let database = open_with_container(EmbeddedOptions::default()).await;
    let transport = database.transport();
    let rule = r#"{"operation":"read_item","count":1,"delayMs":60000}"#;
    assert_eq!(database.manage(Method::POST, "faults", rule).await.unwrap().status(), 200);
    let failure = send(&transport, Method::GET, "/dbs/d/colls/c/docs/1", r#"["a"]"#, "").await.unwrap_err();
    assert_eq!((failure.kind, failure.sent), (FailureKind::Timeout, Sent::Yes));
    let rule = r#"{"operation":"read_item","count":1,"delayMs":300}"#;
    assert_eq!(database.manage(Method::POST, "faults", rule).await.unwrap().status(), 200);
    let sent_at = Instant::now();
    assert_eq!(read_status(&transport, "1").await, 404);
    assert!(sent_at.elapsed() >= Duration::from_millis(300), "{:?}", sent_at.elapsed());
    database.close().await;
}

#[tokio::test(start_paused = true)]
async fn an_injected_delay_of_one_range_does_not_slow_the_other_ranges() {
    let database = open_with_container(EmbeddedOptions::default().with_partitions(4)).await;
    let transport = database.transport();
    let mut documents = Vec::new();
    for n in 0..16 {
        let (key, body) = (format!(r#"["k{n}"]"#), format!(r#"{{"id":"{n}","pk":"k{n}"}}"#));
        let created = send(&transport, Method::POST, "/dbs/d/colls/c/docs", &key, &body).await.unwrap();
        let range = created.headers()["x-ms-documentdb-partitionkeyrangeid"].to_str().unwrap().to_owned();
        documents.push((format!("/dbs/d/colls/c/docs/{n}"), key, range));
    }
    let slow = documents[0].2.clone();
    assert!(documents.iter().any(|(_, _, range)| *range != slow), "{documents:?}");
    let rule = format!(r#"{{"container":"c","range":"{slow}","delayMs":300}}"#);
    assert_eq!(database.manage(Method::POST, "faults", &rule).await.unwrap().status(), 200);
    for (path, key, range) in &documents {
        let sent_at = Instant::now();
        assert_eq!(status(&transport, Method::GET, path, key, "").await, 200);
        let is_slow = sent_at.elapsed() >= Duration::from_millis(300);
        assert_eq!(is_slow, *range == slow, "{path} of range {range}: {:?}", sent_at.elapsed());
    }
    database.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_body_over_the_limit_is_refused_with_413() {
    let database = open_with_container(EmbeddedOptions::default()).await;
    let body = "x".repeat(Limits::default().body_bytes + 1);
    let path = "/dbs/d/colls/c/docs";
    assert_eq!(status(&database.transport(), Method::POST, path, r#"["a"]"#, &body).await, 413);
    database.close().await;
}

#[tokio::test]
async fn a_closed_database_refuses_requests_and_keeps_acknowledged_writes() {
    let directory = std::env::temp_dir().join(format!("perihelion-embedded-{}", std::process::id()));
    let options = EmbeddedOptions::default().with_data(&directory);
    let database = open_with_container(options.clone()).await;
    let transport = database.transport();
    assert_eq!(create(&transport, "1").await.unwrap().status(), 201);
    database.close().await;
    let failure = create(&transport, "2").await.unwrap_err();
    assert_eq!((failure.kind, failure.sent), (FailureKind::Connect, Sent::No));

    let database = Embedded::open(options).await.unwrap();
    assert_eq!(read_status(&database.transport(), "1").await, 200);
    assert_eq!(read_status(&database.transport(), "2").await, 404);
    database.close().await;
    std::fs::remove_dir_all(&directory).unwrap();
}

#[tokio::test(start_paused = true)]
async fn closing_does_not_wait_forever_for_a_paused_request() {
    let database = open_with_container(EmbeddedOptions::default()).await;
    let transport = database.transport();
    assert_eq!(database.manage(Method::POST, "pause", "").await.unwrap().status(), 200);
    let paused_request = tokio::spawn(async move { send(&transport, Method::GET, "/dbs/d", "", "").await });
    tokio::task::yield_now().await;
    database.close().await;
    assert_eq!(paused_request.await.unwrap().unwrap_err().kind, FailureKind::Timeout);
}

/// Story of a bug: a query whose caller had given up still held the store when the database was closed,
/// and the directory could not be opened again at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_waits_for_a_query_whose_caller_has_left() {
    let scratch = perihelion_testkit::ScratchDirectory::new();
    let options = EmbeddedOptions::default().with_data(scratch.path());
    let database = open_with_container(options.clone()).await;
    let transport = database.transport();
    // Documents for which a query needs a long time. The first slice ends before the third document.
    let numbers = (0..100).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
    for id in ["1", "2", "3", "4"] {
        let body = format!(r#"{{"id":"{id}","pk":"a","n":[{numbers}]}}"#);
        let created = send(&transport, Method::POST, "/dbs/d/colls/c/docs", r#"["a"]"#, &body).await;
        assert_eq!(created.unwrap().status(), 201);
    }
    let query = tokio::spawn(async move {
        let statement =
            "SELECT VALUE COUNT(1) FROM c JOIN x IN c.n JOIN y IN c.n JOIN z IN c.n WHERE x + y + z < 0";
        let mut request = Request {
            endpoint: Endpoint::parse(EMBEDDED_GLOBAL).unwrap(),
            method: Method::POST,
            target: "/dbs/d/colls/c/docs".parse().unwrap(),
            headers: HeaderMap::new(),
            body: Bytes::from(format!(r#"{{"query":"{statement}"}}"#)),
            deadline: (Instant::now() + CLOSE_WAIT).into_std(),
            route: Default::default(),
        };
        for (name, value) in [
            ("x-ms-documentdb-partitionkey", r#"["a"]"#),
            ("x-ms-documentdb-isquery", "True"),
            ("content-type", "application/query+json"),
        ] {
            request.headers.insert(name, value.parse().unwrap());
        }
        transport.send(request).await
    });
    let reads = Arc::clone(&database.account.services[0].account.long_reads);
    while reads.threads() == 0 {
        assert!(!query.is_finished(), "{:?}", query.await);
        tokio::task::yield_now().await;
    }
    query.abort();
    assert!(query.await.unwrap_err().is_cancelled());
    // The thread of the query usually still runs: it notices after its slice that its caller has left.
    drop(reads);
    database.close().await;
    Embedded::open(options).await.unwrap().close().await;
}
