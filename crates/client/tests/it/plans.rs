//! Query plans: the client makes them itself, and uses the service's plan when it cannot.

use bytes::Bytes;
use perihelion_client::{Client, Container, ContainerProperties, ErrorKind, FeedRange, Query};
use perihelion_server::{EmbeddedOptions, InProcess};
use perihelion_testkit::TestServer;
use perihelion_wire::transport::{Failure, Request, Response, Transport};
use serde_json::{Value, json};

use crate::queries::{IN_ANY_ORDER, IN_ORDER, orders_in_four_partitions, searchable, sorted_texts};
use crate::world::World;

#[tokio::test(start_paused = true)]
async fn a_merged_query_costs_no_plan_request_and_has_the_rows_of_the_services_plan() {
    let (world, orders) = orders_in_four_partitions().await;
    let more = [
        "SELECT TOP 9 * FROM c",
        "SELECT VALUE c.id FROM c OFFSET 100 LIMIT 30",
        "SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.state FROM c)",
        "SELECT VALUE COUNT(1) FROM c WHERE c.customer IN ('customer-3', 'customer-4')",
        "SELECT DISTINCT c.state FROM c WHERE false",
        "SELECT MAKELIST(c.state) AS l, MAKESET(c.weight) AS s, COUNTIF(c.total > 9) AS n FROM c GROUP BY c.customer",
    ];
    for statement in IN_ORDER.iter().chain(IN_ANY_ORDER).chain(&more) {
        world.reset_counters().await;
        let own: Vec<Value> = orders.query(*statement).collect().await.unwrap();
        assert_eq!(world.requests("query_plan").await, 0, "{statement}");
        let by_service: Vec<Value> =
            orders.query(Query::new(*statement).with_service_plan()).collect().await.unwrap();
        // Only these two statements need no merging, and so no plan.
        let is_planned = !["SELECT VALUE c.id FROM c", "SELECT c.id, c.weight FROM c WHERE c.total > 60"]
            .contains(statement);
        assert_eq!(world.requests("query_plan").await, u64::from(is_planned), "{statement}");
        assert_eq!(sorted_texts(own), sorted_texts(by_service), "{statement}");
    }
}

#[tokio::test(start_paused = true)]
async fn parameters_key_prefixes_and_ranges_need_no_plan_request() {
    let world = World::new(4).await;
    let key = r#"{"paths":["/tenant","/user"],"kind":"MultiHash","version":2}"#;
    let events = world.container("events", key).await;
    for number in 0..40_u64 {
        let (tenant, user) = (format!("t{}", number % 4), format!("u{number}"));
        let event = json!({"id": number.to_string(), "tenant": tenant, "user": user, "n": number});
        events.create((tenant.as_str(), user.as_str()), &event).await.unwrap();
    }
    world.reset_counters().await;
    let within = Query::new("SELECT VALUE c.n FROM c ORDER BY c.n OFFSET @skip LIMIT @take")
        .with_parameter("@skip", 2)
        .with_parameter("@take", 3)
        .in_partition("t1");
    assert_eq!(events.query::<u64>(within).collect().await.unwrap(), [9, 13, 17]);
    let range: FeedRange = "-20".parse().unwrap();
    let count = Query::new("SELECT VALUE COUNT(1) FROM c").in_range(range);
    assert_eq!(events.query::<u64>(count).collect().await.unwrap().len(), 1);

    // The filter names a prefix of the key, so one partition is queried.
    let before = world.requests("query").await;
    let by_filter = Query::new("SELECT TOP @n VALUE c.n FROM c WHERE c.tenant = 't2' ORDER BY c.n DESC")
        .with_parameter("@n", 2);
    assert_eq!(events.query::<u64>(by_filter.clone()).collect().await.unwrap(), [38, 34]);
    let own_requests = world.requests("query").await - before;
    assert_eq!(world.requests("query_plan").await, 0);
    let by_service = events.query::<u64>(by_filter.with_service_plan()).collect().await.unwrap();
    assert_eq!((by_service, world.requests("query_plan").await), (vec![38, 34], 1));
    assert_eq!(world.requests("query").await - before, own_requests * 2);
    assert_eq!(own_requests, 1);
}

