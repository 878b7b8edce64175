//! Tests of fault rules: which requests a rule hits, how often, and which JSON is refused.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method};
use perihelion_wire::headers;
use perihelion_wire::transport::{Endpoint, Route};
use tokio::time;

use super::*;
use crate::operation::ResourceKind;

const SECOND: Duration = Duration::from_secs(1);

/// Whether a rule hits a query of the container `orders`, to range 3 in East US, on the second
/// connection.
fn is_hit(injector: &FaultInjector) -> bool {
    let headers =
        HeaderMap::from_iter([(headers::CONTENT_TYPE, HeaderValue::from_static("application/query+json"))]);
    let request = OutgoingRequest {
        endpoint: &Endpoint::parse("https://east.example:443").unwrap(),
        method: &Method::POST,
        path: "/dbs/shop/colls/orders/docs",
        headers: &headers,
        route: &Route { region: Some("East US".into()), range: Some("3".into()) },
        protocol: Protocol::Http2,
        shard: Some(2),
    };
    injector.pick(&request).is_some()
}

/// Whether this rule, as the only one, hits the query of [`is_hit`].
fn hits(rule: FaultRule) -> bool {
    let injector = FaultInjector::with_seed(1);
    injector.add(rule).unwrap();
    is_hit(&injector)
}

/// Whether the rules of this JSON text hit the query of [`is_hit`].
fn hits_json(text: &str) -> bool {
    let injector = FaultInjector::with_seed(1);
    injector.add_json(text).unwrap();
    is_hit(&injector)
}

#[tokio::test]
async fn every_condition_narrows_a_rule() {
    let endpoint = |text| Endpoint::parse(text).unwrap();
    let new = FaultRule::new;
    let pairs = [
        (new().with_operation(OperationKind::Query), new().with_operation(OperationKind::CreateItem)),
        (new().with_resource(ResourceKind::Item), new().with_resource(ResourceKind::Container)),
        (new().with_database("shop"), new().with_database("Shop")),
        (new().with_container("orders"), new().with_container("customers")),
        (new().with_range("3"), new().with_range("0")),
        (new().with_region("eastus"), new().with_region("East US 2")),
        (
            new().with_endpoint(endpoint("https://EAST.example")),
            new().with_endpoint(endpoint("http://east.example")),
        ),
        (new().with_shard(2), new().with_shard(1)),
        (new().with_protocol(Protocol::Http2), new().with_protocol(Protocol::Http1)),
    ];
    assert!(hits(new()));
    for (matching, other) in pairs {
        assert!(hits(matching.clone()), "{matching:?}");
        assert!(!hits(other.clone()), "{other:?}");
    }
    let all = new()
        .with_operation(OperationKind::Query)
        .with_resource(ResourceKind::Item)
        .with_database("shop")
        .with_container("orders")
        .with_range("3")
        .with_region("East US");
    assert!(hits(all.clone()));
    assert!(!hits(all.with_protocol(Protocol::Http1)), "all conditions must match");
}

#[tokio::test]
async fn rules_in_json_hit_the_requests_that_their_members_name() {
    let matching = [
        r#"{}"#,
        r#"{"operation":"any"}"#,
        r#"{"operation":"query","resource":"item","database":"shop","container":"orders","range":"3"}"#,
        r#"{"range":3,"region":"east us","endpoint":"https://east.example/","shard":2,"protocol":"http2"}"#,
        r#"[{"operation":"batch","drop":"after"},{"status":503}]"#,
        r#"{"status":404,"subStatus":1002,"retryAfterMs":5,"headers":{"etag":"x"},"body":{"a":1},"when":"after"}"#,
        r#"{"delayMs":10,"probability":1.0,"count":1,"skip":0,"startAfterMs":0,"endAfterMs":1,"name":"n"}"#,
        r#"{"truncateBodyBytes":10}"#,
        r#"{"bodyBytesPerSecond":10}"#,
        r#"{"reset":"before"}"#,
        r#"{"silence":"after"}"#,
        r#"{"garbage":"before"}"#,
    ];
    for text in matching {
        assert!(hits_json(text), "{text}");
    }
    let others = [
        r#"{"operation":"batch"}"#,
        r#"{"protocol":"http1"}"#,
        r#"{"range":"4"}"#,
        r#"{"shard":3}"#,
        r#"{"skip":1}"#,
        r#"{"count":0}"#,
        r#"{"probability":0}"#,
        r#"{"startAfterMs":60000}"#,
        r#"{"enabled":false}"#,
        r#"{"connect":"refuse"}"#,
    ];
    for text in others {
        assert!(!hits_json(text), "{text}");
    }
}

