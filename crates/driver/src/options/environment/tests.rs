//! Each environment variable, the option that it sets, and the error for a bad value.

use std::time::Duration;

use super::*;

fn read(variables: &[(&str, &str)]) -> Result<Environment, Error> {
    Environment::read(|name| {
        variables.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned())
    })
}

fn check(variables: &[(&str, &str)], expected: Environment) {
    assert_eq!(read(variables).unwrap(), expected, "{variables:?}");
}

/// An environment that sets these options of operations.
fn operation(options: OperationOptions) -> Environment {
    driver(DriverOptions::default().with_operation(options))
}

/// An environment that sets these options of the driver.
fn driver(options: DriverOptions) -> Environment {
    Environment { driver: options, ..Environment::default() }
}

#[test]
fn each_variable_sets_its_option() {
    const HEDGING: &str = "AZURE_COSMOS_HEDGING_ENABLED";
    const THRESHOLD: &str = "AZURE_COSMOS_HEDGING_THRESHOLD_MS";
    let options = OperationOptions::default;
    let fixed = Hedging::Fixed(Duration::from_millis(250));
    check(&[], Environment::default());
    check(&[("UNRELATED", "x"), (HEDGING, " ")], Environment::default());
    check(&[(HEDGING, "false")], operation(options().with_hedging(Hedging::Off)));
    check(&[(HEDGING, "TRUE")], operation(options().with_hedging(Hedging::dynamic())));
    check(&[(THRESHOLD, "250")], operation(options().with_hedging(fixed)));
    check(&[(THRESHOLD, "250"), (HEDGING, "1")], operation(options().with_hedging(fixed)));
    check(&[(THRESHOLD, "250"), (HEDGING, "0")], operation(options().with_hedging(Hedging::Off)));
    check(&[("AZURE_COSMOS_MAX_FAILOVER_RETRY_COUNT", "7")], operation(options().with_failovers_max(7)));
    check(&[("AZURE_COSMOS_MAX_SESSION_RETRY_COUNT", "0")], operation(options().with_session_retries_max(0)));
    check(
        &[("AZURE_COSMOS_MAX_THROTTLE_RETRY_COUNT", " 12\n")],
        operation(options().with_throttle_retries_max(12)),
    );
    check(
        &[("AZURE_COSMOS_CONTENT_RESPONSE_ON_WRITE", "False")],
        operation(options().with_content_on_write(false)),
    );
    for (text, consistency) in [
        ("Default", ReadConsistency::Account),
        ("eventual", ReadConsistency::Eventual),
        ("SESSION", ReadConsistency::Session),
        ("LatestCommitted", ReadConsistency::LatestCommitted),
        ("GlobalStrong", ReadConsistency::GlobalStrong),
    ] {
        check(
            &[("AZURE_COSMOS_READ_CONSISTENCY_STRATEGY", text)],
            operation(options().with_read_consistency(consistency)),
        );
    }
}

#[test]
fn variables_of_the_driver_set_breakers_topology_and_region() {
    let (millis, defaults) = (Duration::from_millis, CircuitBreakerOptions::default);
    let breaker = |options| driver(DriverOptions::default().with_circuit_breaker(options));
    check(&[("AZURE_COSMOS_PPCB_ENABLED", "false")], breaker(defaults().with_enabled(false)));
    check(&[("AZURE_COSMOS_PPCB_READ_FAILURE_THRESHOLD", "10")], breaker(defaults().with_read_failures(10)));
    check(
        &[("AZURE_COSMOS_PPCB_WRITE_FAILURE_THRESHOLD", "11")],
        breaker(defaults().with_write_failures(11)),
    );
    check(
        &[("AZURE_COSMOS_PPCB_CONSECUTIVE_HEDGE_WIN_THRESHOLD", "12")],
        breaker(defaults().with_hedge_losses(12)),
    );
    check(
        &[("AZURE_COSMOS_PPCB_COUNTER_RESET_WINDOW_MS", "13")],
        breaker(defaults().with_counter_reset(millis(13))),
    );
    check(
        &[("AZURE_COSMOS_PPCB_PARTITION_UNAVAILABILITY_DURATION_MS", "14")],
        breaker(defaults().with_probe_after(millis(14))),
    );
    check(
        &[("AZURE_COSMOS_PPCB_FAILBACK_SWEEP_INTERVAL_MS", "15")],
        breaker(defaults().with_cleanup_interval(millis(15))),
    );
    check(
        &[("AZURE_COSMOS_ENDPOINT_UNAVAILABLE_TTL_MS", "1500")],
        driver(
            DriverOptions::default()
                .with_topology(TopologyOptions::default().with_unavailable_for(millis(1500))),
        ),
    );
    check(
        &[("AZURE_COSMOS_APPLICATION_REGION", "westeurope")],
        driver(DriverOptions::default().with_application_region("West Europe")),
    );
}

#[test]
fn the_error_for_a_bad_value_names_the_variable_the_value_and_the_remedy() {
    for (name, value, remedy) in [
        ("AZURE_COSMOS_HEDGING_ENABLED", "maybe", "true or false"),
        ("AZURE_COSMOS_HEDGING_THRESHOLD_MS", "0", "above 0"),
        ("AZURE_COSMOS_HEDGING_THRESHOLD_MS", "50ms", "milliseconds"),
        ("AZURE_COSMOS_MAX_FAILOVER_RETRY_COUNT", "-1", "0 or more"),
        ("AZURE_COSMOS_MAX_SESSION_RETRY_COUNT", "2.5", "whole number"),
        ("AZURE_COSMOS_MAX_THROTTLE_RETRY_COUNT", "4294967296", "whole number"),
        ("AZURE_COSMOS_READ_CONSISTENCY_STRATEGY", "strong", "GlobalStrong"),
        ("AZURE_COSMOS_CONTENT_RESPONSE_ON_WRITE", "yes", "true or false"),
        ("AZURE_COSMOS_PPCB_ENABLED", "on", "true or false"),
        ("AZURE_COSMOS_PPCB_ENABLED_OVERRIDE", "on", "true or false"),
        ("AZURE_COSMOS_HEDGING_ENABLED_OVERRIDE", "off", "true or false"),
        // A value whose bytes are not UTF-8 is read as this character.
        ("AZURE_COSMOS_ENDPOINT_UNAVAILABLE_TTL_MS", "\u{FFFD}", "milliseconds"),
        ("AZURE_COSMOS_PPCB_READ_FAILURE_THRESHOLD", "0", "from 1 to 1000"),
        ("AZURE_COSMOS_PPCB_WRITE_FAILURE_THRESHOLD", "1001", "from 1 to 1000"),
        ("AZURE_COSMOS_PPCB_COUNTER_RESET_WINDOW_MS", "0", "above 0"),
        ("AZURE_COSMOS_APPLICATION_REGION", "Mars", "a region of Azure"),
    ] {
        let error = read(&[(name, value)]).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Input);
        let text = error.to_string();
        assert!(text.contains(name) && text.contains(value) && text.contains(remedy), "{text}");
    }
    let error = read(&[("AZURE_COSMOS_PPCB_ENABLED", &"x".repeat(10_000))]).unwrap_err();
    assert!(error.to_string().len() < 200, "{error}");
}
