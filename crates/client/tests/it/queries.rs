//! Queries over one partition, a feed range and a whole container, on a server
//! that refuses the cross-partition queries that the real gateway refuses.

use std::collections::HashSet;

use perihelion_client::{Container, ErrorKind, FeedRange, IndexingPolicy, Page, Query, QueryFeed, SortOrder};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::world::World;

const ORDERS: u64 = 120;

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Order {
    id: String,
    customer: String,
    total: f64,
}

/// A server with 120 orders of 20 customers in four physical partitions. Totals are
/// unique, so that every ORDER BY has one correct result.
pub(crate) async fn orders_in_four_partitions() -> (World, Container) {
    let world = World::new(4).await;
    let orders = world.container("orders", r#"{"paths":["/customer"],"kind":"Hash","version":2}"#).await;
    let policy = IndexingPolicy::default()
        .with_composite([("/state", SortOrder::Ascending), ("/total", SortOrder::Descending)])
        .with_composite([("/weight", SortOrder::Descending), ("/total", SortOrder::Ascending)]);
    let properties = orders.properties().await.unwrap().with_indexing_policy(policy);
    orders.replace_properties(&properties).await.unwrap();
    for number in 0..ORDERS {
        orders.create(format!("customer-{}", number % 20), &order(number)).await.unwrap();
    }
    (world, orders)
}

fn order(number: u64) -> Value {
    let state = ["open", "paid", "sent"][(number % 3) as usize];
    let mut order = json!({
        "id": format!("order-{number}"),
        "customer": format!("customer-{}", number % 20),
        "total": total(number),
        "state": state,
        "tags": [state, format!("customer-{}", number % 20)],
    });
    if !number.is_multiple_of(7) {
        order["weight"] = json!(number % 5);
    }
    order
}

/// The total of an order. The totals of all orders are a permutation of 0.5, 1.5 and so
/// on.
fn total(number: u64) -> f64 {
    ((number * 77) % ORDERS) as f64 + 0.5
}

/// The result of the statement over all orders, evaluated without a server.
fn expected_rows(statement: &str) -> Vec<Value> {
    let documents: Vec<_> = (0..ORDERS)
        .map(|number| perihelion_model::json::parse_str(&order(number).to_string()).unwrap())
        .collect();
    let query = perihelion_query::parse(statement).unwrap();
    let now = perihelion_query::Now::from_unix_milliseconds(0);
    let program = perihelion_query::compile(&query, &perihelion_query::Parameters::none(), now).unwrap();
    let rows = program.run(&documents).unwrap();
    rows.iter()
        .map(|row| {
            let text = perihelion_model::json::to_text(row, perihelion_model::json::Style::Query);
            serde_json::from_str(&text).unwrap()
        })
        .collect()
}

/// The rows as sorted texts, to compare two results whose order may differ.
pub(crate) fn sorted_texts(mut rows: Vec<Value>) -> Vec<String> {
    let mut texts: Vec<String> = rows.drain(..).map(|row| canonical(&row).to_string()).collect();
    texts.sort();
    texts
}

/// Writes all numbers as doubles: `3` and `3.0` are the same to the service.
fn canonical(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64().unwrap()),
        Value::Array(items) => items.iter().map(canonical).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, member)| (name.clone(), canonical(member))).collect()
        }
        other => other.clone(),
    }
}

async fn ids(feed: QueryFeed<Order>) -> Vec<String> {
    feed.collect().await.unwrap().into_iter().map(|order| order.id).collect()
}

/// Statements whose result has a fixed order. Aggregates, which have no continuation
/// tokens, come last.
pub(crate) const IN_ORDER: &[&str] = &[
    "SELECT VALUE c.id FROM c ORDER BY c.total",
    "SELECT c.id, c.total FROM c ORDER BY c.total DESC",
    "SELECT VALUE c.id FROM c WHERE c.state = 'open' ORDER BY c.state, c.total DESC",
    "SELECT VALUE c.id FROM c ORDER BY c.weight DESC, c.total",
    "SELECT TOP 7 VALUE c.id FROM c ORDER BY c.total",
    "SELECT VALUE c.id FROM c ORDER BY c.total OFFSET 11 LIMIT 22",
    "SELECT DISTINCT VALUE c.customer FROM c ORDER BY c.customer",
    "SELECT DISTINCT VALUE c.weight FROM c ORDER BY c.weight DESC OFFSET 1 LIMIT 2",
    "SELECT VALUE COUNT(1) FROM c",
    "SELECT VALUE SUM(c.total) FROM c",
    "SELECT VALUE AVG(c.weight) FROM c WHERE c.total < 50",
    "SELECT VALUE MIN(c.total) FROM c",
    "SELECT VALUE MAX(c.id) FROM c",
    "SELECT VALUE MAX(c.nothing) FROM c",
    "SELECT COUNT(1) AS orders, MIN(c.total) AS least, AVG(c.total) AS mean FROM c",
    "SELECT c.state, COUNT(1) AS n FROM c GROUP BY c.state ORDER BY c.state",
    "SELECT c.customer, SUM(c.total) AS n FROM c GROUP BY c.customer ORDER BY c.customer DESC",
];

