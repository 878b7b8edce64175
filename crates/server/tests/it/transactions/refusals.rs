//! Requests that are refused whole: the sub-statuses 5405 to 5410, the limits, throttling.

use perihelion_server::{AccountOptions, TransactionLimits, TransactionOptions};
use perihelion_testkit::{ScratchDirectory, TestServer};

use super::*;

#[tokio::test]
async fn bad_requests_are_refused_with_their_sub_status_and_leave_the_token_free() {
    let world = world().await;
    let one = [create("c", "a", "1")];
    let body = |text: &str| {
        HttpRequest::new("POST", "/operations/dtc")
            .header("x-ms-cosmos-idempotency-token", token(1))
            .body(text.to_owned())
    };
    let deep = format!(r#"{{"operations":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    for text in
        ["", "{", "[]", r#"{"operations":[]}"#, r#"{"operations":[{}]}"#, "\u{80}binary", deep.as_str()]
    {
        check_refused(&world.send(body(text)).await, 400, 5405);
    }
    check_refused(&world.send(write(1, &vec![upsert("c", "a", "1", 1); 101])).await, 400, 5407);
    check_refused(&world.send(bare(&one)).await, 400, 5408);
    check_refused(
        &world.send(bare(&one).header("x-ms-cosmos-idempotency-token", "not a uuid")).await,
        400,
        5408,
    );
    check_refused(&world.send(write(1, &[create("c", "a", "1"), read_item("c", "a", "1")])).await, 400, 5410);
    check_refused(&world.send(read(&one)).await, 400, 5410);
    check_refused(&world.send(bare(&one).header("x-ms-cosmos-operation-type", "Query")).await, 400, 5410);
    check_refused(&world.send(write(1, &one).header("x-ms-idempotency-token", token(2))).await, 400, 5410);
    check_refused(
        &world.send(write(1, &one).header("x-ms-documentdb-pre-trigger-include", "t")).await,
        400,
        5410,
    );
    let script =
        create("c", "a", "1").replace(r#""resourceType":"Document""#, r#""resourceType":"StoredProcedure""#);
    check_refused(&world.send(write(1, &[script])).await, 400, 5410);
    check_refused(&world.send(write(1, &[operation("Execute", "c", "a", "1", "")])).await, 400, 5410);
    check_refused(&world.send(write(1, &[delete("c", "a", &"x".repeat(5000))])).await, 400, 5410);
    let large = operation(
        "Create",
        "c",
        "a",
        "1",
        &format!(r#","resourceBody":{{"id":"1","pk":"a","s":"{}"}}"#, "x".repeat(2_200_000)),
    );
    check_refused(&world.send(write(1, &[large])).await, 413, 0);
    // None of these requests used the token or wrote anything.
    let answer = world.send(write(1, &vec![upsert("c", "a", "1", 1); 100])).await;
    assert_eq!((envelope(&answer), statuses(&answer).len()), ((200, 0), 100), "{}", answer.text());
    world.stop().await;
}

#[tokio::test]
async fn a_request_without_an_account_in_its_host_is_5409_and_a_get_is_405() {
    let world = world().await;
    let nameless = write(1, &[create("c", "a", "1")]).header("host", "");
    check_refused(&world.send(nameless).await, 400, 5409);
    check_refused(&world.send(HttpRequest::new("GET", "/operations/dtc")).await, 405, 0);
    world.stop().await;
}

#[tokio::test]
async fn an_unsigned_transaction_is_refused_and_both_known_signatures_are_accepted() {
    use perihelion_wire::signature::{MasterKey, SignedDate};
    let world = world().await;
    assert_eq!(world.send(write(1, &[create("c", "a", "1")]).omit("authorization")).await.status, 401);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let date = perihelion_wire::date::format(now);
    for (number, resource_type, status) in
        [(1, "", 200), (2, "distributedtransactionbatch", 200), (3, "docs", 401)]
    {
        let signature =
            MasterKey::emulator().authorization("POST", resource_type, "", SignedDate::MsDate(&date));
        let call = write(number, &[upsert("c", "a", "1", 1)])
            .header("x-ms-date", date.as_str())
            .header("authorization", signature);
        assert_eq!(world.send(call).await.status, status, "{resource_type}");
    }
    world.stop().await;
}

#[tokio::test]
async fn the_limits_and_the_strict_switch_are_options() {
    let account = AccountOptions {
        transactions: TransactionOptions {
            limits: TransactionLimits { operations_max: 2, body_bytes_max: 1_000 },
            is_strict: true,
            ..TransactionOptions::default()
        },
        ..AccountOptions::default()
    };
    let world = with_options(ServerOptions { account, ..ServerOptions::default() }).await;
    check_refused(&world.send(write(1, &vec![upsert("c", "a", "1", 1); 3])).await, 400, 5407);
    let padded = operation(
        "Create",
        "c",
        "a",
        "1",
        &format!(r#","resourceBody":{{"id":"1","pk":"a","s":"{}"}}"#, "x".repeat(1_000)),
    );
    check_refused(&world.send(write(1, &[padded])).await, 413, 0);
    let hierarchical = r#"{"id":"h","partitionKey":{"paths":["/pk","/sub"],"kind":"MultiHash","version":2}}"#;
    world.send(HttpRequest::new("POST", "/dbs/d/colls").json(&json(hierarchical))).await;
    let in_hierarchy = operation("Upsert", "h", "a", "1", r#","resourceBody":{"id":"1","pk":"a","sub":"b"}"#)
        .replace(r#"["a"]"#, r#"["a","b"]"#);
    check_refused(&world.send(write(1, std::slice::from_ref(&in_hierarchy))).await, 400, 5406);
    assert_eq!(world.send(write(1, &[upsert("c", "a", "1", 1)])).await.status, 200);
    world.stop().await;
    // Without the switch, hierarchical keys work.
    let world = with_options(ServerOptions::default()).await;
    world.send(HttpRequest::new("POST", "/dbs/d/colls").json(&json(hierarchical))).await;
    let answer = world.send(write(1, &[in_hierarchy, upsert("c", "a", "1", 1)])).await;
    assert_eq!(envelope(&answer), (200, 0), "{}", answer.text());
    world.stop().await;
}

#[tokio::test]
async fn a_transaction_is_throttled_whole_before_anything_is_written() {
    let account = AccountOptions { throughput: Some(400), ..AccountOptions::default() };
    let world = with_options(ServerOptions { account, ..ServerOptions::default() }).await;
    // A range has 100 units per second. This transaction takes several hundred units of one range,
    // so that the range has a debt.
    let many: Vec<String> = (0..100).map(|n| create("c", "a", &n.to_string())).collect();
    assert_eq!(world.send(write(1, &many)).await.status, 200);
    let throttled = world.send(write(2, &[upsert("other", "z", "1", 1), upsert("c", "a", "1", 1)])).await;
    check_refused(&throttled, 429, 3200);
    assert!(throttled.header("x-ms-retry-after-ms").is_some() && throttled.header("retry-after").is_some());
    check_refused(&world.send(read(&[read_item("c", "a", "1")])).await, 429, 3200);
    assert_eq!(n_of(&world, "other", "z", "1").await, None);
    // A replay costs nothing and is not throttled.
    assert_eq!(world.send(write(1, &many)).await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn a_transaction_whose_containers_are_all_missing_is_refused_and_leaves_the_token_free() {
    let world = world().await;
    check_refused(&world.send(write(1, &[create("missing", "a", "1")])).await, 404, 1003);
    assert_eq!(world.send(write(1, &[create("c", "a", "1")])).await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn an_aborted_transaction_quotes_little_of_the_request() {
    let world = world().await;
    let path = "x".repeat(1_000_000);
    let members =
        format!(r#","resourceBody":{{"operations":[{{"op":"replace","path":"/{path}","value":1}}]}}"#);
    let created = world.send(write(1, &[create("c", "a", "1")])).await;
    assert_eq!(created.status, 200);
    let answer = world.send(write(2, &[operation("Patch", "c", "a", "1", &members)])).await;
    assert_eq!(envelope(&answer), (452, 5421));
    assert!(answer.body.len() < 2_000, "{}", answer.body.len());
    let diagnostic = text_of(&answer.json().unwrap(), "diagnosticString").unwrap();
    assert!(diagnostic.starts_with("Operation 0 failed with 400"), "{diagnostic}");
    world.stop().await;
}

#[tokio::test]
async fn a_read_transaction_that_is_too_large_is_charged() {
    let scratch = ScratchDirectory::new();
    let options = |throughput| ServerOptions {
        account: AccountOptions {
            data: Some(scratch.path().join("data")),
            throughput,
            ..AccountOptions::default()
        },
        ..ServerOptions::default()
    };
    let world = with_options(options(None)).await;
    let pad = "x".repeat(1_500_000);
    for id in ["1", "2", "3"] {
        let body = format!(r#"{{"id":"{id}","pk":"a","pad":"{pad}"}}"#);
        assert_eq!(world.create(r#"["a"]"#, &body).await.status, 201);
    }
    world.stop().await;
    let server = TestServer::on_socket(options(Some(400))).await;
    let client = server.http_client();
    let reads = ["1", "2", "3"].map(|id| read_item("c", "a", id));
    check_refused(&client.send(&read(&reads)).await.unwrap(), 413, 0);
    check_refused(&client.send(&read(&reads)).await.unwrap(), 429, 3200);
    drop(client);
    server.stop().await;
}