#[tokio::test]
async fn a_search_is_planned_with_the_containers_vectors() {
    let server =
        TestServer::in_process(EmbeddedOptions::default().with_partitions(4).with_strict_gateway(true)).await;
    let client = server.client().await;
    let shop = client.create_database("shop").await.unwrap();
    let vector = |path: &str| json!({"path": path, "dataType": "float32", "dimensions": 2, "distanceFunction": "euclidean"});
    let properties = ContainerProperties::new("searched", "/customer")
        .with_other("vectorEmbeddingPolicy", json!({"vectorEmbeddings": [vector("/vector")]}));
    let orders = shop.create_container(&properties).await.unwrap();
    for number in 0..24_u64 {
        let mut order = searchable(number);
        order["later"] = order["vector"].clone();
        orders.create(format!("customer-{}", number % 20), &order).await.unwrap();
    }
    server.reset_counters().await;
    let nearest =
        |path: &str| format!("SELECT TOP 5 VALUE c.id FROM c ORDER BY VectorDistance(c.{path}, [1, 0])");
    let by_service = Query::new(nearest("vector")).with_service_plan();
    let by_service: Vec<String> = orders.query(by_service).collect().await.unwrap();
    assert_eq!(server.requests("query_plan").await, 1);
    assert_eq!(orders.query::<String>(nearest("vector")).collect().await.unwrap(), by_service);
    let ranked = Query::new(
        "SELECT TOP 4 VALUE c.id FROM c ORDER BY RANK RRF(FullTextScore(c.words, 'lamp'), VectorDistance(c.vector, [1, 0]))",
    );
    let own: Vec<String> = orders.query(ranked.clone()).collect().await.unwrap();
    assert_eq!(server.requests("query_plan").await, 1, "the client has planned both searches");
    assert_eq!(own, orders.query::<String>(ranked.with_service_plan()).collect().await.unwrap());

    // The vector is added after the client has read the container's properties: only the
    // service knows that a lower distance is better.
    let mut properties = orders.properties().await.unwrap();
    properties.other.insert(
        "vectorEmbeddingPolicy".to_owned(),
        json!({"vectorEmbeddings": [vector("/vector"), vector("/later")]}),
    );
    orders.replace_properties(&properties).await.unwrap();
    server.reset_counters().await;
    assert_eq!(orders.query::<String>(nearest("later")).collect().await.unwrap(), by_service);
    assert_eq!(server.requests("query_plan").await, 1);
}

/// A service that differs from ours: `react` decides what happens to a request for a page or a plan.
struct OtherService {
    service: InProcess,
    /// Gets the body of a request for a page, or `plan:` and the body of a request for a plan.
    react: fn(&str) -> Reaction,
}

/// What the other service does with a request for a page or a plan.
enum Reaction {
    /// Processes the request with this body.
    Process(String),
    /// Processes the request unchanged, and replaces a text in the answer.
    EditAnswer { from: &'static str, to: &'static str },
    /// Refuses the request with 400.
    Refuse,
}

