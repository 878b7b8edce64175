//! The metrics and events of operations, with the names and fields of OpenTelemetry's semantic
//! conventions.

mod capture;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use perihelion_wire::transport::{FailureKind, Sent};

use super::*;
use crate::diagnostics::Attempt;
use crate::metadata::Container;
use crate::operation::{Scope, Target};
use crate::region::Region;
use capture::{Events, MemoryRecorder};
use tracing::Level;

fn account() -> Endpoint {
    Endpoint::parse("https://shop.documents.azure.com/").unwrap()
}

fn orders() -> Arc<Container> {
    Container::new("shop", "orders")
}

/// An operation on a document. Texts that begin with `secret` must not get into metrics or events.
fn operation(verb: Verb) -> Operation {
    Operation::new(
        verb,
        Target::item(&orders(), "secret-id"),
        Scope::Unpartitioned,
        Bytes::from("secret-body"),
    )
}

fn attempt(context: Context, region: &str, outcome: Outcome) -> Attempt {
    Attempt {
        context,
        region: Region::from(region),
        endpoint: account(),
        range: None,
        transfer: None,
        started_after: Duration::ZERO,
        elapsed: Duration::from_millis(10),
        outcome,
        charge: Some(1.5),
        activity_id: Some(HeaderValue::from_static("activity-1")),
        throttled: 0,
        effects: Vec::new(),
    }
}

fn diagnostics(attempts: impl IntoIterator<Item = Attempt>, elapsed: Duration) -> Diagnostics {
    let mut diagnostics = Diagnostics::default();
    diagnostics.elapsed = elapsed;
    attempts.into_iter().for_each(|attempt| diagnostics.record(attempt));
    diagnostics
}

fn answered(code: u16, sub: u32) -> Outcome {
    Outcome::Answered(Status::new(code, sub))
}

fn success(attempts: impl IntoIterator<Item = Attempt>, elapsed: Duration) -> Result<Response, Error> {
    let mut headers = HeaderMap::new();
    headers.insert(headers::ITEM_COUNT, HeaderValue::from_static("7"));
    headers.insert(headers::SESSION_TOKEN, HeaderValue::from_static("secret-token"));
    Ok(Response {
        status: Status::new(200, 0),
        headers,
        body: Bytes::from_static(b"secret-body"),
        diagnostics: diagnostics(attempts, elapsed),
    })
}

fn plain_success() -> Result<Response, Error> {
    success([attempt(Context::Initial, "West US", answered(200, 0))], Duration::from_millis(12))
}