/// Statements whose result may have any order.
pub(crate) const IN_ANY_ORDER: &[&str] = &[
    "SELECT VALUE c.id FROM c",
    "SELECT c.id, c.weight FROM c WHERE c.total > 60",
    "SELECT DISTINCT VALUE c.state FROM c",
    "SELECT DISTINCT c.state, c.weight FROM c",
    "SELECT c.state, COUNT(1) AS orders, SUM(c.total) AS total FROM c GROUP BY c.state",
    "SELECT VALUE COUNT(1) FROM c GROUP BY c.customer",
    "SELECT c.weight, MAX(c.total) AS most FROM c GROUP BY c.weight",
    "SELECT t AS name, COUNT(1) AS n, MAX(c.total) AS most FROM c JOIN t IN c.tags GROUP BY t",
    "SELECT TOP 3 1 AS one",
];

#[tokio::test(start_paused = true)]
async fn every_kind_of_statement_runs_across_partitions() {
    let (_world, orders) = orders_in_four_partitions().await;
    for statement in IN_ORDER {
        for max_items in [3, 1000] {
            let query = Query::new(*statement).with_max_items(max_items);
            let rows: Vec<Value> = orders.query(query).collect().await.unwrap();
            let rows: Vec<Value> = rows.iter().map(canonical).collect();
            let expected: Vec<Value> = expected_rows(statement).iter().map(canonical).collect();
            assert_eq!(rows, expected, "{statement}");
        }
    }
    for statement in IN_ANY_ORDER {
        for parallel_max in [1, 5] {
            let query = Query::new(*statement).with_max_items(4).with_parallel_max(parallel_max);
            let rows: Vec<Value> = orders.query(query).collect().await.unwrap();
            assert_eq!(sorted_texts(rows), sorted_texts(expected_rows(statement)), "{statement}");
        }
    }
    let top: Vec<Value> = orders.query("SELECT TOP 9 * FROM c").collect().await.unwrap();
    assert_eq!(top.len(), 9);
    let window: Vec<String> =
        orders.query("SELECT VALUE c.id FROM c OFFSET 100 LIMIT 30").collect().await.unwrap();
    assert_eq!(window.iter().collect::<HashSet<_>>().len(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_query_without_merging_needs_no_plan() {
    let (world, orders) = orders_in_four_partitions().await;
    let query = Query::new("SELECT * FROM c WHERE c.total > @least").with_parameter("@least", 60);
    assert_eq!(ids(orders.query(query)).await.len(), 60);
    assert_eq!(world.requests("query_plan").await, 0);
    let count: Option<u64> = orders.query("SELECT VALUE COUNT(1) FROM c").first().await.unwrap();
    assert_eq!(count, Some(ORDERS));
    assert_eq!(world.requests("query_plan").await, 0, "the client plans the statement itself");
}

#[tokio::test(start_paused = true)]
async fn a_query_of_one_partition_needs_no_plan() {
    let (world, orders) = orders_in_four_partitions().await;
    let queries_before = world.requests("query").await;
    let query = Query::new("SELECT * FROM c ORDER BY c.total DESC").in_partition("customer-3");
    let found = ids(orders.query(query)).await;
    let mut numbers: Vec<u64> = (0..ORDERS).filter(|number| number % 20 == 3).collect();
    numbers.sort_by(|a, b| total(*b).total_cmp(&total(*a)));
    assert_eq!(found, numbers.iter().map(|number| format!("order-{number}")).collect::<Vec<_>>());
    let count = Query::new("SELECT VALUE COUNT(1) FROM c").in_partition("customer-3");
    assert_eq!(orders.query::<u64>(count).collect().await.unwrap(), [6]);
    assert_eq!(world.requests("query").await - queries_before, 2);
    assert_eq!(world.requests("query_plan").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_filter_on_one_partition_key_queries_only_that_partition() {
    let (world, orders) = orders_in_four_partitions().await;
    let query = Query::new("SELECT VALUE c.total FROM c WHERE c.customer = @who ORDER BY c.total")
        .with_parameter("@who", "customer-3")
        .with_max_items(2);
    let rows = page_by_page(&orders, query, async |_| {}).await;
    let expected = expected_rows("SELECT VALUE c.total FROM c WHERE c.customer = 'customer-3'");
    assert_eq!(sorted_texts(rows), sorted_texts(expected));
    // Three pages of two, and no plan.
    assert_eq!((world.requests("query").await, world.requests("query_plan").await), (3, 0));
    // The service has no plan for this statement across partitions, but answers it within
    // one partition.
    let composed =
        "SELECT VALUE ROUND(AVG(c.total)) FROM c WHERE c.customer IN ('customer-3') AND c.total > 0";
    let mean: Vec<f64> = orders.query(composed).collect().await.unwrap();
    assert_eq!(mean, expected_rows(composed).iter().map(|row| row.as_f64().unwrap()).collect::<Vec<_>>());
    let two = "SELECT VALUE COUNT(1) FROM c WHERE c.customer IN ('customer-3', 'customer-4')";
    assert_eq!(orders.query::<u64>(two).collect().await.unwrap(), [12]);
}

#[tokio::test(start_paused = true)]
async fn a_query_ends_with_an_error_when_its_container_is_created_again() {
    let (world, orders) = orders_in_four_partitions().await;
    let mut feed = orders.query::<Value>(Query::new("SELECT * FROM c ORDER BY c.total").with_max_items(5));
    assert!(feed.next_page().await.unwrap().is_some());
    world.delete_container(&orders).await;
    world.container("orders", r#"{"paths":["/customer"],"kind":"Hash","version":2}"#).await;
    let error = loop {
        match feed.next_page().await {
            Ok(page) => assert!(page.is_some(), "the query of a deleted container ended without an error"),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("created again"), "{error}");
    let mut fresh = orders.query::<Value>("SELECT * FROM c ORDER BY c.total");
    assert!(fresh.next_page().await.unwrap().is_none());
}

/// The provider polls its queues this way: one request per partition, each with its
/// own order.
#[tokio::test(start_paused = true)]
async fn without_a_plan_each_partition_runs_the_statement_unchanged() {
    let (world, orders) = orders_in_four_partitions().await;
    let first = Query::new("SELECT TOP 5 * FROM c ORDER BY c.total");
    for range in orders.feed_ranges().await.unwrap() {
        let planned = ids(orders.query(first.clone().in_range(range.clone()))).await;
        let queries_before = world.requests("query").await;
        let plans_before = world.requests("query_plan").await;
        assert_eq!(ids(orders.query(first.clone().in_range(range).without_plan())).await, planned);
        assert_eq!(world.requests("query").await - queries_before, 1);
        assert_eq!(world.requests("query_plan").await - plans_before, 0);
    }
    let all = ids(orders.query(first.without_plan())).await;
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), 20, "each of four partitions returns five rows");
}

#[tokio::test(start_paused = true)]
async fn feed_ranges_divide_the_container() {
    let (_world, orders) = orders_in_four_partitions().await;
    let ranges = orders.feed_ranges().await.unwrap();
    assert_eq!(ranges.len(), 4);
    let (mut all, mut counted) = (Vec::new(), 0);
    for range in ranges {
        let range: FeedRange = range.to_string().parse().unwrap();
        all.extend(
            ids(orders.query(Query::new("SELECT * FROM c ORDER BY c.total").in_range(range.clone()))).await,
        );
        let count = Query::new("SELECT VALUE COUNT(1) FROM c").in_range(range);
        counted += orders.query::<u64>(count).first().await.unwrap().unwrap();
    }
    assert_eq!(counted, ORDERS);
    assert_eq!(all.len() as u64, ORDERS);
    assert_eq!(all.iter().collect::<HashSet<_>>().len() as u64, ORDERS);
    // A range need not be a physical partition.
    let part = Query::new("SELECT VALUE COUNT(1) FROM c").in_range("10-30".parse().unwrap());
    let rest = ["-10", "30-FF"].map(|range| {
        orders.query::<u64>(Query::new("SELECT VALUE COUNT(1) FROM c").in_range(range.parse().unwrap()))
    });
    let mut sum = orders.query::<u64>(part).first().await.unwrap().unwrap();
    assert!(sum > 0 && sum < ORDERS, "{sum}");
    for feed in rest {
        sum += feed.first().await.unwrap().unwrap();
    }
    assert_eq!(sum, ORDERS);
}

#[tokio::test(start_paused = true)]
async fn a_prefix_of_a_hierarchical_key_finds_all_documents_below_it() {
    let world = World::new(4).await;
    let key = r#"{"paths":["/tenant","/user"],"kind":"MultiHash","version":2}"#;
    let events = world.container("events", key).await;
    for number in 0..40_u64 {
        let (tenant, user) = (format!("t{}", number % 2), format!("u{number}"));
        let event = json!({"id": number.to_string(), "tenant": tenant, "user": user, "n": number});
        events.create((tenant.as_str(), user.as_str()), &event).await.unwrap();
    }
    let query = Query::new("SELECT VALUE c.n FROM c ORDER BY c.n DESC").in_partition("t1");
    let found: Vec<u64> = events.query(query).collect().await.unwrap();
    assert_eq!(found, (0..40).filter(|number| number % 2 == 1).rev().collect::<Vec<_>>());
    let query = Query::new("SELECT VALUE c.n FROM c").in_partition(("t1", "u7"));
    assert_eq!(events.query::<u64>(query).collect().await.unwrap(), [7]);
}

/// Reads a query page by page. Each page is read by a new feed, which gets only the
/// continuation token of the page before. Calls `between` after each page but the last.
async fn page_by_page(orders: &Container, query: Query, mut between: impl AsyncFnMut(usize)) -> Vec<Value> {
    let mut rows: Vec<Value> = Vec::new();
    let mut token: Option<String> = None;
    for page_number in 0.. {
        let query = token.iter().fold(query.clone(), |query, token| query.with_continuation(token.as_str()));
        let Some(page) = orders.query::<Value>(query).next_page().await.unwrap() else { break };
        assert!(page.charge() > 0.0 && page.requests() > 0 && !page.diagnostics().is_empty());
        token = page.continuation().unwrap().map(str::to_owned);
        rows.extend(page);
        if token.is_none() {
            break;
        }
        between(page_number).await;
    }
    rows
}

#[tokio::test(start_paused = true)]
async fn a_continuation_token_continues_in_another_process() {
    let (_world, orders) = orders_in_four_partitions().await;
    // Seven statements with continuation tokens.
    for statement in &IN_ORDER[..7] {
        let query = Query::new(*statement).with_max_items(9);
        let rows = page_by_page(&orders, query, async |_| {}).await;
        let rows: Vec<Value> = rows.iter().map(canonical).collect();
        assert_eq!(rows, expected_rows(statement).iter().map(canonical).collect::<Vec<_>>(), "{statement}");
    }
    for parallel_max in [1, 3] {
        let query = Query::new(IN_ANY_ORDER[0]).with_max_items(9).with_parallel_max(parallel_max);
        let rows = page_by_page(&orders, query, async |_| {}).await;
        assert_eq!(sorted_texts(rows), sorted_texts(expected_rows(IN_ANY_ORDER[0])));
    }
}

#[tokio::test(start_paused = true)]
async fn splits_between_pages_lose_and_repeat_no_row() {
    let (world, orders) = orders_in_four_partitions().await;
    for (round, statement) in IN_ORDER[..5].iter().enumerate() {
        let query = Query::new(*statement).with_max_items(8);
        // Each of the first four rounds splits one of the initial ranges.
        let rows = page_by_page(&orders, query, async |page| {
            if page == 1 && round < 4 {
                world.split("orders", &round.to_string()).await;
            }
        })
        .await;
        let rows: Vec<Value> = rows.iter().map(canonical).collect();
        assert_eq!(rows, expected_rows(statement).iter().map(canonical).collect::<Vec<_>>(), "{statement}");
    }
}

#[tokio::test(start_paused = true)]
async fn splits_during_a_query_lose_and_repeat_no_row() {
    for statement in IN_ORDER.iter().chain(IN_ANY_ORDER) {
        let (world, orders) = orders_in_four_partitions().await;
        // The client caches four ranges. The split removes one of them.
        orders.feed_ranges().await.unwrap();
        world.split("orders", "1").await;
        let mut feed = orders.query::<Value>(Query::new(*statement).with_max_items(5).with_parallel_max(2));
        let mut rows = Vec::new();
        while let Some(page) = feed.next_page().await.unwrap() {
            if rows.is_empty() {
                world.split("orders", "2").await;
            }
            rows.extend(page);
        }
        assert_eq!(sorted_texts(rows), sorted_texts(expected_rows(statement)), "{statement}");
    }
}

#[tokio::test(start_paused = true)]
async fn rows_come_as_a_stream() {
    let (_world, orders) = orders_in_four_partitions().await;
    let mut rows = orders.query::<Order>("SELECT * FROM c ORDER BY c.total").into_stream();
    let mut totals = Vec::new();
    while let Some(order) = rows.next().await {
        totals.push(order.unwrap().total);
    }
    assert_eq!(totals, (0..ORDERS).map(|number| number as f64 + 0.5).collect::<Vec<_>>());
    let mut pages = orders.query::<Order>(Query::new("SELECT * FROM c").with_max_items(50)).pages();
    let mut rows_in_pages = 0;
    while let Some(page) = pages.next().await {
        rows_in_pages += page.unwrap().items.len() as u64;
    }
    assert_eq!(rows_in_pages, ORDERS);
}

#[tokio::test(start_paused = true)]
async fn the_query_continues_after_a_failed_request() {
    let (world, orders) = orders_in_four_partitions().await;
    let mut feed = orders.query::<Order>(Query::new("SELECT * FROM c ORDER BY c.total").with_max_items(10));
    let mut found = Vec::new();
    let mut failures = 0;
    loop {
        match feed.next_page().await {
            Ok(Some(page)) => found.extend(page.into_iter().map(|order| order.total)),
            Ok(None) => break,
            Err(error) => {
                assert_eq!(error.status().map(|status| status.code), Some(403), "{error}");
                failures += 1;
            }
        }
        if failures < 3 {
            world.fault(r#"{"operation":"query","count":1,"status":403}"#).await;
        }
    }
    assert!(failures >= 3, "{failures}");
    assert_eq!(found, (0..ORDERS).map(|number| number as f64 + 0.5).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_loses_no_row() {
    let (world, orders) = orders_in_four_partitions().await;
    // Because of the first rule at least one call is dropped.
    world.fault(r#"{"operation":"query","count":1,"delayMs":300}"#).await;
    world.fault(r#"{"operation":"query","probability":0.5,"delayMs":300}"#).await;
    let mut feed = orders.query::<Order>(Query::new("SELECT * FROM c ORDER BY c.total").with_max_items(10));
    let (mut found, mut dropped_calls) = (Vec::new(), 0);
    loop {
        let time_limit = std::time::Duration::from_millis(100);
        match tokio::time::timeout(time_limit, feed.next_page()).await {
            Ok(page) => match page.unwrap() {
                Some(page) => found.extend(page.into_iter().map(|order| order.total)),
                None => break,
            },
            Err(_) => dropped_calls += 1,
        }
    }
    assert!(dropped_calls > 0);
    assert_eq!(found, (0..ORDERS).map(|number| number as f64 + 0.5).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn errors_name_the_cause() {
    let (world, orders) = orders_in_four_partitions().await;
    let error = orders.query::<Value>("SELEC * FROM c").collect().await.unwrap_err();
    assert_eq!(error.status().map(|status| status.code), Some(400), "{error}");
    assert!(error.to_string().contains("SC1001"), "{error}");

    let error = orders.query::<Order>("SELECT VALUE c.id FROM c").collect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Answer);
    assert!(error.to_string().contains("a row of the query result cannot be parsed as"), "{error}");
    let error = orders.query::<Order>("SELECT VALUE c.id FROM c ORDER BY c.id").collect().await.unwrap_err();
    assert!(error.to_string().contains("a row of the query result cannot be parsed as"), "{error}");

    let sort = Query::new("SELECT * FROM c ORDER BY c.total").with_max_items(5);
    let page = orders.query::<Value>(sort.clone()).next_page().await.unwrap().unwrap();
    let token = page.continuation().unwrap().unwrap();
    let other = Query::new("SELECT * FROM c ORDER BY c.id").with_continuation(token);
    let error = orders.query::<Value>(other).next_page().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Input);
    assert!(error.to_string().contains("it belongs to another query"), "{error}");
    for token in ["ä", "{}", ""] {
        let error =
            orders.query::<Value>(sort.clone().with_continuation(token)).next_page().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input, "{error}");
    }
    for (token, kind) in [("ä", ErrorKind::Input), ("{}", ErrorKind::Service)] {
        let query = Query::new("SELECT VALUE c.id FROM c").with_continuation(token);
        let error = orders.query::<Value>(query).next_page().await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }

    world.delete_container(&orders).await;
    let error = orders.query::<Value>("SELECT * FROM c ORDER BY c.id").collect().await.unwrap_err();
    assert!(error.is_not_found(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_row_that_cannot_be_parsed_does_not_hide_other_rows() {
    let (_world, orders) = orders_in_four_partitions().await;
    // Every seventh order has no weight. Its row is the text `none`, which is not a number.
    let weights = "SELECT VALUE c.weight ?? 'none' FROM c";
    let orders_with_weight = (0..ORDERS).filter(|number| !number.is_multiple_of(7)).count();
    for query in [
        Query::new(weights).with_max_items(10),
        Query::new(weights).in_partition("customer-7"),
        Query::new(format!("{weights} ORDER BY c.total")).with_max_items(10),
        Query::new(format!("{weights} ORDER BY c.total")).with_max_items(1),
    ] {
        let all = orders.query::<Value>(query.clone()).collect().await.unwrap();
        let mut feed = orders.query::<u64>(query.clone());
        let (mut found, mut errors, mut tokens) = (Vec::new(), 0, 0);
        loop {
            match feed.next_page().await {
                Ok(Some(page)) => {
                    assert!(!page.items.is_empty());
                    tokens += usize::from(page.continuation().unwrap().is_some());
                    found.extend(page.items);
                }
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Answer, "{error}");
                    assert!(error.to_string().contains("a row of the query result cannot be parsed as u64"));
                    errors += 1;
                }
            }
        }
        let expected: Vec<u64> = all.iter().filter_map(Value::as_u64).collect();
        assert!(errors > 0);
        assert_eq!((&found, errors), (&expected, all.len() - expected.len()));
        let reads_all_orders = all.len() as u64 == ORDERS;
        assert!(!reads_all_orders || (tokens > 0 && found.len() == orders_with_weight));
    }
}

/// Reads a feed to its end. Returns the charge and the requests of all pages.
async fn cost_of<T: serde::de::DeserializeOwned>(feed: &mut QueryFeed<T>) -> (f64, usize) {
    let (mut charge, mut requests) = (0.0, 0);
    let mut add = |page: Page<T>| {
        charge += page.charge();
        requests += page.requests();
    };
    loop {
        match feed.next_page().await {
            Ok(Some(page)) => add(page),
            Ok(None) => break,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Answer, "{error}"),
        }
    }
    feed.rest().into_iter().for_each(add);
    (charge, requests)
}

/// Story of a bug: the charge of a page none of whose rows could be parsed was in no page.
#[tokio::test(start_paused = true)]
async fn the_charge_of_rows_that_cannot_be_parsed_is_part_of_the_cost() {
    let (_world, orders) = orders_in_four_partitions().await;
    let weights = "SELECT VALUE c.weight ?? 'none' FROM c";
    for query in [
        Query::new(weights).with_max_items(1),
        Query::new(weights).in_partition("customer-7").with_max_items(1),
        Query::new(format!("{weights} ORDER BY c.total")).with_max_items(1),
    ] {
        let (charge, requests) = cost_of(&mut orders.query::<Value>(query.clone())).await;
        let found = cost_of(&mut orders.query::<u64>(query.clone())).await;
        assert_eq!(found.1, requests);
        assert!((found.0 - charge).abs() < 0.01, "{} of {charge} RU", found.0);
        // A caller may stop at the first error.
        let mut feed = orders.query::<Option<Order>>(query);
        assert!(feed.next_page().await.is_err());
        assert!(feed.rest().is_some_and(|rest| rest.charge() > 0.0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_goes_on_after_a_row_that_cannot_be_parsed() {
    let (world, orders) = orders_in_four_partitions().await;
    let query = || Query::new("SELECT VALUE c.weight ?? 'none' FROM c ORDER BY c.total").with_max_items(10);
    let all = orders.query::<Value>(query()).collect().await.unwrap();
    let expected: Vec<u64> = all.iter().filter_map(Value::as_u64).collect();
    let (mut found, mut errors) = (Vec::new(), 0);
    let mut rows = orders.query::<u64>(query()).into_stream();
    while let Some(row) = rows.next().await {
        row.map_or_else(|_| errors += 1, |row| found.push(row));
    }
    assert_eq!((&found, errors), (&expected, all.len() - expected.len()));
    let mut pages = orders.query::<u64>(query()).pages();
    let (mut found, mut errors) = (Vec::new(), 0);
    while let Some(page) = pages.next().await {
        page.map_or_else(|_| errors += 1, |page| found.extend(page.items));
    }
    assert_eq!((&found, errors), (&expected, all.len() - expected.len()));
    // After an error of the service the stream ends.
    world.delete_container(&orders).await;
    let mut rows = orders.query::<u64>(query()).into_stream();
    assert!(rows.next().await.unwrap().is_err());
    assert!(rows.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_continuation_token_that_would_be_too_long_is_an_error_only_when_it_is_read() {
    let world = World::new(2).await;
    let notes = world.container("notes", r#"{"paths":["/pk"],"kind":"Hash","version":2}"#).await;
    for number in 0..8 {
        let text = format!("{number}{}", "x".repeat(300_000));
        notes
            .create(number.to_string().as_str(), &json!({"id": "a", "pk": number.to_string(), "text": text}))
            .await
            .unwrap();
    }
    let query = Query::new("SELECT VALUE LEFT(c.text, 1) FROM c ORDER BY c.text").with_max_items(3);
    let mut feed = notes.query::<String>(query);
    let page = feed.next_page().await.unwrap().unwrap();
    assert_eq!(page.items, ["0", "1", "2"]);
    let error = page.continuation().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Input);
    assert!(error.to_string().contains("no continuation token after this page"), "{error}");
    let mut rest = Vec::new();
    while let Some(page) = feed.next_page().await.unwrap() {
        rest.extend(page.items);
    }
    assert_eq!(rest, ["3", "4", "5", "6", "7"], "the feed itself goes on");
}

#[tokio::test(start_paused = true)]
async fn a_continuation_token_of_another_range_is_refused() {
    let (_world, orders) = orders_in_four_partitions().await;
    let sorted = |range: &str| {
        Query::new("SELECT VALUE c.id FROM c ORDER BY c.total")
            .in_range(range.parse().unwrap())
            .with_max_items(5)
    };
    let page = orders.query::<String>(sorted("-20")).next_page().await.unwrap().unwrap();
    let token = page.continuation().unwrap().unwrap();
    assert!(orders.query::<String>(sorted("-20").with_continuation(token)).collect().await.is_ok());
    let error = orders.query::<String>(sorted("20-FF").with_continuation(token)).collect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Input);
    assert!(error.to_string().contains("it belongs to a query over other keys"), "{error}");
}

/// The vector and the text of an order. No two orders have the same angle, so that ranks are unique.
pub(crate) fn searchable(number: u64) -> Value {
    let angle = total(number) / ORDERS as f64;
    let words = if number.is_multiple_of(40) { "a blue lamp" } else { "a chair" };
    json!({
        "id": format!("order-{number}"),
        "customer": format!("customer-{}", number % 20),
        "words": words,
        "vector": [angle.cos(), angle.sin()],
    })
}

#[tokio::test]
async fn vector_and_hybrid_queries_are_merged_over_partitions() {
    let world = World::new(4).await;
    let orders = world.container("searched", r#"{"paths":["/customer"],"kind":"Hash","version":2}"#).await;
    for number in 0..ORDERS {
        orders.create(format!("customer-{}", number % 20), &searchable(number)).await.unwrap();
    }
    let mut by_angle: Vec<u64> = (0..ORDERS).collect();
    by_angle.sort_by(|a, b| total(*a).total_cmp(&total(*b)));
    let ids = |numbers: &[u64]| numbers.iter().map(|number| format!("order-{number}")).collect::<Vec<_>>();
    let nearest = "SELECT TOP 5 VALUE c.id FROM c ORDER BY VectorDistance(c.vector, [1, 0])";
    assert_eq!(orders.query::<String>(nearest).collect().await.unwrap(), ids(&by_angle[..5]));

    // Only three orders have the word. Because of its weight of 100, the word decides before the angle.
    let hybrid = Query::new(
        "SELECT TOP 4 VALUE c.id FROM c ORDER BY RANK RRF(FullTextScore(c.words, @word), VectorDistance(c.vector, \
         [1, 0]), [100, 1])",
    )
    .with_parameter("@word", "lamp");
    let (lamps, chairs): (Vec<u64>, Vec<u64>) = by_angle.iter().partition(|number| number.is_multiple_of(40));
    let expected = [ids(&lamps), ids(&chairs[..1])].concat();
    assert_eq!(lamps.len(), 3);
    assert_eq!(orders.query::<String>(hybrid.clone()).collect().await.unwrap(), expected);
    let mut pages = orders.query::<String>(hybrid.clone().with_max_items(3));
    let first = pages.next_page().await.unwrap().unwrap();
    assert!(first.items.len() == 3 && first.continuation().unwrap().is_none() && first.charge() > 0.0);
    assert_eq!(pages.next_page().await.unwrap().unwrap().items.len(), 1);
    assert!(pages.next_page().await.unwrap().is_none());
    // In one partition the service answers alone.
    let within = hybrid.in_partition("customer-0");
    assert_eq!(orders.query::<String>(within).collect().await.unwrap()[..3], ids(&lamps));
}

#[tokio::test(start_paused = true)]
async fn only_the_last_page_says_that_it_is_the_last() {
    let (_world, orders) = orders_in_four_partitions().await;
    for (statement, has_tokens) in [
        ("SELECT * FROM c ORDER BY c.total", true),
        ("SELECT c.customer, COUNT(1) AS n FROM c GROUP BY c.customer", false),
    ] {
        let mut feed = orders.query::<Value>(Query::new(statement).with_max_items(3));
        let mut pages = Vec::new();
        while let Some(page) = feed.next_page().await.unwrap() {
            let has_token = page.continuation().unwrap().is_some();
            pages.push((has_token, page.is_last()));
        }
        assert!(pages.len() > 2, "{statement}");
        let last = pages.pop();
        assert_eq!(last, Some((false, true)), "{statement}");
        assert!(pages.iter().all(|page| *page == (has_tokens, false)), "{statement}: {pages:?}");
    }
    let page = orders.query::<Value>("SELECT VALUE COUNT(1) FROM c").next_page().await.unwrap().unwrap();
    assert!(page.is_last());
}

#[tokio::test(start_paused = true)]
async fn a_token_of_a_container_that_was_deleted_and_created_again_is_refused() {
    let (world, orders) = orders_in_four_partitions().await;
    let query = Query::new("SELECT * FROM c ORDER BY c.total").with_max_items(5);
    let page = orders.query::<Value>(query.clone()).next_page().await.unwrap().unwrap();
    let token = page.continuation().unwrap().unwrap().to_owned();
    world.delete_container(&orders).await;
    let orders = world.container("orders", r#"{"paths":["/customer"],"kind":"Hash","version":2}"#).await;
    orders.create("customer-1", &order(1)).await.unwrap();
    let error = orders.query::<Value>(query.with_continuation(token)).next_page().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Input, "{error}");
    assert!(error.to_string().contains("belongs to another container"), "{error}");
}

/// Story of a bug: the levels of a page around a sort key or group key counted as levels of the key, and a
/// query by a deeply nested member failed.
#[tokio::test(start_paused = true)]
async fn a_query_by_a_deeply_nested_member_is_merged_and_continued() {
    let world = World::new(4).await;
    let orders = world.container("orders", r#"{"paths":["/customer"],"kind":"Hash","version":2}"#).await;
    // A document has at most 128 levels. The first is the document itself.
    let nested = (1..127).fold(json!([]), |inner, _| json!([inner]));
    for customer in ["a", "b", "c", "d"] {
        let order = json!({"id": "1", "customer": customer, "nested": nested});
        orders.create(customer, &order).await.unwrap();
    }
    let query = Query::new("SELECT VALUE c.customer FROM c ORDER BY c.nested").with_max_items(1);
    let mut customers = page_by_page(&orders, query, async |_| {}).await;
    customers.sort_by_key(Value::to_string);
    assert_eq!(customers, ["a", "b", "c", "d"]);
    let groups =
        orders.query::<u64>("SELECT VALUE COUNT(1) FROM c GROUP BY c.nested").collect().await.unwrap();
    assert_eq!(groups, [4]);
}

/// Story of a bug: the charge of pages without rows was dropped at the end of a query, so a query that
/// found nothing seemed to be free.
#[tokio::test(start_paused = true)]
async fn a_query_that_finds_nothing_has_a_cost() {
    let (_world, orders) = orders_in_four_partitions().await;
    for (statement, least_requests) in [
        ("SELECT * FROM c WHERE c.customer = 'customer-1' AND c.total < 0", 1),
        ("SELECT * FROM c WHERE c.total < 0 ORDER BY c.total", 4),
    ] {
        let mut feed = orders.query::<Value>(statement);
        assert!(feed.rest().is_none(), "nothing was read");
        assert!(feed.next_page().await.unwrap().is_none(), "{statement}");
        let rest = feed.rest().expect("pages without rows");
        assert!(rest.items.is_empty() && rest.charge() > 0.0 && rest.is_last(), "{rest:?}");
        assert!(rest.requests() >= least_requests, "{statement}: {} requests", rest.requests());
        assert!(feed.rest().is_none(), "the cost is returned once");
    }
}
