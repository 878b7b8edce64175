//! The layers of a driver's options: environment, runtime and driver, and the environment variables
//! that override all layers.

use super::super::*;
use super::{SECOND, nothing};

/// The name of an option, how to set it to the value that stands for a number, and how to read
/// that number.
type DriverCase = (&'static str, fn(DriverOptions, u32) -> DriverOptions, fn(&DriverOptions) -> u32);

const DRIVER_CASES: [DriverCase; 9] = [
    (
        "operation",
        |options, number| options.with_operation(nothing().with_failovers_max(number)),
        |options| options.operation.failovers_max.unwrap_or(0),
    ),
    (
        "hedges_max",
        |options, number| options.with_hedges_max(number),
        |options| options.hedges_max.unwrap_or(0),
    ),
    (
        "user_agent",
        |options, number| options.with_user_agent("x".repeat(number as usize)),
        |options| options.user_agent.as_ref().map_or(0, |agent| agent.len() as u32),
    ),
    (
        "token_scope",
        |options, number| options.with_token_scope("x".repeat(number as usize)),
        |options| options.token_scope.as_ref().map_or(0, |scope| scope.len() as u32),
    ),
    (
        "circuit_breaker.write_failures",
        |options, number| {
            options.with_circuit_breaker(CircuitBreakerOptions::default().with_write_failures(number))
        },
        |options| options.circuit_breaker.write_failures,
    ),
    (
        "circuit_breaker.probe_after",
        |options, number| {
            options.with_circuit_breaker(CircuitBreakerOptions::default().with_probe_after(number * SECOND))
        },
        |options| options.circuit_breaker.probe_after.as_secs() as u32,
    ),
    (
        "topology.refresh_pause",
        |options, number| {
            options.with_topology(TopologyOptions::default().with_refresh_pause(number * SECOND))
        },
        |options| options.topology.refresh_pause.as_secs() as u32,
    ),
    (
        "topology.unavailable_for",
        |options, number| {
            options.with_topology(TopologyOptions::default().with_unavailable_for(number * SECOND))
        },
        |options| options.topology.unavailable_for.as_secs() as u32,
    ),
    (
        "preferred_regions",
        |options, number| options.with_preferred_regions(vec!["West US"; number as usize]),
        |options| options.preferred_regions.len() as u32,
    ),
];

#[test]
fn the_drivers_options_win_over_the_runtimes_and_the_runtimes_over_the_environments() {
    // The environment sets the number 1, the runtime 2 and the driver 3.
    for (name, set, get) in DRIVER_CASES {
        let options = |number| set(DriverOptions::default(), number);
        let environment = Environment { driver: options(1), ..Environment::default() };
        let resolved = |options: DriverOptions| get(&options.resolved(&environment).unwrap());
        let none = DriverOptions::default;
        assert_eq!(resolved(none().or(&none())), 1, "{name}");
        assert_eq!(resolved(none().or(&options(2))), 2, "{name}");
        assert_eq!(resolved(options(3).or(&options(2))), 3, "{name}");
        assert_eq!(resolved(options(3).or(&none())), 3, "{name}");
    }
}

/// The application region, the preferred regions and endpoint discovery are one choice. If a layer
/// sets one of the three, the other two are not taken from another layer.
#[test]
fn the_choice_of_regions_is_taken_from_one_layer() {
    let nearest = DriverOptions::default().with_application_region("West US");
    let listed = DriverOptions::default().with_preferred_regions(["East US"]);
    let own_endpoint = DriverOptions::default().with_endpoint_discovery(false);
    let environment = Environment { driver: nearest.clone(), ..Environment::default() };
    for options in [&listed, &own_endpoint] {
        let resolved = options.clone().resolved(&environment).unwrap();
        assert_eq!(resolved.application_region, None);
        assert_eq!(resolved.preferred_regions, options.preferred_regions);
        assert_eq!(resolved.endpoint_discovery, options.endpoint_discovery);
    }
    let resolved = DriverOptions::default().or(&listed).resolved(&environment).unwrap();
    assert_eq!((resolved.preferred_regions.len(), resolved.application_region), (1, None));
    let resolved = DriverOptions::default().resolved(&environment).unwrap();
    assert_eq!(resolved.application_region, nearest.application_region);
}

#[test]
fn overrides_of_the_environment_win_over_code() {
    let variables =
        |value: &'static str| move |name: &str| name.ends_with("_OVERRIDE").then(|| value.to_owned());
    let (on, off) =
        (Environment::read(variables("true")).unwrap(), Environment::read(variables("false")).unwrap());
    let fixed = Hedging::Fixed(SECOND);
    for (environment, code, expected) in [
        (&off, fixed, Hedging::Off),
        (&off, Hedging::dynamic(), Hedging::Off),
        (&on, Hedging::Off, Hedging::dynamic()),
        (&on, fixed, fixed),
        (&Environment::default(), Hedging::Off, Hedging::Off),
    ] {
        let driver_layers = OptionLayers::new(&nothing().with_hedging(code), environment.overrides).unwrap();
        let settings = driver_layers.settings_for(&nothing(), OperationClass::Document).unwrap();
        assert_eq!(settings.hedging, expected, "{code:?} of the driver");
        let operation_layers = OptionLayers::new(&nothing(), environment.overrides).unwrap();
        let options = nothing().with_hedging(code);
        let settings = operation_layers.settings_for(&options, OperationClass::Document).unwrap();
        assert_eq!(settings.hedging, expected, "{code:?} of the operation");
    }
    for (environment, enabled) in [(&on, true), (&off, false)] {
        let breaker = CircuitBreakerOptions::default().with_enabled(!enabled);
        let options = DriverOptions::default().with_circuit_breaker(breaker).resolved(environment).unwrap();
        assert_eq!(options.circuit_breaker.enabled, enabled);
    }
}
