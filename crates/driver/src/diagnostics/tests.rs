//! Diagnostics as JSON and as one line of text, and their bounds.

use serde_json::json;

use super::*;

fn attempt(context: Context, region: &str, started_after_us: u64, outcome: Outcome) -> Attempt {
    Attempt {
        context,
        region: Region::from(region),
        endpoint: Endpoint::parse("https://shop-westus.documents.azure.com:443/").unwrap(),
        range: None,
        transfer: None,
        started_after: Duration::from_micros(started_after_us),
        elapsed: Duration::from_micros(1250),
        outcome,
        charge: None,
        activity_id: None,
        throttled: 0,
        effects: Vec::new(),
    }
}

fn answered(code: u16, sub: u32) -> Outcome {
    Outcome::Answered(Status::new(code, sub))
}

fn lost() -> Outcome {
    Outcome::Failed {
        kind: FailureKind::Closed,
        sent: Sent::Unknown,
        message: "the connection to shop-westus was closed".into(),
    }
}

/// The diagnostics of a create that was throttled, lost, retried in another region,
/// hedged and read back.
fn eventful() -> Diagnostics {
    let mut diagnostics = Diagnostics { elapsed: Duration::from_micros(31_204), ..Diagnostics::default() };
    diagnostics.record(Attempt { throttled: 2, ..attempt(Context::Initial, "West US", 0, lost()) });
    diagnostics.record_effect("endpoint_failed");
    diagnostics.record_effect("refresh_account");
    diagnostics.record(attempt(Context::Hedge, "North Europe", 9000, Outcome::Abandoned));
    diagnostics.record(Attempt {
        charge: Some(1.25),
        activity_id: Some(HeaderValue::from_static("a-b-c")),
        ..attempt(Context::Failover, "East US", 5000, answered(409, 0))
    });
    diagnostics.record(Attempt {
        charge: Some(1.0),
        ..attempt(Context::ReadBack, "East US", 20_000, answered(404, 1002))
    });
    diagnostics.resolution = Some(Resolution::Witnessed);
    diagnostics
}

#[test]
fn json_has_all_fields() {
    let endpoint = "https://shop-westus.documents.azure.com:443";
    let expected = json!({
        "elapsed_ms": 31.204,
        "charge": 2.25,
        "regions": ["West US", "East US", "North Europe"],
        "resolution": "witnessed",
        "attempts": [
            {
                "context": "initial", "region": "West US", "endpoint": endpoint,
                "started_after_ms": 0.0, "elapsed_ms": 1.25,
                "outcome": "failed", "failure": "closed", "sent": "unknown",
                "message": "the connection to shop-westus was closed",
                "throttled": 2, "effects": ["endpoint_failed", "refresh_account"],
            },
            {
                "context": "hedge", "region": "North Europe", "endpoint": endpoint,
                "started_after_ms": 9.0, "elapsed_ms": 1.25,
                "outcome": "abandoned", "throttled": 0, "effects": [],
            },
            {
                "context": "failover", "region": "East US", "endpoint": endpoint,
                "started_after_ms": 5.0, "elapsed_ms": 1.25,
                "outcome": "answered", "status": 409, "sub_status": 0,
                "charge": 1.25, "activity_id": "a-b-c", "throttled": 0, "effects": [],
            },
            {
                "context": "read_back", "region": "East US", "endpoint": endpoint,
                "started_after_ms": 20.0, "elapsed_ms": 1.25,
                "outcome": "answered", "status": 404, "sub_status": 1002,
                "charge": 1.0, "throttled": 0, "effects": [],
            },
        ],
    });
    let written: serde_json::Value = serde_json::from_str(&eventful().to_json()).unwrap();
    assert_eq!(written, expected);
    let nothing: serde_json::Value = serde_json::from_str(&Diagnostics::default().to_json()).unwrap();
    assert_eq!(nothing, json!({"elapsed_ms": 0.0, "charge": 0.0, "regions": [], "attempts": []}));
}

#[test]
fn display_is_one_line() {
    assert_eq!(
        eventful().to_string(),
        "4 attempts, 31.2 ms, 2.25 RU: West US closed (sent: unknown, the connection to shop-westus was \
         closed) in 1.2 ms, throttled 2 times [endpoint_failed, refresh_account]; hedge North Europe \
         abandoned in 1.2 ms; failover East US 409 in 1.2 ms; read_back East US 404/1002 in 1.2 ms; \
         resolved: witnessed"
    );
    let mut simple = Diagnostics::default();
    simple.record(attempt(Context::Initial, "West US", 0, answered(200, 0)));
    assert_eq!(simple.to_string(), "1 attempt, 0.0 ms, 0.00 RU: West US 200 in 1.2 ms");
    assert_eq!(Diagnostics::default().to_string(), "0 attempts, 0.0 ms, 0.00 RU");
}

