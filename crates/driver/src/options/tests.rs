//! How options of several layers are combined, their bounds, and the errors for bad options.

mod layers;

use perihelion_wire::transport::Endpoint;

use super::*;
use crate::error::ErrorKind;
use crate::options::Environment;

const SECOND: Duration = Duration::from_secs(1);

const CLASSES: [OperationClass; 4] = [
    OperationClass::Document,
    OperationClass::Transaction,
    OperationClass::MetadataRead,
    OperationClass::MetadataWrite,
];

/// Options of an operation in which nothing is set.
fn nothing() -> OperationOptions {
    OperationOptions::default()
}

#[test]
fn defaults_differ_between_documents_and_metadata() {
    let data = settings::resolve(&nothing(), &nothing(), OperationClass::Document);
    let expected = Settings {
        timeout: 65 * SECOND,
        attempt_timeout: 6 * SECOND,
        excluded_regions: Vec::new(),
        hedging: Hedging::Dynamic { min: Duration::from_millis(50), max: Duration::from_millis(4000) },
        hedged_writes: false,
        read_consistency: ReadConsistency::Account,
        session_token: None,
        failovers_max: 3,
        session_retries_max: None,
        throttle_retries_max: 18,
        throttle_wait_max: 270 * SECOND,
        content_on_write: true,
        priority: None,
        throughput_bucket: None,
        dedicated_gateway_staleness_max: None,
        dedicated_gateway_bypass: false,
        headers: CustomHeaders::default(),
    };
    assert_eq!(data, expected);
    let metadata = settings::resolve(&nothing(), &nothing(), OperationClass::MetadataWrite);
    let expected = Settings {
        timeout: 160 * SECOND,
        attempt_timeout: 65 * SECOND,
        throttle_retries_max: 9,
        throttle_wait_max: 30 * SECOND,
        ..expected
    };
    assert_eq!(metadata, expected);
    let metadata_read = settings::resolve(&nothing(), &nothing(), OperationClass::MetadataRead);
    assert_eq!(metadata_read, Settings { attempt_timeout: 6 * SECOND, ..expected });
}