impl Transport for OtherService {
    async fn send(&self, mut request: Request) -> Result<Response, Failure> {
        let Ok(body) = std::str::from_utf8(&request.body) else { return self.service.send(request).await };
        if !request.target.path().ends_with("/docs") || !body.contains("\"query\"") {
            return self.service.send(request).await;
        }
        let is_plan = request.headers.contains_key("x-ms-cosmos-is-query-plan-request");
        match (self.react)(&format!("{}{body}", if is_plan { "plan:" } else { "" })) {
            Reaction::Process(body) => {
                request.body = Bytes::from(body.trim_start_matches("plan:").to_owned());
                self.service.send(request).await
            }
            Reaction::EditAnswer { from, to } => {
                let mut response = self.service.send(request).await?;
                let body = String::from_utf8(response.body().to_vec()).unwrap().replace(from, to);
                *response.body_mut() = Bytes::from(body);
                Ok(response)
            }
            Reaction::Refuse => {
                request.body = Bytes::from_static(br#"{"query":"SELECT REFUSED"}"#);
                self.service.send(request).await
            }
        }
    }
}

/// A client of another service with 20 orders in three partitions.
async fn other_service(react: fn(&str) -> Reaction) -> (TestServer, Container) {
    let server =
        TestServer::in_process(EmbeddedOptions::default().with_partitions(3).with_strict_gateway(true)).await;
    let service = server.embedded().transport();
    let client = Client::over(&server.endpoint(), OtherService { service, react }).await.unwrap();
    let shop = client.create_database("shop").await.unwrap();
    let orders = shop.create_container(&ContainerProperties::new("orders", "/pk")).await.unwrap();
    for n in 0..20 {
        let key = format!("key-{n}");
        orders.create(key.as_str(), &json!({"id": n.to_string(), "pk": key, "n": n})).await.unwrap();
    }
    (server, orders)
}

#[tokio::test(start_paused = true)]
async fn a_language_feature_that_only_the_service_knows_is_planned_by_the_service() {
    let newer = |body: &str| Reaction::Process(body.replace("SORTED UPWARDS BY", "ORDER BY"));
    let (server, orders) = other_service(newer).await;
    let sorted = Query::new("SELECT VALUE c.n FROM c SORTED UPWARDS BY c.n").with_max_items(6);
    for query in [sorted.clone(), sorted.clone().in_range("-FF".parse().unwrap())] {
        server.reset_counters().await;
        assert_eq!(orders.query::<u64>(query).collect().await.unwrap(), (0..20).collect::<Vec<_>>());
        // Over the whole container the refusal contains the plan, so none is requested.
        assert!(server.requests("query_plan").await <= 1);
    }
    assert_eq!(server.requests("query_plan").await, 1);
    let page = orders.query::<u64>(sorted.clone()).next_page().await.unwrap().unwrap();
    let rest = sorted.with_continuation(page.continuation().unwrap().unwrap());
    assert_eq!(orders.query::<u64>(rest).collect().await.unwrap(), (6..20).collect::<Vec<_>>());
    // For a statement that neither the client nor the service understands, the caller gets the
    // error of the service.
    for scope in ["", "-FF"] {
        let query = Query::new("SELECT VALUE c.n FROM c UNSORTED BY c.n");
        let query = if scope.is_empty() { query } else { query.in_range(scope.parse().unwrap()) };
        let error = orders.query::<u64>(query).collect().await.unwrap_err();
        assert!(error.to_string().contains("SC1001"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rewritten_statement_that_the_service_refuses_is_planned_by_the_service() {
    // A rewritten statement has `orderByItems`. This service adds `1 = 1` to the statements of its plans,
    // and refuses a rewritten statement without `1 = 1`.
    let strict = |body: &str| match body {
        _ if body.starts_with("plan:") => Reaction::EditAnswer { from: "WHERE (", to: "WHERE (1 = 1 AND " },
        _ if body.contains("orderByItems") && !body.contains("1 = 1") => Reaction::Refuse,
        _ => Reaction::Process(body.to_owned()),
    };
    let (server, orders) = other_service(strict).await;
    let sorted = Query::new("SELECT VALUE c.n FROM c ORDER BY c.n").with_max_items(6);
    server.reset_counters().await;
    let page = orders.query::<u64>(sorted.clone()).next_page().await.unwrap().unwrap();
    assert_eq!((page.items.as_slice(), server.requests("query_plan").await), (&[0, 1, 2, 3, 4, 5][..], 1));
    // The token belongs to the service's statement.
    let rest = sorted.clone().with_continuation(page.continuation().unwrap().unwrap());
    assert_eq!(orders.query::<u64>(rest).collect().await.unwrap(), (6..20).collect::<Vec<_>>());
    assert_eq!(server.requests("query_plan").await, 2);
    let other = Query::new("SELECT VALUE c.n FROM c ORDER BY c.id")
        .with_continuation(page.continuation().unwrap().unwrap());
    let error = orders.query::<u64>(other).collect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Input, "{error}");
    assert!(error.to_string().contains("it belongs to another query"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_returned_if_the_services_plan_has_the_refused_statement_too() {
    let refusing = |body: &str| match body.contains("orderByItems") {
        true => Reaction::Refuse,
        false => Reaction::Process(body.to_owned()),
    };
    let (server, orders) = other_service(refusing).await;
    server.reset_counters().await;
    let mut feed = orders.query::<u64>("SELECT VALUE c.n FROM c ORDER BY c.n");
    for asked in 1..=2 {
        let error = feed.next_page().await.unwrap_err();
        assert_eq!(error.status().map(|status| status.code), Some(400), "{error}");
        assert_eq!(server.requests("query_plan").await, asked, "the plan is fetched once in each call");
    }
    // A statement that the client did not change is not planned again.
    let error = orders
        .query::<u64>(Query::new("SELECT TOP 2 VALUE c.orderByItems FROM c"))
        .collect()
        .await
        .unwrap_err();
    assert_eq!(error.status().map(|status| status.code), Some(400), "{error}");
    assert_eq!(server.requests("query_plan").await, 2);
}