#[test]
fn attempts_beyond_the_limit_are_counted_and_not_recorded() {
    let mut diagnostics = Diagnostics::default();
    for _ in 0..ATTEMPTS_MAX + 7 {
        diagnostics
            .record(Attempt { charge: Some(1.0), ..attempt(Context::Retry, "West US", 0, answered(449, 0)) });
    }
    diagnostics.record_effect("partition_failed");
    assert!(
        diagnostics.attempts().all(|attempt| attempt.effects.is_empty()),
        "the effect of an omitted attempt is not recorded"
    );
    assert_eq!(
        diagnostics.charge(),
        (ATTEMPTS_MAX + 7) as f64,
        "the charges of omitted attempts are included"
    );
    assert_eq!((diagnostics.attempts().count(), diagnostics.omitted_attempts()), (ATTEMPTS_MAX, 7));
    assert!(diagnostics.to_string().ends_with("; attempts not shown: 7"));
    // The number belongs to the attempts before it.
    diagnostics.record_metadata_work(MetadataWork {
        kind: MetadataKind::Container,
        started_after: Duration::ZERO,
        elapsed: Duration::from_millis(3),
    });
    assert!(diagnostics.to_string().ends_with("; attempts not shown: 7; waited 3.0 ms for the container"));
    diagnostics = Diagnostics { metadata_work: Vec::new(), ..diagnostics };
    assert!(diagnostics.to_json().ends_with(r#","omitted_attempts":7}"#));
    let error = crate::Error::timeout("late").with_diagnostics(diagnostics);
    assert_eq!(error.to_string(), format!("late (attempt {}, region West US)", ATTEMPTS_MAX + 7));
}

#[test]
fn json_and_text_show_the_connection_the_phases_and_the_metadata() {
    let mut diagnostics = Diagnostics { elapsed: Duration::from_millis(20), ..Diagnostics::default() };
    let work = |kind, elapsed| MetadataWork {
        kind,
        started_after: Duration::ZERO,
        elapsed: Duration::from_millis(elapsed),
    };
    diagnostics.record_metadata_work(work(MetadataKind::Container, 3));
    diagnostics.record(Attempt {
        range: Some("7".into()),
        transfer: Some(Transfer::example()),
        ..attempt(Context::Initial, "West US", 0, answered(200, 0))
    });
    assert_eq!(
        diagnostics.to_string(),
        "1 attempt, 20.0 ms, 0.00 RU: West US 200 in 1.2 ms over HTTP/2 connection 3 (new, 4 streams), \
         connecting 12.0 ms, first byte 1.1 ms, body 0.1 ms, sent again 1 times, range 7; waited 3.0 ms \
         for the container"
    );
    let written: serde_json::Value = serde_json::from_str(&diagnostics.to_json()).unwrap();
    assert_eq!(
        written["attempts"][0]["transfer"],
        json!({
            "protocol": "HTTP/2", "connection": 3, "is_new_connection": true, "streams": 4,
            "queued_ms": 0.0, "connecting_ms": 12.0, "first_byte_ms": 1.1, "body_ms": 0.1, "resends": 1,
        })
    );
    assert_eq!(written["attempts"][0]["range"], "7");
    assert_eq!(
        written["metadata_work"],
        json!([{"kind": "container", "started_after_ms": 0.0, "elapsed_ms": 3.0}])
    );
    for _ in 0..2 * METADATA_WORK_MAX {
        diagnostics.record_metadata_work(work(MetadataKind::Account, 1));
    }
    assert_eq!(diagnostics.metadata_work().len(), METADATA_WORK_MAX, "the list is bounded");
}

/// Diagnostics are moved with every answer, so their size matters for every
/// operation. The diagnostics of a single attempt must not allocate a list.
#[test]
fn diagnostics_stay_small() {
    assert!(size_of::<Attempt>() <= 240, "{}", size_of::<Attempt>());
    assert!(size_of::<Diagnostics>() <= 328, "{}", size_of::<Diagnostics>());
    assert_eq!(Diagnostics::default().metadata_work.capacity(), 0);
    let mut diagnostics = Diagnostics::default();
    diagnostics.record(attempt(Context::Initial, "West US", 0, answered(200, 0)));
    assert_eq!(diagnostics.further.capacity(), 0);
    let first = diagnostics.attempts().next().unwrap();
    assert_eq!(first.effects.capacity(), 0);
}