#[test]
fn wrong_json_is_refused_with_its_reason() {
    let cases = [
        (r#"{"statuss":503}"#, "statuss"),
        (r#"{"status":"503"}"#, "expected u16"),
        (r#"{"status":600}"#, "200 to 599"),
        (r#"{"count":-1}"#, "expected u64"),
        (r#"{"count":1.5}"#, "expected u64"),
        (r#"{"count":null}"#, "null"),
        (r#"{"count":1,"count":2}"#, "duplicate"),
        (r#"{"enabled":1}"#, "expected a boolean"),
        (r#"{"operation":"red_item"}"#, "read_item"),
        (r#"{"resource":"document"}"#, "item"),
        (r#"{"protocol":"h2"}"#, "http2"),
        (r#"{"drop":"during"}"#, "before"),
        (r#"{"drop":"after","status":503}"#, "one effect"),
        (r#"{"subStatus":1002}"#, "needs a `status`"),
        (r#"{"when":"after"}"#, "needs a `status`"),
        (r#"{"status":503,"headers":{"a b":"c"}}"#, "a b"),
        (r#"{"status":503,"headers":{"a":7}}"#, "`a`"),
        (r#"{"range":{}}"#, "partition key range"),
        (r#"{"endpoint":"east"}"#, "https://"),
        (r#"{"probability":1.5}"#, "0 to 1"),
        (r#"{"startAfterMs":5,"endAfterMs":5}"#, "endAfterMs"),
        (r#"{"delayMs":86400001}"#, "a day"),
        (r#"{"bodyBytesPerSecond":0}"#, "at least one byte"),
        (r#"{"connect":"refuse","shard":1}"#, "a region and an endpoint"),
        (r#"{"name":"n","probability":7}"#, "`n`"),
        (r#""read_item""#, "an object or an array"),
        (r#"{"status":503"#, "EOF"),
    ];
    let injector = FaultInjector::with_seed(1);
    for (text, reason) in cases {
        let error = injector.add_json(text).unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
        assert!(FaultRule::from_json(text).is_err(), "{text}");
    }
    // Of several rules, all or none is added.
    injector.add_json(r#"[{"status":503},{"status":7}]"#).unwrap_err();
    assert!(injector.rules().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_rule_skips_requests_first_and_keeps_to_its_count_and_its_window() {
    let injector = FaultInjector::with_seed(1);
    let rule =
        FaultRule::new().with_skip(2).with_count(3).with_start_after(SECOND).with_end_after(10 * SECOND);
    let handle = injector.add(rule).unwrap();
    assert!(!is_hit(&injector), "not before it begins");
    time::advance(SECOND).await;
    let within: Vec<bool> = (0..7).map(|_| is_hit(&injector)).collect();
    assert_eq!(within, [false, false, true, true, true, false, false]);
    assert_eq!((handle.hits(), handle.matches()), (3, 7));

    let handle = injector.add(FaultRule::new().with_end_after(SECOND)).unwrap();
    handle.disable();
    assert!(!is_hit(&injector));
    handle.enable();
    assert!(is_hit(&injector));
    time::advance(SECOND).await;
    assert!(!is_hit(&injector), "its window has ended");
    assert_eq!((handle.hits(), handle.matches()), (1, 1));
}

#[tokio::test]
async fn random_hits_follow_from_the_seed() {
    let draw = |seed| -> Vec<bool> {
        let injector = FaultInjector::with_seed(seed);
        injector.add(FaultRule::new().with_probability(0.3)).unwrap();
        (0..1000).map(|_| is_hit(&injector)).collect()
    };
    let first = draw(7);
    assert_eq!(first, draw(7));
    assert_ne!(first, draw(8));
    let hits = first.iter().filter(|is_hit| **is_hit).count();
    assert!((240..360).contains(&hits), "{hits} of 1000");
}

#[tokio::test]
async fn the_first_rule_that_hits_decides_until_it_is_removed() {
    let injector = FaultInjector::with_seed(1);
    let first = injector.add(FaultRule::new().with_count(1)).unwrap();
    let second = injector.add(FaultRule::new()).unwrap();
    let shared = injector.clone();
    assert!(is_hit(&shared) && is_hit(&shared));
    assert_eq!((first.hits(), second.hits()), (1, 1), "the first rule has spent its count");
    second.remove();
    assert!(!is_hit(&shared));
    assert_eq!(injector.rules().len(), 1);
    injector.clear();
    assert!(!injector.has_rules());
}

#[test]
fn many_threads_get_no_more_hits_than_the_count() {
    let injector = FaultInjector::with_seed(1);
    let handle = injector.add(FaultRule::new().with_count(1000)).unwrap();
    let hits: usize = std::thread::scope(|scope| {
        let counting = || (0..1000).filter(|_| is_hit(&injector)).count();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(counting)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!((hits, handle.hits()), (1000, 1000));
}

#[test]
fn the_number_of_rules_is_limited() {
    let injector = FaultInjector::with_seed(1);
    let rules = format!("[{}]", vec!["{}"; 257].join(","));
    assert!(injector.add_json(&rules).unwrap_err().to_string().contains("256"));
    assert!(injector.rules().is_empty());
}