/// The name of an option, how to set the option to the value that stands for a number, and
/// how to read that number from the settings.
type Case = (&'static str, fn(OperationOptions, u32) -> OperationOptions, fn(&Settings) -> u32);

const CASES: [Case; 17] = [
    (
        "timeout",
        |options, number| options.with_timeout(number * SECOND),
        |settings| settings.timeout.as_secs() as u32,
    ),
    (
        "attempt_timeout",
        |options, number| options.with_attempt_timeout(number * SECOND),
        |settings| settings.attempt_timeout.as_secs() as u32,
    ),
    (
        "excluded_regions",
        |options, number| options.with_excluded_regions(vec!["West US"; number as usize]),
        |settings| settings.excluded_regions.len() as u32,
    ),
    (
        "hedging",
        |options, number| options.with_hedging(Hedging::Fixed(number * SECOND)),
        |settings| match settings.hedging {
            Hedging::Fixed(time) => time.as_secs() as u32,
            _ => 0,
        },
    ),
    (
        "read_consistency",
        |options, number| {
            options.with_read_consistency(match number {
                1 => ReadConsistency::Eventual,
                2 => ReadConsistency::Session,
                _ => ReadConsistency::GlobalStrong,
            })
        },
        |settings| match settings.read_consistency {
            ReadConsistency::Eventual => 1,
            ReadConsistency::Session => 2,
            ReadConsistency::GlobalStrong => 3,
            _ => 0,
        },
    ),
    (
        "session_token",
        |options, number| options.with_session_token(format!("0:{number}")),
        |settings| settings.session_token.as_ref().map_or(0, |token| token[2..].parse().unwrap()),
    ),
    (
        "failovers_max",
        |options, number| options.with_failovers_max(number),
        |settings| settings.failovers_max,
    ),
    (
        "session_retries_max",
        |options, number| options.with_session_retries_max(number),
        |settings| settings.session_retries_max.unwrap_or(0),
    ),
    (
        "throttle_retries_max",
        |options, number| options.with_throttle_retries_max(number),
        |settings| settings.throttle_retries_max,
    ),
    (
        "throttle_wait_max",
        |options, number| options.with_throttle_wait_max(number * SECOND),
        |settings| settings.throttle_wait_max.as_secs() as u32,
    ),
    (
        "throughput_bucket",
        |options, number| options.with_throughput_bucket(number as u8),
        |settings| settings.throughput_bucket.map_or(0, u32::from),
    ),
    (
        "dedicated_gateway_staleness_max",
        |options, number| options.with_dedicated_gateway_staleness_max(number * SECOND),
        |settings| settings.dedicated_gateway_staleness_max.map_or(0, |time| time.as_secs() as u32),
    ),
    (
        "headers",
        |options, number| options.with_header("x-number", &number.to_string()).unwrap(),
        |settings| {
            let mut map = http::HeaderMap::new();
            settings.headers.insert_into(&mut map);
            map.get("x-number").map_or(0, |value| value.to_str().unwrap().parse().unwrap())
        },
    ),
    // The last four options have only two values: the driver sets a value that differs from
    // the value of the other layers.
    (
        "priority",
        |options, number| options.with_priority(if number == 2 { Priority::Low } else { Priority::High }),
        |settings| if settings.priority == Some(Priority::Low) { 2 } else { 0 },
    ),
    (
        "dedicated_gateway_bypass",
        |options, number| options.with_dedicated_gateway_bypass(number == 2),
        |settings| {
            if settings.dedicated_gateway_bypass { 2 } else { 0 }
        },
    ),
    (
        "hedged_writes",
        |options, number| options.with_hedged_writes(number == 2),
        |settings| if settings.hedged_writes { 2 } else { 0 },
    ),
    (
        "content_on_write",
        |options, number| options.with_content_on_write(number != 2),
        |settings| if settings.content_on_write { 0 } else { 2 },
    ),
];

#[test]
fn the_nearest_layer_wins_for_every_option() {
    let none = nothing();
    for (name, set, get) in CASES {
        let (environment, driver, operation) = (set(nothing(), 1), set(nothing(), 2), set(nothing(), 3));
        assert!(!operation.is_default(), "{name}");
        for class in CLASSES {
            let number_of = |environment: &OperationOptions, driver: &OperationOptions, operation| {
                get(&settings::resolve(&driver.clone().or(environment.clone()), operation, class))
            };
            let has_two_values = matches!(
                name,
                "hedged_writes" | "content_on_write" | "priority" | "dedicated_gateway_bypass"
            );
            let expected = |number: u32| if has_two_values && number != 2 { 0 } else { number };
            assert_eq!(number_of(&environment, &none, &none), expected(1), "{name}");
            assert_eq!(number_of(&environment, &driver, &none), expected(2), "{name}");
            assert_eq!(number_of(&environment, &driver, &operation), expected(3), "{name}");
            assert_eq!(number_of(&none, &none, &operation), expected(3), "{name}");
        }
    }
}

#[test]
fn options_are_combined_field_by_field() {
    let none = nothing();
    for (name, set, get) in CASES {
        let (weak, strong) = (set(nothing(), 1), set(nothing(), 2));
        let number_of =
            |options: OperationOptions| get(&settings::resolve(&none, &options, OperationClass::Document));
        assert_eq!(number_of(strong.clone().or(weak.clone())), number_of(strong.clone()), "{name}");
        assert_eq!(number_of(nothing().or(strong.clone())), number_of(strong.clone()), "{name}");
        assert_eq!(number_of(strong.clone().or(nothing())), number_of(strong), "{name}");
    }
}

#[test]
fn operations_without_options_share_one_settings() {
    let driver = nothing().with_failovers_max(1);
    let layers = OptionLayers::new(&driver, Overrides::default()).unwrap();
    let first = layers.settings_for(&nothing(), OperationClass::Document).unwrap();
    assert!(Arc::ptr_eq(&first, &layers.settings_for(&nothing(), OperationClass::Document).unwrap()));
    assert!(!Arc::ptr_eq(&first, &layers.settings_for(&nothing(), OperationClass::MetadataWrite).unwrap()));
    assert_eq!(first.failovers_max, 1);
    let with_timeout =
        layers.settings_for(&nothing().with_timeout(SECOND), OperationClass::Document).unwrap();
    assert_eq!((with_timeout.timeout, with_timeout.failovers_max), (SECOND, 1));
    assert!(layers.settings_for(&nothing().with_timeout(Duration::ZERO), OperationClass::Document).is_err());
}

#[test]
fn hedging_bounds_are_clamped_to_the_allowed_ones() {
    let millis = Duration::from_millis;
    for (min, max, expected_min, expected_max) in
        [(0, 10_000, 50, 4000), (100, 200, 100, 200), (1, 20, 50, 50), (5000, 6000, 4000, 4000)]
    {
        let options = nothing().with_hedging(Hedging::Dynamic { min: millis(min), max: millis(max) });
        let settings = settings::resolve(&nothing(), &options, OperationClass::Document);
        let expected = Hedging::Dynamic { min: millis(expected_min), max: millis(expected_max) };
        assert_eq!(settings.hedging, expected);
    }
}

#[test]
fn the_longest_duration_is_cut_to_a_time_that_clocks_can_hold() {
    let options = nothing()
        .with_timeout(Duration::MAX)
        .with_attempt_timeout(Duration::MAX)
        .with_throttle_wait_max(Duration::MAX)
        .with_hedging(Hedging::Fixed(Duration::MAX));
    let layers = OptionLayers::new(&options, Overrides::default()).unwrap();
    let settings = layers.settings_for(&nothing(), OperationClass::Document).unwrap();
    let Hedging::Fixed(threshold) = settings.hedging else { panic!("{:?}", settings.hedging) };
    for time in [settings.timeout, settings.attempt_timeout, settings.throttle_wait_max, threshold] {
        assert!(std::time::Instant::now().checked_add(time).is_some(), "{time:?}");
    }
    let topology = TopologyOptions::default().with_refresh_interval(Duration::MAX);
    let driver = DriverOptions::default().with_topology(topology);
    let driver = driver.resolved(&Environment::default()).unwrap();
    assert_eq!(driver.topology.refresh_interval, check::TIME_MAX);
}

fn backup() -> Endpoint {
    Endpoint::parse("https://backup.example").unwrap()
}

#[test]
fn bad_options_are_refused_with_advice() {
    let with_operation = |options: OperationOptions| DriverOptions::default().with_operation(options);
    let with_breaker = |options| DriverOptions::default().with_circuit_breaker(options);
    let with_topology = |options| DriverOptions::default().with_topology(options);
    let (zero, breaker_options, topology_options) =
        (Duration::ZERO, CircuitBreakerOptions::default, TopologyOptions::default);
    for (options, expected_part) in [
        (with_operation(nothing().with_timeout(zero)), "timeout is zero: write a time above zero"),
        (with_operation(nothing().with_attempt_timeout(zero)), "attempt_timeout is zero"),
        (with_operation(nothing().with_hedging(Hedging::Fixed(zero))), "write Hedging::Off"),
        (
            with_operation(nothing().with_hedging(Hedging::Dynamic { min: 2 * SECOND, max: SECOND })),
            "at least 2s and at most 1s: write min <= max",
        ),
        (with_operation(nothing().with_session_token("")), "session_token is not a session token"),
        (with_operation(nothing().with_session_token("0:\n")), "session_token is not a session token"),
        (with_operation(nothing().with_throughput_bucket(0)), "throughput_bucket is 0: the service has"),
        (with_operation(nothing().with_throughput_bucket(6)), "the buckets 1 to 5"),
        (with_operation(nothing().with_excluded_regions([" "])), "excluded_regions holds an empty name"),
        (DriverOptions::default().with_preferred_regions([""]), "preferred_regions holds an empty name"),
        (DriverOptions::default().with_application_region("Mars"), "write a region of Azure such as"),
        (
            DriverOptions::default().with_application_region("West US").with_preferred_regions(["East US"]),
            "application_region and preferred_regions are both set",
        ),
        (
            DriverOptions::default().with_endpoint_discovery(false).with_preferred_regions(["East US"]),
            "endpoint_discovery is off",
        ),
        (
            DriverOptions::default().with_endpoint_discovery(false).with_backup_endpoints([backup()]),
            "leave out preferred_regions",
        ),
        (DriverOptions::default().with_backup_endpoints(vec![backup(); 17]), "more than 16 backup_endpoints"),
        (DriverOptions::default().with_user_agent("a\r\nb"), "printable ASCII"),
        (DriverOptions::default().with_token_scope(""), "token_scope is empty"),
        (
            with_breaker(breaker_options().with_read_failures(0)),
            "circuit_breaker.read_failures is 0: write 1 or more",
        ),
        (with_breaker(breaker_options().with_write_failures(0)), "circuit_breaker.write_failures"),
        (with_breaker(breaker_options().with_hedge_losses(0)), "circuit_breaker.hedge_losses"),
        (with_breaker(breaker_options().with_counter_reset(zero)), "circuit_breaker.counter_reset is zero"),
        (with_breaker(breaker_options().with_probe_after(zero)), "circuit_breaker.probe_after is zero"),
        (
            with_breaker(breaker_options().with_cleanup_interval(zero)),
            "circuit_breaker.cleanup_interval is zero",
        ),
        (with_topology(topology_options().with_refresh_interval(zero)), "topology.refresh_interval is zero"),
        (with_topology(topology_options().with_refresh_pause(zero)), "topology.refresh_pause is zero"),
        (with_topology(topology_options().with_unavailable_for(zero)), "topology.unavailable_for is zero"),
        (with_topology(topology_options().with_failback_after(zero)), "topology.failback_after is zero"),
    ] {
        let error = options.resolved(&Environment::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input);
        assert!(error.message().contains(expected_part), "{error} should say {expected_part}");
    }
    let options = with_operation(nothing().with_timeout(SECOND)).with_user_agent("shop/1.0");
    assert!(options.resolved(&Environment::default()).is_ok());
}

#[test]
fn the_environment_sets_options_that_code_left_at_their_default() {
    let environment = Environment::read(|name| match name {
        "AZURE_COSMOS_PPCB_ENABLED" => Some("false".to_owned()),
        "AZURE_COSMOS_ENDPOINT_UNAVAILABLE_TTL_MS" => Some("7000".to_owned()),
        _ => None,
    })
    .unwrap();
    let resolved = DriverOptions::default().resolved(&environment).unwrap();
    assert!(!resolved.circuit_breaker.enabled);
    assert_eq!(resolved.topology.unavailable_for, 7 * SECOND);
    let topology = TopologyOptions::default().with_unavailable_for(2 * SECOND);
    let resolved = DriverOptions::default().with_topology(topology).resolved(&environment).unwrap();
    assert_eq!(resolved.topology.unavailable_for, 2 * SECOND);
}
