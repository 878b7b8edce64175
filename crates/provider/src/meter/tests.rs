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
async fn calls_side_by_side_count_for_themselves_and_dropped_ones_too() {
    let meter = Meter::default();
    let bill = |requests| Bill { requests, charge: 2500, conflicts: 1, throttles: 0, retries: 0 };
    let work = |requests, is_fine: bool| {
        let bill = bill(requests);
        async move {
            tokio::task::yield_now().await;
            CALL.with(|call| call.add(&bill));
            tokio::spawn(carried(async move { CALL.with(|call| add(&call.requests, 1)) })).await.unwrap();
            if is_fine { Ok(()) } else { Err(Failure::LockLost) }
        }
    };
    let (first, second) = tokio::join!(meter.call("a", work(1, true)), meter.call("b", work(5, false)));
    assert!(first.is_ok() && second.is_err());
    let endless = meter.count("a", std::future::pending::<Result<(), Failure>>());
    assert!(tokio::time::timeout(Duration::from_millis(1), endless).await.is_err());
    let found = meter.snapshot(&HybridClock::default());
    let of = |name: &str| {
        let method = &found.methods[name];
        (method.calls, method.failures, method.requests, method.request_units, method.conflicts)
    };
    assert_eq!(of("a"), (2, 0, 2, 2.5, 1));
    assert_eq!(of("b"), (1, 1, 6, 2.5, 1));
    assert_eq!((found.requests, found.conflicts), (8, 2));
    let text = serde_json::to_value(&found).unwrap();
    assert_eq!(text["methods"]["b"]["requests"], 6);
}