fn refused(code: u16, sub: u32) -> Result<Response, Error> {
    let body = Bytes::from_static(br#"{"code":"X","message":"what the service says"}"#);
    let error = Error::refused(Status::new(code, sub), HeaderMap::new(), body);
    let attempts = [attempt(Context::Initial, "West US", answered(code, sub))];
    Err(error.with_diagnostics(diagnostics(attempts, Duration::from_millis(12))))
}

/// The labels of a metric that name the account.
const SERVER: &str = "server.address=shop.documents.azure.com,server.port=443";

#[test]
fn metrics_have_the_names_and_labels_of_the_opentelemetry_conventions() {
    let recorder = MemoryRecorder::default();
    metrics::with_local_recorder(&recorder, || {
        let telemetry = Telemetry::new(&account());
        let instances = format!("{ACTIVE_INSTANCES}{{{SERVER}}}");
        assert_eq!(recorder.values(&instances), [1.0]);
        telemetry.record(&operation(Verb::Read), &plain_success(), &Span::none(), false);
        telemetry.record(&operation(Verb::Query), &plain_success(), &Span::none(), false);
        telemetry.record(&operation(Verb::Create), &refused(409, 0), &Span::none(), false);
        telemetry.record(&operation(Verb::Read), &refused(404, 1002), &Span::none(), false);
        drop(telemetry);
        assert_eq!(recorder.values(&instances), [1.0, -1.0]);
    });
    let labels = |operation: &str, more: &str| {
        format!(
            "{{db.system.name=azure.cosmosdb,db.operation.name={operation},{SERVER},db.namespace=shop,\
             db.collection.name=orders{more}}}"
        )
    };
    let read = labels("read_item", ",db.response.status_code=200");
    assert_eq!(recorder.values(&format!("db.client.operation.duration{read}")), [0.012]);
    assert_eq!(recorder.values(&format!("azure.cosmosdb.client.operation.request_charge{read}")), [1.5]);
    assert_eq!(recorder.values(&format!("db.client.response.returned_rows{read}")), [] as [f64; 0]);
    let query = labels("query_items", ",db.response.status_code=200");
    assert_eq!(recorder.values(&format!("db.client.response.returned_rows{query}")), [7.0]);
    let conflict = labels("create_item", ",db.response.status_code=409,error.type=409");
    assert_eq!(recorder.values(&format!("db.client.operation.duration{conflict}")), [0.012]);
    let session = labels(
        "read_item",
        ",db.response.status_code=404,azure.cosmosdb.response.sub_status_code=1002,error.type=404",
    );
    assert_eq!(recorder.values(&format!("db.client.operation.duration{session}")), [0.012]);
    assert_eq!(
        recorder.values(&format!("perihelion.driver.attempts{}", labels("read_item", ""))),
        [1.0, 1.0]
    );
    assert!(!recorder.all().contains("secret"), "{}", recorder.all());
    for name in
        [DURATION, RETURNED_ROWS, REQUEST_CHARGE, ACTIVE_INSTANCES, ATTEMPTS, HEDGES, FAILOVERS, THROTTLES]
    {
        assert!(recorder.is_described(name), "{name}");
    }
}

#[test]
fn attempts_hedges_failovers_and_throttles_are_counted() {
    let recorder = MemoryRecorder::default();
    metrics::with_local_recorder(&recorder, || {
        let telemetry = Telemetry::new(&account());
        let attempts = [
            Attempt { throttled: 3, ..attempt(Context::Initial, "West US", answered(503, 0)) },
            attempt(Context::Hedge, "East US", Outcome::Abandoned),
            attempt(Context::Failover, "East US", answered(503, 0)),
            Attempt { throttled: 1, ..attempt(Context::Failover, "North Europe", answered(200, 0)) },
        ];
        let retried = success(attempts, Duration::from_millis(50));
        telemetry.record(&operation(Verb::Upsert), &retried, &Span::none(), false);
        telemetry.record(&operation(Verb::Upsert), &plain_success(), &Span::none(), false);
    });
    let values = |name: &str| recorder.values_of(name);
    assert_eq!(values(ATTEMPTS), [4.0, 1.0]);
    assert_eq!(values(HEDGES), [1.0]);
    assert_eq!(values(FAILOVERS), [2.0]);
    assert_eq!(values(THROTTLES), [4.0]);
    assert_eq!(values(REQUEST_CHARGE), [6.0, 1.5]);
}

#[test]
fn handles_are_made_once_per_series_and_series_are_bounded() {
    let recorder = MemoryRecorder::default();
    metrics::with_local_recorder(&recorder, || {
        let telemetry = Telemetry::new(&account());
        telemetry.record(&operation(Verb::Read), &plain_success(), &Span::none(), false);
        let registered = recorder.registrations();
        for _ in 0..10 {
            telemetry.record(&operation(Verb::Read), &plain_success(), &Span::none(), false);
        }
        assert_eq!(recorder.registrations(), registered);
        for sub in 0..3000 {
            telemetry.record(&operation(Verb::Read), &refused(400, sub), &Span::none(), false);
        }
    });
    let overflow = format!("{DURATION}{{db.system.name=azure.cosmosdb,otel.metric.overflow=true}}");
    // At most 2000 series: 1 of the successful read and 1999 of refusals. The other 1001 of the 3000
    // refusals overflow.
    assert_eq!(recorder.values(&overflow).len(), 1001);
}

#[test]
fn an_event_has_the_fields_of_the_opentelemetry_conventions() {
    let events = Events::capture(|| {
        Telemetry::new(&account()).record(&operation(Verb::Query), &plain_success(), &Span::none(), false);
    });
    let [event] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((event.target, event.level), ("perihelion_driver", Level::DEBUG));
    let fields: Vec<(&str, &str)> =
        event.fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(
        fields,
        [
            ("message", "operation"),
            ("db.system.name", "azure.cosmosdb"),
            ("db.operation.name", "query_items"),
            ("db.namespace", "shop"),
            ("db.collection.name", "orders"),
            ("server.address", "shop.documents.azure.com"),
            ("server.port", "443"),
            ("db.response.status_code", "200"),
            ("db.response.returned_rows", "7"),
            ("azure.cosmosdb.operation.request_charge", "1.5"),
            ("azure.cosmosdb.operation.contacted_regions", "[\"West US\"]"),
            ("azure.service.request.id", "activity-1"),
            ("duration_ms", "12.0"),
        ]
    );
}

#[test]
fn the_outcome_decides_the_level_of_an_event_and_whether_it_has_diagnostics() {
    let not_connected = Outcome::Failed {
        kind: FailureKind::Connect,
        sent: Sent::No,
        message: "connection refused by shop.documents.azure.com".into(),
    };
    let failed = |kind| {
        let attempts = [attempt(Context::Initial, "West US", not_connected.clone())];
        let error = Error::new(kind, "no answer".to_owned());
        Err(error.with_diagnostics(diagnostics(attempts, Duration::from_millis(3))))
    };
    let slow = || success([attempt(Context::Initial, "West US", answered(200, 0))], Duration::from_secs(1));
    let retried = success(
        [
            attempt(Context::Initial, "West US", answered(503, 0)),
            attempt(Context::Failover, "East US", answered(200, 0)),
        ],
        Duration::from_millis(20),
    );
    let hedged = success(
        [
            attempt(Context::Initial, "West US", Outcome::Abandoned),
            attempt(Context::Hedge, "East US", answered(200, 0)),
        ],
        Duration::from_millis(20),
    );
    for (result, level, error_type) in [
        (plain_success(), Level::DEBUG, None),
        (hedged, Level::DEBUG, None),
        (slow(), Level::INFO, None),
        (retried, Level::INFO, None),
        (refused(404, 0), Level::DEBUG, Some("404")),
        (refused(409, 0), Level::DEBUG, Some("409")),
        (refused(412, 0), Level::DEBUG, Some("412")),
        (refused(404, 1002), Level::WARN, Some("404")),
        (refused(401, 0), Level::WARN, Some("401")),
        (refused(429, 3200), Level::WARN, Some("429")),
        (failed(ErrorKind::Transport), Level::WARN, Some("connect")),
        (failed(ErrorKind::Timeout), Level::WARN, Some("timeout")),
        (failed(ErrorKind::Ambiguous), Level::WARN, Some("ambiguous")),
        (failed(ErrorKind::Credential), Level::WARN, Some("credential")),
        (failed(ErrorKind::Input), Level::WARN, Some("input")),
        (failed(ErrorKind::Answer), Level::WARN, Some("answer")),
    ] {
        let events = Events::capture(|| {
            Telemetry::new(&account()).record(&operation(Verb::Create), &result, &Span::none(), false);
        });
        let [event] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!(event.level, level, "{result:?}");
        assert_eq!(event.field("error.type"), error_type, "{result:?}");
        assert_eq!(event.field("error").is_some(), result.is_err(), "{result:?}");
        let found = event.field("diagnostics").map(|text| serde_json::from_str(text).unwrap());
        let expected = match &result {
            Ok(answer) => answer.diagnostics.to_json(),
            Err(error) => error.diagnostics().to_json(),
        };
        let expected =
            (level != Level::DEBUG).then(|| serde_json::from_str::<serde_json::Value>(&expected).unwrap());
        assert_eq!(found, expected, "{result:?}");
        assert!(!format!("{event:?}").contains("secret"), "{event:?}");
    }
    let create = Operation::new(Verb::Create, Target::containers("shop"), Scope::Unpartitioned, Bytes::new());
    let events =
        Events::capture(|| Telemetry::new(&account()).record(&create, &slow(), &Span::none(), false));
    assert_eq!(events[0].level, Level::DEBUG, "a second is not slow for metadata");
    assert_eq!(events[0].field("db.operation.name"), Some("create_container"));
    assert_eq!(events[0].field("db.namespace"), None);
}

#[test]
fn events_of_a_driver_with_debug_events_have_the_level_debug() {
    for result in [plain_success(), refused(429, 3200), refused(404, 0)] {
        let events = Events::capture(|| {
            Telemetry::new(&account()).record(&operation(Verb::Create), &result, &Span::none(), true);
        });
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].level, Level::DEBUG, "{result:?}");
    }
    let slow = success([attempt(Context::Initial, "West US", answered(200, 0))], Duration::from_secs(1));
    let events = Events::capture(|| {
        Telemetry::new(&account()).record(&operation(Verb::Create), &slow, &Span::none(), true);
    });
    assert_eq!(events[0].level, Level::DEBUG);
    assert!(events[0].field("diagnostics").is_some(), "a slow operation has its diagnostics");
}

