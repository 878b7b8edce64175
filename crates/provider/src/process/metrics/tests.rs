//! Quantiles of durations, counts of calls, and the cost that a span records.

use std::time::Duration;

use super::*;

#[test]
fn a_quantile_is_right_to_a_factor_of_two() {
    let mut latency = Latency::default();
    for ms in 1..=1000 {
        latency.record(Duration::from_millis(ms));
    }
    let median = latency.quantile(0.5);
    assert!((Duration::from_millis(500)..=Duration::from_millis(1000)).contains(&median), "{median:?}");
    assert_eq!(latency.quantile(1.0), Duration::from_secs(1));
    assert_eq!(latency.mean(), Duration::from_micros(500_500));
    assert_eq!(Latency::default().quantile(0.99), Duration::ZERO);
}

#[tokio::test]
async fn concurrent_calls_do_not_mix_their_costs_and_a_dropped_call_counts_as_a_call() {
    let metrics = Metrics::default();
    let cost = |requests| Cost { requests, charge_milli_ru: 2500, conflicts: 1, throttles: 0, retries: 0 };
    let work = |requests, is_ok: bool| {
        let cost = cost(requests);
        async move {
            tokio::task::yield_now().await;
            CALL.with(|call| call.add(&cost));
            tokio::spawn(for_current_call(async move { CALL.with(|call| add(&call.requests, 1)) }))
                .await
                .unwrap();
            if is_ok { Ok(()) } else { Err(Failure::LockLost) }
        }
    };
    let (first, second) = tokio::join!(metrics.call("a", work(1, true)), metrics.call("b", work(5, false)));
    assert!(first.is_ok() && second.is_err());
    let endless = metrics.count("a", std::future::pending::<Result<(), Failure>>());
    assert!(tokio::time::timeout(Duration::from_millis(1), endless).await.is_err());
    let found = metrics.snapshot(&HybridClock::default());
    let of = |name: &str| {
        let method = &found.methods[name];
        (method.calls, method.failures, method.requests, method.request_units, method.conflicts)
    };
    assert_eq!(of("a"), (2, 0, 2, 2.5, 1));
    assert_eq!(of("b"), (1, 1, 6, 2.5, 1));
    assert_eq!((found.requests, found.conflicts), (8, 2));
    let json = serde_json::to_value(&found).unwrap();
    assert_eq!(json["methods"]["b"]["requests"], 6);
}

/// Records the fields of spans.
#[derive(Clone, Default)]
struct SpanFields(Arc<Mutex<Vec<String>>>);

impl tracing::field::Visit for SpanFields {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.lock().unwrap().push(format!("{}={value:?}", field.name()));
    }
}

impl tracing::Subscriber for SpanFields {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        span.record(&mut self.clone());
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, values: &tracing::span::Record<'_>) {
        values.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn a_span_records_what_its_call_cost() {
    let recorded = SpanFields::default();
    let guard = tracing::subscriber::set_default(recorded.clone());
    let metrics = Metrics::default();
    let cost = Cost { requests: 3, charge_milli_ru: 7_250, conflicts: 0, throttles: 0, retries: 0 };
    let work = async {
        CALL.with(|call| call.add(&cost));
        Ok(())
    };
    metrics.call("read", work).await.unwrap();
    drop(guard);
    let fields = recorded.0.lock().unwrap().clone();
    for field in ["method=\"read\"", "requests=3", "request_units=7.25", "outcome=Finished"] {
        assert!(fields.iter().any(|line| line == field), "{field} is not in {fields:?}");
    }
    assert!(fields.iter().any(|line| line.starts_with("elapsed_ms=")), "{fields:?}");
}
