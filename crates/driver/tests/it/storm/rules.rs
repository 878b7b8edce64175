//! The faults of a storm. Every phase has some of these rules, with probabilities of its own.

use perihelion_driver::fault_injection::FaultInjector;
use perihelion_testkit::TestServer;
use perihelion_testkit::random::Random;

/// Faults that the driver injects. Some statuses, such as 410 and 449, say that a write was not
/// applied. They are injected only before the service acts, because the service never sends them
/// for a write that it has applied.
const INJECTED_BY_DRIVER: &[&str] = &[
    r#""drop":"before""#,
    r#""drop":"after""#,
    r#""reset":"before""#,
    r#""reset":"after""#,
    r#""silence":"before""#,
    r#""silence":"after""#,
    r#""garbage":"before""#,
    r#""garbage":"after""#,
    r#""truncateBodyBytes":0"#,
    r#""truncateBodyBytes":25"#,
    r#""bodyBytesPerSecond":1000"#,
    r#""delayMs":100"#,
    r#""delayMs":700"#,
    r#""delayMs":50,"drop":"after""#,
    r#""status":503"#,
    r#""status":503,"when":"after""#,
    r#""status":500,"when":"after""#,
    r#""status":408,"when":"after""#,
    r#""status":410"#,
    r#""status":410,"subStatus":1002"#,
    r#""status":429,"subStatus":3200,"retryAfterMs":20"#,
    r#""status":429,"subStatus":3092"#,
    r#""status":449,"retryAfterMs":10"#,
    r#""status":403,"subStatus":3,"region":"East US""#,
    r#""status":404,"subStatus":1002,"operation":"read_item""#,
    r#""status":502,"body":"<html>bad gateway</html>""#,
    r#""status":200,"body":"<html>log in</html>","operation":"read_ranges""#,
    r#""status":200,"body":"{\"id\":","operation":"container""#,
    r#""resource":"item","region":"East US","drop":"before""#,
    r#""shard":1,"silence":"before""#,
    r#""connect":"refuse""#,
    r#""connect":"hang""#,
];

/// Faults that the server injects.
const INJECTED_BY_SERVER: &[&str] = &[
    r#""operation":"read_item","delayMs":400"#,
    r#""operation":"query","delayMs":200"#,
    r#""drop":"before""#,
    r#""drop":"after""#,
    r#""status":503"#,
    r#""status":503,"when":"after""#,
    r#""status":429,"retryAfterMs":30"#,
];

/// Replaces all rules by six rules of the driver and two of the server, chosen at random.
pub(super) async fn change(faults: &FaultInjector, server: &TestServer, random: &mut Random) {
    faults.clear();
    server.clear_faults().await;
    for _ in 0..6 {
        let rule = INJECTED_BY_DRIVER[random.index(INJECTED_BY_DRIVER.len())];
        // A rule for requests hits from one in a thousand to one in forty of them. A rule for new
        // connections hits three in ten, because few connections are opened.
        let thousandths = if rule.contains("connect") { 300 } else { 1 + random.below(25) };
        let rule = format!(r#"{{{rule},"probability":{}}}"#, thousandths as f64 / 1000.0);
        faults.add_json(&rule).unwrap();
    }
    for _ in 0..2 {
        let rule = INJECTED_BY_SERVER[random.index(INJECTED_BY_SERVER.len())];
        let probability = (1 + random.below(10)) as f64 / 1000.0;
        server.fault(&format!(r#"{{{rule},"probability":{probability}}}"#)).await;
    }
}

/// How many faults the current rules have injected.
pub(super) fn injected(faults: &FaultInjector) -> u64 {
    faults.rules().iter().map(|rule| rule.hits()).sum()
}