#[test]
fn operations_have_their_well_known_names() {
    for (kind, verb, name) in [
        (ResourceKind::Item, Verb::Read, "read_item"),
        (ResourceKind::Item, Verb::Upsert, "upsert_item"),
        (ResourceKind::Item, Verb::Patch, "patch_item"),
        (ResourceKind::Item, Verb::ReadFeed, "read_all_items"),
        (ResourceKind::Item, Verb::ChangeFeed, "query_change_feed"),
        (ResourceKind::Item, Verb::Batch, "execute_batch"),
        (ResourceKind::Item, Verb::QueryPlan, "read_query_plan"),
        (ResourceKind::Container, Verb::Replace, "replace_container"),
        (ResourceKind::Container, Verb::ReadFeed, "read_all_containers"),
        (ResourceKind::Database, Verb::Query, "query_databases"),
        (ResourceKind::Database, Verb::Delete, "delete_database"),
        (ResourceKind::Account, Verb::Read, "read_account"),
        (ResourceKind::Range, Verb::ReadFeed, "read_all_partition_key_ranges"),
        (ResourceKind::Offer, Verb::Replace, "replace_offer"),
        (ResourceKind::Transaction, Verb::WriteTransaction, "execute_distributed_write_transaction"),
        (ResourceKind::Transaction, Verb::ReadTransaction, "execute_distributed_read_transaction"),
    ] {
        assert_eq!(operation_name(kind, verb), name);
    }
}
