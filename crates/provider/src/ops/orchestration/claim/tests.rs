//! Tests of the capability check.

use duroxide::providers::SemverRange;
use semver::Version;

use super::*;

fn state_pinned_to(pin: Option<&str>) -> State {
    let mut state = State::blank("a", String::new());
    state.execution.pinned_version = pin.map(str::to_owned);
    state
}

/// A filter for the versions from `min.0.0` to `max.5.0` of each pair `(min, max)`.
fn filter_of(ranges: &[(u64, u64)]) -> DispatcherCapabilityFilter {
    let range =
        |(min, max): &(u64, u64)| SemverRange::new(Version::new(*min, 0, 0), Version::new(*max, 5, 0));
    DispatcherCapabilityFilter { supported_duroxide_versions: ranges.iter().map(range).collect() }
}

#[test]
fn an_execution_is_compatible_with_a_dispatcher_that_runs_its_version() {
    let filter = filter_of(&[(1, 1), (3, 3)]);
    for (pin, is_expected) in [
        (Some("1.0.0"), true),
        (Some("1.5.0"), true),
        (Some("1.5.1"), false),
        (Some("2.0.0"), false),
        (Some("3.0.0"), true),
        (Some("3.6.0"), false),
        (None, true),
        (Some("no version"), true),
    ] {
        assert_eq!(is_compatible(&state_pinned_to(pin), Some(&filter)), is_expected, "{pin:?}");
    }
    assert!(!is_compatible(&state_pinned_to(Some("1.0.0")), Some(&filter_of(&[]))));
    assert!(is_compatible(&state_pinned_to(Some("1.0.0")), None));
}
